//! What a launch has to do: its arithmetic and its traffic.

use super::{BoundKernel, PlacedOperand, PreparedCall};
use maquette_device::Computation;
use maquette_ir::DType;
use maquette_ir::loops::OperandId;
use maquette_ir::sym::SymbolId;

/// The operations and the bytes that a kernel takes at least. The rules of counting are those of
/// [`maquette_ir::loops::work`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The floating-point operations.
    pub flops: u64,
    /// Whether they are on `f64`.
    pub is_double: bool,
    /// The bytes of the operands, each counted once.
    pub bytes_read: u64,
    /// The bytes of the results.
    pub bytes_written: u64,
}

impl Work {
    /// The bytes that move between the kernel and memory.
    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }

    /// This work and another.
    #[must_use]
    pub fn with(&self, other: &Work) -> Work {
        Work {
            flops: self.flops.saturating_add(other.flops),
            is_double: self.is_double || other.is_double,
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}

impl PlacedOperand {
    /// Its elements, of which no two are in one place by a stride of 0.
    fn distinct_elements(&self) -> u64 {
        let dims = self.layout.sizes.iter().zip(&self.layout.strides);
        let sizes = dims.filter(|(size, stride)| **size == 0 || **stride != 0);
        sizes.fold(1u64, |n, (size, _)| n.saturating_mul((*size).max(0) as u64))
    }

    fn bytes_of(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.layout.dtype.size() as u64)
    }
}

impl BoundKernel {
    fn symbol(&self, symbol: SymbolId) -> Option<i64> {
        self.symbols.get(symbol.index()).copied().flatten()
    }

    /// The floating-point operations of a launch that writes so many elements.
    fn flops(&self, written: u64) -> u64 {
        match &self.computation {
            Computation::Zeros | Computation::Copy => 0,
            Computation::Elements(expr) => expr.flops().saturating_mul(written),
            Computation::Nest(nest) | Computation::Fused { nest, .. } => {
                nest.flops(&|symbol| self.symbol(symbol)).unwrap_or_default()
            }
        }
    }

    /// The elements of operand `k` that a launch reads, at most `all`.
    fn elements_read(&self, k: usize, all: u64) -> u64 {
        match &self.computation {
            Computation::Zeros => 0,
            Computation::Copy | Computation::Elements(_) => all,
            Computation::Nest(nest) | Computation::Fused { nest, .. } => {
                let (value, operand) = (|symbol| self.symbol(symbol), OperandId(k as u32));
                nest.elements_read(operand, &value).map_or(all, |read| read.min(all))
            }
        }
    }
}

impl PreparedCall {
    /// What a launch has to do.
    pub fn work(&self) -> Work {
        let mut work = Work::default();
        for (k, operand) in self.operands.iter().enumerate() {
            let all = operand.distinct_elements();
            let read = self.kernel.as_ref().map_or(0, |kernel| kernel.elements_read(k, all));
            work.bytes_read = work.bytes_read.saturating_add(operand.bytes_of(read));
        }
        let mut written = 0u64;
        for result in &self.results {
            let elements = result.distinct_elements();
            written = written.max(elements);
            work.bytes_written = work.bytes_written.saturating_add(result.bytes_of(elements));
        }
        work.flops = self.kernel.as_ref().map_or(0, |kernel| kernel.flops(written));
        let mut dtypes = self.operands.iter().chain(&self.results).map(|o| o.layout.dtype);
        work.is_double = dtypes.any(|dtype| dtype == DType::F64);
        work
    }
}
