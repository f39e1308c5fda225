//! The modes that run programs in planned memory.

use super::mode::{Functional, Mode, Prepared, Ran, sound};
use super::program::Program;
use crate::plan::check_plan;
use maquette_driver::run_planned;
use maquette_ir::graph::Stmt;
use maquette_ops::library::Facts;
use maquette_ops::{Error, Result, Tensor, Value};
use maquette_rewrite::functionalize_in_place;

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
        let (traced, (functional, plan)) =
            self.of.made(program, sample, |graph, options| functionalize_in_place(graph, &Facts, options))?;
        sound(&functional)?;
        // sizes that depend on data, or differ from call to call, are known in the run alone
        if !self.of.symbolic && !traced.body().iter().any(|s| matches!(s, Stmt::Bind { .. })) {
            check_plan(&functional, &plan, &Facts, &|_| None).map_err(|e| Error::msg(format!("the plan is wrong: {e}")))?;
        }
        Ok(Box::new(move |inputs| {
            let (outputs, traffic) = run_planned(&functional, &plan, &inputs.iter().map(Value::from).collect::<Vec<_>>())?;
            Ok(Ran { outputs, traffic: Some(traffic) })
        }))
    }

    fn serves_all_sizes(&self, program: &Program) -> bool {
        self.of.serves_all_sizes(program)
    }
}
