//! From a fused region to its kernel.

use crate::SizeClasses;
use crate::region::RegionBuilder;
use maquette_invoke::{argument_value, arguments};
use maquette_ir::functional_ops::{Callee, FunctionalOp};
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, Graph, NodeId, ValueId};
use maquette_ir::kernel_def::KernelDef;
use maquette_ir::loops::{Extent, Extents};
use maquette_ir::sym::Expr;
use maquette_ops::{Error, KernelBinding, Op, Tensor, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A region as a kernel.
pub struct LoweredRegion {
    /// The first operator.
    pub op: Op,
    /// The kernel.
    pub def: KernelDef,
    /// What a launch binds.
    pub binding: KernelBinding,
    /// The nodes that the values of operands can make fail.
    pub failing: SmallVec<[NodeId; 1]>,
}

/// The kernel of a region, from fake operands to memory of the layouts of `outs`. `None` if there
/// is no kernel for these sizes. `size` is the number that a size is in this call, and `classes`
/// has the sizes of the graph.
pub fn lower_region(
    graph: &Graph,
    region: &FusedRegion,
    classes: &SizeClasses,
    size: &dyn Fn(Expr) -> Option<i64>,
    operands: &[Tensor],
    outs: &[Tensor],
) -> Option<LoweredRegion> {
    let mut builder = RegionBuilder::new(region.kind, region.outer, outs)?;
    let mut sizes = RegionSizes { graph, classes, size, known: FxHashMap::default() };
    let mut values: FxHashMap<ValueId, Tensor> = FxHashMap::default();
    for (&v, operand) in region.operands.iter().zip(operands) {
        let extents = sizes.of_value(&mut builder, v)?;
        builder.operand(operand.clone(), extents)?;
        values.insert(v, operand.clone());
    }
    let mut failing: SmallVec<[NodeId; 1]> = SmallVec::new();
    for &node in &region.nodes {
        let missing = || Error::msg("a region reads a value that it does not have");
        let get = |v: ValueId| Ok(Value::Tensor(values.get(&v).cloned().ok_or_else(missing)?));
        let int = |e: Expr| Ok(size(e).ok_or_else(missing)?.into());
        let extents = graph.result_values(node).map(|v| sizes.of_value(&mut builder, v));
        let mut extents = extents.collect::<Option<Vec<Extents>>>()?;
        if let FunctionalOp::View { base, region } = FunctionalOp::of(graph, node).ok()? {
            let numbers = region.sizes.iter().map(size).collect::<Option<Vec<i64>>>()?;
            let viewed = builder.reshape(values.get(&base)?, &numbers, extents.pop()?)?;
            values.extend(graph.result_values(node).map(|v| (v, viewed.clone())));
            continue;
        }
        let op = Op::find(graph.op_name(node)).ok()?;
        let value = |arg: Arg| argument_value(graph, arg, &get, &int);
        let args = arguments(graph, op, node, Callee::of(graph, node).args, &value).ok()?;
        let (results, may_fail) = builder.call(op, args, &extents)?;
        failing.extend(may_fail.then_some(node));
        values.extend(graph.result_values(node).zip(results));
    }
    let results = region.results.iter().map(|v| values.get(v).cloned());
    let (op, def, binding) = builder.finish(&results.collect::<Option<Vec<Tensor>>>()?, outs)?;
    Some(LoweredRegion { op, def, binding, failing })
}

/// The sizes of a region's values. Each class of sizes is one symbol of the region.
struct RegionSizes<'a> {
    graph: &'a Graph,
    classes: &'a SizeClasses,
    size: &'a dyn Fn(Expr) -> Option<i64>,
    known: FxHashMap<Expr, Extent>,
}

impl RegionSizes<'_> {
    /// The extents of a tensor; `None` for another value, or if a size has no number.
    fn of_value(&mut self, builder: &mut RegionBuilder, v: ValueId) -> Option<Extents> {
        let graph = self.graph;
        graph.tensor_type(v)?.sizes.iter().map(|e| self.of(builder, *e)).collect()
    }

    fn of(&mut self, builder: &mut RegionBuilder, e: Expr) -> Option<Extent> {
        let class = self.classes.representative(e);
        if let Some(n) = class.as_i64() {
            return Some(Extent::Number(n));
        }
        if let Some(known) = self.known.get(&class) {
            return Some(*known);
        }
        let extent = builder.symbol((self.size)(e)?, self.classes.range(class));
        self.known.insert(class, extent);
        Some(extent)
    }
}
