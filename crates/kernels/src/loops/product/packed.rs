//! Operands of launches in the layouts that products read, and which operands have such a form.

use super::chain::InChains;
use super::{Factors, ProductPlan};
use crate::conv::PlaneConv;
use crate::error::{KernelError, Result};
use crate::gemm::{Float, PackedMatrix, PixelWeights};
use crate::isa::Isa;
use crate::loops::KERNEL;
use crate::loops::packed::OperandValues;
use crate::loops::stage::PanelContext;
use crate::pages::Lifetime;
use crate::view::{Ptr, View};
use maquette_device::PackKey;
use maquette_ir::DType;
use smallvec::SmallVec;

/// How a factor is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PackForm {
    /// As the right factor of a product.
    Matrix,
    /// As the weights of windows.
    Windows,
    /// As the weights of a depthwise convolution, whose channels are last.
    Channels,
}

/// An operand of a launch in the layout that products read, or values of several operands. It is
/// for the process that made it. The layout is for all plans with products of its sizes, the values
/// for one plan.
#[derive(Debug)]
pub struct PackedOperand(pub(in crate::loops) Packed);

/// What is packed.
pub(in crate::loops) enum Packed {
    Matrix(PackedMatrix),
    F32(PixelWeights<f32>),
    F64(PixelWeights<f64>),
    Values(OperandValues),
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, sizes) = match self {
            Packed::Matrix(matrix) => ("Matrix", matrix.sizes()),
            Packed::F32(weights) => ("F32", weights.sizes()),
            Packed::F64(weights) => ("F64", weights.sizes()),
            Packed::Values(values) => ("Values", [1, values.memory.len() as i64]),
        };
        f.debug_tuple(name).field(&sizes).finish()
    }
}

impl PackedOperand {
    /// The matrix, if it is the right factor of a product.
    pub(super) fn matrix(&self) -> Option<&PackedMatrix> {
        match &self.0 {
            Packed::Matrix(matrix) => Some(matrix),
            _ => None,
        }
    }
}

impl maquette_device::PackedOperand for PackedOperand {
    fn bytes(&self) -> usize {
        match &self.0 {
            Packed::Matrix(matrix) => matrix.bytes(),
            Packed::F32(weights) => weights.bytes(),
            Packed::F64(weights) => weights.bytes(),
            Packed::Values(values) => values.memory.len() * size_of::<f64>(),
        }
    }
}

/// Packs the weights of windows.
///
/// # Safety
/// As [`PixelWeights::new`].
pub(super) unsafe fn packed_weights<F: Float>(
    isa: Isa,
    start: Ptr<F>,
    (sizes, form): ([usize; 2], PackForm),
    lifetime: Lifetime,
) -> Result<PixelWeights<F>> {
    // SAFETY: the caller's promise.
    unsafe {
        match form {
            PackForm::Channels => PixelWeights::of_channels(KERNEL, isa, start, sizes, lifetime),
            _ => PixelWeights::new(KERNEL, isa, start, sizes, lifetime),
        }
    }
}

impl ProductPlan {
    /// The operand that can be packed.
    pub fn packs(&self) -> Option<usize> {
        self.packs.map(|(operand, _)| operand)
    }

    /// As [`ProductPlan::packs`]. In launches it has this number among packed operands.
    pub fn number_packed(&mut self, number: usize) -> Option<usize> {
        let (operand, of) = self.packs.as_mut()?;
        *of = number;
        Some(*operand)
    }

    /// What its packed operand depends on, beside the memory of the operand: all plans with equal
    /// keys read it alike.
    pub fn pack_key(&self) -> PackKey {
        let [m, n, k] = self.sizes.map(|n| n as i64);
        let (form, dtype, start, sizes, strides) = match &self.factors {
            Factors::Windows(windows) => (windows.pack_form(), self.dtype, 0, [k, m], [1, k]),
            Factors::Matrices([_, b]) => {
                (PackForm::Matrix, b.dtype, b.start, [k, n], [b.inner, b.own])
            }
        };
        let form = [form as i64, dtype as i64, start].into_iter().chain(sizes).chain(strides);
        PackKey { form: form.collect(), numbers: SmallVec::new() }
    }

    /// Packs the right factor, or the weight of windows, which is in a view of its operand.
    pub fn pack(&self, isa: Isa, view: &View<'_>) -> Result<PackedOperand> {
        let [m, n, k] = self.sizes;
        let b = match &self.factors {
            Factors::Matrices([_, b]) => b,
            Factors::Windows(windows) => {
                let (start, of) = (view.as_ptr().cast_mut(), ([m, k], windows.pack_form()));
                let lifetime = Lifetime::Cached;
                // SAFETY: the view has the layout of the plan, which is row-major.
                let packed = unsafe {
                    match self.dtype {
                        DType::F64 => {
                            Packed::F64(packed_weights(isa, Ptr(start.cast()), of, lifetime)?)
                        }
                        _ => Packed::F32(packed_weights(isa, Ptr(start.cast()), of, lifetime)?),
                    }
                };
                return Ok(PackedOperand(packed));
            }
        };
        let address = view.as_ptr().wrapping_offset((b.start * b.dtype.size() as i64) as isize);
        // SAFETY: the view has the layout of the plan, for which loads were checked.
        let b =
            unsafe { View::from_raw(address, b.dtype, &[k as i64, n as i64], &[b.inner, b.own]) };
        Ok(PackedOperand(Packed::Matrix(PackedMatrix::on(isa, &b)?)))
    }

    /// The packed operand of a launch, if there is one.
    ///
    /// # Errors
    /// It is of another plan.
    pub(super) fn packed<'a>(&self, cx: &PanelContext<'a>) -> Result<Option<&'a PackedOperand>> {
        let Some(packed) = self.packs.and_then(|(_, number)| *cx.run.packed.get(number)?) else {
            return Ok(None);
        };
        let [m, n, k] = self.sizes.map(|n| n as i64);
        let is_it = match (&packed.0, &self.factors) {
            (Packed::Matrix(matrix), Factors::Matrices([_, b])) => {
                matrix.sizes() == [k, n] && matrix.dtype() == b.dtype
            }
            (Packed::F32(weights), Factors::Windows(_)) => {
                weights.sizes() == [m, k] && self.dtype == DType::F32
            }
            (Packed::F64(weights), Factors::Windows(_)) => {
                weights.sizes() == [m, k] && self.dtype == DType::F64
            }
            _ => false,
        };
        match is_it {
            true => Ok(Some(packed)),
            false => Err(KernelError::argument(KERNEL, "a packed operand is of another plan")),
        }
    }
}

/// A type that a convolution is computed in.
pub(super) trait Convolved: InChains {
    /// Computes a convolution by planes, as [`PlaneConv::run`].
    ///
    /// # Safety
    /// As [`PlaneConv::run`].
    unsafe fn by_planes(conv: &PlaneConv<'_, Self>) -> Option<Result<()>>;
    /// The packed weights, if they are of this type.
    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<Self>>;
}

impl Convolved for f32 {
    unsafe fn by_planes(conv: &PlaneConv<'_, f32>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { conv.run() }
    }

    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<f32>> {
        match &packed.0 {
            Packed::F32(weights) => Some(weights),
            _ => None,
        }
    }
}

impl Convolved for f64 {
    unsafe fn by_planes(conv: &PlaneConv<'_, f64>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { conv.run() }
    }

    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<f64>> {
        match &packed.0 {
            Packed::F64(weights) => Some(weights),
            _ => None,
        }
    }
}
