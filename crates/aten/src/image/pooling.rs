//! Pooling over sliding windows of the last one to three dimensions: maximum, mean, and adaptive
//! mean.

use super::regions::stepwise_means;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_kernels::{self as kernels, Window};
use maquette_ops::operator::cpu_exec::{input, output};
use maquette_ops::operator::dims::{
    done, fresh, in_format_of, require, require_dtype, require_float, require_rank,
};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{Derivative, dims_text, table};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

const fn window(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Pool,
        strides: Strides::FromOperands,
        metas,
        how: How::Host(run),
    })
}

/// The parameters of a sliding window.
pub(crate) struct Sliding(Window);

impl Sliding {
    /// Reads and checks the parameters of a window over `space` dimensions.
    #[track_caller]
    fn of(
        space: usize,
        kernel: &Value,
        stride: &Value,
        padding: &Value,
        dilation: Option<&Value>,
        ceil: &Value,
    ) -> Result<Sliding> {
        let list = |name: &str, v: &Value, least: i64| -> Result<Vec<i64>> {
            let numbers = v.ints_i64()?;
            let all = match numbers.len() {
                n if n == space => numbers.to_vec(),
                1 => vec![numbers[0]; space],
                n => {
                    return Err(Error::value(format!(
                        "`{name}` must hold {space} numbers, found {n}"
                    )));
                }
            };
            if !all.iter().all(|i| (least..=Window::MOST).contains(i)) {
                return Err(Error::value(format!(
                    "`{name}` must be from {least} to {}, found {all:?}",
                    Window::MOST
                )));
            }
            Ok(all)
        };
        let kernel = list("kernel_size", kernel, 1)?;
        let stride =
            if stride.ints()?.is_empty() { kernel.clone() } else { list("stride", stride, 1)? };
        let padding = list("padding", padding, 0)?;
        let dilation = dilation.map_or(Ok(vec![1; space]), |d| list("dilation", d, 1))?;
        if padding.iter().zip(&kernel).any(|(p, k)| *p > k / 2) {
            return Err(Error::value(format!(
                "`padding` must be at most half of `kernel_size`, found {padding:?} for {kernel:?}"
            )));
        }
        Ok(Sliding(Window { kernel, stride, padding, dilation, ceil_mode: ceil.bool()? }))
    }

    /// The metadata of the output. Sizes follow PyTorch, `ceil_mode` included.
    #[track_caller]
    pub(crate) fn output(&self, x: &Tensor) -> Result<Meta> {
        let w = &self.0;
        let space = w.kernel.len();
        require_rank("self", x, space + 1..=space + 2)?;
        let mut sizes: Dims = x.sizes().into();
        let lead = x.dim() - space;
        // Padding does not make a pool of an empty image possible; the batch may be empty.
        if x.sizes()[lead - 1..].iter().any(|n| n.as_i64() == Some(0)) {
            return Err(Error::value(format!(
                "argument `self` must have elements in every dimension but the batch, found sizes \
                    {}",
                dims_text(x.sizes())
            )));
        }
        for d in 0..space {
            let (n, s, p) = (sizes[lead + d], w.stride[d], w.padding[d]);
            let reach = w.dilation[d].saturating_mul(w.kernel[d] - 1).saturating_add(1);
            let mut size =
                (n + (2 * p - reach + if w.ceil_mode { s - 1 } else { 0 })).floor_div(s) + 1;
            // With `ceil_mode`, the last window must start inside the input or its left padding.
            if w.ceil_mode && maquette_ops::operator::dims::decide(((size - 1) * s).ge(n + p))? {
                size -= 1;
            }
            require(size.ge(1), || {
                format!(
                    "a window that spans {reach} elements exceeds dimension {} of sizes {} with \
                        padding {p}",
                    lead + d,
                    dims_text(x.sizes())
                )
            })?;
            sizes[lead + d] = size;
        }
        pooled_meta(x, sizes, x.dtype())
    }
}

/// The metadata of a fresh result, channels-last if the input is.
#[track_caller]
pub(crate) fn pooled_meta(x: &Tensor, sizes: Dims, dtype: DType) -> Result<Meta> {
    in_format_of(x, fresh(x, sizes, dtype))
}

pub(crate) fn max_sliding(args: &[Value], space: usize) -> Result<Sliding> {
    Sliding::of(space, &args[1], &args[2], &args[3], Some(&args[4]), &args[5])
}

