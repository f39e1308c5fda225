//! Programs that mutate, as graphs of values: run beside the program itself.

use maquette_driver::run_functional;
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{Result, Tensor, Tree, Value, tree};
use maquette_rewrite::{Functional, Level, Options, functionalize};
use maquette_trace::trace;

fn arange(n: i64) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32 - 3.0).collect(), [n])
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.contiguous().reshape([-1i64]).to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// What can be seen of a program's end: outputs and inputs, their metadata, and which share memory.
fn seen(tensors: &[Tensor]) -> Vec<(Vec<u32>, String, Vec<usize>)> {
    let alike = |t: &Tensor| tensors.iter().enumerate().filter(|(_, u)| u.shares_storage(t)).map(|(i, _)| i).collect();
    tensors.iter().map(|t| (bits(t), format!("{:?} {:?}", t.sizes(), t.strides()), alike(t))).collect()
}

fn leaves<T: Tree>(x: &T) -> Vec<Tensor> {
    tree::flatten(x).unwrap().1.into_iter().filter_map(|l| if let Value::Tensor(t) = l.value { Some(t) } else { None }).collect()
}

/// Runs a program both ways on equal inputs, compares, and gives the functional graph.
fn check<O: Tree>(program: impl Fn(Vec<Tensor>) -> O, inputs: impl Fn() -> Vec<Tensor>) -> Functional {
    let t = trace(|x: Vec<Tensor>| program(x), inputs()).unwrap();
    let forms = [Level::LiftOnly, Level::Exact].map(|level| {
        let f = functionalize(t.graph(), &Facts, &Options::new().level(level)).unwrap();
        compare(&program, &inputs, t.graph(), &f);
        f
    });
    let [_, f] = forms;
    f
}

fn compare<O: Tree>(program: &impl Fn(Vec<Tensor>) -> O, inputs: &impl Fn() -> Vec<Tensor>, traced: &Graph, f: &Functional) {
    f.graph.verify().unwrap();
    let (eager_in, lifted_in) = (inputs(), inputs());
    let eager = leaves(&program(eager_in.clone()));
    let values: Vec<Value> = lifted_in.iter().cloned().map(Value::Tensor).collect();
    let lifted = run_functional(&f, &values).unwrap_or_else(|e| panic!("{e}\n{traced}\n{}", f.graph));
    let lifted: Vec<Tensor> = lifted.iter().flat_map(Value::tensors).cloned().collect();
    let all = |outputs: Vec<Tensor>, inputs: Vec<Tensor>| seen(&outputs.into_iter().chain(inputs).collect::<Vec<_>>());
    assert_eq!(all(lifted, lifted_in), all(eager, eager_in), "{traced}\n{}", f.graph);
}

#[test]
fn an_input_that_is_written() {
    let f = check(|x| x[0].add_(&x[1]), || vec![arange(4), arange(4)]);
    insta::assert_snapshot!(f.graph, @r#"
    graph graph(%in0: f32[4], %in1: f32[4]) -> (f32[4])
    {
      %call: f32[4] = ir::call("aten::add_.Tensor", %in0, %in1)
      return %call
    }
    "#);
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
            t.slice(0, 0..4).add_(&t.slice(0, 4..8));
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
fn refused() -> Result<()> {
    let x = arange(4);
    let t = trace(|x: Tensor| x.to_dtype(DType::F32).slice(0, 0..2).add_(1.0), x.clone())?;
    let f = functionalize(t.graph(), &Facts, &Options::new()).unwrap();
    let one = || vec![Value::Tensor(x.clone())];
    assert!(run_functional(&f, &one()).is_ok());
    Ok(())
}
