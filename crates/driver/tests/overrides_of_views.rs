//! Overrides of builtin operators that return views: what they return is the kernel's choice, in
//! eager and in compiled programs alike. In a process of their own, since an override is
//! everyone's.

use maquette_driver::{ExportOptions, compile};
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::Device;
use maquette_ir::program_form::ProgramForm;
use maquette_ir::sym::SymInt;
use maquette_ops::library::{Facts, Kind, Library};
use maquette_ops::module::{Module, Slot};
use maquette_ops::{Op, Result, Tensor, Value, args};
use maquette_pipeline::{PassOptions, compile_planned};
use maquette_rewrite::{ExecutionMode, Options, functionalize, plan};
use maquette_runtime::Executable;
use maquette_trace::TraceOptions;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);
type Function = fn(Tensor) -> Tensor;

/// Tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A module without state.
struct Stateless(Function);

impl Module for Stateless {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        (self.0)(x)
    }

    fn visit(&self, _: Visitor<'_>) {}
}

fn matrix() -> Tensor {
    Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
}

/// The elements of a result, and of the input after the call.
type Observed = (Vec<f32>, Vec<f32>);

/// A way to call a function.
type Call<'a> = &'a dyn Fn(Tensor) -> Result<Tensor>;

fn observed(call: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Observed> {
    let x = matrix();
    let y = call(x.clone())?;
    // a result that shares memory with the input shows in the input
    let before = y.to_vec()?;
    y.add_(100.0).ok()?;
    Ok((before, x.to_vec()?))
}

/// Every way to run a program returns and writes what the eager program does, whether the override
/// is registered before or after the program is made. An export is refused: it is a functional
/// graph, which cannot say what the view is.
fn follows(f: Function, library: impl Fn() -> Library) {
    let plain = observed(|x| Ok(f(x))).unwrap();
    let before = compile(f);
    let program = ExportOptions::new().export(&Stateless(f), matrix()).unwrap();
    let executable = program.compile(Device::Cpu).unwrap();
    let all = |expected: &Observed, after: Call<'_>| {
        let calls: [(&str, Call<'_>); 5] = [
            ("compiled", &|x| before.call(x)),
            ("exported", &|x| program.call(x)),
            ("compiled program", &|x| executable.call(x)),
            ("program compiled now", &|x| program.compile(Device::Cpu)?.call(x)),
            ("compiled now", after),
        ];
        for (form, call) in calls {
            assert_eq!(&observed(call).unwrap(), expected, "{form}");
        }
    };
    all(&plain, &|x| compile(f).call(x));
    let library = library();
    let eager = observed(|x| Ok(f(x))).unwrap();
    assert_ne!(eager, plain, "the override changes nothing");
    let now = compile(f);
    for _ in 0..2 {
        all(&eager, &|x| now.call(x));
    }
    let e = ExportOptions::new().export(&Stateless(f), matrix()).unwrap_err().to_string();
    assert!(e.contains("only its kernel knows") && e.contains("overrides_of_views.rs"), "{e}");
    drop(library);
    all(&plain, &|x| now.call(x));
}

/// Overrides `aten::{name}` by a kernel that returns a view of these sizes, strides and offset in
/// the storage.
fn elsewhere<const N: usize>(
    name: &'static str,
    (sizes, strides, offset): ([i64; N], [i64; N], i64),
) -> impl Fn() -> Library {
    let view = move |x: &Tensor| -> Result<Tensor> {
        Ok(x.as_strided(sizes, strides, Some(offset.into())).ok()?.clone())
    };
    move || {
        let library = Library::new("aten", Kind::Impl).unwrap();
        match name {
            "select.int" => library.impl_(name, "cpu", move |x: &Tensor, _: i64, _: i64| view(x)),
            "reshape" => library.impl_(name, "cpu", move |x: &Tensor, _: &[SymInt]| view(x)),
            _ => library.impl_(name, "cpu", move |x: &Tensor| view(x)),
        }
        .unwrap();
        library
    }
}

const LAST_ROW: ([i64; 1], [i64; 1], i64) = ([3], [1], 6);

#[test]
fn select_is_read() {
    let _alone = alone();
    follows(|x| x.select(0, 0) * 2.0, elsewhere("select.int", LAST_ROW));
}

#[test]
fn select_is_written() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.select(0, 0).mul_(10.0);
        &x + 1.0
    };
    follows(write, elsewhere("select.int", LAST_ROW));
}

#[test]
fn select_is_returned() {
    let _alone = alone();
    follows(|x| x.select(0, 0), elsewhere("select.int", LAST_ROW));
}

/// A view of a view begins as far after the place that its type declares.
#[test]
fn a_view_of_an_overridden_view() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.select(0, 0).slice(0, 1..).unsqueeze(0).mul_(10.0);
        x
    };
    follows(write, elsewhere("select.int", LAST_ROW));
}

#[test]
fn t_is_written() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.narrow(0, 0, 2).narrow(1, 0, 2).t().mul_(10.0);
        x
    };
    follows(write, elsewhere("t", ([2, 2], [1, 3], 4)));
}

#[test]
fn detach_is_written() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.narrow(0, 0, 2).detach().mul_(10.0);
        x
    };
    follows(write, elsewhere("detach", ([2, 3], [3, 1], 3)));
}

#[test]
fn reshape_is_written() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.narrow(0, 0, 1).reshape([3]).mul_(10.0);
        x
    };
    follows(write, elsewhere("reshape", LAST_ROW));
}

