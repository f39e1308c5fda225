//! Schedules: the learning rate of each step, as a function of the number of the step.
//!
//! The rates are those of PyTorch's `lr_scheduler`, in closed form. A schedule has no state:
//! [`State::set_lr`](crate::State::set_lr) passes its rate to an optimizer.

use std::f64::consts::PI;

/// The learning rate as a function of the number of steps so far.
///
/// ```
/// use maquette_optim::{Cosine, Schedule, Warmup};
/// let schedule = Warmup::new(1.0, 0.1, 9).then(9, Cosine::new(1.0, 100));
/// assert_eq!(schedule.lr(0), 0.1);
/// assert_eq!(schedule.lr(9), 1.0);
/// assert_eq!(schedule.lr(9 + 50), 0.5);
/// ```
pub trait Schedule {
    /// The learning rate of the step after `step` steps.
    fn lr(&self, step: u64) -> f64;

    /// This schedule for `steps` steps, and then another from its start.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.SequentialLR`.
    fn then<S: Schedule>(self, steps: u64, next: S) -> Then<Self, S>
    where
        Self: Sized,
    {
        Then { first: self, steps, next }
    }
}

/// Two schedules, one after the other; see [`Schedule::then`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Then<A, B> {
    first: A,
    steps: u64,
    next: B,
}

impl<A: Schedule, B: Schedule> Schedule for Then<A, B> {
    fn lr(&self, step: u64) -> f64 {
        match step.checked_sub(self.steps) {
            Some(step) => self.next.lr(step),
            None => self.first.lr(step),
        }
    }
}

/// Multiplies the learning rate by `gamma` after each `size` steps.
///
/// PyTorch: `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    base: f64,
    size: u64,
    gamma: f64,
}

impl Steps {
    /// From `base` on. A size of 0 is 1.
    pub const fn new(base: f64, size: u64, gamma: f64) -> Steps {
        Steps { base, size, gamma }
    }
}

impl Schedule for Steps {
    fn lr(&self, step: u64) -> f64 {
        let times = (step / self.size.max(1)).min(i32::MAX as u64);
        self.base * self.gamma.powi(times as i32)
    }
}

/// Half a period of a cosine, from the base down to a least rate. It goes on as the cosine does.
///
/// PyTorch: `torch.optim.lr_scheduler.CosineAnnealingLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    base: f64,
    steps: u64,
    least: f64,
}

impl Cosine {
    /// From `base` to 0 in `steps` steps.
    pub const fn new(base: f64, steps: u64) -> Cosine {
        Cosine { base, steps, least: 0.0 }
    }

    /// The rate at the end, PyTorch's `eta_min`; 0 by default.
    pub const fn least(self, least: f64) -> Cosine {
        Cosine { least, ..self }
    }
}

impl Schedule for Cosine {
    fn lr(&self, step: u64) -> f64 {
        let at = step as f64 / self.steps.max(1) as f64;
        self.least + (self.base - self.least) * (1.0 + (PI * at).cos()) / 2.0
    }
}

/// Linear from a fraction of the base to the base, and the base from then on.
///
/// PyTorch: `torch.optim.lr_scheduler.LinearLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmup {
    base: f64,
    start: f64,
    steps: u64,
}

impl Warmup {
    /// From `start base` to `base` in `steps` steps.
    pub const fn new(base: f64, start: f64, steps: u64) -> Warmup {
        Warmup { base, start, steps }
    }
}

impl Schedule for Warmup {
    fn lr(&self, step: u64) -> f64 {
        let at = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        let at = if self.steps == 0 { 1.0 } else { at };
        self.base * (self.start + (1.0 - self.start) * at)
    }
}

/// The one-cycle policy: up to the largest rate, then down to nearly 0, along cosines. It cycles
/// the rate alone, while PyTorch's cycles the momentum as well unless told otherwise.
///
/// PyTorch: `torch.optim.lr_scheduler.OneCycleLR` with `cycle_momentum=False`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycle {
    largest: f64,
    steps: u64,
    rise: f64,
    first_divisor: f64,
    last_divisor: f64,
}

impl OneCycle {
    /// A cycle of `steps` steps with PyTorch's defaults.
    pub const fn new(largest: f64, steps: u64) -> OneCycle {
        OneCycle { largest, steps, rise: 0.3, first_divisor: 25.0, last_divisor: 1e4 }
    }

    /// The part of the cycle in which the rate rises, PyTorch's `pct_start`; 0.3 by default.
    pub const fn rise(self, rise: f64) -> OneCycle {
        OneCycle { rise, ..self }
    }

    /// The first rate is the largest divided by `first`, and the last the first divided by `last`:
    /// PyTorch's `div_factor` and `final_div_factor`. 25 and 10,000 by default.
    pub const fn divisors(self, first: f64, last: f64) -> OneCycle {
        OneCycle { first_divisor: first, last_divisor: last, ..self }
    }
}

impl Schedule for OneCycle {
    fn lr(&self, step: u64) -> f64 {
        let along = |from: f64, to: f64, at: f64| to + (from - to) / 2.0 * ((PI * at).cos() + 1.0);
        let first = self.largest / self.first_divisor;
        let last = self.steps.saturating_sub(1) as f64;
        let step = (step as f64).min(last);
        let top = self.rise * self.steps as f64 - 1.0;
        if step <= top {
            along(first, self.largest, if top > 0.0 { step / top } else { 1.0 })
        } else {
            let at = (step - top) / (last - top);
            along(self.largest, first / self.last_divisor, at)
        }
    }
}
