//! Pooling and resampling: windows that slide over the last dimensions.

use super::dims::{done, fresh, require, require_rank};
use super::host::{self, separable};
use super::lower::{Class, Compute, Lowering, Metas};
use super::table;
use crate::eager::{self, input, output};
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::meta::{Dims, Meta};
use crate::tensor::{Tensor, dims_text};
use crate::value::Value;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_kernels::{self as kernels, Window};
use smallvec::smallvec;

const fn window(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, run: fn(&[Value], &[Tensor]) -> Result<()>) -> Lowering {
    Lowering::Compute(Compute { class: Class::Window, metas, run })
}

/// What slides.
struct Sliding(Window);

impl Sliding {
    #[track_caller]
    fn of(space: usize, kernel: &Value, stride: &Value, padding: &Value, dilation: Option<&Value>, ceil: &Value) -> Result<Sliding> {
        let list = |name: &str, v: &Value, least: i64| -> Result<Vec<i64>> {
            let given = v.ints_i64()?;
            let all = match given.len() {
                n if n == space => given.to_vec(),
                1 => vec![given[0]; space],
                n => return Err(Error::value(format!("`{name}` must hold {space} numbers, found {n}"))),
            };
            if all.iter().any(|i| *i < least) {
                return Err(Error::value(format!("`{name}` must be at least {least}, found {all:?}")));
            }
            Ok(all)
        };
        let kernel = list("kernel_size", kernel, 1)?;
        let stride = if stride.ints()?.is_empty() { kernel.clone() } else { list("stride", stride, 1)? };
        let padding = list("padding", padding, 0)?;
        let dilation = dilation.map_or(Ok(vec![1; space]), |d| list("dilation", d, 1))?;
        if padding.iter().zip(&kernel).zip(&dilation).any(|((p, k), d)| *p > ((k - 1) * d + 1) / 2) {
            return Err(Error::value(format!(
                "`padding` must be at most half of what `kernel_size` spans, found {padding:?} for {kernel:?}"
            )));
        }
        Ok(Sliding(Window { kernel, stride, padding, dilation, ceil_mode: ceil.bool()? }))
    }

    #[track_caller]
    fn output(&self, x: &Tensor, layout: fn(&Tensor, Dims, usize) -> Result<Meta>) -> Result<Meta> {
        let w = &self.0;
        let space = w.kernel.len();
        require_rank("self", x, space + 1..=space + 2)?;
        let mut sizes: Dims = x.sizes().into();
        let lead = x.dim() - space;
        for d in 0..space {
            let (n, s, p) = (sizes[lead + d], w.stride[d], w.padding[d]);
            let reach = w.dilation[d] * (w.kernel[d] - 1) + 1;
            let mut size = (n + (2 * p - reach + if w.ceil_mode { s - 1 } else { 0 })).floor_div(s) + 1;
            // the last window must start inside the input or its left padding
            if w.ceil_mode && super::dims::decide(((size - 1) * s).ge(n + p))? {
                size -= 1;
            }
            require(size.ge(1), || {
                format!(
                    "a window that reaches over {reach} elements does not fit dimension {} of sizes {} with padding {p}",
                    lead + d,
                    dims_text(x.sizes())
                )
            })?;
            sizes[lead + d] = size;
        }
        layout(x, sizes, space)
    }
}

/// Fresh, channels last where the input is.
#[track_caller]
fn pooled_meta(x: &Tensor, sizes: Dims, dtype: DType) -> Result<Meta> {
    super::dims::in_format_of(x, fresh(x, sizes, dtype))
}

/// As [`pooled_meta`]; means of volumes are row-major always, as in PyTorch.
#[track_caller]
fn mean_meta(x: &Tensor, sizes: Dims, space: usize) -> Result<Meta> {
    if space == 3 { Ok(fresh(x, sizes, x.dtype())) } else { pooled_meta(x, sizes, x.dtype()) }
}

fn max_sliding(a: &[Value], space: usize) -> Result<Sliding> {
    Sliding::of(space, &a[1], &a[2], &a[3], Some(&a[4]), &a[5])
}

fn max_pool_metas(a: &[Value], space: usize) -> Result<Metas> {
    let m = max_sliding(a, space)?.output(a[0].tensor()?, |x, sizes, _| pooled_meta(x, sizes, x.dtype()))?;
    Ok(smallvec![m.clone(), Meta { dtype: DType::I64, ..m }])
}

