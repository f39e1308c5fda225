//! Modules give their path to the nodes that are made in them.

use insta::assert_snapshot;
use maquette::autograd::checkpoint;
use maquette::ir::graph::NodeId;
use maquette::prelude::*;
use maquette::profile::ProfileOptions;
use maquette::{func, named_scope, value_and_grad};
use std::sync::Arc;

/// A part with a method of its own shape.
#[derive(Module)]
struct Linear {
    weight: Tensor,
}

#[scoped]
impl Linear {
    fn apply(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, None)
    }
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Attention {
    query: Linear,
    output: Linear,
}

#[scoped]
impl Attention {
    fn forward(&self, x: Tensor) -> Tensor {
        self.output.apply(&self.query.apply(&x).softmax(-1))
    }
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Layer {
    attention: Attention,
    activation: Option<Arc<Gelu>>,
}

#[scoped]
impl Layer {
    fn forward(&self, x: Tensor) -> Tensor {
        let attended = self.attention.forward(x.clone()) + x;
        match &self.activation {
            Some(activation) => activation.forward(attended),
            None => attended,
        }
    }
}

/// By hand, without size.
struct Gelu;

impl Module for Gelu {
    type In = Tensor;
    type Out = Tensor;

    #[scoped]
    fn forward(&self, x: Tensor) -> Tensor {
        x.gelu()
    }

