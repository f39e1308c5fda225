//! Resampling (`upsample_nearest2d`, `upsample_bilinear2d`, …). The filters are separable: each
//! dimension is resampled by itself, as weighted sums of elements. The weights are in `taps`.

use super::pooling::pooled_meta;
use super::taps::{Axis, Filter, Taps, quantise, single};
use super::{compute, is_empty, require_full, rounding};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{
    is_channels_last, require, require_dtype, require_float, require_rank,
};
use maquette_ops::operator::host::{self, separable};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Args, Dims, Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// The kind of resampling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The element that contains the position.
    Nearest,
    /// The element that contains the center of the position.
    NearestExact,
    /// Weighted sums with a filter.
    By(Filter),
}

/// An operator of the family.
#[derive(Clone, Copy)]
struct Resampler {
    way: Way,
    space: usize,
}

impl Resampler {
    const fn of(way: Way, space: usize) -> Resampler {
        Resampler { way, space }
    }

    fn is_nearest(self) -> bool {
        !matches!(self.way, Way::By(_))
    }

    fn is_antialiased(self) -> bool {
        matches!(
            self.way,
            Way::By(Filter::SmoothLinear | Filter::SmoothCubic | Filter::SmoothLanczos)
        )
    }

    fn require_dtype(self, x: &Tensor) -> Result<()> {
        let bytes = self.is_nearest() || self.space == 2;
        match (self.is_antialiased(), bytes) {
            (true, _) => require_dtype("self", x, "dtype f32, f64 or u8", |d| {
                matches!(d, DType::F32 | DType::F64 | DType::U8)
            }),
            (false, true) => require_dtype("self", x, "a floating dtype or u8", |d| {
                d.is_float() || d == DType::U8
            }),
            (false, false) => require_float("self", x),
        }
    }

    #[track_caller]
    fn metas(self, args: &[Value]) -> Result<Metas> {
        let (x, to) = (args[0].tensor()?, args[1].ints()?);
        require_rank("self", x, self.space + 2..=self.space + 2)?;
        self.require_dtype(x)?;
        if to.len() != self.space {
            return Err(Error::value(format!(
                "`output_size` must hold {} numbers, found {}",
                self.space,
                dims_text(to)
            )));
        }
        require_full("self", x, 1)?;
        for &n in to {
            require(n.gt(0), || {
                format!("`output_size` must be positive, found {}", dims_text(to))
            })?;
        }
        let sizes = x.sizes()[..2].iter().chain(to).copied().collect();
        Ok(smallvec![pooled_meta(x, sizes, x.dtype())?])
    }

    fn axes(self, args: &[Value], x: &Tensor, out: &Tensor) -> Result<Vec<Axis>> {
        let align_corners = if self.is_nearest() { false } else { args[2].bool()? };
        let scales = if self.is_nearest() { &args[2..] } else { &args[3..] };
        // As in PyTorch, positions are computed in f64 for u8 images, and in f32 for half
        // precision.
        let round: fn(f64) -> f64 =
            if matches!(x.dtype(), DType::F64 | DType::U8) && !self.is_nearest() {
                |x| x
            } else {
                single
            };
        let keep = rounding(x.dtype());
        let (from, to) = (host::sizes(x)?, host::sizes(out)?);
        from.iter()
            .zip(&to)
            .skip(2)
            .zip(scales)
            .map(|((&from, &to), scale)| {
                Ok(Axis { from, to, scale: scale.opt(Value::float)?, align_corners, round, keep })
            })
            .collect()
    }

    /// Whether PyTorch selects its kernel for channels-last images. The kernel has another
    /// precision, and ignores the scale factors of images that keep or double their size.
    fn direct(self, x: &Tensor, axes: &[Axis]) -> Result<bool> {
        let wide =
            || Ok(x.sizes()[1].as_i64().is_some_and(|c| c > 3) && is_channels_last(x.meta())?);
        match self.space {
            1 => Ok(false),
            2 if axes.iter().map(|axis| axis.to).sum::<usize>() <= 128 => Ok(true),
            _ => wide(),
        }
    }

