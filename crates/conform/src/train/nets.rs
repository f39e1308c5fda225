//! The recorded networks. A recording describes its network by the field `forward`, in PyTorch's
//! functional names; these functions are the same in Rust.

use super::recording::Recording;
use maquette_ir::DType;
use maquette_ops::{Error, FakeCtx, Op, Reduction, Result, Tensor, Value, args, custom_op};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The operator of the network `sine`, which no pass looks into.
const NUMPY_SIN: &str = "mylib::numpy_sin";

/// The norm's epsilon in the network `decoder`.
const RMS_EPS: f64 = 1e-6;

/// The tensors of a network by name.
pub(super) struct Named<'a>(BTreeMap<&'a str, &'a Tensor>);

impl<'a> Named<'a> {
    pub(super) fn new(parts: [(&'a Vec<String>, &'a Vec<Tensor>); 2]) -> Named<'a> {
        let pairs = parts.into_iter().flat_map(|(names, tensors)| names.iter().zip(tensors));
        Named(pairs.map(|(name, t)| (name.as_str(), t)).collect())
    }

    fn get(&self, name: &str) -> Result<&'a Tensor> {
        let missing = || Error::value(format!("the network has no tensor `{name}`"));
        self.0.get(name).copied().ok_or_else(missing)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The linear layer `name`.
    fn linear(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        let bias = self.0.get(format!("{name}.bias").as_str()).copied();
        Ok(x.linear(self.get(&format!("{name}.weight"))?, bias))
    }
}

/// The loss of a batch.
///
/// # Errors
/// The network is unknown, or lacks a tensor or a number of its configuration.
pub(super) fn loss(recording: &Recording, t: &Named<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match recording.net.as_str() {
        "mlp" => mlp(t, x, y),
        "cnn" => cnn(t, x, y),
        "decoder" => decoder(recording, t, x, y),
        "sine" => sine(t, x, y),
        other => Err(Error::value(format!("the network `{other}` is not known"))),
    }
}

fn cross_entropy(scores: &Tensor, y: &Tensor) -> Tensor {
    scores.cross_entropy_loss(y, None, Reduction::Mean, -100, 0.0)
}

/// Linear layers `fc1`, `fc2`, … with `relu` between them.
fn mlp(t: &Named<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let mut h = t.linear("fc1", x)?;
    for layer in (2..).take_while(|layer| t.has(&format!("fc{layer}.weight"))) {
        h = t.linear(&format!("fc{layer}"), &h.relu())?;
    }
    Ok(cross_entropy(&h, y))
}

/// Two convolutions, each with a batch norm in training mode.
fn cnn(t: &Named<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let layer = |k: usize, h: &Tensor| -> Result<Tensor> {
        let h = h.conv2d(t.get(&format!("conv{k}.weight"))?, None, [1, 1], [1, 1], [1, 1], 1);
        let norm = |part: &str| t.get(&format!("bn{k}.{part}"));
        let running = (norm("running_mean")?, norm("running_var")?);
        norm("num_batches_tracked")?.add_(1).ok()?;
        let (weight, bias) = (Some(norm("weight")?), Some(norm("bias")?));
        Ok(h.batch_norm_train(weight, bias, Some(running), 0.1, 1e-5).relu())
    };
    let h = layer(1, x)?.max_pool2d([2, 2], [2, 2], [0, 0]);
    let h = layer(2, &h)?.mean_dim([2, 3], false);
    Ok(cross_entropy(&t.linear("fc", &h)?, y))
}

/// Blocks of causal attention and a gated product, with a head that is the embedding's.
fn decoder(recording: &Recording, t: &Named<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (batch, length) = (recording.number("B")?, recording.number("T")?);
    let (width, heads) = (recording.number("D")?, recording.number("HEADS")?);
    let norm = |name: &str, h: &Tensor| -> Result<Tensor> {
        Ok(h.rms_norm([width], Some(t.get(&format!("{name}.weight"))?), Some(RMS_EPS)))
    };
    let embedding = t.get("emb.weight")?;
    let mut h = embedding.embedding(x);
    for layer in (0..).take_while(|layer| t.has(&format!("{layer}.norm1.weight"))) {
        // Products are stored without the `.weight` of a layer.
        let product = |name: &str, h: &Tensor| -> Result<Tensor> {
            Ok(h.linear(t.get(&format!("{layer}.{name}"))?, None))
        };
        let n = norm(&format!("{layer}.norm1"), &h)?;
        let head = |name: &str| -> Result<Tensor> {
            Ok(product(name, &n)?.view([batch, length, heads, width / heads]).transpose(1, 2))
        };
        let (q, k, v) = (head("wq")?, head("wk")?, head("wv")?);
        let a = q.scaled_dot_product_attention(&k, &v, None, true, None, false);
        let attended = h + product("wo", &a.transpose(1, 2).reshape([batch, length, width]))?;
        let n = norm(&format!("{layer}.norm2"), &attended)?;
        h = attended + product("w2", &(product("w1", &n)?.silu() * product("w3", &n)?))?;
    }
    let logits = norm("norm", &h)?.linear(embedding, None);
    Ok(cross_entropy(&logits.view([batch * length, -1]), &y.view([batch * length])))
}

/// Two linear layers with the custom operator between them.
fn sine(t: &Named<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let h = Op::find(NUMPY_SIN)?.call(args![&t.linear("fc1", x)?])?.remove(0);
    Ok(t.linear("fc2", h.tensor()?)?.mse_loss(y, Reduction::Mean))
}

/// Registers the custom operator, unless the program has done so.
///
/// # Errors
/// The registration is refused.
pub(super) fn register() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    REGISTERED.get_or_init(register_numpy_sin).clone()
}

fn register_numpy_sin() -> Result<()> {
    if Op::find(NUMPY_SIN).is_ok() {
        return Ok(());
    }
    let op = custom_op(NUMPY_SIN)
        .kernel(|x: &Tensor| -> Result<Tensor> {
            Ok(match x.dtype() {
                DType::F32 => Tensor::from(x.read::<f32>()?.mapv(f32::sin)),
                _ => Tensor::from(x.read::<f64>()?.mapv(f64::sin)),
            })
        })
        .register()?;
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })?;
    op.register_autograd_with(
        |ctx, inputs: &[Value], _| {
            ctx.save(inputs[0].tensor()?);
            Ok(())
        },
        |ctx, grads| Ok(vec![Some(&grads[0] * ctx.saved(0)?.cos())]),
    )
}
