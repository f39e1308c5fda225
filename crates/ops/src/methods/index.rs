//! Python's indexing in Rust: [`Tensor::i`] takes tuples of numbers, ranges, new axes and tensors.

use crate::dispatch::failures::failed;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};
use std::sync::Arc;

/// A range of positions along one dimension; negative bounds count from the end, as in Python.
pub trait SliceRange {
    /// The start and end, if given. The end is exclusive.
    fn bounds(self) -> (Option<SymInt>, Option<SymInt>);
}

impl SliceRange for RangeFull {
    fn bounds(self) -> (Option<SymInt>, Option<SymInt>) {
        (None, None)
    }
}

/// One entry of an index, as [`Tensor::i`] takes it.
#[derive(Clone, Debug)]
pub enum Index {
    /// Selects one element and removes the dimension.
    At(SymInt),
    /// Selects a range of the dimension.
    Slice(Option<SymInt>, Option<SymInt>),
    /// Keeps the whole dimension. In an index with fewer entries than the rank, the first such
    /// entry stands for all missing dimensions, as Python's `...` does.
    Full,
    /// Inserts a dimension of size 1.
    NewAxis,
    /// Selects by positions or by a mask.
    Tensor(Tensor),
}

/// Inserts a dimension of size 1, as an entry of an index.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

macro_rules! ranges {
    ($($t:ty),*) => { $(
        impl SliceRange for Range<$t> {
            fn bounds(self) -> (Option<SymInt>, Option<SymInt>) {
                (Some(self.start.into()), Some(self.end.into()))
            }
        }
        impl SliceRange for RangeFrom<$t> {
            fn bounds(self) -> (Option<SymInt>, Option<SymInt>) {
                (Some(self.start.into()), None)
            }
        }
        impl SliceRange for RangeTo<$t> {
            fn bounds(self) -> (Option<SymInt>, Option<SymInt>) {
                (None, Some(self.end.into()))
            }
        }
        impl SliceRange for RangeInclusive<$t> {
            #[track_caller]
            fn bounds(self) -> (Option<SymInt>, Option<SymInt>) {
                let (start, last) = self.into_inner();
                let last = SymInt::from(last);
                // An inclusive range to -1 extends to the end. `-1 + 1` would be position 0.
                let end = match last.eq(-1).guard() {
                    Ok(true) => None,
                    Ok(false) => Some(last + 1),
                    Err(e) => Some(SymInt::poison(Arc::new(e))),
                };
                (Some(start.into()), end)
            }
        }
        impl From<$t> for Index {
            fn from(i: $t) -> Index {
                Index::At(i.into())
            }
        }
        ranges!(@slice Range<$t>, RangeFrom<$t>, RangeTo<$t>, RangeInclusive<$t>);
    )* };
    (@slice $($r:ty),*) => { $(
        impl From<$r> for Index {
            fn from(r: $r) -> Index {
                let (start, end) = r.bounds();
                Index::Slice(start, end)
            }
        }
    )* };
}
ranges!(i32, i64, SymInt);

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Full
    }
}

impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}

impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Tensor(t.clone())
    }
}

/// The argument of [`Tensor::i`]: one entry, or a tuple of entries.
pub trait IntoIndex {
    /// The entries, first dimension first.
    fn into_index(self) -> Vec<Index>;
}

impl<T: Into<Index>> IntoIndex for T {
    fn into_index(self) -> Vec<Index> {
        vec![self.into()]
    }
}

macro_rules! tuples {
    ($(($($t:ident)*))*) => { $(
        impl<$($t: Into<Index>),*> IntoIndex for ($($t,)*) {
            #[allow(non_snake_case, reason = "the type parameters name the fields")]
            fn into_index(self) -> Vec<Index> {
                let ($($t,)*) = self;
                vec![$($t.into()),*]
            }
        }
    )* };
}
tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F));

impl Tensor {
    /// Indexes as in Python: `x.i((0, .., 2..5))`, `x.i((NewAxis, 1..))`, `x.i((.., &mask))`.
    /// Returns a view, or a copy if an entry is a tensor.
    #[track_caller]
    pub fn i(&self, index: impl IntoIndex) -> Tensor {
        let loc = Loc::caller();
        self.indexed(index.into_index()).unwrap_or_else(|e| Tensor::poison(failed(e.at(loc))))
    }

    #[track_caller]
    fn indexed(&self, entries: Vec<Index>) -> Result<Tensor> {
        self.alive()?;
        let used: usize = entries
            .iter()
            .map(|e| match e {
                Index::NewAxis => 0,
                Index::Tensor(t) if t.dtype() == maquette_ir::DType::Bool => t.dim(),
                _ => 1,
            })
            .sum();
        let mut missing = self.dim().checked_sub(used);
        if missing.is_none()
            && entries.iter().any(|e| matches!(e, Index::Full))
            && used == self.dim() + 1
        {
            // With entries for all other dimensions, `..` stands for no dimension.
            return self.indexed(without_first_full(entries));
        }
        let mut out = self.clone();
        let (mut dim, mut list): (i64, Vec<Option<Tensor>>) = (0, Vec::new());
        for entry in entries {
            match entry {
                Index::At(i) => out = out.select(dim, i),
                Index::Slice(start, end) => {
                    out =
                        crate::methods::aten!("slice.Tensor", Loc::caller(); &out, dim, start, end);
                    dim += 1;
                }
                Index::Full => dim += 1 + missing.take().unwrap_or(0) as i64,
                Index::NewAxis => {
                    out = out.unsqueeze(dim);
                    dim += 1;
                }
                Index::Tensor(t) => {
                    let width =
                        if t.dtype() == maquette_ir::DType::Bool { t.dim() as i64 } else { 1 };
                    list.resize(usize::try_from(dim).map_err(Error::other)?, None);
                    list.push(Some(t));
                    // A mask with several dimensions indexes as many dimensions.
                    for _ in 1..width {
                        list.push(None);
                    }
                    dim += width;
                }
            }
            out.ok()?;
        }
        if list.iter().all(Option::is_none) {
            return Ok(out);
        }
        Ok(out.index(&masks_alone(&list)))
    }
}

fn without_first_full(mut entries: Vec<Index>) -> Vec<Index> {
    if let Some(at) = entries.iter().position(|e| matches!(e, Index::Full)) {
        entries.remove(at);
    }
    entries
}

/// The index list of the operator, in which a mask is one entry for all its dimensions.
fn masks_alone(list: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    let mut out = Vec::new();
    let mut skip = 0;
    for t in list {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        skip = t
            .as_ref()
            .filter(|t| t.dtype() == maquette_ir::DType::Bool)
            .map_or(0, |t| t.dim().saturating_sub(1));
        out.push(t.as_ref());
    }
    out
}
