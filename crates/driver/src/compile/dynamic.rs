//! Which sizes and integers are symbols in the next program.
//!
//! The rule is PyTorch's *automatic dynamic shapes*: the first program is static; a size that
//! differs between two calls of one [signature](super::call_inputs::Signature) is a symbol from
//! then on. So a third size compiles nothing. A size beyond [`MAX_SYMBOL_SIZE`] is never a symbol:
//! arithmetic on symbols takes smaller sizes for granted.

use super::call_inputs::{LeafSignature, Signature};
use maquette_ir::sym::MAX_SYMBOL_SIZE;
use std::collections::BTreeSet;

/// Sizes and integers that are symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DynamicSet {
    /// Sizes: the leaf and the dimension.
    pub(crate) sizes: BTreeSet<(usize, usize)>,
    /// Integers: the leaf.
    pub(crate) integers: BTreeSet<usize>,
}

impl DynamicSet {
    /// Every size and integer.
    pub(crate) fn all(call: &Signature) -> DynamicSet {
        let mut set = DynamicSet::default();
        set.extend(call, &|_| true);
        set.remove_huge_sizes(call);
        set
    }

    /// The sizes and integers that must be symbols for a call: those in which it differs from a
    /// previous call of its kind, and those that were symbols for such a call.
    pub(crate) fn for_call<'a>(
        call: &Signature,
        previous: impl Iterator<Item = (&'a Signature, &'a DynamicSet)>,
    ) -> DynamicSet {
        let mut set = DynamicSet::default();
        for (before, dynamic) in previous.filter(|(before, _)| before.is_like(call)) {
            set.sizes.extend(&dynamic.sizes);
            set.integers.extend(&dynamic.integers);
            set.extend(call, &|at| before.numbers.get(at) != call.numbers.get(at));
        }
        set.remove_huge_sizes(call);
        set
    }

    /// Removes the sizes that are too large for a symbol.
    fn remove_huge_sizes(&mut self, call: &Signature) {
        let mut first = 0;
        for (leaf, signature) in call.leaves.iter().enumerate() {
            if let LeafSignature::Tensor(class) = signature {
                for dim in 0..class.rank {
                    if call.numbers.get(first + dim).is_some_and(|n| *n > MAX_SYMBOL_SIZE) {
                        self.sizes.remove(&(leaf, dim));
                    }
                }
            }
            first += signature.count();
        }
    }

    /// Adds the sizes and integers whose numbers, by their positions, are `wanted`.
    fn extend(&mut self, call: &Signature, wanted: &dyn Fn(usize) -> bool) {
        let mut first = 0;
        for (leaf, signature) in call.leaves.iter().enumerate() {
            match signature {
                LeafSignature::Tensor(class) => {
                    let dims = (0..class.rank).filter(|dim| wanted(first + dim));
                    self.sizes.extend(dims.map(|dim| (leaf, dim)));
                }
                LeafSignature::Integer if wanted(first) => {
                    self.integers.insert(leaf);
                }
                LeafSignature::Integer | LeafSignature::Other(_) => {}
            }
            first += signature.count();
        }
    }

    /// Whether nothing is a symbol.
    pub(crate) fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.integers.is_empty()
    }
}
