//! What the macros leave behind, used as their users would.
#![deny(missing_docs)]

use maquette::ErrorKind;
use maquette::library::{Const, ConstArg, Signature};
use maquette::ops::{CallError, tree};
use maquette::prelude::*;

/// The sine of each element.
#[custom_op("mac::sin")]
pub fn sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(sin)]
fn sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::fake_of(x.meta().clone()))
}

#[custom_op("mac::sin_out", device_types("cpu"))]
fn sin_out(input: &Tensor, output: &mut Tensor) -> Result<()> {
    let x = input.read::<f32>()?;
    output.write::<f32>()?.zip_mut_with(&x, |o, x| *o = x.sin());
    Ok(())
}

/// Its parameters have the names that generated code might use.
#[custom_op("mac::split")]
fn split(
    boxed: &mut Tensor,
    result: Option<&mut Tensor>,
    op: &mut [Tensor],
    fail: bool,
) -> Result<(Tensor, Tensor)> {
    ensure!(!fail, "asked to fail with {} tensors", 1 + usize::from(result.is_some()) + op.len());
    let x = boxed.to_vec::<f32>()?;
    Ok((Tensor::from(x.clone()), Tensor::from(x)))
}

#[custom_op("mac::everything")]
fn everything(
    tensors: &[Tensor],
    holes: &[Option<Tensor>],
    absent: Option<&Tensor>,
    size: SymInt,
    floats: &[f64],
    number: Scalar,
    dtype: Option<DType>,
    text: &str,
    sizes: Option<&[i64]>,
    r#type: bool,
    mut count: i64,
) -> Result<(i64, f64, bool)> {
    count += tensors.len() as i64
        + holes.iter().flatten().count() as i64
        + i64::from(absent.is_some())
        + size.guard_int()?;
    count += sizes.map_or(0, |s| s.iter().sum())
        + text.len() as i64
        + i64::from(dtype == Some(DType::F32));
    Ok((count, floats.iter().sum(), r#type && number == Scalar::Int(1)))
}

#[custom_op("mac::chunks")]
fn chunks(x: &Tensor, n: i64) -> Result<Vec<Tensor>> {
    (0..n).map(|_| x.to_vec::<f32>().map(Tensor::from)).collect()
}

#[custom_op("mac::with_schema", schema("(Tensor x, int y=3) -> Tensor"))]
fn with_schema(x: &Tensor, y: i64) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v * y as f32)))
}

#[custom_op("mac::ping", effect("ordered"))]
fn ping(times: i64) -> Result<i64> {
    Ok(times)
}

#[custom_op("mac::send", effect(on("wire")))]
fn send(times: i64) -> Result<i64> {
    Ok(times)
}

#[custom_op("mac::gpu_only", device_types("cuda"), crate = maquette)]
fn gpu_only(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_kernel(crate::gpu_only, "cpu", crate = ::maquette)]
fn gpu_only_on_cpu(x: &Tensor) -> Result<Tensor> {
    x.to_vec::<f32>().map(Tensor::from)
}

#[custom_op("mac::doubled")]
fn doubled(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_kernel(doubled, "cpu")]
#[register_kernel(doubled, "cpu")]
fn doubled_cpu(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("mac::inc_", tags(Inplace, FlexibleLayout))]
fn inc_(x: &mut Tensor) -> Result<Tensor> {
    x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
    Ok(x.clone())
}

#[custom_op("mac::who_knows", mutates_unknown)]
fn who_knows(x: &Tensor, holes: &mut [Option<Tensor>]) -> Result<()> {
    holes.iter_mut().flatten().try_for_each(|t| t.write::<f32>().map(|mut t| t.fill(1.0)))?;
    x.clone().write::<f32>().map(|mut x| x.fill(2.0))
}

struct Side(bool);

impl ConstArg for Side {
    const NAME: &'static str = "Side";
    fn to_text(&self) -> String {
        if self.0 { "left".into() } else { "right".into() }
    }
    fn from_text(text: &str) -> Result<Side> {
        Ok(Side(text == "left"))
    }
}

