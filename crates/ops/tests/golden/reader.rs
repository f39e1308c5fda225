//! Recorded calls: `NAME.json` beside `NAME.safetensors`.

use maquette_ir::schema::{Default, Schema, Type};
use maquette_ir::{DType, Device, Layout, MemoryFormat};
use maquette_ops::{Args, Element, Tensor, Value, args, call};
use safetensors::SafeTensors;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One operator's recorded calls.
pub struct File {
    /// `aten::add.Tensor`
    pub name: String,
    /// PyTorch's schema.
    pub schema: String,
    pub calls: Vec<Recorded>,
}

/// One call.
pub struct Recorded {
    args: Vec<Json>,
    kwargs: serde_json::Map<String, Json>,
    /// What it returned.
    pub out: Json,
    /// The arguments afterwards, where it mutates.
    pub after: Option<Vec<Json>>,
    storages: Arc<HashMap<String, Storage>>,
}

/// A flat tensor of the safetensors file.
pub struct Storage {
    bytes: Vec<u8>,
}

impl File {
    pub fn read(json: &Path) -> File {
        let text = std::fs::read_to_string(json).expect("the recorded call can be read");
        let doc: Json = serde_json::from_str(&text).expect("the recorded call is JSON");
        let bytes = std::fs::read(json.with_extension("safetensors")).unwrap_or_default();
        let storages: HashMap<String, Storage> = SafeTensors::deserialize(&bytes)
            .map(|s| s.tensors().into_iter().map(|(k, t)| (k, Storage { bytes: t.data().to_vec() })).collect())
            .unwrap_or_default();
        let storages = Arc::new(storages);
        let schema = doc["schema"].as_str().expect("a schema").to_owned();
        let calls = doc["calls"].as_array().expect("calls").iter();
        let calls = calls.map(|c| Recorded {
            args: c["args"].as_array().cloned().unwrap_or_default(),
            kwargs: c["kwargs"].as_object().cloned().unwrap_or_default(),
            out: c["out"].clone(),
            after: c.get("args_after").and_then(Json::as_array).cloned(),
            storages: storages.clone(),
        });
        File { name: schema.split('(').next().unwrap_or_default().to_owned(), schema: schema.clone(), calls: calls.collect() }
    }
}

/// A recorded tensor's metadata.
pub struct Layouts {
    pub dtype: DType,
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
    pub offset: i64,
}

impl Layouts {
    /// The metadata, if the value is a tensor.
    pub fn of(j: &Json) -> Option<Layouts> {
        j.get("t")?;
        let ints = |key: &str| j[key].as_array()?.iter().map(Json::as_i64).collect::<Option<Vec<i64>>>();
        Some(Layouts {
            dtype: j["dtype"].as_str()?.parse().ok()?,
            sizes: ints("size")?,
            strides: ints("stride")?,
            offset: j["offset"].as_i64()?,
        })
    }
}