fn max_pool_meta(args: &[Value], space: usize) -> Result<Meta> {
    max_sliding(args, space)?.output(args[0].tensor()?)
}

fn max_pool_metas(args: &[Value], space: usize) -> Result<Metas> {
    let m = max_pool_meta(args, space)?;
    Ok(smallvec![m.clone(), m.with_dtype(DType::I64)])
}

/// Computes the greatest elements into the first output, and their positions into the second, if
/// there is one.
fn max_pool_run(args: &[Value], out: &[Tensor], space: usize) -> Result<()> {
    let w = max_sliding(args, space)?.0;
    let mut indices = out.get(1).map(output).transpose()?;
    let x = input(args[0].tensor()?)?;
    Ok(kernels::max_pool(&x, &w, &mut output(&out[0])?, indices.as_mut())?)
}

fn avg_sliding(args: &[Value], space: usize) -> Result<Sliding> {
    Sliding::of(space, &args[1], &args[2], &args[3], None, &args[4])
}

#[track_caller]
fn avg_pool_meta(args: &[Value], space: usize) -> Result<Meta> {
    let x = args[0].tensor()?;
    require_dtype("self", x, "a floating dtype or i64", |d| d.is_float() || d == DType::I64)?;
    avg_sliding(args, space)?.output(x)
}

fn avg_pool_run(args: &[Value], out: &Tensor, space: usize) -> Result<()> {
    let (w, include_pad) = (avg_sliding(args, space)?.0, args[5].bool()?);
    let divisor = args.get(6).map_or(Ok(None), |v| v.opt(Value::int_i64))?;
    Ok(kernels::avg_pool(&input(args[0].tensor()?)?, &w, include_pad, divisor, &mut output(out)?)?)
}

/// The metadata of an adaptive pool with the output sizes in argument 1.
#[track_caller]
fn adaptive_meta(args: &[Value], space: usize) -> Result<Meta> {
    let (x, to) = (args[0].tensor()?, args[1].ints()?);
    require_float("self", x)?;
    require_rank("self", x, space + 1..=space + 2)?;
    if to.len() != space {
        return Err(Error::value(format!(
            "`output_size` must hold {space} numbers, found {}",
            dims_text(to)
        )));
    }
    let mut sizes: Dims = x.sizes().into();
    let lead = x.dim() - space;
    for (d, &n) in to.iter().enumerate() {
        require(sizes[lead + d].ge(1), || {
            format!(
                "`self` must have no empty spatial dimension, found sizes {}",
                dims_text(x.sizes())
            )
        })?;
        require(n.ge(0), || {
            format!("`output_size` must not be negative, found {}", dims_text(to))
        })?;
        sizes[lead + d] = n;
    }
    pooled_meta(x, sizes, x.dtype())
}

/// PyTorch's adaptive mean of volumes does not preserve the memory format.
fn row_major(m: Meta) -> Result<Metas> {
    Ok(smallvec![Meta::contiguous(m.sizes, m.dtype).on(m.device)])
}

fn adaptive_avg(args: &[Value], out: &Tensor, space: usize) -> Result<()> {
    if out.numel().as_i64() == Some(0) {
        return Ok(());
    }
    let x = args[0].tensor()?;
    if space == 3 && matches!(x.dtype(), DType::F16 | DType::BF16) {
        // PyTorch adds the elements of volumes in their own dtype.
        return stepwise_means(x, space, out);
    }
    Ok(kernels::adaptive_avg_pool(&input(x)?, space, &mut output(out)?)?)
}

/// Pools the last dimension with a 2-d operator, as an image of height 1.
fn as_rows<const N: usize>(
    x: &Tensor,
    pool: impl FnOnce(&Tensor) -> [Tensor; N],
) -> Result<Outputs> {
    pool(&x.unsqueeze(-2))
        .into_iter()
        .map(|t| Ok(Value::Tensor(t.squeeze_dim(-2).ok()?.clone())))
        .collect()
}

/// A parameter of a 1-d window as that of a 2-d window of height 1.
fn row(first: i64, v: &Value) -> Result<Dims> {
    Ok(v.ints()?.first().map_or_else(Dims::new, |&n| smallvec![SymInt::from(first), n]))
}