/// A composite calls an overridden view.
#[test]
fn a_part_of_a_composite() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.narrow(0, 0, 1).flatten(0, -1).mul_(10.0);
        x
    };
    assert!(Op::find("aten::flatten.using_ints").unwrap().is_composite());
    follows(write, elsewhere("reshape", LAST_ROW));
}

/// Other strides than those that the program saw in the trace are refused.
#[test]
fn other_strides_are_an_error() {
    let _alone = alone();
    let f = |x: Tensor| x.select(0, 0) * 2.0;
    let _library = elsewhere("select.int", ([3], [3], 0))();
    let e = compile(f).call(matrix()).unwrap_err().to_string();
    assert!(e.contains("aten::select.int") && e.contains("stride 0") && e.contains(".rs:"), "{e}");
}

/// A functional graph that was made before the override does not call the operator.
#[test]
fn functional_graphs_and_executables_are_refused() {
    let _alone = alone();
    let write = |x: Tensor| {
        x.select(0, 0).mul_(10.0);
        &x + 1.0
    };
    let traced = TraceOptions::new().trace(write, matrix()).unwrap();
    let functional = functionalize(traced.graph(), &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let modes = [ExecutionMode::from(&functional), ExecutionMode::from((&functional, &plan))];
    let planned = compile_planned(functional.clone(), plan.clone(), &PassOptions::new()).unwrap();
    let executables = [ProgramForm::Functional(functional.clone()), planned.program]
        .map(|program| Executable::new(program).unwrap());
    let run_all = || -> Vec<Result<Vec<Value>>> {
        let interpreted = modes
            .iter()
            .map(|mode| Ok(Interpreter::new(mode).run(&[Value::from(matrix())])?.results));
        let ran =
            executables.iter().map(|e| e.run(&[Value::from(matrix())], &SourceInfo::of_caller()));
        interpreted.chain(ran).collect()
    };
    assert!(run_all().iter().all(Result::is_ok));
    let library = elsewhere("select.int", LAST_ROW)();
    for run in run_all() {
        let e = run.unwrap_err().to_string();
        assert!(e.contains("aten::select.int") && e.contains("overrides_of_views.rs"), "{e}");
    }
    drop(library);
    assert!(run_all().iter().all(Result::is_ok));
}

#[test]
fn lift_fresh_copy_called_by_name() {
    let _alone = alone();
    let f = |x: Tensor| -> Result<Tensor> {
        let op = Op::find("aten::lift_fresh_copy")?;
        Ok(op.call(args![&x])?[0].tensor()? + 1.0)
    };
    let before = compile(f);
    before.call(matrix()).unwrap();
    let _library = zeros_for_lifted();
    for function in [before, compile(f)] {
        assert_eq!(function.call(matrix()).unwrap().to_vec::<f32>().unwrap(), [1.0; 9]);
    }
}

fn zeros_for_lifted() -> Library {
    let library = Library::new("aten", Kind::Impl).unwrap();
    let kernel = |x: &Tensor| -> Result<Tensor> { Ok(x.zeros_like()) };
    library.impl_("lift_fresh_copy", "cpu", kernel).unwrap();
    library
}

/// Data that a program creates is copied by no operator in eager execution, and by this one in a
/// graph.
#[test]
fn a_copy_of_created_data_is_refused() {
    let _alone = alone();
    let f = |x: Tensor| x + Tensor::from([1.0f32, 2.0, 3.0]);
    let before = compile(f);
    let program = ExportOptions::new().export(&Stateless(f), matrix()).unwrap();
    let executable = program.compile(Device::Cpu).unwrap();
    let plain: Vec<f32> = before.call(matrix()).unwrap().to_vec().unwrap();
    let library = zeros_for_lifted();
    assert_eq!(f(matrix()).to_vec::<f32>().unwrap(), plain);
    let now = compile(f);
    for result in [
        before.call(matrix()),
        now.call(matrix()),
        program.call(matrix()),
        executable.call(matrix()),
    ] {
        let e = result.unwrap_err().to_string();
        assert!(e.contains("aten::lift_fresh_copy, by which") && e.contains(".rs:"), "{e}");
    }
    drop(library);
    assert_eq!(before.call(matrix()).unwrap().to_vec::<f32>().unwrap(), plain);
    assert_eq!(executable.call(matrix()).unwrap().to_vec::<f32>().unwrap(), plain);
}

#[test]
fn executors_do_not_use_overridden_operators_themselves() {
    let _alone = alone();
    let f = |x: Tensor| {
        let y = x.narrow(0, 1, 2);
        y.mul_(10.0);
        (&y + 1.0).t()
    };
    let before = compile(f);
    let program = ExportOptions::new().export(&Stateless(f), matrix()).unwrap();
    before.call(matrix()).unwrap();
    let expected = observed(|x| Ok(f(x))).unwrap();
    let library = Library::new("aten", Kind::Impl).unwrap();
    let whole = |x: &Tensor, _: &[SymInt], _: &[SymInt], _: Option<SymInt>| -> Result<Tensor> {
        Ok(x.clone())
    };
    library.impl_("as_strided", "cpu", whole).unwrap();
    library
        .impl_("copy_", "cpu", |x: &mut Tensor, _: &Tensor, _: bool| -> Result<Tensor> {
            Ok(x.fill_(7.0).clone())
        })
        .unwrap();
    assert_eq!(observed(|x| Ok(f(x))).unwrap(), expected);
    assert_eq!(observed(|x| before.call(x)).unwrap(), expected);
    assert_eq!(observed(|x| program.call(x)).unwrap(), expected);
}
