//! Sizes and strides in graphs.

use crate::common::{matrix, values, vector};
use insta::assert_snapshot;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{ErrorKind, IntoDims, RunError, Tensor};
use maquette_trace::{Dim, TraceOptions, trace};

#[test]
fn static_sizes_are_numbers() {
    let t =
        trace(|(x, y): (Tensor, Tensor)| (&x + &y).relu(), (matrix(2, 3), matrix(2, 3))).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[2, 3], %in1: f32[2, 3]) -> (f32[2, 3])
    {
      %add: f32[2, 3] = aten::add.Tensor(%in0, %in1)
      %relu: f32[2, 3] = aten::relu(%add)
      return %relu
    }
    ");
}

#[test]
fn symbolic_sizes_are_symbols_and_nothing_is_special() {
    let t = TraceOptions::symbolic()
        .names(["x"])
        .trace(|x: Tensor| (x * 2.0).sin(), matrix(1, 0))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0, s1]) -> (f32[s0, s1])
      where s0 in [0, oo), s1 in [0, oo)
    {
      %mul: f32[s0, s1] = aten::mul.Tensor(%x, 2.0)
      %sin: f32[s0, s1] = aten::sin(%mul)
      return %sin
    }
    ");
}

#[test]
fn named_dimensions() {
    let batch = Dim::new("batch").min(1).max(64);
    let t = TraceOptions::new()
        .dynamic(0, 0, batch.clone())
        .dynamic(1, 0, batch)
        .names(["x", "y"])
        .name("model")
        .trace(|(x, y): (Tensor, Tensor)| x + y, (matrix(2, 3), matrix(2, 3)))
        .unwrap();
    assert_snapshot!(t, @r"
    graph model(%x: f32[batch, 3], %y: f32[batch, 3]) -> (f32[batch, 3])
      where batch in [1, 64]
    {
      %add: f32[batch, 3] = aten::add.Tensor(%x, %y)
      return %add
    }
    ");
    let e = t.run((matrix(4, 3), matrix(5, 3))).unwrap_err();
    assert_snapshot!(e.kind().to_string(), @"input `y`: size 0 must be 4, found 5 (`batch`, where \
        batch = 4 from size 0 of `x`)");
    let e = t.run((matrix(65, 3), matrix(65, 3))).unwrap_err();
    assert_snapshot!(e.kind().to_string(), @"input `x`: size 0 must be in [1, 64], found 65 (the \
        declared range of `batch`)");
    assert_eq!(t.run((matrix(1, 3), matrix(1, 3))).unwrap().sizes_i64().unwrap(), [1, 3]);
}

#[test]
fn two_symbols_that_must_agree_become_a_guard() {
    let t = TraceOptions::symbolic()
        .trace(|(x, y): (Tensor, Tensor)| x + y, (vector(3), vector(3)))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[s0], %in1: f32[s1]) -> (f32[s0])
      where s0 in [0, oo), s1 in [0, oo)
      guard s0 == s1
    {
      %add: f32[s0] = aten::add.Tensor(%in0, %in1)
      return %add
    }
    ");
    let e = t.run((vector(4), vector(5))).unwrap_err();
    assert!(e.to_string().contains("`s0 == s1`") && e.to_string().contains("sizes.rs"), "{e}");
}

#[test]
fn duck_shaping_shares_symbols() {
    let t = TraceOptions::symbolic()
        .duck_shaping(true)
        .trace(|(x, y): (Tensor, Tensor)| x + y, (vector(3), vector(3)))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[s0], %in1: f32[s0]) -> (f32[s0])
      where s0 in [0, oo)
    {
      %add: f32[s0] = aten::add.Tensor(%in0, %in1)
      return %add
    }
    ");
}

#[test]
fn strides_follow_the_sizes_where_they_can() {
    let program = |(a, b): (Tensor, Tensor)| (a, b);
    let row_major = matrix(2, 3);
    let fake = |sizes: [i64; 2], strides: [i64; 2]| {
        let meta = row_major.meta().with_dims(sizes.into_dims(), strides.into_dims());
        Tensor::fake_of(meta)
    };
    let t = TraceOptions::symbolic()
        .trace(program, (fake([2, 3], [1, 2]), fake([2, 3], [8, 1])))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[s0, s1] strides [1, max(1, s0)], %in1: f32[s2, s3] strides [8, 1]) -> (f32[s0, s1] strides [1, max(1, s0)], f32[s2, s3] strides [8, 1])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo), s3 in [0, oo)
    {
      return %in0, %in1
    }
    ");
    let t = TraceOptions::symbolic()
        .trace(program, (fake([2, 3], [0, 1]), fake([2, 3], [6, 2])))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[s0, s1] strides [0, 1], %in1: f32[s2, s3] strides [2 * max(1, s3), 2]) -> (f32[s0, s1] strides [0, 1], f32[s2, s3] strides [2 * max(1, s3), 2])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo), s3 in [0, oo)
    {
      return %in0, %in1
    }
    ");
}

