//! Batch norm and instance norm: each channel is normalized with the statistics of the batch, or
//! with running statistics. In training, the running statistics are updated.
//!
//! PyTorch has one operator for each signature of these writes. `native_batch_norm` and
//! `batch_norm` do not declare them, so a trace records the `_native_batch_norm_legit` operators
//! that they call instead.

mod nest;

use super::{compute_dtype, norm, require_affine};
use maquette_ir::{DType, Loc};
use maquette_ops::operator::dims::{
    done, fresh, in_format_of, is_zero, require, require_float, require_rank,
};
use maquette_ops::operator::lowering::{How, Lowering, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{aten, dims_text, table};
use maquette_ops::operator::{aten_outputs, results};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};
use nest::{Running, nest};
use smallvec::smallvec;

/// The arguments after `input, weight, bias` in a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `running_mean, running_var, training, momentum, eps`
    Full,
    /// `training, momentum, eps`
    NoStats,
    /// `running_mean, running_var, momentum, eps`; the field is `training`.
    Fixed(bool),
}

struct BatchNorm<'a> {
    x: &'a Tensor,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    /// Running mean and variance.
    running: Option<[&'a Tensor; 2]>,
    training: bool,
    momentum: f64,
    eps: f64,
}

impl<'a> BatchNorm<'a> {
    /// Reads the arguments of an operator of this form.
    fn of(args: &'a [Value], form: Form) -> Result<BatchNorm<'a>> {
        let running = match form {
            Form::NoStats => None,
            _ => match (args[3].opt_tensor()?, args[4].opt_tensor()?) {
                (Some(mean), Some(var)) => Some([mean, var]),
                (None, None) => None,
                _ => {
                    return Err(Error::value(
                        "`running_mean` and `running_var` must be given together, or neither of \
                            them",
                    ));
                }
            },
        };
        let (training, at) = match form {
            Form::Full => (args[5].bool()?, 6),
            Form::NoStats => (args[3].bool()?, 4),
            Form::Fixed(training) => (training, 5),
        };
        if !training && running.is_none() {
            return Err(Error::value(
                "`running_mean` and `running_var` must be given if `training` is false",
            ));
        }
        let (momentum, eps) = (args[at].float()?, args[at + 1].float()?);
        Ok(BatchNorm {
            x: args[0].tensor()?,
            weight: args[1].opt_tensor()?,
            bias: args[2].opt_tensor()?,
            running,
            training,
            momentum,
            eps,
        })
    }

    /// The weight, bias and running statistics that are present.
    fn parameters(&self) -> impl Iterator<Item = &'a Tensor> {
        self.weight.into_iter().chain(self.bias).chain(self.running.into_iter().flatten())
    }

    /// The dtype of the statistics. It is the dtype of the parameters: the input's dtype, or `f32`
    /// with half-precision inputs.
    fn statistics_dtype(&self) -> Result<DType> {
        let own = self.x.dtype();
        let found = self.parameters().next().map_or(own, Tensor::dtype);
        let fits = found == own || found == DType::F32 && compute_dtype(own) == DType::F32;
        if fits && self.parameters().all(|t| t.dtype() == found) {
            return Ok(found);
        }
        Err(Error::value(format!(
            "weight, bias and running statistics must all have the dtype of `input`, {own}, or f32 \
                if `input` has half precision; found {}",
            self.parameters().map(|t| t.dtype().to_string()).collect::<Vec<_>>().join(", ")
        )))
    }

    /// The metadata of the output, and of the batch's mean and reciprocal standard deviation. The
    /// latter two are empty outside training.
    #[track_caller]
    fn metas(&self, args: &[Value]) -> Result<Metas> {
        require_float("input", self.x)?;
        require_rank("input", self.x, 2..=64)?;
        let channels = &self.x.sizes()[1..2];
        require_affine(&args[1..3], channels)?;
        for (name, t) in
            ["running_mean", "running_var"].into_iter().zip(self.running.into_iter().flatten())
        {
            require_same(channels, t.sizes(), || format!("argument `{name}` must have"))?;
        }
        if self.training {
            require(self.x.numel().ge(1), || {
                "the statistics of a batch need at least one element in `input`".into()
            })?;
        }
        let dtype = self.statistics_dtype()?;
        let s =
            fresh(self.x, if self.training { channels.into() } else { smallvec![0.into()] }, dtype);
        Ok(smallvec![
            in_format_of(self.x, fresh(self.x, self.x.sizes().into(), self.x.dtype()))?,
            s.clone(),
            s
        ])
    }

    /// The same computation by the operators whose schemas declare the writes.
    fn declared(&self) -> Result<[Tensor; 3]> {
        let loc = Loc::caller();
        let (x, w, b, momentum, eps) = (self.x, self.weight, self.bias, self.momentum, self.eps);
        let parts: [Tensor; 3] = results(match self.running {
            Some([mean, var]) if self.training => {
                aten_outputs!("_native_batch_norm_legit", loc;
                    x, w, b, mean, var, true, momentum, eps
                )
            }
            Some([mean, var]) => {
                aten_outputs!("_native_batch_norm_legit_no_training", loc;
                    x, w, b, mean, var, momentum, eps
                )
            }
            None => {
                aten_outputs!("_native_batch_norm_legit.no_stats", loc;
                    x, w, b, true, momentum, eps
                )
            }
        });
        parts.iter().try_for_each(|t| t.ok().map(drop))?;
        Ok(parts)
    }
}

/// Adds the empty `reserve` output, which PyTorch uses for gradients.
fn with_reserve(mut metas: Metas, x: &Tensor) -> Metas {
    metas.push(fresh(x, smallvec![0.into()], DType::U8));
    metas
}

