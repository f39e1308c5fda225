//! A checker of [plans](maquette_ir::buffer_plan) that shares no code with the planner: it runs a
//! plan on the *names* of elements instead of elements.
//!
//! Each element of each value has a name. Operators make names; views and stores move them. A plan
//! is right if every operator finds the names of its operands where it reads them, if outputs and
//! mutated inputs have the right names at the end, and if the invariants P1 to P7 hold at each
//! step.

mod elements;
mod outputs;

use maquette_ir::buffer_plan::{Buffer, BufferId, BufferPlan, BufferView, ResultDest, Step};
use maquette_ir::functional_ops::{Callee, FunctionalOp};
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::graph::{Arg, ArgEffect, Graph, NodeId, OpFacts, Placement, Stmt, ValueId};
use maquette_ir::sym::{Expr, SymTable, SymbolId};
use std::collections::{HashMap, HashSet};

/// The values of symbols.
pub type Env<'a> = dyn Fn(SymbolId) -> Option<i64> + 'a;

type ElementId = u64;
type PlanResult<T = ()> = Result<T, String>;

/// Checks a plan of a functional program at sizes: symbols have the values that `env` gives.
///
/// # Errors
/// The first thing that is wrong, by step and invariant.
pub fn check_plan(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    facts: &dyn OpFacts,
    env: &Env<'_>,
) -> PlanResult {
    let mut c = Checker {
        program,
        graph: &program.graph,
        plan,
        facts,
        env,
        names: HashMap::new(),
        next: 0,
        memory: vec![HashMap::new(); plan.buffers.len()],
        initial_memory: Vec::new(),
        done: HashSet::new(),
        last: 0,
    };
    c.name_elements()?;
    for (i, step) in plan.steps.iter().enumerate() {
        c.step(step).map_err(|e| format!("step {i}: {e}"))?;
    }
    c.check_outputs()
}

struct Checker<'a> {
    program: &'a FunctionalGraph,
    graph: &'a Graph,
    plan: &'a BufferPlan,
    facts: &'a dyn OpFacts,
    env: &'a Env<'a>,
    /// By value, in row-major order.
    names: HashMap<ValueId, Vec<ElementId>>,
    next: ElementId,
    /// By buffer: what lies where.
    memory: Vec<HashMap<i64, ElementId>>,
    /// The memory of inputs and constants at the start.
    initial_memory: Vec<HashMap<i64, ElementId>>,
    done: HashSet<NodeId>,
    /// The statement of the last step.
    last: usize,
}

