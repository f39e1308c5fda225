//! Checks the results of a call against the types that the graph declares, and stores them.
//!
//! In a traced graph, these types are the answers that fake kernels gave in the trace. So this is
//! where each run checks a fake kernel against its kernel.

use super::Frame;
use maquette_invoke::{PendingCheck, ResultRules, match_results};
use maquette_ir::graph::{NodeId, ValueId};
use maquette_ops::{Outputs, Result, Value};

impl Frame<'_> {
    /// Stores a node's results.
    ///
    /// # Errors
    /// The number, kinds or metadata of the results differ from the graph's declarations.
    pub(crate) fn set_results(
        &mut self,
        node: NodeId,
        outputs: Outputs,
        rules: ResultRules<'_>,
    ) -> Result<()> {
        let graph = self.graph;
        match_results(graph, node, outputs, &mut |output, v, value| {
            self.set_result(node, output, v, value, rules)
        })
    }

    fn set_result(
        &mut self,
        node: NodeId,
        output: usize,
        v: ValueId,
        value: Value,
        rules: ResultRules<'_>,
    ) -> Result<()> {
        let promise = rules.promise_of(output);
        let value = rules.stored(self.graph, &self.bindings, output, v, value)?;
        if !self.bindings.check_result(v, output, &value, promise)? {
            self.pending_checks.push(PendingCheck {
                node,
                output,
                v,
                value: value.clone(),
                promise,
            });
        }
        self.set(v, value);
        Ok(())
    }
}
