//! Sample arguments: copies that preserve aliasing, and snapshots of the storages.

use crate::values::{Bytes, call_single, element_bytes, on_device_of, whole_storage};
use maquette_ir::schema::{Schema, Type};
use maquette_ir::view::StridedPositions;
use maquette_ir::{DType, Device};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, CallError, Concrete, Error, Op, Result, Tensor, Value, args, typed};

/// A tensor among the arguments. A tensor that is passed twice is one operand.
pub struct Operand {
    pub tensor: Tensor,
    /// Its name: `x`, or `xs[1]`.
    pub name: String,
    /// Another operand has the same storage with other metadata.
    pub shares: bool,
}

/// Whether both handles refer to the same elements.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.is_same(b)
        || a.shares_storage(b)
            && a.dtype() == b.dtype()
            && a.meta().concrete() == b.meta().concrete()
}

/// The tensors among the arguments, without duplicates, in order.
pub fn operands(schema: &Schema, args: &[Value]) -> Vec<Operand> {
    let mut out: Vec<Operand> = Vec::new();
    for (decl, v) in schema.args.iter().zip(args) {
        for (k, t) in v.tensors().enumerate() {
            if out.iter().any(|o| same(&o.tensor, t)) {
                continue;
            }
            let mut shares = false;
            for o in out.iter_mut().filter(|o| o.tensor.shares_storage(t)) {
                (o.shares, shares) = (true, true);
            }
            let name = if matches!(v, Value::List(_)) {
                format!("{}[{k}]", decl.name)
            } else {
                decl.name.clone()
            };
            out.push(Operand { tensor: t.clone(), name, shares });
        }
    }
    out
}

/// The arguments with `replacements` in place of the operands.
pub fn replace(operands: &[Operand], args: &[Value], replacements: &[Tensor]) -> Result<Args> {
    let mut at = |t: &Tensor| {
        let place = operands.iter().position(|o| same(&o.tensor, t));
        place
            .and_then(|i| replacements.get(i))
            .cloned()
            .ok_or_else(|| Error::value("a tensor is not among the operands"))
    };
    args.iter().map(|v| v.map_tensors(&mut at)).collect()
}

/// The arguments in the schema's order, with defaults filled in. Every tensor must be real, and
/// all of them together may have `max_elements`.
pub(super) fn complete(op: Op, schema: &Schema, given: Args, max_elements: usize) -> Result<Args> {
    let (mut args, declared) = (given, schema.args.len());
    if args.len() > declared {
        return Err(CallError::TooMany {
            expected: declared,
            found: args.len(),
            schema: schema.to_string(),
        }
        .into());
    }
    for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
        let missing = || CallError::Missing {
            arg: decl.name.clone(),
            index,
            expected: decl.ty.to_string(),
            schema: schema.to_string(),
        };
        args.push(op.default_value(index).ok_or_else(missing)?);
    }
    let found = element_count(&args);
    if found > max_elements {
        return Err(Error::value(format!(
            "the sample has {found} elements, storages included, and every call of opcheck copies \
                and compares them; pass a sample of at most {max_elements} elements, or raise \
                the limit with `OpcheckOptions::max_elements`"
        )));
    }
    for (decl, v) in schema.args.iter().zip(&args) {
        for t in v.tensors() {
            element_bytes(t).map_err(|e| {
                Error::value(format!("argument `{}` of the sample: {}", decl.name, e.kind()))
            })?;
        }
    }
    Ok(args)
}

/// How many elements a copy of the arguments touches: of the tensors, or of their storages, where
/// these are larger.
fn element_count(args: &[Value]) -> usize {
    let mut counted: Vec<&Tensor> = Vec::new();
    let mut total = 0usize;
    for t in args.iter().flat_map(Value::tensors) {
        let elements = t.numel().as_i64().and_then(|n| usize::try_from(n).ok());
        let shares = counted.iter().any(|u| u.shares_storage(t));
        let storage = t.storage().map_or(0, |s| s.len() / t.dtype().size());
        let own = elements.unwrap_or(0);
        total = total.saturating_add(if shares { own } else { own.max(storage) });
        counted.push(t);
    }
    total
}

/// Copies of the arguments, with whole storages: each on its device, or all on the given one.
/// Tensors share a storage exactly where the originals do.
pub(super) fn copy(schema: &Schema, args: &[Value], device: Option<Device>) -> Result<Args> {
    let operands = operands(schema, args);
    let mut storages: Vec<(&Tensor, Tensor)> = Vec::new();
    let mut copies = Vec::new();
    for Operand { tensor: t, .. } in &operands {
        let storage = match storages.iter().find(|(of, _)| of.shares_storage(t)) {
            Some((_, storage)) => storage.clone(),
            None => {
                // Allocate with the widest dtype that views the storage, so that the memory is
                // aligned for all.
                let sharing = operands.iter().map(|o| &o.tensor).filter(|o| o.shares_storage(t));
                let widest = sharing.max_by_key(|o| o.dtype().size()).unwrap_or(t);
                let flat = whole_storage(widest)?;
                let storage = typed!(widest.dtype(), T => Tensor::from(flat.to_vec::<T>()?));
                let storage = storage.to_device(device.unwrap_or(t.device()));
                storages.push((t, storage.clone()));
                storage
            }
        };
        let c = concrete(t)?;
        copies.push(view(&storage, t.dtype(), &c)?);
    }
    replace(&operands, args, &copies)
}

