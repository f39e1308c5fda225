//! Runs the requested measurements, and formats their results.

use super::bounds::{Bound, bound};
use super::functions::{BINARY, Binary, UNARY, Unary};
use super::sweep::{self, EDGES, Span};
use super::ulp::{Errors, Format};
use super::{Error, Op};
use half::{bf16, f16};
use maquette_ir::DType;
use std::fmt::Write;

/// The extent of a measurement.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Every `step`-th `f32` pattern is measured.
    pub step: u64,
    /// So many `f32` patterns on each side of each edge and each hard point are measured too.
    pub reach: u64,
    /// The number of `f32` pairs for a function with two arguments.
    pub pairs: u64,
    /// The number of `f64` arguments.
    pub wide: u64,
    /// The number of threads.
    pub threads: usize,
}

/// The errors of one function in one dtype.
#[derive(Clone, Debug)]
pub struct Row {
    /// The function.
    pub op: Op,
    /// The dtype.
    pub dtype: DType,
    /// The errors.
    pub errors: Errors,
}

impl Row {
    /// The documented bound.
    fn stated(&self) -> Option<f64> {
        bound(self.op.name()).map(|b| b.of(self.dtype))
    }

    /// The reason for which this row violates the bound; `None` if it does not.
    pub fn failure(&self) -> Option<String> {
        let (name, d, e) = (self.op.name(), self.dtype, &self.errors);
        let at = |a: Option<[u64; 2]>| self.arguments(a.unwrap_or_default());
        if e.wrong > 0 {
            return Some(format!(
                "{name}, {d}: {} results are NaN, or zeros with a sign, but the exact values are \
                    not; first at {}",
                e.wrong,
                at(e.wrong_at)
            ));
        }
        if e.differ > 0 {
            return Some(format!(
                "{name}, {d}: {} results differ between instruction sets; first at {}",
                e.differ,
                at(e.differ_at)
            ));
        }
        match self.stated() {
            None => Some(format!("{name}, {d}: no bound is stated")),
            Some(b) if e.max > b => {
                Some(format!("{name}, {d}: {:.4} ULP at {}, stated {b}", e.max, at(Some(e.at))))
            }
            Some(_) => None,
        }
    }

    /// Arguments as text: values and bit patterns.
    fn arguments(&self, at: [u64; 2]) -> String {
        let one = |bits: u64| match self.dtype {
            DType::F64 => format!("{:e} ({bits:#018x})", f64::from_bits(bits)),
            DType::F32 => format!("{:e} ({bits:#010x})", f32::from_pattern(bits)),
            DType::F16 => format!("{:e} ({bits:#06x})", f16::from_pattern(bits).wide()),
            _ => format!("{:e} ({bits:#06x})", bf16::from_pattern(bits).wide()),
        };
        match self.op {
            Op::Unary(_) => one(at[0]),
            Op::Binary(_) => format!("{}, {}", one(at[0]), one(at[1])),
        }
    }
}

/// The arguments at which exhaustive runs found the largest errors.
const HARD: &[f32] = &[
    // exp
    -27.379_068,
    // tanh
    0.626_107_34,
    // sigmoid
    -4.157_294,
    -2.768_432_6,
    // sin, cos
    0.785_381_5,
    26_974.5,
    // log
    0.706_912_6,
    // erf
    0.999_976_7,
    // rsqrt
    1.000_091_9e-3,
];

fn unary<T: Format>(f: &Unary, spans: &[Span], threads: usize) -> Result<Row, Error> {
    Ok(Row { op: Op::Unary(f.op), dtype: T::DTYPE, errors: sweep::unary::<T>(f, spans, threads)? })
}

fn binary<T: Format>(f: &Binary, n: u64, threads: usize) -> Result<Row, Error> {
    Ok(Row { op: f.op, dtype: T::DTYPE, errors: sweep::binary::<T>(f, n, threads)? })
}

