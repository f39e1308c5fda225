//! One recorded call: its arguments as values, its outputs as tensors.

use super::file::Storages;
use super::gradient::RecordedGradient;
use maquette_check::values::{Bytes, call_single};
use maquette_ir::{DType, Device, Layout, MemoryFormat};
use maquette_ops::library::Op;
use maquette_ops::{Args, Tensor, Value, args, typed};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Arc;

/// One call.
pub(super) struct RecordedCall {
    /// Positional arguments.
    pub(super) args: Vec<Json>,
    /// The others.
    pub(super) kwargs: serde_json::Map<String, Json>,
    /// What it returned.
    pub(super) out: Json,
    /// The arguments afterwards, where it mutates.
    pub(super) after: Option<Vec<Json>>,
    /// The gradient, if the file records gradients. The call's tensors share no storage then.
    pub(super) gradient: Option<RecordedGradient>,
    storages: Arc<Storages>,
    /// Where the call is made.
    device: Device,
}

/// Storages that have become tensors: arguments of one key share one.
pub(super) type SharedStorages = HashMap<String, Tensor>;

impl RecordedCall {
    pub(super) fn new(doc: &Json, storages: &Arc<Storages>, device: Device) -> RecordedCall {
        RecordedCall {
            args: doc["args"].as_array().cloned().unwrap_or_default(),
            kwargs: doc["kwargs"].as_object().cloned().unwrap_or_default(),
            out: doc["out"].clone(),
            after: doc.get("args_after").and_then(Json::as_array).cloned(),
            gradient: RecordedGradient::new(doc),
            storages: storages.clone(),
            device,
        }
    }

    /// Where the call is made.
    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// The bytes of a storage.
    pub(super) fn bytes(&self, key: &str) -> Option<&(safetensors::Dtype, Vec<u8>)> {
        self.storages.get(key)
    }

    /// Fresh arguments in the schema's order, defaults filled in.
    pub(super) fn arguments(&self, op: Op) -> Result<Args, String> {
        let schema = op.schema().map_err(|e| e.to_string())?;
        let mut shared = SharedStorages::new();
        let mut out = Args::new();
        if let Some(unknown) =
            self.kwargs.keys().find(|k| schema.args.iter().all(|a| a.name != **k))
        {
            return Err(format!("the schema has no argument `{unknown}`"));
        }
        if self.args.len() > schema.args.len() {
            return Err(format!(
                "{} arguments were recorded, but the schema has {}",
                self.args.len(),
                schema.args.len()
            ));
        }
        for (i, decl) in schema.args.iter().enumerate() {
            let given = self.args.get(i).or_else(|| self.kwargs.get(&decl.name));
            out.push(match given {
                Some(j) => self
                    .value(j, &mut shared)
                    .map_err(|e| format!("argument `{}`: {e}", decl.name))?,
                // What is made without tensors is made on the device, too.
                None if decl.name == "device" && self.device != Device::Cpu => {
                    Value::from(self.device)
                }
                None => op.default_value(i).unwrap_or(Value::None),
            });
        }
        Ok(out)
    }

    /// A recorded value.
    pub(super) fn value(&self, j: &Json, shared: &mut SharedStorages) -> Result<Value, String> {
        Ok(match j {
            Json::Null => Value::None,
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(i), _) => Value::from(i),
                (None, Some(x)) if n.is_f64() => Value::from(x),
                _ => return Err(format!("the integer {n} overflows 64 bits")),
            },
            Json::String(s) => Value::from(s.as_str()),
            Json::Array(l) => {
                Value::from(l.iter().map(|x| self.value(x, shared)).collect::<Result<Vec<_>, _>>()?)
            }
            Json::Object(o) if o.contains_key("t") => Value::from(self.tensor(j, shared)?),
            Json::Object(o) => {
                let (kind, text) = o.iter().next().ok_or("an empty object")?;
                let text = text.as_str().ok_or_else(|| format!("`{kind}` must be text"))?;
                let bare = text.trim_start_matches("torch.");
                match kind.as_str() {
                    "float" => Value::from(text.parse::<f64>().map_err(|e| e.to_string())?),
                    "dtype" => Value::from(bare.parse::<DType>().map_err(|e| e.to_string())?),
                    "device" => match text.parse::<Device>().map_err(|e| e.to_string())? {
                        // The calls were recorded on the host.
                        Device::Cpu => Value::from(self.device),
                        other => Value::from(other),
                    },
                    "layout" => Value::from(bare.parse::<Layout>().map_err(|e| e.to_string())?),
                    "memory_format" => {
                        Value::from(bare.parse::<MemoryFormat>().map_err(|e| e.to_string())?)
                    }
                    other => return Err(format!("unknown kind `{other}` of a recorded value")),
                }
            }
        })
    }

    /// A tensor over its storage, which tensors of one key share.
    pub(super) fn tensor(&self, j: &Json, shared: &mut SharedStorages) -> Result<Tensor, String> {
        let key = j["t"].as_str().ok_or("a tensor's `t` must be text")?;
        let dtype =
            j["dtype"].as_str().unwrap_or_default().parse::<DType>().map_err(|e| e.to_string())?;
        let ints = |name: &str| {
            j[name]
                .as_array()
                .and_then(|l| l.iter().map(Json::as_i64).collect::<Option<Vec<i64>>>())
        };
        let (Some(sizes), Some(strides), Some(offset)) =
            (ints("size"), ints("stride"), j["offset"].as_i64())
        else {
            return Err(format!("tensor `{key}` has no integers `size`, `stride` and `offset`"));
        };
        let flat = match shared.get(key) {
            Some(t) => t.clone(),
            None => {
                let (_, bytes) =
                    self.bytes(key).ok_or_else(|| format!("unknown storage `{key}`"))?;
                let flat = typed!(dtype, T => {
                    let data: Vec<T> = bytes.chunks_exact(dtype.size()).map(T::decode).collect();
                    let n = data.len() as i64;
                    Tensor::from_vec(data, [n])
                });
                let flat = flat.to_device(self.device);
                if self.gradient.is_none() {
                    shared.insert(key.to_owned(), flat.clone());
                }
                flat
            }
        };
        call_single("aten::as_strided", args![&flat, sizes, strides, offset])
            .map_err(|e| e.kind().to_string())
    }
}
