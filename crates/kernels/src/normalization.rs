//! Kernels that use a reduction of each row on that row: softmax and layer norm. Rows are worked on
//! in the class (`f32`, or `f64`), and every step rounds there; the order of sums is that of
//! [`reduce`](crate::reduce()).

use crate::copy::{check_dim, copy, same_dtype, same_sizes, to_vec};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::{Each, Isa, Map, Simd};
use crate::layout::Loops;
use crate::math::Float;
use crate::pointwise::ops::{Add, Max};
use crate::pointwise::steps::{Load, Store};
use crate::reduce::lanes::{deviations, row, row_into, row_of};
use crate::scratch::{Scratch, filled};
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};

/// RowLoops of an input and an output of the same sizes.
struct RowLoops {
    /// Over rows; operand 0 the output, 1 the input.
    outer: Loops,
    /// Over the elements of a row, likewise, in logical order.
    inner: Loops,
    n: usize,
}

impl RowLoops {
    fn new(
        kernel: &'static str,
        input: &View<'_>,
        out: &ViewMut<'_>,
        in_row: impl Fn(usize) -> bool,
    ) -> Result<RowLoops> {
        same_dtype(kernel, "the output", input.dtype(), out.dtype())?;
        same_sizes(kernel, "the output", input.sizes(), out.sizes())?;
        let first = (0..input.rank()).find(|d| in_row(*d)).unwrap_or(input.rank());
        if input.is_contiguous() && out.is_contiguous() && (first..input.rank()).all(&in_row) {
            let (rows, n) = (numel(&input.sizes()[..first]), numel(&input.sizes()[first..]));
            return Ok(RowLoops {
                n,
                outer: Loops::line(rows, [n, n]),
                inner: Loops::line(n, [1, 1]),
            });
        }
        let pick = |of: &[i64], row: bool| -> Dims {
            (0..of.len()).filter(|d| in_row(*d) == row).map(|d| of[d]).collect()
        };
        let loops = |row, sort| {
            let (o, i) = (pick(out.strides(), row), pick(input.strides(), row));
            Loops::new(&pick(input.sizes(), row), [&o[..], &i[..]], sort)
        };
        let (outer, inner) = (loops(false, false), loops(true, false));
        Ok(RowLoops { n: inner.numel(), outer, inner })
    }

    fn read<T: Element>(&self, isa: Isa, src: Ptr<T>, r: usize, xs: &mut [T::Class]) {
        let (base, stride) = (self.outer.offset(1, r), self.inner.inner_stride(1));
        self.inner.runs(1, 0, self.n, |pos, at, len| {
            let xs = &mut xs[pos..pos + len];
            // SAFETY: the row's elements.
            match stride {
                1 => isa.dispatch(Load::<T>(unsafe { src.slice(base + at, len) }, xs)),
                _ => (0..)
                    .zip(xs)
                    .for_each(|(i, x)| *x = unsafe { src.get(base + at + i * stride) }.load()),
            }
        });
    }

    fn write<T: Element>(&self, isa: Isa, dst: Ptr<T>, r: usize, xs: &[T::Class]) {
        let (base, stride) = (self.outer.offset(0, r), self.inner.inner_stride(0));
        self.inner.runs(0, 0, self.n, |pos, at, len| {
            let xs = &xs[pos..pos + len];
            // SAFETY: the row's elements, which no other task has.
            match stride {
                1 => isa.dispatch(Store::<T>(xs, unsafe { dst.slice_mut(base + at, len) })),
                _ => (0..)
                    .zip(xs)
                    .for_each(|(i, x)| unsafe { dst.set(base + at + i * stride, T::store(*x)) }),
            }
        });
    }

