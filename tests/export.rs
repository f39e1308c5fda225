//! Modules by derive, exported, and what calls of the exported program are refused.

use insta::assert_snapshot;
use maquette::prelude::*;
use maquette::{Module, OutputKind};
use std::sync::Arc;

/// A part of modules, with a method of its own shape.
#[derive(Module)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    fn new(from: i64, to: i64, bias: bool) -> Linear {
        let weight =
            Tensor::from_vec((0..from * to).map(|i| (i % 7) as f32 - 3.0).collect(), [to, from]);
        Linear { weight, bias: bias.then(|| Tensor::ones([to], DType::F32)) }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// Remembers how often it was called; everything under a buffer is a buffer.
#[derive(Module)]
struct Statistics {
    calls: Tensor,
    r#type: Tensor,
}

#[derive(Clone, Tree)]
struct Batch {
    ids: Tensor,
    rows: Vec<Tensor>,
    bias: Option<Tensor>,
    temperature: f64,
}

struct Config {
    masked: bool,
}

#[derive(Module)]
#[module(Batch -> Result<(Tensor, Vec<Tensor>)>)]
struct Encoder<'a, P> {
    embedding: Tensor,
    layers: Vec<Linear>,
    pair: [Linear; 2],
    behind: Arc<Linear>,
    lent: &'a P,
    norm: Norm,
    #[buffer]
    statistics: Statistics,
    #[module(skip)]
    config: Config,
    epsilon: f64,
}

#[derive(Module)]
struct Norm(Tensor, Option<Box<Echo>>);

/// A module by hand, inside of another.
struct Echo {
    kept: Tensor,
}

impl Module for Echo {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        x
    }

    fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        v("kept", Slot::Buffer, &self.kept);
    }
}

impl<P> Encoder<'_, P> {
    fn forward(&self, batch: Batch) -> Result<(Tensor, Vec<Tensor>)> {
        batch.ids.size(0).le(batch.rows[0].size(0)).check("a row for each token")?;
        self.statistics.calls.add_(1i64);
        let x = self.embedding.embedding(&batch.ids) * batch.temperature + self.epsilon;
        let x = self.layers.iter().fold(x, |x, layer| layer.apply(&x).relu());
        batch.rows[1].mul_(2.0);
        let x = if self.config.masked { &x + &batch.rows[1] } else { x };
        let x = batch.bias.as_ref().map_or_else(|| x.clone(), |bias| &x + bias);
        Ok((x * &self.norm.0, batch.rows))
    }
}

fn encoder(lent: &Linear) -> Encoder<'_, Linear> {
    let square = |bias| Linear::new(3, 3, bias);
    let shared = Arc::new(square(true));
    Encoder {
        embedding: Tensor::ones([10, 3], DType::F32),
        layers: vec![square(true), square(false)],
        pair: [square(false), square(false)],
        behind: shared,
        lent,
        norm: Norm(
            Tensor::ones([3], DType::F32),
            Some(Box::new(Echo { kept: Tensor::zeros([2], DType::F32) })),
        ),
        statistics: Statistics { calls: Tensor::from([0i64]), r#type: Tensor::from([1i64]) },
        config: Config { masked: true },
        epsilon: 0.5,
    }
}

fn batch() -> Batch {
    let row = |n: f32| Tensor::from([[n, n + 1.0, n + 2.0], [1.0, 0.0, n]]);
    Batch {
        ids: Tensor::from([3i64, 1]),
        rows: vec![row(0.0), row(5.0)],
        bias: None,
        temperature: 0.25,
    }
}

fn options() -> ExportOptions {
    let (tokens, rows) = (Dim::new("tokens").max(10), Dim::new("rows").min(1).max(20));
    ExportOptions::new().dynamic(0, 0, tokens.clone()).dynamic(2, 0, tokens).dynamic(1, 0, rows)
}

#[test]
fn names() {
    let lent = Linear::new(2, 1, false);
    let encoder = encoder(&lent);
    let mut names = Vec::new();
    encoder.visit(&mut |name, slot, t| names.push(format!("{} {name}: {}", slot.name(), t.meta())));
    assert_snapshot!("module_names", names.join("\n"));
}

