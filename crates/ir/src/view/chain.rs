//! View operations, and the synthesis of a chain of them for a view:
//! `select 0 0 |> slice 1 2:5 |> permute [1, 0]`.
//!
//! Synthesis matches each dimension of the view to a dimension of the base whose stride divides the
//! view's stride. It slices the matched dimensions, selects one index along the others, permutes,
//! and expands broadcast dimensions. A chain is returned only if applying it reproduces the view;
//! otherwise the result is a single `as_strided`. The cost is quadratic in the number of
//! dimensions.

use super::arith::{ONE, SymArith, ZERO};
use super::{Dim, ViewError, ViewSpec};
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;
use std::fmt::{self, Display, Formatter};

/// Sizes or strides.
type Exprs = SmallVec<[Expr; 4]>;

/// A view operation of PyTorch on a tensor. Dimensions count from zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewOp {
    /// `select`: one index along a dimension, which is removed.
    Select {
        /// The dimension.
        dim: usize,
        /// The index.
        index: Expr,
    },
    /// `slice`: every `step`-th index of a dimension in `start..end`.
    Slice {
        /// The dimension.
        dim: usize,
        /// The first index.
        start: Expr,
        /// The end, exclusive.
        end: Expr,
        /// The step, at least 1.
        step: Expr,
    },
    /// `permute`: output dimension `i` is input dimension `order[i]`.
    Permute(SmallVec<[usize; 4]>),
    /// `unsqueeze`: a new dimension of size 1 at this index.
    Unsqueeze(usize),
    /// `expand`: dimensions of size 1 broadcast to these sizes; the rank is unchanged.
    Expand(Exprs),
    /// `reshape` without a copy: the elements in row-major order, with these sizes.
    Reshape(Exprs),
    /// `as_strided` over the flat order of the elements.
    AsStrided(ViewSpec),
}

/// Operations in order of application; see [`ViewSpec::chain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewChain(pub SmallVec<[ViewOp; 4]>);

impl ViewSpec {
    /// Applies an operation; indices are assumed to be in bounds. `None` if the operation does not
    /// match the rank, or if the result is not a strided view or cannot be proved to be one.
    pub fn apply(&self, op: &ViewOp, symbols: &mut SymTable) -> Option<ViewSpec> {
        let mut dims = self.dims.clone();
        let mut offset = self.offset;
        let cx = &mut SymArith(symbols);
        match op {
            ViewOp::Select { dim, index } => {
                let d = (*dim < dims.len()).then(|| dims.remove(*dim))?;
                offset = cx.mul_add(offset, *index, d.stride)?;
            }
            ViewOp::Slice { dim, start, end, step } => {
                let d = dims.get_mut(*dim)?;
                offset = cx.mul_add(offset, *start, d.stride)?;
                *d = Dim {
                    size: slice_size(cx, *start, *end, *step)?,
                    stride: cx.mul(d.stride, *step)?,
                };
            }
            ViewOp::Permute(order) => {
                let mut seen = order.clone();
                seen.sort_unstable();
                let all =
                    order.len() == dims.len() && seen.iter().enumerate().all(|(i, &d)| i == d);
                dims =
                    all.then(|| order.iter().filter_map(|&i| self.dims.get(i).copied()).collect())?;
            }
            ViewOp::Unsqueeze(dim) if *dim <= dims.len() => {
                dims.insert(*dim, Dim { size: ONE, stride: ZERO })
            }
            ViewOp::Expand(sizes) if sizes.len() == dims.len() => {
                for (d, &size) in dims.iter_mut().zip(sizes).filter(|(d, size)| d.size != **size) {
                    *d = cx.equal(d.size, ONE).then_some(Dim { size, stride: ZERO })?;
                }
            }
            ViewOp::Unsqueeze(_) | ViewOp::Expand(_) => return None,
            ViewOp::Reshape(sizes) => {
                let inner = ViewSpec::contiguous(sizes, symbols).ok()?;
                return self.reshaped(&inner, symbols);
            }
            ViewOp::AsStrided(spec) => return self.compose(spec, symbols),
        }
        let (sizes, strides): (Exprs, Exprs) = dims.iter().map(|d| (d.size, d.stride)).unzip();
        ViewSpec::strided(offset, &sizes, &strides, symbols).ok()
    }

    /// The composition with a view of the same number of elements; `None` if the numbers may
    /// differ.
    fn reshaped(&self, inner: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        let (own, wanted) = (self.numel(symbols)?, inner.numel(symbols)?);
        SymArith(symbols).equal(own, wanted).then(|| self.compose(inner, symbols))?
    }

