//! Programs that mutate, as graphs of values: run beside the program itself.

mod common;

use common::{arange, check};
use maquette_interp::Interpreter;
use maquette_ops::library::Facts;
use maquette_ops::{Result, Tensor, Value};
use maquette_rewrite::{Level, Options, functionalize, plan};
use maquette_trace::{Dim, TraceOptions};

#[test]
fn an_input_that_is_written() {
    let f = check(|x| x[0].add_(&x[1]), || vec![arange(4), arange(4)]);
    insta::assert_snapshot!(f.graph, @"
    graph graph(%in0: f32[4], %in1: f32[4]) -> (f32[4])
    {
      %add: f32[4] = aten::add.Tensor(%in0, %in1)
      return %add
    }
    ");
}

#[test]
fn views_see_writes() {
    check(
        |x| {
            let t = x[0].neg();
            let v = t.slice(0, 2..5);
            t.mul_(&x[0]);
            v
        },
        || vec![arange(8)],
    );
    check(
        |x| {
            let t = x[0].neg();
            t.slice(0, 0..4).add_(t.slice(0, 4..8));
            t.reshape([2i64, 4]).t().select(0, 1).fill_(7.0);
            (t.slice(0, 1..3), t.clone(), x[0].slice(0, 2..6))
        },
        || vec![arange(8)],
    );
    check(
        |x| {
            let m = x[0].reshape([2i64, 3]).t().contiguous();
            m.t().select(0, 0).zero_();
            let r = m.t().reshape([6i64]);
            m.add_(1.0);
            (r, m)
        },
        || vec![arange(6)],
    );
}

#[test]
fn overlapping_copies_read_before_they_write() {
    check(
        |x| {
            x[0].slice(0, 1..6).copy_(&x[0].slice(0, 0..5));
            x[0].clone()
        },
        || vec![arange(6)],
    );
}

#[test]
fn expanded_inputs() {
    check(
        |x| {
            let e = x[0].clone();
            e.select(0, 0).add_(1.0);
            &e * 2.0
        },
        || vec![arange(3).expand([4i64, 3])],
    );
}

#[test]
fn outputs_that_share_memory() {
    check(
        |x| {
            let t = &x[0] + 1.0;
            let (a, b) = (t.slice(0, 0..5), t.slice(0, 3..8));
            a.mul_(2.0);
            (a, b, t.reshape([2i64, 4]).t())
        },
        || vec![arange(8)],
    );
    check(|x| (x[0].t(), x[0].clone(), x[0].select(1, 2)), || vec![arange(6).reshape([2i64, 3])]);
}

#[test]
fn inputs_that_share_memory() {
    use common::check_shared;
    let views = || {
        let m = arange(10);
        vec![m.slice(0, 1..7), m.slice(0, 4..9).clone(), m.slice(0, 2..8).reshape([2i64, 3]).t()]
    };
    check_shared(
        |x| {
            x[0].add_(1.0);
            let y = x[1].neg();
            x[2].mul_(2.0);
            (y, x[1].slice(0, 1..3), x[0].clone())
        },
        views,
    );
}

#[test]
fn a_transposed_square_of_one_symbol_is_written_where_it_lies() {
    let rows = || arange(9).reshape([3i64, 3]);
    let options = TraceOptions::new().dynamic(0, 0, Dim::new("n")).dynamic(0, 1, Dim::new("n"));
    let t =
        options.trace(|x: Tensor| x.select(0, 0).fill_(7.0).ok().map(drop), rows().t()).unwrap();
    let f = functionalize(t.graph(), &Facts, &Options::new()).unwrap();
    let (x, y) = (rows(), rows());
    Interpreter::new(&f).run(&[Value::from(&x.t())]).unwrap();
    y.t().select(0, 0).fill_(7.0);
    assert_eq!(x.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
}

#[test]
fn overlap_at_some_sizes_only_is_checked_at_run_time() {
    let program =
        |(x, n): (Tensor, Tensor)| x.expand([n.size(0), 2.into()]).add_(1.0).ok().map(drop);
    let inputs = |n: i64| (arange(2), arange(n));
    let t = TraceOptions::new()
        .names(["x", "n"])
        .dynamic(1, 0, Dim::new("n"))
        .trace(program, inputs(5))
        .unwrap();
    for level in [Level::LiftOnly, Level::Exact] {
        let f = functionalize(t.graph(), &Facts, &Options::new().level(level)).unwrap();
        if level == Level::LiftOnly {
            insta::assert_snapshot!(f.graph, @r#"
            graph graph(%x: f32[2], %n: f32[n]) -> (f32[2])
              where n in [0, oo)
            {
              ir::distinct([n, 2], [0, 1], "self") effect
              %view: f32[n, 2] = ir::view(%x, [n, 2], [0, 1], 0)
              %call: f32[n, 2] = ir::call("aten::add_.Tensor", %view, 1.0)
              %scatter: f32[2] = ir::scatter(%x, %call, [n, 2], [0, 1], 0)
              return %scatter
            }
            "#);
        }
        let plan = plan(&f, &Facts).unwrap();
        for n in [0, 1, 2] {
            let eager = inputs(n);
            let expected = program(eager.clone()).map_err(|e| e.kind().to_string());
            let ran = |(x, n): (Tensor, Tensor), way: &dyn Fn(&[Value]) -> Result<()>| {
                assert_eq!(
                    way(&[Value::from(&x), Value::from(&n)]).map_err(|e| e.kind().to_string()),
                    expected
                );
                // a write that was refused leaves nothing to read
                if expected.is_ok() {
                    assert_eq!(x.to_vec::<f32>().unwrap(), eager.0.to_vec::<f32>().unwrap());
                }
            };
            ran(inputs(n), &|given| Interpreter::new(&f).run(given).map(drop));
            ran(inputs(n), &|given| Interpreter::new((&f, &plan)).run(given).map(drop));
        }
    }
}

#[test]
fn captured_tensors_of_one_memory_are_not_taken_for_two() {
    let whole = arange(6);
    let (part, given) = (whole.slice(0, 0..3), whole.slice(0, 3..6));
    // the program writes to one of them and reads the other
    let t = TraceOptions::new()
        .trace(|_: Tensor| (whole.neg_().ok().map(drop), part.clone() + 1.0), arange(3))
        .unwrap();
    let f = functionalize(t.graph(), &Facts, &Options::new()).unwrap();
    let e = Interpreter::new(&f).run(&[Value::from(&arange(3))]).unwrap_err();
    assert!(e.to_string().contains("share memory"), "{e}");
    // or is given a part of what it captured
    let t = TraceOptions::new()
        .trace(|x: Tensor| (whole.neg_().ok().map(drop), x + 1.0), arange(3))
        .unwrap();
    let f = functionalize(t.graph(), &Facts, &Options::new()).unwrap();
    Interpreter::new(&f).run(&[Value::from(&arange(3))]).unwrap();
    let e = Interpreter::new(&f).run(&[Value::from(&given)]).unwrap_err();
    assert!(e.to_string().contains("share memory"), "{e}");
}

#[test]
fn inputs_with_permuted_strides_are_viewed_in_memory_order() {
    let f = check(|x| x[0].t().relu().t().reshape([12i64]), || vec![arange(12).reshape([4i64, 3])]);
    insta::assert_snapshot!(f.graph, @"
    graph graph(%in0: f32[4, 3]) -> (f32[12])
    {
      %view: f32[3, 4] = ir::view(%in0, [3, 4], [1, 3], 0)
      %relu: f32[3, 4] strides [1, 3] = aten::relu(%view)
      %view_1: f32[4, 3] = ir::view(%relu, [4, 3], [1, 4], 0)
      %view_2: f32[12] = ir::view(%view_1, [12], [1], 0)
      return %view_2
    }
    ");
    // heads, as attention has them
    check(
        |x| {
            let heads = x[0].transpose(1, 2) * 0.5;
            heads.transpose(1, 2).reshape([2i64, 5, 12])
        },
        || vec![arange(120).reshape([2i64, 5, 3, 4])],
    );
    check(
        |x| {
            let last =
                x[0].clone_as(maquette_ir::MemoryFormat::ChannelsLast).permute([0i64, 2, 3, 1]);
            let rows = last.view([40i64, 3]);
            rows.select(1, 0).mul_(2.0);
            (rows, last)
        },
        || vec![arange(120).reshape([2i64, 3, 4, 5])],
    );
}