    fn visit(&self, _v: &mut dyn FnMut(&str, Slot, &Tensor)) {}
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Encoder {
    layers: Vec<Layer>,
    head: Box<dyn Module<In = Tensor, Out = Tensor>>,
}

#[scoped]
impl Encoder {
    fn forward(&self, x: Tensor) -> Tensor {
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.head.forward(x).neg()
    }
}

fn linear(seed: i64) -> Linear {
    let weight = (0..16).map(|i| ((i * seed) % 7) as f32 / 7.0).collect();
    Linear { weight: Tensor::from_vec(weight, [4, 4]) }
}

fn attention(seed: i64) -> Attention {
    Attention { query: linear(seed), output: linear(seed + 1) }
}

fn encoder() -> Encoder {
    let layer = |seed, activation| Layer { attention: attention(seed), activation };
    Encoder {
        layers: vec![layer(2, None), layer(4, Some(Arc::new(Gelu)))],
        head: Box::new(attention(6)),
    }
}

fn x() -> Tensor {
    Tensor::from_vec((0..12).map(|i| i as f32 / 6.0 - 1.0).collect(), [3, 4])
}

/// Each call with its scope.
fn scopes(graph: &Graph) -> String {
    let line = |n| format!("{} @ {}", graph.op_name(n), graph.scope(n).unwrap_or("-"));
    graph.nodes().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn text_shows_scopes_and_parses_back() {
    let model = encoder();
    let program = ExportOptions::new().names(["x"]).export(&model, x()).unwrap();
    let text = program.graph().to_string();
    assert_snapshot!(text, @"
    graph graph(%p_layers_0_attention_query_weight: f32[4, 4], %p_layers_0_attention_output_weight: f32[4, 4], %p_layers_1_attention_query_weight: f32[4, 4], %p_layers_1_attention_output_weight: f32[4, 4], %p_head_query_weight: f32[4, 4], %p_head_output_weight: f32[4, 4], %x: f32[3, 4]) -> (f32[3, 4])
    {
      %linear: f32[3, 4] = aten::linear(%x, %p_layers_0_attention_query_weight) @ layers.0.attention.query
      %softmax: f32[3, 4] = aten::softmax.int(%linear, -1) @ layers.0.attention
      %linear_1: f32[3, 4] = aten::linear(%softmax, %p_layers_0_attention_output_weight) @ layers.0.attention.output
      %add: f32[3, 4] = aten::add.Tensor(%linear_1, %x) @ layers.0
      %linear_2: f32[3, 4] = aten::linear(%add, %p_layers_1_attention_query_weight) @ layers.1.attention.query
      %softmax_1: f32[3, 4] = aten::softmax.int(%linear_2, -1) @ layers.1.attention
      %linear_3: f32[3, 4] = aten::linear(%softmax_1, %p_layers_1_attention_output_weight) @ layers.1.attention.output
      %add_1: f32[3, 4] = aten::add.Tensor(%linear_3, %add) @ layers.1
      %gelu: f32[3, 4] = aten::gelu(%add_1) @ layers.1.activation
      %linear_4: f32[3, 4] = aten::linear(%gelu, %p_head_query_weight) @ head.query
      %softmax_2: f32[3, 4] = aten::softmax.int(%linear_4, -1) @ head
      %linear_5: f32[3, 4] = aten::linear(%softmax_2, %p_head_output_weight) @ head.output
      %neg: f32[3, 4] = aten::neg(%linear_5)
      return %neg
    }
    ");
    let parsed = Graph::parse(&text).unwrap();
    assert_eq!((&parsed, parsed.to_string()), (program.graph(), text));
}

#[test]
fn pictures_have_a_cluster_for_each_scope() {
    let traced = maquette::trace(|x| encoder().forward(x), x()).unwrap();
    let dot = traced.graph().to_dot(&library::Facts);
    let clusters: Vec<&str> =
        dot.lines().map(str::trim).filter(|l| l.starts_with("subgraph") || *l == "}").collect();
    assert_snapshot!(clusters.join("\n"), @r#"
    subgraph "cluster_layers" {
    subgraph "cluster_layers.0" {
    subgraph "cluster_layers.0.attention" {
    subgraph "cluster_layers.0.attention.query" {
    }
    subgraph "cluster_layers.0.attention.output" {
    }
    }
    }
    subgraph "cluster_layers.1" {
    subgraph "cluster_layers.1.attention" {
    subgraph "cluster_layers.1.attention.query" {
    }
    subgraph "cluster_layers.1.attention.output" {
    }
    }
    subgraph "cluster_layers.1.activation" {
    }
    }
    }
    subgraph "cluster_head" {
    subgraph "cluster_head.query" {
    }
    subgraph "cluster_head.output" {
    }
    }
    }
    "#);
}

#[test]
fn decomposed_and_fused_programs_have_scopes() {
    let model = encoder();
    let traced = maquette::trace(|x| model.forward(x), x()).unwrap();
    let decomposed = maquette::decompose(traced.graph()).unwrap();
    assert_snapshot!(scopes(&decomposed.graph), @"
    aten::t @ layers.0.attention.query
    aten::mm @ layers.0.attention.query
    aten::_softmax @ layers.0.attention
    aten::t @ layers.0.attention.output
    aten::mm @ layers.0.attention.output
    aten::add.Tensor @ layers.0
    aten::t @ layers.1.attention.query
    aten::mm @ layers.1.attention.query
    aten::_softmax @ layers.1.attention
    aten::t @ layers.1.attention.output
    aten::mm @ layers.1.attention.output
    aten::add.Tensor @ layers.1
    aten::gelu @ layers.1.activation
    aten::t @ head.query
    aten::mm @ head.query
    aten::_softmax @ head
    aten::t @ head.output
    aten::mm @ head.output
    aten::neg @ -
    ");

    let f = compile(|x: Tensor| model.forward(x));
    let expected = model.forward(x());
    assert_eq!(f.call(x()).unwrap().to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    let profile = f.profile(x(), &ProfileOptions::new().warm_up(1).repeat(1)).unwrap();
    let kernels = profile.kernels.iter();
    let kernels = kernels.map(|k| format!("{} @ {}", k.label(), k.scope().unwrap_or("-")));
    assert_snapshot!(kernels.collect::<Vec<_>>().join("\n"), @"
    mm @ layers.0.attention.query
    _softmax @ layers.0.attention
    mm + add @ layers.0
    mm @ layers.1.attention.query
    _softmax @ layers.1.attention
    mm + add + gelu @ layers.1
    mm @ head.query
    _softmax @ head
    mm + neg @ -
    ");
    let mut groups: Vec<String> = profile.by_scope().groups.into_iter().map(|g| g.label).collect();
    groups.sort();
    assert_snapshot!(groups.join("\n"), @"
    (no scope)
    head
    head.query
    layers.0
    layers.0.attention
    layers.0.attention.query
    layers.1
    layers.1.attention
    layers.1.attention.query
    ");
    assert!(profile.to_string().contains("@ layers.0.attention"), "{profile}");
    assert!(profile.chrome_trace().contains("\"scope\": \"layers.0.attention"));
}

#[test]
fn derivatives_have_the_scope_of_their_call() {
    let model = encoder();
    let loss = |x: Tensor| named_scope("loss", || model.layers[0].forward(x)).sum();
    let traced = maquette::trace(value_and_grad(loss), x()).unwrap();
    assert_snapshot!(scopes(traced.graph()), @"
    aten::t @ loss.attention.query
    aten::mm @ loss.attention.query
    aten::_softmax @ loss.attention
    aten::t @ loss.attention.output
    aten::mm @ loss.attention.output
    aten::add.Tensor @ loss
    aten::sum @ -
    aten::ones_like @ -
    aten::unsqueeze @ -
    aten::unsqueeze @ -
    aten::expand @ -
    aten::transpose.int @ loss.attention.output
    aten::mm @ loss.attention.output
    aten::mul.Tensor @ loss.attention
    aten::sum.dim_IntList @ loss.attention
    aten::mul.Tensor @ loss.attention
    aten::sub.Tensor @ loss.attention
    aten::transpose.int @ loss.attention.query
    aten::mm @ loss.attention.query
    aten::add.Tensor @ -
    ");
}

#[test]
fn what_a_checkpoint_runs_again_has_its_scope() {
    #[derive(Module)]
    #[module(Tensor -> Tensor)]
    struct Net {
        layer: Arc<Layer>,
    }

    #[scoped]
    impl Net {
        fn forward(&self, x: Tensor) -> Tensor {
            let layer = self.layer.clone();
            let run = checkpoint(move |x: Tensor| layer.forward(x));
            run(x).unwrap_or_else(Tensor::poison).sum()
        }
    }

    let layer = Arc::new(Layer { attention: attention(2), activation: Some(Arc::new(Gelu)) });
    let net = Net { layer };
    let traced = maquette::trace(value_and_grad(|x: Tensor| net.forward(x)), x()).unwrap();
    let graph = traced.graph();
    let expected = [
        ("layer", "aten::add.Tensor"),
        ("layer.activation", "aten::gelu"),
        ("layer.attention", "aten::_softmax"),
        ("layer.attention.output", "aten::mm"),
    ];
    let count = |scope: &str, op: &str| {
        let is = |n: &NodeId| graph.scope(*n) == Some(scope) && graph.op_name(*n) == op;
        graph.nodes().filter(is).count()
    };
    for (scope, op) in expected {
        let times = if op == "aten::mm" { 3 } else { 2 };
        assert_eq!(count(scope, op), times, "{scope}:\n{graph}");
    }
}

#[test]
fn functional_calls_and_named_scopes() {
    let model = encoder();
    let call = |x: Tensor| {
        let out = func::functional_call(&model, &Default::default(), x);
        named_scope("loss.ünit", || out.unwrap_or_else(Tensor::poison).sum())
    };
    let traced = maquette::trace(call, x()).unwrap();
    let graph = traced.graph();
    let last: Vec<_> = graph.nodes().filter_map(|n| graph.scope(n)).collect();
    assert_eq!(
        (last.first(), last.last()),
        (Some(&"layers.0.attention.query"), Some(&"loss._nit"))
    );
}

#[test]
fn a_module_that_is_not_a_part_stands_for_its_place() {
    let call = |x: Tensor| named_scope("outer", || attention(2).forward(x));
    let traced = maquette::trace(call, x()).unwrap();
    assert_snapshot!(scopes(traced.graph()), @"
    aten::lift_fresh_copy @ outer
    aten::lift_fresh_copy @ outer
    aten::linear @ outer.query
    aten::softmax.int @ outer
    aten::linear @ outer.output
    ");
}

#[test]
fn a_shared_part_has_the_nearest_path() {
    #[derive(Module)]
    struct Pair {
        first: Arc<Linear>,
        second: Arc<Linear>,
    }

    #[derive(Module)]
    #[module(Tensor -> Tensor)]
    struct Both {
        left: Pair,
        right: Pair,
    }

    #[scoped]
    impl Pair {
        fn run(&self, x: &Tensor) -> Tensor {
            self.second.apply(&self.first.apply(x))
        }
    }

    impl Both {
        fn forward(&self, x: Tensor) -> Tensor {
            self.right.run(&self.left.run(&x))
        }
    }

    let shared = Arc::new(linear(3));
    let pair = || Pair { first: shared.clone(), second: shared.clone() };
    let both = Both { left: pair(), right: pair() };
    let traced = maquette::trace(|x| Module::forward(&both, x), x()).unwrap();
    assert_snapshot!(scopes(traced.graph()), @"
    aten::linear @ left.first
    aten::linear @ left.first
    aten::linear @ right.first
    aten::linear @ right.first
    ");
}

#[test]
fn errors_name_the_scope() {
    let model = encoder();
    let wide = Tensor::ones([3, 5], DType::F32);
    let traced = maquette::trace(|x| model.forward(x), wide).unwrap_err();
    assert_eq!(traced.scope(), Some("layers.0.attention.query"));
    let text = traced.to_string();
    let last = text.lines().last().unwrap();
    assert!(last.contains("tests/scopes.rs:") && last.ends_with(" in layers.0.attention.query"));

    #[derive(Module)]
    #[module(Tensor -> Tensor)]
    struct Table {
        rows: Rows,
    }

    #[derive(Module)]
    struct Rows {
        weight: Tensor,
    }

    #[scoped]
    impl Rows {
        fn get(&self, ids: &Tensor) -> Tensor {
            self.weight.embedding(ids)
        }
    }

    impl Table {
        fn forward(&self, ids: Tensor) -> Tensor {
            self.rows.get(&ids) + 1.0
        }
    }

    let table = Table { rows: Rows { weight: Tensor::ones([4, 2], DType::F32) } };
    let f = compile(|ids: Tensor| Module::forward(&table, ids));
    f.call(Tensor::from([1i64])).unwrap();
    let e = f.call(Tensor::from([7i64])).unwrap_err();
    assert_eq!(e.scope(), Some("rows"), "{e}");
    assert!(e.to_string().contains(" in rows\n"), "{e}");
}

#[test]
fn eager_programs_have_no_scopes() {
    let model = encoder();
    let e = model.forward(Tensor::ones([3, 5], DType::F32)).ok().cloned().unwrap_err();
    assert_eq!(e.scope(), None);
}
