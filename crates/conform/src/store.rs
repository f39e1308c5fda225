//! What was found, stored in the format of the recorded calls, so that it can be compared from
//! outside.

use super::file::{ConformError, File};
use super::recorded::RecordedCall;
use super::run::CallResult;
use maquette_check::values::{element_bytes, whole_storage};
use maquette_ir::DType;
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Tensor, Value};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The storages of a file being written.
#[derive(Default)]
struct StorageWriter {
    /// Dtype and bytes by key.
    bytes: BTreeMap<String, (Dtype, Vec<u8>)>,
    /// The tensors of the call at hand by key: those that share a storage share a key.
    tensors: Vec<(Tensor, String)>,
    next: usize,
}

impl File {
    /// Stores what [`check_file`](super::check_file) found as `NAME.json` and `NAME.safetensors` in
    /// a folder. A call that was refused has `null` as `out`, and its `error`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn store(&self, found: &[CallResult], folder: &Path) -> Result<(), ConformError> {
        let mut writer = StorageWriter::default();
        let calls: Vec<Json> =
            self.calls.iter().zip(found).map(|(c, r)| writer.call(c, r)).collect();
        let doc = json!({"op": self.dotted, "schema": self.schema, "calls": calls});
        let stem = self.dotted.strip_prefix("aten.").unwrap_or(&self.dotted);
        let views: Vec<(String, TensorView)> = writer
            .bytes
            .iter()
            .filter_map(|(k, (d, b))| {
                Some((k.clone(), TensorView::new(*d, vec![b.len() * 8 / d.bitsize()], b).ok()?))
            })
            .collect();
        let path = folder.join(format!("{stem}.safetensors"));
        let bytes = safetensors::serialize(views, None)
            .map_err(|e| ConformError::Format { path: path.clone(), message: e.to_string() })?;
        for (path, bytes) in
            [(path, bytes), (folder.join(format!("{stem}.json")), doc.to_string().into_bytes())]
        {
            std::fs::write(&path, bytes).map_err(|source| ConformError::Io {
                verb: "write",
                path,
                source,
            })?;
        }
        Ok(())
    }
}

impl StorageWriter {
    fn call(&mut self, recorded: &RecordedCall, found: &CallResult) -> Json {
        self.tensors.clear();
        recorded
            .args
            .iter()
            .chain(recorded.kwargs.values())
            .for_each(|j| self.keep_storages(recorded, j));
        let mut doc = json!({"args": recorded.args, "kwargs": recorded.kwargs});
        match found {
            Ok((out, args)) => {
                doc["out"] = match out.as_slice() {
                    [one] => self.value(one),
                    many => Json::Array(many.iter().map(|v| self.value(v)).collect()),
                };
                if let Some(after) = &recorded.after {
                    let pairs = after.iter().zip(args);
                    doc["args_after"] = pairs
                        .map(|(j, v)| if j.get("t").is_some() { self.value(v) } else { j.clone() })
                        .collect();
                }
            }
            Err(e) => doc["error"] = Json::String(e.clone()),
        }
        doc
    }

    /// Keeps the storages of recorded arguments.
    fn keep_storages(&mut self, recorded: &RecordedCall, j: &Json) {
        match j {
            Json::Array(l) => l.iter().for_each(|x| self.keep_storages(recorded, x)),
            other => {
                let key = other.get("t").and_then(Json::as_str);
                if let Some((key, bytes)) = key.and_then(|k| Some((k, recorded.bytes(k)?))) {
                    self.bytes.entry(key.to_owned()).or_insert_with(|| bytes.clone());
                }
            }
        }
    }

    fn value(&mut self, v: &Value) -> Json {
        match v {
            Value::Tensor(t) => self.tensor(t).unwrap_or_else(|e| json!({"error": e.to_string()})),
            Value::List(l) => l.iter().map(|x| self.value(x)).collect(),
            Value::Ints(l) => l.iter().map(|i| json!(i.as_i64())).collect(),
            Value::Int(i) => json!(i.as_i64()),
            Value::Float(x) if x.is_finite() => json!(x),
            Value::Float(x) => json!({"float": x.to_string().to_lowercase()}),
            Value::Bool(b) => json!(b),
            Value::Str(s) => json!(&**s),
            _ => Json::Null,
        }
    }

    fn tensor(&mut self, t: &Tensor) -> maquette_ops::Result<Json> {
        let key = match self
            .tensors
            .iter()
            .find(|(other, _)| other.shares_storage(t) && other.dtype() == t.dtype())
        {
            Some((_, key)) => key.clone(),
            None => {
                let key = format!("o{}", self.next);
                self.next += 1;
                let bytes = element_bytes(&whole_storage(t)?)?;
                self.bytes.insert(key.clone(), (stored_dtype(t.dtype()), bytes));
                self.tensors.push((t.clone(), key.clone()));
                key
            }
        };
        let meta =
            t.meta().concrete().ok_or_else(|| maquette_ops::Error::value("a symbolic result"))?;
        let (size, stride) = (meta.sizes.as_slice(), meta.strides.as_slice());
        let dtype = t.dtype().torch_name().trim_start_matches("torch.");
        Ok(json!({
            "t": key, "size": size, "stride": stride, "offset": meta.offset, "dtype": dtype,
        }))
    }
}

const fn stored_dtype(d: DType) -> Dtype {
    match d {
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
