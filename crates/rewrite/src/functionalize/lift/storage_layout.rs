//! The representation of a storage as a value.
//!
//! A value has one element for each index, in row-major order. A tensor may repeat elements (by
//! strides of 0), and its memory may have another order. So the value of a storage has each
//! repeated element once, in memory order if a view requires that. The tensor is a view of this
//! value.
//!
//! For example, an input `f32[4, 3] strides [0, 1]` is the view `[4, 3] strides [0, 1]` of a value
//! `f32[1, 3]`.

use super::memory_order::memory_order;
use super::memory_ssa::{Handle, Storage, StorageOrigin};
use super::{Lift, LiftedValue};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{Id, Meta, MetaId, Node, SpecId};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{TypeId, ValueId, ValueType};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// The layout of a storage.
pub(super) struct StorageLayout {
    /// The elements of the storage's value, as a region of memory.
    region: SpecId,
    /// The tensor as a view of the storage's value.
    spec: SpecId,
    /// The metadata of the storage's value.
    base: MetaId,
    /// The view of the tensor that drops repetitions, if it has any.
    unrepeated: Option<(SpecId, MetaId)>,
    /// The view that puts the elements in memory order, if they have another one.
    pub(super) reorder: Option<SpecId>,
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

    /// The elements of a tensor, as a region of memory.
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

    /// Binds an input or a constant, which has a storage of its own.
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

    /// Binds a value that is the whole contents of a new storage.
    pub(crate) fn bind_new_storage(
        &mut self,
        v: ValueId,
        id: Id,
        origin: StorageOrigin,
    ) -> Result<()> {
        if let Some(source) = self.bind_sources.get_mut(&v) {
            *source = Some(id);
        }
        let lifted = match self.graph.value_type(v) {
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
                            .ok_or_else(|| Reason::Overflow("the sizes of a tensor"))?;
                        StorageLayout {
                            region: self.region(ty)?,
                            spec,
                            base: meta,
                            unrepeated: None,
                            reorder: None,
                        }
                    }
                };
                self.memory.storages.push(Storage {
                    origin,
                    made: Some(v),
                    version: id,
                    pending_views: [unrepeated, reorder.map(|reorder| (reorder, base))],
                    region,
                    base,
                    written: None,
                });
                let storage = self.memory.storages.len() - 1;
                LiftedValue::Tensor(Handle { storage, spec, meta, ty })
            }
            _ => LiftedValue::Number(id),
        };
        self.set(v, lifted);
        Ok(())
    }

    /// The layout of a value's storage. With `sorted`, its elements are put in memory order, in
    /// which views are easy to locate. A repeated dimension has size 1 in the storage, or 0 if it
    /// is empty. `None` if the storage's value is the tensor itself.
    pub(super) fn storage_layout(
        &mut self,
        ty: TypeId,
        sorted: bool,
    ) -> Result<Option<StorageLayout>> {
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
                    .map_err(|_| Reason::Overflow("the sizes of a tensor"))?,
            };
        }
        // A view has elements only if the repeated dimensions are nonempty, so size 1 stands for
        // them here.
        let size_if_nonempty = |d: usize| {
            if repeats(d) && t.sizes[d] != Expr::Int(0) { Expr::Int(1) } else { t.sizes[d] }
        };
        let extents: SmallVec<[Expr; 4]> = (0..t.sizes.len()).map(size_if_nonempty).collect();
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

    /// Records the lifted form of a value.
    pub(crate) fn set(&mut self, v: ValueId, lifted: LiftedValue) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = Some(lifted);
        }
    }

    /// The lifted form of a value.
    pub(crate) fn lifted(&self, v: ValueId) -> Result<LiftedValue> {
        Ok(self
            .values
            .get(v.index())
            .copied()
            .flatten()
            .ok_or_else(|| Reason::Internal("a value is used before it is defined"))?)
    }
}
