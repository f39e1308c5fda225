//! What is recorded: the graph of a program, as text.

mod common;
#[path = "graphs/sizes.rs"]
mod sizes;

use common::{COUNT, INC, INC_RETURNED, NONZERO, call, matrix, values, vector};
use insta::assert_snapshot;
use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{Result, Tensor, args, bail};
use maquette_trace::{TraceOptions, trace};

#[test]
fn a_data_dependent_size_is_bound_and_checked() {
    let t = TraceOptions::symbolic()
        .names(["x"])
        .trace(
            |x: Tensor| -> Result<Tensor> {
                let nz = call(&NONZERO, args![&x])?;
                nz.size(0).le(x.size(0)).check("more rows than elements")?;
                Ok(&nz + &nz)
            },
            vector(4),
        )
        .unwrap();
    assert_snapshot!(t, @r#"
    graph graph(%x: f32[s0]) -> (i64[u0, 1])
      where s0 in [0, oo), u0 in [0, oo)
    {
      %nonzero: i64[u0, 1] = t::nonzero(%x)
      bind u0 = size(%nonzero, 0)
      assert u0 <= s0 "more rows than elements"
      %add: i64[u0, 1] = aten::add.Tensor(%nonzero, %nonzero)
      return %add
    }
    "#);
    let x = Tensor::from_vec(vec![0.0f32, 5.0, 0.0, 7.0, 8.0], [5]);
    assert_eq!(t.run(x).unwrap().to_vec::<i64>().unwrap(), [2, 6, 8]);
}

#[test]
fn an_integer_result_is_bound() {
    let program =
        |x: Tensor| -> Result<SymInt> { Ok(COUNT.call(args![&x, 0.0])?[0].int()? * 2 + x.size(0)) };
    let t = TraceOptions::symbolic().names(["x"]).trace(program, vector(3)).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0]) -> (int(s0 + 2 * u0))
      where s0 in [0, oo), u0 in [0, oo)
    {
      %count: int(u0) = t::count(%x)
      bind u0 = %count
      return s0 + 2 * u0
    }
    ");
    assert_eq!(t.run(vector(5)).unwrap().as_i64(), Some(11));
}

#[test]
fn mutation_is_recorded_in_order_and_the_sample_is_left_alone() {
    let x = vector(2);
    let t = trace(
        |x: Tensor| -> Result<(Tensor, Tensor)> {
            let before = &x * 1.0;
            INC.call(args![&x])?;
            let same = call(&INC_RETURNED, args![&x])?;
            assert!(same.is_same(&x), "the returned tensor is the argument itself");
            Ok((before, same))
        },
        x.clone(),
    )
    .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[2]) -> (f32[2], f32[2])
    {
      %mul: f32[2] = aten::mul.Tensor(%in0, 1.0)
      t::inc_(%in0)
      %inc_returned_: f32[2] = t::inc_returned_(%in0)
      return %mul, %in0
    }
    ");
    assert_eq!(values(&x), [-1.5, -0.5], "tracing writes nothing");
    let y = vector(2);
    let (before, after) = t.run(y.clone()).unwrap();
    assert_eq!((values(&before), values(&after)), (vec![-1.5, -0.5], vec![0.5, 1.5]));
    assert!(after.shares_storage(&y));
}

#[test]
fn captured_tensors_are_constants_by_reference() {
    let w = Tensor::from([1.0f32, 2.0]);
    let (used, counter) = (w.clone(), Tensor::from([0.0f32]));
    let inner = counter.clone();
    let t = trace(
        move |x: Tensor| -> Result<Tensor> {
            INC.call(args![&inner])?;
            Ok(&(&x * &used) + &used)
        },
        vector(2),
    )
    .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[2]) -> (f32[2])
      const %c0: f32[1] = sha256:c2ca5f0fc606a6a4
      const %c1: f32[2] = sha256:d502b8e767ca13b8
    {
      t::inc_(%c0)
      %mul: f32[2] = aten::mul.Tensor(%in0, %c1)
      %add: f32[2] = aten::add.Tensor(%mul, %c1)
      return %add
    }
    ");
    assert_eq!(values(&t.run(vector(2)).unwrap()), [-0.5, 1.0]);
    w.clone().write::<f32>().unwrap().fill(0.0);
    assert_eq!(values(&t.run(vector(2)).unwrap()), [0.0, 0.0], "a later write is seen");
    assert_eq!(values(&counter), [2.0], "the program's own writes are made by runs only");
}

