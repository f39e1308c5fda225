//! Tensors from files, and to files.

mod mapped;

use crate::{DType, Error, Loc, Result, Tensor};
use maquette_ops::{Element, ErrorKind};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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
        let loc = Loc::caller();
        Weights::of_bytes(bytes).map_err(|e| e.at(loc))
    }

    fn of_bytes(bytes: &[u8]) -> Result<Weights> {
        let mut weights = BTreeMap::new();
        for TensorEntry { name, dtype, sizes, range } in tensor_entries(bytes)? {
            let tensor = copy_tensor(dtype, bytes.get(range).unwrap_or_default(), sizes);
            weights.insert(name, tensor.ok()?.clone());
        }
        Ok(Weights(weights))
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    /// The file cannot be read; otherwise as [`Weights::from_safetensors`].
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
        let (path, loc) = (path.as_ref(), Loc::caller());
        let read = || {
            let bytes = std::fs::read(path).map_err(refusal)?;
            Weights::of_bytes(&bytes)
        };
        read().map_err(|e| of_file("read", path, &e).at(loc))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// There is none.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let loc = Loc::caller();
        self.0.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            refusal(format!("there is no tensor `{name}`; there are: {}", names.join(", "))).at(loc)
        })
    }

    /// The tensors in the [safetensors](https://github.com/huggingface/safetensors) format, in
    /// row-major order.
    ///
    /// # Errors
    /// A tensor has no data, or the name `__metadata__`.
    #[track_caller]
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let loc = Loc::caller();
        self.bytes().map_err(|e| e.at(loc))
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let mut parts = Vec::with_capacity(self.0.len());
        for (name, t) in &self.0 {
            if name == "__metadata__" {
                return Err(refusal(
                    "no tensor can have the name `__metadata__`: a safetensors file has other data \
                        under it",
                ));
            }
            let sizes: Vec<usize> = t.sizes_i64()?.into_iter().map(|n| n as usize).collect();
            parts.push((name, stored_dtype(t.dtype()), sizes, little_endian(t)?));
        }
        let views = parts.iter().map(|(name, dtype, sizes, bytes)| {
            let view = TensorView::new(*dtype, sizes.clone(), bytes).map_err(refusal)?;
            Ok((name.as_str(), view))
        });
        let views = views.collect::<Result<Vec<_>>>()?;
        safetensors::serialize(views, None).map_err(refusal)
    }

    /// Writes a safetensors file.
    ///
    /// An existing file is replaced at the end, as a whole: a failure leaves it as it was, and
    /// tensors of it that [`Weights::map`] gave keep their values. The new file has its
    /// permissions. The folder must be writable.
    ///
    /// ```no_run
    /// # use maquette::{io::Weights, prelude::*};
    /// let weights: Weights = [("bias".to_owned(), Tensor::zeros([4],
    /// DType::F32))].into_iter().collect(); weights.save("model.safetensors")?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor has no data, or the name `__metadata__`, or the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, loc) = (path.as_ref(), Loc::caller());
        let write = || replace_file(path, &self.bytes()?).map_err(refusal);
        write().map_err(|e| of_file("write", path, &e).at(loc))
    }

    /// Every tensor, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(n, t)| (n.as_str(), t))
    }
}

impl FromIterator<(String, Tensor)> for Weights {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Weights {
        Weights(tensors.into_iter().collect())
    }
}

/// Writes a file of this path, in place of one that may exist. That one changes in no byte, because
/// it may be mapped.
fn replace_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    // Whoever follows a link to the file finds the new one.
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        // A link to no file yet: there is nothing to keep.
        Err(_) if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
            return std::fs::write(path, contents);
        }
        Err(_) => path.to_owned(),
    };
    let existing = match std::fs::metadata(&target) {
        // A pipe or a device is written to, as there is nothing to replace; a folder is refused.
        Ok(found) if !found.is_file() => return std::fs::write(&target, contents),
        // The right to write to the folder is not the right to write to the file.
        Ok(found) => OpenOptions::new().write(true).open(&target).map(|_| Some(found))?,
        Err(_) => None,
    };
    let (mut file, temporary) = temporary_beside(&target)?;
    // Before the contents, which others may not be meant to read.
    let permitted = existing.map_or(Ok(()), |found| file.set_permissions(found.permissions()));
    let written = permitted
        .and_then(|()| file.write_all(contents))
        // Without this, a crash of the machine could leave the new name without the contents.
        .and_then(|()| file.sync_all());
    drop(file);
    let replaced = written.and_then(|()| std::fs::rename(&temporary, &target));
    if replaced.is_err() {
        // The error to report is the first one.
        let _not_removed = std::fs::remove_file(&temporary);
    }
    replaced
}

