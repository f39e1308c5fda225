//! The state of an optimizer: what it remembers from step to step.

use crate::algorithm::at_least_zero;
use crate::error::OptimError;
use maquette_ir::Loc;
use maquette_ops::autograd::no_grad;
use maquette_ops::tree::{Leaves, TreeSpec, wrong_shape};
use maquette_ops::{Error, Result, Tensor, Tree, Value};

/// The name of the state as a tree.
const STATE: &str = "State";
const STEP: &str = "step";
const LR: &str = "lr";

/// What an optimizer remembers from step to step. It is a tree of tensors, so that compiled
/// functions take it as an input; a step writes the tensors in place. A clone shares them.
#[derive(Clone, Debug)]
pub struct State {
    /// The number of steps so far, a scalar of dtype `f64`.
    pub step: Tensor,
    /// The learning rate of the next step, a scalar of dtype `f64`.
    pub lr: Tensor,
    /// The moments, each with one tensor for each parameter.
    pub moments: Vec<Moment>,
}

/// What an algorithm keeps of each parameter, such as a running mean of its gradients.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Its name in PyTorch, such as `exp_avg`.
    pub name: &'static str,
    /// One for each parameter, with its sizes and dtype.
    pub tensors: Vec<Tensor>,
}

impl State {
    /// The state before the first step.
    pub(crate) fn new(lr: f64, moments: Vec<Moment>) -> State {
        let scalar = Tensor::scalar::<f64>;
        State { step: scalar(0.0), lr: scalar(lr), moments }
    }

    /// Sets the learning rate of the steps that follow. Nothing is compiled again.
    ///
    /// # Errors
    /// It is not a finite number of at least 0; someone else has borrowed the learning rate.
    #[track_caller]
    pub fn set_lr(&self, lr: f64) -> Result<()> {
        let loc = Loc::caller();
        at_least_zero("set_lr", "lr", lr).map_err(|e| Error::from(e).at(loc))?;
        no_grad(|| self.lr.fill_(lr)).ok().map(drop)
    }

    /// Every tensor with its name, for a file: `step`, `lr`, and `MOMENT.P` for each parameter `P`.
    ///
    /// # Errors
    /// There are not as many names as parameters.
    pub fn named<S: AsRef<str>>(&self, parameters: &[S]) -> Result<Vec<(String, Tensor)>> {
        let mut all = vec![(STEP.to_owned(), self.step.clone()), (LR.to_owned(), self.lr.clone())];
        for Moment { name, tensors } in &self.moments {
            if tensors.len() != parameters.len() {
                let (names, parameters) = (parameters.len(), tensors.len());
                return Err(OptimError::Names { parameters, names }.into());
            }
            let name = |p: &S| format!("{name}.{}", p.as_ref());
            all.extend(parameters.iter().map(name).zip(tensors.iter().cloned()));
        }
        Ok(all)
    }

    /// Copies saved tensors into the state: `saved` gives the tensor of each name of
    /// [`State::named`].
    ///
    /// # Errors
    /// A saved tensor is missing, or has another dtype or other sizes. Nothing was written then.
    #[track_caller]
    pub fn load<S: AsRef<str>>(
        &self,
        parameters: &[S],
        mut saved: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<()> {
        let mut found = Vec::new();
        for (name, own) in self.named(parameters)? {
            let tensor = saved(&name)?;
            if tensor.dtype() != own.dtype() || tensor.sizes_i64()? != own.sizes_i64()? {
                let (expected, found) = (own.meta().to_string(), tensor.meta().to_string());
                return Err(OptimError::Saved { name, expected, found }.into());
            }
            found.push((own, tensor));
        }
        no_grad(|| found.iter().try_for_each(|(own, saved)| own.copy_(saved).ok().map(drop)))
    }
}

impl Tree for State {
    type Output = State;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        let mut fields = vec![(STEP, leaves.at(STEP, &self.step)?), (LR, leaves.at(LR, &self.lr)?)];
        for moment in &self.moments {
            fields.push((moment.name, leaves.at(moment.name, &moment.tensors)?));
        }
        Ok(TreeSpec::Struct(STATE, fields))
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<State> {
        let expected = "the state of an optimizer";
        let TreeSpec::Struct(STATE, fields) = spec else { return Err(wrong_shape(expected, spec)) };
        let [(STEP, step), (LR, lr), moments @ ..] = fields.as_slice() else {
            return Err(wrong_shape(expected, spec));
        };
        let mut scalar = |spec| <Tensor as Tree>::unflatten(spec, leaves);
        let (step, lr) = (scalar(step)?, scalar(lr)?);
        let moment = |(name, spec): &(&'static str, TreeSpec)| {
            Ok(Moment { name, tensors: <Vec<Tensor> as Tree>::unflatten(spec, leaves)? })
        };
        Ok(State { step, lr, moments: moments.iter().map(moment).collect::<Result<_>>()? })
    }
}
