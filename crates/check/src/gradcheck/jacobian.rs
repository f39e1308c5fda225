//! Jacobians, by sweeps and by differences.

use super::Function;
use super::variants::{Variant, len};
use crate::Rng;
use crate::values::{computed, on_device_of};
use maquette_ir::DType;
use maquette_ops::autograd::{BackwardOptions, grad, no_grad};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Result, Tensor};

/// The results that have a gradient.
pub(super) fn outputs(f: &Function<'_>, leaves: &[Tensor]) -> Result<Vec<Tensor>> {
    let outputs = f(leaves)?;
    for t in &outputs {
        computed(t)?;
    }
    Ok(outputs.into_iter().filter(|t| t.dtype().is_float() && t.tracks_gradient()).collect())
}

/// The values of all results that are floats, in `f64`.
pub(super) fn values(f: &Function<'_>, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>> {
    let outputs = no_grad(|| f(inputs))?;
    let floats = outputs.iter().filter(|t| t.dtype().is_float());
    floats.map(|t| t.to_dtype(DType::F64).to_vec::<f64>()).collect()
}

/// A tensor with the sizes and dtype of `t`, and random elements of an absolute value around 1.
pub(super) fn random_like(t: &Tensor, seed: u64) -> Result<Tensor> {
    let mut rng = Rng::new(11, seed);
    let mut draw = || {
        let x = rng.between(300, 1700) as f64 / 1000.0;
        if rng.chance(50) { x } else { -x }
    };
    let values: Vec<f64> = (0..len(t)?).map(|_| draw()).collect();
    on_device_of(t, values, &t.sizes_i64()?).to_dtype(t.dtype()).ok().cloned()
}

/// A tensor with one element of 1.
pub(super) fn unit_like(t: &Tensor, at: usize) -> Result<Tensor> {
    let n = len(t)? as usize;
    let values: Vec<f64> = (0..n).map(|i| f64::from(i == at)).collect();
    on_device_of(t, values, &t.sizes_i64()?).to_dtype(t.dtype()).ok().cloned()
}

/// The difference of the results, in the direction of `step` from an input: for each result, for
/// each element.
pub(super) fn differences(
    f: &Function<'_>,
    variant: &Variant,
    input: usize,
    direction: &Tensor,
    eps: f64,
) -> Result<Vec<Vec<f64>>> {
    let at = |eps: f64| {
        let moved = &variant.inputs[input] + &(direction * eps);
        values(f, &variant.replaced(input, moved.ok()?))
    };
    let (ahead, behind) = (at(eps)?, at(-eps)?);
    let slope = |(a, b): (&f64, &f64)| (a - b) / (2.0 * eps);
    Ok(ahead.iter().zip(&behind).map(|(a, b)| a.iter().zip(b).map(slope).collect()).collect())
}

/// Whether differences with two steps, and from both sides, agree.
pub(super) fn is_smooth(f: &Function<'_>, variant: &Variant, eps: f64) -> Result<bool> {
    let home = values(f, &variant.inputs)?;
    for input in variant.floats() {
        let direction = random_like(&variant.inputs[input], input as u64)?;
        let whole = differences(f, variant, input, &direction, eps)?;
        let half = differences(f, variant, input, &direction, eps / 2.0)?;
        let moved = &variant.inputs[input] + &(&direction * eps);
        let ahead = values(f, &variant.replaced(input, moved.ok()?))?;
        let flat = |all: &[Vec<f64>]| all.iter().flatten().copied().collect::<Vec<f64>>();
        let all = flat(&whole).into_iter().zip(flat(&half)).zip(flat(&home)).zip(flat(&ahead));
        for (((whole, half), home), ahead) in all {
            let one_sided = (ahead - home) / eps;
            let scale = 1.0 + whole.abs();
            // rounding of values far from 0 is not a kink
            let noise = rounding(variant) * (1.0 + home.abs()) / eps;
            let apart = |a: f64| (a - whole).abs() > (1e-3 + 10.0 * eps) * scale + noise;
            if !whole.is_finite() || apart(half) || apart(one_sided) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How much rounding may change a result that differences are taken of, relative to it.
fn rounding(variant: &Variant) -> f64 {
    let is_double = |t: &Tensor| !t.dtype().is_float() || t.dtype() == DType::F64;
    if variant.inputs.iter().all(is_double) { 1e-14 } else { 1e-6 }
}

/// Whether the slope in the sum of two directions is the sum of the slopes in each. At a tie of
/// three elements, the median has a slope in every direction, but is not linear. `is_smooth` looks
/// in one direction and does not see this. The cost is that of 24 calls for each input.
pub(super) fn is_linear(f: &Function<'_>, variant: &Variant, eps: f64) -> Result<bool> {
    const PAIRS: u64 = 4;
    let home = values(f, &variant.inputs)?;
    for input in variant.floats() {
        for pair in 0..PAIRS {
            let x = &variant.inputs[input];
            let (u, v) = (random_like(x, 40 + 2 * pair)?, random_like(x, 41 + 2 * pair)?);
            let slopes = |direction: &Tensor| differences(f, variant, input, direction, eps);
            let (of_u, of_v, of_sum) = (slopes(&u)?, slopes(&v)?, slopes((&u + &v).ok()?)?);
            let flat = |all: Vec<Vec<f64>>| all.into_iter().flatten().collect::<Vec<f64>>();
            let each = flat(of_u).into_iter().zip(flat(of_v)).zip(flat(of_sum));
            for (((u, v), sum), home) in each.zip(home.iter().flatten()) {
                let noise = 3.0 * rounding(variant) * (1.0 + home.abs()) / eps;
                let scale = 1.0 + u.abs() + v.abs();
                if (sum - u - v).abs() > (1e-3 + 10.0 * eps) * scale + noise {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// The gradients of the leaves, of results weighted by `weights`; `None` stands for zeros.
pub(super) fn sweep(
    f: &Function<'_>,
    leaves: &[Tensor],
    wanted: &[Tensor],
    weights: &dyn Fn(usize, &Tensor) -> Result<Option<Tensor>>,
) -> Result<Vec<Option<Tensor>>> {
    let outputs = outputs(f, leaves)?;
    let (mut roots, mut given) = (Vec::new(), Vec::new());
    for (i, t) in outputs.iter().enumerate() {
        if let Some(weight) = weights(i, t)? {
            roots.push(t.clone());
            given.push(Some(weight));
        }
    }
    if roots.is_empty() {
        return Ok(vec![None; wanted.len()]);
    }
    grad(&roots, wanted, &given, BackwardOptions::default())
}
