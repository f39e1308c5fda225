//! A chain that several threads call through one compiled function.

use crate::chains::{self, Chain};
use maquette_check::Rng;
use maquette_check::values::call_single;
use maquette_driver::{CompileOptions, Compiled};
use maquette_ir::Device;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{ErrorKind, Result, RunError, Tensor, args, with_num_threads};

/// The sizes of the changing dimension. There are more than an executable has states of runs, and
/// few enough that most calls repeat one.
const BATCHES: i64 = 24;

/// More programs than the sizes of one chain need.
const PROGRAMS: usize = 64;

type Function = Box<dyn Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync>;

/// A chain with its compiled function.
pub(super) struct SharedChain {
    pub chain: Chain,
    compiled: Compiled<Vec<Tensor>, Result<Vec<Tensor>>, Function>,
}

impl SharedChain {
    pub fn new(chain: Chain) -> SharedChain {
        let of_function = chain.clone();
        let run: Function = Box::new(move |inputs| of_function.run(&inputs));
        SharedChain {
            chain,
            compiled: CompileOptions::new().recompile_limit(PROGRAMS).compile(run),
        }
    }

    /// Calls the function on random inputs of random size, and compares with the eager chain:
    /// results and inputs afterwards. Half of the calls write into given tensors.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, rng: &mut Rng) -> Result<(), String> {
        let batch = (rng.below(4) > 0).then(|| rng.between(1, BATCHES));
        let seed = rng.next();
        let budget = [1, 2, usize::MAX][rng.below(3)];
        let checked = with_num_threads(budget, || match rng.below(2) {
            0 => chains::compare(&self.chain, seed, batch, Device::Cpu, &|inputs| {
                self.compiled.call(inputs)
            }),
            _ => self.check_into(seed, batch, rng),
        });
        checked.map_err(|what| format!("batch {batch:?}, inputs {seed}: {what}"))
    }

    /// Compares what a call writes into given tensors with what the eager chain returns.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_into(&self, seed: u64, batch: Option<i64>, rng: &mut Rng) -> Result<(), String> {
        let inputs = || self.chain.make_inputs(seed, batch).map_err(|e| e.to_string());
        let fixed = || Philox { seed: 7, offset: 0 };
        let (eager_inputs, inputs) = (inputs()?, inputs()?);
        let Ok(expected) = apart(&mut fixed(), || self.chain.run(&eager_inputs)) else {
            return Ok(());
        };
        let given: Result<Vec<Tensor>> = expected.iter().map(|t| given_like(t, rng)).collect();
        let given = given.map_err(|e| e.to_string())?;
        let written = apart(&mut fixed(), || self.compiled.call_into(inputs.clone(), &given));
        match written {
            Ok(()) => {}
            // a result of which nobody can know the size
            Err(e) if matches!(e.kind(), ErrorKind::Run(RunError::OutputNotGiven { .. })) => {
                return Ok(());
            }
            Err(e) => return Err(format!("only the compiled program fails: {e}")),
        }
        let pairs = expected.iter().zip(&given).chain(eager_inputs.iter().zip(&inputs));
        for (i, (expected, found)) in pairs.enumerate() {
            chains::compare_elements(expected, found)
                .map_err(|what| format!("with given outputs: tensor {i}: {what}"))?;
        }
        Ok(())
    }
}

/// Memory for a result like `t`, full of other numbers: dense, with the dimensions turned, or with
/// gaps.
fn given_like(t: &Tensor, rng: &mut Rng) -> Result<Tensor> {
    let sizes = t.sizes_i64()?;
    let (turn, gap) = (rng.below(3) == 0, if rng.below(3) == 0 { 2 } else { 1 });
    let mut strides = vec![0; sizes.len()];
    let mut next = gap;
    let mut dims: Vec<usize> = (0..sizes.len()).collect();
    if !turn {
        dims.reverse();
    }
    for dim in dims {
        strides[dim] = next;
        next *= sizes[dim].max(1);
    }
    let memory = Tensor::ones([next], t.dtype());
    call_single("aten::as_strided", args![&memory, sizes, strides, 0i64])
}
