//! Makes the steps of a segment from the steps of a plan.
//!
//! A node becomes a launch if its operator can be [prepared](Op::prepare), every operand and result
//! lies inside its buffer, and no result overlaps another or an operand, except as the kernel
//! supports. Otherwise it is a call. A step that fails for these sizes in every run becomes
//! [`Step::Fail`].
//!
//! The plan lets an operator with several results return them. A launch writes them into memory of
//! the run instead: the arena, or memory of its own for an output.
//!
//! **Cost:** linear in the number of steps of the segment and of buffers of the plan, but for the
//! layout of the arena. A segment with a step that fails is built twice.

mod buffers;
mod launches;
mod nodes;
mod regions;
#[cfg(test)]
mod tests;

use super::places::BufferPlace;
use super::{End, External, Launch, LaunchSource, Returns, Segment, Step, TensorAt};
use crate::planned::Planned;
pub(crate) use buffers::Uses;
use launches::placed;
use maquette_invoke::{Bindings, SourceInfo, SymbolValues, argument_value, in_window, wrong_graph};
use maquette_ir::DType;
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferView, Step as PlanStep};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::graph::{Arg, Graph, Stmt, ValueId};
use maquette_ops::{Error, PlacedOperand, PreparedCall, Result, Tensor, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes one segment.
pub(super) struct Builder<'a> {
    planned: &'a Planned,
    graph: &'a Graph,
    inputs: &'a [Value],
    consts: &'a [Tensor],
    bindings: Bindings<'a>,
    known: &'a SymbolValues,
    depth: usize,
    places: Vec<Option<BufferPlace>>,
    externals: Vec<(BufferId, External)>,
    /// The buffers among `externals`.
    listed: FxHashSet<BufferId>,
    outputs: Vec<(BufferId, i64, DType)>,
    steps: Vec<Step>,
    lends_memory: bool,
    /// The number of each tensor of which calls may get handles, by its base and layout.
    slots: FxHashMap<SmallVec<[i64; 12]>, u32>,
    kept_calls: u32,
    /// The bytes of the arena: those of its buffers, and with what single steps need after them.
    buffer_bytes: usize,
    arena_bytes: usize,
    uses: &'a Uses,
    /// Whether a region has no kernel for these sizes.
    is_refused: bool,
}

/// What became of a segment.
enum Built {
    Segment(Box<Segment>),
    /// The position of the first step that fails, if that is an earlier one than the last.
    Fails(usize),
    /// A region has no kernel for these sizes.
    Refused,
}

