//! The memory of graphs of derivatives: steps leave none, and depth needs no stack.
//!
//! `cargo test --release -p maquette-fuzz --test gradient_memory -- --ignored` makes 100,000
//! steps; otherwise the tests make a short piece of them.

use maquette_driver::compile;
use maquette_fuzz::soak::resident_bytes;
use maquette_ir::DType;
use maquette_ops::autograd::no_grad;
use maquette_ops::func::value_and_grad;
use maquette_ops::{Result, Tensor, random};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test: the memory of one is that of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What caches may take beyond the memory of the first steps.
const SLACK: u64 = 4 << 20;

type Params = (Tensor, Tensor, Tensor);

fn params() -> Params {
    random::manual_seed(3);
    let normal = |sizes: [i64; 2]| Tensor::randn(sizes, DType::F32) * 0.1;
    (normal([16, 32]), normal([1, 32]), normal([32, 4]))
}

fn batch() -> (Tensor, Tensor) {
    (Tensor::randn([8, 16], DType::F32), Tensor::randn([8, 4], DType::F32))
}

fn loss((w1, b1, w2): &Params, x: &Tensor, y: &Tensor) -> Tensor {
    let h = x.mm(w1) + b1;
    // a write through a view, whose history is that of the base
    h.slice(1, 0..8).tanh_();
    let difference = h.relu().mm(w2) - y;
    (&difference * &difference).mean()
}

/// Makes `steps` steps, and checks that memory grows in none but the first.
fn is_flat(what: &str, steps: u64, mut step: impl FnMut()) {
    let warm = steps / 10 + 200;
    (0..warm).for_each(|_| step());
    let Some(before) = resident_bytes() else { return };
    (0..steps).for_each(|_| step());
    let after = resident_bytes().unwrap_or(before);
    eprintln!("{what}: {steps} steps, {} KiB before, {} KiB after", before >> 10, after >> 10);
    assert!(after <= before + SLACK, "{what}: {before} bytes before, {after} after");
}

fn leaves() -> Params {
    let (w1, b1, w2) = params();
    (w1.requires_grad_(), b1.requires_grad_(), w2.requires_grad_())
}

fn forward(steps: u64) {
    let (p, (x, y)) = (leaves(), batch());
    is_flat("forward without backward", steps, || {
        assert!(loss(&p, &x, &y).requires_grad());
    });
}

fn training(steps: u64) {
    let (p, (x, y)) = (leaves(), batch());
    is_flat("eager training", steps, || {
        loss(&p, &x, &y).backward().unwrap();
        no_grad(|| {
            for t in [&p.0, &p.1, &p.2] {
                t.sub_(&(t.grad().unwrap() * 0.01)).ok().unwrap();
                t.set_grad(None).unwrap();
            }
        });
    });
}

/// Gradients that add up, with a graph that is kept for a second sweep.
fn accumulation(steps: u64) {
    let (p, (x, y)) = (leaves(), batch());
    is_flat("accumulation", steps, || {
        let value = loss(&p, &x, &y);
        let options =
            maquette_ops::autograd::BackwardOptions { retain_graph: true, ..Default::default() };
        value.backward_with(&value.detach().ones_like(), options).unwrap();
        value.backward().unwrap();
    });
}

fn compiled(steps: u64) {
    let step = |(p, x, y): (Params, Tensor, Tensor)| -> Result<Tensor> {
        let (value, g) = value_and_grad(|p: Params| loss(&p, &x, &y))(p.clone())?;
        no_grad(|| {
            for (t, g) in [(&p.0, &g.0), (&p.1, &g.1), (&p.2, &g.2)] {
                t.sub_(&(g * 0.01)).ok()?;
            }
            Ok(value)
        })
    };
    let (run, p, (x, y)) = (compile(step), params(), batch());
    is_flat("compiled training", steps, || {
        run.call((p.clone(), x.clone(), y.clone())).unwrap();
    });
}

#[test]
fn a_short_piece_leaves_memory_flat() {
    let _alone = alone();
    forward(2_000);
    training(2_000);
    accumulation(2_000);
    compiled(2_000);
}

#[test]
#[ignore = "minutes"]
fn many_steps_leave_memory_flat() {
    let _alone = alone();
    forward(100_000);
    training(100_000);
    accumulation(100_000);
    compiled(100_000);
}

/// Runs `f` with a stack that is small beside the depth of the graphs.
fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(f);
    thread.unwrap().join().unwrap();
}

const NODES: usize = 1_000_000;

#[test]
fn a_million_nodes_are_swept_and_dropped() {
    let _alone = alone();
    on_a_small_stack(|| {
        let x = Tensor::from([1.0f64]).requires_grad_();
        let deep = || (0..NODES).fold(&x + 0.0, |y, _| y + 0.0);
        drop(deep());
        deep().backward().unwrap();
        assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [1.0]);
    });
}

#[test]
fn many_writes_through_views_are_swept_and_dropped() {
    let _alone = alone();
    on_a_small_stack(|| {
        let x = Tensor::from([1.0f64, 2.0]).requires_grad_();
        let deep = || {
            let y = &x + 0.0;
            let part = y.select(0, 0);
            (0..NODES / 10).for_each(|_| drop(part.add_(0.0)));
            y
        };
        drop(deep());
        deep().sum().backward().unwrap();
        assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [1.0, 1.0]);
    });
}

#[test]
fn a_million_edges_of_one_tensor_add_up() {
    let _alone = alone();
    on_a_small_stack(|| {
        let x = Tensor::from([1.0f64]).requires_grad_();
        let parts: Vec<Tensor> = (0..NODES / 10).map(|_| &x * 2.0).collect();
        Tensor::cat(&parts, 0).sum().backward().unwrap();
        let n = (NODES / 10) as f64 * 2.0;
        assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [n]);
    });
}
