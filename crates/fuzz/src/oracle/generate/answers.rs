//! Rare statements whose programs a trace may refuse: questions about state, refused writes that
//! the program handles, and a derivative that writes its gradient.
//!
//! Random numbers of their own decide on them, so that the other programs of a seed are what they
//! were without them.

use super::super::program_builder::BuilderArg;
use super::super::statements::{ASKS, ATTEMPT_FORMS, ATTEMPTS, QUESTIONS, is_accepted};
use super::{Generator, LiveTensor};
use crate::oracle::program::Family;
use maquette_check::Rng;
use maquette_ir::DType;
use maquette_ir::graph::Arg;

const NONE: BuilderArg = BuilderArg::Plain(Arg::None);

/// A rare statement.
#[derive(Clone, Copy)]
pub(super) enum RareStatement {
    Question,
    RefusedWrite,
    WrittenGradient,
}

/// The rare statement of a program, and about how much of the program precedes it, in percent.
pub(super) fn rare_statement(
    family: Family,
    seed: u64,
    index: u64,
) -> Option<(RareStatement, usize)> {
    let mut rng = Rng::new(!seed, index);
    let statement = match (family, rng.below(1000)) {
        (Family::Programs, 0..15) => RareStatement::Question,
        (Family::Programs, 15..20) => RareStatement::RefusedWrite,
        (Family::Gradients, 0..20) => RareStatement::WrittenGradient,
        _ => return None,
    };
    Some((statement, rng.below(100)))
}

impl Generator<'_> {
    pub(super) fn rare(&mut self, statement: RareStatement) {
        match statement {
            RareStatement::Question => self.question(),
            RareStatement::RefusedWrite => self.refused_write(),
            RareStatement::WrittenGradient => self.written_gradient(),
        }
    }

    /// Asks a tensor, or one from outside of the program, for its state.
    fn question(&mut self) {
        let Some(x) = self.pick(|l| l.dtype() != DType::Bool) else { return };
        let of = match self.rng.chance(20) {
            true => NONE,
            false => self.any().map_or(NONE, |t| t.arg()),
        };
        let question = self.rng.below(QUESTIONS.len()) as i64;
        let answered = self.emit(ASKS, vec![x.arg(), of, question.into()]);
        // The answer shows.
        self.builder.outputs.extend(answered.iter().flatten().map(LiveTensor::arg));
    }

    /// Tries a write that is refused for its sizes or its dtype.
    fn refused_write(&mut self) {
        for _ in 0..8 {
            let (Some(x), Some(y)) = (self.target(), self.any()) else { return };
            let form = self.rng.between(0, ATTEMPT_FORMS - 1);
            if is_accepted(&x.tensor, &y.tensor, form).is_ok_and(|accepted| !accepted)
                && self.emit(ATTEMPTS, vec![x.arg(), y.arg(), form.into()]).is_some()
            {
                return;
            }
        }
    }

    /// A call whose derivative tries to write the gradient that it is given.
    fn written_gradient(&mut self) {
        if let Some(x) = self.pick(|l| l.tensor.requires_grad() && l.dtype() == DType::F64) {
            self.emit("oracle::greedy", vec![x.arg()]);
        }
    }
}