    /// Resamples one dimension after the other, from the last to the first. For u8 images, each
    /// result is rounded.
    fn run(self, args: &[Value], out: &Tensor) -> Result<()> {
        if is_empty(out) {
            return Ok(());
        }
        let x = args[0].tensor()?;
        let mut axes = self.axes(args, x, out)?;
        let direct = self.direct(x, &axes)?;
        let mut sizes = host::sizes(x)?;
        let Way::By(filter) = self.way else {
            let mut tables: Vec<Vec<usize>> =
                sizes[..2].iter().map(|&n| (0..n).collect()).collect();
            for axis in &axes {
                tables.push(axis.nearest(self.way == Way::NearestExact, direct)?);
            }
            return separable(x, out, &tables);
        };
        let bytes = x.dtype() == DType::U8;
        if direct && filter == Filter::Linear {
            axes.iter_mut().for_each(|axis| axis.keep = |w| w);
        }
        let mut data = host::reals(x)?;
        for (d, axis) in axes.iter().enumerate().rev() {
            if (bytes || self.is_antialiased()) && axis.from == axis.to {
                continue;
            }
            let mut taps = axis.taps(filter);
            let inner = host::count(&sizes[d + 3..]);
            if bytes {
                let bits = quantise(&mut taps);
                let half = ((1i64 << bits) / 2) as f64;
                let scale = f64::from(1u32 << bits);
                data = along(&data, axis.from, inner, &taps, |s| {
                    ((s + half) / scale).floor().clamp(0.0, 255.0)
                });
            } else {
                data = along(&data, axis.from, inner, &taps, |s| s);
            }
            sizes[d + 2] = axis.to;
        }
        host::store_reals(out, &data)
    }
}

/// Resamples one dimension of row-major data. The dimension has `n` elements, `inner` positions
/// apart.
fn along(
    x: &[f64],
    n: usize,
    inner: usize,
    taps: &[Taps],
    finish: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len() / n.max(1) * taps.len());
    let mut row = vec![0.0; inner];
    for block in x.chunks_exact((n * inner).max(1)) {
        for place in taps {
            row.fill(0.0);
            for &(i, w) in place {
                row.iter_mut().zip(&block[i * inner..]).for_each(|(sum, x)| *sum += w * x);
            }
            out.extend(row.iter().map(|s| finish(*s)));
        }
    }
    out
}

/// A size multiplied by a factor and rounded toward zero. If the factor is a fraction of small
/// integers, the result stays symbolic.
#[track_caller]
fn scaled(n: SymInt, factor: f64) -> Result<SymInt> {
    let plain = |n: i64| -> Result<SymInt> {
        let size = n as f64 * factor;
        // Beyond this limit products are not exact in f64, and no tensor is that large.
        if size.abs() < 9e15 {
            Ok(SymInt::from(size as i64))
        } else {
            Err(Error::value(format!(
                "`scale_factors` scales the size {n} to {size}, which is too large"
            )))
        }
    };
    if let Some(n) = n.as_i64() {
        return plain(n);
    }
    let fraction = (0..=16)
        .map(|bits| 1i64 << bits)
        .find(|d| (factor * *d as f64).fract() == 0.0 && factor.abs() < 65536.0);
    match fraction {
        Some(1) => Ok(n * factor as i64),
        Some(d) => Ok((n * (factor * d as f64) as i64).floor_div(d)),
        None => plain(n.guard_int()?),
    }
}

