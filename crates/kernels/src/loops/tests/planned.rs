//! Plans with packed operands, against plans without.

use super::{Layout, LoopKernel, Tensor, agrees, sets};
use crate::loops::product::Pace;
use crate::{Isa, View, ViewMut};
use maquette_ir::loops::{Array, LoopNest, StageOutput};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// The bits of results, the phases of the plan, whether its maps are a chain, whether products go
/// in step, and whether it packs values of operands.
type Ran = (Vec<Vec<u64>>, Vec<(usize, usize)>, [bool; 3]);

/// The results of a plan with packed operands, or without.
fn run(
    kernel: &LoopKernel,
    isa: Isa,
    (views, layout): (&[View<'_>], Layout),
    packs: bool,
) -> Option<Ran> {
    let nest = kernel.nest();
    let tensor = |r: &StageOutput| {
        let sizes = nest.sizes(r.stage).expect("has sizes");
        let size = |e: &Expr| match e {
            Expr::Int(n) => *n,
            _ => 0,
        };
        let sizes: Vec<i64> = sizes.iter().map(size).collect();
        Tensor::new(nest.dtype(*r).expect("has a dtype"), &sizes, layout)
    };
    let mut results: Vec<Tensor> = nest.results().iter().map(tensor).collect();
    let mut outputs: Vec<ViewMut<'_>> = results.iter_mut().map(Tensor::view_mut).collect();
    let plan = kernel.plan(&|_| None, views, &outputs).expect("plans");
    let pack = |(i, operands): (usize, &SmallVec<[usize; 1]>)| {
        let of: Vec<View<'_>> = operands.iter().map(|at| views[*at].clone()).collect();
        plan.pack(isa, i, &of, &[]).expect("packs")
    };
    let packed: Vec<_> = plan.packs().iter().enumerate().map(pack).collect();
    if packs && packed.is_empty() {
        return None;
    }
    let packed: Vec<_> = packed.iter().filter(|_| packs).map(Some).collect();
    let written = outputs.iter_mut().map(|o| o.as_ptr().cast_mut());
    let addresses: Vec<*mut u8> =
        views.iter().map(|v| v.as_ptr().cast_mut()).chain(written).collect();
    // SAFETY: the views are valid, and of the layouts of the plan.
    let outcome = unsafe { plan.run_packed_at(isa, &addresses, &[], &packed) };
    let bits = match outcome {
        Ok(()) => results.iter().map(Tensor::bits).collect(),
        Err(_) => Vec::new(),
    };
    let in_step = plan.runs().iter().any(|(_, pace)| *pace == Pace::InStep);
    Some((bits, plan.phases(), [plan.has_chain(), in_step, plan.of_operands.is_some()]))
}

/// What the plan of a nest does, for operands of these arrays.
pub(super) fn planned(nest: &LoopNest, operands: &[Array], used: &mut Vec<&'static str>) {
    let layouts = (vec![Layout::RowMajor; operands.len()], Layout::RowMajor);
    planned_in(nest, operands, &layouts, used);
}

/// As [`planned`], for some layouts of the operands and of the results.
pub(super) fn planned_in(
    nest: &LoopNest,
    operands: &[Array],
    (of_operands, layout): &(Vec<Layout>, Layout),
    used: &mut Vec<&'static str>,
) {
    let operands = operands.iter().zip(of_operands);
    let operands: Vec<Tensor> = operands.map(|(a, l)| Tensor::of(a, *l)).collect();
    let views: Vec<View<'_>> = operands.iter().map(Tensor::view).collect();
    let kernel = LoopKernel::new(nest.clone());
    let Some((expected, phases, [is_chain, in_step, has_values])) =
        run(&kernel, Isa::best(), (&views, *layout), false)
    else {
        return;
    };
    used.extend(is_chain.then_some("chain"));
    let maps = phases.iter().map(|p| p.1).max().unwrap_or(0);
    used.extend((maps > 0).then_some("on rectangles"));
    used.extend((maps > 1).then_some("several on rectangles"));
    used.extend((phases.len() > 1).then_some("later phase"));
    used.extend(in_step.then_some("in step"));
    for isa in sets() {
        if let Some((found, ..)) = run(&kernel, isa, (&views, *layout), true) {
            assert_eq!(expected, found, "packed on {isa:?}\n{nest}");
            used.push("packed");
            used.extend(has_values.then_some("values of operands"));
        }
    }
}

/// A square matrix as the right factor of two products, once transposed.
const TWICE: &str = "
loops (a0: f32[3, 70], a1: f32[70, 70]) -> (t1)
  axes i0 < 3, i1 < 70, i2 < 70, i3 < 70
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a0[i0, i2]
    r1: f32 = load a1[i2, i1]
    return r0, r1
  }
  t1[i0, i3] = contract over [i0, i3, i1] {
    r0: f32 = load t0[i0, i1]
    r1: f32 = load a1[i3, i1]
    return r0, r1
  }
}
";

#[test]
fn each_product_has_its_packed_factor() {
    let nest = LoopNest::parse(TWICE).expect("is valid");
    let numbers = |n: usize| super::noise(n);
    let operands = [super::floats(&[3, 70], numbers(210)), super::floats(&[70, 70], numbers(4900))];
    assert_eq!(agrees(&nest, &operands, &[]), None);
    let mut used = Vec::new();
    planned(&nest, &operands, &mut used);
    assert!(used.contains(&"packed"));
}
