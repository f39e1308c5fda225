//! Calls of builtin operators: those that PyTorch recorded, and calls made up from schemas.

use maquette_conform::{ConformError, File, operator_files};
use maquette_ir::graph::OpFacts;
use maquette_ir::schema::{Arg, Schema, Type};
use maquette_ir::{DType, Device, Layout, MemoryFormat};
use maquette_ops::library::Facts;
use maquette_ops::{Args, Op, Tensor, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The recorded calls, by operator.
#[derive(Default)]
pub struct Recorded(BTreeMap<String, File>);

impl Recorded {
    /// Those in a folder.
    ///
    /// # Errors
    /// The folder, or a file in it, cannot be read.
    pub fn read(folder: &Path) -> Result<Recorded, ConformError> {
        let named = |path: &PathBuf| File::read(path).map(|file| (file.name.clone(), file));
        Ok(Recorded(operator_files(folder, None)?.iter().map(named).collect::<Result<_, _>>()?))
    }

    /// Those of an operator, and of the operator whose result it writes in place.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &File> {
        [
            self.0.get(name),
            Facts.functional_variant(name).and_then(|functional| self.0.get(functional)),
        ]
        .into_iter()
        .flatten()
    }
}

/// Numbers from 0.125 up, each another.
pub fn ramp(sizes: &[i64], dtype: DType) -> Tensor {
    let count = sizes.iter().product::<i64>();
    Tensor::from_vec((0..count).map(|i| 0.125 + i as f32 / count as f32).collect(), sizes.to_vec())
        .to_dtype(dtype)
}

/// What a call is made up of.
#[derive(Clone, Copy)]
pub struct Recipe {
    /// Tensors have so many dimensions, of size 2.
    pub rank: usize,
    /// Of the tensors, and of every argument that is a dtype.
    pub dtype: DType,
    /// Every integer, how many elements a list of any length has, and which text is given.
    pub int: i64,
    /// What has a default is given.
    pub given: bool,
}

impl Recipe {
    /// Every recipe.
    pub fn all() -> impl Iterator<Item = Recipe> {
        let dtypes = [DType::F32, DType::I64, DType::Bool];
        let of = move |rank| {
            let each = move |dtype| {
                [0, 1, 2].into_iter().flat_map(move |int| {
                    [false, true].map(|given| Recipe { rank, dtype, int, given })
                })
            };
            dtypes.into_iter().flat_map(each)
        };
        (0..=5).flat_map(of)
    }

    /// The call; `None` where the operator takes what no recipe has.
    pub fn call(self, op: Op, schema: &Schema) -> Option<Args> {
        let arg = |(i, a): (usize, &Arg)| match op.default_value(i) {
            Some(default) if !self.given => Some(default),
            Some(Value::Bool(b)) => Some(Value::Bool(!b)),
            _ => self.value(&a.ty),
        };
        schema.args.iter().enumerate().map(arg).collect()
    }

    fn value(self, ty: &Type) -> Option<Value> {
        Some(match ty {
            Type::Tensor => Value::Tensor(ramp(&vec![2; self.rank], self.dtype)),
            Type::Int | Type::SymInt => self.int.into(),
            Type::Float => Value::Float(0.5),
            Type::Scalar if self.dtype == DType::F32 => Value::Float(0.5),
            Type::Scalar => 1.into(),
            Type::Bool => Value::Bool(true),
            Type::Str => Value::Str(["mean", "floor", "ij"][self.int as usize].into()),
            Type::ScalarType => Value::DType(self.dtype),
            Type::Layout => Value::Layout(Layout::Strided),
            Type::Device => Value::Device(Device::Cpu),
            Type::MemoryFormat => Value::MemoryFormat(MemoryFormat::Contiguous),
            Type::Optional(of) => self.value(of).unwrap_or(Value::None),
            Type::List(of, count) if matches!(**of, Type::Int | Type::SymInt) => {
                let count = count.map_or(self.rank, |n| n as usize);
                Value::Ints(vec![self.int.into(); count].into_boxed_slice())
            }
            Type::List(of, count) => {
                let elements = (0..count.unwrap_or(self.int.max(1) as u32)).map(|_| self.value(of));
                Value::List(elements.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}