#[test]
fn strides_of_operands_of_a_product_add_no_guard() {
    // batch and heads can be folded without a copy at some sizes only, and nobody can tell
    let heads = |x: &Tensor| x.unflatten(-1, [2i64, -1]).transpose(1, 2);
    let attend = |x: Tensor| -> Tensor {
        let (q, k) = (heads(&x), heads(&x).slice(1, ..1));
        let w = q.scaled_dot_product_attention(&k, &k, None, false, Some(1.0), true);
        &q.matmul(&k.transpose(-2, -1)).matmul(&k)
            + w.linear(&Tensor::ones([3, 3], DType::F32), None)
    };
    let sample = Tensor::zeros([2, 5, 6], DType::F32);
    let options =
        TraceOptions::new().dynamic(0, 0, Dim::new("batch")).dynamic(0, 1, Dim::new("length"));
    let t = options.trace(attend, sample).unwrap();
    assert!(t.graph().guards().is_empty(), "{t}");
    for sizes in [[1, 5, 6], [2, 1, 6], [3, 4, 6], [0, 2, 6]] {
        let x = Tensor::arange(sizes.iter().product::<i64>()).view(sizes) * 0.01;
        assert_eq!(
            values(&t.run(x.clone()).unwrap().reshape([-1i64])),
            values(&attend(x).reshape([-1i64])),
            "{sizes:?}"
        );
    }
}

#[test]
fn a_split_into_one_part_is_guarded_against_parts_of_nothing() {
    let program = |(x, y, z): (Tensor, Tensor, Tensor)| z.split(x.size(0) - y.size(0), 0);
    let t = TraceOptions::symbolic().trace(program, (vector(4), vector(3), vector(1))).unwrap();
    assert_eq!(t.run((vector(5), vector(4), vector(1))).unwrap().len(), 1);
    let e = t.run((vector(3), vector(3), vector(1))).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })), "{e}");
}

#[test]
fn columns_of_no_elements_are_contiguous_and_guarded() {
    let rows = |x: Tensor| x.t().contiguous();
    for (own, other) in [(0, 2), (2, 0)] {
        let t = TraceOptions::symbolic().trace(rows, matrix(own, 3)).unwrap();
        let (eager, found) = (rows(matrix(own, 3)), t.run(matrix(own, 3)).unwrap());
        let strides = |x: &Tensor| format!("{:?}", x.strides());
        assert_eq!(strides(&found), strides(&eager), "{t}");
        let e = t.run(matrix(other, 3)).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })), "{e}");
    }
}

#[test]
fn an_unbacked_size_is_asserted_and_never_decided() {
    let options = TraceOptions::new().unbacked(0, 0).dynamic(1, 0, Dim::new("n")).names(["x", "y"]);
    let t =
        options.trace(|(x, y): (Tensor, Tensor)| (&x + &x, x + y), (vector(3), vector(3))).unwrap();
    assert_snapshot!(t, @r#"
    graph graph(%x: f32[s0], %y: f32[n]) -> (f32[s0], f32[n])
      where n in [0, oo), s0 in [0, oo)
    {
      %add: f32[s0] = aten::add.Tensor(%x, %x)
      assert n == s0 "sizes s0 and n of dimension 0 must be equal: a data-dependent size does not broadcast"
      %add_1: f32[n] = aten::add.Tensor(%x, %y)
      return %add, %add_1
    }
    "#);
    let x = vector(1);
    assert_eq!(t.run((x.clone(), x)).unwrap().1.sizes_i64().unwrap(), [1]);
    let e = t.run((vector(2), vector(3))).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Assertion { .. })), "{e}");
    let branch = |(x, _): (Tensor, Tensor)| -> maquette_ops::Result<Tensor> {
        Ok(if x.size(0).gt(2).guard()? { &x + &x } else { x })
    };
    let e = options.trace(branch, (vector(3), vector(3))).unwrap_err();
    let text = "s0 is the data-dependent size made by the declaration `.unbacked(0, 0)` at ";
    assert!(e.to_string().contains(text), "{e}");
}

#[test]
fn one_integer_is_a_symbol() {
    let n = SymInt::from(3);
    let t = TraceOptions::new()
        .dynamic_integer(1)
        .trace(|(x, n, m): (Tensor, SymInt, SymInt)| x * (n + m), (vector(2), n, n))
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[2], %in1: int(s0)) -> (f32[2])
      where s0 in (-oo, oo)
      guard s0 <= 9223372036854775804
    {
      %mul: f32[2] = aten::mul.Tensor(%in0, s0 + 3)
      return %mul
    }
    ");
    // an `i64` stays a number
    let t = TraceOptions::new()
        .dynamic_integer(1)
        .trace(|(x, n): (Tensor, i64)| x * n as f64, (vector(2), 3))
        .unwrap();
    assert_eq!(t.graph().inputs().len(), 1);
}
