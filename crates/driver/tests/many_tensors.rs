//! Programs of thousands of tensors: the time of a call, and of a check of given outputs, grows
//! with their number and not with its square.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::Tensor;
use std::time::Instant;

fn tensors(n: usize) -> Vec<Tensor> {
    (0..n).map(|i| Tensor::from([i as f32])).collect()
}

/// Checks that a call with 16 times as many tensors takes less than 60 times as long. A quadratic
/// one takes 256 times as long; the bound leaves room for caches and a busy machine. `prepared`
/// gives what is timed.
#[track_caller]
fn grows_slowly(prepared: &dyn Fn(usize) -> Box<dyn FnMut()>) {
    let [mut few, mut many] = [prepared(64), prepared(1024)];
    let least = |call: &mut dyn FnMut()| {
        let timed = |_| {
            let start = Instant::now();
            call();
            start.elapsed()
        };
        (0..5).map(timed).min().unwrap_or_default().as_secs_f64()
    };
    let mut ratios = (0..10).map(|_| least(&mut many) / least(&mut few));
    assert!(ratios.any(|ratio| ratio < 60.0), "16 times the tensors take over 60 times as long");
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
    grows_slowly(&|n| {
        let (f, xs) = (compile(add_ones), tensors(n));
        f.call(xs.clone()).unwrap();
        assert_eq!(xs[n - 1].to_vec::<f32>().unwrap(), [n as f32]);
        Box::new(move || drop(f.call(xs.clone()).unwrap()))
    });
}

#[test]
fn guards_of_mutated_inputs() {
    grows_slowly(&|n| {
        let (f, xs) = (compile(add_ones), tensors(n));
        f.call(xs.clone()).unwrap();
        Box::new(move || assert!(f.matches(&xs).unwrap()))
    });
}

#[test]
fn given_outputs() {
    let in_one_storage = |n: usize| -> Vec<Tensor> {
        let all = Tensor::zeros([n as i64, 1], DType::F32);
        (0..n as i64).map(|i| all.select(0, i)).collect()
    };
    let in_own_storages = |n: usize| (0..n).map(|_| Tensor::zeros([1], DType::F32)).collect();
    let outputs: [&dyn Fn(usize) -> Vec<Tensor>; 2] = [&in_one_storage, &in_own_storages];
    for outputs in outputs {
        grows_slowly(&|n| {
            let (f, xs, outs) = (compile(doubles), tensors(n), outputs(n));
            f.call_into(xs.clone(), &outs).unwrap();
            assert_eq!(outs[n - 1].to_vec::<f32>().unwrap(), [2.0 * (n as f32 - 1.0)]);
            Box::new(move || f.call_into(xs.clone(), &outs).unwrap())
        });
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
