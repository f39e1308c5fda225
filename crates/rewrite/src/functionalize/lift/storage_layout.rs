//! Where tensors lie: which storage each is of, and which of its elements.

use super::memory_ssa::{Handle, LiftedStmt, Storage, StorageOrigin};
use super::requirements::{InputGroup, Requirement};
use super::{Binding, Lift};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{Id, Kind, Meta, MetaId, Node, SpecId};
use crate::functionalize::view_queries::{long_dims, row_gap_of};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::SharedMemory;
use maquette_ir::graph::{TypeId, ValueId, ValueType};
use maquette_ir::sym::{Expr, Rel, SymTable};
use maquette_ir::view::{TriBool, ViewSpec};
use smallvec::SmallVec;

/// How a storage lies.
struct StorageLayout {
    /// Its elements in memory.
    region: SpecId,
    /// The tensor as a view of them.
    spec: SpecId,
    base: MetaId,
    /// The elements of the value as it is made that are not repeated ones.
    unrepeated: Option<(SpecId, MetaId)>,
    /// Those in the order of the storage, if it is another.
    reorder: Option<SpecId>,
}

impl Lift<'_> {
    pub(crate) fn meta(&mut self, ty: TypeId) -> MetaId {
        if let Some(Some((meta, _))) = self.types.get(ty.index()) {
            return *meta;
        }
        let t = self.graph.type_of(ty);
        let meta = self.memory.interner.meta(Meta {
            dtype: t.dtype,
            device: t.device,
            layout: t.layout,
            sizes: t.sizes.clone(),
        });
        if let Some(known) = self.types.get_mut(ty.index()) {
            *known = Some((meta, None));
        }
        meta
    }

    /// The elements of a tensor in memory.
    pub(crate) fn region(&mut self, ty: TypeId) -> Result<SpecId> {
        if let Some(Some((_, Some(region)))) = self.types.get(ty.index()) {
            return Ok(*region);
        }
        let t = self.graph.type_of(ty);
        let spec =
            ViewSpec::strided(t.offset, &t.sizes, &t.strides, &mut self.memory.interner.symbols)?;
        let (region, meta) = (self.memory.interner.spec(spec), self.meta(ty));
        if let Some(known) = self.types.get_mut(ty.index()) {
            *known = Some((meta, Some(region)));
        }
        Ok(region)
    }

    /// Something from outside, which has a storage of its own.
    pub(crate) fn bind_external(
        &mut self,
        v: ValueId,
        origin: StorageOrigin,
        node: Node,
    ) -> Result<()> {
        let kind = self.kind(self.graph.value_type(v));
        let id = self.memory.add(node, kind);
        self.bind_new_storage(v, id, origin)
    }

    /// A value that is all there is in a storage.
    pub(crate) fn bind_new_storage(
        &mut self,
        v: ValueId,
        id: Id,
        origin: StorageOrigin,
    ) -> Result<()> {
        let binding = match self.graph.value_type(v) {
            ValueType::Tensor(ty) => {
                let t = self.graph.type_of(ty);
                let repeats = t.strides.contains(&Expr::Int(0));
                let sorts = t.sizes.iter().any(|n| matches!(n, Expr::Id(_)))
                    || self.requirements.memory_order.contains(&v);
                let meta = self.meta(ty);
                let layout = if repeats || sorts { self.storage_layout(ty, sorts)? } else { None };
                let StorageLayout { region, spec, base, unrepeated, reorder } = match layout {
                    Some(layout) => layout,
                    None => {
                        let spec = self
                            .memory
                            .interner
                            .all(meta)
                            .ok_or(Reason::Internal("sizes overflow"))?;
                        StorageLayout {
                            region: self.region(ty)?,
                            spec,
                            base: meta,
                            unrepeated: None,
                            reorder: None,
                        }
                    }
                };
                let version = match unrepeated {
                    Some((unrepeated, meta)) => {
                        self.memory.add(Node::View(unrepeated, id), Kind::Tensor(meta))
                    }
                    None => id,
                };
                self.memory.storages.push(Storage {
                    origin,
                    made: Some(v),
                    version,
                    pending_reorder: reorder,
                    region,
                    base,
                    written: None,
                });
                Binding::Tensor(Handle { storage: self.memory.storages.len() - 1, spec, meta, ty })
            }
            _ => Binding::Number(id),
        };
        self.bind(v, binding);
        Ok(())
    }

    /// The elements of an input's memory that a view reaches, where they are plain numbers.
    pub(crate) fn input_range(&self, of: Handle, region: SpecId) -> Option<Requirement> {
        let number = |e: Expr| if let Expr::Int(n) = e { Some(n) } else { None };
        let input = match self.memory.storages[of.storage].origin {
            StorageOrigin::Input(i) => i as usize,
            StorageOrigin::Shared(i) => *self.memory.shared[i as usize].inputs.first()?,
            StorageOrigin::Const(_) | StorageOrigin::Fresh => return None,
        };
        let spec = &self.memory.interner.specs[region.index()];
        let start = number(spec.offset())?;
        let steps = spec
            .dims()
            .iter()
            .map(|d| number(d.size)?.checked_sub(1)?.max(0).checked_mul(number(d.stride)?));
        let last = steps.sum::<Option<i64>>()?;
        Some(Requirement::InputRange {
            input,
            start,
            end: start.checked_add(last)?.checked_add(1)?,
        })
    }

    /// What would have to be known of a tensor's storage for a view of it to be found, where
    /// anything would do.
    fn requirement_for(&mut self, of: Handle, region: SpecId) -> Result<Option<Requirement>> {
        if let Some(reach) = self.input_range(of, region) {
            return Ok(Some(reach));
        }
        let made = self.memory.storages[of.storage]
            .made
            .filter(|v| !self.requirements.memory_order.contains(v));
        let Some((v, ValueType::Tensor(ty))) = made.map(|v| (v, self.graph.value_type(v))) else {
            return Ok(None);
        };
        Ok(self
            .storage_layout(ty, true)?
            .filter(|layout| layout.reorder.is_some())
            .map(|_| Requirement::MemoryOrder(v)))
    }

    /// Memory that several inputs see.
    pub(crate) fn bind_shared(
        &mut self,
        InputGroup { inputs: group, start, end }: &InputGroup,
    ) -> Result<()> {
        let inputs: SmallVec<[(ValueId, TypeId); 4]> = group
            .iter()
            .filter_map(|&i| self.graph.inputs().get(i))
            .filter_map(|&v| {
                if let ValueType::Tensor(ty) = self.graph.value_type(v) {
                    Some((v, ty))
                } else {
                    None
                }
            })
            .collect();
        let Some(&(_, first)) = inputs.first() else { return Ok(()) };
        let (mut start, mut end) = (*start, *end);
        for &(_, ty) in &inputs {
            let t = self.graph.type_of(ty);
            let number = |e: &Expr| {
                if let Expr::Int(n) = e { Ok(*n) } else { Err(Reason::SymbolicAliasing) }
            };
            let sizes = t
                .sizes
                .iter()
                .map(number)
                .collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            let strides = t
                .strides
                .iter()
                .map(number)
                .collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            if t.dtype != self.graph.type_of(first).dtype {
                let (from, to) = (self.graph.type_of(first).dtype.to_string(), t.dtype.to_string());
                return Err(Reason::Reinterpreted { op: "an input".into(), from, to }.into());
            }
            let offset = number(&t.offset)?;
            let last: i64 =
                sizes.iter().zip(&strides).map(|(n, s)| (n - 1).saturating_mul(*s)).sum();
            if !sizes.contains(&0) {
                (start, end) =
                    (start.min(offset), end.max(offset.saturating_add(last).saturating_add(1)));
            }
        }
        let start = start.min(end);
        let row: SmallVec<[Expr; 4]> = smallvec::smallvec![Expr::Int(end - start)];
        let meta = self.meta(first);
        let interner = &mut self.memory.interner;
        let base = interner.resized(meta, row.clone());
        let region =
            ViewSpec::strided(Expr::Int(start), &row, &[Expr::Int(1)], &mut interner.symbols)?;
        let region = interner.spec(region);
        let number = self.memory.shared.len() as u32;
        let input = self.graph.inputs().len() as u32 + number;
        let version = self.memory.add(Node::Input(input), Kind::Tensor(base));
        let first = if let Expr::Int(o) = self.graph.type_of(first).offset { o } else { 0 };
        self.memory.shared.push(SharedMemory {
            inputs: group.clone(),
            start,
            from_first: if fault_injected(Fault::ShareCountedFromStorage) {
                start
            } else {
                start - first
            },
            len: end - start,
        });
        self.memory.storages.push(Storage {
            origin: StorageOrigin::Shared(number),
            made: None,
            version,
            pending_reorder: None,
            region,
            base,
            written: None,
        });
        let storage = self.memory.storages.len() - 1;
        for (v, ty) in inputs {
            let whole = Handle { storage, spec: region, meta, ty };
            self.view(v, whole, INPUT)?;
        }
        Ok(())
    }

    /// How the storage of a value lies whose elements are not those of its type in row-major order:
    /// elements that are repeated are one element of memory, and there are none of no elements; if
    /// it is to be `sorted`, dimensions are in the order of memory, where views are found without
    /// proof, gaps between elements or not. `None` if all of that changes nothing.
    fn storage_layout(&mut self, ty: TypeId, sorted: bool) -> Result<Option<StorageLayout>> {
        let t = self.graph.type_of(ty);
        let repeats = |d: usize| t.strides[d] == Expr::Int(0);
        let meta = self.meta(ty);
        let interner = &mut self.memory.interner;
        let narrow = (0..t.sizes.len()).any(repeats);
        let mut sizes = t.sizes.clone();
        for d in (0..sizes.len()).filter(|&d| repeats(d)) {
            sizes[d] = match fault_injected(Fault::OneRepeatedElement) {
                true => Expr::Int(1),
                false => interner
                    .symbols
                    .min(sizes[d], Expr::Int(1))
                    .map_err(|_| Reason::Internal("sizes overflow"))?,
            };
        }
        // where they are, a view has elements only if there are any
        let some = |d: usize| {
            if repeats(d) && t.sizes[d] != Expr::Int(0) { Expr::Int(1) } else { t.sizes[d] }
        };
        let extents: SmallVec<[Expr; 4]> = (0..t.sizes.len()).map(some).collect();
        let order = match sorted && !self.graph.is_contiguous(ty) {
            true => memory_order(&extents, &t.strides, &mut interner.symbols)?
                .filter(|order| !order.is_sorted()),
            false => None,
        };
        if order.is_none() && !narrow {
            return Ok(None);
        }
        let sorts = order.is_some();
        let order = order.unwrap_or_else(|| (0..t.sizes.len()).collect());
        let pick = |of: &[Expr]| -> SmallVec<[Expr; 4]> { order.iter().map(|&d| of[d]).collect() };
        let mut row = |sizes: &[Expr]| -> Result<SmallVec<[Expr; 4]>> {
            Ok(ViewSpec::contiguous(sizes, &mut interner.symbols)?
                .dims()
                .iter()
                .map(|d| d.stride)
                .collect())
        };
        let (own, made, in_order) = (row(&t.sizes)?, row(&extents)?, row(&pick(&extents))?);
        let mut back: SmallVec<[Expr; 4]> = made.clone();
        if !fault_injected(Fault::MemoryOrderKept) {
            order.iter().zip(&in_order).for_each(|(&d, stride)| back[d] = *stride);
        }
        (0..back.len()).filter(|&d| repeats(d)).for_each(|d| back[d] = Expr::Int(0));
        let mut view = |offset: Expr, sizes: &[Expr], strides: &[Expr]| -> Result<SpecId> {
            let spec = ViewSpec::strided(offset, sizes, strides, &mut interner.symbols)?;
            Ok(interner.spec(spec))
        };
        let region = view(t.offset, &pick(&extents), &pick(&t.strides))?;
        let spec = view(Expr::Int(0), &t.sizes, &back)?;
        let unrepeated = if narrow { Some(view(Expr::Int(0), &sizes, &own)?) } else { None };
        let reorder =
            if sorts { Some(view(Expr::Int(0), &pick(&sizes), &pick(&made))?) } else { None };
        let base = interner.resized(meta, pick(&sizes));
        let unrepeated = unrepeated.map(|unrepeated| (unrepeated, interner.resized(meta, sizes)));
        Ok(Some(StorageLayout { region, spec, base, unrepeated, reorder }))
    }

    pub(crate) fn bind(&mut self, v: ValueId, binding: Binding) {
        if let Some(slot) = self.bindings.get_mut(v.index()) {
            *slot = Some(binding);
        }
    }

    pub(crate) fn binding(&self, v: ValueId) -> Result<Binding> {
        Ok(self
            .bindings
            .get(v.index())
            .copied()
            .flatten()
            .ok_or(Reason::Internal("a value is used before it is defined"))?)
    }

    /// A tensor that is a view of a storage.
    pub(crate) fn view(&mut self, v: ValueId, of: Handle, op: &str) -> Result<()> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else {
            return Err(Reason::Internal("a result that is no tensor is a view").into());
        };
        let (region, meta) = (self.region(ty)?, self.meta(ty));
        let Storage { base, region: whole, .. } = self.memory.storages[of.storage];
        let interner = &mut self.memory.interner;
        let (from, to) = (interner.metas[base.index()].dtype, interner.metas[meta.index()].dtype);
        if from != to {
            return Err(Reason::Reinterpreted {
                op: op.into(),
                from: from.to_string(),
                to: to.to_string(),
            }
            .into());
        }
        let spec = match interner.located(region, whole) {
            Some(spec) => spec,
            None => {
                let requirement = self.requirement_for(of, region)?;
                self.discovered.extend(requirement);
                match requirement {
                    // something in its place, to learn more of the program
                    Some(Requirement::MemoryOrder(_)) => {
                        self.memory.interner.all(meta).ok_or(Reason::Internal("sizes overflow"))?
                    }
                    _ => return Err(self.unresolved(op, region, whole).into()),
                }
            }
        };
        if op != INPUT
            && self.ops.view_may_exceed_base(op)
            && self.memory.interner.inside(region, whole) != TriBool::Yes
            && !fault_injected(Fault::ViewsReachAnything)
        {
            self.add_bounds_check(op, region, whole)?;
        }
        self.bind(v, Binding::Tensor(Handle { storage: of.storage, spec, meta, ty }));
        Ok(())
    }

    /// Whether a tensor can be one with the elements of another, in order, without a copy.
    pub(crate) fn is_in_order(&mut self, v: ValueId, of: Handle) -> Result<bool> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else { return Ok(true) };
        let (a, b) = (self.region(ty)?, self.region(of.ty)?);
        let (a, b, symbols) = self.memory.interner.pair(a, b);
        Ok(a == b || a.same(b, symbols) != TriBool::No)
    }

    /// Checks in the run that a view has no element beyond its tensor's.
    fn add_bounds_check(&mut self, op: &str, region: SpecId, whole: SpecId) -> Result<()> {
        let interner = &mut self.memory.interner;
        let (inner, outer, symbols) = interner.pair(region, whole);
        let ends = inner
            .last(symbols)
            .zip(outer.last(symbols))
            .zip(inner.numel(symbols).zip(outer.numel(symbols)));
        let Some(((last, end), (numel, there))) = ends else {
            return Err(self.out_of_bounds(op, region).into());
        };
        let begins = symbols.rel(Rel::Ge, inner.offset(), outer.offset());
        let ends = symbols.rel(Rel::Le, last, end);
        // of no elements there is no last one
        let some = symbols.rel(Rel::Gt, there, Expr::Int(0));
        let empty = symbols.rel(Rel::Eq, numel, Expr::Int(0));
        let within = symbols.and(begins, ends).and_then(|within| symbols.and(some, within));
        let cond = within.and_then(|within| symbols.or(empty, within));
        let cond = cond.map_err(|_| Reason::Internal("a condition on a view overflows"))?;
        let message = Some(interner.name("a view has no elements but those of its tensor"));
        let at = self.memory.at;
        self.memory.stmts.push(LiftedStmt::Assert { cond, message, at });
        Ok(())
    }

    /// Why a view was not found in its storage.
    fn unresolved(&self, op: &str, region: SpecId, whole: SpecId) -> Reason {
        let specs = &self.memory.interner.specs;
        let is_open = |spec: &ViewSpec| {
            let mut numbers =
                spec.dims().iter().flat_map(|d| [d.size, d.stride]).chain([spec.offset()]);
            numbers.any(|n| matches!(n, Expr::Id(_)))
        };
        if self.ops.has_absolute_offset(op)
            || ![region, whole].iter().any(|s| is_open(&specs[s.index()]))
        {
            return self.out_of_bounds(op, region);
        }
        Reason::UnresolvedView {
            op: op.into(),
            viewed: self.memory.interner.text(&specs[region.index()]),
        }
    }

    fn out_of_bounds(&self, op: &str, region: SpecId) -> Reason {
        Reason::ViewOutOfBounds {
            op: op.into(),
            viewed: self.memory.interner.text(&self.memory.interner.specs[region.index()]),
        }
    }
}