#[custom_op("mac::sided")]
fn sided(n: i64, side: Const<Side>) -> Result<i64> {
    Ok(if side.0.0 { -n } else { n })
}

#[test]
fn tags_unknown_mutation_and_constants() {
    let x = Tensor::from([1f32]);
    assert!(inc_(&mut x.clone()).is_same(&x) && values(&x) == [2.0]);
    assert_eq!(inc_::op().tags().to_string(), "pt2_compliant_tag flexible_layout inplace");
    let y = Tensor::from([0f32]);
    who_knows(&x, &mut [None, Some(y.clone())]).unwrap();
    assert_eq!((values(&x), values(&y)), (vec![2.0], vec![1.0]));
    assert_eq!(
        who_knows::op().schema().unwrap().to_string(),
        "mac::who_knows(Tensor(a0!) x, Tensor?(a1!)[] holes) -> ()"
    );
    assert_eq!(
        (sided(3, Const(Side(true))).unwrap(), sided(3, Const(Side(false))).unwrap()),
        (-3, 3)
    );
}

fn values(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

#[test]
fn the_signature_is_the_schema() {
    for (op, schema) in [
        (sin::op(), "mac::sin(Tensor x) -> Tensor"),
        (sin_out::op(), "mac::sin_out(Tensor input, Tensor(a1!) output) -> ()"),
        (
            split::op(),
            "mac::split(Tensor(a0!) boxed, Tensor(a1!)? result, Tensor(a2!)[] op, bool fail) -> \
                (Tensor, Tensor)",
        ),
        (chunks::op(), "mac::chunks(Tensor x, SymInt n) -> Tensor[]"),
        (with_schema::op(), "mac::with_schema(Tensor x, int y=3) -> Tensor"),
        (ping::op(), "mac::ping(SymInt times) -> SymInt"),
        (
            everything::op(),
            "mac::everything(Tensor[] tensors, Tensor?[] holes, Tensor? absent, SymInt size, \
                float[] floats, Scalar number, ScalarType? dtype, \
             str text, SymInt[]? sizes, bool type, SymInt count) -> (SymInt, float, bool)",
        ),
    ] {
        assert_eq!(op.schema().unwrap().to_string(), schema);
    }
    assert_eq!(send::op().effect(), Some(Effect::On(Resource::new("wire"))));
    assert_eq!((sin::NAME, ping::op().effect()), ("mac::sin", Some(Effect::Ordered)));
    assert!(
        sin::op().defined_at().unwrap().to_string().contains("tests/macros.rs:10"),
        "{}",
        sin::op().defined_at().unwrap()
    );
    fn signature<M, F: maquette::library::IntoKernel<M>>(_: F) -> Signature {
        F::signature()
    }
    assert_eq!(signature(sin::kernel).args.len(), 1);
}

#[test]
fn a_wrapper_calls_its_operator() {
    let x = Tensor::from([0.5f32, 1.0]);
    let expected = [0.5f32.sin(), 1f32.sin()];
    assert_eq!(values(&sin(&x)), expected);
    assert_eq!(values(&sin::kernel(&x).unwrap()), expected);
    let mut y = Tensor::from([0f32, 0.0]);
    sin_out(&x, &mut y).unwrap();
    assert_eq!(values(&y), expected);
    let (a, b) = split(&mut y, None, &mut [], false);
    assert_eq!((values(&a), values(&b)), (expected.to_vec(), expected.to_vec()));
    assert_eq!(chunks(&x, 3).unwrap().len(), 3);
    assert_eq!(ping(2).unwrap(), 2);
    let holes = [None, Some(x.clone())];
    let all = everything(
        &[x.clone(), x.clone()],
        &holes,
        None,
        10,
        &[0.5, 1.0],
        Scalar::Int(1),
        Some(DType::F32),
        "abc",
        Some(&[5]),
        true,
        100,
    );
    assert_eq!(all.unwrap(), (2 + 1 + 10 + 1 + 3 + 5 + 100, 1.5, true));
    let y = ops::call("mac::with_schema", args![&x]).unwrap();
    assert_eq!(values(y[0].tensor().unwrap()), [1.5, 3.0]);
}

#[test]
fn a_failure_names_the_caller_and_poisons_mutated_arguments() {
    let mut tensors = [0; 3].map(|_| Tensor::from([1f32]));
    let [view, ..] = tensors.clone();
    let [a, b, c] = &mut tensors;
    let (x, y) = split(a, Some(b), std::slice::from_mut(c), true);
    let line = line!() - 1;
    for t in [&x, &y, &view, a, b, c] {
        let e = t.ok().unwrap_err().to_string();
        assert!(
            e.contains("mac::split: asked to fail with 3 tensors")
                && e.contains(&format!("tests/macros.rs:{line}")),
            "{e}"
        );
    }
    // a call that never reaches the kernel changes nothing
    let mut target = Tensor::from([1f32]);
    let dead = split(&mut target, Some(&mut x.clone()), &mut [], false).0;
    assert!(dead.ok().unwrap_err().is_same(&x.ok().unwrap_err()));
    assert_eq!(values(&target), [1.0]);
    // a wrapper that returns a `Result` says so itself
    assert!(sin_out(&x, &mut Tensor::from([1f32])).is_err());
}

#[test]
fn kernels_are_added_to_their_operator() {
    let x = Tensor::from([1f32]);
    assert_eq!(values(&gpu_only(&x)), [1.0]);
    let fake = sin(&Tensor::fake([2, 3], DType::F32));
    assert_eq!(fake.sizes_i64().unwrap(), [2, 3]);
    let e = chunks(&Tensor::fake([2], DType::F32), 1).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fake(_)), "{e}");
    let e = doubled(&x).ok().unwrap_err().to_string();
    assert!(e.contains("mac::doubled") && e.contains("cpu kernel"), "{e}");
}

