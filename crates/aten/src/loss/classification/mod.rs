//! Losses of scores over classes: `nll_loss`, `cross_entropy_loss`, `multi_margin_loss`,
//! `multilabel_margin_loss`.

mod nest;

use super::Reduces;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::Reduction;
use maquette_ops::operator::dims::{
    done, fresh, known_equal, product, require_float, require_rank, require_same_dtype,
};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{cpu_exec, dims_text, host, table};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};
use nest::{multi_margin, nll};
use smallvec::smallvec;

const fn reduce(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Reduce, strides: Strides::RowMajor, metas, how })
}

/// The dimension of the classes: dimension 1 of a batch, dimension 0 of a single example.
fn class_dim(x: &Tensor) -> usize {
    usize::from(x.dim() > 1)
}

fn require_labels(t: &Tensor) -> Result<()> {
    match t.dtype() {
        DType::I64 | DType::U8 => Ok(()),
        found => Err(Error::value(format!(
            "argument `target` must hold class numbers of dtype i64 or u8, found {found}{}",
            dims_text(t.sizes())
        ))),
    }
}

fn labels(t: &Tensor) -> Result<Vec<i64>> {
    host::data::<i64>(&cpu_exec::cast(t, DType::I64)?)
}

/// Requires the class weights, if present, to be one number per class in the dtype of the scores.
fn require_class_weights(x: &Tensor, weight: &Value, classes: SymInt) -> Result<()> {
    let Some(w) = weight.opt_tensor()? else { return Ok(()) };
    require_same_dtype(("self", x), ("weight", w))?;
    require_same(&[classes], w.sizes(), || {
        "argument `weight` must have, one element per class,".into()
    })
}

/// The metadata of the loss and of the total weight. `ranks` are the accepted ranks of `self`.
fn nll_metas(args: &[Value], ranks: std::ops::RangeInclusive<usize>) -> Result<Metas> {
    let (x, target) = (args[0].tensor()?, args[1].tensor()?);
    require_rank("self", x, ranks)?;
    require_float("self", x)?;
    require_labels(target)?;
    let d = class_dim(x);
    require_class_weights(x, &args[2], x.sizes()[d])?;
    let mut target_sizes: Dims = x.sizes().into();
    target_sizes.remove(d);
    // A single example may have its label as a vector of size 1.
    if x.dim() > 1 || target.dim() > 1 {
        require_same(&target_sizes, target.sizes(), || {
            "argument `target` must have, as `self` without its classes,".into()
        })?;
    } else {
        maquette_ops::operator::dims::require(target.numel().eq(1), || {
            format!(
                "argument `target` must be one label, found sizes {}",
                dims_text(target.sizes())
            )
        })?;
    }
    let output =
        if Reduction::of(&args[3])? == Reduction::None { target_sizes } else { Dims::new() };
    Ok(smallvec![fresh(x, output, x.dtype()), fresh(x, Dims::new(), x.dtype())])
}

/// `nll_loss` with any number of spatial dimensions. If there are neither zero nor two, they are
/// flattened to images of height 1 for `nll_loss2d`.
fn nll_nd(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
    ignored: SymInt,
) -> Result<Tensor> {
    match x.dim() {
        0 => Err(Error::value(
            "argument `self` must have a dimension of classes, found a 0-d tensor",
        )),
        1 | 2 => Ok(x.nll_loss(target, weight, reduction, ignored)),
        4 => Ok(x.nll_loss2d(target, weight, reduction, ignored)),
        _ => {
            let (n, space) = (x.sizes()[0], &x.sizes()[2..]);
            let target_sizes: Dims = std::iter::once(n).chain(space.iter().copied()).collect();
            require_same(&target_sizes, target.sizes(), || {
                "argument `target` must have, as `self` without its classes,".into()
            })?;
            let flat = product(space);
            let one = SymInt::from(1);
            let image = x.reshape([n, x.sizes()[1], one, flat]);
            let loss =
                image.nll_loss2d(&target.reshape([n, one, flat]), weight, reduction, ignored);
            Ok(if reduction == Reduction::None { loss.reshape(target_sizes) } else { loss })
        }
    }
}

/// Multiplies `x` by one weight per class.
fn weighted(x: &Tensor, weight: Option<&Tensor>, d: usize) -> Tensor {
    let Some(w) = weight else { return x.clone() };
    let mut sizes: Dims = smallvec![SymInt::from(1); x.dim()];
    sizes[d] = w.numel();
    x * w.reshape(sizes)
}

struct CrossEntropy<'a> {
    x: &'a Tensor,
    target: &'a Tensor,
    weight: Option<&'a Tensor>,
    reduction: Reduction,
    ignored: SymInt,
    smoothing: f64,
}

