//! Running a program both ways.
#![allow(dead_code)]

use maquette_driver::Program;
use maquette_interp::Interpreter;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::Graph;
use maquette_ir::{DType, MemoryFormat};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Module, Tensor, Tree, Value, tree};
use maquette_rewrite::{FunctionalGraph, Level, Options, functionalize, plan};
use maquette_trace::{Dim, TraceOptions, trace};

pub fn arange(n: i64) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32 - 3.0).collect(), [n])
}

/// A row-major copy.
pub fn fresh(t: &Tensor) -> Tensor {
    t.clone_as(MemoryFormat::Contiguous)
}

/// The tensors that an operator returns.
pub fn results(op: &str, args: Args) -> Vec<Tensor> {
    maquette_ops::call(op, args).unwrap().iter().flat_map(Value::tensors).cloned().collect()
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.to_dtype(DType::F32)
        .contiguous()
        .reshape([-1i64])
        .to_vec::<f32>()
        .unwrap()
        .into_iter()
        .map(f32::to_bits)
        .collect()
}

/// What can be seen of a program's end: outputs and inputs, their metadata, and which share memory.
/// Strides of tensors without elements, and along dimensions of size 1, mean nothing.
pub fn seen(tensors: &[Tensor]) -> Vec<(Vec<u32>, String, Vec<usize>)> {
    let strides = |t: &Tensor| -> Vec<Option<i64>> {
        let sizes: Vec<Option<i64>> = t.sizes().iter().map(|n| n.as_i64()).collect();
        let any = !sizes.contains(&Some(0));
        t.strides()
            .iter()
            .zip(sizes)
            .filter(|(_, n)| any && *n != Some(1))
            .map(|(s, _)| s.as_i64())
            .collect()
    };
    let alike = |t: &Tensor| {
        tensors.iter().enumerate().filter(|(_, u)| u.shares_storage(t)).map(|(i, _)| i).collect()
    };
    tensors
        .iter()
        .map(|t| (bits(t), format!("{:?} {:?}", t.sizes(), strides(t)), alike(t)))
        .collect()
}

fn leaves<T: Tree>(x: &T) -> Vec<Tensor> {
    tree::flatten(x)
        .unwrap()
        .1
        .into_iter()
        .filter_map(|l| if let Value::Tensor(t) = l.value { Some(t) } else { None })
        .collect()
}

/// As [`check`], of inputs that see one memory.
pub fn check_shared<O: Tree>(
    program: impl Fn(Vec<Tensor>) -> O,
    inputs: impl Fn() -> Vec<Tensor>,
) -> FunctionalGraph {
    let t = TraceOptions::new()
        .keep_offsets(true)
        .trace(|x: Vec<Tensor>| program(x), inputs())
        .unwrap();
    let group: Vec<usize> = (0..inputs().len()).collect();
    let forms = [Level::LiftOnly, Level::Exact].map(|level| {
        let f =
            functionalize(t.graph(), &Facts, &Options::new().level(level).sharing([group.clone()]))
                .unwrap();
        compare(&program, &inputs, t.graph(), &f);
        f
    });
    let [_, f] = forms;
    f
}

/// As [`check`], with symbols for some sizes (input, dimension, name): traced at the first inputs
/// and run at all of them.
pub fn check_dynamic<O: Tree>(
    dims: &[(usize, usize, &str)],
    program: impl Fn(Vec<Tensor>) -> O,
    inputs: &[&dyn Fn() -> Vec<Tensor>],
) -> FunctionalGraph {
    let options = dims
        .iter()
        .fold(TraceOptions::new(), |o, &(input, dim, name)| o.dynamic(input, dim, Dim::new(name)));
    let t = options.trace(|x: Vec<Tensor>| program(x), inputs[0]()).unwrap();
    let f = functionalize(t.graph(), &Facts, &Options::new()).unwrap();
    inputs.iter().for_each(|inputs| compare(&program, inputs, t.graph(), &f));
    f
}

/// Runs a program both ways on equal inputs, compares, and gives the functional graph.
pub fn check<O: Tree>(
    program: impl Fn(Vec<Tensor>) -> O,
    inputs: impl Fn() -> Vec<Tensor>,
) -> FunctionalGraph {
    let [_, f] = check_under(
        [Level::LiftOnly, Level::Exact].map(|level| Options::new().level(level)),
        program,
        inputs,
    );
    f
}

/// As [`check`], rewritten in these ways, each of which is compared.
pub fn check_under<O: Tree, const N: usize>(
    ways: [Options; N],
    program: impl Fn(Vec<Tensor>) -> O,
    inputs: impl Fn() -> Vec<Tensor>,
) -> [FunctionalGraph; N] {
    let t = trace(|x: Vec<Tensor>| program(x), inputs()).unwrap();
    ways.map(|options| {
        let f = functionalize(t.graph(), &Facts, &options).unwrap();
        compare(&program, &inputs, t.graph(), &f);
        f
    })
}