#[custom_op("mac::crop")]
fn crop(x: &Tensor, rows: SymInt, columns: i64, offset: &[i64], step: &[SymInt]) -> Result<Tensor> {
    let step: i64 = step.iter().map(|s| s.guard_int()).sum::<Result<i64, _>>()?;
    Ok(Tensor::from([rows.guard_int()?, columns, offset.iter().sum::<i64>(), step])
        .to_dtype(x.dtype()))
}

#[register_fake(crop)]
fn crop_fake(
    _cx: &FakeCtx,
    x: &Tensor,
    _rows: SymInt,
    _columns: SymInt,
    _offset: &[SymInt],
    _step: &[SymInt],
) -> Result<Tensor> {
    Ok(x.new_empty([4], x.dtype()))
}

#[test]
fn a_wrapper_takes_anything_that_is_an_integer() {
    let x = Tensor::from([[1f32, 2.0, 3.0]]);
    let n = x.size(1);
    assert_eq!(values(&crop(&x, 3, n, [1, 2], x.sizes())), [3.0, 3.0, 3.0, 4.0]);
    assert_eq!(values(&crop(&x, n, 2usize, vec![5i64], [n, n])), [3.0, 2.0, 5.0, 6.0]);
    // the kernel takes `i64`, and a tracer sees the symbol
    let traced = TraceOptions::symbolic()
        .trace(|x: Tensor| crop(&x, x.size(0), x.size(1), [x.size(1)], [1]), x.clone())
        .unwrap();
    let text = traced.graph().to_string();
    assert!(text.contains("mac::crop(%in0, s0, s1, [s1], [1])"), "{text}");
    assert_eq!(values(&traced.run(x).unwrap()), [1.0, 3.0, 3.0, 1.0]);
}

#[custom_op("mac::windows", schema("(int[2] size=3, int[2]? step=None, int[] rest=[]) -> int"))]
fn windows(size: &[i64], step: Option<&[i64]>, rest: &[i64]) -> Result<i64> {
    let sum = |list: &[i64]| list.iter().sum::<i64>();
    Ok(100 * sum(size) + 10 * step.map_or(0, sum) + sum(rest))
}