/// A new file in the folder of `target`, from which it can be renamed to it.
fn temporary_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".maquette-{}-{number}.tmp", std::process::id());
        let path = target.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // A process of another machine, or one that was killed, may have made it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, path)),
        }
    }
}

/// An error without a line: the caller's is added where it is known.
fn refusal(message: impl Display) -> Error {
    ErrorKind::Message(message.to_string()).into()
}

/// An error about a file, which names the file.
fn of_file(action: &str, path: &Path, e: &Error) -> Error {
    refusal(format!("cannot {action} {}: {}", path.display(), e.kind()))
}

/// Where a tensor is in a file, and what it is.
struct TensorEntry {
    name: String,
    dtype: DType,
    sizes: Vec<i64>,
    range: Range<usize>,
}

/// The parts of a safetensors file, which neither overlap nor leave it. Only the header is read.
fn tensor_entries(bytes: &[u8]) -> Result<Vec<TensorEntry>> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|e| refusal(format!("this is not a safetensors file: {e}")))?;
    let part = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| -> Result<TensorEntry> {
        let start = view.data().as_ptr().addr() - bytes.as_ptr().addr();
        let sizes = view.shape().iter().map(|&n| n as i64).collect();
        let dtype = dtype(view.dtype())
            .map_err(|e| refusal(format!("the tensor `{name}`: {}", e.kind())))?;
        Ok(TensorEntry {
            name: name.to_owned(),
            dtype,
            sizes,
            range: start..start + view.data().len(),
        })
    };
    file.iter().map(part).collect()
}

fn dtype(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => {
            let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            return Err(refusal(format!("the dtype {other:?} is not one of {}", known.join(", "))));
        }
    })
}

fn stored_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

/// The elements in row-major order, as little-endian bytes.
fn little_endian(t: &Tensor) -> Result<Vec<u8>> {
    fn bytes<T: Element, const N: usize>(t: &Tensor, f: fn(T) -> [u8; N]) -> Result<Vec<u8>> {
        Ok(t.to_vec::<T>()?.into_iter().flat_map(f).collect())
    }
    match t.dtype() {
        DType::Bool => bytes(t, |b: bool| [u8::from(b)]),
        DType::U8 => bytes(t, u8::to_le_bytes),
        DType::I8 => bytes(t, i8::to_le_bytes),
        DType::I16 => bytes(t, i16::to_le_bytes),
        DType::I32 => bytes(t, i32::to_le_bytes),
        DType::I64 => bytes(t, i64::to_le_bytes),
        DType::F16 => bytes(t, half::f16::to_le_bytes),
        DType::BF16 => bytes(t, half::bf16::to_le_bytes),
        DType::F32 => bytes(t, f32::to_le_bytes),
        DType::F64 => bytes(t, f64::to_le_bytes),
    }
}

/// A tensor of these little-endian bytes, in memory of its own.
#[track_caller]
fn copy_tensor(dtype: DType, bytes: &[u8], sizes: Vec<i64>) -> Tensor {
    #[track_caller]
    fn read<T: Element, const N: usize>(
        bytes: &[u8],
        sizes: Vec<i64>,
        f: fn([u8; N]) -> T,
    ) -> Tensor {
        let data = bytes.as_chunks::<N>().0.iter().map(|c| f(*c)).collect();
        Tensor::from_vec(data, sizes)
    }
    match dtype {
        DType::Bool => read(bytes, sizes, |[b]: [u8; 1]| b != 0),
        DType::U8 => read(bytes, sizes, u8::from_le_bytes),
        DType::I8 => read(bytes, sizes, i8::from_le_bytes),
        DType::I16 => read(bytes, sizes, i16::from_le_bytes),
        DType::I32 => read(bytes, sizes, i32::from_le_bytes),
        DType::I64 => read(bytes, sizes, i64::from_le_bytes),
        DType::F16 => read(bytes, sizes, half::f16::from_le_bytes),
        DType::BF16 => read(bytes, sizes, half::bf16::from_le_bytes),
        DType::F32 => read(bytes, sizes, f32::from_le_bytes),
        DType::F64 => read(bytes, sizes, f64::from_le_bytes),
    }
}