#[test]
fn boxes_and_numbers_in_a_module() {
    #[derive(Module)]
    struct Part {
        w: Tensor,
    }
    #[derive(Module)]
    struct Net<'a> {
        a: Box<Tensor>,
        b: Box<Part>,
        c: &'a &'a Part,
        eps: f32,
        steps: i32,
        seed: u64,
        widths: [u8; 2],
    }
    #[derive(Module)]
    #[module(Tensor -> Tensor)]
    struct Outer<'a> {
        #[buffer]
        net: std::boxed::Box<Net<'a>>,
        dynamic: Box<dyn Module<In = Tensor, Out = Tensor>>,
    }
    impl Outer<'_> {
        fn forward(&self, x: Tensor) -> Tensor {
            let net = &self.net;
            let number = f64::from(net.eps) * f64::from(net.steps) + net.seed as f64;
            let x = (x + &net.c.w) * &*net.a + &net.b.w + number;
            self.dynamic.forward(x + i64::from(net.widths[1]))
        }
    }
    let ones = || Tensor::ones([2], DType::F32);
    let lent = &Part { w: ones() };
    let net = Net {
        a: Box::new(ones() * 2.0),
        b: Box::new(Part { w: ones() }),
        c: &lent,
        eps: 0.5,
        steps: 4,
        seed: 3,
        widths: [0, 1],
    };
    let outer = Outer { net: Box::new(net), dynamic: Box::new(Echo { kept: ones() }) };
    let mut names = Vec::new();
    outer.visit(&mut |name, slot, _| names.push(format!("{} {name}", slot.name())));
    assert_eq!(names, ["buffer net.a", "buffer net.b.w", "buffer net.c.w", "buffer dynamic.kept"]);
    let program = ExportOptions::new().export(&outer, ones()).unwrap();
    assert_eq!(program.call(ones()).unwrap().to_vec::<f32>().unwrap(), [11.0; 2]);
}

#[test]
fn an_exported_program() {
    let lent = Linear::new(2, 1, false);
    let encoder = encoder(&lent);
    let program: Program<Batch, _> = options().name("encoder").export(&encoder, batch()).unwrap();
    assert_snapshot!("exported_program", program);
    let picture = program.to_dot();
    for role in ["parameter\\n%", "buffer\\n%", "input\\n%"] {
        assert!(picture.contains(role), "{picture}");
    }
    for call in 1..4 {
        let (eager, exported) = (batch(), batch());
        let (x, rows) = encoder.forward(eager.clone()).unwrap();
        let (y, same_rows) = program.call(exported.clone()).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
        for ((a, b), given) in rows.iter().zip(&same_rows).zip(&exported.rows) {
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
            assert!(b.shares_storage(given), "an output that is an input comes back as that input");
        }
        let calls = program.state().find(|(name, ..)| *name == "statistics.calls").unwrap().2;
        assert_eq!(calls.to_vec::<i64>().unwrap(), [call]);
    }
    let written: Vec<&str> = program
        .signature()
        .outputs
        .iter()
        .filter(|o| o.kind == OutputKind::BufferMutation)
        .map(|o| o.name.as_str())
        .collect();
    assert_eq!(written, ["statistics.calls"]);
    let [assertion] = &program.assertions()[..] else { panic!("{:?}", program.assertions()) };
    assert_eq!(assertion.message.as_deref(), Some("a row for each token"));
    assert!(assertion.loc.unwrap().file.ends_with("export.rs"));
}