/// Adds the outputs for the new running statistics.
fn functional_metas(mut metas: Metas, n: &BatchNorm<'_>) -> Metas {
    metas.extend(n.running.into_iter().flatten().map(|t| fresh(t, t.sizes().into(), t.dtype())));
    metas
}

/// Whether a call writes running statistics: in training, if they are present.
fn updates(args: &[Value]) -> Result<bool> {
    Ok(args[5].bool()? && !args[3].is_none())
}

fn batch_norm(args: &[Value]) -> Result<Outputs> {
    let x = args[0].tensor()?;
    if x.dim() < 2 {
        require(x.numel().eq(0), || {
            format!(
                "argument `input` must have a dimension of channels, found sizes {}",
                dims_text(x.sizes())
            )
        })?;
    }
    if x.dim() < 2 || is_zero(x.numel())? {
        return done(aten!("clone", Loc::caller(); x));
    }
    let [y, ..] = BatchNorm::of(args, Form::Full)?.declared()?;
    done(y)
}

/// Instance norm as a batch norm in which each channel of each sample is a channel. Running
/// statistics are the means over the samples.
fn instance_norm(args: &[Value]) -> Result<Outputs> {
    let loc = Loc::caller();
    let n = BatchNorm::of(args, Form::Full)?;
    require_rank("input", n.x, 2..=64)?;
    let (samples, channels) = (n.x.sizes()[0], n.x.sizes()[1]);
    let side_by_side = |t: &Tensor| t.repeat([samples]);
    let mut sizes: Dims = n.x.sizes().into();
    sizes[0] = 1.into();
    sizes[1] = samples * channels;
    let (weight, bias) = (n.weight.map(side_by_side), n.bias.map(side_by_side));
    let running = n.running.map(|r| r.map(side_by_side));
    let (mean, var) = (running.as_ref().map(|r| &r[0]), running.as_ref().map(|r| &r[1]));
    let flat = n.x.reshape(sizes);
    let (weight, bias) = (weight.as_ref(), bias.as_ref());
    let y = aten!("batch_norm", loc;
        &flat, weight, bias, mean, var, n.training, n.momentum, n.eps, false
    );
    if let (Some(old), Some(new), true) = (n.running, &running, n.training) {
        for (old, new) in old.into_iter().zip(new) {
            let mean = new.view([samples, channels]).mean_dim(0i64, false);
            aten!("copy_", loc; old, &mean).ok()?;
        }
    }
    done(y.reshape(n.x.sizes()))
}

table! {
    /// Batch norm and instance norm.
    static TABLE = {
        "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor? running_mean, Tensor? running_var, bool training, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::UnannotatedComposite {
                when: updates,
                body: |a| {
                    Ok(BatchNorm::of(a, Form::Full)?
                        .declared()?
                        .map(Value::Tensor)
                        .into_iter()
                        .collect())
                },
            },
        },
        "aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| BatchNorm::of(a, Form::Full)?.metas(a),
                How::Loops(|cx| nest(cx, Form::Full, false, Running::Updated)),
            ),
            vjp: crate::grad::BATCH_NORM,
        },
        "aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, \
            Tensor? bias, bool training, float momentum, float eps) \
            -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| BatchNorm::of(a, Form::NoStats)?.metas(a),
                How::Loops(|cx| nest(cx, Form::NoStats, false, Running::Kept)),
            ),
            vjp: crate::grad::BATCH_NORM_NO_STATS,
        },
        "aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, \
            Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| BatchNorm::of(a, Form::Fixed(false))?.metas(a),
                How::Loops(|cx| nest(cx, Form::Fixed(false), false, Running::Kept)),
            ),
            vjp: crate::grad::BATCH_NORM_NO_TRAINING,
        },
        "aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, \
            Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, \
            float eps) \
            -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| {
                    let n = BatchNorm::of(a, Form::Full)?;
                    Ok(functional_metas(n.metas(a)?, &n))
                },
                How::Loops(|cx| nest(cx, Form::Full, false, Running::Returned)),
            ),
            vjp: crate::grad::BATCH_NORM,
        },
        "aten::_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| {
                    let n = BatchNorm::of(a, Form::Fixed(true))?;
                    Ok(with_reserve(n.metas(a)?, n.x))
                },
                How::Loops(|cx| nest(cx, Form::Fixed(true), true, Running::Updated)),
            ),
            vjp: crate::grad::BATCH_NORM_UPDATE,
        },
        "aten::_batch_norm_with_update_functional(Tensor input, Tensor? weight, \
            Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, \
            Tensor running_var_out)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| {
                    let n = BatchNorm::of(a, Form::Fixed(true))?;
                    Ok(functional_metas(with_reserve(n.metas(a)?, n.x), &n))
                },
                How::Loops(|cx| nest(cx, Form::Fixed(true), true, Running::Returned)),
            ),
            vjp: crate::grad::BATCH_NORM_UPDATE,
        },
        "aten::_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor? running_mean, Tensor? running_var, float momentum, \
            float eps) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| {
                    let n = BatchNorm::of(a, Form::Fixed(false))?;
                    Ok(with_reserve(n.metas(a)?, n.x))
                },
                How::Loops(|cx| nest(cx, Form::Fixed(false), true, Running::Kept)),
            ),
            vjp: crate::grad::BATCH_NORM_NO_TRAINING,
        },
        "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, \
            bool cudnn_enabled) -> Tensor" => {
            role: General,
            lowering: Lowering::UnannotatedComposite { when: updates, body: batch_norm },
        },
        "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, \
            Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, \
            float eps, bool cudnn_enabled) -> Tensor" => {
            role: General,
            lowering: Lowering::UnannotatedComposite { when: updates, body: instance_norm },
        },
    }
}
