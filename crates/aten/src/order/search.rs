//! Binary search in sorted sequences (`searchsorted`, `bucketize`), and set membership (`isin`).

use super::{Keys, Lines, integers, promoted, refuse_bool, store_integers};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{fresh, require};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides, operand};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, FakeCtx, Meta, Result, Tensor, Value};
use smallvec::smallvec;

const fn gathered(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Gather,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

/// A search: the sorted sequences, the values, and the options.
struct Search<'a> {
    sequence: &'a Tensor,
    values: &'a Value,
    sorter: Option<&'a Tensor>,
    right: bool,
    narrow: bool,
}

impl<'a> Search<'a> {
    /// From the arguments `sorted_sequence, self, *, out_int32, right, side, sorter`.
    fn sorted(args: &'a [Value]) -> Result<Search<'a>> {
        let right = args[3].bool()?;
        let side = args[4].opt(Value::str)?;
        let right = match side {
            None => right,
            Some("right") => true,
            Some("left") if right => {
                return Err(Error::value("`side` is \"left\", but `right` is true"));
            }
            Some("left") => false,
            Some(other) => {
                return Err(Error::value(format!(
                    "`side` must be \"left\" or \"right\", found {other:?}"
                )));
            }
        };
        Search {
            sequence: args[0].tensor()?,
            values: &args[1],
            sorter: args[5].opt_tensor()?,
            right,
            narrow: args[2].bool()?,
        }
        .checked("sorted_sequence")
    }

    /// From the arguments `self, boundaries, *, out_int32, right`.
    fn buckets(args: &'a [Value]) -> Result<Search<'a>> {
        let sequence = args[1].tensor()?;
        if sequence.dim() != 1 {
            return Err(Error::value(format!(
                "argument `boundaries` must have 1 dimension, found sizes {}",
                dims_text(sequence.sizes())
            )));
        }
        Search {
            sequence,
            values: &args[0],
            sorter: None,
            right: args[3].bool()?,
            narrow: args[2].bool()?,
        }
        .checked("boundaries")
    }

    /// Checks dtypes, sizes and the sorter. `name` is the argument with the sequences.
    fn checked(self, name: &str) -> Result<Search<'a>> {
        let (sequence, values) = (self.sequence, self.sizes()?);
        if operand(self.values).dtype == DType::Bool {
            refuse_bool(name, &Value::from(sequence))?;
        }
        let Some((&n, lead)) = sequence.sizes().split_last() else {
            return Err(Error::value(format!(
                "argument `{name}` must have at least 1 dimension, found a 0-d tensor"
            )));
        };
        if !lead.is_empty() {
            let own = values
                .split_last()
                .map(|(_, own)| own)
                .filter(|own| own.len() == lead.len())
                .ok_or_else(|| {
                    let (found, of) = (dims_text(&values), dims_text(sequence.sizes()));
                    Error::value(format!(
                        "argument `self` must have the dimensions of `{name}` {of} if that has \
                            several, found sizes {found}"
                    ))
                })?;
            require_same(lead, own, || "the dimensions of `self` but the last must have".into())?;
        }
        if let Some(s) = self.sorter {
            require_same(sequence.sizes(), s.sizes(), || "argument `sorter` must have".into())?;
            if s.dtype() != DType::I64 {
                return Err(Error::value(format!(
                    "argument `sorter` must have dtype i64, found {}{}",
                    s.dtype(),
                    dims_text(s.sizes())
                )));
            }
        }
        if self.narrow {
            let most = i64::from(i32::MAX);
            require(n.le(most), || {
                format!("positions among {n} elements do not fit i32, which `out_int32` asks for")
            })?;
        }
        Ok(self)
    }

    fn sizes(&self) -> Result<Vec<SymInt>> {
        Ok(match self.values {
            Value::Tensor(_) => self.values.tensor()?.sizes().to_vec(),
            _ => Vec::new(),
        })
    }

    fn meta(&self) -> Result<Metas> {
        let dtype = if self.narrow { DType::I32 } else { DType::I64 };
        Ok(smallvec![Meta::contiguous(self.sizes()?.as_slice(), dtype).on(self.sequence.device())])
    }

    /// Searches every value by bisection of its sequence.
    fn run(&self, out: &Tensor) -> Result<()> {
        let (sequence, values) = promoted(&Value::from(self.sequence), self.values)?;
        let n = Lines::of(&sequence, sequence.dim().saturating_sub(1))?.len;
        let (sequence, values) = (Keys::of(&sequence)?, Keys::of(&values)?);
        let sorter = self.sorter.map(integers).transpose()?;
        let inside = |i: &i64| usize::try_from(*i).is_ok_and(|i| i < n);
        if let Some(bad) = sorter.iter().flatten().find(|i| !inside(i)) {
            return Err(Error::value(format!(
                "argument `sorter` must hold positions from 0 to {}, found {bad}",
                n.saturating_sub(1)
            )));
        }
        // There is one sequence for all values, or one for each row of values.
        let rows = sequence.all.len().checked_div(n).unwrap_or(1).max(1);
        let per_row = values.all.len().div_ceil(rows).max(1);
        let found: Vec<i64> = values
            .all
            .iter()
            .enumerate()
            .map(|(i, &v)| {
                let start = i / per_row * n;
                let at = |i: usize| {
                    sequence.all[start + sorter.as_ref().map_or(i, |s| s[start + i] as usize)]
                };
                // As in PyTorch, every comparison with NaN fails.
                let passed = |k: i64| {
                    !sequence.is_nan(k)
                        && !sequence.is_nan(v)
                        && if self.right { k > v } else { k >= v }
                };
                let (mut low, mut high) = (0, n);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if passed(at(middle)) { high = middle } else { low = middle + 1 }
                }
                low as i64
            })
            .collect();
        store_integers(out, &found)
    }
}

