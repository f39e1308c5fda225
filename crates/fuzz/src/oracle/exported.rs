//! Modes that export a program as a module whose buffers are the program's inputs. One mode calls
//! the exported program once, the other calls it on several threads.

use super::mode::{Mode, PreparedProgram, RunResult};
use super::model;
use super::program::TestProgram;
use super::subject::Subject;
use maquette_check::values::{FlatValues, element_bytes};
use maquette_driver::{ExportOptions, Program};
use maquette_ir::graph::{Graph, MemoryFacts};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{Error, Module, Result, Tensor, Value};
use std::thread;

/// Exports the program as a module that owns copies of the inputs, and calls the export once. Then
/// the contents of the copies are written back to the inputs.
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

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let program = export(program, sample)?;
        Ok(Box::new(move |inputs| call_on(&program, inputs)))
    }
}

/// As [`ExportedMode`]. Then two threads call a second export of the program. The buffers must
/// equal those after the same number of calls in turn. A call depends on the buffers alone, so
/// every serial order leaves equal buffers. Different buffers show that calls were not atomic.
pub struct ThreadsMode;

const THREADS: usize = 2;
const CALLS: usize = 2;

impl Mode for ThreadsMode {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let graph = &program.graph;
        let draws = graph.nodes().any(|node| Facts.uses_rng(graph.op_name(node)));
        let (in_turn, at_once) = (export(program, sample)?, export(program, sample)?);
        Ok(Box::new(move |inputs| {
            let result = call_on(&in_turn, inputs)?;
            // Each thread has its own generator of random numbers.
            if draws {
                return Ok(result);
            }
            // Each thread logs its own effects, so calls on this thread would change the log.
            thread::scope(|s| {
                s.spawn(|| call(&in_turn, THREADS * CALLS - 1));
                (0..THREADS).for_each(|_| drop(s.spawn(|| call(&at_once, CALLS))));
            });
            for ((name, _, expected), (.., found)) in in_turn.state().zip(at_once.state()) {
                if element_bytes(&whole(expected)?)? != element_bytes(&whole(found)?)? {
                    return Err(Error::msg(format!(
                        "after calls on {THREADS} threads, buffer {name} differs from the buffer \
                            after calls in turn"
                    )));
                }
            }
            Ok(result)
        }))
    }
}

type Exported = Program<(), FlatValues>;

fn export(program: &TestProgram, sample: &[Tensor]) -> Result<Exported> {
    let exported =
        ExportOptions::new().export(&Buffers { graph: &program.graph, tensors: sample }, ())?;
    exported.graph().verify()?;
    Ok(exported)
}

/// Ignores failures: a failing call fails in every order, and mutates nothing.
fn call(program: &Exported, times: usize) {
    (0..times).for_each(|_| drop(program.call(())));
}

/// Calls a program, and copies the contents of its buffers back into the inputs.
fn call_on(program: &Exported, inputs: &[Tensor]) -> Result<RunResult> {
    let outputs = program.call(())?.0;
    let own: Vec<Tensor> = program.state().map(|(.., t)| t.clone()).collect();
    let mut back = |t: &Tensor| match own.iter().zip(inputs).find(|(own, _)| own.shares_storage(t))
    {
        Some((_, given)) if given.dtype() != t.dtype() => {
            Err(Error::msg("an output views an input as another dtype"))
        }
        Some((_, given)) => {
            given.as_strided(t.sizes(), t.strides(), Some(t.storage_offset())).ok().cloned()
        }
        None => Ok(t.clone()),
    };
    let outputs =
        outputs.iter().map(|v| v.map_tensors(&mut back)).collect::<Result<Vec<Value>>>()?;
    for (own, given) in own.iter().zip(inputs) {
        whole(given)?.copy_(&whole(own)?).ok()?;
    }
    Ok(outputs.into())
}

/// All elements of a tensor's storage.
fn whole(t: &Tensor) -> Result<Tensor> {
    let n = t.storage()?.len() / t.dtype().size();
    t.as_strided([n as i64], [1i64], Some(0.into())).ok().cloned()
}
