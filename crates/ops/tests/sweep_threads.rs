//! Sweeps on several threads: graphs of their own over shared leaves, and a shared part of a graph.
//! The numbers are small integers, so that every order of additions gives the same sum.

use maquette_aten as _;
use maquette_ops::Tensor;
use maquette_ops::autograd::{BackwardOptions, grad, no_grad};
use std::sync::Barrier;
use std::thread;

const THREADS: i64 = 4;
const ROUNDS: i64 = 40;

/// Runs `f` on each thread, with its number, at the same time.
fn on_threads(f: impl Fn(i64) + Sync) {
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|s| {
        for id in 0..THREADS {
            let (f, barrier) = (&f, &barrier);
            s.spawn(move || {
                barrier.wait();
                f(id);
            });
        }
    });
}

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from(values.to_vec()).requires_grad_()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

/// The sum of all factors `id * ROUNDS + round`.
fn total() -> f64 {
    (0..THREADS * ROUNDS).sum::<i64>() as f64
}

#[test]
fn gradients_of_shared_leaves_add_up() {
    let (w, b) = (leaf(&[1.0, 2.0, 3.0]), leaf(&[5.0]));
    on_threads(|id| {
        for round in 0..ROUNDS {
            let factor = (id * ROUNDS + round) as f64;
            let loss = ((&w + &b) * &w * factor).sum();
            loss.backward().unwrap();
        }
    });
    // the derivatives of `w (w + b)`
    let expected: Vec<f64> = [7.0, 9.0, 11.0].map(|d| d * total()).to_vec();
    assert_eq!(numbers(&w.grad().unwrap()), expected);
    assert_eq!(numbers(&b.grad().unwrap()), [6.0 * total()]);
}

#[test]
fn sweeps_share_a_part_of_a_graph() {
    let w = leaf(&[1.0, 2.0, 3.0]);
    let shared = &w * &w;
    let options = BackwardOptions { retain_graph: true, ..BackwardOptions::default() };
    on_threads(|id| {
        for round in 0..ROUNDS {
            let factor = (id * ROUNDS + round) as f64;
            let root = (&shared * factor).sum();
            let found = grad(&[root], std::slice::from_ref(&w), &[], options).unwrap();
            let expected: Vec<f64> = [2.0, 4.0, 6.0].map(|d| d * factor).to_vec();
            assert_eq!(numbers(found[0].as_ref().unwrap()), expected);
        }
    });
    assert!(w.grad().is_none(), "`grad` adds nothing to leaves");
}

/// A thread may sweep, or drop, a graph that another has recorded.
#[test]
fn graphs_go_to_other_threads() {
    let w = leaf(&[1.0, 2.0, 3.0]);
    let (send, receive) = std::sync::mpsc::channel::<Tensor>();
    thread::scope(|s| {
        s.spawn(|| {
            for (i, loss) in receive.into_iter().enumerate() {
                if i % 2 == 0 {
                    loss.backward().unwrap();
                }
            }
        });
        for _ in 0..2 * ROUNDS {
            send.send((&w * &w).sum()).unwrap();
        }
        drop(send);
    });
    let expected: Vec<f64> = [2.0, 4.0, 6.0].map(|d| d * ROUNDS as f64).to_vec();
    assert_eq!(numbers(&w.grad().unwrap()), expected);
}

/// The mode without gradients is of a thread: others record.
#[test]
fn a_thread_without_gradients_does_not_stop_others() {
    let w = leaf(&[1.0, 2.0, 3.0]);
    on_threads(|id| {
        for _ in 0..ROUNDS {
            let product = || &w * 2.0;
            let found = if id % 2 == 0 { no_grad(product) } else { product() };
            assert_eq!(found.requires_grad(), id % 2 == 1);
        }
    });
}
