//! Other layouts and contents of the tensors of a call: transposed, with gaps, beginning inside of
//! their storage, expanded; and elements at the edges of their dtype.

use maquette_check::Rng;
use maquette_check::opcheck::sample::{Operand, Relayout, concrete, operands, replace};
use maquette_check::values::call_single;
use maquette_ir::schema::Schema;
use maquette_ir::typing::dense_strides_i64;
use maquette_ir::{DType, Scalar};
use maquette_ops::{Args, Concrete, Result, Tensor, args};

/// Gives some tensors among the arguments other layouts, and some elements other values.
pub(super) fn vary(schema: &Schema, given: &Args, rng: &mut Rng) -> Result<Args> {
    let operands = operands(schema, given);
    let vary = |o: &Operand| {
        let mut t = o.tensor.clone();
        // A tensor that shares its memory keeps to it.
        if o.shares {
            return Ok(t);
        }
        if rng.chance(25) {
            t = with_edges(&t, rng)?;
        }
        if rng.chance(60) {
            let layout = layout(&concrete(&t)?, rng);
            t = Relayout { layout: &layout, keep: &|_| true, other: 0, beyond: 2, filler: 1 }
                .of(&t)?;
        }
        Ok(t)
    };
    replace(&operands, given, &operands.iter().map(vary).collect::<Result<Vec<_>>>()?)
}

/// A layout of the same sizes: dimensions in another order, rows with gaps, a dimension whose
/// elements are one, or the layout itself; from an element on.
fn layout(c: &Concrete, rng: &mut Rng) -> Concrete {
    let rank = c.sizes.len();
    let dense = dense_strides_i64(&c.sizes, rng.order(rank));
    let mut strides = dense.map_or_else(|| c.strides.clone(), |dense| dense.into_iter().collect());
    match rng.below(5) {
        0 => strides = c.strides.clone(),
        1 => strides.iter_mut().for_each(|stride| *stride *= 2),
        2 if rank > 0 => strides[rng.below(rank)] = 0,
        _ => {}
    }
    Concrete { strides, offset: rng.between(0, 3), ..c.clone() }
}

/// The tensor with one to three elements at an edge of its dtype.
fn with_edges(t: &Tensor, rng: &mut Rng) -> Result<Tensor> {
    let n = t.numel().as_i64().unwrap_or(0);
    if n == 0 {
        return Ok(t.clone());
    }
    let flat = call_single("aten::clone", args![t.reshape([n])])?;
    for _ in 0..rng.between(1, 3) {
        let at = rng.between(0, n - 1);
        call_single("aten::fill_.Scalar", args![flat.select(0, at), edge(t.dtype(), rng)])?;
    }
    Ok(flat.reshape(t.sizes()))
}

/// A number at an edge of a dtype.
fn edge(dtype: DType, rng: &mut Rng) -> Scalar {
    match (dtype.int_range(), dtype) {
        (_, DType::Bool) => Scalar::Bool(rng.chance(50)),
        (Some((least, most)), _) => {
            let edges = [0, 1, 2, -1, least, most, least + 1, most - 1];
            Scalar::Int(edges[rng.below(edges.len())].clamp(least, most))
        }
        (None, _) => {
            let largest = dtype.largest_float().unwrap_or(f64::MAX);
            let (nan, inf) = (f64::NAN, f64::INFINITY);
            let edges = [0.0, -0.0, 1.0, -1.0, nan, inf, -inf, largest, -largest, 1e-40];
            Scalar::Float(edges[rng.below(edges.len())])
        }
    }
}
