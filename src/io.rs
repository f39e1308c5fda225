//! Tensors from files.

use crate::{DType, Error, Result, Tensor};
use maquette_ops::Element;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

/// Named tensors, as a checkpoint holds them.
#[derive(Clone, Debug, Default)]
pub struct Weights(BTreeMap<String, Tensor>);

impl Weights {
    /// Reads the [safetensors](https://github.com/huggingface/safetensors) format.
    ///
    /// # Errors
    /// The bytes are not in that format, or a tensor has a dtype that does not exist here.
    #[track_caller]
    pub fn from_safetensors(bytes: &[u8]) -> Result<Weights> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| Error::msg(format!("this is not a safetensors file: {e}")))?;
        let mut weights = BTreeMap::new();
        for (name, view) in file.iter() {
            let sizes: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
            let tensor = tensor(view.dtype(), view.data(), sizes).and_then(|t| t.ok().cloned());
            let tensor = tensor.map_err(|e| Error::msg(format!("the tensor `{name}`: {}", e.kind())))?;
            weights.insert(name.to_owned(), tensor);
        }
        Ok(Weights(weights))
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    /// The file cannot be read; otherwise as [`Weights::from_safetensors`].
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| Error::msg(format!("cannot read {}: {e}", path.display())))?;
        Weights::from_safetensors(&bytes)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// There is none.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Tensor> {
        self.0.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            Error::msg(format!("there is no tensor `{name}`; there are: {}", names.join(", ")))
        })
    }

    /// Every tensor, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(n, t)| (n.as_str(), t))
    }
}

fn tensor(dtype: Dtype, bytes: &[u8], sizes: Vec<i64>) -> Result<Tensor> {
    fn read<T: Element, const N: usize>(bytes: &[u8], sizes: Vec<i64>, f: fn([u8; N]) -> T) -> Tensor {
        let data = bytes.as_chunks::<N>().0.iter().map(|c| f(*c)).collect();
        Tensor::from_vec(data, sizes)
    }
    Ok(match dtype {
        Dtype::BOOL => read(bytes, sizes, |[b]: [u8; 1]| b != 0),
        Dtype::U8 => read(bytes, sizes, u8::from_le_bytes),
        Dtype::I8 => read(bytes, sizes, i8::from_le_bytes),
        Dtype::I16 => read(bytes, sizes, i16::from_le_bytes),
        Dtype::I32 => read(bytes, sizes, i32::from_le_bytes),
        Dtype::I64 => read(bytes, sizes, i64::from_le_bytes),
        Dtype::F16 => read(bytes, sizes, half::f16::from_le_bytes),
        Dtype::BF16 => read(bytes, sizes, half::bf16::from_le_bytes),
        Dtype::F32 => read(bytes, sizes, f32::from_le_bytes),
        Dtype::F64 => read(bytes, sizes, f64::from_le_bytes),
        other => {
            let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            return Err(Error::msg(format!("the dtype {other:?} is not one of {}", known.join(", "))));
        }
    })
}