#[test]
fn two_views_of_a_captured_tensor_see_each_others_writes() {
    let w = Tensor::from([1.0f32, 2.0, 3.0]);
    let (all, tail) = (w.clone(), w.slice(0, 1..));
    let t = trace(
        move |x: Tensor| -> Result<Tensor> {
            INC.call(args![&tail])?;
            Ok(x + &all)
        },
        Tensor::from([0.0f32; 3]),
    )
    .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[3]) -> (f32[3])
      const %c0: f32[2] offset 1 = sha256:a60ae3767c983c24
      const %c1: f32[3] = sha256:fed8d658ab4cea9f
    {
      t::inc_(%c0)
      %add: f32[3] = aten::add.Tensor(%in0, %c1)
      return %add
    }
    ");
    assert_eq!(values(&t.run(Tensor::from([0.0f32; 3])).unwrap()), [1.0, 3.0, 4.0]);
    assert_eq!(values(&w), [1.0, 3.0, 4.0]);
}

#[test]
fn host_data_is_made_anew_by_every_run() {
    let t = trace(
        |x: Tensor| {
            let mut sum = Tensor::from([0.0f32, 0.0]);
            sum += &x;
            sum
        },
        vector(2),
    )
    .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[2]) -> (f32[2])
      const %c0: f32[2] = sha256:2af2f1d76910ccf4
    {
      %lift_fresh_copy: f32[2] = aten::lift_fresh_copy(%c0)
      %add_: f32[2] = aten::add_.Tensor(%lift_fresh_copy, %in0)
      return %lift_fresh_copy
    }
    ");
    for _ in 0..2 {
        assert_eq!(values(&t.run(vector(2)).unwrap()), [-1.5, -0.5]);
    }
}

#[test]
fn views_share_storage_in_the_trace_and_in_a_run() {
    let t = TraceOptions::symbolic()
        .names(["x"])
        .trace(
            |x: Tensor| {
                let mut row = x.select(0, 0);
                row += 10.0;
                (x.t(), row)
            },
            matrix(2, 3),
        )
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0, s1]) -> (f32[s1, s0] strides [1, max(1, s1)], f32[s1])
      where s0 in [0, oo), s1 in [0, oo)
      guard s0 > 0
    {
      %select: f32[s1] = aten::select.int(%x, 0, 0)
      %add_: f32[s1] = aten::add_.Tensor(%select, 10.0)
      %t: f32[s1, s0] strides [1, max(1, s1)] = aten::t(%x)
      return %t, %select
    }
    ");
    let x = matrix(2, 2);
    let (transposed, row) = t.run(x.clone()).unwrap();
    assert_eq!((values(&transposed), values(&row)), (vec![8.0, 0.0, 9.0, 1.0], vec![8.0, 9.0]));
    assert!(transposed.shares_storage(&x) && row.shares_storage(&x));
}

#[test]
fn outputs_may_be_inputs_constants_numbers_and_absent() {
    let k = Tensor::from([7.0f32]);
    let t = TraceOptions::symbolic()
        .trace(
            move |x: Tensor| {
                (x.clone(), vec![k.clone()], (x.size(0) + 1, 2.5, true), None::<Tensor>)
            },
            vector(3),
        )
        .unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[s0]) -> (f32[s0], f32[1], int(s0 + 1), float, bool)
      where s0 in [0, oo)
      const %c0: f32[1] = sha256:4cf41368d4208b13
    {
      return %in0, %c0, s0 + 1, 2.5, true
    }
    ");
    let (x, k, (n, f, b), none) = t.run(vector(4)).unwrap();
    assert_eq!(
        (values(&x).len(), values(&k[0]), n.as_i64(), f, b, none.is_none()),
        (4, vec![7.0], Some(5), 2.5, true, true)
    );
}