    /// Calls `f(row, elements, results)` for every row. An input may be exactly the output.
    fn each<T: Element<Class: Float>>(
        &self,
        kernel: &'static str,
        input: &View<'_>,
        out: &ViewMut<'_>,
        f: impl Fn(Isa, usize, &[T::Class], &mut [T::Class]) + Sync,
    ) -> Result<()> {
        let (isa, src, dst) = (Isa::detect(), input.typed::<T>(), out.typed::<T>());
        if self.n == 0 {
            return Ok(());
        }
        // Where the elements are of the class and lie one after another, they are used as they lie.
        let plain = |operand| {
            T::DTYPE == T::Class::DTYPE
                && self.inner.sizes.len() == 1
                && self.inner.inner_stride(operand) == 1
        };
        let (read_there, write_there) = (plain(1) && !out.overlaps(input), plain(0));
        thread_pool::ranges(
            self.outer.numel(),
            (thread_pool::GRAIN / 4 / self.n).max(1),
            1,
            &|from, to| {
                let mut xs = Scratch::new(kernel, if read_there { 0 } else { self.n })?;
                let mut ys = Scratch::new(kernel, if write_there { 0 } else { self.n })?;
                for r in from..to {
                    let x: &[T::Class] = match read_there {
                        // SAFETY: the row's elements, of the class's own type, which no row's results
                        // overlap.
                        true => unsafe { Ptr(src.0.cast()).slice(self.outer.offset(1, r), self.n) },
                        false => {
                            self.read(isa, src, r, xs.get());
                            xs.get()
                        }
                    };
                    match write_there {
                        // SAFETY: likewise; this task alone has the row.
                        true => f(isa, r, x, unsafe {
                            Ptr(dst.0.cast()).slice_mut(self.outer.offset(0, r), self.n)
                        }),
                        false => {
                            f(isa, r, x, ys.get());
                            self.write(isa, dst, r, ys.get());
                        }
                    }
                }
                Ok(())
            },
        )
    }
}

/// `exp(x - max) * (1 / sum)` along a dimension; floats. May run in place.
pub fn softmax(input: &View<'_>, dim: usize, out: &mut ViewMut<'_>) -> Result<()> {
    exponentials("softmax", input, dim, out, false)
}

/// `x - max - log(sum(exp(x - max)))` along a dimension; floats. May run in place.
pub fn log_softmax(input: &View<'_>, dim: usize, out: &mut ViewMut<'_>) -> Result<()> {
    exponentials("log_softmax", input, dim, out, true)
}

fn exponentials(
    kernel: &'static str,
    input: &View<'_>,
    dim: usize,
    out: &mut ViewMut<'_>,
    log: bool,
) -> Result<()> {
    check_dim(kernel, dim, input.rank())?;
    let rows = RowLoops::new(kernel, input, out, |d| d == dim)?;
    dispatch!(float kernel, "the input", input.dtype(), T => rows.each::<T>(kernel, input, out, |isa, _, xs, ys| softmax_row(isa, xs, ys, log)))
}

fn softmax_row<A: Float>(isa: Isa, xs: &[A], ys: &mut [A], log: bool) {
    let max = row::<A, Max>(isa, xs, -A::INFINITY);
    if log {
        let log = row_of::<A, Add, _>(isa, xs, A::ZERO, |x: A| (x - max).exp()).log();
        isa.dispatch(Map(xs, ys, |x: A| x - max - log));
    } else {
        let scale = A::ONE / row_into::<A, Add, _>(isa, xs, ys, A::ZERO, |x: A| (x - max).exp());
        isa.dispatch(Each(ys, |y: A| y * scale));
    }
}

/// The optional operands of [`layer_norm`].
#[derive(Debug, Default)]
pub struct LayerNorm<'a> {
    /// Scale, of the normalized sizes and the input's dtype.
    pub weight: Option<View<'a>>,
    /// Shift, likewise.
    pub bias: Option<View<'a>>,
    /// Receives the means: any float dtype, one element per row, as a flat view.
    pub mean: Option<ViewMut<'a>>,
    /// Receives `1 / sqrt(var + eps)`, likewise.
    pub rstd: Option<ViewMut<'a>>,
}

