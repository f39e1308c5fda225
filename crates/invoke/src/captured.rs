//! Constants of graphs. A constant refers to the live storage of a captured tensor.

use maquette_ir::graph::{ConstSource, Digest};
use maquette_ir::{DType, Device};
use maquette_ops::{Element, Result, Tensor};
use sha2::{Digest as _, Sha256};

/// The contents of a constant: the captured tensor itself, not a copy. The graph sees writes of
/// other code to it, and other code sees the graph's.
#[derive(Clone, Debug)]
pub struct Captured(pub Tensor);

impl ConstSource for Captured {
    /// The first 8 bytes of the SHA-256 over dtype, sizes and current elements in row-major order.
    /// Zero if the elements cannot be read, because a digest cannot fail.
    fn digest(&self) -> Digest {
        let digest = || maquette_ops::internals::unobserved(|| self.sha256());
        maquette_ops::internals::without_modes(digest).unwrap_or(Digest([0; 8]))
    }
}

/// The bytes that are hashed at a time: a call of the hash costs more than an element.
const CHUNK: usize = 4096;

/// An element type with a digest that does not depend on the machine's byte order.
trait Bytes: Element {
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! bytes {
    ($($t:ty),*) => { $(impl Bytes for $t {
        fn append(self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(&self.to_le_bytes());
        }
    })* };
}
bytes!(u8, i8, i16, i32, i64, half::f16, half::bf16, f32, f64);

impl Bytes for bool {
    fn append(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
}

impl Captured {
    fn sha256(&self) -> Result<Digest> {
        let t = &self.0;
        let mut hash = Sha256::new();
        hash.update(t.dtype().name());
        for n in t.sizes_i64()? {
            hash.update(n.to_le_bytes());
        }
        match t.dtype() {
            DType::Bool => elements::<bool>(t, &mut hash),
            DType::U8 => elements::<u8>(t, &mut hash),
            DType::I8 => elements::<i8>(t, &mut hash),
            DType::I16 => elements::<i16>(t, &mut hash),
            DType::I32 => elements::<i32>(t, &mut hash),
            DType::I64 => elements::<i64>(t, &mut hash),
            DType::F16 => elements::<half::f16>(t, &mut hash),
            DType::BF16 => elements::<half::bf16>(t, &mut hash),
            DType::F32 => elements::<f32>(t, &mut hash),
            DType::F64 => elements::<f64>(t, &mut hash),
        }?;
        let mut first = [0; 8];
        first.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Ok(Digest(first))
    }
}

fn elements<T: Bytes>(t: &Tensor, hash: &mut Sha256) -> Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK);
    for x in t.to_device(Device::Cpu).read::<T>()?.iter() {
        x.append(&mut bytes);
        if bytes.len() + size_of::<T>() > CHUNK {
            hash.update(&bytes);
            bytes.clear();
        }
    }
    hash.update(&bytes);
    Ok(())
}
