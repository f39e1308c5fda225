//! The recorded optimizer, with a group of parameters for each weight decay.

use super::recording::Recording;
use maquette_ops::{Error, Result, Tensor};
use maquette_optim::{Adam, AdamW, Algorithm, Sgd, State};
use serde_json::Value as Json;

/// An algorithm that recordings have.
enum Recorded {
    Sgd(Sgd),
    Adam(Adam),
    AdamW(AdamW),
}

/// Parameters, by their positions, and the algorithm that updates them.
struct Group {
    members: Vec<usize>,
    algorithm: Recorded,
}

/// All parameters.
pub(super) struct Groups(Vec<Group>);

impl Recorded {
    /// The algorithm with its options, without weight decay if `decays` is false.
    fn new(doc: &Json, decays: bool) -> Result<Recorded> {
        let number = |v: &Json, name: &str| {
            v.as_f64().ok_or_else(|| Error::value(format!("the optimizer has no number `{name}`")))
        };
        let option = |name: &str| number(&doc[name], name);
        let flag = |name: &str| doc[name].as_bool().unwrap_or(false);
        let weight_decay = if decays { option("weight_decay")? } else { 0.0 };
        let lr = option("lr")?;
        let betas = || {
            Ok::<_, Error>((number(&doc["betas"][0], "betas")?, number(&doc["betas"][1], "betas")?))
        };
        Ok(match doc["name"].as_str() {
            Some("sgd") => Recorded::Sgd(
                Sgd::new(lr)
                    .momentum(option("momentum")?)
                    .dampening(option("dampening")?)
                    .weight_decay(weight_decay)
                    .nesterov(flag("nesterov")),
            ),
            Some("adam") => {
                let (beta1, beta2) = betas()?;
                let adam = Adam::new(lr).betas(beta1, beta2).eps(option("eps")?);
                Recorded::Adam(adam.weight_decay(weight_decay).amsgrad(flag("amsgrad")))
            }
            Some("adamw") => {
                let (beta1, beta2) = betas()?;
                let adam = AdamW::new(lr).betas(beta1, beta2).eps(option("eps")?);
                Recorded::AdamW(adam.weight_decay(weight_decay).amsgrad(flag("amsgrad")))
            }
            other => return Err(Error::value(format!("unknown optimizer {other:?}"))),
        })
    }

    fn init(&self, params: &Vec<Tensor>) -> Result<State> {
        match self {
            Recorded::Sgd(a) => a.init(params),
            Recorded::Adam(a) => a.init(params),
            Recorded::AdamW(a) => a.init(params),
        }
    }

    fn step(&self, params: &Vec<Tensor>, grads: &Vec<Tensor>, state: &State) -> Result<()> {
        match self {
            Recorded::Sgd(a) => a.step(params, grads, state),
            Recorded::Adam(a) => a.step(params, grads, state),
            Recorded::AdamW(a) => a.step(params, grads, state),
        }
    }
}

impl Group {
    fn of(&self, all: &[Tensor]) -> Vec<Tensor> {
        self.members.iter().map(|&i| all[i].clone()).collect()
    }
}

impl Groups {
    /// One group, or two if only matrices decay.
    ///
    /// # Errors
    /// The optimizer is unknown, or lacks an option.
    pub(super) fn new(recording: &Recording) -> Result<Groups> {
        let doc = &recording.optimizer;
        let is_matrix = |name: &String| Ok(recording.tensor(&format!("param.{name}"))?.dim() >= 2);
        let only_matrices = doc["decay"].as_str() == Some("matrices");
        let decays: Vec<bool> = recording
            .params
            .iter()
            .map(|name| if only_matrices { is_matrix(name) } else { Ok(true) })
            .collect::<Result<_>>()?;
        let group = |decaying: bool| -> Result<Group> {
            let members = (0..decays.len()).filter(|&i| decays[i] == decaying).collect();
            Ok(Group { members, algorithm: Recorded::new(doc, decaying)? })
        };
        let groups = [group(true)?, group(false)?];
        Ok(Groups(groups.into_iter().filter(|g| !g.members.is_empty()).collect()))
    }

    pub(super) fn init(&self, params: &[Tensor]) -> Result<Vec<State>> {
        self.0.iter().map(|g| g.algorithm.init(&g.of(params))).collect()
    }

    pub(super) fn step(&self, params: &[Tensor], grads: &[Tensor], states: &[State]) -> Result<()> {
        let step =
            |(g, state): (&Group, &State)| g.algorithm.step(&g.of(params), &g.of(grads), state);
        self.0.iter().zip(states).try_for_each(step)
    }

    /// The names of the parameters of each group.
    pub(super) fn names(&self, recording: &Recording) -> Vec<Vec<String>> {
        let names = |g: &Group| g.members.iter().map(|&i| recording.params[i].clone()).collect();
        self.0.iter().map(names).collect()
    }
}