/// Measures the functions and dtypes that `wanted` selects. Calls `show` for each row as it is
/// finished.
pub fn measure(
    effort: &Effort,
    wanted: impl Fn(&str, DType) -> bool,
    mut show: impl FnMut(&Row),
) -> Result<Vec<Row>, Error> {
    let t = effort.threads;
    let mut f32s = sweep::patterns::<f32>(effort.step);
    if effort.step > 1 {
        f32s.extend(sweep::about(EDGES, effort.reach));
        f32s.extend(sweep::about(HARD, effort.reach));
    }
    let mut rows = Vec::new();
    let mut keep = |row: Row| {
        show(&row);
        rows.push(row);
    };
    for f in UNARY {
        let wanted = |d| wanted(f.op.name(), d);
        if wanted(DType::F32) {
            keep(unary::<f32>(f, &f32s, t)?);
        }
        if wanted(DType::BF16) {
            keep(unary::<bf16>(f, &sweep::patterns::<bf16>(1), t)?);
        }
        if wanted(DType::F16) {
            keep(unary::<f16>(f, &sweep::patterns::<f16>(1), t)?);
        }
        if wanted(DType::F64) {
            keep(Row {
                op: Op::Unary(f.op),
                dtype: DType::F64,
                errors: sweep::unary_f64(f, effort.wide, t)?,
            });
        }
    }
    for f in BINARY {
        let wanted = |d| wanted(f.op.name(), d);
        if wanted(DType::F32) {
            keep(binary::<f32>(f, effort.pairs, t)?);
        }
        if wanted(DType::BF16) {
            keep(binary::<bf16>(f, effort.pairs.min(1 << 20), t)?);
        }
        if wanted(DType::F16) {
            keep(binary::<f16>(f, effort.pairs.min(1 << 20), t)?);
        }
        if wanted(DType::F64) {
            keep(Row {
                op: f.op,
                dtype: DType::F64,
                errors: sweep::binary_f64(f, effort.wide, t)?,
            });
        }
    }
    Ok(rows)
}

/// The heading for the lines of [`line()`].
pub const HEADING: &str =
    "function    dtype      results    max ULP   mean ULP   stated  wrong  differ  worst at";

/// A row as a line of a table.
pub fn line(row: &Row) -> String {
    let e = &row.errors;
    let stated = row.stated().map_or("none".to_string(), |b| format!("{b:.4}"));
    let (name, dtype) = (row.op.name(), row.dtype.to_string());
    let (count, max, mean, at) = (e.count, e.max, e.mean(), row.arguments(e.at));
    format!(
        "{name:<11} {dtype:<5} {count:>12} {max:>10.4} {mean:>10.4} {stated:>8} {:>6} {:>7}  {at}",
        e.wrong, e.differ
    )
}

/// The largest errors of PyTorch's functions on a sample of `f32`: lines of a name and an error, as
/// printed by `benches/peers/torch_ulp.py`.
const PYTORCH: &str = include_str!("pytorch.tsv");

/// PyTorch's largest error of a function; empty if it was not measured.
fn pytorch(name: &str) -> &str {
    PYTORCH
        .lines()
        .filter_map(|l| l.split_once('\t'))
        .find(|(n, _)| *n == name)
        .map_or("", |(_, v)| v)
}

/// The rows as a Markdown table, one line for each function.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "| function | f32 results | max | stated | worst at | mean | PyTorch | bf16 max | f16 max \
            | f64 max | stated |\n|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut names: Vec<&str> = rows.iter().map(|r| r.op.name()).collect();
    names.dedup();
    for name in names {
        let of = |d: DType| rows.iter().find(|r| r.op.name() == name && r.dtype == d);
        let max = |d: DType| of(d).map_or(String::new(), |r| format!("{:.4}", r.errors.max));
        let stated =
            |get: fn(&Bound) -> f64| bound(name).map_or(String::new(), |b| get(b).to_string());
        let at = of(DType::F32).map_or(String::new(), |r| r.arguments(r.errors.at));
        let count = of(DType::F32).map_or(String::new(), |r| r.errors.count.to_string());
        let mean = of(DType::F32).map_or(String::new(), |r| format!("{:.4}", r.errors.mean()));
        // writing to a string cannot fail
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} | {} | {at} | {mean} | {} | {} | {} | {} | {} |",
            count,
            max(DType::F32),
            stated(|b| b.f32),
            pytorch(name),
            max(DType::BF16),
            max(DType::F16),
            max(DType::F64),
            stated(|b| b.f64),
        );
    }
    out
}
