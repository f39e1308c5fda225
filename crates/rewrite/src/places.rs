//! Where tensors lie: which storage each is of, and which of its elements.

use crate::algebra::{long_dims, row_gap_of};
use crate::beforehand::{Group, Learnt};
use crate::dag::{Id, Kind, Meta, MetaId, Node, SpecId};
use crate::error::{Reason, Result};
use crate::functional::SharedMemory;
use crate::lift::{AS_STRIDED, Binding, Lift};
use crate::memory::{Handle, Item, Owner, Storage};
use maquette_ir::graph::{TypeId, ValueId, ValueType};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::sym::{Expr, Rel, SymTable};
use maquette_ir::view::{TriBool, ViewSpec};
use smallvec::SmallVec;

/// How a storage lies.
struct Lies {
    /// Its elements in memory.
    place: SpecId,
    /// The tensor as a view of them.
    spec: SpecId,
    base: MetaId,
    /// The elements of the value as it is made that are not repeated ones.
    once: Option<(SpecId, MetaId)>,
    /// Those in the order of the storage, if it is another.
    there: Option<SpecId>,
}

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
                let t = self.graph.type_of(ty);
                let repeats = t.strides.contains(&Expr::Int(0));
                let sorts = t.sizes.iter().any(|n| matches!(n, Expr::Id(_))) || self.known.ordered.contains(&v);
                let meta = self.meta(ty);
                let lies = if repeats || sorts { self.lies(ty, sorts)? } else { None };
                let Lies { place, spec, base, once, there } = match lies {
                    Some(lies) => lies,
                    None => {
                        let spec = self.memory.session.all(meta).ok_or(Reason::Internal("sizes overflow"))?;
                        Lies { place: self.place(ty)?, spec, base: meta, once: None, there: None }
                    }
                };
                let version = match once {
                    Some((once, meta)) => self.memory.add(Node::View(once, id), Kind::Tensor(meta)),
                    None => id,
                };
                self.memory.storages.push(Storage { owner, made: Some(v), version, pending: there, place, base, written: None });
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
        Ok(self.lies(ty, true)?.filter(|lies| lies.there.is_some()).map(|_| Learnt::Order(v)))
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
            from_first: if fault_injected("share: counted from the storage") { start } else { start - first },
            len: end - start,
        });
        self.memory.storages.push(Storage { owner: Owner::Memory(number), made: None, version, pending: None, place, base, written: None });
        let storage = self.memory.storages.len() - 1;
        for (v, ty) in inputs {
            let whole = Handle { storage, spec: place, meta, ty };
            self.view(v, whole, INPUT)?;
        }
        Ok(())
    }

    /// How the storage of a value lies whose elements are not those of its type in row-major order: elements that are repeated are one element of
    /// memory, and there are none of no elements; if it is to be `sorted`, dimensions are in the order of memory, where views are found without
    /// proof, gaps between elements or not. `None` if all of that changes nothing.
    fn lies(&mut self, ty: TypeId, sorted: bool) -> Result<Option<Lies>> {
        let t = self.graph.type_of(ty);
        let repeats = |d: usize| t.strides[d] == Expr::Int(0);
        let meta = self.meta(ty);
        let session = &mut self.memory.session;
        let narrow = (0..t.sizes.len()).any(repeats);
        let mut sizes = t.sizes.clone();
        for d in (0..sizes.len()).filter(|&d| repeats(d)) {
            sizes[d] = match fault_injected("repeated elements: there is one") {
                true => Expr::Int(1),
                false => session.symbols.min(sizes[d], Expr::Int(1)).map_err(|_| Reason::Internal("sizes overflow"))?,
            };
        }
        // where they are, a view has elements only if there are any
        let some = |d: usize| if repeats(d) && t.sizes[d] != Expr::Int(0) { Expr::Int(1) } else { t.sizes[d] };
        let places: SmallVec<[Expr; 4]> = (0..t.sizes.len()).map(some).collect();
        let order = match sorted && !self.graph.is_contiguous(ty) {
            true => order_of_memory(&places, &t.strides, &mut session.symbols)?.filter(|order| !order.is_sorted()),
            false => None,
        };
        if order.is_none() && !narrow {
            return Ok(None);
        }
        let sorts = order.is_some();
        let order = order.unwrap_or_else(|| (0..t.sizes.len()).collect());
        let pick = |of: &[Expr]| -> SmallVec<[Expr; 4]> { order.iter().map(|&d| of[d]).collect() };
        let mut row = |sizes: &[Expr]| -> Result<SmallVec<[Expr; 4]>> {
            Ok(ViewSpec::contiguous(sizes, &mut session.symbols)?.dims().iter().map(|d| d.stride).collect())
        };
        let (own, made, in_order) = (row(&t.sizes)?, row(&places)?, row(&pick(&places))?);
        let mut back: SmallVec<[Expr; 4]> = made.clone();
        if !fault_injected("order of memory: not taken back") {
            order.iter().zip(&in_order).for_each(|(&d, stride)| back[d] = *stride);
        }
        (0..back.len()).filter(|&d| repeats(d)).for_each(|d| back[d] = Expr::Int(0));
        let mut view = |offset: Expr, sizes: &[Expr], strides: &[Expr]| -> Result<SpecId> {
            let spec = ViewSpec::strided(offset, sizes, strides, &mut session.symbols)?;
            Ok(session.spec(spec))
        };
        let place = view(t.offset, &pick(&places), &pick(&t.strides))?;
        let spec = view(Expr::Int(0), &t.sizes, &back)?;
        let once = if narrow { Some(view(Expr::Int(0), &sizes, &own)?) } else { None };
        let there = if sorts { Some(view(Expr::Int(0), &pick(&sizes), &pick(&made))?) } else { None };
        let base = session.resized(meta, pick(&sizes));
        let once = once.map(|once| (once, session.resized(meta, sizes)));
        Ok(Some(Lies { place, spec, base, once, there }))
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
                    _ => return Err(self.lost(op, place, whole).into()),
                }
            }
        };
        if reaches(op) && self.memory.session.inside(place, whole) != TriBool::Yes && !fault_injected("lift: views reach what there is") {
            self.check_inside(op, place, whole)?;
        }
        self.bind(v, Binding::Tensor(Handle { storage: of.storage, spec, meta, ty }));
        Ok(())
    }

    /// Whether a tensor can be one with the elements of another, in order, without a copy.
    pub(crate) fn is_in_order(&mut self, v: ValueId, of: Handle) -> Result<bool> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else { return Ok(true) };
        let (a, b) = (self.place(ty)?, self.place(of.ty)?);
        let (a, b, symbols) = self.memory.session.pair(a, b);
        Ok(a == b || a.same(b, symbols) != TriBool::No)
    }

    /// Checks in the run that a view has no element beyond its tensor's.
    fn check_inside(&mut self, op: &str, place: SpecId, whole: SpecId) -> Result<()> {
        let session = &mut self.memory.session;
        let (inner, outer, symbols) = session.pair(place, whole);
        let ends = inner.last(symbols).zip(outer.last(symbols)).zip(inner.numel(symbols).zip(outer.numel(symbols)));
        let Some(((last, end), (numel, there))) = ends else { return Err(self.outside(op, place).into()) };
        let begins = symbols.rel(Rel::Ge, inner.offset(), outer.offset());
        let ends = symbols.rel(Rel::Le, last, end);
        // of no elements there is no last one
        let some = symbols.rel(Rel::Gt, there, Expr::Int(0));
        let empty = symbols.rel(Rel::Eq, numel, Expr::Int(0));
        let within = symbols.and(begins, ends).and_then(|within| symbols.and(some, within));
        let cond = within.and_then(|within| symbols.or(empty, within));
        let cond = cond.map_err(|_| Reason::Internal("a condition on a view overflows"))?;
        let message = Some(session.name("a view has no elements but those of its tensor"));
        let at = self.memory.at;
        self.memory.items.push(Item::Assert { cond, message, at });
        Ok(())
    }

    /// Why a view was not found in its storage.
    fn lost(&self, op: &str, place: SpecId, whole: SpecId) -> Reason {
        let specs = &self.memory.session.specs;
        let is_open = |spec: &ViewSpec| {
            let mut numbers = spec.dims().iter().flat_map(|d| [d.size, d.stride]).chain([spec.offset()]);
            numbers.any(|n| matches!(n, Expr::Id(_)))
        };
        if op == AS_STRIDED || ![place, whole].iter().any(|s| is_open(&specs[s.index()])) {
            return self.outside(op, place);
        }
        Reason::Unlocated { op: op.into(), viewed: self.memory.session.text(&specs[place.index()]) }
    }

    fn outside(&self, op: &str, place: SpecId) -> Reason {
        Reason::Outside { op: op.into(), viewed: self.memory.session.text(&self.memory.session.specs[place.index()]) }
    }
}