#[test]
fn one_integer_fills_a_list_of_fixed_length() {
    assert_eq!(windows(3, None, 4).unwrap(), 604, "a list of any length gets the integer alone");
    assert_eq!(windows([3], Some(&[1, 2]), [4, 5]).unwrap(), 339, "a list stays as it is");
    let n = Tensor::from([1f32, 2.0]).size(0);
    assert_eq!(windows(n, None, n).unwrap(), 402);
    assert_eq!(ops::call("mac::windows", args![3]).unwrap()[0].int_i64().unwrap(), 600);
}

#[custom_op("mac::renamed", schema("(Tensor self, int n, *, int type=1) -> int"))]
fn renamed(x: &Tensor, _n: i64, r#type: i64) -> Result<i64> {
    Ok(x.numel().guard_int()? * r#type)
}

#[custom_op("mac::exchanged", schema("(Tensor x, int left, int top) -> int"))]
fn exchanged(x: &Tensor, top: i64, left: i64) -> Result<i64> {
    x.ok().map(|_| top - left)
}

#[test]
fn a_schema_has_the_names_of_the_parameters() {
    let x = Tensor::from([1f32, 2.0]);
    assert_eq!(renamed(&x, 5, 3).unwrap(), 6);
    let e = exchanged(&x, 1, 2).unwrap_err().to_string();
    assert!(e.contains("argument 1 is `left` in the schema, `top` in the kernel"), "{e}");
}

#[test]
fn operators_of_a_function_body() {
    use maquette::Tensor as T;
    fn helper(x: &T) -> Result<T> {
        x.to_vec::<f32>().map(T::from)
    }
    #[custom_op("mac::local")]
    fn local(x: &T) -> Result<Tensor> {
        helper(x)
    }
    // `&T` is an alias that only the compiler knows
    assert_eq!(values(&local(&Tensor::from([2f32]))), [2.0]);
}

#[derive(Tree, Clone, Debug)]
struct Linear<T> {
    weight: T,
    r#in: Option<Tensor>,
}

#[derive(Tree, Clone, Debug)]
struct Model(Linear<Tensor>, (i64, Vec<Tensor>));

#[derive(Tree, Debug)]
struct Empty;

#[test]
fn structs_are_trees() {
    let x = Tensor::from([1f32]);
    let model = Model(Linear { weight: x.clone(), r#in: None }, (3, vec![x.clone(), x]));
    let (spec, leaves) = tree::flatten(&model).unwrap();
    let paths: Vec<&str> = leaves.iter().map(|l| l.path.as_str()).collect();
    assert_eq!(paths, ["0.weight", "1.0", "1.1.0", "1.1.1"]);
    let back = Model::unflatten(&spec, &mut leaves.into_iter().map(|l| l.value)).unwrap();
    assert!(
        back.0.weight.is_same(&model.0.weight)
            && back.0.r#in.is_none()
            && back.1.0 == 3
            && back.1.1.len() == 2
    );
    let e = Linear::<Tensor>::unflatten(&spec, &mut std::iter::empty()).unwrap_err().to_string();
    assert!(e.contains("expected the struct Linear, found a Model"), "{e}");
    let (spec, leaves) = tree::flatten(&Empty).unwrap();
    assert!(leaves.is_empty() && Empty::unflatten(&spec, &mut std::iter::empty()).is_ok());
    let poisoned = Linear { weight: Tensor::poison(Error::msg("dead")), r#in: None };
    assert!(tree::flatten(&poisoned).is_err());
}

#[test]
fn a_missing_kernel_is_named() {
    let y = without_cpu(&Tensor::from([1f32]));
    assert!(matches!(y.ok().unwrap_err().kind(), ErrorKind::Call(CallError::NoKernel { .. })));
}

#[custom_op("mac::without_cpu", device_types("cuda"))]
fn without_cpu(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}
