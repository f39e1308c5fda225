//! Fake kernels made from recorded calls.

use maquette_aten as _;
use maquette_ir::sym::Scope;
use maquette_ir::{DType, Loc};
use maquette_ops::library::{FakeProfile, FakeProfiles};
use maquette_ops::{ErrorKind, FakeError, Op, Result, Tensor, args, custom_op, fake};

fn unique(name: &str) -> Op {
    let kernel = |x: &Tensor, return_counts: bool| -> Result<(Tensor, Vec<Tensor>, i64)> {
        let mut seen = x.to_vec::<f32>()?;
        seen.sort_by(f32::total_cmp);
        seen.dedup();
        let n = seen.len() as i64;
        let found = if x.dim() == 2 { Tensor::from_vec(seen, [n, 1]) } else { Tensor::from(seen) };
        Ok((
            found,
            if return_counts { vec![Tensor::from(vec![0i64; n as usize])] } else { vec![] },
            n,
        ))
    };
    custom_op(name)
        .schema("(Tensor x, bool return_counts=False) -> (Tensor, Tensor[], int)")
        .kernel(kernel)
        .register()
        .unwrap()
}

#[test]
fn a_recorded_kind_of_call_has_outputs_of_data_dependent_sizes() {
    let op = unique("profiles::unique");
    let samples = [
        args![&Tensor::from([1.0f32, 1.0])],
        args![&Tensor::from([2.0f32, 3.0, 2.0])],
        args![&Tensor::from([[1.0f32, 2.0]])],
    ];
    let profiles: Vec<FakeProfile> =
        samples.into_iter().map(|a| FakeProfile::record(&op, a).unwrap()).collect();
    assert_eq!(profiles[0], profiles[1], "sizes are not part of a profile");
    op.register_fake_from_profiles(profiles).unwrap();

    let scope = Scope::new();
    let call = |x: Tensor| fake::call(op, &args![&x, false], Some(&scope), Loc::caller());
    let out = call(Tensor::fake([9], DType::F32)).unwrap();
    assert_eq!(out[0].tensor().unwrap().meta().to_string(), "f32[u0]");
    assert_eq!((out[1].tensors().count(), out[2].int().unwrap().to_string()), (0, "u1".to_owned()));
    assert_eq!(
        call(Tensor::fake([9, 4], DType::F32)).unwrap()[0].tensor().unwrap().meta().to_string(),
        "f32[u2, u3]"
    );

    let e = call(Tensor::fake([2, 2, 2], DType::F64)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fake(FakeError::MissingProfile { .. })));
    insta::assert_snapshot!("missing_profile", e);
}

#[test]
fn recording_leaves_the_arguments_alone() {
    let op = custom_op("profiles::inc_")
        .schema("(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)")
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<(Tensor, Tensor)> {
            x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
            Ok((x.clone(), Tensor::from(y.to_vec::<f32>()?)))
        })
        .register()
        .unwrap();
    let base = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let (x, y, version) = (base.slice(0, 0..2), base.slice(0, 2..4), base.version());
    op.register_fake_from_profiles([FakeProfile::record(&op, args![&x, &y]).unwrap()]).unwrap();
    assert_eq!(
        (base.to_vec::<f32>().unwrap(), base.version()),
        (vec![1.0, 2.0, 3.0, 4.0], version)
    );
    let scope = Scope::new();
    let x = Tensor::fake([5], DType::F32);
    let out = fake::call(op, &args![&x, &x], Some(&scope), Loc::caller()).unwrap();
    assert!(out[0].tensor().unwrap().is_same(&x), "a returned argument is no new tensor");
}

