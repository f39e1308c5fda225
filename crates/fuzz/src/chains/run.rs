//! Runs of chains, eagerly and compiled.

use super::{Argument, Call, Chain, Input};
use maquette_check::Rng;
use maquette_check::values::{Bytes, compare_metadata, show};
use maquette_driver::CompileOptions;
use maquette_ir::fused::NoFusionReason;
use maquette_ir::{DType, Device};
use maquette_ops::internals::wait_for;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Error, ErrorKind, Op, Result, Tensor, Value, typed, with_default_device};
use std::sync::{Mutex, PoisonError};

/// The sizes of the changing dimension in the runs of a chain, after the one it was generated with.
const OTHER_BATCHES: [i64; 3] = [1, 33, 7];

/// What became of a chain that agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// The compiled programs that have a plan of their memory.
    pub planned: usize,
    /// All compiled programs.
    pub programs: usize,
    /// The fused regions.
    pub regions: usize,
    /// Inputs for which a region had no kernel.
    pub unfused: usize,
    /// The programs that are less fused, since they would copy more than the eager chain.
    pub given_up: usize,
}

impl Argument {
    fn value(&self, values: &[Value]) -> Result<Value> {
        let missing = || Error::value("a call takes a value that does not exist");
        let get = |v: &usize| values.get(*v).cloned().ok_or_else(missing);
        Ok(match self {
            Argument::Value(v) => get(v)?,
            Argument::Values(all) => Value::List(all.iter().map(get).collect::<Result<_>>()?),
            Argument::Int(i) => Value::from(*i),
            Argument::Ints(ints) => Value::Ints(ints.iter().map(|i| (*i).into()).collect()),
            Argument::Float(x) => Value::Float(*x),
            Argument::Bool(b) => Value::Bool(*b),
            Argument::DType(d) => Value::DType(*d),
            Argument::None => Value::None,
        })
    }
}

impl Call {
    /// Calls the operator, and appends the tensors that it returns.
    pub(super) fn run(&self, values: &mut Vec<Value>) -> Result<()> {
        let args = self.args.iter().map(|arg| arg.value(values)).collect::<Result<Args>>()?;
        let results = Op::find(self.op)?.call(args)?;
        for t in results.iter().flat_map(Value::tensors) {
            values.push(Value::Tensor(t.clone().ok()?.clone()));
        }
        Ok(())
    }
}

impl Chain {
    /// Runs the chain eagerly, or in a trace.
    pub(crate) fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut values: Vec<Value> = inputs.iter().map(|t| Value::Tensor(t.clone())).collect();
        self.calls.iter().try_for_each(|call| call.run(&mut values))?;
        let missing = || Error::value("a program returns a value that does not exist");
        let output = |v: &usize| values.get(*v).ok_or_else(missing)?.tensor().cloned();
        self.outputs.iter().map(output).collect()
    }

    /// Inputs with random elements.
    pub(crate) fn make_inputs(&self, seed: u64, batch: Option<i64>) -> Result<Vec<Tensor>> {
        let make = |(i, input): (usize, &Input)| input.make(&mut Rng::new(seed, i as u64), batch);
        self.inputs.iter().enumerate().map(make).collect()
    }
}

impl Input {
    /// A tensor of random elements: a part of a table, from a random element on. Inputs are a large
    /// part of the time of a chain, so its elements are not drawn one by one.
    pub(super) fn make(&self, rng: &mut Rng, batch: Option<i64>) -> Result<Tensor> {
        let mut sizes = self.sizes.clone();
        if let (true, Some(batch), Some(first)) = (self.is_batched, batch, sizes.first_mut()) {
            *first = batch;
        }
        let n: i64 = sizes.iter().product();
        typed!(self.dtype, T => {
            let table = elements(self.dtype)?;
            let table = table.read::<T>()?;
            let missing = || Error::value("the table has no elements");
            let table = table.as_slice().filter(|t| !t.is_empty()).ok_or_else(missing)?;
            let (mut data, mut at) = (Vec::with_capacity(n as usize), rng.below(table.len()));
            while data.len() < n as usize {
                let end = table.len().min(at + n as usize - data.len());
                data.extend_from_slice(&table[at..end]);
                at = 0;
            }
            Ok(Tensor::from_vec(data, sizes))
        })
    }
}

/// How many elements a table has: a prime, so that no size repeats them row by row.
const TABLE: usize = 65_537;