    /// A chain of operations that takes a contiguous tensor of these sizes to the view: named
    /// operations if a chain is found, else one `as_strided`.
    ///
    /// # Errors
    /// The sizes define no tensor; see [`ViewSpec::contiguous`].
    pub fn chain(&self, base: &[Expr], symbols: &mut SymTable) -> Result<ViewChain, ViewError> {
        let whole = ViewSpec::contiguous(base, symbols)?;
        let flat: Option<Exprs> = whole.numel(symbols).map(|numel| [numel].into_iter().collect());
        let found = [Some(base.into()), flat].into_iter().flatten().find_map(|sizes: Exprs| {
            let mut chain = ViewChain::default();
            if sizes.as_slice() != base {
                chain.0.push(ViewOp::Reshape(sizes.clone()));
            }
            let start = ViewSpec::contiguous(&sizes, symbols).ok()?;
            chain.0.extend(self.steps(&start, symbols)?.0);
            chain.produces(self, &whole, symbols).then_some(chain)
        });
        Ok(found
            .unwrap_or_else(|| ViewChain([ViewOp::AsStrided(self.clone())].into_iter().collect())))
    }

    /// Proposes operations that take a contiguous base to the view, for the caller to verify. If
    /// the view is the whole base, it is a reshape. Otherwise each dimension of the view is a slice
    /// of one dimension of the base, and the remaining dimensions of the base are selected. A
    /// contiguous run of a flat base is sliced and then reshaped.
    fn steps(&self, base: &ViewSpec, symbols: &mut SymTable) -> Option<ViewChain> {
        let cx = &mut SymArith(symbols);
        let mut chain = ViewChain::default();
        let numel = cx.numel(&base.dims)?;
        let mut target = self.clone();
        if self.is_full(numel, cx.0).is_yes() {
            if !self.sizes().eq(base.sizes()) {
                chain.0.push(ViewOp::Reshape(self.sizes().collect()));
            }
            return Some(chain);
        }
        let key = self.normalized(cx);
        let is_flat_run = base.rank() == 1 && key.rank() == 1 && self.rank() != 1;
        if is_flat_run {
            target = key;
        }
        let sources = sources(cx, &target, base);
        narrow(cx, &mut chain, &target, base, &sources)?;
        permute(&mut chain, &sources);
        expand_missing(&mut chain, &target, &sources);
        if is_flat_run {
            chain.0.push(ViewOp::Reshape(self.sizes().collect()));
        }
        Some(chain)
    }
}

/// The dimension of the base that a dimension of the view slices, and the slice's step; `None` for
/// a broadcast dimension.
type Source = Option<(usize, Expr)>;

/// Matches each dimension of the view to the first unused dimension of the base whose stride
/// divides the view's stride and whose size covers the slice.
fn sources(cx: &mut SymArith, view: &ViewSpec, base: &ViewSpec) -> SmallVec<[Source; 4]> {
    let mut sources: SmallVec<[Source; 4]> = SmallVec::new();
    for &d in &view.dims {
        let free = |i: usize, sources: &[Source]| !sources.iter().flatten().any(|s| s.0 == i);
        let found = base
            .dims
            .iter()
            .enumerate()
            .filter(|(i, _)| free(*i, &sources) && d.stride != ZERO)
            .find_map(|(i, b)| {
                let (step, ZERO) = cx.divide(d.stride, b.stride)? else { return None };
                let extent = cx.dim_extent(Dim { stride: step, ..d })?;
                (cx.holds(step, Rel::Ge, ONE) && !cx.holds(extent, Rel::Ge, b.size))
                    .then_some((i, step))
            });
        sources.push(found);
    }
    sources
}

/// Appends the slices and selections, in the order of the base's dimensions. `None` if the offset
/// of the view is not a sum of whole strides of the base.
fn narrow(
    cx: &mut SymArith,
    chain: &mut ViewChain,
    view: &ViewSpec,
    base: &ViewSpec,
    sources: &[Source],
) -> Option<()> {
    let (mut remaining, mut dim) = (view.offset, 0);
    for (i, b) in base.dims.iter().enumerate() {
        let (start, remainder) = cx.digit(remaining, b.stride)?;
        remaining = remainder;
        let slice = sources
            .iter()
            .zip(&view.dims)
            .find_map(|(s, d)| s.filter(|s| s.0 == i).map(|s| (d.size, s.1)));
        let Some((size, step)) = slice else {
            chain.0.push(ViewOp::Select { dim, index: start });
            continue;
        };
        if (start, size, step) != (ZERO, b.size, ONE) {
            let length = cx.sub(size, ONE)?;
            let last = cx.mul_add(start, length, step)?;
            chain.0.push(ViewOp::Slice { dim, start, end: cx.add(last, ONE)?, step });
        }
        dim += 1;
    }
    (remaining == ZERO).then_some(())
}