#[test]
fn profiles_are_kept_in_a_file() {
    let op = unique("profiles::saved");
    let make = custom_op("profiles::make")
        .schema("(int[] sizes, Tensor? like, *, ScalarType dtype=float32) -> Tensor")
        .kernel(|sizes: &[i64], _like: Option<&Tensor>, dtype: DType| -> Result<Tensor> {
            Tensor::zeros(sizes, dtype).ok().cloned()
        })
        .register()
        .unwrap();
    let mut all = FakeProfiles::new();
    for x in [Tensor::from([1.0f32]), Tensor::from([[1.0f32]])] {
        all.record(&op, args![&x]).unwrap();
        all.record(&op, args![&x, true]).unwrap_or_else(|e| panic!("{e}"));
    }
    all.record(&make, args![vec![2i64, 3], (), DType::I64]).unwrap();
    all.record(&make, args![vec![2i64], &Tensor::from([1.0f32])]).unwrap();
    insta::assert_snapshot!("profiles_as_text", all);
    let path = std::env::temp_dir().join(format!("maquette-profiles-{}.txt", std::process::id()));
    all.save(&path).unwrap();
    let loaded = FakeProfiles::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded, all);

    let makes: Vec<FakeProfile> = loaded.of(&make).collect();
    make.register_fake_from_profiles(makes).unwrap();
    let scope = Scope::new();
    let out = fake::call(make, &args![vec![4i64, 4], (), DType::I64], Some(&scope), Loc::caller())
        .unwrap();
    assert_eq!(out[0].tensor().unwrap().meta().to_string(), "i64[u0, u1]");
    loaded.of(&op).for_each(|p| assert_eq!(p.to_string().parse::<FakeProfile>().unwrap(), p));
}

#[test]
fn calls_that_profiles_cannot_describe() {
    let repeat = |x: &Tensor, n: i64| -> Result<Vec<Tensor>> {
        (0..n).map(|_| Ok(Tensor::from(x.to_vec::<f32>()?))).collect()
    };
    let counts = custom_op("profiles::both_ways")
        .schema("(Tensor x, int n) -> Tensor[]")
        .kernel(repeat)
        .register()
        .unwrap();
    let with = |a| FakeProfile::record(&counts, a).unwrap();
    let x = Tensor::from([1.0f32]);
    // the number decides how many tensors come back, and a profile does not look at numbers
    let two =
        counts.register_fake_from_profiles([with(args![&x, 1]), with(args![&x, 2])]).unwrap_err();
    let none = counts.register_fake_from_profiles([]).unwrap_err();
    let view = custom_op("profiles::view")
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.view([-1])) });
    let view = view.register().unwrap();
    let viewed = view
        .register_fake_from_profiles([FakeProfile::record(&view, args![&x]).unwrap()])
        .unwrap_err();
    let float = custom_op("profiles::float")
        .schema("(Tensor x) -> float")
        .kernel(|_x: &Tensor| -> Result<f64> { Ok(1.0) })
        .register()
        .unwrap();
    let returns = FakeProfile::record(&float, args![&x]).unwrap_err();
    let fake = FakeProfile::record(&counts, args![&Tensor::fake([2], DType::F32), 1]).unwrap_err();
    let text = |s: &str| s.parse::<FakeProfiles>().unwrap_err();
    let head = "maquette fake profiles, version 1\n";
    let errors = [
        two,
        none,
        viewed,
        returns,
        fake,
        text("maquette fake profiles, version 2\n"),
        text("profiles: {}"),
        text(&format!("{head}  f32[_] -> f32[_]\n")),
        text(&format!("{head}op t::f(Tensor x) -> Tensor\n  f32[_], -> f99[_]\n")),
        text(&format!("{head}op t::f(Tensr x) -> Tensor\n")),
        format!("{head}op profiles::both_ways(Tensor x) -> Tensor\n  f32[_] -> f32[_]\n")
            .parse::<FakeProfiles>()
            .unwrap()
            .register()
            .unwrap_err(),
        format!("{head}op profiles::unheard_of(Tensor x) -> Tensor\n  f32[_] -> f32[_]\n")
            .parse::<FakeProfiles>()
            .unwrap()
            .register()
            .unwrap_err(),
    ];
    let errors: Vec<String> = errors
        .iter()
        .map(|e| {
            e.to_string().lines().filter(|l| !l.starts_with("  at ")).collect::<Vec<_>>().join("\n")
        })
        .collect();
    insta::assert_snapshot!("calls_that_profiles_cannot_describe", errors.join("\n\n"));
}
