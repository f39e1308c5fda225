//! Pointwise arithmetic, comparisons, and Rust's operators.

use super::{Operand, aten, methods};
use crate::tensor::Tensor;
use maquette_ir::Loc;

methods! {
    /// `max(self, 0)`, elementwise; NaN stays.
    fn relu() = "relu";
    /// The sine of each element, in radians.
    fn sin() = "sin";
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:literal, $assign_trait:ident $assign:ident $in_place:literal;)*) => { $(
        impl<R: Into<Operand>> std::ops::$trait<R> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor {
                aten!($name, Loc::caller(); self, other.into())
            }
        }
        impl<R: Into<Operand>> std::ops::$trait<R> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor {
                aten!($name, Loc::caller(); self, other.into())
            }
        }
        impl std::ops::$trait<&Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                aten!($name, Loc::caller(); self, other)
            }
        }
        impl std::ops::$trait<Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                aten!($name, Loc::caller(); self, other)
            }
        }
        impl<R: Into<Operand>> std::ops::$assign_trait<R> for Tensor {
            /// Writes in place, through every view of the storage, as PyTorch's augmented assignment does.
            #[track_caller]
            fn $assign(&mut self, other: R) {
                *self = aten!($in_place, Loc::caller(); &*self, other.into());
            }
        }
    )* };
}

operators! {
    Add add "add.Tensor", AddAssign add_assign "add_.Tensor";
    Sub sub "sub.Tensor", SubAssign sub_assign "sub_.Tensor";
    Mul mul "mul.Tensor", MulAssign mul_assign "mul_.Tensor";
    Div div "div.Tensor", DivAssign div_assign "div_.Tensor";
}
