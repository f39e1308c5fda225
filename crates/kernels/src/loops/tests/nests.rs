//! Nests of operators, at sizes around chunks and panels.

use super::{agrees, floats, ints, noise};
use maquette_ir::loops::LoopNest;

fn parse(text: &str) -> LoopNest {
    LoopNest::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

fn softmax(rows: i64, columns: i64) -> LoopNest {
    parse(&format!(
        "
loops (a0: f32[{rows}, {columns}]) -> (t4)
  axes i0 < {rows}, i1 < {columns}
{{
  t0[i0] = reduce max lanes over [i0, i1] {{
    r0: f32 = load a0[i0, i1]
    return r0
  }}
  t1[i0, i1] = map {{
    r0: f32 = load a0[i0, i1]
    r1: f32 = load t0[i0]
    r2: f32 = sub r0, r1
    r3: f32 = exp r2
    return r3
  }}
  t2[i0] = reduce sum lanes over [i0, i1] {{
    r0: f32 = load t1[i0, i1]
    return r0
  }}
  t3[i0] = map {{
    r0: f32 = load t2[i0]
    r1: f32 = reciprocal r0
    return r1
  }}
  t4[i0, i1] = map {{
    r0: f32 = load t1[i0, i1]
    r1: f32 = load t3[i0]
    r2: f32 = mul r0, r1
    return r2
  }}
}}
"
    ))
}

#[test]
fn softmax_agrees_at_all_sizes() {
    for (rows, columns) in
        [(0, 4), (4, 0), (1, 1), (1, 4), (300, 7), (3, 1024), (2, 2049), (5, 9000), (70, 130)]
    {
        let x = floats(&[rows, columns], noise((rows * columns) as usize));
        assert_eq!(agrees(&softmax(rows, columns), &[x], &[]), None);
    }
}

/// As the fusion of maps and a softmax makes it: each stage has inner axes of its own.
fn composed_softmax(rows: i64, columns: i64) -> LoopNest {
    parse(&format!(
        "
loops (a0: f32[{rows}, {columns}], a1: f32[{columns}]) -> (t4)
  axes i0 < {rows}, i1 < {columns}, i2 < {columns}, i3 < {columns}
{{
  t0[i0, i1] = map {{
    r0: f32 = load a0[i0, i1]
    r1: f32 = const 0.125
    r2: f32 = mul r0, r1
    r3: f32 = load a1[i1]
    r4: f32 = add r2, r3
    return r4
  }}
  t1[i0] = reduce max lanes over [i0, i2] {{
    r0: f32 = load t0[i0, i2]
    return r0
  }}
  t2[i0, i2] = map {{
    r0: f32 = load t0[i0, i2]
    r1: f32 = load t1[i0]
    r2: f32 = sub r0, r1
    r3: f32 = exp r2
    return r3
  }}
  t3[i0] = reduce sum lanes over [i0, i2] {{
    r0: f32 = load t2[i0, i2]
    return r0
  }}
  t4[i0, i3] = map {{
    r0: f32 = load t2[i0, i3]
    r1: f32 = load t3[i0]
    r2: f32 = reciprocal r1
    r3: f32 = mul r0, r2
    return r3
  }}
}}
"
    ))
}

#[test]
fn a_composed_softmax_agrees_at_all_sizes() {
    for (rows, columns) in [(0, 4), (1, 1), (9, 7), (70, 128), (3, 300), (3, 1024), (2, 9000)] {
        let x = floats(&[rows, columns], noise((rows * columns) as usize));
        let mask = floats(&[columns], noise(columns as usize));
        assert_eq!(agrees(&composed_softmax(rows, columns), &[x, mask], &[]), None);
    }
}

#[test]
fn softmax_has_the_bits_of_its_kernel() {
    use crate::{View, ViewMut};
    for (rows, columns) in [(1i64, 4i64), (13, 384), (2, 5000)] {
        let x: Vec<f32> = noise((rows * columns) as usize).map(|x| x as f32).collect();
        let (mut expected, mut found) = (vec![0.0f32; x.len()], vec![0.0f32; x.len()]);
        let sizes = [rows, columns];
        let input = View::from_slice_sized(&x, &sizes).expect("fits");
        let mut out = ViewMut::from_slice_sized(&mut expected, &sizes).expect("fits");
        crate::softmax(&input, 1, &mut out).expect("runs");
        let out = ViewMut::from_slice_sized(&mut found, &sizes).expect("fits");
        let kernel = super::LoopKernel::new(softmax(rows, columns));
        kernel.run(&|_| None, &[input], &[], &mut [out]).expect("runs");
        assert_eq!(expected, found);
    }
}

#[test]
fn moments_and_batches_agree() {
    let text = "
loops (a0: f32[3, 5, 67], a1: f32[67]) -> (t1, t0)
  axes i0 < 3, i1 < 5, i2 < 67
{
  t0[i0, i1] = reduce moments lanes over [i0, i1, i2] {
    r0: f32 = load a0[i0, i1, i2]
    return r0
  }
  t1[i0, i1, i2] = map {
    r0: f32 = load a0[i0, i1, i2]
    r1: f32 = load t0[i0, i1]
    r2: f32 = sub r0, r1
    r3: f32 = load t0:1[i0, i1]
    r4: f32 = const 67.0
    r5: f32 = div r3, r4
    r6: f32 = rsqrt r5
    r7: f32 = mul r2, r6
    r8: f32 = load a1[i2]
    r9: f32 = mul r7, r8
    return r9
  }
}
";
    let operands = [floats(&[3, 5, 67], noise(1005)), floats(&[67], noise(67))];
    assert_eq!(agrees(&parse(text), &operands, &[]), None);
}

#[test]
fn a_reduction_of_columns_agrees() {
    let text = "
loops (a0: f32[130, 9]) -> (t1)
  axes i0 < 130, i1 < 9
{
  t0[i1] = reduce sum lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    r1: f32 = mul r0, r0
    return r1
  }
  t1[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = load t0[i1]
    r2: f32 = div r0, r1
    return r2
  }
}
";
    assert_eq!(agrees(&parse(text), &[floats(&[130, 9], noise(1170))], &[]), None);
}

