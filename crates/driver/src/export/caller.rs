//! What a call of an exported program adds to a run of its graph: the program's own tensors, the
//! trees of inputs and outputs, and the lock.

use super::call_lock::CallLock;
use crate::given_outputs;
use maquette_invoke::SourceInfo;
use maquette_ir::Loc;
use maquette_ops::{Result, Tensor, Tree, Value, mode, tree};
use maquette_trace::Interface;

/// Calls the graph of an exported program.
pub(crate) struct Caller {
    pub(crate) interface: Interface,
    /// The tensors that the program passes as the first inputs of the graph.
    pub(crate) state: Vec<Tensor>,
    /// Runs calls one at a time, for a program that mutates its own tensors.
    pub(crate) call_lock: Option<CallLock>,
    /// The names of the graph's inputs.
    pub(crate) labels: Vec<String>,
}

impl Caller {
    /// A call on line `call_site`. `run` runs the graph on the program's tensors and the inputs.
    pub(crate) fn call<I: Tree, O: Tree>(
        &self,
        inputs: &I,
        call_site: Loc,
        run: impl FnOnce(&[Value], &SourceInfo<'_>) -> Result<Vec<Value>>,
    ) -> Result<O> {
        self.run(inputs, call_site, |given, source_info| {
            let outputs = run(given, source_info)?;
            O::unflatten(&self.interface.out_spec, &mut outputs.into_iter())
        })
    }

    /// As [`Caller::call`], for a call that writes its results into given tensors.
    pub(crate) fn call_into<I: Tree, O: Tree>(
        &self,
        inputs: &I,
        outputs: &O,
        call_site: Loc,
        run: impl FnOnce(&[Value], &[Tensor], &SourceInfo<'_>) -> Result<()>,
    ) -> Result<()> {
        self.run(inputs, call_site, |given, source_info| {
            let (spec, leaves) = tree::flatten_values(outputs)?;
            let outputs = given_outputs::tensors(&self.interface.out_spec, (&spec, &leaves))?;
            run(given, &outputs, source_info)
        })
    }

    /// Runs something on the program's tensors and the inputs, for a call on line `call_site`.
    pub(crate) fn run<I: Tree, R>(
        &self,
        inputs: &I,
        call_site: Loc,
        run: impl FnOnce(&[Value], &SourceInfo<'_>) -> Result<R>,
    ) -> Result<R> {
        let source_info = SourceInfo { input_names: &self.labels, call_site };
        let call = || {
            let _guard = self.call_lock.as_ref().map(CallLock::take).transpose()?;
            let state = self.state.iter().cloned().map(Value::Tensor);
            let given: Vec<Value> = state.chain(self.interface.flatten_inputs(inputs)?).collect();
            run(&given, &source_info)
        };
        call().map_err(|e| mode::failed(source_info.locate(e)))
    }
}
