//! Outputs that the caller gives.

use super::*;
use maquette_ops::autograd::no_grad;

fn layer((x, w): (Tensor, Tensor)) -> (Tensor, Vec<Tensor>) {
    let y = x.matmul(&w);
    (y.relu(), vec![&y * 2.0, y.t()])
}

fn zeros(sizes: &[i64]) -> Tensor {
    Tensor::zeros(sizes.to_vec(), DType::F32)
}

fn inputs(rows: i64) -> (Tensor, Tensor) {
    (arange(rows * 3).reshape([rows, 3]), arange(6).reshape([3, 2]))
}

#[test]
fn every_stance_and_size_writes_the_results() {
    for stance in [Stance::Compile, Stance::ForceEager, Stance::EagerThenCompile] {
        let f = CompileOptions::new().stance(stance).compile(layer);
        for rows in [4, 4, 7, 1, 9] {
            let outputs = (zeros(&[rows, 2]), vec![zeros(&[rows, 2]), zeros(&[2, rows])]);
            f.call_into(inputs(rows), &outputs).unwrap();
            let expected = layer(inputs(rows));
            for (a, b) in tensors(&expected).iter().zip(tensors(&outputs)) {
                assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
            }
        }
    }
}

#[test]
fn refused_outputs() {
    let mut texts = String::new();
    for stance in [Stance::Compile, Stance::ForceEager] {
        let f = CompileOptions::new().names(["x", "w"]).stance(stance).compile(layer);
        let good = || zeros(&[4, 2]);
        let (x, w) = inputs(4);
        let cases: [(&str, (Tensor, Vec<Tensor>)); 5] = [
            ("a list of one", (good(), vec![good()])),
            ("another size", (good(), vec![zeros(&[5, 2]), zeros(&[2, 4])])),
            ("another dtype", (Tensor::zeros([4, 2], DType::F64), vec![good(), zeros(&[2, 4])])),
            ("an input", (x.slice(1, 0..2), vec![good(), zeros(&[2, 4])])),
            ("another output", {
                let y = good();
                (y.clone(), vec![y, zeros(&[2, 4])])
            }),
        ];
        for (name, outputs) in cases {
            let e = f.call_into((x.clone(), w.clone()), &outputs).unwrap_err();
            texts += &format!("{stance:?}, {name}: {}\n", text(&e));
        }
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_traced_call_copies() {
    let f = compile(|x: Tensor| x.relu());
    let g = compile(|(x, y): (Tensor, Tensor)| {
        f.call_into(x, &y).unwrap();
        &y + 1.0
    });
    let y = zeros(&[4]);
    let z = g.call((arange(4), y.clone())).unwrap();
    let relu = arange(4).relu();
    assert_eq!(y.to_vec::<f32>().unwrap(), relu.to_vec::<f32>().unwrap());
    assert_eq!(z.to_vec::<f32>().unwrap(), (&relu + 1.0).to_vec::<f32>().unwrap());
}

/// A captured weight with room for a product that packs it.
#[test]
fn a_weight_that_is_written_in_place_compiles_nothing() {
    let weight = (arange(96 * 80) * 0.01).sin().reshape([96, 80]);
    let adapter = (arange(96 * 80) * 0.02).cos().reshape([96, 80]);
    let eager = |x: Tensor| x.matmul(&weight).relu();
    let f = compile(eager);
    let x = arange(5 * 96).reshape([5, 96]);
    let check = || {
        let (found, expected) = (f.call(x.clone()).unwrap(), eager(x.clone()));
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        found.to_vec::<f32>().unwrap()
    };
    let without = check();
    weight.add_(&adapter);
    assert_ne!(check(), without);
    weight.copy_(&adapter);
    assert_ne!(check(), without);
    // one row of it, through a view
    weight.select(0, 3).fill_(0.5);
    check();
    assert_eq!(f.compilations(), 1);
}

#[test]
fn a_captured_tensor_that_a_result_views_is_no_output() {
    for stance in [Stance::Compile, Stance::ForceEager] {
        let w = Tensor::from([1.0f32, 2.0]);
        let v = w.clone();
        let f = CompileOptions::new().stance(stance).compile(move |x: Tensor| (x + 1.0, v.clone()));
        let (x, out) = (Tensor::from([5.0f32, 6.0]), zeros(&[2]));
        let refused = err(f.call_into(x.clone(), &(w.clone(), out.clone()))).to_string();
        assert!(refused.contains("shares memory with"), "{stance:?}: {refused}");
        assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        f.call_into(x, &(zeros(&[2]), out.clone())).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }
}

#[test]
fn an_output_takes_no_part_in_differentiation() {
    for stance in [Stance::Compile, Stance::ForceEager] {
        let w = Tensor::from([1.0f32]).requires_grad_().clone();
        let f = CompileOptions::new().stance(stance).compile(|x: Tensor| x * 3.0);
        for out in [&w * 2.0, w.clone()] {
            let refused = err(f.call_into(Tensor::from([5.0f32]), &out)).to_string();
            assert!(refused.contains("output `0` requires a gradient"), "{stance:?}: {refused}");
        }
        no_grad(|| f.call_into(Tensor::from([5.0f32]), &w)).unwrap();
        assert_eq!(w.to_vec::<f32>().unwrap(), [15.0]);
    }
}

#[test]
fn a_captured_tensor_that_is_read_is_no_output() {
    for stance in [Stance::Compile, Stance::ForceEager, Stance::EagerThenCompile] {
        let w = Tensor::from([2.0f32]);
        let v = w.clone();
        let f = CompileOptions::new().stance(stance).compile(move |x: Tensor| x * &v);
        assert!(f.call_into(Tensor::from([5.0f32]), &w).is_err(), "{stance:?}");
        assert_eq!(w.to_vec::<f32>().unwrap(), [2.0], "{stance:?}");
        let y = zeros(&[1]);
        f.call_into(Tensor::from([5.0f32]), &y).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [10.0], "{stance:?}");
    }
}