/// The table of a dtype: small numbers, and now and then a special one.
fn elements(dtype: DType) -> Result<Tensor> {
    static TABLES: Mutex<Vec<Tensor>> = Mutex::new(Vec::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = tables.iter().find(|t| t.dtype() == dtype) {
        return Ok(table.clone());
    }
    let mut rng = Rng::new(0, dtype as u64);
    let element = |_| match rng.below(200) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => 0.0,
        _ => (rng.between(-4_000, 4_000) as f64) / 512.0,
    };
    let data = (0..TABLE).map(element);
    let is_float = dtype.is_float();
    let data: Vec<f64> = data.map(|x| if is_float { x } else { (x * 3.0).trunc() }).collect();
    let table = Tensor::from_vec(data, [TABLE as i64]).to_dtype(dtype).ok()?.clone();
    tables.push(table.clone());
    Ok(table)
}

type Function<'a> = Box<dyn Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + 'a>;

/// Checks that a chain does the same compiled as eagerly: static, then with a changing size. Fusion
/// must not be given up for its copies, unless the chain writes.
///
/// # Errors
/// The first difference.
pub fn check(chain: &Chain, seed: u64) -> Result<ChainReport, String> {
    check_on(chain, seed, Device::Cpu)
}

/// As [`check`], with the compiled chain on a device, and the eager one on the CPU.
///
/// # Errors
/// The first difference.
pub fn check_on(chain: &Chain, seed: u64, device: Device) -> Result<ChainReport, String> {
    let run: Function<'_> = Box::new(move |inputs| chain.run(&inputs));
    let compiled = CompileOptions::new().compile(move |inputs: Vec<Tensor>| run(inputs));
    let batches = [None, None].into_iter().chain(OTHER_BATCHES.map(Some));
    for (i, batch) in batches.enumerate() {
        let seed = seed.wrapping_add(i as u64);
        let call = |inputs: Vec<Tensor>| with_default_device(device, || compiled.call(inputs));
        compare(chain, seed, batch, device, &call)
            .map_err(|what| format!("run {i} with batch {batch:?}: {what}"))?;
    }
    let (mut report, mut less_fused) = (ChainReport::default(), String::new());
    for program in compiled.explain().programs {
        report.programs += 1;
        report.planned += usize::from(program.is_compiled);
        report.regions += program.fused.len();
        report.unfused += program.unfused_layouts;
        let mut reasons = program.not_fused.iter().map(|(.., reason)| *reason);
        if reasons.any(|r| r == NoFusionReason::Written) {
            report.given_up += 1;
            less_fused = program.to_string();
        }
    }
    if report.given_up > 0
        && device == Device::Cpu
        && !chain.calls.iter().any(|call| call.written().is_some())
    {
        let what = "with operators fused, it would copy more than the eager chain";
        return Err(format!("{what}\n{less_fused}"));
    }
    Ok(report)
}

/// Compares a call of the compiled chain with an eager run, on equal inputs.
///
/// # Errors
/// The first difference.
pub(crate) fn compare(
    chain: &Chain,
    seed: u64,
    batch: Option<i64>,
    device: Device,
    compiled: &dyn Fn(Vec<Tensor>) -> Result<Vec<Tensor>>,
) -> Result<(), String> {
    let text = |e: Error| e.to_string();
    let eager_inputs = chain.make_inputs(seed, batch).map_err(text)?;
    let inputs = chain.make_inputs(seed, batch).map_err(text)?;
    let there = |t: &Tensor| t.to_device(device).ok().cloned();
    let inputs = inputs.iter().map(there).collect::<Result<Vec<Tensor>>>().map_err(text)?;
    let fixed = || Philox { seed: 7, offset: 0 };
    let expected = apart(&mut fixed(), || chain.run(&eager_inputs));
    // The error of a launch may come later.
    let settled = |found: Vec<Tensor>| {
        wait_for(device)?;
        found.iter().chain(&inputs).try_for_each(|t| t.ok().map(drop))?;
        Ok(found)
    };
    let found = apart(&mut fixed(), || compiled(inputs.clone()).and_then(settled));
    let (expected, found) = match (expected, found) {
        (Ok(expected), Ok(found)) => (expected, found),
        // A late error is not in the operator's words: the operands that explain it are gone.
        (Err(_), Err(_)) if device != Device::Cpu => return Ok(()),
        (Err(expected), Err(found)) => return compare_errors(&expected, &found),
        (Ok(_), Err(e)) => return Err(format!("only the compiled program fails: {e}")),
        // A compiled program does not run what nothing uses.
        (Err(_), Ok(_)) if fails_unused(chain, seed, batch).map_err(text)? => return Ok(()),
        (Err(e), Ok(_)) => return Err(format!("only the eager program fails: {e}")),
    };
    let pairs = expected.iter().zip(&found).chain(eager_inputs.iter().zip(&inputs));
    for (i, (a, b)) in pairs.enumerate() {
        if b.device() != device {
            return Err(format!("tensor {i} is on {} instead of {device}", b.device()));
        }
        compare_metadata(a, b)
            .and_then(|()| compare_elements(a, &b.to_device(Device::Cpu)))
            .map_err(|what| format!("tensor {i}: {what}"))?;
    }
    Ok(())
}