/// What an input's view of shared memory is called.
const INPUT: &str = "an input";

/// Whether an operator may give views of elements that its tensor does not have; of the builtin ones just one does.
fn reaches(op: &str) -> bool {
    op == AS_STRIDED || op != INPUT && !op.starts_with("aten::")
}

/// The first order of dimensions in which elements lie one behind the other, each as far from the last.
fn order_of_memory(sizes: &[Expr], strides: &[Expr], symbols: &mut SymTable) -> Result<Option<SmallVec<[usize; 4]>>> {
    let place = ViewSpec::strided(Expr::Int(0), sizes, strides, symbols)?;
    for long in long_dims(sizes, symbols) {
        let dims = place.dims().iter().zip(&long).filter(|(_, long)| **long).map(|(d, _)| d);
        let Some(gap) = dims.filter_map(|d| d.stride.as_i64()).filter(|s| *s > 0).min() else { continue };
        let mut order = SmallVec::new();
        if (Search { place: &place, long: &long, gap }).goes_on(&mut order, symbols)? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

/// The search for the order of memory, from the outermost dimension on.
struct Search<'a> {
    place: &'a ViewSpec,
    /// The dimensions whose strides count.
    long: &'a [bool],
    gap: i64,
}

impl Search<'_> {
    fn goes_on(&self, order: &mut SmallVec<[usize; 4]>, symbols: &mut SymTable) -> Result<bool> {
        let dims = self.place.dims();
        if order.len() == dims.len() {
            let (sizes, strides) = order.iter().map(|&d| (dims[d].size, dims[d].stride)).collect::<(Vec<Expr>, Vec<Expr>)>();
            let long: SmallVec<[bool; 4]> = order.iter().map(|&d| self.long[d]).collect();
            let place = ViewSpec::strided(Expr::Int(0), &sizes, &strides, symbols)?;
            return Ok(row_gap_of(&place, &long, symbols).is_some());
        }
        for d in 0..dims.len() {
            // those whose strides do not count stay in the order they have
            if order.contains(&d) || !self.long[d] && order.iter().any(|&o| o > d && !self.long[o]) {
                continue;
            }
            order.push(d);
            if self.fills(order, d, symbols)? && self.goes_on(order, symbols)? {
                return Ok(true);
            }
            order.pop();
        }
        Ok(false)
    }

    /// Whether the dimensions that are not in order yet fill the stride of the last that is.
    fn fills(&self, order: &[usize], last: usize, symbols: &mut SymTable) -> Result<bool> {
        if !self.long[last] {
            return Ok(true);
        }
        let dims = self.place.dims();
        let rest = (0..dims.len()).filter(|d| !order.contains(d));
        let sizes: SmallVec<[Expr; 4]> = std::iter::once(last).chain(rest).map(|d| dims[d].size).collect();
        let row = ViewSpec::contiguous(&sizes, symbols)?;
        let step = row.dims().first().and_then(|row| symbols.mul(row.stride, Expr::Int(self.gap)).ok());
        Ok(step == Some(dims[last].stride))
    }
}
