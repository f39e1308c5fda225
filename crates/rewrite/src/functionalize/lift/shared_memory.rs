//! Inputs that share memory. The shared memory becomes one more input of the functional graph: a
//! flat tensor from the first to the last element of any of these inputs. The inputs become views
//! of it.

use super::Lift;
use super::memory_ssa::{Handle, Storage, StorageOrigin};
use super::requirements::InputGroup;
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{Kind, Node};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::SharedMemory;
use maquette_ir::graph::{TypeId, ValueId, ValueType};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// Stands for an operator's name in errors about the view of shared memory that an input is.
const INPUT: &str = "an input";

impl Lift<'_> {
    /// Creates the storage of a group of inputs that share memory, and binds the inputs to views of
    /// it.
    ///
    /// # Errors
    /// The inputs differ in dtype, or their layouts are symbolic.
    pub(crate) fn bind_shared(
        &mut self,
        InputGroup { inputs: group, start, end }: &InputGroup,
    ) -> Result<()> {
        let inputs: SmallVec<[(ValueId, TypeId); 4]> = group
            .iter()
            .filter_map(|&i| self.graph.inputs().get(i))
            .filter_map(|&v| {
                if let ValueType::Tensor(ty) = self.graph.value_type(v) {
                    Some((v, ty))
                } else {
                    None
                }
            })
            .collect();
        let Some(&(first_value, first)) = inputs.first() else { return Ok(()) };
        let (mut start, mut end) = (*start, *end);
        for &(v, ty) in &inputs {
            let t = self.graph.type_of(ty);
            let number = |e: &Expr| {
                if let Expr::Int(n) = e { Ok(*n) } else { Err(Reason::SymbolicAliasing) }
            };
            let sizes = t
                .sizes
                .iter()
                .map(number)
                .collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            let strides = t
                .strides
                .iter()
                .map(number)
                .collect::<std::result::Result<SmallVec<[i64; 4]>, Reason>>()?;
            let dtype = self.graph.type_of(first).dtype;
            if t.dtype != dtype {
                return Err(Reason::SharedDtypes {
                    first: self.graph.value_name(first_value).to_string(),
                    from: dtype.to_string(),
                    second: self.graph.value_name(v).to_string(),
                    to: t.dtype.to_string(),
                }
                .into());
            }
            let offset = number(&t.offset)?;
            let last: i64 =
                sizes.iter().zip(&strides).map(|(n, s)| (n - 1).saturating_mul(*s)).sum();
            if !sizes.contains(&0) {
                (start, end) =
                    (start.min(offset), end.max(offset.saturating_add(last).saturating_add(1)));
            }
        }
        let start = start.min(end);
        let row: SmallVec<[Expr; 4]> = smallvec::smallvec![Expr::Int(end - start)];
        let meta = self.meta(first);
        let interner = &mut self.memory.interner;
        let base = interner.resized(meta, row.clone());
        let region =
            ViewSpec::strided(Expr::Int(start), &row, &[Expr::Int(1)], &mut interner.symbols)?;
        let region = interner.spec(region);
        let number = self.memory.shared.len() as u32;
        let input = self.graph.inputs().len() as u32 + number;
        let version = self.memory.add(Node::Input(input), Kind::Tensor(base));
        let first = if let Expr::Int(o) = self.graph.type_of(first).offset { o } else { 0 };
        self.memory.shared.push(SharedMemory {
            inputs: group.clone(),
            start,
            from_first: if fault_injected(Fault::ShareCountedFromStorage) {
                start
            } else {
                start - first
            },
            len: end - start,
        });
        self.memory.storages.push(Storage {
            origin: StorageOrigin::Shared(number),
            made: None,
            version,
            pending_views: [None; 2],
            region,
            base,
            written: None,
        });
        let storage = self.memory.storages.len() - 1;
        for (v, ty) in inputs {
            let whole = Handle { storage, spec: region, meta, ty };
            self.view(v, whole, INPUT, false)?;
        }
        Ok(())
    }
}