/// How many elements a run by a plan copies.
pub fn copied(f: &FunctionalGraph, plan: &BufferPlan, inputs: Vec<Tensor>) -> u64 {
    let values: Vec<Value> = inputs.into_iter().map(Value::Tensor).collect();
    Interpreter::new((f, plan)).run(&values).unwrap().traffic.unwrap().copied
}

/// How often a rule was of use.
pub fn uses_of(f: &FunctionalGraph, rule: &str) -> u64 {
    f.stats.rules.iter().find(|(name, _)| *name == rule).map_or(0, |(_, n)| *n)
}

fn compare<O: Tree>(
    program: &impl Fn(Vec<Tensor>) -> O,
    inputs: &impl Fn() -> Vec<Tensor>,
    traced: &Graph,
    f: &FunctionalGraph,
) {
    f.graph.verify().unwrap();
    let plan = plan(f, &Facts).unwrap_or_else(|e| panic!("{e}\n{}", f.graph));
    // random numbers begin at one place every time
    let repeatable = || Philox { seed: 7, offset: 0 };
    let all = |outputs: Vec<Tensor>, inputs: Vec<Tensor>| {
        seen(&outputs.into_iter().chain(inputs).collect::<Vec<_>>())
    };
    let run = |way: &dyn Fn(&[Value]) -> maquette_ops::Result<Vec<Value>>| {
        let given = inputs();
        let values: Vec<Value> = given.iter().cloned().map(Value::Tensor).collect();
        let outputs = apart(&mut repeatable(), || way(&values))
            .unwrap_or_else(|e| panic!("{e}\n{traced}\n{}", f.graph));
        all(outputs.iter().flat_map(Value::tensors).cloned().collect(), given)
    };
    let eager_in = inputs();
    let eager = all(apart(&mut repeatable(), || leaves(&program(eager_in.clone()))), eager_in);
    assert_eq!(
        run(&|values| Ok(Interpreter::new(f).run(values)?.results)),
        eager,
        "{traced}\n{}",
        f.graph
    );
    let planned = run(&|values| Ok(Interpreter::new((f, &plan)).run(values)?.results));
    assert_eq!(planned, eager, "{traced}\n{}\n{}", f.graph, plan.display(&f.graph));
}

/// Makes the same calls of a module and of the program exported from it, and compares outputs,
/// inputs and state, with what shares memory.
pub fn same_calls<M: Module>(
    module: &M,
    program: &Program<M::In, <M::Out as Tree>::Output>,
    calls: impl IntoIterator<Item = impl Fn() -> M::In>,
) {
    for (at, inputs) in calls.into_iter().enumerate() {
        let (eager_in, program_in) = (inputs(), inputs());
        let (eager_inputs, program_inputs) = (leaves(&eager_in), leaves(&program_in));
        let eager = leaves(&module.forward(eager_in));
        let exported = leaves(
            &program.call(program_in).unwrap_or_else(|e| panic!("call {at}: {e}\n{program}")),
        );
        let mut eager_state: Vec<(String, Tensor)> = Vec::new();
        module.visit(&mut |name, _, t| eager_state.push((name.to_owned(), t.clone())));
        let state = |name: &str| {
            program.state().find(|(n, ..)| *n == name).map(|(.., t)| t.clone()).unwrap()
        };
        let exported_state = eager_state.iter().map(|(name, _)| state(name));
        let all = |outputs: Vec<Tensor>, inputs: Vec<Tensor>, state: Vec<Tensor>| {
            seen(&[outputs, inputs, state].concat())
        };
        assert_eq!(
            all(exported, program_inputs, exported_state.collect()),
            all(eager, eager_inputs, eager_state.iter().map(|(_, t)| t.clone()).collect()),
            "call {at}\n{program}"
        );
    }
}

pub type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);

/// A module of one function over named tensors.
pub struct Over<F> {
    state: Vec<(&'static str, Slot, Tensor)>,
    forward: F,
}

pub fn over<F: Fn(&[Tensor], Vec<Tensor>) -> Vec<Tensor>>(
    state: Vec<(&'static str, Slot, Tensor)>,
    forward: F,
) -> Over<F> {
    Over { state, forward }
}

impl<F: Fn(&[Tensor], Vec<Tensor>) -> Vec<Tensor>> Module for Over<F> {
    type In = Vec<Tensor>;
    type Out = Vec<Tensor>;

    fn forward(&self, x: Vec<Tensor>) -> Vec<Tensor> {
        let state: Vec<Tensor> = self.state.iter().map(|(.., t)| t.clone()).collect();
        (self.forward)(&state, x)
    }

    fn visit(&self, v: Visitor<'_>) {
        self.state.iter().for_each(|(name, slot, t)| v(name, *slot, t));
    }
}