/// A view, with this layout, of a storage that is given as a flat tensor.
fn view(storage: &Tensor, dtype: DType, c: &Concrete) -> Result<Tensor> {
    let storage = if storage.dtype() == dtype {
        storage.clone()
    } else {
        call_single("aten::view.dtype", args![storage, dtype])?
    };
    call_single("aten::as_strided", args![&storage, c.sizes.to_vec(), c.strides.to_vec(), c.offset])
}

pub fn concrete(t: &Tensor) -> Result<Concrete> {
    t.meta()
        .concrete()
        .ok_or_else(|| Error::value(format!("a sample must have static sizes, found {}", t.meta())))
}

/// A tensor to be created from another one: the layout, the new elements, and the rest of the
/// storage.
pub struct Relayout<'a> {
    pub layout: &'a Concrete,
    /// Which elements are kept, by position in row-major order; the others consist of the byte
    /// `other`.
    pub keep: &'a dyn Fn(usize) -> bool,
    pub other: u8,
    /// The number of extra elements after the last one, filled with [`Relayout::filler`].
    pub beyond: usize,
    /// The byte that fills the storage outside of the elements.
    pub filler: u8,
}

impl Relayout<'_> {
    /// Creates the tensor in a storage of its own, on the device of `t`. If its sizes have grown,
    /// elements repeat.
    pub fn of(&self, t: &Tensor) -> Result<Tensor> {
        typed!(t.dtype(), T => self.typed::<T>(t))
    }

    fn typed<T: Bytes>(&self, t: &Tensor) -> Result<Tensor> {
        let (from, to) = (concrete(t)?, self.layout);
        let elements = t.to_vec::<T>()?;
        let end = to.span().map_or(0, |(_, end)| end / to.width.max(1));
        let of_byte = |byte: u8| T::decode(&vec![byte; t.dtype().size()]);
        let mut storage =
            vec![of_byte(self.filler); usize::try_from(end).unwrap_or(0) + self.beyond];
        for (place, index) in indices(&to.sizes).enumerate() {
            let (mut source, mut target) = (0i64, to.offset);
            for ((&i, &n), &stride) in index.iter().zip(&from.sizes).zip(&to.strides) {
                source = source * n + i % n.max(1);
                target += i * stride;
            }
            let element = usize::try_from(source)
                .ok()
                .and_then(|s| elements.get(s))
                .copied()
                .unwrap_or_default();
            if let Some(to) = usize::try_from(target).ok().and_then(|t| storage.get_mut(t)) {
                *to = if (self.keep)(place) { element } else { of_byte(self.other) };
            }
        }
        let count = storage.len() as i64;
        view(&on_device_of(t, storage, &[count]), t.dtype(), to)
    }
}

/// Every index into these sizes, in row-major order.
pub(super) fn indices(sizes: &[i64]) -> impl Iterator<Item = Vec<i64>> + '_ {
    let total: i64 = sizes.iter().product();
    (0..total).map(move |mut place| {
        let mut index = vec![0; sizes.len()];
        for (i, &n) in index.iter_mut().zip(sizes).rev() {
            *i = place % n.max(1);
            place /= n.max(1);
        }
        index
    })
}

/// The position in bytes of each element of a layout.
pub(super) fn element_starts(c: &Concrete) -> impl Iterator<Item = usize> + '_ {
    StridedPositions::new(c.offset, &c.sizes, &c.strides)
        .map(|at| usize::try_from(at * c.width).unwrap_or(0))
}

/// The bytes of a storage, identified by the first operand that has it.
pub(super) struct StorageSnapshot {
    pub(super) of: Tensor,
    pub(super) bytes: Vec<u8>,
    pub(super) version: u64,
}

/// The current contents of the arguments' storages.
pub(super) fn snapshot_storages(args: &[Value]) -> Result<Vec<StorageSnapshot>> {
    let mut out: Vec<StorageSnapshot> = Vec::new();
    for t in args.iter().flat_map(Value::tensors) {
        if !out.iter().any(|m| m.of.shares_storage(t)) {
            out.push(StorageSnapshot {
                of: t.clone(),
                bytes: element_bytes(&whole_storage(t)?)?,
                version: t.version(),
            });
        }
    }
    Ok(out)
}

/// The arguments as text: `x: f32[3], n: 2`.
pub(super) fn describe(schema: &Schema, args: &[Value]) -> String {
    fn value(v: &Value) -> String {
        match v {
            Value::Tensor(t) => t.meta().to_string(),
            Value::List(l) => format!("[{}]", l.iter().map(value).collect::<Vec<_>>().join(", ")),
            other => crate::values::show(other),
        }
    }
    schema
        .args
        .iter()
        .zip(args)
        .map(|(a, v)| format!("{}: {}", a.name, value(v)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The first return that a graph cannot represent: a number that is neither an integer nor in a
/// tensor.
pub fn untraceable(schema: &Schema) -> Option<(usize, &Type)> {
    fn holds(ty: &Type) -> bool {
        match ty {
            Type::Tensor | Type::SymInt | Type::Int => true,
            Type::List(t, _) | Type::Optional(t) => holds(t),
            _ => false,
        }
    }
    schema.returns.iter().map(|r| &r.ty).enumerate().find(|(_, ty)| !holds(ty))
}