impl CrossEntropy<'_> {
    fn of(args: &[Value]) -> Result<CrossEntropy<'_>> {
        let (x, target, smoothing) = (args[0].tensor()?, args[1].tensor()?, args[5].float()?);
        require_rank("self", x, 1..=64)?;
        require_float("self", x)?;
        require_class_weights(x, &args[2], x.sizes()[class_dim(x)])?;
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::value(format!(
                "`label_smoothing` must be between 0 and 1, found {smoothing}"
            )));
        }
        Ok(CrossEntropy {
            x,
            target,
            weight: args[2].opt_tensor()?,
            reduction: Reduction::of(&args[3])?,
            ignored: args[4].int()?,
            smoothing,
        })
    }

    fn run(&self) -> Result<Outputs> {
        let same = self.x.dim() == self.target.dim()
            && self.x.sizes().iter().zip(self.target.sizes()).all(|(&a, &b)| known_equal(a, b));
        if self.target.dtype().is_float() {
            self.of_probabilities()
        } else if same {
            Err(Error::value(format!(
                "argument `target` of the sizes of `self` must hold probabilities, found {}",
                self.target.dtype()
            )))
        } else {
            self.of_labels()
        }
    }

    /// The loss for class probabilities.
    fn of_probabilities(&self) -> Result<Outputs> {
        require_same(self.x.sizes(), self.target.sizes(), || {
            "argument `target`, of probabilities, must have, as `self`,".into()
        })?;
        if !known_equal(self.ignored, (-100).into()) {
            return Err(Error::value(
                "`ignore_index` requires a target of class numbers, found probabilities",
            ));
        }
        let d = class_dim(self.x);
        let log = weighted(&self.x.log_softmax(d as i64), self.weight, d);
        let mut loss = -(&log * self.target).sum_dim([d as i64], false);
        if self.smoothing != 0.0 {
            // Label smoothing distributes this share over all classes evenly.
            loss = loss * (1.0 - self.smoothing) - log.mean_dim([d as i64], false) * self.smoothing;
        }
        self.reduction.apply(loss)
    }

    /// The loss for class numbers. Label smoothing adds the mean loss over the classes.
    fn of_labels(&self) -> Result<Outputs> {
        let d = class_dim(self.x);
        let log = self.x.log_softmax(d as i64);
        let sharp = nll_nd(&log, self.target, self.weight, self.reduction, self.ignored)?;
        if self.smoothing == 0.0 {
            return done(sharp);
        }
        let ignored = self.target.eq(self.ignored);
        let smooth = -weighted(&log, self.weight, d).mean_dim([d as i64], false);
        let smooth = smooth.masked_fill(&ignored.reshape(smooth.sizes()), 0.0);
        let smooth = match self.reduction {
            Reduction::None => smooth,
            Reduction::Sum => smooth.sum(),
            Reduction::Mean => {
                let counted = match self.weight {
                    None => ignored.logical_not().sum(),
                    Some(w) => w
                        .take(&self.target.to_dtype(DType::I64).masked_fill(&ignored, 0))
                        .masked_fill(&ignored, 0.0)
                        .sum(),
                };
                smooth.sum() / counted
            }
        };
        done(sharp * (1.0 - self.smoothing) + smooth * self.smoothing)
    }
}

/// The number of rows and the number of classes of a margin loss.
fn rows(x: &Tensor) -> Result<(SymInt, SymInt)> {
    require_rank("self", x, 0..=2)?;
    let one = SymInt::from(1);
    let (n, width) = match *x.sizes() {
        [] => (one, one),
        [width] => (one, width),
        [n, width, ..] => (n, width),
    };
    maquette_ops::operator::dims::require(width.ne(0), || {
        format!("`self` must have classes, found sizes {}", dims_text(x.sizes()))
    })?;
    if matches!(x.dtype(), DType::F32 | DType::F64) {
        Ok((n, width))
    } else {
        Err(Error::value(format!(
            "margin losses over classes take f32 and f64, found {}",
            x.dtype()
        )))
    }
}

fn multi_margin_metas(args: &[Value]) -> Result<Metas> {
    let (x, target) = (args[0].tensor()?, args[1].tensor()?);
    let (n, width) = rows(x)?;
    power(&args[2])?;
    require_class_weights(x, &args[4], width)?;
    if target.dtype() != DType::I64 {
        return Err(Error::value(format!(
            "argument `target` must hold class numbers of dtype i64, found {}",
            target.dtype()
        )));
    }
    require_rank("target", target, 0..=1)?;
    require_same(&[n], &[target.numel()], || {
        "argument `target` must have, one element per row of `self`,".into()
    })?;
    let single = x.dim() < 2 && target.dim() == 0 || Reduction::of(&args[5])? != Reduction::None;
    Ok(smallvec![fresh(x, if single { Dims::new() } else { smallvec![n] }, x.dtype())])
}

