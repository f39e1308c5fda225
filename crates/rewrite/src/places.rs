//! Where tensors lie: which storage each is of, and which of its elements.

use crate::algebra::row_gap;
use crate::beforehand::{Group, Learnt};
use crate::dag::{Id, Kind, Meta, MetaId, Node, SpecId};
use crate::error::{Reason, Result};
use crate::functional::SharedMemory;
use crate::lift::{AS_STRIDED, Binding, Lift};
use crate::memory::{Handle, Item, Owner, Storage};
use maquette_ir::graph::{TypeId, ValueId, ValueType};
use maquette_ir::mutant::mutant;
use maquette_ir::sym::{Expr, Rel, SymTable};
use maquette_ir::view::{Tri, ViewSpec};
use smallvec::SmallVec;

impl Lift<'_> {
    pub(crate) fn meta(&mut self, ty: TypeId) -> MetaId {
        if let Some(Some((meta, _))) = self.types.get(ty.index()) {
            return *meta;
        }
        let t = self.graph.type_of(ty);
        let meta = self.memory.session.meta(Meta { dtype: t.dtype, device: t.device, layout: t.layout, sizes: t.sizes.clone() });
        if let Some(known) = self.types.get_mut(ty.index()) {
            *known = Some((meta, None));
        }
        meta
    }

    /// The elements of a tensor in memory.
    pub(crate) fn place(&mut self, ty: TypeId) -> Result<SpecId> {
        if let Some(Some((_, Some(place)))) = self.types.get(ty.index()) {
            return Ok(*place);
        }
        let t = self.graph.type_of(ty);
        let spec = ViewSpec::strided(t.offset, &t.sizes, &t.strides, &mut self.memory.session.symbols)?;
        let (place, meta) = (self.memory.session.spec(spec), self.meta(ty));
        if let Some(known) = self.types.get_mut(ty.index()) {
            *known = Some((meta, Some(place)));
        }
        Ok(place)
    }

    /// Something from outside, which has a storage of its own.
    pub(crate) fn enter(&mut self, v: ValueId, owner: Owner, node: Node) -> Result<()> {
        let kind = self.kind(self.graph.value_type(v));
        let id = self.memory.add(node, kind);
        self.own(v, id, owner)
    }

    /// A value that is all there is in a storage.
    pub(crate) fn own(&mut self, v: ValueId, id: Id, owner: Owner) -> Result<()> {
        let binding = match self.graph.value_type(v) {
            ValueType::Tensor(ty) => {
                let (mut place, meta) = (self.place(ty)?, self.meta(ty));
                let mut spec = self.memory.session.all(meta).ok_or(Reason::Internal("sizes overflow"))?;
                let (mut version, mut base, mut pending) = (id, meta, None);
                let t = self.graph.type_of(ty);
                if t.strides.contains(&Expr::Int(0)) {
                    (place, spec, base, version) = self.narrow(ty, id)?;
                } else if (t.sizes.iter().any(|n| matches!(n, Expr::Id(_))) || self.known.ordered.contains(&v))
                    && let Some((found, back, sizes, there)) = self.in_order(ty)?
                {
                    (place, spec, base, pending) = (found, back, sizes, Some(there));
                }
                self.memory.storages.push(Storage { owner, made: Some(v), version, pending, place, base, written: None });
                Binding::Tensor(Handle { storage: self.memory.storages.len() - 1, spec, meta, ty })
            }
            _ => Binding::Number(id),
        };
        self.bind(v, binding);
        Ok(())
    }

    /// The elements of an input's memory that a view reaches, where they are plain numbers.
    pub(crate) fn reach(&self, of: Handle, place: SpecId) -> Option<Learnt> {
        let number = |e: Expr| if let Expr::Int(n) = e { Some(n) } else { None };
        let input = match self.memory.storages[of.storage].owner {
            Owner::Input(i) => i as usize,
            Owner::Memory(i) => *self.memory.shared[i as usize].inputs.first()?,
            Owner::Const(_) | Owner::Fresh => return None,
        };
        let spec = &self.memory.session.specs[place.index()];
        let start = number(spec.offset())?;
        let steps = spec.dims().iter().map(|d| number(d.size)?.checked_sub(1)?.max(0).checked_mul(number(d.stride)?));
        let last = steps.sum::<Option<i64>>()?;
        Some(Learnt::Reach { input, start, end: start.checked_add(last)?.checked_add(1)? })
    }

    /// What would have to be known of a tensor's storage for a view of it to be found, where anything would do.
    fn missing(&mut self, of: Handle, place: SpecId) -> Result<Option<Learnt>> {
        if let Some(reach) = self.reach(of, place) {
            return Ok(Some(reach));
        }
        let made = self.memory.storages[of.storage].made.filter(|v| !self.known.ordered.contains(v));
        let Some((v, ValueType::Tensor(ty))) = made.map(|v| (v, self.graph.value_type(v))) else { return Ok(None) };
        Ok(self.in_order(ty)?.map(|_| Learnt::Order(v)))
    }

    /// Memory that several inputs see.
    pub(crate) fn share(&mut self, Group { inputs: group, start, end }: &Group) -> Result<()> {
        let inputs: SmallVec<[(ValueId, TypeId); 4]> = group
            .iter()
            .filter_map(|&i| self.graph.inputs().get(i))
            .filter_map(|&v| if let ValueType::Tensor(ty) = self.graph.value_type(v) { Some((v, ty)) } else { None })
            .collect();
        let Some(&(_, first)) = inputs.first() else { return Ok(()) };
        let (mut start, mut end) = (*start, *end);
        for &(_, ty) in &inputs {
            let t = self.graph.type_of(ty);
            let number = |e: &Expr| if let Expr::Int(n) = e { Ok(*n) } else { Err(Reason::SymbolicShare) };
            let sizes = t.sizes.iter().map(number).collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            let strides = t.strides.iter().map(number).collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            if t.dtype != self.graph.type_of(first).dtype {
                let (from, to) = (self.graph.type_of(first).dtype.to_string(), t.dtype.to_string());
                return Err(Reason::Reinterpreted { op: "an input".into(), from, to }.into());
            }
            let offset = number(&t.offset)?;
            let last: i64 = sizes.iter().zip(&strides).map(|(n, s)| (n - 1).saturating_mul(*s)).sum();
            if !sizes.contains(&0) {
                (start, end) = (start.min(offset), end.max(offset.saturating_add(last).saturating_add(1)));
            }
        }
        let start = start.min(end);
        let row: SmallVec<[Expr; 4]> = smallvec::smallvec![Expr::Int(end - start)];
        let meta = self.meta(first);
        let session = &mut self.memory.session;
        let base = session.resized(meta, row.clone());
        let place = ViewSpec::strided(Expr::Int(start), &row, &[Expr::Int(1)], &mut session.symbols)?;
        let place = session.spec(place);
        let number = self.memory.shared.len() as u32;
        let input = self.graph.inputs().len() as u32 + number;
        let version = self.memory.add(Node::Input(input), Kind::Tensor(base));
        let first = if let Expr::Int(o) = self.graph.type_of(first).offset { o } else { 0 };
        self.memory.shared.push(SharedMemory {
            inputs: group.clone(),
            start,
            from_first: if mutant("share: counted from the storage") { start } else { start - first },
            len: end - start,
        });
        self.memory.storages.push(Storage { owner: Owner::Memory(number), made: None, version, pending: None, place, base, written: None });
        let storage = self.memory.storages.len() - 1;
        for (v, ty) in inputs {
            let whole = Handle { storage, spec: place, meta, ty };
            self.view(v, whole, "an input")?;
        }
        Ok(())
    }

    /// Sizes in another order than row-major: in the order of memory views are found without proof, gaps between elements or not. The
    /// places in that order, the tensor as a view of them, their sizes, and the places as a view of the tensor.
    pub(crate) fn in_order(&mut self, ty: TypeId) -> Result<Option<(SpecId, SpecId, MetaId, SpecId)>> {
        let t = self.graph.type_of(ty);
        if self.graph.is_contiguous(ty) {
            return Ok(None);
        }
        let meta = self.meta(ty);
        let session = &mut self.memory.session;
        let Some(order) = order_of_memory(&t.sizes, &t.strides, &mut session.symbols)?.filter(|order| !order.is_sorted()) else {
            return Ok(None);
        };
        let pick = |of: &[Expr]| -> SmallVec<[Expr; 4]> { order.iter().map(|&d| of[d]).collect() };
        let (sizes, strides) = (pick(&t.sizes), pick(&t.strides));
        let place = ViewSpec::strided(t.offset, &sizes, &strides, &mut session.symbols)?;
        let row = ViewSpec::contiguous(&sizes, &mut session.symbols)?;
        // the value in the order of memory, and back
        let own = ViewSpec::contiguous(&t.sizes, &mut session.symbols)?;
        let own: SmallVec<[Expr; 4]> = own.dims().iter().map(|d| d.stride).collect();
        let there = ViewSpec::strided(Expr::Int(0), &sizes, &pick(&own), &mut session.symbols)?;
        let mut back: SmallVec<[Expr; 4]> = own.clone();
        if !mutant("order of memory: not taken back") {
            order.iter().zip(row.dims()).for_each(|(&d, dim)| back[d] = dim.stride);
        }
        let back = ViewSpec::strided(Expr::Int(0), &t.sizes, &back, &mut session.symbols)?;
        let (place, there, back) = (session.spec(place), session.spec(there), session.spec(back));
        Ok(Some((place, back, session.resized(meta, sizes), there)))
    }

    /// Elements that are repeated are one element of memory: the places of those that are not, the tensor as a view of them, and their value, which
    /// has none of no elements.
    pub(crate) fn narrow(&mut self, ty: TypeId, id: Id) -> Result<(SpecId, SpecId, MetaId, Id)> {
        let t = self.graph.type_of(ty);
        let (meta, place) = (self.meta(ty), self.place(ty)?);
        let session = &mut self.memory.session;
        let mut once = |n: Expr| match mutant("repeated elements: there is one") {
            true => Ok(Expr::Int(1)),
            false => session.symbols.min(n, Expr::Int(1)),
        };
        let mut sizes: SmallVec<[Expr; 4]> = SmallVec::new();
        for (&n, &s) in t.sizes.iter().zip(&t.strides) {
            sizes.push(if s == Expr::Int(0) { once(n).map_err(|_| Reason::Internal("sizes overflow"))? } else { n });
        }
        // where they are, a view has elements only if there are any
        let there: SmallVec<[Expr; 4]> =
            t.sizes.iter().zip(&t.strides).map(|(&n, &s)| if s == Expr::Int(0) && n != Expr::Int(0) { Expr::Int(1) } else { n }).collect();
        let whole = session.all(meta).ok_or(Reason::Internal("sizes overflow"))?;
        let strides: SmallVec<[Expr; 4]> = session.specs[whole.index()].dims().iter().map(|d| d.stride).collect();
        let once = ViewSpec::strided(Expr::Int(0), &sizes, &strides, &mut session.symbols)?;
        let narrowed = ViewSpec::strided(t.offset, &there, &t.strides, &mut session.symbols)?;
        let (once, narrowed, base) = (session.spec(once), session.spec(narrowed), session.resized(meta, sizes));
        let spec = session.relative(place, narrowed).ok_or_else(|| self.outside("the input", place))?;
        let version = self.memory.add(Node::View(once, id), Kind::Tensor(base));
        Ok((narrowed, spec, base, version))
    }

    pub(crate) fn bind(&mut self, v: ValueId, binding: Binding) {
        if let Some(place) = self.bindings.get_mut(v.index()) {
            *place = Some(binding);
        }
    }

    pub(crate) fn binding(&self, v: ValueId) -> Result<Binding> {
        Ok(self.bindings.get(v.index()).copied().flatten().ok_or(Reason::Internal("a value is used before it is defined"))?)
    }

    /// A tensor that is a view of a storage.
    pub(crate) fn view(&mut self, v: ValueId, of: Handle, op: &str) -> Result<()> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else {
            return Err(Reason::Internal("a result that is no tensor is a view").into());
        };
        let (place, meta) = (self.place(ty)?, self.meta(ty));
        let Storage { base, place: whole, .. } = self.memory.storages[of.storage];
        let session = &mut self.memory.session;
        let (from, to) = (session.metas[base.index()].dtype, session.metas[meta.index()].dtype);
        if from != to {
            return Err(Reason::Reinterpreted { op: op.into(), from: from.to_string(), to: to.to_string() }.into());
        }
        let spec = match session.located(place, whole) {
            Some(spec) => spec,
            None => {
                let missing = self.missing(of, place)?;
                self.learnt.extend(missing);
                match missing {
                    // something in its place, to learn more of the program
                    Some(Learnt::Order(_)) => self.memory.session.all(meta).ok_or(Reason::Internal("sizes overflow"))?,
                    _ => return Err(self.outside(op, place).into()),
                }
            }
        };
        if op == AS_STRIDED && self.memory.session.inside(place, whole) != Tri::Yes && !mutant("lift: views reach what there is") {
            self.check_inside(place, whole)?;
        }
        self.bind(v, Binding::Tensor(Handle { storage: of.storage, spec, meta, ty }));
        Ok(())
    }

    /// Whether a tensor can be one with the elements of another, in order, without a copy.
    pub(crate) fn is_in_order(&mut self, v: ValueId, of: Handle) -> Result<bool> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else { return Ok(true) };
        let (a, b) = (self.place(ty)?, self.place(of.ty)?);
        let (a, b, symbols) = self.memory.session.pair(a, b);
        Ok(a == b || a.same(b, symbols) != Tri::No)
    }

    /// Checks in the run that a view has no element beyond its tensor's; the other views never do.
    fn check_inside(&mut self, place: SpecId, whole: SpecId) -> Result<()> {
        let session = &mut self.memory.session;
        let (inner, outer, symbols) = session.pair(place, whole);
        let ends = inner.last(symbols).zip(outer.last(symbols)).zip(inner.numel(symbols));
        let Some(((last, end), numel)) = ends else { return Err(self.outside(AS_STRIDED, place).into()) };
        let begins = symbols.rel(Rel::Ge, inner.offset(), outer.offset());
        let ends = symbols.rel(Rel::Le, last, end);
        let empty = symbols.rel(Rel::Eq, numel, Expr::Int(0));
        let cond = symbols.and(begins, ends).and_then(|inside| symbols.or(empty, inside));
        let cond = cond.map_err(|_| Reason::Internal("a condition on a view overflows"))?;
        let message = Some(session.name("a view has no elements but those of its tensor"));
        let at = self.memory.at;
        self.memory.items.push(Item::Assert { cond, message, at });
        Ok(())
    }

    pub(crate) fn outside(&self, op: &str, place: SpecId) -> Reason {
        Reason::Outside { op: op.into(), viewed: self.memory.session.text(&self.memory.session.specs[place.index()]) }
    }
}

