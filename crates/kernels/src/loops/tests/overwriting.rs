//! Memory that is written behind a product, while other stages still read what is there.

use super::{Layout, LoopKernel, Tensor, agrees, compare, floats, noise, results};
use crate::{Isa, View, ViewMut};
use maquette_ir::loops::{Array, LoopNest};

/// Rectangles of a product are smaller.
const SIZE: i64 = 96;

fn parse(text: &str) -> LoopNest {
    let text = text.replace("SIZE", &SIZE.to_string());
    LoopNest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn square(step: usize) -> Array {
    floats(&[SIZE, SIZE], noise((SIZE * SIZE) as usize * step).step_by(step))
}

/// The last map reads the values of `t0` as its first operand, so that they could be in its result.
/// But the product, or a map behind it, reads them elsewhere than where it writes.
#[test]
fn values_that_other_stages_read_are_not_in_a_result_behind_a_product() {
    let before = "
loops (a0: f32[SIZE, SIZE], a1: f32[SIZE, SIZE], a2: f32[SIZE, SIZE]) -> (RESULTS)
  axes i0 < SIZE, i1 < SIZE, i2 < SIZE
{
  t0[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = tanh r0
    return r1
  }
";
    let is_a_factor = "
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load t0[i0, i2]
    r1: f32 = load a2[i2, i1]
    return r0, r1
  }
  t2[i0, i1] = map {
    r0: f32 = load t0[i0, i1]
    r1: f32 = load t1[i0, i1]
    r2: f32 = sub r0, r1
    return r2
  }
}
";
    let is_turned = "
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a1[i0, i2]
    r1: f32 = load a2[i2, i1]
    return r0, r1
  }
  t2[i0, i1] = map {
    r0: f32 = load t1[i0, i1]
    r1: f32 = load t0[i1, i0]
    r2: f32 = mul r0, r1
    return r2
  }
  t3[i0, i1] = map {
    r0: f32 = load t0[i0, i1]
    r1: f32 = load t1[i0, i1]
    r2: f32 = sub r0, r1
    return r2
  }
}
";
    for (stages, results) in [(is_a_factor, "t2"), (is_turned, "t2, t3")] {
        let nest = parse(&(before.replace("RESULTS", results) + stages));
        assert_eq!(agrees(&nest, &[square(1), square(2), square(3)], &[]), None);
    }
}

/// Runs a nest whose only result is written over operand `operand`. Whether there is a plan for it.
fn runs_over(nest: &LoopNest, operands: &[Array], operand: usize) -> bool {
    let kernel = LoopKernel::new(nest.clone());
    let inputs: Vec<Tensor> = operands.iter().map(|a| Tensor::of(a, Layout::RowMajor)).collect();
    let views: Vec<View<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut results = results(nest, &|_| None, Layout::RowMajor);
    let mut outputs: Vec<ViewMut<'_>> = results.iter_mut().map(Tensor::view_mut).collect();
    let plan = kernel.plan_over(&|_| None, &views, &outputs, &[(operand, 0)]).expect("is planned");
    let Some(plan) = plan else { return false };
    let old = &operands[operand];
    let n = old.elements().len() * old.dtype().size();
    // SAFETY: both are row-major tensors of one size.
    unsafe { views[operand].as_ptr().copy_to(outputs[0].as_view().as_ptr().cast_mut(), n) };
    let mut addresses: Vec<*mut u8> = views.iter().map(|v| v.as_ptr().cast_mut()).collect();
    addresses[operand] = outputs[0].as_view().as_ptr().cast_mut();
    addresses.push(addresses[operand]);
    // SAFETY: the addresses are those of live tensors, and only the pair of the plan is one tensor.
    let found = unsafe { plan.run_at(Isa::best(), &addresses, &[]) };
    drop(outputs.drain(..));
    let expected = nest.eval_with(&|_| None, operands, &[], &super::KernelFunctions);
    compare((nest, &"in place"), &expected, found, &results);
    true
}

/// Maps that read an operand behind a product, and are computed over it.
const BEHIND: &str = "
loops (a0: f32[SIZE, SIZE], a1: f32[SIZE, SIZE], a2: f32[SIZE, SIZE], a3: f32[SIZE, SIZE]) -> (t2)
  axes i0 < SIZE, i1 < SIZE, i2 < SIZE
{
  t0[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = tanh r0
    return r1
  }
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a1[i0, i2]
    r1: f32 = load a2[i2, i1]
    return r0, r1
  }
  t2[i0, i1] = map {
    r0: f32 = load t0[AT]
    r1: f32 = load t1[i0, i1]
    r2: f32 = load a3[i0, i1]
    r3: f32 = mul r1, r2
    r4: f32 = sub r0, r3
    return r4
  }
}
";

/// The values of `t0` are in the memory of the result, if the last map reads them where it writes.
#[test]
fn an_earlier_stage_does_not_write_the_memory_of_an_operand() {
    let operands = [square(1), square(2), square(3), square(5)];
    assert!(!runs_over(&parse(&BEHIND.replace("AT", "i0, i1")), &operands, 3));
    assert!(runs_over(&parse(&BEHIND.replace("AT", "i1, i0")), &operands, 3));
}
