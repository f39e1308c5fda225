//! Exported programs beside the modules they were exported from.

mod common;
#[path = "export/lines.rs"]
mod lines;
#[path = "export/threads.rs"]
mod threads;

use common::{Over, Visitor, arange, over, same_calls};
use maquette_driver::{ExportOptions, Signature};
use maquette_ops::module::{Slot, visit_part};
use maquette_ops::{Module, Tensor};
use maquette_trace::Dim;

/// `x wᵀ + b`.
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    fn new(from: i64, to: i64) -> Linear {
        Linear { weight: arange(from * to).reshape([to, from]), bias: Some(arange(to)) }
    }
}

impl Module for Linear {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.weight, "", "weight", Slot::Parameter, v);
        visit_part(&self.bias, "", "bias", Slot::Parameter, v);
    }
}

/// Layers with a running sum of what they saw, which scales the result.
struct Mlp {
    layers: Vec<Linear>,
    count: Tensor,
    dead: Tensor,
}

impl Mlp {
    fn new() -> Mlp {
        Mlp {
            layers: vec![Linear::new(3, 4), Linear::new(4, 2)],
            count: arange(1),
            dead: arange(2),
        }
    }
}

impl Module for Mlp {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        self.count.add_(x.sum());
        let hidden = self.layers[0].forward(x).relu();
        self.layers[1].forward(hidden) * &self.count
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.count, "", "count", Slot::Buffer, v);
        visit_part(&self.layers, "", "layers", Slot::Parameter, v);
        visit_part(&self.dead, "", "dead", Slot::Parameter, v);
    }
}

fn rows(n: i64) -> Tensor {
    arange(3 * n).reshape([n, 3])
}

#[test]
fn a_program_with_a_signature() {
    let mlp = Mlp::new();
    let program = ExportOptions::new()
        .dynamic(0, 0, Dim::new("batch"))
        .names(["x"])
        .name("mlp")
        .export(&mlp, rows(2))
        .unwrap();
    insta::assert_snapshot!("mlp", program);
    let text = program.signature().to_string();
    assert_eq!(Signature::parse(&text).as_ref(), Ok(program.signature()), "{text}");
    let dead: Vec<&str> = program.signature().unused().map(|i| i.name.as_str()).collect();
    assert_eq!(dead, ["dead"]);
    let ranges = program.range_constraints();
    assert_eq!(ranges.len(), 1);
    assert_eq!(
        (ranges[0].symbol.as_str(), ranges[0].range.to_string().as_str()),
        ("batch", "[0, oo)")
    );
    assert_eq!(ranges[0].dims, [("x".to_owned(), 0)]);
    same_calls(&mlp, &program, [2, 1, 5, 0].map(|n| move || rows(n)));
}

#[test]
fn a_decomposed_program_does_the_same() {
    let mlp = Mlp::new();
    let options = ExportOptions::new().dynamic(0, 0, Dim::new("batch"));
    let whole = options.clone().export(&mlp, rows(2)).unwrap();
    let parts = options.decompose(true).names(["x"]).export(&mlp, rows(2)).unwrap();
    let has_linear = |graph: &maquette_ir::graph::Graph| {
        graph.nodes().any(|node| graph.op_name(node) == "aten::linear")
    };
    assert!(has_linear(whole.graph()) && has_linear(whole.traced_graph()));
    assert!(!has_linear(parts.graph()) && !has_linear(parts.traced_graph()));
    same_calls(&mlp, &parts, [2, 1, 5, 0].map(|n| move || rows(n)));
}

/// Exports, makes the same calls twice, and gives the text.
fn text<F: Fn(&[Tensor], Vec<Tensor>) -> Vec<Tensor>>(
    module: &Over<F>,
    inputs: impl Fn() -> Vec<Tensor>,
) -> String {
    let program = ExportOptions::new().export(module, inputs()).unwrap();
    same_calls(module, &program, [&inputs, &inputs]);
    program.to_string()
}

#[test]
fn state_and_who_shares_it() {
    let mut book = String::new();
    let mut case = |title: &str, text: String| book += &format!("# {title}\n{text}\n\n");
    let one = || vec![arange(4)];
    let (p, b) = (Slot::Parameter, Slot::Buffer);

    let w = arange(4);
    let tied =
        over(vec![("embed", p, w.clone()), ("scale", p, arange(1)), ("head", p, w)], |s, x| {
            vec![&x[0] * &s[0] + &s[2] * &s[1]]
        });
    case("one tensor under two names", text(&tied, one));

    let cache = arange(8);
    let (k, v) = (cache.slice(0, 0..4), cache.slice(0, 4..8));
    let halves = over(vec![("k", b, k), ("v", b, v)], |s, x| {
        s[0].add_(&x[0]);
        s[1].mul_(&s[0]);
        vec![s[1].neg()]
    });
    case("two buffers that are halves of one memory", text(&halves, one));

    let m = arange(6).reshape([2i64, 3]);
    let views = over(vec![("m", b, m.clone()), ("mt", b, m.t())], |s, _| {
        s[0].select(0, 1).fill_(9.0);
        vec![s[1].clone(), s[0].slice(1, 1..3)]
    });
    case("a buffer and its transpose; outputs that are views of them", text(&views, one));

    let (free, seen) = (arange(4), arange(4));
    let captured = {
        let (free, seen) = (free.clone(), seen.clone());
        over(vec![("w", p, arange(4))], move |s, x| {
            free.add_(&x[0]);
            vec![&free * &s[0] + &seen]
        })
    };
    case("captured tensors: one that is written, one that is not", text(&captured, one));

    let base = arange(8);
    let hidden = base.slice(0, 2..6);
    let through = over(vec![("all", b, base)], move |s, x| {
        hidden.mul_(&x[0]);
        vec![s[0].neg(), hidden.neg()]
    });
    case("a buffer that is written through a captured view of it", text(&through, one));

    let trained = over(vec![("w", p, arange(4))], |s, x| {
        s[0].sub_(&x[0] * 0.5);
        vec![s[0].clone()]
    });
    case("a parameter that is written and returned", text(&trained, one));

    let inputs = over(vec![], |_, x| {
        x[0].add_(&x[1]);
        vec![x[0].clone(), x[1].slice(0, 1..3), &x[0] + 1.0]
    });
    case("inputs written and returned", text(&inputs, || vec![arange(4), arange(4)]));

    insta::assert_snapshot!("state", book);
}

#[test]
fn a_program_owns_its_state() {
    let mlp = Mlp::new();
    let program = ExportOptions::new().export(&mlp, rows(2)).unwrap();
    let before = program.call(rows(2)).unwrap().to_vec::<f32>().unwrap();
    mlp.layers[0].weight.fill_(0.0);
    let named =
        |name: &str| program.state().find(|(n, ..)| *n == name).map(|(.., t)| t.clone()).unwrap();
    named("count").copy_(&arange(1));
    assert_eq!(program.call(rows(2)).unwrap().to_vec::<f32>().unwrap(), before);
    // and its buffers advance in calls
    assert_ne!(program.call(rows(2)).unwrap().to_vec::<f32>().unwrap(), before);
}