/// The first order of dimensions in which elements lie one behind the other, each as far from the last.
fn order_of_memory(sizes: &[Expr], strides: &[Expr], symbols: &mut SymTable) -> Result<Option<SmallVec<[usize; 4]>>> {
    /// Dimensions from the outermost on. A branch ends where what is left does not fill the stride of the one before.
    fn search(order: &mut SmallVec<[usize; 4]>, fits: &mut dyn FnMut(&[usize], bool) -> Result<bool>, rank: usize) -> Result<bool> {
        if order.len() == rank {
            return fits(order, true);
        }
        for d in (0..rank).filter(|d| !order.contains(d)).collect::<SmallVec<[usize; 4]>>() {
            order.push(d);
            if fits(order, false)? && search(order, fits, rank)? {
                return Ok(true);
            }
            order.pop();
        }
        Ok(false)
    }
    let is_long = |d: usize| sizes[d] != Expr::Int(1);
    let place = ViewSpec::strided(Expr::Int(0), sizes, strides, symbols)?;
    let strides: SmallVec<[Expr; 4]> = place.dims().iter().map(|d| d.stride).collect();
    let Some(gap) = (0..sizes.len()).filter(|&d| is_long(d)).filter_map(|d| strides[d].as_i64()).filter(|s| *s > 0).min() else {
        return Ok(None);
    };
    let pick = |of: &[Expr], order: &[usize]| -> SmallVec<[Expr; 4]> { order.iter().map(|&d| of[d]).collect() };
    let mut fits = |order: &[usize], whole: bool| {
        if whole {
            let place = ViewSpec::strided(Expr::Int(0), &pick(sizes, order), &pick(&strides, order), symbols)?;
            return Ok(row_gap(&place, symbols).is_some());
        }
        let Some(&d) = order.last().filter(|&&d| is_long(d)) else { return Ok(true) };
        let rest = std::iter::once(d).chain((0..sizes.len()).filter(|r| !order.contains(r)));
        let row = ViewSpec::contiguous(&pick(sizes, &rest.collect::<SmallVec<[usize; 4]>>()), symbols)?;
        Ok(row.dims().first().is_some_and(|row| symbols.mul(row.stride, Expr::Int(gap)).is_ok_and(|s| s == strides[d])))
    };
    let mut order = SmallVec::new();
    Ok(search(&mut order, &mut fits, sizes.len())?.then_some(order))
}
