//! Calls of custom operators without the dispatcher.

use super::Run;
use crate::instance::{Call, ExpectedResult, KernelCall, Segment};
use maquette_invoke::{NodeResults, ResultRules, wrong_graph};
use maquette_ops::{Args, Outputs, Result, Value};
use smallvec::SmallVec;

impl Run<'_> {
    /// Calls the kernel of a custom operator, and stores its results.
    ///
    /// # Errors
    /// As a call through the dispatcher.
    pub(super) fn call_kernel(
        &mut self,
        segment: &Segment,
        call: &Call,
        kernel: &KernelCall,
    ) -> Result<()> {
        let loc = call.loc.unwrap_or(self.source_info.call_site);
        self.prepare_arguments(segment, kernel)?;
        let args = self.kept_arguments(segment, kernel)?;
        let mut outputs = Outputs::new();
        let called = kernel.kernel.call(args, &mut outputs, loc);
        for operand in kernel.operands.iter().filter(|o| !o.is_kept) {
            if let Some(arg) = args.get_mut(operand.index) {
                *arg = Value::None;
            }
        }
        called?;
        self.check_returned(&call.lent).map_err(|e| e.in_call(&call.name, loc))?;
        let fits = kernel.returns.as_ref().is_some_and(|expected| {
            expected.len() == outputs.len()
                && expected.iter().zip(&outputs).all(|(e, output)| e.fits(output))
        });
        match (&kernel.returns, fits) {
            (Some(expected), true) => self.adopt_returns(expected, &mut outputs),
            _ => self.set_node_results(segment, call, outputs),
        }
        .map_err(|e| e.in_call(&call.name, loc))
    }

    /// The kept arguments of a call.
    fn kept_arguments(&mut self, segment: &Segment, kernel: &KernelCall) -> Result<&mut Args> {
        let handles = self.memory.handles.get_mut(segment.depth);
        handles.and_then(|h| h.args.get_mut(kernel.kept as usize)).ok_or_else(wrong_graph)
    }

    /// Gives the kept arguments of a call the tensors that they lack.
    fn prepare_arguments(&mut self, segment: &Segment, kernel: &KernelCall) -> Result<()> {
        let args = self.kept_arguments(segment, kernel)?;
        let is_new = args.is_empty();
        if is_new {
            args.clone_from(&kernel.template);
        }
        for operand in &kernel.operands {
            if operand.is_kept && !is_new {
                continue;
            }
            let tensor = match operand.is_kept {
                true => self.tensor(segment, &operand.at)?,
                false => self.memory.own_tensor(segment.depth, &operand.at)?,
            };
            let args = self.kept_arguments(segment, kernel)?;
            *args.get_mut(operand.index).ok_or_else(wrong_graph)? = Value::Tensor(tensor);
        }
        Ok(())
    }

    /// Stores returned tensors that are as the graph declares.
    fn adopt_returns(&mut self, expected: &[ExpectedResult], outputs: &mut Outputs) -> Result<()> {
        for (expected, output) in expected.iter().zip(outputs) {
            if let ExpectedResult::Tensor { buffer: Some(b), .. } = expected
                && let Value::Tensor(t) = std::mem::replace(output, Value::None)
            {
                self.memory.set_base(b.0, t, true)?;
            }
        }
        Ok(())
    }

    /// Stores results as those of every other call.
    #[cold]
    fn set_node_results(&mut self, segment: &Segment, call: &Call, outputs: Outputs) -> Result<()> {
        let mut mutated: SmallVec<[Value; 2]> = SmallVec::new();
        for at in call.arguments.written() {
            mutated.push(Value::Tensor(self.tensor(segment, at)?));
        }
        let NodeResults { outputs, returned, .. } = call.returns.results(outputs, mutated);
        let rules = ResultRules { returned, promise: call.promise, copied: &[] };
        self.set_results(segment, call, outputs, rules)
    }
}