/// Appends the permutation to the order of the view's dimensions, if they differ.
fn permute(chain: &mut ViewChain, sources: &[Source]) {
    let mut kept: SmallVec<[usize; 4]> = sources.iter().flatten().map(|s| s.0).collect();
    let order = kept.clone();
    kept.sort_unstable();
    if kept != order {
        chain.0.push(ViewOp::Permute(
            order.iter().filter_map(|d| kept.binary_search(d).ok()).collect(),
        ));
    }
}

/// Appends `unsqueeze` and `expand` for dimensions that slice no dimension of the base.
fn expand_missing(chain: &mut ViewChain, view: &ViewSpec, sources: &[Source]) {
    let new = || sources.iter().enumerate().filter(|(_, s)| s.is_none()).map(|(i, _)| i);
    chain.0.extend(new().map(ViewOp::Unsqueeze));
    if new().any(|i| view.dims.get(i).is_some_and(|d| d.size != ONE)) {
        chain.0.push(ViewOp::Expand(view.sizes().collect()));
    }
}

/// The size of a slice.
fn slice_size(cx: &mut SymArith, start: Expr, end: Expr, step: Expr) -> Option<Expr> {
    let length = cx.sub(end, start)?;
    if step == ONE {
        return Some(length);
    }
    let more = cx.sub(step, ONE)?;
    let rounded = cx.add(length, more)?;
    cx.0.floor_div(rounded, step).ok()
}

impl ViewChain {
    /// Whether the chain takes `base` to exactly this view, including its sizes.
    fn produces(&self, view: &ViewSpec, base: &ViewSpec, symbols: &mut SymTable) -> bool {
        let result = self.0.iter().try_fold(base.clone(), |spec, op| spec.apply(op, symbols));
        result
            .is_some_and(|spec| spec.sizes().eq(view.sizes()) && spec.same(view, symbols).is_yes())
    }

    /// The text of the chain, such as `slice 1 n:n + 1`. An empty chain is `whole`.
    pub fn display<'a>(&'a self, symbols: &'a SymTable) -> impl Display + 'a {
        WithSymbols(symbols, self)
    }
}

struct WithSymbols<'a, T: ?Sized>(&'a SymTable, &'a T);

impl Display for WithSymbols<'_, ViewChain> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.1.0.is_empty() {
            return f.write_str("whole");
        }
        for (i, op) in self.1.0.iter().enumerate() {
            f.write_str(if i > 0 { " |> " } else { "" })?;
            WithSymbols(self.0, op).fmt(f)?;
        }
        Ok(())
    }
}

impl Display for WithSymbols<'_, ViewOp> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |e: &Expr| self.0.display(*e).to_string();
        let list = |exprs: &mut dyn Iterator<Item = Expr>| {
            exprs.map(|e| text(&e)).collect::<Vec<_>>().join(", ")
        };
        match self.1 {
            ViewOp::Select { dim, index } => write!(f, "select {dim} {}", text(index)),
            ViewOp::Slice { dim, start, end, step } => {
                write!(f, "slice {dim} {}:{}", text(start), text(end))?;
                if *step == ONE { Ok(()) } else { write!(f, ":{}", text(step)) }
            }
            ViewOp::Permute(order) => write!(f, "permute {order:?}"),
            ViewOp::Unsqueeze(dim) => write!(f, "unsqueeze {dim}"),
            ViewOp::Expand(sizes) => write!(f, "expand [{}]", list(&mut sizes.iter().copied())),
            ViewOp::Reshape(sizes) => write!(f, "reshape [{}]", list(&mut sizes.iter().copied())),
            ViewOp::AsStrided(spec) => {
                let strides = list(&mut spec.dims.iter().map(|d| d.stride));
                write!(
                    f,
                    "as_strided([{}], [{strides}], {})",
                    list(&mut spec.sizes()),
                    text(&spec.offset)
                )
            }
        }
    }
}