/// `(x - mean) * rstd * weight + bias` over the last `normalized` dimensions; floats. May run in
/// place.
pub fn layer_norm(
    input: &View<'_>,
    normalized: usize,
    eps: f64,
    operands: LayerNorm<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    const KERNEL: &str = "layer_norm";
    let Some(first) = input.rank().checked_sub(normalized) else {
        return Err(KernelError::Dim { kernel: KERNEL, dim: normalized, rank: input.rank() });
    };
    for (name, v) in [("weight", &operands.weight), ("bias", &operands.bias)] {
        if let Some(v) = v {
            same_sizes(KERNEL, name, &input.sizes()[first..], v.sizes())?;
        }
    }
    let rows = RowLoops::new(KERNEL, input, out, |d| d >= first)?;
    dispatch!(float KERNEL, "the input", input.dtype(), T => layer_norm_rows::<T, <T as Element>::Class>(&rows, input, eps, operands, out))
}

fn layer_norm_rows<T: Element<Class = A>, A: Float>(
    rows: &RowLoops,
    input: &View<'_>,
    eps: f64,
    operands: LayerNorm<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    // Where there is none: 1 and -0 change no bit.
    let or = |v: &Option<View<'_>>, none: A| {
        v.as_ref().map_or_else(|| filled("layer_norm", none, rows.n), to_vec::<A>)
    };
    let (weight, bias) = (or(&operands.weight, A::ONE)?, or(&operands.bias, -A::ZERO)?);
    let count = rows.outer.numel();
    let (mut means, mut rstds) =
        (filled("layer_norm", A::ZERO, count)?, filled("layer_norm", A::ZERO, count)?);
    let (mp, rp) = (Ptr(means.as_mut_ptr()), Ptr(rstds.as_mut_ptr()));
    let n = A::from_f64(rows.n as f64);
    rows.each::<T>("layer_norm", input, out, |isa, r, xs, ys| {
        let mut near = row::<A, Add>(isa, xs, A::ZERO) / n;
        if near.abs() == A::INFINITY {
            near = row_of::<A, Add, _>(isa, xs, A::ZERO, |x: A| x / n); // the sum was too large, or an element is
        }
        let [sum, squares] = deviations(isa, xs, near);
        // What the mean lost in rounding: without it, rows whose deviations are near it become
        // noise.
        let lost = sum / n;
        let mean = if lost.abs() < A::INFINITY { near + lost } else { near };
        let squares = match sum * lost {
            excess if excess < A::INFINITY && squares < A::INFINITY => squares - excess,
            // So large that squares overflow: those around the mean itself may not.
            _ => deviations(isa, xs, mean)[1],
        };
        let variance = if squares < A::ZERO { A::ZERO } else { squares / n };
        let rstd = A::ONE / (variance + A::from_f64(eps)).sqrt();
        isa.dispatch(Normalize { xs, ys, mean, rstd, weight: &weight, bias: &bias });
        // SAFETY: row `r` is one task's, and below `count`.
        unsafe {
            mp.set(r as i64, mean);
            rp.set(r as i64, rstd);
        }
    })?;
    for (values, out) in [(&means, operands.mean), (&rstds, operands.rstd)] {
        if let Some(mut out) = out {
            copy(&View::from_slice(values), &mut out)?;
        }
    }
    Ok(())
}

/// `y = (x - mean) * rstd * weight + bias`, rounded at each step.
struct Normalize<'a, A> {
    xs: &'a [A],
    ys: &'a mut [A],
    mean: A,
    rstd: A,
    weight: &'a [A],
    bias: &'a [A],
}

impl<A: Float> Simd for Normalize<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (((y, x), w), b) in self.ys.iter_mut().zip(self.xs).zip(self.weight).zip(self.bias) {
            *y = (*x - self.mean) * self.rstd * *w + *b;
        }
    }
}