/// The `.vec` overload of the operator `name`. Either `output_size` or `scale_factors` is present.
fn either(a: &[Value], name: &str) -> Result<Outputs> {
    let (x, last) = (a[0].tensor()?, a.len() - 1);
    let space = x.dim().saturating_sub(2);
    let factors = a[last].opt(Value::list)?;
    let (sizes, scales): (Dims, Vec<Value>) = match (a[1].is_none(), factors) {
        (false, None) => (a[1].ints()?.into(), vec![Value::None; space]),
        (true, Some(f)) if f.len() == space => {
            let sizes = x
                .sizes()
                .iter()
                .skip(2)
                .zip(f)
                .map(|(&n, f)| scaled(n, f.float()?))
                .collect::<Result<_>>()?;
            (sizes, f.to_vec())
        }
        (true, Some(f)) => {
            return Err(Error::value(format!(
                "`scale_factors` must hold {space} numbers, found {}",
                f.len()
            )));
        }
        (absent, _) => {
            let found = if absent { "neither" } else { "both" };
            return Err(Error::value(format!(
                "exactly one of `output_size` and `scale_factors` must be given, found {found}"
            )));
        }
    };
    let mut args: Args = smallvec![a[0].clone(), Value::from_dims(sizes)];
    args.extend(a[2..last].iter().cloned());
    args.extend(scales);
    maquette_ops::call(name, args)
}

macro_rules! resampling {
    ($way:expr, $space:literal) => {
        compute(
            Class::Window,
            Strides::FromOperands,
            |_, a| Resampler::of($way, $space).metas(a),
            How::Host(|a, out| Resampler::of($way, $space).run(a, &out[0])),
        )
    };
}

macro_rules! vec_form {
    ($name:literal) => {
        Lowering::Composite(|a| either(a, $name))
    };
}

table! {
    /// Resampling.
    static TABLE = {
        "aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, \
            float? scales=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::Nearest, 1),
            vjp: crate::grad::REARRANGED,
        },
        "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, \
            float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::Nearest, 2),
            vjp: crate::grad::REARRANGED,
        },
        "aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, \
            float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::Nearest, 3),
            vjp: crate::grad::REARRANGED,
        },
        "aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, \
            float? scales=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::NearestExact, 1),
            vjp: crate::grad::REARRANGED,
        },
        "aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, \
            float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::NearestExact, 2),
            vjp: crate::grad::REARRANGED,
        },
        "aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, \
            float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::NearestExact, 3),
            vjp: crate::grad::REARRANGED,
        },
        "aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, \
            float? scales=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::Linear), 1),
            vjp: crate::grad::RESIZED,
        },
        "aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, \
            float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::Linear), 2),
            vjp: crate::grad::RESIZED,
        },
        "aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, \
            bool align_corners, float? scales_d=None, float? scales_h=None, \
            float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::Linear), 3),
            vjp: crate::grad::RESIZED,
        },
        "aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, \
            float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::Cubic), 2),
            vjp: crate::grad::RESIZED,
        },
        "aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, \
            bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::SmoothLinear), 2),
            vjp: crate::grad::RESIZED,
        },
        "aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, \
            bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::SmoothCubic), 2),
            vjp: crate::grad::RESIZED,
        },
        "aten::_upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, \
            bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor" => {
            role: General,
            lowering: resampling!(Way::By(Filter::SmoothLanczos), 2),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_nearest1d"),
        },
        "aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_nearest2d"),
        },
        "aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_nearest3d"),
        },
        "aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_nearest_exact1d"),
        },
        "aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_nearest_exact2d"),
        },
        "aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, \
            float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_nearest_exact3d"),
        },
        "aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_linear1d"),
        },
        "aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_bilinear2d"),
        },
        "aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_trilinear3d"),
        },
        "aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::upsample_bicubic2d"),
        },
        "aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_bilinear2d_aa"),
        },
        "aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_bicubic2d_aa"),
        },
        "aten::_upsample_lanczos2d_aa.vec(Tensor input, SymInt[]? output_size, \
            bool align_corners, float[]? scale_factors) -> Tensor" => {
            role: General,
            lowering: vec_form!("aten::_upsample_lanczos2d_aa"),
        },
    }
}