fn power(p: &Value) -> Result<i32> {
    match p.scalar()?.to_f64() {
        1.0 => Ok(1),
        2.0 => Ok(2),
        other => Err(Error::value(format!("`p` must be 1 or 2, found {other}"))),
    }
}

fn multilabel_metas(args: &[Value]) -> Result<Metas> {
    let (x, target) = (args[0].tensor()?, args[1].tensor()?);
    let (n, _) = rows(x)?;
    if target.dtype() != DType::I64 {
        return Err(Error::value(format!(
            "argument `target` must hold class numbers of dtype i64, found {}",
            target.dtype()
        )));
    }
    require_same(x.sizes(), target.sizes(), || "argument `target` must have, as `self`,".into())?;
    let single = x.dim() < 2 || Reduction::of(&args[2])? != Reduction::None;
    Ok(smallvec![
        fresh(x, if single { Dims::new() } else { smallvec![n] }, x.dtype()),
        fresh(x, target.sizes().into(), x.dtype())
    ])
}

/// The sum of violations of a margin of 1 between each target class and each other class. A row's
/// list of targets ends at the first -1.
fn multilabel_margin(args: &[Value], out: &[Tensor]) -> Result<()> {
    let (x, target) = (host::reals(args[0].tensor()?)?, labels(args[1].tensor()?)?);
    let width =
        args[0].tensor()?.sizes().last().and_then(|n| n.as_i64()).map_or(1, |n| n.max(1) as usize);
    if let Some(t) = target.iter().find(|t| !(-1..width as i64).contains(*t)) {
        return Err(Error::value(format!(
            "`target` must hold numbers of {width} classes, or -1, found {t}"
        )));
    }
    let (mut losses, mut is_target) = (Vec::new(), vec![0.0; x.len()]);
    for ((row, targets), marks) in
        x.chunks_exact(width).zip(target.chunks_exact(width)).zip(is_target.chunks_exact_mut(width))
    {
        let targets: Vec<usize> = targets.iter().map_while(|&t| usize::try_from(t).ok()).collect();
        targets.iter().for_each(|&t| marks[t] = 1.0);
        let others = || row.iter().zip(marks.iter()).filter(|(_, m)| **m == 0.0).map(|(v, _)| v);
        let loss: f64 =
            targets.iter().flat_map(|&t| others().map(move |v| (1.0 - row[t] + v).max(0.0))).sum();
        losses.push(loss / width as f64);
    }
    Reduction::of(&args[2])?.store(&out[0], &losses)?;
    host::store_reals(&out[1], &is_target)
}

/// Calls the operator `op` with `self, target, weight, reduction, ignore_index`, and returns its
/// first result, the loss.
fn forward(op: &str, args: &[Value]) -> Result<Outputs> {
    let mut out = maquette_ops::call(op, args.iter().cloned().collect())?;
    out.truncate(1);
    Ok(out)
}

table! {
    /// Classification losses.
    static TABLE = {
        "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, \
            SymInt ignore_index) -> (Tensor output, Tensor total_weight)" => {
            role: General,
            lowering: reduce(|_, a| nll_metas(a, 1..=2), How::Loops(nll)),
            vjp: crate::grad::NLL_LOSS,
        },
        "aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, \
            int reduction, SymInt ignore_index) -> (Tensor output, Tensor total_weight)" => {
            role: General,
            lowering: reduce(|_, a| nll_metas(a, 4..=4), How::Loops(nll)),
            vjp: crate::grad::NLL_LOSS,
        },
        "aten::nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, \
            SymInt ignore_index=-100) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::nll_loss_forward", a)),
        },
        "aten::nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, \
            int reduction=1, SymInt ignore_index=-100) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::nll_loss2d_forward", a)),
        },
        "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, \
            int reduction=1, SymInt ignore_index=-100) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(nll_nd(
                    a[0].tensor()?,
                    a[1].tensor()?,
                    a[2].opt_tensor()?,
                    Reduction::of(&a[3])?,
                    a[4].int()?,
                )?)
            }),
        },
        "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, \
            int reduction=1, SymInt ignore_index=-100, float label_smoothing=0.) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| CrossEntropy::of(a)?.run()),
        },
        "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, \
            Tensor? weight=None, int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduce(|_, a| multi_margin_metas(a), How::Loops(multi_margin)),
            vjp: crate::grad::MULTI_MARGIN,
        },
        "aten::multilabel_margin_loss_forward(Tensor self, Tensor target, \
            int reduction) -> (Tensor output, Tensor is_target)" => {
            role: General,
            lowering: reduce(|_, a| multilabel_metas(a), How::Host(multilabel_margin)),
            vjp: crate::grad::MULTILABEL_MARGIN,
        },
        "aten::multilabel_margin_loss(Tensor self, Tensor target, \
            int reduction=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::multilabel_margin_loss_forward", a)),
        },
    }
}
