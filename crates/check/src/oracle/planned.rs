//! The modes that run programs in planned memory, and how much they copy beside the eager program.

use super::mode::{Functional, Mode, Prepared};
use super::program::Program;
use crate::plan::check_plan;
use maquette_driver::run_planned;
use maquette_ir::graph::{Graph, OpFacts, Placement, Stmt, ValueId};
use maquette_ops::library::Facts;
use maquette_ops::{Error, Result, Tensor, Value};
use maquette_rewrite::{Level, plan};
use std::fmt::{Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The program made functional, in the memory that a plan gives; the plan is checked on the names of elements first.
pub struct Planned {
    of: Functional,
}

impl Planned {
    pub(super) const fn new(of: Functional) -> Planned {
        Planned { of }
    }
}

impl Mode for Planned {
    fn name(&self) -> &'static str {
        self.of.name
    }

    fn prepare(&self, program: &Program, sample: &[Tensor]) -> Result<Prepared> {
        let (traced, functional) = self.of.made(program, sample)?;
        let plan = plan(&functional, &Facts).map_err(Error::other)?;
        // sizes that depend on data, or differ from call to call, are known in the run alone
        if !self.of.symbolic && !traced.body().iter().any(|s| matches!(s, Stmt::Bind { .. })) {
            check_plan(&functional, &plan, &Facts, &|_| None).map_err(|e| Error::msg(format!("the plan is wrong: {e}")))?;
        }
        let (eager, exact) = (eager_copies(&traced), self.of.level == Level::Exact);
        Ok(Box::new(move |inputs| {
            let (outputs, copied) = run_planned(&functional, &plan, &inputs.iter().map(Value::from).collect::<Vec<_>>())?;
            if let (Some(eager), true) = (eager, exact) {
                EAGER.fetch_add(eager, Relaxed);
                PLANNED.fetch_add(copied, Relaxed);
                MORE.fetch_add(u64::from(copied > eager), Relaxed);
            }
            Ok(outputs)
        }))
    }

    fn serves_all_sizes(&self, program: &Program) -> bool {
        self.of.serves_all_sizes(program)
    }
}

static EAGER: AtomicU64 = AtomicU64::new(0);
static PLANNED: AtomicU64 = AtomicU64::new(0);
static MORE: AtomicU64 = AtomicU64::new(0);

/// How many elements were copied in all programs of the mode `planned`.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    /// By the eager programs.
    pub eager: u64,
    /// By the planned ones.
    pub planned: u64,
    /// In how many programs the plan copied more.
    pub more: u64,
}

/// What was counted so far.
pub fn copies() -> Copies {
    Copies { eager: EAGER.load(Relaxed), planned: PLANNED.load(Relaxed), more: MORE.load(Relaxed) }
}

impl Display for Copies {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Copies { eager, planned, more } = self;
        writeln!(f, "elements copied: {eager} eagerly, {planned} as planned; more than eagerly in {more} programs")
    }
}

/// How many elements the eager program copies: what is copied by name, and reshapes that cannot be views. `None` if sizes depend on data.
fn eager_copies(graph: &Graph) -> Option<u64> {
    let elements = |v: ValueId| -> Option<u64> {
        let t = graph.tensor_type(v)?;
        let sizes = t.sizes.iter().map(|e| graph.symbols().eval(*e, &|_| None).ok());
        u64::try_from(sizes.product::<Option<i64>>()?).ok()
    };
    let mut total = 0;
    for node in graph.nodes() {
        let op = graph.op_name(node);
        // what is not element by element is computed apart, and then copied into the tensor
        let by_way = Facts.twin(op).is_some_and(|name| Facts.placement(name) != Placement::Elementwise);
        if by_way || op == "aten::copy_" || graph.copies(node) || matches!(op, "aten::clone" | "aten::_to_copy" | "aten::view_copy") {
            total += graph.result_values(node).map(elements).sum::<Option<u64>>()?;
        }
    }
    Some(total)
}
