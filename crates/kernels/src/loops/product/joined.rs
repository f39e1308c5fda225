//! Products of consecutive phases that have one left factor, as one job of the thread pool.
//!
//! A job ends when its last thread does, and a product of few rows may be too small to be divided.
//! So the query, the key and the value of an attention take less time as one job.
//!
//! **Invariant:** no product of a set reads what an earlier one computes, with one exception: its
//! maps may read elements at the rows and the columns at which they are computed. Then all go *in
//! step*: the task that computes some rows and columns of one product computes them of all, in the
//! order of the phases.

use super::factor::FactorAt;
use super::operand::{From, Operand};
use super::{Factors, Matrices, PackedOperand, ProductPlan, Visitor, numel};
use crate::error::Result;
use crate::gemm::{JoinedProduct, PackedMatrix, RightFactor, joined_products};
use crate::loops::stage::PanelContext;
use crate::pointwise::frame::Failure;
use crate::thread_pool;
use crate::view::Dims;
use maquette_ir::DType;
use smallvec::SmallVec;

/// In which order tasks of several products run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::loops) enum Pace {
    /// In any order.
    Free,
    /// The same rows and columns of all products by one task.
    InStep,
}

impl ProductPlan {
    /// The memory in which the factors are, if this is one product of two matrices in memory.
    fn factors_in_memory(&self) -> Option<[usize; 2]> {
        let Factors::Matrices([left, right]) = &self.factors else { return None };
        let is_read = self.out.is_some() || self.epilogue.maps() > 0;
        let is_one = numel(&self.loops) == 1 && self.sizes.iter().all(|n| *n > 0) && is_read;
        match (&left.at, &right.at) {
            (FactorAt::Memory(a), FactorAt::Memory(b)) if is_one => Some([*a, *b]),
            _ => None,
        }
    }

    /// The tensors in memory that the product and its maps write.
    fn written(&self) -> impl Iterator<Item = &Operand> {
        let of_maps = self.epilogue.maps.iter().flat_map(|map| map.outputs());
        let in_memory = |o: &&Operand| matches!(o.from, From::Memory(_));
        self.out.iter().chain(of_maps).filter(in_memory)
    }

    /// Whether two operands of the same memory have each element of the product at one place. Along
    /// a dimension of size 1, a stride is of no use.
    fn has_same_places(&self, one: &Operand, other: &Operand) -> bool {
        let [m, n, _] = self.sizes;
        let corners = [[0, 0], [usize::from(m > 1), 0], [0, usize::from(n > 1)]];
        corners.iter().all(|at| one.offset(&[], *at) == other.offset(&[], *at))
    }

    /// Whether the product can be computed with an earlier one that has the same left factor.
    fn pace_behind(&self, earlier: &ProductPlan) -> Option<Pace> {
        let [left, right] = self.factors_in_memory()?;
        let is_factor = |o: &Operand| [left, right].map(From::Memory).contains(&o.from);
        if earlier.written().any(is_factor) {
            return None;
        }
        let mut pace = Pace::Free;
        for map in &self.epilogue.maps {
            for (load, computed) in map.loads().iter().zip(&map.computed) {
                let Some(written) = earlier.written().find(|o| o.from == load.from) else {
                    continue;
                };
                if !computed.is_empty() || !self.has_same_places(load, written) {
                    return None;
                }
                pace = Pace::InStep;
            }
        }
        Some(pace)
    }
}

/// The pace of the products of some consecutive phases, `pace`, and of the next one. `None` if they
/// cannot be computed together.
pub(in crate::loops) fn joined_pace(
    products: &[&ProductPlan],
    pace: Pace,
    next: &ProductPlan,
) -> Option<Pace> {
    let left = |p: &ProductPlan| {
        let Factors::Matrices([a, _]) = &p.factors else { return None };
        let ([memory, _], [m, _, k]) = (p.factors_in_memory()?, p.sizes);
        Some(((memory, a.dtype, a.start), [a.own, a.inner], [m, k], p.dtype))
    };
    let first = products.first()?;
    if left(first)? != left(next)? {
        return None;
    }
    let mut found = pace;
    for product in products {
        if next.pace_behind(product)? == Pace::InStep {
            found = Pace::InStep;
        }
    }
    let has_columns_of_next = |p: &&ProductPlan| p.sizes[1] == next.sizes[1];
    (found == Pace::Free || products.iter().all(has_columns_of_next)).then_some(found)
}

/// Computes the products of some phases with their epilogues. `failed` gets the failures of stages.
///
/// # Errors
/// There is not enough memory, or a packed operand is of another plan.
pub(in crate::loops) fn run_joined(
    cx: &PanelContext<'_>,
    plans: &[&ProductPlan],
    pace: Pace,
    failed: &(dyn Fn(usize, Failure) + Sync),
) -> Result<()> {
    // One product has one point of its loops.
    let coords: Dims = plans
        .iter()
        .map(|plan| plan.loops.len())
        .max()
        .map_or_else(Dims::new, |loops| Dims::from_elem(0, loops));
    let visitors: SmallVec<[Visitor<'_>; 4]> = plans
        .iter()
        .map(|plan| Visitor { plan, cx, coords: &coords, first_row: 0, failed })
        .collect();
    let packed = plans.iter().map(|plan| Ok(plan.packed(cx)?.and_then(PackedOperand::matrix)));
    let packed = packed.collect::<Result<SmallVec<[Option<&PackedMatrix>; 4]>>>()?;
    let matrices = plans.iter().map(|plan| plan.matrices(cx, &coords));
    let matrices = matrices.collect::<Option<SmallVec<[Matrices<'_>; 4]>>>();
    let (Some(first), Some(mut matrices)) = (plans.first(), matrices) else {
        return plans.iter().try_for_each(|plan| plan.run(cx, failed));
    };
    let Some(left) = matrices.first().map(|matrices| matrices.left.clone()) else {
        return Ok(());
    };
    let ([m, _, k], threads) = (first.sizes, thread_pool::num_threads());
    let parts = matrices.iter_mut().zip(plans).zip(packed).zip(&visitors);
    let mut products: SmallVec<[JoinedProduct<'_>; 4]> = parts
        .map(|(((of, plan), packed), visitor)| JoinedProduct {
            right: RightFactor::of(&of.right, packed),
            columns: plan.sizes[1],
            out: of.out.take(),
            visitor: visitor.of_maps(),
        })
        .collect();
    let joined = match first.dtype {
        DType::F64 => joined_products::<f64>,
        _ => joined_products::<f32>,
    };
    let (isa, in_step) = (cx.run.isa, pace == Pace::InStep);
    // SAFETY: the sizes are those of the plans, and packed matrices have the dtypes of factors. The
    // results of stages are apart from each other. `ProductPlan::pace_behind` has found that none
    // of them is a factor, and that maps read the results of earlier products at their own places.
    unsafe { joined(isa, threads, (&left, [m, k]), &mut products, in_step) }
}
