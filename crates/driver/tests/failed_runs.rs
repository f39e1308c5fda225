//! After a call that fails: the state of the random generator, eagerly and compiled. An eager
//! program that does not ask for the error goes on with a poisoned tensor, and a run stops.

mod common;

use common::arange;
use maquette_driver::{CompileOptions, ExportOptions};
use maquette_ir::{DType, Device};
use maquette_ops::module::{Module, Slot};
use maquette_ops::random::{Philox, manual_seed, state};
use maquette_ops::{Result, Tensor};
use maquette_trace::TraceOptions;
use std::sync::{Mutex, PoisonError};

type Inputs = (Tensor, Tensor);
type Program = fn(Inputs) -> Result<Tensor>;

/// Programs that draw, stop where an index is out of range, and draw again.
const PROGRAMS: [(&str, Program); 8] = [
    ("between two draws", |(x, i)| {
        let a = Tensor::rand([8], DType::F32);
        let y = x.index_select(0, &i).ok()?.clone();
        let b = Tensor::rand([8], DType::F32);
        Ok(a.sum() + y.sum() + b.sum())
    }),
    ("used after both", |(x, i)| {
        let a = Tensor::rand([4], DType::F32);
        let y = x.gather(0, &i).ok()? * 2.0;
        let b = Tensor::randn([4], DType::F32);
        let sum = (&a + &b).exp();
        Ok(sum.sum() + y.sum())
    }),
    ("computed twice", |(x, i)| {
        let a = Tensor::rand([4], DType::F32);
        let first = x.index_select(0, &i).ok()?.clone();
        let b = Tensor::rand([4], DType::F32);
        let second = x.index_select(0, &i).ok()?.clone();
        let c = Tensor::rand([4], DType::F32);
        Ok(first.sum() + second.sum() + a.sum() + b.sum() + c.sum())
    }),
    ("in place", |(x, i)| {
        let y = x.clone();
        y.uniform_(0.0, 1.0);
        y.index_add_(0, &i, &Tensor::ones([2], DType::F32)).ok()?;
        y.normal_(0.0, 1.0);
        Ok(y)
    }),
    ("in an input", |(x, i)| {
        x.uniform_(0.0, 1.0);
        let y = x.index_select(0, &i).ok()?.clone();
        x.normal_(0.0, 1.0);
        Ok(y + Tensor::rand([2], DType::F32))
    }),
    ("after the draws", |(x, i)| {
        let a = Tensor::rand([4], DType::F32).dropout(0.5, true);
        Ok(a.index_select(0, &i).ok()? + x.sum())
    }),
    ("in a pointwise kernel", |(x, i)| {
        let a = Tensor::rand([4], DType::F32);
        let y = (&x * 2.0).relu().index_select(0, &i).ok()?.exp() + 1.0;
        let b = Tensor::rand([2], DType::F32);
        Ok((y * &b) + a.sum())
    }),
    ("of an embedding", |(x, i)| {
        let a = Tensor::rand([4, 2], DType::F32);
        let y = a.embedding(&i).ok()? + x.sum();
        let b = Tensor::rand([2, 2], DType::F32);
        Ok(y + b)
    }),
];

struct Drawing(Program);

impl Module for Drawing {
    type In = Inputs;
    type Out = Result<Tensor>;

    fn forward(&self, inputs: Inputs) -> Result<Tensor> {
        (self.0)(inputs)
    }

    fn visit(&self, _: &mut dyn FnMut(&str, Slot, &Tensor)) {}
}

/// The generator is of the process, and tests run on several threads.
static GENERATOR: Mutex<()> = Mutex::new(());

/// The generator after a call from a given state, and whether the call failed.
fn after<T>(call: impl FnOnce() -> Result<T>) -> (Philox, bool) {
    manual_seed(7);
    let failed = call().is_err();
    (state(Device::Cpu), failed)
}

#[test]
fn the_generator_is_where_the_eager_call_leaves_it() {
    let _only_test = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, program) in PROGRAMS {
        let inputs = |index: i64| (arange(4), Tensor::from([1i64, index]));
        let compiled = CompileOptions::new().compile(program);
        let symbolic = CompileOptions::symbolic().compile(program);
        let traced = TraceOptions::new().trace(program, inputs(0)).unwrap();
        let exported = ExportOptions::new().export(&Drawing(program), inputs(0)).unwrap();
        let planned = exported.compile(Device::Cpu).unwrap();
        for index in [0, 9, 3, -9, 1] {
            let eager = after(|| program(inputs(index)));
            assert_eq!(eager.1, index.abs() == 9, "{name}");
            let runs = [
                ("compiled", after(|| compiled.call(inputs(index)))),
                ("symbolic", after(|| symbolic.call(inputs(index)))),
                ("traced", after(|| traced.run(inputs(index)))),
                ("exported", after(|| exported.call(inputs(index)))),
                ("planned", after(|| planned.call(inputs(index)))),
            ];
            for (how, run) in runs {
                assert_eq!(run, eager, "{name}, {how}, index {index}");
            }
        }
    }
}

/// The difference that docs/functionalization.md states.
#[test]
fn a_program_that_does_not_ask_for_the_error_draws_on_eagerly() {
    let program: Program = |(x, i)| {
        let a = Tensor::rand([4], DType::F32);
        let y = x.index_select(0, &i);
        let b = Tensor::rand([4], DType::F32);
        (a.sum() + y.sum() + b.sum()).ok().cloned()
    };
    let inputs = || (arange(4), Tensor::from([1i64, 9]));
    let _only_test = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = CompileOptions::new().compile(program);
    let eager = after(|| program(inputs()));
    let run = after(|| compiled.call(inputs()));
    assert_eq!([eager.0.offset, run.0.offset], [2, 1]);
    assert!(eager.1 && run.1);
}
