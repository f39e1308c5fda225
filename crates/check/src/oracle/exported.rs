//! The mode that exports programs, as modules whose buffers are what the program is given.

use super::mode::{Mode, PreparedProgram};
use super::model;
use super::program::TestProgram;
use crate::values::FlatValues;
use maquette_driver::ExportOptions;
use maquette_ir::graph::Graph;
use maquette_ops::module::Slot;
use maquette_ops::{Error, Module, Result, Tensor, Value};

/// The program as a module that owns its inputs, exported; what it leaves in its copies of them is
/// put back.
pub struct ExportedMode;

struct Buffers<'a> {
    graph: &'a Graph,
    tensors: &'a [Tensor],
}

impl Module for Buffers<'_> {
    type In = ();
    type Out = Result<FlatValues>;

    fn forward(&self, (): ()) -> Result<FlatValues> {
        model::call_all(self.graph, self.tensors).map(FlatValues)
    }

    fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        self.tensors.iter().enumerate().for_each(|(i, t)| v(&i.to_string(), Slot::Buffer, t));
    }
}

impl Mode for ExportedMode {
    fn name(&self) -> &'static str {
        "exported"
    }

    fn prepare(&self, program: &TestProgram, sample: &[Tensor]) -> Result<PreparedProgram> {
        let program =
            ExportOptions::new().export(&Buffers { graph: &program.graph, tensors: sample }, ())?;
        program.graph().verify()?;
        Ok(Box::new(move |inputs| {
            let outputs = program.call(())?.0;
            let own: Vec<Tensor> = program.state().map(|(.., t)| t.clone()).collect();
            let mut back =
                |t: &Tensor| match own.iter().zip(inputs).find(|(own, _)| own.shares_storage(t)) {
                    Some((_, given)) if given.dtype() != t.dtype() => {
                        Err(Error::msg("an output views an input as another dtype"))
                    }
                    Some((_, given)) => given
                        .as_strided(t.sizes(), t.strides(), Some(t.storage_offset()))
                        .ok()
                        .cloned(),
                    None => Ok(t.clone()),
                };
            let outputs =
                outputs.iter().map(|v| v.map_tensors(&mut back)).collect::<Result<Vec<Value>>>()?;
            for (own, given) in own.iter().zip(inputs) {
                whole(given)?.copy_(&whole(own)?).ok()?;
            }
            Ok(outputs.into())
        }))
    }
}

/// All elements of a tensor's storage.
fn whole(t: &Tensor) -> Result<Tensor> {
    let n = t.storage()?.len() / t.dtype().size();
    t.as_strided([n as i64], [1i64], Some(0.into())).ok().cloned()
}
