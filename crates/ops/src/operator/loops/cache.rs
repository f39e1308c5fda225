//! The prepared nests of a thread.
//!
//! A nest is found by what every nest depends on: the operator, and the dtypes and ranks of its
//! tensors. The variants of one key differ in the values that the lowering asked for.

use super::{Arg, BuildNest, Check, Explain, NestCx, Operand, Size, ViewResult};
use crate::dispatch::prepared::{DeviceKernels, compiled};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::operator::OpDef;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_device::{Computation, Kernel};
use maquette_ir::Device;
use maquette_kernels::LoopKernel;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A nest, prepared to be launched with the arguments of a call.
pub(super) struct PreparedNest {
    pub kernel: LoopKernel,
    pub operands: SmallVec<[Operand; 4]>,
    /// The view of the result that the nest writes.
    pub result_view: Option<ViewResult>,
    /// What each symbol stands for.
    pub symbols: SmallVec<[Size; 8]>,
    /// The argument of each number.
    pub numbers: SmallVec<[Arg; 4]>,
    /// The arguments that the last outputs update.
    pub updates: SmallVec<[u8; 2]>,
    pub explain: Option<Explain>,
    checks: Vec<Check>,
    /// The kernels that devices have compiled for the nest.
    compiled: RefCell<DeviceKernels>,
}

impl PreparedNest {
    /// The kernel of a device; `None` if the device has none.
    pub fn kernel_on(&self, device: Device) -> Option<Arc<dyn Kernel>> {
        let known = |compiled: &DeviceKernels| {
            compiled.iter().find(|(on, _)| *on == device).map(|(_, kernel)| kernel.clone())
        };
        if let Some(kernel) = known(&self.compiled.borrow()) {
            return kernel;
        }
        let kernel = compiled(device, &Computation::Nest(self.kernel.nest().clone()));
        self.compiled.borrow_mut().push((device, kernel.clone()));
        kernel
    }
}

type Key = SmallVec<[u64; 12]>;
type Variants = SmallVec<[Rc<PreparedNest>; 1]>;

/// The limits on the cache of a thread. A full cache is cleared, and of the variants of a key the
/// oldest is dropped: a program uses few nests at a time.
const MAX_KEYS: usize = 512;
const MAX_VARIANTS: usize = 8;

thread_local! {
    static CACHE: RefCell<FxHashMap<Key, Variants>> = RefCell::default();
}

/// The dtype and rank of a tensor as a number whose low bits are a tag.
fn tensor_key(t: &Tensor) -> u64 {
    (t.dim() as u64) << 16 | (t.dtype() as u64) << 8
}

/// Appends what every nest depends on. Returns `false` for a value of a kind that no key has.
fn push_key(key: &mut Key, value: &Value) -> bool {
    match value {
        Value::Tensor(t) => key.push(tensor_key(t)),
        Value::None => key.push(1),
        Value::Bool(b) => key.push(2 | u64::from(*b) << 8),
        Value::Int(_) => key.push(3),
        Value::Float(_) => key.push(4),
        Value::DType(d) => key.push(5 | (*d as u64) << 8),
        Value::Ints(ints) => key.push(6 | (ints.len() as u64) << 8),
        // Nests do not depend on where and how results are stored.
        Value::Device(_) | Value::Layout(_) | Value::MemoryFormat(_) => key.push(7),
        Value::List(list) => {
            key.push(8 | (list.len() as u64) << 8);
            return list.iter().all(|v| push_key(key, v));
        }
        Value::Str(_) => return false,
    }
    true
}

/// The prepared nest of a call.
///
/// # Errors
/// The error of the lowering.
pub(super) fn prepare(
    def: &OpDef,
    build: BuildNest,
    args: &[Value],
    results: &[Tensor],
) -> Result<Rc<PreparedNest>> {
    let mut key = Key::new();
    key.push(def.schema.as_ptr().addr() as u64);
    key.extend(results.iter().map(tensor_key));
    let is_cached = args.iter().all(|a| push_key(&mut key, a));
    if is_cached {
        let holds = |nest: &&Rc<PreparedNest>| nest.checks.iter().all(|c| c.holds(args));
        let found = CACHE.with_borrow(|cache| {
            cache.get(&key).and_then(|variants| variants.iter().rev().find(holds).cloned())
        });
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let metas: SmallVec<[Meta; 2]> = results.iter().map(|t| t.meta().clone()).collect();
    let mut cx = NestCx::new(args, &metas);
    let outputs = build(&mut cx)?;
    let NestCx { nest, operands, result_view, symbols, numbers, updates, explain, checks, .. } = cx;
    let kernel = LoopKernel::new(nest.finish(&outputs)?);
    // Eager calls on the CPU run `kernel` itself, so the nest is not compiled for it once more.
    let on_host = (Device::Cpu, Some(kernel.on_host()));
    let prepared = Rc::new(PreparedNest {
        kernel,
        operands,
        result_view,
        symbols,
        numbers,
        updates,
        explain,
        checks,
        compiled: RefCell::new(SmallVec::from_elem(on_host, 1)),
    });
    if is_cached {
        CACHE.with_borrow_mut(|cache| {
            if cache.len() >= MAX_KEYS {
                cache.clear();
            }
            let variants = cache.entry(key).or_default();
            if variants.len() >= MAX_VARIANTS {
                variants.remove(0);
            }
            variants.push(prepared.clone());
        });
    }
    Ok(prepared)
}
