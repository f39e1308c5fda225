//! Which attentions were recognised, and why others were not.

use maquette_ir::Loc;
use std::fmt;

/// The attentions of a program that are written as products and a softmax, in program order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttentionExplanation {
    /// The lines of those that are one operator now: of their last products.
    pub recognized: Vec<Option<Loc>>,
    /// The lines of the others, with the reasons.
    pub refused: Vec<(Option<Loc>, NoAttentionReason)>,
}

/// Why a product of a softmax stays as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoAttentionReason {
    /// The softmax is not of a product of queries and keys, scaled, and then masked once.
    Scores,
    /// The scores are the result of another attention, which is recognised.
    Nested,
    /// The softmax is over another dimension than the keys.
    SoftmaxDim,
    /// The operands are no batches of matrices of one wide float on the CPU, or the dtype changes.
    Operands,
    /// The mask cannot be the mask of an attention.
    Mask,
    /// The factors of the scores have no product that is a number of the dtype.
    Scale,
    /// The dropout draws random numbers.
    Dropout,
    /// The scores or the weights are needed for something else.
    OtherUse,
    /// Another operator between those of the attention may write what it reads.
    Write,
    /// A registration overrides an operator of the attention.
    Overridden,
}

impl NoAttentionReason {
    /// All reasons.
    #[cfg(test)]
    const ALL: [NoAttentionReason; 10] = [
        NoAttentionReason::Scores,
        NoAttentionReason::Nested,
        NoAttentionReason::SoftmaxDim,
        NoAttentionReason::Operands,
        NoAttentionReason::Mask,
        NoAttentionReason::Scale,
        NoAttentionReason::Dropout,
        NoAttentionReason::OtherUse,
        NoAttentionReason::Write,
        NoAttentionReason::Overridden,
    ];
}

impl fmt::Display for NoAttentionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoAttentionReason::Scores => {
                "the softmax is not of a product, times numbers and then masked at most once"
            }
            NoAttentionReason::Nested => "the scores are the result of another attention",
            NoAttentionReason::SoftmaxDim => "the softmax is not over the last dimension",
            NoAttentionReason::Operands => {
                "the operands are not matrices of f32 or of f64 on the CPU, of one dtype throughout"
            }
            NoAttentionReason::Mask => {
                "the mask is neither added in the dtype of the scores nor -inf where a bool says \
                    so, or changes the sizes of the scores"
            }
            NoAttentionReason::Scale => "the factor of the scores is 0 or no number of their dtype",
            NoAttentionReason::Dropout => "the dropout draws random numbers",
            NoAttentionReason::OtherUse => {
                "the scores or the weights are returned, or another operator reads them"
            }
            NoAttentionReason::Write => {
                "an operator between those of the attention writes memory or has an effect"
            }
            NoAttentionReason::Overridden => "a registration overrides one of the operators",
        })
    }
}

/// A line for the number of those that are one operator, and one for each of the others.
impl fmt::Display for AttentionExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionExplanation { recognized, refused } = self;
        match recognized.len() {
            0 if refused.is_empty() => f.write_str("no softmax is the left factor of a product")?,
            0 => f.write_str("no attention is one kernel")?,
            1 => f.write_str("1 attention is one kernel")?,
            n => write!(f, "{n} attentions are one kernel each")?,
        }
        refused.iter().try_for_each(|(loc, reason)| {
            let at = loc.map_or_else(String::new, |loc| format!(", at {loc}"));
            write!(f, "\nnot recognised{at}: {reason}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NoAttentionReason;

    #[test]
    fn reasons() {
        let texts: Vec<String> = NoAttentionReason::ALL.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(texts.join("\n"));
    }
}
