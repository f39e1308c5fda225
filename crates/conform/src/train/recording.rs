//! The files of a recording, and the comparison with what they hold.

use super::super::file::{ConformError, Storages, storages_of};
use super::drawn;
use maquette_check::values::Bytes;
use maquette_ir::DType;
use maquette_ops::{Error, Result, Tensor, typed};
use serde_json::Value as Json;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Recorded steps of training a network.
pub struct Recording {
    /// The name of the file.
    pub name: String,
    /// How many steps were recorded.
    pub steps: usize,
    /// The network.
    pub(super) net: String,
    pub(super) config: Json,
    pub(super) optimizer: Json,
    pub(super) clip: Option<f64>,
    /// The names of the parameters and of the buffers, in order.
    pub(super) params: Vec<String>,
    pub(super) buffers: Vec<String>,
    dtype: DType,
    drawn: HashMap<String, Json>,
    /// Of results, each element whose position is a multiple of this number is stored.
    probe: Option<usize>,
    stored: Storages,
    sizes: HashMap<String, Vec<i64>>,
}

/// The kinds of tensors that a step leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Loss,
    Gradient,
    Parameter,
    Buffer,
    State,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Loss => "loss",
            Kind::Gradient => "gradients",
            Kind::Parameter => "parameters",
            Kind::Buffer => "buffers",
            Kind::State => "state",
        }
    }
}

/// How far a tensor is from the recorded one.
pub(super) struct Difference {
    /// The largest difference of an element, as a part of the largest recorded element.
    pub(super) relative: f64,
    /// How large it may be.
    pub(super) tolerance: f64,
}

impl Recording {
    /// The recording that `NAME.json` describes, with `NAME.safetensors` beside it.
    ///
    /// # Errors
    /// The second file cannot be read, or a file is not of the format.
    pub(in super::super) fn new(
        json: &Path,
        doc: &Json,
    ) -> std::result::Result<Recording, ConformError> {
        let format = |message: String| ConformError::Format { path: json.to_owned(), message };
        let net = doc["net"].as_str().ok_or_else(|| format("has no string `net`".into()))?;
        let dtype = doc["dtype"].as_str().and_then(|d| d.parse::<DType>().ok());
        let dtype = dtype.ok_or_else(|| format("has no `dtype`".to_owned()))?;
        let steps = doc["steps"].as_u64().ok_or_else(|| format("has no number `steps`".into()))?;
        let (stored, sizes) = storages_of(&json.with_extension("safetensors"))?;
        let drawn: HashMap<String, Json> = match doc["drawn"].as_object() {
            Some(drawn) => drawn.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            None => HashMap::new(),
        };
        let names = |prefix: &str| -> Vec<String> {
            let all = stored.keys().chain(drawn.keys());
            let named: BTreeSet<&str> = all.filter_map(|k| k.strip_prefix(prefix)).collect();
            named.into_iter().map(str::to_owned).collect()
        };
        Ok(Recording {
            name: json.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
            steps: steps as usize,
            net: net.to_owned(),
            config: doc["config"].clone(),
            optimizer: doc["optimizer"].clone(),
            clip: doc["clip"].as_f64(),
            params: names("param."),
            buffers: names("buffer."),
            dtype,
            probe: doc["probe"].as_u64().map(|n| n.max(1) as usize),
            drawn,
            stored,
            sizes,
        })
    }

    /// A number of the network's configuration.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn number(&self, name: &str) -> Result<i64> {
        let missing = || Error::value(format!("`config` has no number `{name}`"));
        self.config[name].as_i64().ok_or_else(missing)
    }

    /// A tensor of the recording, in memory of its own.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        if let Some(doc) = self.drawn.get(name) {
            return drawn::tensor(doc, self.dtype);
        }
        let missing = || Error::value(format!("the recording has no tensor `{name}`"));
        let (dtype, bytes) = self.stored.get(name).ok_or_else(missing)?;
        let dtype = dtype_of(*dtype)?;
        let sizes = self.sizes.get(name).ok_or_else(missing)?.clone();
        typed!(dtype, T => {
            let data: Vec<T> = bytes.chunks_exact(dtype.size()).map(T::decode).collect();
            Tensor::from_vec(data, sizes).ok().cloned()
        })
    }

    /// How far a tensor is from the recorded one of this name.
    ///
    /// # Errors
    /// There is none, or it has another dtype or other sizes.
    pub(super) fn difference(&self, name: &str, found: &Tensor) -> Result<Difference> {
        let tolerance = if self.dtype == DType::F64 { 1e-9 } else { 1e-5 };
        let expected = self.tensor(name)?;
        if found.dtype() != expected.dtype() {
            let (e, f) = (expected.dtype(), found.dtype());
            return Err(Error::value(format!("`{name}` is of dtype {f}; expected {e}")));
        }
        let relative = match self.probe.filter(|_| found.dim() > 0) {
            None if found.sizes_i64()? != expected.sizes_i64()? => {
                let (e, f) = (expected.meta(), found.meta());
                return Err(Error::value(format!("`{name}` is {f}; expected {e}")));
            }
            None => relative(&floats(&expected)?, &floats(found)?),
            Some(probe) => {
                let all = floats(found)?;
                let probed: Vec<f64> = all.iter().step_by(probe).copied().collect();
                let recorded = |kind: &str| self.tensor(&format!("{kind}.{name}"))?.item::<f64>();
                // A sum may cancel, so its difference is a part of what was added.
                let added: f64 = all.iter().map(|x| x.abs()).sum();
                let sum = part((all.iter().sum::<f64>() - recorded("sum")?).abs(), added);
                let squares: f64 = all.iter().map(|x| x * x).sum();
                let squares = part((squares - recorded("sumsq")?).abs(), squares);
                relative(&floats(&expected)?, &probed).max(sum).max(squares)
            }
        };
        Ok(Difference { relative, tolerance })
    }
}

/// The largest difference, as a part of the largest expected element. Infinite if the numbers of
/// elements differ, or a difference is not a number.
fn relative(expected: &[f64], found: &[f64]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(0.0f64, |m, e| m.max(e.abs()));
    let differences = expected.iter().zip(found).map(|(e, f)| part((e - f).abs(), largest));
    differences.fold(0.0, f64::max)
}

/// The part that a difference is of a size.
fn part(difference: f64, size: f64) -> f64 {
    let part = if difference == 0.0 { 0.0 } else { difference / size.max(f64::MIN_POSITIVE) };
    if part.is_nan() { f64::INFINITY } else { part }
}

fn floats(t: &Tensor) -> Result<Vec<f64>> {
    t.to_dtype(DType::F64).to_vec::<f64>()
}

fn dtype_of(dtype: safetensors::Dtype) -> Result<DType> {
    match dtype {
        safetensors::Dtype::F64 => Ok(DType::F64),
        safetensors::Dtype::F32 => Ok(DType::F32),
        safetensors::Dtype::I64 => Ok(DType::I64),
        other => Err(Error::value(format!("recordings of training have no tensors of {other:?}"))),
    }
}
