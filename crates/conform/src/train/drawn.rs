//! Tensors that a recording does not store: counter-based random numbers (SplitMix64).

use maquette_ir::DType;
use maquette_ops::{Error, Result, Tensor};
use serde_json::Value as Json;

/// Element `i` of a stream.
fn element(stream: u64, i: u64) -> u64 {
    let z = (stream.wrapping_mul(1 << 32).wrapping_add(i + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The tensor that a description gives: integers below a bound, or floats in a range.
///
/// # Errors
/// The description is not one.
pub(super) fn tensor(doc: &Json, dtype: DType) -> Result<Tensor> {
    let wrong = || Error::value(format!("{doc} does not tell how a tensor is drawn"));
    let sizes = doc["size"].as_array().ok_or_else(wrong)?;
    let sizes: Vec<i64> =
        sizes.iter().map(Json::as_i64).collect::<Option<_>>().ok_or_else(wrong)?;
    let count: i64 = sizes.iter().product();
    let count = u64::try_from(count).map_err(|_| wrong())?;
    let stream = doc["stream"].as_u64().ok_or_else(wrong)?;
    if let Some(below) = doc["below"].as_u64().filter(|n| *n > 0) {
        let data = (0..count).map(|i| (element(stream, i) % below) as i64).collect();
        return Ok(Tensor::from_vec(data, sizes));
    }
    let (Some(low), Some(high)) = (doc["low"].as_f64(), doc["high"].as_f64()) else {
        return Err(wrong());
    };
    let unit = |i| (element(stream, i) >> 11) as f64 * 2.0f64.powi(-53);
    let data: Vec<f64> = (0..count).map(|i| low + (high - low) * unit(i)).collect();
    Tensor::from_vec(data, sizes).to_dtype(dtype).ok().cloned()
}