#[test]
fn batched_contractions_agree() {
    let text = "
loops (a0: f32[2, 5, 3, 70], a1: f32[2, 70, 3, 4]) -> (t0, t1)
  axes i0 < 2, i1 < 5, i2 < 3, i3 < 4, i4 < 70
{
  t0[i0, i1, i2, i3] = contract over [i0, i1, i2, i3, i4] {
    r0: f32 = load a0[i0, i1, i2, i4]
    r1: f32 = load a1[i0, i4, i2, i3]
    return r0, r1
  }
  t1[i1, i3] = contract over [i1, i2, i3, i4] {
    r0: f32 = load a0[0, i1, i2, i4]
    r1: f32 = load a1[1, i4, i2, i3]
    return r0, r1
  }
}
";
    let operands = [floats(&[2, 5, 3, 70], noise(2100)), floats(&[2, 70, 3, 4], noise(1680))];
    assert_eq!(agrees(&parse(text), &operands, &[]), None);
}

#[test]
fn the_first_failure_is_reported() {
    let text = "
loops (a0: f32[3], a1: i64[200], a2: i64[200]) -> (t1)
  axes i0 < 200
{
  t0[i0] = map {
    r0: i64 = load a1[i0]
    r1: f32 = read a0[r0] wraps
    return r1
  }
  t1[i0] = map {
    r0: i64 = load a2[i0]
    r1: i64 = const 7
    r2: i64 = floor_div r1, r0
    r3: f32 = load t0[i0]
    r4: f32 = cast r2
    r5: f32 = add r3, r4
    return r5
  }
}
";
    let table = floats(&[3], [1.0, 2.0, 3.0]);
    let mut at: Vec<i64> = (0..200).map(|i| i % 6 - 3).collect();
    let mut by = vec![2i64; 200];
    let run = |at: &[i64], by: &[i64]| {
        let operands =
            [table.clone(), ints(&[200], at.iter().copied()), ints(&[200], by.iter().copied())];
        agrees(&parse(text), &operands, &[])
    };
    assert_eq!(run(&at, &by), None);
    by[3] = 0;
    assert_eq!(run(&at, &by).as_deref(), Some("integer division by zero"));
    (at[190], at[150]) = (3, -4);
    let expected = "index -4 is out of bounds for dimension 0 with size 3";
    assert_eq!(run(&at, &by).as_deref(), Some(expected));
}

/// A product of a transposed factor, whose tasks pack it, and a map that follows it.
#[test]
fn maps_after_products_of_many_transposed_rows_agree() {
    for (rows, columns, inner) in [(390, 70, 20), (1100, 16, 7), (384, 130, 2)] {
        let nest = parse(&format!(
            "
loops (a0: f32[{inner}, {rows}], a1: f32[{inner}, {columns}], a2: f32[{columns}]) -> (t1)
  axes i0 < {rows}, i1 < {columns}, i2 < {inner}
{{
  t0[i0, i1] = contract over [i0, i1, i2] {{
    r0: f32 = load a0[i2, i0]
    r1: f32 = load a1[i2, i1]
    return r0, r1
  }}
  t1[i0, i1] = map {{
    r0: f32 = load t0[i0, i1]
    r1: f32 = load a2[i1]
    r2: f32 = add r0, r1
    r3: f32 = exp r2
    return r3
  }}
}}
"
        ));
        let operand = |sizes: &[i64]| floats(sizes, noise(sizes.iter().product::<i64>() as usize));
        let operands = [operand(&[inner, rows]), operand(&[inner, columns]), operand(&[columns])];
        assert_eq!(agrees(&nest, &operands, &[]), None);
    }
}