/// Runs code for the Rust type of a dtype.
macro_rules! typed {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            maquette_ir::DType::Bool => {
                type $T = bool;
                $body
            }
            maquette_ir::DType::U8 => {
                type $T = u8;
                $body
            }
            maquette_ir::DType::I8 => {
                type $T = i8;
                $body
            }
            maquette_ir::DType::I16 => {
                type $T = i16;
                $body
            }
            maquette_ir::DType::I32 => {
                type $T = i32;
                $body
            }
            maquette_ir::DType::I64 => {
                type $T = i64;
                $body
            }
            maquette_ir::DType::F16 => {
                type $T = half::f16;
                $body
            }
            maquette_ir::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            maquette_ir::DType::F32 => {
                type $T = f32;
                $body
            }
            maquette_ir::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use typed;

/// Elements from little-endian bytes.
pub trait Decode: Element {
    fn decode(bytes: &[u8]) -> Self;
}

macro_rules! decode {
    ($($t:ty),*) => { $(impl Decode for $t {
        fn decode(bytes: &[u8]) -> Self {
            <$t>::from_le_bytes(bytes.try_into().expect("as many bytes as the element has"))
        }
    })* };
}
decode!(u8, i8, i16, i32, i64, half::f16, half::bf16, f32, f64);

impl Decode for bool {
    fn decode(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl Recorded {
    /// The storage of a recorded tensor.
    pub fn elements<T: Decode>(&self, tensor: &Json) -> Vec<T> {
        let key = tensor["t"].as_str().unwrap_or_default();
        let bytes = self.storages.get(key).map_or(&[][..], |s| &s.bytes);
        bytes.chunks_exact(T::DTYPE.size()).map(T::decode).collect()
    }

    /// The arguments in the schema's order, defaults filled in.
    pub fn arguments(&self, schema: &Schema) -> Result<Args, String> {
        let mut shared = HashMap::new();
        let mut out = Args::new();
        for (i, decl) in schema.args.iter().enumerate() {
            let given = self.args.get(i).or_else(|| self.kwargs.get(&decl.name));
            out.push(match (given, &decl.default) {
                (Some(j), _) => self.value(j, &mut shared)?,
                (None, Some(d)) => default(d, &decl.ty),
                (None, None) => Value::None,
            });
        }
        Ok(out)
    }

    fn value(&self, j: &Json, shared: &mut HashMap<String, Tensor>) -> Result<Value, String> {
        Ok(match j {
            Json::Null => Value::None,
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => Value::from(n.as_i64().ok_or("an integer beyond 64 bits")?),
            Json::String(s) => Value::from(s.as_str()),
            Json::Array(l) => Value::from(l.iter().map(|x| self.value(x, shared)).collect::<Result<Vec<_>, _>>()?),
            Json::Object(o) if o.contains_key("t") => Value::from(self.tensor(j, shared)?),
            Json::Object(o) => {
                let (kind, text) = o.iter().next().ok_or("an empty object")?;
                let text = text.as_str().ok_or("not text")?;
                let bare = text.trim_start_matches("torch.");
                match kind.as_str() {
                    "float" => Value::from(text.parse::<f64>().map_err(|e| e.to_string())?),
                    "dtype" => Value::from(text.parse::<DType>().map_err(|e| e.to_string())?),
                    "device" => Value::from(text.parse::<Device>().map_err(|e| e.to_string())?),
                    "layout" => Value::from(bare.parse::<Layout>().map_err(|e| e.to_string())?),
                    "memory_format" => Value::from(bare.parse::<MemoryFormat>().map_err(|e| e.to_string())?),
                    other => return Err(format!("a recorded value of the unknown kind `{other}`")),
                }
            }
        })
    }

    /// A tensor over its storage, which tensors of one key share.
    fn tensor(&self, j: &Json, shared: &mut HashMap<String, Tensor>) -> Result<Tensor, String> {
        let l = Layouts::of(j).ok_or("a tensor of unknown dtype")?;
        let key = j["t"].as_str().unwrap_or_default().to_owned();
        let flat = shared.entry(key).or_insert_with(|| {
            typed!(l.dtype, T => {
                let data = self.elements::<T>(j);
                let n = data.len() as i64;
                Tensor::from_vec(data, [n])
            })
        });
        let view = call("aten::as_strided", args![&*flat, l.sizes, l.strides, l.offset]).map_err(|e| e.to_string())?;
        view[0].tensor().cloned().map_err(|e| e.to_string())
    }
}

fn default(d: &Default, ty: &Type) -> Value {
    match (d, ty) {
        (d, Type::Optional(inner)) if !matches!(d, Default::None) => default(d, inner),
        (Default::None, _) => Value::None,
        (Default::Int(i), Type::Float) => Value::from(*i as f64),
        (Default::Int(i), _) => Value::from(*i),
        (Default::Float(x), _) => Value::from(*x),
        (Default::Bool(b), _) => Value::from(*b),
        (Default::Str(s), _) => Value::from(s.as_str()),
        (Default::List(l), Type::List(inner, _)) => Value::from(l.iter().map(|d| default(d, inner)).collect::<Vec<_>>()),
        (Default::List(l), _) => Value::from(l.iter().map(|d| default(d, &Type::Int)).collect::<Vec<_>>()),
        (Default::DType(d), _) => Value::from(*d),
        (Default::Device(d), _) => Value::from(*d),
        (Default::Layout(l), _) => Value::from(*l),
        (Default::MemoryFormat(m), _) => Value::from(*m),
    }
}
