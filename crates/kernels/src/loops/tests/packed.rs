//! Values of operands that are computed once for several launches.

use super::{Layout, LoopKernel, Tensor, floats, noise, results};
use crate::error::Result;
use crate::loops::PackedOperand;
use crate::{Isa, View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::LoopNest;

/// The first phase computes a shift for each column, of an operand and of a number.
const SHIFTED: &str = "
loops (a0: f32[8, 16], a1: f32[16, 24], a2: f32[24]) -> (t2)
  launch c0: f32
  axes i0 < 8, i1 < 24, i2 < 16
{
  t0[i1] = map {
    r0: f32 = load a2[i1]
    r1: f32 = launch c0
    r2: f32 = mul r0, r1
    return r2
  }
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a0[i0, i2]
    r1: f32 = load a1[i2, i1]
    return r0, r1
  }
  t2[i0, i1] = map {
    r0: f32 = load t1[i0, i1]
    r1: f32 = load t0[i1]
    r2: f32 = add r0, r1
    return r2
  }
}
";

#[test]
fn values_serve_launches_of_their_plan_and_numbers_alone() {
    let nest = LoopNest::parse(SHIFTED).expect("is valid");
    let operands = [(&[8, 16][..], 128), (&[16, 24], 384), (&[24], 24)];
    let operands =
        operands.map(|(sizes, n)| Tensor::of(&floats(sizes, noise(n)), Layout::RowMajor));
    let views: Vec<View<'_>> = operands.iter().map(Tensor::view).collect();
    let kernel = LoopKernel::new(nest.clone());
    let mut results = results(&nest, &|_| None, Layout::RowMajor);
    let outputs: Vec<ViewMut<'_>> = results.iter_mut().map(Tensor::view_mut).collect();
    let plan = kernel.plan(&|_| None, &views, &outputs).expect("is planned");
    let index = plan.packs().iter().position(|of| of[..] == [2]).expect("packs the shift");
    let values = |number: f64| {
        let numbers = [Scalar::Float(number)];
        plan.pack(Isa::best(), index, &[views[2].clone()], &numbers).expect("packs")
    };
    let mut addresses: Vec<*mut u8> = views.iter().map(|v| v.as_ptr().cast_mut()).collect();
    addresses.extend(outputs.iter().map(|o| o.as_ptr().cast_mut()));
    drop(outputs);
    let run = |number: f64, packed: Option<&PackedOperand>| -> Result<Vec<u64>> {
        let mut all: Vec<Option<&PackedOperand>> = vec![None; plan.packs().len()];
        all[index] = packed;
        let numbers = [Scalar::Float(number)];
        // SAFETY: the operands and the result are live, and of the layouts of the plan.
        unsafe { plan.run_packed_at(Isa::best(), &addresses, &numbers, &all) }?;
        Ok(results[0].bits())
    };
    let (of_two, of_three) = (values(2.0), values(3.0));
    let expected = run(2.0, None).expect("runs");
    assert_eq!(run(2.0, Some(&of_two)).expect("runs"), expected);
    assert_ne!(run(3.0, Some(&of_three)).expect("runs"), expected);
    let error = run(3.0, Some(&of_two)).expect_err("is of other numbers");
    assert!(error.to_string().contains("another launch"), "{error}");
    assert_ne!(
        plan.pack_key(index, &[Scalar::Float(2.0)]),
        plan.pack_key(index, &[Scalar::Float(3.0)])
    );
    // Another plan has values of its own, also if its nest is the same.
    let other = LoopKernel::new(nest);
    let outputs: Vec<ViewMut<'_>> = results.iter_mut().map(Tensor::view_mut).collect();
    let other = other.plan(&|_| None, &views, &outputs).expect("is planned");
    let numbers = [Scalar::Float(2.0)];
    assert_ne!(plan.pack_key(index, &numbers), other.pack_key(index, &numbers));
}
