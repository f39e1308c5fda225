//! Copies and conversions: fresh memory, another dtype or device, another memory format.

use maquette_ir::loops::named::{self, Input};
use maquette_ir::{DType, Device, Layout, MemoryFormat};
use maquette_ops::operator::dims::{
    done, format_strides, fresh, is_channels_last, is_channels_last_contiguous, is_contiguous,
};
use maquette_ops::operator::loops::{NestCx, NestResults, ViewOperand};
use maquette_ops::operator::lowering::{
    Class, Compute, Formula, How, Lowering, Metas, Pointwise, Strides, Types,
};
use maquette_ops::operator::{reshape, table};
use maquette_ops::{Error, FakeCtx, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

pub(crate) const fn copying(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Copy,
        strides: Strides::FromOperands,
        metas,
        how: COPY,
    })
}

/// The elements of argument 0, cast to the dtype of the result.
pub(crate) const COPY: How = How::Loops(|cx| {
    let x = cx.input(0)?;
    copied(cx, &x)
});

/// The elements of the tensor that `view` gives, cast to the dtype of the result.
pub(crate) fn copy_of(cx: &mut NestCx<'_>, view: ViewOperand) -> Result<NestResults> {
    let x = cx.view(view)?;
    copied(cx, &x)
}

fn copied(cx: &mut NestCx<'_>, x: &Input) -> Result<NestResults> {
    let out = cx.result_dtype(0);
    Ok(smallvec![named::copy(&mut cx.nest, x, out)?.into()])
}

/// `_unsafe_view`: a copy with other sizes, for which a view must exist.
pub(crate) const fn unsafe_view() -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Copy,
        strides: Strides::FromOperands,
        metas: |_, a| {
            let x = a[0].tensor()?;
            Ok(smallvec![fresh(x, reshape::view(x.meta(), a[1].ints()?)?.sizes, x.dtype())])
        },
        how: How::Loops(|cx| {
            copy_of(cx, |a| {
                let x = a[0].tensor()?;
                x.view_of(reshape::view(x.meta(), a[1].ints()?)?)
            })
        }),
    })
}

fn format_of(v: &Value) -> Result<MemoryFormat> {
    match v {
        Value::None => Ok(MemoryFormat::Preserve),
        Value::MemoryFormat(f) => Ok(*f),
        other => Err(Error::value(format!(
            "`memory_format` must be a memory format, found {}",
            other.kind()
        ))),
    }
}

fn clone_meta(x: &Tensor, format: MemoryFormat, dtype: DType, device: Device) -> Result<Metas> {
    let strides = format_strides(format, x.sizes(), x.meta())?;
    Ok(smallvec![
        fresh(x, x.sizes().into(), dtype).on(device).with_dtype(dtype).with_strides(strides)
    ])
}

fn require_strided(v: &Value) -> Result<()> {
    match v {
        Value::None | Value::Layout(Layout::Strided) => Ok(()),
        other => Err(Error::value(format!("`layout` must be strided, found {}", other.kind()))),
    }
}

/// Whether the tensor is stored in this memory format.
#[track_caller]
fn has_format(x: &Tensor, format: MemoryFormat) -> Result<bool> {
    match format {
        MemoryFormat::Preserve => Ok(true),
        MemoryFormat::Contiguous => is_contiguous(x.sizes(), x.strides()),
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
            let rank = if format == MemoryFormat::ChannelsLast { 4 } else { 5 };
            Ok(x.dim() == rank && is_channels_last_contiguous(x.sizes(), x.strides())?)
        }
    }
}

/// Whether `to` returns the tensor without a copy. PyTorch compares the requested format with the
/// tensor's suggested format, not with its strides.
#[track_caller]
fn suggests_format(x: &Tensor, format: MemoryFormat) -> Result<bool> {
    let suggested = match x.dim() {
        4 if is_channels_last(x.meta())? => MemoryFormat::ChannelsLast,
        5 if is_channels_last(x.meta())? => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    };
    Ok(format == MemoryFormat::Preserve || format == suggested)
}

/// The arguments of an overload of `to`.
struct To {
    dtype: Option<DType>,
    device: Option<Device>,
    copy: bool,
    format: MemoryFormat,
}

impl To {
    /// The tensor itself if it has the requested dtype, device and format, else a converted copy.
    #[track_caller]
    fn apply(self, x: &Tensor) -> Result<Outputs> {
        let (dtype, device) = (self.dtype.unwrap_or(x.dtype()), self.device.unwrap_or(x.device()));
        if dtype == x.dtype()
            && device == x.device()
            && !self.copy
            && suggests_format(x, self.format)?
        {
            return done(x.clone());
        }
        done(x._to_copy(dtype, device, self.format))
    }
}

/// A copy of a view of the first argument.
fn viewed_copy(op: &str, args: &[Value]) -> Result<Outputs> {
    let views = maquette_ops::call(op, args.iter().cloned().collect())?;
    views
        .iter()
        .map(|v| {
            v.map_tensors(&mut |t| -> Result<Tensor> {
                Ok(t.clone_as(MemoryFormat::Contiguous).ok()?.clone())
            })
        })
        .collect()
}