impl<'a> Builder<'a> {
    pub fn new(
        planned: &'a Planned,
        inputs: &'a [Value],
        consts: &'a [Tensor],
        known: &'a SymbolValues,
        source_info: &'a SourceInfo<'_>,
        places: Vec<Option<BufferPlace>>,
        depth: usize,
    ) -> Builder<'a> {
        let graph = &planned.program.graph;
        Builder {
            planned,
            graph,
            inputs,
            consts,
            bindings: Bindings::resume(graph, source_info.input_names, known),
            known,
            depth,
            places,
            externals: Vec::new(),
            listed: FxHashSet::default(),
            outputs: Vec::new(),
            steps: Vec::new(),
            lends_memory: false,
            slots: FxHashMap::default(),
            kept_calls: 0,
            buffer_bytes: 0,
            arena_bytes: 0,
            uses: &planned.uses,
            is_refused: false,
        }
    }

    /// The segment that begins with plan step `from`. If a step fails in every run, it is the last:
    /// the memory of later steps is not laid out. `None` if a region has no kernel for these sizes.
    pub fn build(from: usize, make: impl Fn() -> Builder<'a>) -> Result<Option<Segment>> {
        let again = match make().build_until(from, None)? {
            Built::Fails(failing) => make().build_until(from, Some(failing + 1))?,
            built => built,
        };
        match again {
            Built::Segment(segment) => Ok(Some(*segment)),
            Built::Refused => Ok(None),
            Built::Fails(_) => Err(Error::msg("a step fails in one of two builds of a segment")),
        }
    }

    /// The segment up to plan step `stop`.
    fn build_until(mut self, from: usize, stop: Option<usize>) -> Result<Built> {
        let plan = &self.planned.plan;
        let bind = |(at, step): (usize, &PlanStep)| match step {
            PlanStep::Stmt(stmt) => match self.graph.body().get(*stmt) {
                Some(&Stmt::Bind { symbol, value, source }) => Some(End::Bind {
                    symbol,
                    value,
                    source,
                    at: *stmt,
                    from: at + 1,
                    next: Mutex::default(),
                }),
                _ => None,
            },
            _ => None,
        };
        let bind = plan.steps.iter().enumerate().skip(from).find_map(bind);
        let to = match (&bind, stop) {
            (_, Some(stop)) => stop,
            (Some(End::Bind { from, .. }), None) => from - 1,
            _ => plan.steps.len(),
        };
        self.buffer_bytes = self.place_arena(from, to);
        self.arena_bytes = self.buffer_bytes;
        let mut fails = false;
        let mut plan_steps: Vec<usize> = Vec::new();
        for (at, step) in plan.steps.iter().enumerate().take(to).skip(from) {
            if let Err(e) = self.step(step) {
                if self.is_refused {
                    return Ok(Built::Refused);
                }
                if stop.is_none() {
                    return Ok(Built::Fails(at));
                }
                self.steps.push(Step::Fail(e));
                fails = true;
                break;
            }
            self.free_unused(at, step);
            plan_steps.resize(self.steps.len(), at);
        }
        if stop.is_some() && !fails {
            return Err(Error::msg("a step of the program failed, and then did not"));
        }
        let end = match bind {
            _ if fails => End::Return(Returns::default()),
            Some(bind) => bind,
            None => End::Return(self.returns()?),
        };
        self.find_weights();
        plan_steps.resize(self.steps.len(), plan.steps.len());
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Built::Segment(Box::new(Segment {
            kept: None,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            depth: self.depth,
            steps: self.steps,
            plan_steps,
            arena_bytes: self.arena_bytes,
            externals: self.externals,
            outputs: self.outputs,
            lends_memory: self.lends_memory,
            slots: self.slots.len() as u32,
            kept_calls: self.kept_calls,
            known: self.known.clone(),
            places: self.places,
            end,
        })))
    }

    fn step(&mut self, step: &PlanStep) -> Result<()> {
        match step {
            PlanStep::Alias { .. } => Ok(()),
            PlanStep::Stmt(_) if fault_injected(Fault::AssertionsHold) => Ok(()),
            PlanStep::Stmt(at) => {
                self.bindings.check_assertion(*at).map_err(|e| in_window(self.graph, e, *at))
            }
            PlanStep::Copy { from, to, .. } => self.copy(from, to),
            PlanStep::Node { node, reads, writes, results } => {
                let statement = self.uses.statements.get(node.index()).copied();
                let at = statement.ok_or_else(wrong_graph)?;
                if let Ok(op @ FunctionalOp::Fused { .. }) = FunctionalOp::of(self.graph, *node) {
                    self.is_refused = !self.region(op, reads, results)?;
                    return match self.is_refused {
                        true => Err(Error::msg("a region has no kernel for these sizes")),
                        false => Ok(()),
                    };
                }
                self.node(*node, at, reads, writes, results)
                    .map_err(|e| in_window(self.graph, e, at))
            }
        }
    }

    fn tensors(&mut self, views: &[BufferView]) -> Result<Vec<TensorAt>> {
        views.iter().map(|view| self.tensor(view)).collect()
    }

    fn copy(&mut self, from: &BufferView, to: &BufferView) -> Result<()> {
        let (source, target) = (self.tensor(from)?, self.tensor(to)?);
        let call = PreparedCall::copy(&fake(&source), &fake(&target));
        if let Some((call, places)) =
            call.and_then(|call| placed(call, slice::from_ref(&source), slice::from_ref(&target)))
        {
            if !call.is_empty() {
                let writes = planned_buffers(self.planned, slice::from_ref(&target));
                let source = LaunchSource::Infallible { region: None, writes };
                let launch = Launch::new(call, places, source);
                self.steps.push(Step::Launch(Box::new(launch)));
            }
            return Ok(());
        }
        let new =
            matches!(self.planned.plan.buffers.get(to.buffer.index()), Some(Buffer::New { .. }));
        let shares_elements = new
            && PreparedCall::copy(&fake(&source), &fake(&target))
                .is_some_and(|call| call.results().iter().any(PlacedOperand::may_self_overlap));
        self.lends_memory = true;
        self.steps.push(Step::Copy { tensors: Box::new([source, target]), shares_elements });
        Ok(())
    }

    /// Frees the returned tensors whose last use is step `at`.
    fn free_unused(&mut self, at: usize, step: &PlanStep) {
        let Builder { planned, uses, steps, places, .. } = self;
        step.for_each_buffer(&mut |b: BufferId| {
            let is_returned =
                matches!(planned.plan.buffers.get(b.index()), Some(Buffer::Returned(_)));
            // A launch writes into memory of the run.
            let is_launched = matches!(places.get(b.index()), Some(Some(at)) if !at.is_given);
            if is_returned
                && !is_launched
                && uses.last.get(b.index()) == Some(&at)
                && uses.is_output.get(b.index()) == Some(&false)
            {
                steps.push(Step::Release(b));
            }
        });
    }

    fn returns(&mut self) -> Result<Returns> {
        let plan = &self.planned.plan;
        let planned = plan
            .outputs
            .iter()
            .map(|view| view.as_ref().map(|view| self.tensor(view)).transpose())
            .collect::<Result<_>>()?;
        let graph = self.graph;
        let int = |e| Ok(self.bindings.eval(e)?.into());
        let unknown = || Error::msg("computed by an operator");
        let get = |v: ValueId| self.known_number(v).ok_or_else(unknown);
        let mut computed = Vec::new();
        let mut result = |(at, arg): (usize, &Arg)| match *arg {
            Arg::Value(v) if graph.tensor_type(v).is_some() => Value::None,
            arg => argument_value(graph, arg, &get, &int).unwrap_or_else(|_| {
                computed.push((at, arg));
                Value::None
            }),
        };
        let results = graph.outputs().iter().enumerate().map(&mut result).collect();
        Ok(Returns { results, computed, planned })
    }
}

/// The buffers of the plan among some targets: inputs, constants and outputs.
fn planned_buffers(planned: &Planned, targets: &[TensorAt]) -> SmallVec<[BufferId; 1]> {
    let buffers = targets.iter().map(|at| BufferId(at.base));
    buffers.filter(|b| b.index() < planned.plan.buffers.len()).collect()
}

/// A fake tensor of the layout, with offset 0.
fn fake(at: &TensorAt) -> Tensor {
    Tensor::fake_of(at.meta.clone().with_offset(0))
}