/// What an input's view of shared memory is called.
const INPUT: &str = "an input";

/// The first order of dimensions in which elements lie one behind the other, each as far from the
/// last.
fn memory_order(
    sizes: &[Expr],
    strides: &[Expr],
    symbols: &mut SymTable,
) -> Result<Option<SmallVec<[usize; 4]>>> {
    let region = ViewSpec::strided(Expr::Int(0), sizes, strides, symbols)?;
    for long in long_dims(sizes, symbols) {
        let dims = region.dims().iter().zip(&long).filter(|(_, long)| **long).map(|(d, _)| d);
        let Some(gap) = dims.filter_map(|d| d.stride.as_i64()).filter(|s| *s > 0).min() else {
            continue;
        };
        let mut order = SmallVec::new();
        if (OrderSearch { region: &region, long: &long, gap }).complete(&mut order, symbols)? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

/// The search for the order of memory, from the outermost dimension on.
struct OrderSearch<'a> {
    region: &'a ViewSpec,
    /// The dimensions whose strides count.
    long: &'a [bool],
    gap: i64,
}

impl OrderSearch<'_> {
    fn complete(&self, order: &mut SmallVec<[usize; 4]>, symbols: &mut SymTable) -> Result<bool> {
        let dims = self.region.dims();
        if order.len() == dims.len() {
            let (sizes, strides) = order
                .iter()
                .map(|&d| (dims[d].size, dims[d].stride))
                .collect::<(Vec<Expr>, Vec<Expr>)>();
            let long: SmallVec<[bool; 4]> = order.iter().map(|&d| self.long[d]).collect();
            let region = ViewSpec::strided(Expr::Int(0), &sizes, &strides, symbols)?;
            return Ok(row_gap_of(&region, &long, symbols).is_some());
        }
        for d in 0..dims.len() {
            // those whose strides do not count stay in the order they have
            if order.contains(&d) || !self.long[d] && order.iter().any(|&o| o > d && !self.long[o])
            {
                continue;
            }
            order.push(d);
            if self.fills(order, d, symbols)? && self.complete(order, symbols)? {
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
        let dims = self.region.dims();
        let rest = (0..dims.len()).filter(|d| !order.contains(d));
        let sizes: SmallVec<[Expr; 4]> =
            std::iter::once(last).chain(rest).map(|d| dims[d].size).collect();
        let row = ViewSpec::contiguous(&sizes, symbols)?;
        let step =
            row.dims().first().and_then(|row| symbols.mul(row.stride, Expr::Int(self.gap)).ok());
        Ok(step == Some(dims[last].stride))
    }
}
