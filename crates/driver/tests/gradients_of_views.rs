//! Gradients of views of views with symbolic sizes: the chains of attention, of rotary embeddings
//! and of slices differentiate in one graph, are planned, and have the bits of the eager gradient.

#![expect(clippy::reversed_empty_ranges, reason = "a negative end counts from the end")]

use maquette_driver::{CompileOptions, compile};
use maquette_ir::DType;
use maquette_ops::func::grad;
use maquette_ops::library::Facts;
use maquette_ops::{Tensor, random};
use maquette_rewrite::{ExecutionMode, Options, functionalize_in_place};
use maquette_trace::TraceOptions;

/// A name, and a function of a tensor of sizes `[a, b, 4]`.
type Chain = (&'static str, fn(&Tensor) -> Tensor);

/// Slices, at constant positions and at those that depend on a size.
const SLICES: &[Chain] = &[
    ("slice of a transpose", |x| x.transpose(0, 1).slice(0, 1..)),
    ("transpose of a slice", |x| x.slice(0, 1..).transpose(0, 1)),
    ("slice of a slice", |x| x.slice(0, 1..).slice(1, ..-1)),
    ("slice of a slice of one dimension", |x| x.slice(1, 1..).slice(1, ..-1)),
    ("select of a slice", |x| x.slice(0, 1..).select(0, 0)),
    ("slice of a select", |x| x.select(0, 1).slice(0, 1..)),
    ("select of a transpose", |x| x.transpose(0, 2).select(0, 1)),
    ("select of a select", |x| x.select(1, -1).select(1, 2)),
    ("select of a permuted slice", |x| x.permute([2i64, 0, 1]).slice(1, 1..).select(2, -1)),
    ("first half", |x| x.narrow(1, 0, x.size(1).floor_div(2))),
    ("second half", |x| {
        let half = x.size(1).floor_div(2);
        x.narrow(1, half, x.size(1) - half)
    }),
    ("transpose of every other row", |x| x.slice_step(1, .., 2).transpose(0, 1)),
    ("slice of a repetition", |x| {
        x.unsqueeze(0).expand([3i64, -1, -1, -1]).slice(1, 1..).slice(0, 1..)
    }),
    ("slices, joined", |x| Tensor::cat([&x.slice(1, 1..), &x.slice(1, ..1)], 1)),
    ("diagonal", |x| x.diagonal(0, 0, 1)),
    ("windows", |x| x.unfold(1, 2, 1)),
    ("select of windows", |x| x.unfold(1, 2, 1).select(3, 1)),
    ("slice of windows", |x| x.unfold(1, 2, 1).slice(1, 1..)),
];

/// Views with other dimensions.
const RESHAPED: &[Chain] = &[
    ("reshape of a slice", |x| x.slice(0, 1..).reshape([-1i64, 4])),
    ("reshape of an inner slice", |x| x.slice(1, 1..).reshape([-1i64, 4])),
    ("reshape of a transpose", |x| x.transpose(0, 1).reshape([-1i64, 4])),
    ("slice of a flat view", |x| x.reshape([-1i64]).slice(0, 3..-5)),
    ("slice of flat rows", |x| x.reshape([x.size(0), x.size(1) * 4]).slice(1, 1..-2)),
    ("heads", |x| x.unflatten(2, [2, 2]).transpose(1, 2)),
    ("slice of heads", |x| x.unflatten(2, [2, 2]).transpose(1, 2).slice(2, 1..)),
    ("heads of a slice", |x| x.slice(1, ..-1).unflatten(2, [2, 2]).transpose(1, 2)),
    ("attention", |x| {
        let heads = x.unflatten(2, [2, 2]).transpose(1, 2);
        let weights = heads.matmul(&heads.transpose(-2, -1)).softmax(-1);
        weights.matmul(&heads).transpose(1, 2).reshape(x.sizes())
    }),
    ("rotated halves", |x| Tensor::cat([&-x.slice(2, 2..), &x.slice(2, ..2)], 2) * x),
];

/// Writes through views of views.
const WRITTEN: &[Chain] = &[
    ("a write through a select of a slice", |x| {
        let y = x.clone_tensor();
        y.slice(1, 1..).select(0, 0).mul_(3.0);
        y
    }),
    ("a write through a slice of a transpose", |x| {
        let y = x.clone_tensor();
        y.transpose(0, 1).slice(0, 1..).mul_(x.transpose(0, 1).slice(0, 1..));
        y
    }),
    ("a view of a view, of what is written later", |x| {
        let y = x * 2.0;
        let view = y.transpose(0, 1).slice(0, 1..);
        y.mul_(x);
        view * 3.0
    }),
    ("a repetition of what is written later", |x| {
        let y = x * 2.0;
        let wide = y.unsqueeze(0).expand([3i64, -1, -1, -1]);
        y.mul_(x);
        wide * 3.0
    }),
    ("windows of what is written later", |x| {
        let y = x * 2.0;
        let windows = y.unfold(1, 2, 1);
        y.mul_(x);
        windows * 3.0
    }),
    ("a write of half", |x| {
        let (y, half) = (x.clone_tensor(), x.size(1).floor_div(2));
        y.narrow(1, 0, half).mul_(x.narrow(1, 0, half));
        y
    }),
];

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

fn differentiate(chains: &[Chain]) {
    for &(name, chain) in chains {
        let f = move |x: Tensor| {
            let y = chain(&(&x * &x));
            (&y * &y).sum()
        };
        random::manual_seed(3);
        let sample = Tensor::randn([4i64, 6, 4], DType::F64);
        let traced = TraceOptions::symbolic().trace(grad(f), sample).unwrap();
        let planned = functionalize_in_place(traced.graph(), &Facts, &Options::new());
        match planned.unwrap_or_else(|e| panic!("{name}: {e}")) {
            ExecutionMode::Buffered(..) => {}
            _ => panic!("{name} is not planned"),
        }
        let compiled = [CompileOptions::symbolic().compile(grad(f)), compile(grad(f))];
        for sizes in [[4i64, 6, 4], [3, 8, 4], [5, 4, 4], [2, 9, 4], [7, 2, 4]] {
            let x = Tensor::randn(sizes, DType::F64);
            let expected = bits(&grad(f)(x.clone()).unwrap());
            // a slice of two rows has one, which some programs branch on: `compile` traces again
            if sizes[1] > 2 {
                assert_eq!(bits(&traced.run(x.clone()).unwrap()), expected, "{name}, {sizes:?}");
            }
            for compiled in &compiled {
                let found = compiled.call(x.clone()).unwrap();
                assert_eq!(bits(&found), expected, "{name}, {sizes:?}, compiled");
            }
        }
        assert!(compiled[0].compilations() <= 2, "{name}: {}", compiled[0].explain());
    }
}

#[test]
fn of_slices() {
    differentiate(SLICES);
}

#[test]
fn of_views_with_other_dimensions() {
    differentiate(RESHAPED);
}

#[test]
fn of_writes_through_views() {
    differentiate(WRITTEN);
}

/// Strides of dimensions with more than one element.
fn strides(t: &Tensor) -> Vec<i64> {
    let dims = t.sizes_i64().unwrap().into_iter().zip(t.strides());
    dims.filter(|(n, _)| *n > 1).map(|(_, stride)| stride.as_i64().unwrap()).collect()
}

/// Sizes and strides of an input, the sizes of a view that nothing uses, and another view.
type Case = (&'static [i64], &'static [i64], &'static [i64], fn(&Tensor) -> Tensor);

/// The guards of a view that nothing uses tell what sizes are 1. The layout of the gradient of
/// another view does not depend on them.
#[test]
fn beside_a_view_that_nothing_uses() {
    let narrow: fn(&Tensor) -> Tensor = |x| x.narrow(0, 0, 2i64);
    let slice: fn(&Tensor) -> Tensor = |x| x.slice(1, 0..2);
    let select: fn(&Tensor) -> Tensor = |x| x.select(1, 1);
    let cases: [Case; 5] = [
        (&[3, 2, 1], &[1, 3, 1], &[3, 2, 1, 1], narrow),
        (&[3, 2, 1], &[1, 3, 1], &[3, 2, 1, 1], select),
        (&[3, 4, 3, 1], &[3, 9, 1, 3], &[3, 4, 1, 3, 1], slice),
        (&[1, 3, 2], &[2, 2, 1], &[3, 2], select),
        (&[3, 1, 2], &[1, 1, 3], &[3, 2], narrow),
    ];
    for (sizes, of_input, unused, view) in cases {
        let x = Tensor::randn([48i64], DType::F64).as_strided(sizes, of_input, None);
        let f = move |x: Tensor| {
            let copy = x.clone_tensor();
            copy.reshape(unused).ok()?;
            view(&copy).sin().sum().ok().cloned()
        };
        let f = move |x: Tensor| f(x).unwrap_or_else(Tensor::poison);
        let eager = grad(f)(x.clone()).unwrap();
        let traced = TraceOptions::symbolic().trace(grad(f), x.clone()).unwrap();
        let found = traced.run(x).unwrap();
        assert_eq!(strides(&found), strides(&eager), "{sizes:?}\n{traced}");
        assert_eq!(bits(&found), bits(&eager), "{sizes:?}");
    }
}
