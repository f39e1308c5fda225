//! Which operators a device can compute in one kernel, for the pass that fuses.
//!
//! Whether operators fit together depends on their loop nests. These are built for [sample
//! sizes](crate::samples), one for each symbol. The kernel of a region has symbols for sizes, so it
//! is made once, and the sizes of a call are bound to its symbols. Where sizes of a call decide
//! otherwise than the samples, such as a size of 1, the kernel is another one. If there is none for
//! the sizes of a call, the instance of that call runs the program before fusion. After a size that
//! depends on data, the operators of the region run one by one.

use crate::class::class_of;
use crate::samples::samples;
use crate::{LoweredRegion, SizeClasses, lower_region};
use maquette_invoke::{argument_value, arguments};
use maquette_ir::Device;
use maquette_ir::functional_ops::Callee;
use maquette_ir::fused::{FusedRegion, Fusible, FusionClass, FusionFacts, NoFusionReason};
use maquette_ir::graph::{Graph, NodeId, Stmt, ValueId, ValueType};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ops::internals::reports_late;
use maquette_ops::{Args, Error, IntoDims, Meta, Op, PreparedCall, Result, Tensor, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Which operators of a graph one kernel of a device can compute.
pub struct KernelFacts {
    device: Device,
    /// By symbol: a sample of its values.
    samples: FxHashMap<SymbolId, i64>,
    classes: SizeClasses,
    /// The nodes of which a size is known only when they have run.
    sizes_from_data: FxHashSet<NodeId>,
    /// Whether products that share their left factor are one region.
    joins_products: bool,
    /// Whether only elementwise operators are fused.
    only_elements: bool,
}

impl KernelFacts {
    /// Of a functional graph whose tensors are on a device. Products that share their left factor
    /// may be one kernel.
    pub fn of(graph: &Graph, device: Device) -> KernelFacts {
        let bound = graph.body().iter().filter_map(|stmt| match stmt {
            Stmt::Bind { value, .. } => graph.producer(*value),
            _ => None,
        });
        KernelFacts {
            device,
            samples: samples(graph),
            classes: SizeClasses::of(graph),
            sizes_from_data: bound.collect(),
            joins_products: true,
            only_elements: false,
        }
    }

    /// Whether products that share their left factor are one kernel.
    #[must_use]
    pub fn joining_products(self, yes: bool) -> KernelFacts {
        KernelFacts { joins_products: yes, ..self }
    }

    /// Whether only elementwise operators are fused, which can be written over an operand.
    #[must_use]
    pub fn only_elements(self, yes: bool) -> KernelFacts {
        KernelFacts { only_elements: yes, ..self }
    }

    fn number(&self, graph: &Graph, e: Expr) -> Result<i64> {
        let value = |symbol: SymbolId| self.samples.get(&symbol).copied();
        graph.symbols().eval(e, &value).map_err(|e| Error::msg(e.to_string()))
    }

    /// Fake row-major tensors.
    fn tensors(&self, graph: &Graph, values: &[ValueId]) -> Result<Vec<Tensor>> {
        values.iter().map(|v| self.value(graph, *v)?.tensor().cloned()).collect()
    }

    /// A fake row-major tensor, or a number.
    fn value(&self, graph: &Graph, v: ValueId) -> Result<Value> {
        match graph.value_type(v) {
            ValueType::Tensor(ty) => {
                let ty = graph.type_of(ty);
                let sizes = ty.sizes.iter().map(|e| self.number(graph, *e));
                let sizes = sizes.collect::<Result<SmallVec<[i64; 6]>>>()?;
                let meta = Meta::contiguous(sizes[..].into_dims(), ty.dtype).on(ty.device);
                Ok(Value::Tensor(Tensor::fake_of(meta)))
            }
            _ => Err(Error::msg("a number depends on data")),
        }
    }

    fn arguments(&self, graph: &Graph, op: Op, node: NodeId) -> Result<Args> {
        let get = |v: ValueId| self.value(graph, v);
        let int = |e: Expr| Ok(self.number(graph, e)?.into());
        let value = |arg| argument_value(graph, arg, &get, &int);
        arguments(graph, op, node, Callee::of(graph, node).args, &value)
    }
}

impl FusionFacts for KernelFacts {
    fn class(&self, graph: &Graph, node: NodeId) -> std::result::Result<Fusible, NoFusionReason> {
        if self.sizes_from_data.contains(&node) {
            return Err(NoFusionReason::SizeFromData);
        }
        let op = Op::find(graph.op_name(node)).map_err(|_| NoFusionReason::Opaque)?;
        if !op.is_builtin() {
            return Err(NoFusionReason::Opaque);
        }
        let args = self.arguments(graph, op, node).map_err(|_| NoFusionReason::Opaque)?;
        if args.iter().flat_map(Value::tensors).any(|t| t.device() != self.device) {
            return Err(NoFusionReason::Opaque);
        }
        let lowered = op.lowered(args);
        if op.is_random() && !matches!(lowered, Err(NoFusionReason::Overridden)) {
            return Err(NoFusionReason::Effect);
        }
        match class_of(&lowered?)? {
            // It keeps its place among what is ordered.
            Fusible { may_fail: true, .. } if self.only_elements => Err(NoFusionReason::Assert),
            Fusible { class, .. } if self.only_elements && class != FusionClass::Elements => {
                Err(NoFusionReason::Written)
            }
            fusible => Ok(fusible),
        }
    }

    fn joins_products(&self) -> bool {
        self.joins_products
    }

    fn has_kernel(&self, graph: &Graph, region: &FusedRegion) -> bool {
        let call = || -> Result<bool> {
            let size = |e: Expr| self.number(graph, e).ok();
            let operands = self.tensors(graph, &region.operands)?;
            let outs = self.tensors(graph, &region.results)?;
            let lowered = lower_region(graph, region, &self.classes, &size, &operands, &outs);
            Ok(lowered.is_some_and(|LoweredRegion { op, def, binding, failing }| {
                // A late error names one operator.
                let is_named = failing.len() < 2 || !reports_late(self.device);
                is_named && PreparedCall::of_kernel(op, self.device, &def, binding).is_some()
            }))
        };
        call().unwrap_or(false)
    }
}
