//! Schedules: the learning rate of each step, as a function of the number of the step.
//!
//! The rates are those of PyTorch's `lr_scheduler`, in closed form. A schedule has no state:
//! [`State::set_lr`](crate::State::set_lr) passes its rate to an optimizer.

use crate::algorithm::at_least_zero;
use crate::error::OptimError;
use maquette_ir::Loc;
use maquette_ops::{Error, Result};
use std::f64::consts::PI;

/// The learning rate as a function of the number of steps so far.
///
/// ```
/// use maquette_optim::{Cosine, Schedule, Warmup};
/// let schedule = Warmup::new(1.0, 0.1, 9).then(9, Cosine::new(1.0, 100));
/// assert_eq!(schedule.lr(0)?, 0.1);
/// assert_eq!(schedule.lr(9)?, 1.0);
/// assert_eq!(schedule.lr(9 + 50)?, 0.5);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
pub trait Schedule {
    /// The learning rate of the step after `step` steps, if [`Schedule::check`] refuses nothing.
    fn rate(&self, step: u64) -> f64;

    /// Checks the numbers of the schedule.
    ///
    /// # Errors
    /// A number is outside of its range.
    fn check(&self) -> Result<(), OptimError>;

    /// The number of steps before which no other schedule can take over: those of a warm-up.
    fn least_steps(&self) -> u64 {
        0
    }

    /// The learning rate of the step after `step` steps.
    ///
    /// # Errors
    /// A number of the schedule is outside of its range.
    #[track_caller]
    fn lr(&self, step: u64) -> Result<f64> {
        let loc = Loc::caller();
        self.check().map_err(|e| Error::from(e).at(loc))?;
        Ok(self.rate(step))
    }

    /// This schedule for `steps` steps, and then another from its start. A warm-up must have ended
    /// by then.
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
    fn rate(&self, step: u64) -> f64 {
        match step.checked_sub(self.steps) {
            Some(step) => self.next.rate(step),
            None => self.first.rate(step),
        }
    }

    fn check(&self) -> Result<(), OptimError> {
        self.first.check()?;
        self.next.check()?;
        let (least, steps) = (self.first.least_steps(), self.steps);
        if least > steps {
            return Err(OptimError::WarmupCut { least, steps });
        }
        Ok(())
    }

    fn least_steps(&self) -> u64 {
        match self.next.least_steps() {
            0 => self.first.least_steps(),
            n => self.steps.saturating_add(n),
        }
    }
}

/// Refuses a number that is not within its range.
fn within(
    algorithm: &'static str,
    option: &'static str,
    value: f64,
    range: &'static str,
    is_within: bool,
) -> Result<(), OptimError> {
    if is_within {
        return Ok(());
    }
    Err(OptimError::OutOfRange { algorithm, option, range, value })
}

/// Checks that a number of steps is not 0.
fn some_steps(schedule: &'static str, option: &'static str, n: u64) -> Result<(), OptimError> {
    within(schedule, option, n as f64, "at least 1", n > 0)
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
    /// From `base` on.
    pub const fn new(base: f64, size: u64, gamma: f64) -> Steps {
        Steps { base, size, gamma }
    }
}

impl Schedule for Steps {
    fn rate(&self, step: u64) -> f64 {
        let times = step.checked_div(self.size).unwrap_or(0).min(i32::MAX as u64);
        self.base * self.gamma.powi(times as i32)
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero("Steps", "base", self.base)?;
        some_steps("Steps", "size", self.size)?;
        at_least_zero("Steps", "gamma", self.gamma)
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
    fn rate(&self, step: u64) -> f64 {
        let at = step as f64 / self.steps as f64;
        self.least + (self.base - self.least) * (1.0 + (PI * at).cos()) / 2.0
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero("Cosine", "base", self.base)?;
        some_steps("Cosine", "steps", self.steps)?;
        at_least_zero("Cosine", "least", self.least)
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
    /// From `start base` to `base` in `steps` steps; from `base` on, if there are none.
    pub const fn new(base: f64, start: f64, steps: u64) -> Warmup {
        Warmup { base, start, steps }
    }
}

impl Schedule for Warmup {
    fn rate(&self, step: u64) -> f64 {
        let at = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        let at = if self.steps == 0 { 1.0 } else { at };
        self.base * (self.start + (1.0 - self.start) * at)
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero("Warmup", "base", self.base)?;
        let (start, range) = (self.start, "greater than 0 and at most 1");
        within("Warmup", "start", start, range, start > 0.0 && start <= 1.0)
    }

    fn least_steps(&self) -> u64 {
        self.steps
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
    fn rate(&self, step: u64) -> f64 {
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

    fn check(&self) -> Result<(), OptimError> {
        const NAME: &str = "OneCycle";
        at_least_zero(NAME, "largest", self.largest)?;
        some_steps(NAME, "steps", self.steps)?;
        let is_part = (0.0..=1.0).contains(&self.rise);
        within(NAME, "rise", self.rise, "at least 0 and at most 1", is_part)?;
        let positive = "a finite number greater than 0";
        for (option, n) in [("divisors.0", self.first_divisor), ("divisors.1", self.last_divisor)] {
            within(NAME, option, n, positive, n.is_finite() && n > 0.0)?;
        }
        Ok(())
    }
}