fn max_pool_run(a: &[Value], out: &[Tensor], space: usize) -> Result<()> {
    let w = max_sliding(a, space)?.0;
    Ok(kernels::max_pool(&input(a[0].tensor()?)?, &w, &mut output(&out[0])?, Some(&mut output(&out[1])?))?)
}

fn avg_sliding(a: &[Value], space: usize) -> Result<Sliding> {
    Sliding::of(space, &a[1], &a[2], &a[3], None, &a[4])
}

fn avg_pool_run(a: &[Value], out: &Tensor, space: usize) -> Result<()> {
    let (w, include_pad) = (avg_sliding(a, space)?.0, a[5].bool()?);
    let divisor = a.get(6).map_or(Ok(None), |v| v.opt(Value::int_i64))?;
    averaged(a[0].tensor()?, out, |x, out| Ok(kernels::avg_pool(&input(x)?, &w, include_pad, divisor, &mut output(out)?)?))
}

/// Means are taken of floats; those of integers are rounded towards zero.
fn averaged(x: &Tensor, out: &Tensor, mean: impl FnOnce(&Tensor, &Tensor) -> Result<()>) -> Result<()> {
    if x.dtype().is_float() {
        return mean(x, out);
    }
    let wide = Tensor::allocate(fresh(out, out.sizes().into(), DType::F64))?;
    mean(&eager::cast(x, DType::F64)?, &wide)?;
    eager::copy(&wide, out)
}

#[track_caller]
fn adaptive_meta(a: &[Value], space: usize) -> Result<Meta> {
    let (x, to) = (a[0].tensor()?, a[1].ints()?);
    require_rank("self", x, space + 1..=space + 2)?;
    if to.len() != space {
        return Err(Error::value(format!("`output_size` must hold {space} numbers, found {}", dims_text(to))));
    }
    let mut sizes: Dims = x.sizes().into();
    let lead = x.dim() - space;
    for (d, &n) in to.iter().enumerate() {
        require(sizes[lead + d].ge(1), || format!("`self` must have no empty spatial dimension, found sizes {}", dims_text(x.sizes())))?;
        require(n.ge(0), || format!("`output_size` must not be negative, found {}", dims_text(to)))?;
        sizes[lead + d] = n;
    }
    mean_meta(x, sizes, space)
}

fn adaptive_avg(a: &[Value], out: &Tensor, space: usize) -> Result<()> {
    if out.numel().as_i64() == Some(0) {
        return Ok(());
    }
    averaged(a[0].tensor()?, out, |x, out| Ok(kernels::adaptive_avg_pool(&input(x)?, space, &mut output(out)?)?))
}

/// Where nearest resampling reads for each place.
fn nearest(from: usize, to: usize, scale: Option<f64>) -> Vec<usize> {
    // PyTorch takes the ratio in single precision
    let ratio = scale.filter(|s| *s > 0.0).map_or(from as f32 / to as f32, |s| (1.0 / s) as f32);
    (0..to).map(|o| if from == to { o } else { ((o as f32 * ratio).floor() as usize).min(from.saturating_sub(1)) }).collect()
}

#[track_caller]
fn upsample_meta(a: &[Value], space: usize) -> Result<Meta> {
    let (x, to) = (a[0].tensor()?, a[1].ints()?);
    require_rank("self", x, space + 2..=space + 2)?;
    if to.len() != space {
        return Err(Error::value(format!("`output_size` must hold {space} numbers, found {}", dims_text(to))));
    }
    for &n in to.iter().chain(&x.sizes()[1..]) {
        require(n.gt(0), || {
            format!("`self` and `output_size` must have no empty dimension, found {} and {}", dims_text(x.sizes()), dims_text(to))
        })?;
    }
    let sizes = x.sizes()[..2].iter().chain(to).copied().collect();
    pooled_meta(x, sizes, x.dtype())
}

fn upsample(a: &[Value], out: &Tensor, space: usize) -> Result<()> {
    let x = a[0].tensor()?;
    let (from, to) = (host::sizes(x)?, host::sizes(out)?);
    let mut tables: Vec<Vec<usize>> = from.iter().map(|&n| (0..n).collect()).collect();
    for d in 0..space {
        tables[d + 2] = nearest(from[d + 2], to[d + 2], a[2 + d].opt(Value::float)?);
    }
    separable(x, out, &tables)
}