/// The maximum of each window of a signal, and its index.
fn max_pool_rows(args: &[Value]) -> Result<Outputs> {
    require_rank("self", args[0].tensor()?, 2..=3)?;
    let (k, s, p, d) = (row(1, &args[1])?, row(1, &args[2])?, row(0, &args[3])?, row(1, &args[4])?);
    let ceil = args[5].bool()?;
    as_rows(args[0].tensor()?, |x| <[Tensor; 2]>::from(x.max_pool2d_with_indices(k, s, p, d, ceil)))
}

/// The first result of an operator.
fn first_of(name: &str, args: &[Value]) -> Result<Outputs> {
    Ok(maquette_ops::call(name, args.iter().cloned().collect())?.into_iter().take(1).collect())
}

table! {
    /// Pools.
    static TABLE = {
        "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], \
            int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: window(|_, a| max_pool_metas(a, 2), |a, out| max_pool_run(a, out, 2)),
            vjp: crate::grad::MAX_POOL2D,
        },
        "aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], \
            int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: window(|_, a| max_pool_metas(a, 3), |a, out| max_pool_run(a, out, 3)),
            vjp: crate::grad::MAX_POOL3D,
        },
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], \
            int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor" => {
            role: General,
            lowering: window(
                |_, a| Ok(smallvec![max_pool_meta(a, 2)?]),
                |a, out| max_pool_run(a, out, 2),
            ),
            vjp: Derivative::Calls(|a| first_of("aten::max_pool2d_with_indices", a)),
        },
        "aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], \
            int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor" => {
            role: General,
            lowering: window(
                |_, a| Ok(smallvec![max_pool_meta(a, 3)?]),
                |a, out| max_pool_run(a, out, 3),
            ),
            vjp: Derivative::Calls(|a| first_of("aten::max_pool3d_with_indices", a)),
        },
        "aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], \
            int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(max_pool_rows),
        },
        // PyTorch's kernel without indices does not preserve the memory format.
        "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], \
            int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(max_pool_rows(a)?[0].tensor()?.contiguous())),
        },
        "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], \
            int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, \
            int? divisor_override=None) -> Tensor" => {
            role: General,
            lowering: window(
                |_, a| Ok(smallvec![avg_pool_meta(a, 2)?]),
                |a, out| avg_pool_run(a, &out[0], 2),
            ),
            vjp: crate::grad::AVG_POOL2D,
        },
        "aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], \
            int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, \
            int? divisor_override=None) -> Tensor" => {
            role: General,
            lowering: window(
                |_,
                a| row_major(avg_pool_meta(a, 3)?),
                |a,
                out| avg_pool_run(a, &out[0], 3),
            ),
            vjp: crate::grad::AVG_POOL3D,
        },
        "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], \
            int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let (x, k, s, p) = (a[0].tensor()?, row(1, &a[1])?, row(1, &a[2])?, row(0, &a[3])?);
                require_rank("self", x, 2..=3)?;
                let [k, s, p] = [k, s, p].map(Value::from_dims);
                let out = maquette_ops::call(
                    "aten::avg_pool2d",
                    maquette_ops::args![x.unsqueeze(-2), k, s, p, a[4].bool()?, a[5].bool()?],
                )?;
                done(out[0].tensor()?.squeeze_dim(-2))
            }),
        },
        "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor" => {
            role: General,
            lowering: window(
                |_, a| Ok(smallvec![adaptive_meta(a, 2)?]),
                |a, out| adaptive_avg(a, &out[0], 2),
            ),
            vjp: crate::grad::ADAPTIVE_AVG_POOL2D,
        },
        "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor" => {
            role: General,
            lowering: window(
                |_,
                a| row_major(adaptive_meta(a, 3)?),
                |a,
                out| adaptive_avg(a, &out[0], 3),
            ),
            vjp: crate::grad::ADAPTIVE_AVG_POOL3D,
        },
        "aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let (x, n) = (a[0].tensor()?, a[1].ints()?);
                require_rank("self", x, 2..=3)?;
                as_rows(x, |x| [x._adaptive_avg_pool2d(&[&[SymInt::from(1)], n].concat())])
            }),
        },
        "aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::_adaptive_avg_pool3d", a.iter().cloned().collect())
            }),
        },
        "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| done(a[0].tensor()?._adaptive_avg_pool2d(a[1].ints()?)),
            ),
        },
    }
}
