//! Which of many tensors share memory, without a comparison of each two.
//!
//! [`ByStorage`] sorts tensors by the addresses of their storages. [`any_may_overlap`] sorts them
//! by storage and span, and sweeps over the spans. Both cost `n log n`, except that the sweep
//! compares each two tensors whose spans intersect, such as the columns of a matrix.

use super::overlap::may_overlap;
use super::{Live, Node, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// The address of a tensor's storage, valid while the tensor lives; `None` if it is poisoned.
fn address(t: &Tensor) -> Option<usize> {
    match &*t.node {
        Node::Live(Live { storage, .. }) => Some(Arc::as_ptr(storage) as usize),
        Node::Poisoned { .. } => None,
    }
}

/// Tensors by their storages. The addresses are right as long as the tensors live.
#[derive(Debug, Default)]
pub struct ByStorage(Vec<(usize, usize)>);

impl ByStorage {
    /// The tensors with their numbers.
    pub fn new<'a>(tensors: impl IntoIterator<Item = (usize, &'a Tensor)>) -> ByStorage {
        let placed = tensors.into_iter().filter_map(|(number, t)| Some((address(t)?, number)));
        let mut placed: Vec<(usize, usize)> = placed.collect();
        placed.sort_unstable();
        ByStorage(placed)
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of the tensors that have the storage of `t`, in order.
    pub fn having_storage_of(&self, t: &Tensor) -> impl Iterator<Item = usize> + '_ {
        let wanted = address(t);
        let first = self.0.partition_point(|(address, _)| Some(*address) < wanted);
        let rest = self.0.get(first..).unwrap_or_default().iter();
        rest.take_while(move |(address, _)| Some(*address) == wanted).map(|(_, number)| *number)
    }
}

/// A tensor in the sweep.
struct Placed<'a> {
    storage: usize,
    /// The bytes that it spans; all of the storage if they are unknown.
    start: i64,
    end: i64,
    tensor: &'a Tensor,
    is_written: bool,
}

impl<'a> Placed<'a> {
    /// `None` if the tensor has no elements.
    fn new(tensor: &'a Tensor, is_written: bool) -> Option<Placed<'a>> {
        let storage = address(tensor)?;
        let layout = tensor.meta().concrete();
        if layout.as_ref().is_some_and(|layout| layout.sizes.contains(&0)) {
            return None;
        }
        let (start, end) = layout.and_then(|l| l.span()).unwrap_or((i64::MIN, i64::MAX));
        Some(Placed { storage, start, end, tensor, is_written })
    }

    /// Whether its span reaches beyond the start of `next`.
    fn reaches(&self, next: &Placed<'_>) -> bool {
        self.storage == next.storage && self.end > next.start
    }

    /// Whether the layouts may share a byte.
    fn meets(&self, other: &Placed<'_>) -> bool {
        let layouts = self.tensor.meta().concrete().zip(other.tensor.meta().concrete());
        layouts.is_none_or(|(a, b)| may_overlap(&a, &b))
    }
}

/// Whether a tensor of `written` may share a byte with another one of them, or with one of `read`.
pub fn any_may_overlap<'a>(
    written: impl Iterator<Item = &'a Tensor>,
    read: impl Iterator<Item = &'a Tensor>,
) -> bool {
    sweep(written, read, Placed::reaches, Placed::meets)
}

/// As [`any_may_overlap`], by two comparisons of tensors, which a test counts.
fn sweep<'a>(
    written: impl Iterator<Item = &'a Tensor>,
    read: impl Iterator<Item = &'a Tensor>,
    mut reaches: impl FnMut(&Placed<'a>, &Placed<'a>) -> bool,
    mut meets: impl FnMut(&Placed<'a>, &Placed<'a>) -> bool,
) -> bool {
    let written = written.filter_map(|t| Placed::new(t, true));
    let read = read.filter_map(|t| Placed::new(t, false));
    let mut all: SmallVec<[Placed<'a>; 8]> = written.chain(read).collect();
    all.sort_unstable_by_key(|t| (t.storage, t.start));
    // The earlier tensors of the storage that reach beyond the start of the next one.
    let mut open_written = SmallVec::<[&Placed<'a>; 8]>::new();
    let mut open_read = SmallVec::<[&Placed<'a>; 8]>::new();
    for next in &all {
        open_written.retain(|t| reaches(t, next));
        if open_written.iter().any(|t| meets(t, next)) {
            return true;
        }
        if next.is_written {
            open_read.retain(|t| reaches(t, next));
            if open_read.iter().any(|t| meets(t, next)) {
                return true;
            }
            open_written.push(next);
        } else {
            open_read.push(next);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::meta::Meta;
    use maquette_ir::DType;

    /// Counts comparisons: a quadratic sweep would make over a million.
    #[test]
    fn a_sweep_makes_at_most_one_comparison_for_each_of_many_tensors_that_are_apart() {
        let one = || Meta::contiguous([1i64], DType::F32);
        let own =
            || -> Vec<Tensor> { (0..1024).map(|_| Tensor::allocate(one()).unwrap()).collect() };
        let matrix = Tensor::allocate(Meta::contiguous([1024i64, 1], DType::F32)).unwrap();
        let rows = (0..1024).map(|i| matrix.view_of(one().with_offset(i)).unwrap()).collect();
        let read = own();
        for written in [rows, own()] {
            let (mut spans, mut layouts) = (0, 0);
            let reaches = |t: &Placed<'_>, next: &Placed<'_>| {
                spans += 1;
                t.reaches(next)
            };
            let meets = |t: &Placed<'_>, next: &Placed<'_>| {
                layouts += 1;
                t.meets(next)
            };
            assert!(!sweep(written.iter(), read.iter(), reaches, meets));
            assert!(spans < 2048 && layouts == 0, "{spans} spans, {layouts} layouts");
        }
    }
}