#[test]
fn refused_calls() {
    let lent = Linear::new(2, 1, false);
    let program = options().export(&encoder(&lent), batch()).unwrap();
    let rows = |n: i64, dtype: DType| Tensor::zeros([n, 3], dtype);
    let shared = rows(2, DType::F32);
    let mut out = String::new();
    let mut refused = |what: &str, change: &dyn Fn(&mut Batch)| {
        let mut batch = batch();
        change(&mut batch);
        let before: Vec<_> = batch.rows.iter().filter_map(|r| r.to_vec::<f32>().ok()).collect();
        let e = program.call(batch.clone()).unwrap_err();
        let after: Vec<_> = batch.rows.iter().filter_map(|r| r.to_vec::<f32>().ok()).collect();
        assert_eq!(before, after, "a refused call writes nothing");
        let text = e
            .to_string()
            .lines()
            .take_while(|l| !l.starts_with("  ") && !l.starts_with("> "))
            .collect::<Vec<_>>()
            .join("\n");
        out += &format!("{what}: {text}\n");
        let here = e.loc().is_some_and(|l| l.file.ends_with("export.rs"));
        assert!(here, "{e}");
    };
    refused("dtype", &|b| b.rows[0] = rows(2, DType::F64));
    refused("dtype of indices", &|b| b.ids = Tensor::from([1i32, 2]));
    refused("rank", &|b| b.ids = Tensor::from([[1i64, 2]]));
    refused("static size", &|b| b.rows[0] = Tensor::zeros([2, 4], DType::F32));
    refused("range", &|b| {
        b.ids = Tensor::zeros([11], DType::I64);
        b.rows[1] = rows(11, DType::F32);
    });
    refused("range below", &|b| b.rows[0] = rows(0, DType::F32));
    refused("one size in two places", &|b| b.rows[1] = rows(3, DType::F32));
    refused("assertion", &|b| b.rows[0] = rows(1, DType::F32));
    refused("strides", &|b| b.rows[0] = Tensor::zeros([3, 2], DType::F32).t());
    refused("no data", &|b| b.rows[0] = Tensor::fake([2, 3], DType::F32));
    refused("length of a list", &|b| b.rows.push(rows(2, DType::F32)));
    refused("presence of an option", &|b| b.bias = Some(Tensor::ones([3], DType::F32)));
    refused("number", &|b| b.temperature = 0.5);
    refused("an input that is written and shares memory", &|b| {
        b.rows = vec![shared.clone(), shared.slice(0, ..)]
    });
    assert_snapshot!("refused_calls", out);
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Scaled {
    scale: Tensor,
}

impl Scaled {
    fn forward(&self, x: Tensor) -> Tensor {
        x * &self.scale
    }
}

#[test]
fn a_program_of_another_device_refuses_host_tensors() {
    let cuda = |t: &Tensor| Tensor::fake_of(t.meta().clone().on(Device::cuda(0)));
    let ones = Tensor::ones([2], DType::F32);
    // a sample needs no data, and so no device
    let program = ExportOptions::new().names(["x"]).export(&Identity {}, cuda(&ones)).unwrap();
    let e = program.call(ones).unwrap_err().to_string();
    assert!(e.starts_with("input `x`: device must be cuda:0, found cpu"), "{e}");
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Identity {}

impl Identity {
    fn forward(&self, x: Tensor) -> Tensor {
        x.neg()
    }
}

#[test]
fn refused_exports() {
    struct Twice(Tensor);
    impl Module for Twice {
        type In = Tensor;
        type Out = Tensor;

        fn forward(&self, x: Tensor) -> Tensor {
            x
        }

        fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
            v("w", Slot::Parameter, &self.0);
            v("w", Slot::Buffer, &self.0);
        }
    }
    let ones = || Tensor::ones([2], DType::F32);
    let text = |e: Error| e.to_string().lines().next().unwrap().to_owned();
    let overlapping = Scaled { scale: ones().expand([3, 2]) };
    struct Writes(Scaled);
    impl Module for Writes {
        type In = Tensor;
        type Out = Tensor;

        fn forward(&self, x: Tensor) -> Tensor {
            x.view([-1i64]).unfold(0, 2, 1).add_(1.0)
        }

        fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
            self.0.visit(v);
        }
    }
    let export = ExportOptions::new();
    let errors = [
        export.export(&Twice(ones()), ones()).unwrap_err(),
        export.export(&Scaled { scale: Tensor::fake([2], DType::F32) }, ones()).unwrap_err(),
        export.export(&Scaled { scale: ones().reshape([3i64]) }, ones()).unwrap_err(),
        export.export(&Scaled { scale: Tensor::ones([3], DType::F32) }, ones()).unwrap_err(),
        export.export(&Writes(overlapping), Tensor::ones([4], DType::F32)).unwrap_err(),
        trace(
            |x: Tensor| {
                ExportOptions::new()
                    .export(&Scaled { scale: x }, Tensor::ones([2], DType::F32))
                    .map(|_| ())
            },
            ones(),
        )
        .unwrap_err(),
        export.clone().dynamic(0, 1, Dim::new("n")).export(&Identity {}, ones()).unwrap_err(),
        export.dynamic(0, 0, Dim::new("n").min(3)).export(&Identity {}, ones()).unwrap_err(),
    ];
    assert_snapshot!("refused_exports", errors.map(text).join("\n"));
}
