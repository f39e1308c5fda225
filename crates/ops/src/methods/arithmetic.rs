//! Rust's arithmetic operators on tensors, with `+=` and its kind in place.

use super::{Operand, aten};
use crate::tensor::Tensor;
use maquette_ir::Loc;

macro_rules! number_first {
    ($trait:ident $method:ident $name:literal: $($number:ty)*) => { $(
        impl std::ops::$trait<&Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                aten!($name, Loc::caller(); self, other)
            }
        }
        impl std::ops::$trait<Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                aten!($name, Loc::caller(); self, other)
            }
        }
    )* };
}

macro_rules! operators {
    ($(
        $trait:ident $method:ident $name:literal,
        $assign_trait:ident $assign:ident $in_place:literal,
        $($number:ty)*;
    )*) => { $(
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
        number_first!($trait $method $name: $($number)*);
        impl<R: Into<Operand>> std::ops::$assign_trait<R> for Tensor {
            /// Writes in place, so that every view of the storage sees the result, as PyTorch's
            /// augmented assignment does.
            #[track_caller]
            fn $assign(&mut self, other: R) {
                *self = aten!($in_place, Loc::caller(); &*self, other.into());
            }
        }
    )* };
}

operators! {
    Add add "add.Tensor", AddAssign add_assign "add_.Tensor", f64 i64;
    Sub sub "sub.Tensor", SubAssign sub_assign "sub_.Tensor", f64 i64;
    Mul mul "mul.Tensor", MulAssign mul_assign "mul_.Tensor", f64 i64;
    Div div "div.Tensor", DivAssign div_assign "div_.Tensor", f64 i64;
    Rem rem "remainder.Tensor", RemAssign rem_assign "remainder_.Tensor", f64 i64;
    BitAnd bitand "bitwise_and.Tensor", BitAndAssign bitand_assign "bitwise_and_.Tensor", i64;
    BitOr bitor "bitwise_or.Tensor", BitOrAssign bitor_assign "bitwise_or_.Tensor", i64;
    BitXor bitxor "bitwise_xor.Tensor", BitXorAssign bitxor_assign "bitwise_xor_.Tensor", i64;
    Shl shl "bitwise_left_shift.Tensor", ShlAssign shl_assign "bitwise_left_shift_.Tensor", i64;
    Shr shr "bitwise_right_shift.Tensor", ShrAssign shr_assign "bitwise_right_shift_.Tensor", i64;
}

macro_rules! prefix {
    ($($trait:ident $method:ident $name:literal;)*) => { $(
        impl std::ops::$trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                aten!($name, Loc::caller(); self)
            }
        }
        impl std::ops::$trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                aten!($name, Loc::caller(); self)
            }
        }
    )* };
}

prefix! {
    Neg neg "neg";
    Not not "bitwise_not";
}
