//! Locates a view in its storage: expresses the view's elements as a view of the storage's value.
//!
//! The types of the graph give the region of memory of a view, and that of its storage. The view
//! algebra expresses one relative to the other. If it cannot, lifting may restart with the storage
//! in memory order, or with more of an input's memory ([`Requirement`]). Otherwise it refuses the
//! program.

use super::memory_ssa::{Handle, LiftedStmt, Storage, StorageOrigin};
use super::requirements::Requirement;
use super::{Lift, LiftedValue};
use crate::error::{CopyCause, Reason, Result};
use crate::functionalize::value_graph::SpecId;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Arg, NodeId, ValueId, ValueType};
use maquette_ir::sym::{Expr, Rel};
use maquette_ir::view::{TriBool, ViewSpec};

impl Lift<'_> {
    /// The requirement that an input's memory includes a region; `None` if the region is symbolic
    /// or the storage is not an input's.
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

    /// The requirement with which a restart could locate a region in a tensor's storage, if there
    /// is one.
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

    /// Binds `v` as a view of the storage of `of`. `op` is the operator that returned it, and
    /// `may_exceed` tells whether its views may have elements that their tensor does not have.
    ///
    /// # Errors
    /// The view has another dtype, or cannot be located in the storage.
    pub(crate) fn view(
        &mut self,
        v: ValueId,
        of: Handle,
        op: &str,
        may_exceed: bool,
    ) -> Result<()> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else {
            let detail = "it returns a tensor, but the graph declares another type";
            return Err(Reason::Malformed { op: op.into(), detail }.into());
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
                    // Lifting will restart. It continues with a stand-in, to discover further
                    // requirements in the same pass.
                    Some(Requirement::MemoryOrder(_)) => self
                        .memory
                        .interner
                        .all(meta)
                        .ok_or(Reason::Overflow("the sizes of a tensor"))?,
                    _ => return Err(self.unresolved(op, region, whole).into()),
                }
            }
        };
        if may_exceed
            && self.memory.interner.contained_in(region, whole) != TriBool::Yes
            && !fault_injected(Fault::ViewsReachAnything)
        {
            self.add_bounds_check(op, region, whole)?;
        }
        self.set(v, LiftedValue::Tensor(Handle { storage: of.storage, spec, meta, ty }));
        Ok(())
    }

    /// The reason that the result of an operator such as `reshape`, which keeps its argument's
    /// elements, must be a copy; `None` if it can be a view. `copy_arg` is the position of the
    /// operator's argument `copy`.
    pub(crate) fn copy_cause(
        &mut self,
        node: NodeId,
        v: ValueId,
        of: Handle,
        copy_arg: Option<usize>,
    ) -> Result<Option<CopyCause>> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else { return Ok(None) };
        if self.requests_copy(node, copy_arg) {
            return Ok(Some(CopyCause::Requested));
        }
        if self.graph.type_of(ty).dtype != self.graph.type_of(of.ty).dtype {
            return Ok(Some(CopyCause::DType));
        }
        let (a, b) = (self.region(ty)?, self.region(of.ty)?);
        let (a, b, symbols) = self.memory.interner.pair(a, b);
        let in_order = a == b || a.same(b, symbols) != TriBool::No;
        Ok((!in_order).then_some(CopyCause::Elements))
    }

    /// Whether a call has the argument `copy=true`, whose position is `copy_arg`.
    fn requests_copy(&self, node: NodeId, copy_arg: Option<usize>) -> bool {
        let graph = self.graph;
        let by_name =
            graph.kwargs(node).iter().find(|(name, _)| graph.str(*name) == "copy").map(|(_, a)| *a);
        let by_position = || graph.args(node).get(copy_arg?).copied();
        by_name.or_else(by_position) == Some(Arg::Bool(true))
    }

    /// Adds a runtime check that a view's elements are within those of its storage.
    fn add_bounds_check(&mut self, op: &str, region: SpecId, whole: SpecId) -> Result<()> {
        let interner = &mut self.memory.interner;
        let (inner, outer, symbols) = interner.pair(region, whole);
        let ends = inner
            .last(symbols)
            .zip(outer.last(symbols))
            .zip(inner.numel(symbols).zip(outer.numel(symbols)));
        let Some(((last, end), (numel, base_numel))) = ends else {
            return Err(self.out_of_bounds(op, region).into());
        };
        let begins = symbols.rel(Rel::Ge, inner.offset(), outer.offset());
        let ends = symbols.rel(Rel::Le, last, end);
        // An empty view is always within bounds; an empty storage contains only empty views.
        let nonempty_base = symbols.rel(Rel::Gt, base_numel, Expr::Int(0));
        let empty = symbols.rel(Rel::Eq, numel, Expr::Int(0));
        let within =
            symbols.and(begins, ends).and_then(|within| symbols.and(nonempty_base, within));
        let cond = within.and_then(|within| symbols.or(empty, within));
        let cond = cond.map_err(|_| Reason::Overflow("the bounds of a view"))?;
        let message = Some(interner.name("a view must not exceed the elements of its tensor"));
        let statement = self.memory.statement;
        self.memory.stmts.push(LiftedStmt::Assert { cond, message, statement });
        Ok(())
    }

    /// The reason to refuse a program with a view that cannot be located in its storage.
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
