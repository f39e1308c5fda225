//! Files of recorded calls: `NAME.json` beside `NAME.safetensors`.

use super::recorded::{RecordedCall, SharedStorages};
use super::report::Stage;
use super::train::Recording;
use maquette_ir::Device;
use maquette_ops::{Args, Op, Value};
use safetensors::SafeTensors;
use serde_json::Value as Json;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// A folder or file of recorded calls that cannot be used.
#[derive(Debug, Error)]
pub enum ConformError {
    /// Reading or writing failed.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// What it was.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {message}", path.display())]
    Format {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A folder holds no recorded calls, or none of the operators asked for.
    #[error("there are no recorded calls{} in \
        {}", if *.restricted { " of these operators" } else { "" }, folder.display())]
    Nothing {
        /// Which folder.
        folder: PathBuf,
        /// Whether only some operators were asked for.
        restricted: bool,
    },
}

/// The summary in a folder of recorded calls, which is not an operator's file.
const STATUS: &str = "STATUS.json";

/// One operator's recorded calls.
pub struct File {
    /// The name in PyTorch's dotted form, overload included: `aten.add.Tensor`,
    /// `aten.relu.default`.
    pub dotted: String,
    /// The name as here: `aten::add.Tensor`, `aten::relu`.
    pub name: String,
    /// PyTorch's schema.
    pub schema: String,
    pub(super) calls: Vec<RecordedCall>,
}

fn read(path: &Path) -> Result<Vec<u8>, ConformError> {
    std::fs::read(path).map_err(|source| ConformError::Io {
        verb: "read",
        path: path.to_owned(),
        source,
    })
}

fn read_json(path: &Path) -> Result<Json, ConformError> {
    serde_json::from_slice(&read(path)?).map_err(|e| ConformError::Format {
        path: path.to_owned(),
        message: format!("is not JSON: {e}"),
    })
}

/// What a file records.
pub enum RecordedFile {
    /// Calls of an operator.
    Calls(File),
    /// The training of a network.
    Training(Box<Recording>),
}

impl RecordedFile {
    /// Reads `NAME.json`, and `NAME.safetensors` beside it.
    ///
    /// # Errors
    /// A file cannot be read, or is of neither format.
    pub fn read(json: &Path) -> Result<RecordedFile, ConformError> {
        RecordedFile::read_for(json, Device::Cpu)
    }

    /// As [`RecordedFile::read`], for calls that are made on a device.
    ///
    /// # Errors
    /// As [`RecordedFile::read`].
    pub fn read_for(json: &Path, device: Device) -> Result<RecordedFile, ConformError> {
        let doc = read_json(json)?;
        Ok(match doc.get("net") {
            Some(_) => RecordedFile::Training(Box::new(Recording::new(json, &doc)?)),
            None => RecordedFile::Calls(File::new(json, &doc, device)?),
        })
    }
}

/// The storages by key: dtype and elements' bytes.
pub(super) type Storages = HashMap<String, (safetensors::Dtype, Vec<u8>)>;

/// The tensors of a safetensors file, and their sizes.
pub(super) fn storages_of(
    path: &Path,
) -> Result<(Storages, HashMap<String, Vec<i64>>), ConformError> {
    let bytes = read(path)?;
    let found = SafeTensors::deserialize(&bytes).map_err(|e| ConformError::Format {
        path: path.to_owned(),
        message: format!("is not a safetensors file: {e}"),
    })?;
    let (mut storages, mut sizes) = (Storages::new(), HashMap::new());
    for (name, t) in found.tensors() {
        sizes.insert(name.clone(), t.shape().iter().map(|&n| n as i64).collect());
        storages.insert(name, (t.dtype(), t.data().to_vec()));
    }
    Ok((storages, sizes))
}

impl File {
    /// Reads `NAME.json` and, where it exists, `NAME.safetensors` beside it.
    ///
    /// # Errors
    /// A file cannot be read, or is not of the format.
    pub fn read(json: &Path) -> Result<File, ConformError> {
        File::new(json, &read_json(json)?, Device::Cpu)
    }

    pub(super) fn new(json: &Path, doc: &Json, device: Device) -> Result<File, ConformError> {
        let format = |message: String| ConformError::Format { path: json.to_owned(), message };
        let tensors = json.with_extension("safetensors");
        let storages = if tensors.exists() { storages_of(&tensors)?.0 } else { Storages::new() };
        let text = |key: &str| {
            doc[key]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format(format!("has no string `{key}`")))
        };
        let (dotted, schema) = (text("op")?, text("schema")?);
        let calls = doc["calls"].as_array().ok_or_else(|| format("has no list `calls`".into()))?;
        let storages = Arc::new(storages);
        Ok(File {
            name: schema.split('(').next().unwrap_or_default().to_owned(),
            calls: calls.iter().map(|c| RecordedCall::new(c, &storages, device)).collect(),
            dotted,
            schema,
        })
    }

    /// The stages that a table of results has columns for.
    pub fn stages(&self) -> &'static [Stage] {
        let of_gradients = self.calls.iter().any(|c| c.gradient.is_some());
        if of_gradients { Stage::OF_GRADIENTS } else { Stage::OF_CALLS }
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// The arguments of each call, as an operator takes them; those that cannot be read are left
    /// out.
    pub fn samples(&self, op: Op) -> impl Iterator<Item = Args> + '_ {
        self.calls.iter().filter_map(move |c| c.arguments(op).ok())
    }

    /// The arguments and the outputs of each call; those that cannot be read are left out.
    pub fn results(&self, op: Op) -> impl Iterator<Item = (Args, Value)> + '_ {
        self.calls.iter().filter_map(move |c| {
            let out = c.value(&c.out, &mut SharedStorages::new()).ok()?;
            Some((c.arguments(op).ok()?, out))
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// Operator names from text: separated by white space, with or without namespace, `.default`
/// optional.
pub fn parse_names(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(canonical).collect()
}

/// `add.Tensor`, `relu.default`, whatever the spelling.
fn canonical(name: &str) -> String {
    let bare = name.strip_prefix("aten::").or_else(|| name.strip_prefix("aten.")).unwrap_or(name);
    if bare.contains('.') { bare.to_owned() } else { format!("{bare}.default") }
}

/// The files in a folder, in the order of their names; only those of the operators named, if any
/// are.
///
/// # Errors
/// The folder cannot be read, or nothing in it was asked for.
pub fn operator_files(
    folder: &Path,
    only: Option<&BTreeSet<String>>,
) -> Result<Vec<PathBuf>, ConformError> {
    let entries = std::fs::read_dir(folder).map_err(|source| ConformError::Io {
        verb: "read",
        path: folder.to_owned(),
        source,
    })?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .filter(|p| p.file_name().is_some_and(|n| n != STATUS))
        .filter(|p| {
            only.is_none_or(|names| {
                p.file_stem()
                    .and_then(|s| s.to_str())
                    .is_some_and(|s| names.contains(&canonical(s)))
            })
        })
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(ConformError::Nothing {
            folder: folder.to_owned(),
            restricted: only.is_some(),
        });
    }
    Ok(files)
}
