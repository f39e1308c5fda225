//! Programs of many tensors. Their work grows with their number and not with its square: the unit
//! tests of `ops/src/tensor/by_storage.rs` count it, and `benches/guards.rs` measures it.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::Tensor;

fn tensors(n: usize) -> Vec<Tensor> {
    (0..n).map(|i| Tensor::from([i as f32])).collect()
}

fn add_ones(xs: Vec<Tensor>) -> Tensor {
    for x in &xs {
        x.add_(1.0);
    }
    xs.into_iter().next().unwrap_or_else(|| Tensor::zeros([1], DType::F32))
}

fn doubles(xs: Vec<Tensor>) -> Vec<Tensor> {
    xs.iter().map(|x| x * 2.0).collect()
}

#[test]
fn mutated_inputs() {
    for n in [64, 1024] {
        let (f, xs) = (compile(add_ones), tensors(n));
        f.call(xs.clone()).unwrap();
        assert!(f.matches(&xs).unwrap());
        f.call(xs.clone()).unwrap();
        for (i, x) in xs.iter().enumerate() {
            assert_eq!(x.to_vec::<f32>().unwrap(), [i as f32 + 2.0]);
        }
    }
}

#[test]
fn given_outputs() {
    let in_one_storage = |n: usize| -> Vec<Tensor> {
        let all = Tensor::zeros([n as i64, 1], DType::F32);
        (0..n as i64).map(|i| all.select(0, i)).collect()
    };
    let in_own_storages = |n: usize| (0..n).map(|_| Tensor::zeros([1], DType::F32)).collect();
    for n in [64, 1024] {
        for outs in [in_one_storage(n), in_own_storages(n)] {
            let (f, xs) = (compile(doubles), tensors(n));
            f.call_into(xs.clone(), &outs).unwrap();
            for (i, out) in outs.iter().enumerate() {
                assert_eq!(out.to_vec::<f32>().unwrap(), [2.0 * i as f32]);
            }
            let mut shared = outs.clone();
            shared[n - 1] = outs[1].clone();
            let e = f.call_into(xs, &shared).unwrap_err().to_string();
            assert!(e.contains("shares memory"), "{e}");
        }
    }
}

#[test]
fn an_input_that_is_given_twice_is_found_among_many() {
    let f = compile(add_ones);
    for n in [3, 40] {
        let xs = tensors(n);
        f.call(xs.clone()).unwrap();
        let [mut eager, mut compiled] = [tensors(n), tensors(n)];
        for xs in [&mut eager, &mut compiled] {
            xs[n - 1] = xs[1].clone();
        }
        let expected = add_ones(eager.clone()).to_vec::<f32>().unwrap();
        assert_eq!(f.call(compiled.clone()).unwrap().to_vec::<f32>().unwrap(), expected);
        for (a, b) in eager.iter().zip(&compiled) {
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        }
    }
}