impl Checker<'_> {
    fn eval(&self, table: &SymTable, e: Expr) -> PlanResult<i64> {
        table.eval(e, self.env).map_err(|e| e.to_string())
    }

    fn decode(&self, node: NodeId) -> PlanResult<FunctionalOp<'_>> {
        FunctionalOp::of(self.graph, node).map_err(|_| "malformed node".to_owned())
    }

    /// The tensors that a node reads, and those it mutates, before and after.
    fn operands(&self, node: NodeId) -> (Vec<ValueId>, Vec<(ValueId, ValueId)>) {
        let graph = self.graph;
        let Callee { op, args, mutates, .. } = Callee::of(graph, node);
        let (mut reads, mut mutated) = (Vec::new(), Vec::new());
        let named = graph
            .kwargs(node)
            .iter()
            .map(|(name, a)| (self.facts.arg_index(op, graph.str(*name)), *a));
        for (index, arg) in args.iter().enumerate().map(|(i, a)| (Some(i), *a)).chain(named) {
            let writes =
                mutates && index.is_none_or(|i| self.facts.arg_effect(op, i) == ArgEffect::Write);
            graph.for_each_leaf(arg, &mut |leaf| {
                if let Arg::Value(v) = leaf
                    && graph.tensor_type(v).is_some()
                {
                    if writes { &mut mutated } else { &mut reads }.push(v);
                }
            });
        }
        let results: Vec<ValueId> = graph.result_values(node).collect();
        let after = results.iter().copied().skip(results.len().saturating_sub(mutated.len()));
        (reads, mutated.iter().copied().zip(after).collect())
    }

    fn expect_contents(&self, v: ValueId, place: &BufferView, invariant: &str) -> PlanResult {
        let memory = &self.memory[place.buffer.index()];
        let found: Vec<Option<ElementId>> =
            self.positions(place)?.iter().map(|p| memory.get(p).copied()).collect();
        let wanted = self.element_ids(v)?;
        let name = self.graph.value_name(v).to_string();
        if found.len() != wanted.len() {
            return Err(format!(
                "{invariant}: %{name} has {} elements, but its region has {}",
                wanted.len(),
                found.len()
            ));
        }
        match found.iter().zip(wanted).position(|(f, w)| *f != Some(*w)) {
            Some(i) => Err(format!(
                "{invariant}: buffer {} does not contain element {i} of %{name} at this step",
                place.buffer.0
            )),
            None => Ok(()),
        }
    }

    /// Memory that may be written, inside its buffer.
    fn writable(&self, b: BufferId, at: &[i64]) -> PlanResult {
        let external = match self.plan.buffers.get(b.index()).ok_or("no such buffer")? {
            Buffer::Input(i) => ExternalTensor::Input(*i),
            Buffer::Const(i) => ExternalTensor::Const(*i),
            Buffer::Returned(v) => {
                return in_bounds(
                    at,
                    self.declared_positions(*v)?.into_iter().max().map_or(0, |p| p + 1),
                );
            }
            Buffer::New { layout, .. } => {
                let whole = self.positions(&BufferView { buffer: b, spec: layout.clone() })?;
                return in_bounds(at, whole.iter().max().map_or(0, |p| p + 1));
            }
        };
        if self.program.mutations.iter().any(|m| self.same_external(m.target, external)) {
            return Ok(());
        }
        Err(format!("P1: external buffer {} is written, but the program does not mutate it", b.0))
    }

    fn same_external(&self, a: ExternalTensor, b: ExternalTensor) -> bool {
        let number = |o: ExternalTensor| match o {
            ExternalTensor::Input(i) => i,
            ExternalTensor::SharedMemory(i) => {
                self.graph.inputs().len() - self.program.memories.len() + i
            }
            ExternalTensor::Const(i) => self.graph.inputs().len() + i,
        };
        number(a) == number(b)
    }

    fn write(&mut self, v: ValueId, place: &BufferView) -> PlanResult {
        let (at, names) = (self.positions(place)?, self.element_ids(v)?.clone());
        self.put(place.buffer, &at, &names.into_iter().map(Some).collect::<Vec<_>>())
    }

    fn put(&mut self, b: BufferId, at: &[i64], names: &[Option<ElementId>]) -> PlanResult {
        self.writable(b, at)?;
        let mut seen: HashMap<i64, Option<ElementId>> = HashMap::new();
        for (p, name) in at.iter().zip(names) {
            if seen.insert(*p, *name).is_some_and(|before| before != *name) {
                return Err("P5: two elements are written to one position".into());
            }
            match name {
                Some(name) => drop(self.memory[b.index()].insert(*p, *name)),
                None => drop(self.memory[b.index()].remove(p)),
            }
        }
        Ok(())
    }

    fn in_order(&mut self, at: usize) -> PlanResult {
        if at < self.last {
            return Err(
                "P7: a statement runs before a statement that precedes it in the graph".into()
            );
        }
        self.last = at;
        Ok(())
    }

    fn step(&mut self, step: &Step) -> PlanResult {
        match step {
            Step::Stmt(at) => self.in_order(*at),
            Step::Alias { .. } => Ok(()),
            Step::Copy { from, to, overlaps, .. } => {
                let (source, target) = (self.positions(from)?, self.positions(to)?);
                if source.len() != target.len() {
                    return Err("source and destination of a copy differ in size".into());
                }
                if !overlaps && from.buffer == to.buffer && intersects(&source, &target) {
                    return Err("P3: the source and destination of a copy overlap".into());
                }
                let memory = &self.memory[from.buffer.index()];
                let names: Vec<Option<ElementId>> =
                    source.iter().map(|p| memory.get(p).copied()).collect();
                self.put(to.buffer, &target, &names)
            }
            Step::Node { node, reads, writes, results } => self.node(*node, reads, writes, results),
        }
    }

    fn node(
        &mut self,
        node: NodeId,
        reads: &[(ValueId, BufferView)],
        writes: &[BufferView],
        results: &[(ValueId, ResultDest)],
    ) -> PlanResult {
        let at =
            self.graph.body().iter().position(|s| *s == Stmt::Node(node)).ok_or("no such node")?;
        self.in_order(at)?;
        if !self.done.insert(node) {
            return Err("duplicate execution of a node".into());
        }
        if let FunctionalOp::View { base, region } = self.decode(node)? {
            let part = self.view_positions(region)?;
            return self.gathered_view(base, &part, reads, results);
        }
        let (operands, mutated) = self.operands(node);
        for v in operands {
            let (_, place) =
                reads.iter().find(|(u, _)| *u == v).ok_or("an operand has no region")?;
            self.expect_contents(v, place, "P2")?;
        }
        if mutated.len() != writes.len() {
            return Err("a mutated operand has no region".into());
        }
        let mut taken: Vec<(BufferId, Vec<i64>)> = Vec::new();
        for ((before, _), place) in mutated.iter().zip(writes) {
            self.expect_contents(*before, place, "P2")?;
            let at = self.positions(place)?;
            if taken.iter().any(|(b, other)| *b == place.buffer && intersects(&at, other)) {
                return Err("P6: two mutated tensors share elements".into());
            }
            taken.push((place.buffer, at));
        }
        for ((_, after), place) in mutated.iter().zip(writes) {
            self.write(*after, place)?;
        }
        for (v, made) in results {
            match made {
                ResultDest::Returned(b) => {
                    let (at, names) = (self.declared_positions(*v)?, self.element_ids(*v)?.clone());
                    self.memory[b.index()] = at.into_iter().zip(names).collect();
                }
                ResultDest::Into(place) => {
                    let elementwise =
                        self.facts.placement(self.graph.op_name(node)) == Placement::Elementwise;
                    let target = self.positions(place)?;
                    for (_, read) in reads.iter().filter(|(_, read)| read.buffer == place.buffer) {
                        let source = self.positions(read)?;
                        if intersects(&source, &target) && !(elementwise && source == target) {
                            return Err("P3: a kernel overwrites an operand that it reads".into());
                        }
                    }
                    self.write(*v, place)?;
                }
            }
        }
        Ok(())
    }

    /// A view that no strides give, which copies whatever lies there, as copies do: what is stored
    /// over later may be anything.
    fn gathered_view(
        &mut self,
        viewed: ValueId,
        part: &[i64],
        reads: &[(ValueId, BufferView)],
        results: &[(ValueId, ResultDest)],
    ) -> PlanResult {
        let ([(base, from)], [(_, ResultDest::Into(to))]) = (reads, results) else {
            return Err("the result of a copying view has no region".into());
        };
        let (source, target) = (self.positions(from)?, self.positions(to)?);
        if viewed != *base || source.len() != self.element_ids(*base)?.len() {
            return Err("a view has another base than in the graph".into());
        }
        if target.len() != part.len() {
            return Err("source and destination of a copy differ in size".into());
        }
        if from.buffer == to.buffer && intersects(&source, &target) {
            return Err("P3: a kernel overwrites an operand that it reads".into());
        }
        let memory = &self.memory[from.buffer.index()];
        let found = part.iter().map(|p| source.get(*p as usize).map(|at| memory.get(at).copied()));
        let names: Vec<Option<ElementId>> =
            found.collect::<Option<_>>().ok_or("a view exceeds its base")?;
        self.put(to.buffer, &target, &names)
    }
}

fn intersects(a: &[i64], b: &[i64]) -> bool {
    let a: HashSet<i64> = a.iter().copied().collect();
    b.iter().any(|p| a.contains(p))
}

fn in_bounds(at: &[i64], len: i64) -> PlanResult {
    if at.iter().all(|p| (0..len).contains(p)) {
        Ok(())
    } else {
        Err("a region exceeds its buffer".into())
    }
}