#[test]
fn numbers_among_the_inputs() {
    let program = |(x, n, k, s): (Tensor, SymInt, i64, f64)| (&x * k * s, x.size(0) * n);
    let inputs = || (vector(2), SymInt::from(3), 4, 0.5);
    let t = TraceOptions::symbolic().names(["x", "n", "k", "s"]).trace(program, inputs()).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0], %n: int(s1)) -> (f32[s0], int(s0 * s1))
      where s0 in [0, oo), s1 in (-oo, oo)
      guard s0 * s1 <= 9223372036854775807
      guard s0 * s1 >= -9223372036854775808
    {
      %mul: f32[s0] = aten::mul.Tensor(%x, 4)
      %mul_1: f32[s0] = aten::mul.Tensor(%mul, 0.5)
      return %mul_1, s0 * s1
    }
    ");
    let (y, n) = t.run((vector(1), SymInt::from(10), 4, 0.5)).unwrap();
    assert_eq!((values(&y), n.as_i64()), (vec![-3.0], Some(10)));
    let e = t.run((vector(1), SymInt::from(10), 5, 0.5)).unwrap_err();
    assert_snapshot!(e.kind().to_string(), @"input `k`: the value must be the integer 4, found \
        the integer 5 (a trace is specialized to numbers, except `SymInt`s of a symbolic trace; \
        trace again for other values)");
    let t = trace(program, inputs()).unwrap();
    assert!(
        t.run((vector(2), SymInt::from(4), 4, 0.5)).is_err(),
        "without symbols every number is fixed"
    );
}

#[test]
fn trailing_defaults_are_dropped_and_others_kept() {
    let program = |x: Tensor| -> Result<()> {
        COUNT.call(args![&x])?;
        COUNT.call(args![&x, 0.0])?;
        COUNT.call(args![&x, 1.0])?;
        maquette_ops::call("aten::add.Tensor", args![&x, &x, 1])?;
        maquette_ops::call("aten::add.Tensor", args![&x, &x, 2])?;
        Ok(())
    };
    assert_snapshot!(trace(program, vector(2)).unwrap(), @r"
    graph graph(%in0: f32[2]) -> ()
      where u0 in [0, oo), u1 in [0, oo), u2 in [0, oo)
    {
      %count: int(u0) = t::count(%in0)
      bind u0 = %count
      %count_1: int(u1) = t::count(%in0)
      bind u1 = %count_1
      %count_2: int(u2) = t::count(%in0, 1.0)
      bind u2 = %count_2
      %add: f32[2] = aten::add.Tensor(%in0, %in0)
      %add_1: f32[2] = aten::add.Tensor(%in0, %in0, alpha=2)
      return ()
    }
    ");
}

#[test]
fn a_nested_trace_is_a_trace_of_its_own() {
    let sample = vector(2);
    let t = trace(
        |x: Tensor| -> Result<Tensor> {
            let inner = TraceOptions::new().name("inner").trace(|y: Tensor| y.relu(), sample)?;
            assert_eq!(inner.graph().node_count(), 1);
            Ok(x.sin())
        },
        vector(3),
    )
    .unwrap();
    assert_eq!(t.graph().node_count(), 1);
}

#[test]
fn a_trace_can_be_sent_and_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&trace(|x: Tensor| x, vector(1)).unwrap());
}

#[test]
fn a_graph_that_keeps_offsets_may_name_places_in_storages() {
    let storage = Tensor::from_vec((0..8).map(|i| i as f32).collect(), [8]);
    let program = |x: Tensor| -> Result<Tensor> {
        maquette_ops::call("aten::as_strided", args![&x, [2], [3], 1])?[0].tensor().cloned()
    };
    let traced = TraceOptions::new()
        .names(["x"])
        .keep_offsets(true)
        .trace(program, storage.slice(0, 4..6))
        .unwrap();
    assert_eq!(
        traced.to_string(),
        "graph graph(%x: f32[2] offset 4) -> (f32[2] strides [3] offset 1)
{
  %as_strided: f32[2] strides [3] offset 1 = aten::as_strided(%x, [2], [3], 1)
  return %as_strided
}"
    );
    assert_eq!(traced.run(storage.slice(0, 4..6)).unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0]);
    let e = traced.run(storage.slice(0, 3..5)).unwrap_err().to_string();
    assert!(e.contains("offset") && e.contains('4') && e.contains('3'), "{e}");
}

#[test]
fn an_integer_read_from_a_tensor_is_a_symbol() {
    let rows = |n: Tensor| -> Result<Tensor> {
        let n = n.item_int();
        n.ge(0).check("a number of rows")?;
        Ok(Tensor::ones([n + 1, 2.into()], DType::F32))
    };
    let t = TraceOptions::new().names(["n"]).trace(rows, Tensor::scalar(3i64)).unwrap();
    assert_snapshot!(t);
    assert_eq!(t.run(Tensor::scalar(4i64)).unwrap().sizes_i64().unwrap(), [5, 2]);
    let e = t.run(Tensor::scalar(-2i64)).unwrap_err().to_string();
    assert!(e.contains("a number of rows"), "{e}");
    let e = trace(|x: Tensor| x.item_int(), Tensor::scalar(0.5f32)).unwrap_err().to_string();
    assert!(e.contains("the number in a tensor of f32 is known only from its data"), "{e}");
}