/// Pools the last dimension by a two-dimensional operator.
fn as_rows(x: &Tensor, pool: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    pool(&x.unsqueeze(-2)).squeeze_dim(-2)
}

/// The numbers of a two-dimensional window of height 1.
fn row(first: i64, v: &Value) -> Result<Dims> {
    Ok(v.ints()?.first().map_or_else(Dims::new, |&n| smallvec![SymInt::from(first), n]))
}

fn pixel_shuffle(x: &Tensor, r: i64) -> Result<Tensor> {
    require_rank("self", x, 3..=64)?;
    if r < 1 {
        return Err(Error::value(format!("`upscale_factor` must be positive, found {r}")));
    }
    let (lead, s) = (x.dim() - 3, x.sizes());
    let (c, h, w) = (s[lead], s[lead + 1], s[lead + 2]);
    require(c.modulo(r * r).eq(0), || {
        format!("the {c} channels of sizes {} must be divisible by {} for `upscale_factor` {r}", dims_text(s), r * r)
    })?;
    let c = c.floor_div(r * r);
    let shape = |tail: &[SymInt]| s[..lead].iter().chain(tail).copied().collect::<Dims>();
    let split = x.reshape(shape(&[c, r.into(), r.into(), h, w]));
    let order: Vec<i64> = (0..lead).chain([0, 3, 1, 4, 2].map(|d| lead + d)).map(|d| d as i64).collect();
    Ok(split.permute(order).reshape(shape(&[c, h * r, w * r])))
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)" =>
            window(|_, a| max_pool_metas(a, 2), |a, out| max_pool_run(a, out, 2)),
        "aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)" =>
            window(|_, a| max_pool_metas(a, 3), |a, out| max_pool_run(a, out, 3)),
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor" =>
            Lowering::Composite(|a| done(a[0].tensor()?.max_pool2d_with_indices(a[1].ints()?, a[2].ints()?, a[3].ints()?, a[4].ints()?, a[5].bool()?).0)),
        "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor" => Lowering::Composite(|a| {
            let (k, s, p, d) = (row(1, &a[1])?, row(1, &a[2])?, row(0, &a[3])?, row(1, &a[4])?);
            let ceil = a[5].bool()?;
            done(as_rows(a[0].tensor()?, |x| x.max_pool2d_with_indices(k, s, p, d, ceil).0))
        }),
        "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor" =>
            window(|_, a| Ok(smallvec![avg_sliding(a, 2)?.output(a[0].tensor()?, mean_meta)?]), |a, out| avg_pool_run(a, &out[0], 2)),
        "aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor" =>
            window(|_, a| Ok(smallvec![avg_sliding(a, 3)?.output(a[0].tensor()?, mean_meta)?]), |a, out| avg_pool_run(a, &out[0], 3)),
        "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor" =>
            window(|_, a| Ok(smallvec![avg_sliding(a, 1)?.output(a[0].tensor()?, mean_meta)?]), |a, out| avg_pool_run(a, &out[0], 1)),
        "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor" =>
            window(|_, a| Ok(smallvec![adaptive_meta(a, 2)?]), |a, out| adaptive_avg(a, &out[0], 2)),
        "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor" =>
            window(|_, a| Ok(smallvec![adaptive_meta(a, 3)?]), |a, out| adaptive_avg(a, &out[0], 3)),
        "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor" => Lowering::Composite(|a| done(a[0].tensor()?._adaptive_avg_pool2d(a[1].ints()?))),
        "aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor" =>
            window(|_, a| Ok(smallvec![upsample_meta(a, 1)?]), |a, out| upsample(a, &out[0], 1)),
        "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor" =>
            window(|_, a| Ok(smallvec![upsample_meta(a, 2)?]), |a, out| upsample(a, &out[0], 2)),
        "aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor" =>
            window(|_, a| Ok(smallvec![upsample_meta(a, 3)?]), |a, out| upsample(a, &out[0], 3)),
        "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor" => Lowering::Composite(|a| done(pixel_shuffle(a[0].tensor()?, a[1].int_i64()?)?)),
    }
}