fn membership_meta(args: &[Value]) -> Result<Metas> {
    for (name, v) in [("elements", &args[0]), ("test_elements", &args[1])] {
        refuse_bool(name, v)?;
    }
    Ok(smallvec![match (&args[0], &args[1]) {
        (Value::Tensor(x), _) => fresh(x, x.sizes().into(), DType::Bool),
        (_, other) => Meta::contiguous([0i64; 0], DType::Bool).on(other.tensor()?.device()),
    }])
}

/// `isin`. The arguments are `elements, test_elements, *, assume_unique, invert`.
fn membership(args: &[Value], out: &Tensor) -> Result<()> {
    let invert = args[3].bool()?;
    let (x, set) = promoted(&args[0], &args[1])?;
    let (x, set) = (Keys::of(&x)?, Keys::of(&set)?);
    let mut members: Vec<i64> = set.all.iter().copied().filter(|k| !set.is_nan(*k)).collect();
    members.sort_unstable();
    let found: Vec<i64> =
        x.all.iter().map(|k| i64::from(members.binary_search(k).is_ok() != invert)).collect();
    store_integers(out, &found)
}

table! {
    /// Searches.
    static TABLE = {
        "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, \
            bool out_int32=False, bool right=False, str? side=None, \
            Tensor? sorter=None) -> Tensor" => {
            role: General,
            lowering: gathered(
                |_,
                a| Search::sorted(a)?.meta(),
                |a,
                o| Search::sorted(a)?.run(&o[0]),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, \
            bool out_int32=False, bool right=False, str? side=None, \
            Tensor? sorter=None) -> Tensor" => {
            role: General,
            lowering: gathered(
                |_,
                a| Search::sorted(a)?.meta(),
                |a,
                o| Search::sorted(a)?.run(&o[0]),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, \
            bool right=False) -> Tensor" => {
            role: General,
            lowering: gathered(
                |_,
                a| Search::buckets(a)?.meta(),
                |a,
                o| Search::buckets(a)?.run(&o[0]),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, \
            bool right=False) -> Tensor" => {
            role: General,
            lowering: gathered(
                |_,
                a| Search::buckets(a)?.meta(),
                |a,
                o| Search::buckets(a)?.run(&o[0]),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, \
            bool assume_unique=False, bool invert=False) -> Tensor" => {
            role: General,
            lowering: gathered(|_, a| membership_meta(a), |a, o| membership(a, &o[0])),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, \
            bool assume_unique=False, bool invert=False) -> Tensor" => {
            role: General,
            lowering: gathered(|_, a| membership_meta(a), |a, o| membership(a, &o[0])),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, \
            bool assume_unique=False, bool invert=False) -> Tensor" => {
            role: General,
            lowering: gathered(|_, a| membership_meta(a), |a, o| membership(a, &o[0])),
            vjp: Derivative::None("the result is no float"),
        },
    }
}
