//! Effects of compiled programs: their order on each resource, and fusion across them.

use maquette_aten as _;
use maquette_driver::{Compiled, compile};
use maquette_ops::{Effect, FakeCtx, Resource, Result, Tensor, args, custom_op};
use std::sync::Mutex;

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// One test at a time uses the log.
static TURN: Mutex<()> = Mutex::new(());

fn note(name: &str, x: &Tensor) -> Result<()> {
    let first = x.to_vec::<f32>()?.first().copied().unwrap_or_default();
    LOG.lock().unwrap().push(format!("{name} {first}"));
    Ok(())
}

/// Two resources and the process; `left` returns a tensor, `all` fails for negative numbers.
fn operators() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let on = |name| Effect::On(Resource::new(name));
        let left = custom_op("effects::left")
            .schema("(Tensor x) -> Tensor")
            .effect(on("left"))
            .kernel(|x: &Tensor| -> Result<Tensor> {
                note("left", x)?;
                Ok(Tensor::from(x.to_vec::<f32>()?))
            });
        let left = left.register().unwrap();
        let fake =
            |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.new_empty(x.sizes(), x.dtype())) };
        left.register_fake(fake).unwrap();
        let right = custom_op("effects::right").schema("(Tensor x) -> ()").effect(on("right"));
        right.kernel(|x: &Tensor| -> Result<()> { note("right", x) }).register().unwrap();
        let all = custom_op("effects::all").schema("(Tensor x) -> ()").effect(Effect::Ordered);
        let kernel = |x: &Tensor| -> Result<()> {
            note("all", x)?;
            maquette_ops::ensure!(x.to_vec::<f32>()?[0] >= 0.0, "a negative number");
            Ok(())
        };
        all.kernel(kernel).register().unwrap();
    });
}

fn call(name: &str, x: &Tensor) -> Result<()> {
    maquette_ops::call(&format!("effects::{name}"), args![x]).map(drop)
}

fn left(x: &Tensor) -> Result<Tensor> {
    Ok(maquette_ops::call("effects::left", args![x])?[0].tensor()?.clone())
}

fn x(n: f32) -> Tensor {
    Tensor::from(vec![n, 2.0, 3.0, 4.0])
}

/// Runs a program eagerly and compiled; the results and the logs are equal.
#[track_caller]
fn same<F: Fn(Tensor) -> Result<Vec<Tensor>>>(
    f: F,
    input: f32,
) -> Compiled<Tensor, Result<Vec<Tensor>>, F> {
    let numbers = |r: Result<Vec<Tensor>>| match r {
        Ok(all) => Ok(all.iter().map(|t| t.to_vec::<f32>().unwrap()).collect::<Vec<_>>()),
        Err(e) => Err(e.kind().to_string()),
    };
    let taken = || std::mem::take(&mut *LOG.lock().unwrap());
    let eager = (numbers(f(x(input))), taken());
    let f = compile(f);
    for _ in 0..2 {
        assert_eq!((numbers(f.call(x(input))), taken()), eager);
    }
    f
}

/// The fused kernels of the only program.
fn fused<F>(f: &Compiled<Tensor, Result<Vec<Tensor>>, F>) -> Vec<String>
where
    F: Fn(Tensor) -> Result<Vec<Tensor>>,
{
    f.explain().programs.iter().flat_map(|p| p.fused.clone()).collect()
}

#[test]
fn effects_on_a_resource_keep_their_order_when_compiled() {
    let _turn = TURN.lock();
    operators();
    let f = |x: Tensor| {
        let a = &x * 2.0;
        call("right", &x)?;
        let b = a.exp();
        let c = left(&b)?;
        call("all", &c)?;
        let d = &b + &c;
        call("right", &d)?;
        let e = left(&d.neg())?;
        call("all", &x)?;
        Ok(vec![e + b, c])
    };
    same(f, 1.0);
}

#[test]
fn an_effect_that_touches_nothing_ends_no_fusion() {
    let _turn = TURN.lock();
    operators();
    let f = |x: Tensor| {
        let a = &x * 2.0;
        call("right", &x)?;
        let b = a.exp();
        call("all", &x)?;
        let got = left(&x)?;
        Ok(vec![b.neg() + got])
    };
    let f = same(f, 1.0);
    assert_eq!(fused(&f).len(), 1, "{}", f.explain());
    assert!(fused(&f)[0].matches("aten::").count() == 4, "{}", f.explain());
    let failed = f.call(x(-1.0)).unwrap_err();
    assert!(failed.to_string().contains("a negative number"), "{failed}");
    assert_eq!(std::mem::take(&mut *LOG.lock().unwrap()), ["right -1", "all -1"]);
}

#[test]
fn an_effect_that_touches_a_kernel_ends_the_fusion() {
    let _turn = TURN.lock();
    operators();
    let f = |x: Tensor| {
        let a = &x * 2.0;
        let seen = a.sin();
        call("right", &seen)?;
        let b = a.exp();
        Ok(vec![b.neg(), seen])
    };
    let f = same(f, 1.0);
    let has_both = |kernel: &String| kernel.contains("mul") && kernel.contains("exp");
    assert!(!fused(&f).iter().any(has_both), "{}", f.explain());
}

/// A write to memory of the caller is not made before an effect that fails, nor missing after.
#[test]
fn an_effect_keeps_apart_what_a_program_that_writes_computes() {
    let _turn = TURN.lock();
    operators();
    let f = |x: Tensor| {
        let a = &x * 2.0;
        call("all", &x)?;
        x.copy_(&a.exp().neg()).ok()?;
        Ok(vec![a])
    };
    same(f, 1.0);
    let (eager, compiled) = (x(-1.0), x(-1.0));
    let f = compile(f);
    let f = |x: &Tensor| f.call(x.clone()).unwrap_err();
    f(&compiled);
    assert_eq!(compiled.to_vec::<f32>().unwrap(), eager.to_vec::<f32>().unwrap());
    LOG.lock().unwrap().clear();
}