table! {
    /// Copies and conversions.
    static TABLE = {
        "aten::clone(Tensor self, *, \
            MemoryFormat? memory_format=None) -> Tensor" => {
            role: PreservesElements,
            lowering: copying(|_, a| {
                let x = a[0].tensor()?;
                clone_meta(x, format_of(&a[1])?, x.dtype(), x.device())
            }),
            vjp: crate::grad::IDENTITY,
        },
        "aten::contiguous(Tensor(a) self, *, \
            MemoryFormat memory_format=contiguous_format) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                let (x, format) = (a[0].tensor()?, format_of(&a[1])?);
                if has_format(x, format)? { done(x.clone()) } else { done(x.clone_as(format)) }
            }),
        },
        "aten::copy(Tensor self, Tensor src, \
            bool non_blocking=False) -> Tensor" => {
            role: CopiesAcrossDevices,
            lowering: Lowering::Pointwise(Pointwise {
                types: Types::First,
                build: Formula::Built(|cx| cx.arg(1)),
            }),
        },
        "aten::copy_(Tensor(a!) self, Tensor src, \
            bool non_blocking=False) -> Tensor(a!)" => {
            role: MovesElements,
            lowering: Lowering::InPlace("aten::copy"),
        },
        "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, \
            Layout? layout=None, Device? device=None, bool? pin_memory=None, \
            bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor" => {
            role: PreservesElements,
            lowering: copying(|_, a| {
                let x = a[0].tensor()?;
                require_strided(&a[2])?;
                let (dtype, device) = (
                    a[1].opt(Value::dtype)?.unwrap_or(x.dtype()),
                    a[3].opt(Value::device)?.unwrap_or(x.device()),
                );
                clone_meta(x, format_of(&a[6])?, dtype, device)
            }),
            vjp: crate::grad::IDENTITY,
        },
        "aten::to.dtype(Tensor(a) self, ScalarType dtype, \
            bool non_blocking=False, bool copy=False, \
            MemoryFormat? memory_format=None) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                To {
                    dtype: Some(a[1].dtype()?),
                    device: None,
                    copy: a[3].bool()?,
                    format: format_of(&a[4])?,
                }
                .apply(a[0].tensor()?)
            }),
        },
        "aten::to.device(Tensor(a) self, Device device, ScalarType dtype, \
            bool non_blocking=False, bool copy=False, \
            MemoryFormat? memory_format=None) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                To {
                    dtype: Some(a[2].dtype()?),
                    device: Some(a[1].device()?),
                    copy: a[4].bool()?,
                    format: format_of(&a[5])?,
                }
                .apply(a[0].tensor()?)
            }),
        },
        "aten::to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, \
            Layout? layout=None, Device? device=None, bool? pin_memory=None, \
            bool non_blocking=False, bool copy=False, \
            MemoryFormat? memory_format=None) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                require_strided(&a[2])?;
                To {
                    dtype: a[1].opt(Value::dtype)?,
                    device: a[3].opt(Value::device)?,
                    copy: a[6].bool()?,
                    format: format_of(&a[7])?,
                }
                .apply(a[0].tensor()?)
            }),
        },
        "aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, \
            bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                let other = a[1].tensor()?;
                To {
                    dtype: Some(other.dtype()),
                    device: Some(other.device()),
                    copy: a[3].bool()?,
                    format: format_of(&a[4])?,
                }
                .apply(a[0].tensor()?)
            }),
        },
        // PyTorch's schema lacks the alias annotation, although `type_as` may return `self`, as
        // `to` does.
        "aten::type_as(Tensor(a) self, Tensor other) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                let other = a[1].tensor()?;
                To {
                    dtype: Some(other.dtype()),
                    device: Some(other.device()),
                    copy: false,
                    format: MemoryFormat::Preserve,
                }
                .apply(a[0].tensor()?)
            }),
        },
        // No view with these sizes need exist, because the result is a row-major copy in any case.
        "aten::view_copy(Tensor self, SymInt[] size) -> Tensor" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| viewed_copy("aten::reshape", a)),
        },
        "aten::view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::view.dtype", a)),
        },
        "aten::expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::expand", a)),
        },
        "aten::permute_copy(Tensor self, int[] dims) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::permute", a)),
        },
        "aten::transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::transpose.int", a)),
        },
        "aten::t_copy(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::t", a)),
        },
        "aten::select_copy.int(Tensor self, int dim, SymInt index) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::select.int", a)),
        },
        "aten::slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, \
            SymInt? end=None, SymInt step=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::slice.Tensor", a)),
        },
        "aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::narrow", a)),
        },
        "aten::squeeze_copy(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::squeeze", a)),
        },
        "aten::squeeze_copy.dim(Tensor self, int dim) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::squeeze.dim", a)),
        },
        "aten::squeeze_copy.dims(Tensor self, int[] dim) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::squeeze.dims", a)),
        },
        "aten::unsqueeze_copy(Tensor self, int dim) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::unsqueeze", a)),
        },
        "aten::diagonal_copy(Tensor self, int offset=0, int dim1=0, \
            int dim2=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::diagonal", a)),
        },
        "aten::unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::unfold", a)),
        },
        "aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, \
            SymInt? storage_offset=None) -> Tensor" => {
            role: ObservesStorage,
            lowering: Lowering::Composite(|a| viewed_copy("aten::as_strided", a)),
        },
        "aten::alias_copy(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::alias", a)),
        },
        "aten::detach_copy(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::detach", a)),
        },
        "aten::unbind_copy.int(Tensor self, int dim=0) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::unbind.int", a)),
        },
        "aten::split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::split.Tensor", a)),
        },
        "aten::split_with_sizes_copy(Tensor self, SymInt[] split_sizes, \
            int dim=0) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(|a| viewed_copy("aten::split_with_sizes", a)),
        },
    }
}