#[test]
fn a_view_that_had_to_be_a_copy_says_so() {
    let model =
        |x: Tensor| (x.reshape([6i64]), x.t().reshape([6i64]), x.t().contiguous(), x.contiguous());
    let t = trace(model, matrix(2, 3)).unwrap();
    let text = t.graph().to_string();
    let copies: Vec<&str> = text
        .lines()
        .filter(|l| l.ends_with(" copy"))
        .map(|l| l.trim().split(':').next().unwrap())
        .collect();
    assert_eq!(copies, ["%reshape_1", "%contiguous"], "{text}");
    assert_eq!(text.parse::<maquette_ir::graph::Graph>().unwrap().to_string(), text);
}

#[test]
fn a_run_returns_the_tree_without_its_results() {
    type Nested = (Result<Tensor>, Vec<Result<Tensor>>, Option<Result<Tensor>>);
    let f = |x: Tensor| -> Result<Nested> {
        Ok((Ok(x.clone() + 1.0), vec![Ok(x.clone() * 2.0), Ok(x.neg())], Some(Ok(x))))
    };
    let t = trace(f, vector(1)).unwrap();
    let (sum, list, same): (Tensor, Vec<Tensor>, Option<Tensor>) =
        t.run(Tensor::from([3.0f32])).unwrap();
    assert_eq!(
        (values(&sum), values(&list[0]), values(&list[1])),
        (vec![4.0], vec![6.0], vec![-3.0])
    );
    assert_eq!(values(&same.unwrap()), [3.0]);
    let e = trace(|_: Tensor| -> Result<Tensor> { bail!("no such program") }, vector(1));
    assert!(e.unwrap_err().to_string().contains("no such program"));
}

#[test]
fn an_empty_list_of_numbers_joins_tensors_of_any_rank() {
    let join = |(x, y): (Tensor, Tensor)| Tensor::cat([&x, &y], 0);
    let options = || TraceOptions::symbolic().names(["x", "y"]);
    // as in PyTorch, a tensor of sizes [0] stands in any concatenation
    let (none, some) = (vector(0), matrix(2, 3));
    assert_eq!(join((none.clone(), some.clone())).sizes_i64().unwrap(), [2, 3]);
    let t = options().trace(join, (none.clone(), some.clone())).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0], %y: f32[s1, s2]) -> (f32[s1, s2])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo)
      guard s0 == 0
    {
      %cat: f32[s1, s2] = aten::cat([%x, %y])
      return %cat
    }
    ");
    let y = t.run((none.clone(), matrix(4, 3))).unwrap();
    assert_eq!(y.sizes_i64().unwrap(), [4, 3]);
    assert!(t.run((vector(2), some.clone())).is_err());
    assert!(options().trace(join, (some.clone(), none.clone())).is_ok());
    let e = options().trace(join, (some.clone(), vector(2))).unwrap_err();
    assert_snapshot!(e.kind().to_string(), @"`tensors[1]` must have sizes [s0, s1] except in \
        dimension 0, found sizes [s2]");
    // of two lists of numbers, neither is known to be empty, and neither has to be
    let t = options().trace(join, (none, vector(2))).unwrap();
    assert!(t.graph().guards().is_empty());
    assert_eq!(t.run((vector(3), vector(0))).unwrap().sizes_i64().unwrap(), [3]);
    // a size that depends on data must be 0
    let chosen = |(x, y): (Tensor, Tensor)| -> Result<Tensor> {
        Ok(Tensor::cat([&y, &call(&NONZERO, args![&x])?.i((.., 0))], 0))
    };
    let t = options().trace(chosen, (vector(2), Tensor::zeros([2, 3], DType::I64))).unwrap();
    let run = |x: Tensor| t.run((x, Tensor::zeros([2, 3], DType::I64)));
    assert_eq!(run(Tensor::zeros([4], DType::F32)).unwrap().sizes_i64().unwrap(), [2, 3]);
    assert!(run(Tensor::ones([1], DType::F32)).is_err());
}
