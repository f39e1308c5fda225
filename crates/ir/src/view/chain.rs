//! Views as chains of the operations that make them: `select 0 0 |> slice 1 2:5 |> permute [1, 0]`.

use super::arith::{ONE, SymArith, ZERO};
use super::{Dim, ViewError, ViewSpec};
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;
use std::fmt::{self, Display, Formatter};

/// Sizes or strides.
type Exprs = SmallVec<[Expr; 4]>;

/// An operation that takes a tensor to a view of it. Dimensions count from zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewOp {
    /// One position along a dimension, which goes.
    Select {
        /// The dimension.
        dim: usize,
        /// The position.
        index: Expr,
    },
    /// Every `step`-th position along a dimension, `start` included, `end` not.
    Slice {
        /// The dimension.
        dim: usize,
        /// The first position.
        start: Expr,
        /// The end.
        end: Expr,
        /// The distance, at least 1.
        step: Expr,
    },
    /// The dimensions in another order.
    Permute(SmallVec<[usize; 4]>),
    /// A dimension of size 1 before the given one.
    Unsqueeze(usize),
    /// Dimensions of size 1 stretched to these sizes, of the same rank.
    Expand(Exprs),
    /// The elements in order, in these sizes.
    Reshape(Exprs),
    /// Anything, over the flat elements.
    AsStrided(ViewSpec),
}

/// Operations, the first one first. See [`ViewSpec::chain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewChain(pub SmallVec<[ViewOp; 4]>);

impl ViewSpec {
    /// The view after one more operation; positions are taken to be within bounds. `None` where the
    /// operation does not fit the view's rank, where the result is no view, and where it is not
    /// strided or not known to be.
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
                    size: sliced(cx, *start, *end, *step)?,
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
                return self.compose_all(&inner, symbols);
            }
            ViewOp::AsStrided(spec) => return self.compose(spec, symbols),
        }
        let (sizes, strides): (Exprs, Exprs) = dims.iter().map(|d| (d.size, d.stride)).unzip();
        ViewSpec::strided(offset, &sizes, &strides, symbols).ok()
    }

    /// The composition with a view that has as many elements.
    fn compose_all(&self, inner: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        let (m, n) = (self.numel(symbols)?, inner.numel(symbols)?);
        SymArith(symbols).equal(m, n).then(|| self.compose(inner, symbols))?
    }

    /// How a contiguous tensor of these sizes becomes the view: a chain of named operations where
    /// one is found, else `as_strided([sizes], [strides], offset)`.
    ///
    /// # Errors
    /// Sizes that no tensor has, as [`ViewSpec::contiguous`].
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
            chain.makes(self, &whole, symbols).then_some(chain)
        });
        Ok(found
            .unwrap_or_else(|| ViewChain([ViewOp::AsStrided(self.clone())].into_iter().collect())))
    }

    /// Operations that should make the view of a contiguous one: each of its dimensions is a slice
    /// of one of the base, and what is left of the base is selected from; or the whole base, or a
    /// stretch of it, is reshaped.
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
        let stretch = base.rank() == 1 && key.rank() == 1 && self.rank() != 1;
        if stretch {
            target = key;
        }
        let sources = sources(cx, &target, base);
        narrow(cx, &mut chain, &target, base, &sources)?;
        permute(&mut chain, &sources);
        expand_missing(&mut chain, &target, &sources);
        if stretch {
            chain.0.push(ViewOp::Reshape(self.sizes().collect()));
        }
        Some(chain)
    }
}

/// Of which dimension of the base a dimension of the view is a slice, and with which step; none for
/// one that is stretched.
type Source = Option<(usize, Expr)>;

/// The first dimension of the base that is still free, whose stride divides the view's, and that is
/// not too short.
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

/// Slices and selections that leave the positions of the view, in the order of the base.
fn narrow(
    cx: &mut SymArith,
    chain: &mut ViewChain,
    view: &ViewSpec,
    base: &ViewSpec,
    sources: &[Source],
) -> Option<()> {
    let (mut rest, mut dim) = (view.offset, 0);
    for (i, b) in base.dims.iter().enumerate() {
        let (start, less) = cx.digit(rest, b.stride)?;
        rest = less;
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
    (rest == ZERO).then_some(())
}

/// The order of the view's dimensions.
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

/// Dimensions that are in no slice.
fn expand_missing(chain: &mut ViewChain, view: &ViewSpec, sources: &[Source]) {
    let new = || sources.iter().enumerate().filter(|(_, s)| s.is_none()).map(|(i, _)| i);
    chain.0.extend(new().map(ViewOp::Unsqueeze));
    if new().any(|i| view.dims.get(i).is_some_and(|d| d.size != ONE)) {
        chain.0.push(ViewOp::Expand(view.sizes().collect()));
    }
}

/// How many positions a slice has.
fn sliced(cx: &mut SymArith, start: Expr, end: Expr, step: Expr) -> Option<Expr> {
    let length = cx.sub(end, start)?;
    if step == ONE {
        return Some(length);
    }
    let more = cx.sub(step, ONE)?;
    let rounded = cx.add(length, more)?;
    cx.0.floor_div(rounded, step).ok()
}

impl ViewChain {
    /// Whether the chain makes exactly the view, its sizes included.
    fn makes(&self, view: &ViewSpec, base: &ViewSpec, symbols: &mut SymTable) -> bool {
        let made = self.0.iter().try_fold(base.clone(), |spec, op| spec.apply(op, symbols));
        made.is_some_and(|made| made.sizes().eq(view.sizes()) && made.same(view, symbols).is_yes())
    }

    /// The text, with the names of the symbols. The chain without operations is `whole`.
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