/// Whether the first call that fails has no part in outputs and inputs: nothing reads its results,
/// or they are overwritten. Which values share memory is known from a run with the sizes with which
/// the chain was generated.
///
/// # Errors
/// That run fails.
fn fails_unused(chain: &Chain, seed: u64, batch: Option<i64>) -> Result<bool> {
    let start = |batch| -> Result<Vec<Value>> {
        Ok(chain.make_inputs(seed, batch)?.into_iter().map(Value::Tensor).collect())
    };
    let (mut values, mut run) = (start(batch)?, start(None)?);
    let failing = chain.calls.iter().position(|call| call.run(&mut values).is_err());
    let mut ends = Vec::new();
    for call in &chain.calls {
        call.run(&mut run)?;
        ends.push(run.len());
    }
    let tensors: Vec<&Tensor> = run.iter().flat_map(Value::tensors).collect();
    // The first value of each memory stands for it.
    let memory = |v: usize| tensors.iter().position(|t| t.shares_storage(tensors[v])).unwrap_or(v);
    let mut live: Vec<usize> = chain.outputs.iter().copied().chain(0..chain.inputs.len()).collect();
    live.iter_mut().for_each(|v| *v = memory(*v));
    for (i, call) in chain.calls.iter().enumerate().rev() {
        let mut results =
            i.checked_sub(1).map_or(chain.inputs.len(), |before| ends[before])..ends[i];
        let written = call.written().map(memory);
        let is_effect = results.is_empty() && written.is_none();
        let is_live = |v: usize| live.contains(&memory(v));
        let is_used = is_effect || written.is_some_and(is_live) || results.any(is_live);
        if Some(i) == failing {
            return Ok(!is_used);
        }
        let mut read: Vec<usize> = call.values().into_iter().map(memory).collect();
        // A copy from elsewhere into the whole of a memory leaves nothing of what was there.
        if let (Some(whole), [first, rest @ ..]) = (written, &read[..])
            && call.op == "aten::copy_"
            && call.written() == written
            && !rest.contains(first)
        {
            live.retain(|v| *v != whole);
            read.remove(0);
        }
        if is_used {
            live.extend(read);
        }
    }
    Ok(false)
}

/// Compares the operators and the texts of errors of kernels. Others are compared elsewhere.
///
/// # Errors
/// They differ.
fn compare_errors(expected: &Error, found: &Error) -> Result<(), String> {
    let is_kernel = |e: &Error| matches!(e.kind(), ErrorKind::Kernel(_));
    let line = |e: &Error| e.to_string().lines().next().unwrap_or_default().to_owned();
    let is_other = expected.op() != found.op() || line(expected) != line(found);
    match is_kernel(expected) && is_kernel(found) && is_other {
        true => Err(format!("the error is `{}` instead of `{}`", line(found), line(expected))),
        false => Ok(()),
    }
}

/// Compares the elements of two tensors of equal dtypes and sizes, in bits; every NaN is equal.
///
/// # Errors
/// The first difference.
pub(crate) fn compare_elements(a: &Tensor, b: &Tensor) -> Result<(), String> {
    let text = |e: Error| e.to_string();
    typed!(a.dtype(), T => {
        let (all_a, all_b) = (a.read::<T>().map_err(text)?, b.read::<T>().map_err(text)?);
        if all_a.len() != all_b.len() {
            return Err(format!("{} elements instead of {}", all_b.len(), all_a.len()));
        }
        if let (Some(a), Some(b)) = (all_a.as_slice(), all_b.as_slice())
            && a.iter().zip(b).fold(true, |same, (x, y)| same & x.is_same(*y))
        {
            return Ok(());
        }
        let mut pairs = all_a.iter().copied().zip(all_b.iter().copied()).enumerate();
        let Some((at, (of_a, of_b))) = pairs.find(|(_, (x, y))| !x.is_same(*y)) else {
            return Ok(());
        };
        let bits = |x: T| {
            let mut bytes = Vec::new();
            x.encode(&mut bytes);
            format!("{bytes:02x?}")
        };
        Err(format!(
            "elements of {} differ, at {at}: {} instead of {}; {} instead of {}",
            a.dtype(),
            bits(of_b),
            bits(of_a),
            show(&Value::Tensor(b.clone())),
            show(&Value::Tensor(a.clone())),
        ))
    })
}
