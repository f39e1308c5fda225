//! Prepares the inputs of a trace: symbols for dynamic sizes, fake tensors, and names.

use crate::dim::Dim;
use crate::options::TraceOptions;
use crate::record::Recorder;
use maquette_ir::Loc;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::typing::contiguous_strides;
use maquette_ops::internals::MetaInternals;
use maquette_ops::tree::Leaf;
use maquette_ops::{Concrete, Dims, Result, Tensor, TraceError, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// How the graph receives a leaf of the input tree.
#[derive(Clone, Debug)]
pub enum LeafKind {
    /// The next input of the graph.
    Input,
    /// A constant of the graph: every run must pass an equal value.
    Fixed(Value),
}

/// The inputs of a trace, with its options.
pub(crate) struct TraceInputs<'a> {
    pub(crate) options: &'a TraceOptions,
    pub(crate) leaves: &'a [Leaf],
    /// For each leaf: whether an integer is specialized to its value, since the input type holds an
    /// `i64` and not a `SymInt`. Empty unless sizes are symbolic.
    pub(crate) fixed: &'a [bool],
    /// The program's own tensors, if they are to become inputs.
    pub(crate) state: Option<&'a [(String, Tensor)]>,
    /// The line that starts the trace.
    pub(crate) loc: Loc,
}

/// The first use of a named dimension: its declaration; its input, dimension and sample size; and
/// its symbol.
type FirstUse<'a> = (&'a Dim, (usize, usize, i64), SymInt);

/// The leaves that the program gets, and how the graph receives each of them.
pub(crate) struct PreparedInputs {
    pub(crate) values: Vec<Value>,
    pub(crate) kinds: Vec<LeafKind>,
    pub(crate) labels: Vec<String>,
}

/// For each leaf: whether it is an integer that the input type stores as a plain number. `i64` and
/// `SymInt` flatten to the same leaf, so `rebuild` is called with a fresh symbol in place of each
/// integer: an `i64` must read its value, which records a guard.
pub(crate) fn guarded_integers(
    leaves: &[Leaf],
    rebuild: impl Fn(&mut dyn Iterator<Item = Value>) -> Result<()>,
) -> Vec<bool> {
    let hint = |leaf: &Leaf| if let Value::Int(i) = leaf.value { i.as_i64() } else { None };
    leaves
        .iter()
        .enumerate()
        .map(|(at, leaf)| {
            let Some(hint) = hint(leaf) else { return false };
            let probe = Scope::new();
            let Ok(symbol) = probe.backed(None, Range { lo: i64::MIN, hi: i64::MAX }, hint) else {
                return true;
            };
            let mut values = leaves
                .iter()
                .enumerate()
                .map(|(i, l)| if i == at { Value::Int(symbol) } else { l.value.clone() });
            let rebuilt = rebuild(&mut values);
            let guarded = !probe.close().guards.is_empty();
            guarded || rebuilt.is_err()
        })
        .collect()
}

/// An error about an input.
fn refuse<T>(message: String) -> Result<T> {
    Err(TraceError::Input(message).into())
}

/// Whether a name is a letter or `_`, followed by letters, digits and `_`.
fn is_identifier(name: &str) -> bool {
    name.bytes().next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

impl TraceInputs<'_> {
    /// Creates the symbols, fake tensors and graph inputs.
    pub(crate) fn prepare(&self, scope: &Scope, recorder: &mut Recorder) -> Result<PreparedInputs> {
        let labels = self.labels()?;
        let dynamic = self.dynamic(scope)?;
        let mut duck: FxHashMap<i64, SymInt> = FxHashMap::default();
        let (mut values, mut kinds) =
            (Vec::with_capacity(self.leaves.len()), Vec::with_capacity(self.leaves.len()));
        for (index, (leaf, label)) in self.leaves.iter().zip(&labels).enumerate() {
            let name = label.replace('.', "_");
            let value = match &leaf.value {
                Value::Tensor(t) => {
                    let sizes = self.concrete(index, t)?.sizes;
                    let mut symbols = Dims::new();
                    for (dim, &n) in sizes.iter().enumerate() {
                        symbols.push(match dynamic.get(&(index, dim)) {
                            Some(&symbol) => symbol,
                            None if !self.options.symbolic => n.into(),
                            None => match duck.get(&n).filter(|_| self.options.duck) {
                                Some(&symbol) => symbol,
                                None => *duck
                                    .entry(n)
                                    .insert_entry(scope.backed(
                                        None,
                                        Range { lo: 0, hi: i64::MAX },
                                        n,
                                    )?)
                                    .get(),
                            },
                        });
                    }
                    let strides = symbolic_strides(&self.concrete(index, t)?, &symbols);
                    let offset =
                        if self.options.keep_offsets { t.meta().offset() } else { 0.into() };
                    let meta = t.meta().with_dims(symbols, strides).with_offset(offset);
                    let fake = Tensor::fake_of(meta);
                    let traced = recorder.input_tensor(fake, &name)?;
                    recorder.memories.add_input(t, &traced);
                    Some(Value::Tensor(traced))
                }
                Value::Int(i) if self.is_dynamic_integer(index) => {
                    let Some(hint) = i.as_i64() else {
                        return refuse(format!(
                            "input {index} is the symbolic integer {i}; a sample must be a constant"
                        ));
                    };
                    let symbol = scope.backed(None, Range { lo: i64::MIN, hi: i64::MAX }, hint)?;
                    recorder.input_int(symbol, &name)?;
                    Some(Value::Int(symbol))
                }
                _ => None,
            };
            kinds.push(match value {
                Some(_) => LeafKind::Input,
                None => LeafKind::Fixed(leaf.value.clone()),
            });
            values.push(value.unwrap_or_else(|| leaf.value.clone()));
        }
        Ok(PreparedInputs { values, kinds, labels })
    }

    /// Whether an integer becomes a symbol.
    fn is_dynamic_integer(&self, index: usize) -> bool {
        (self.options.symbolic || self.options.integers.contains(&index))
            && self.fixed.get(index) != Some(&true)
    }

    /// The label of each leaf: the given name, or its path in the tree, as `in0` or `in1.weight`.
    fn labels(&self) -> Result<Vec<String>> {
        let Some(names) = &self.options.names else {
            let leaves = self.leaves.iter().enumerate();
            return Ok(leaves.map(|(i, l)| self.options.label(i, &l.path)).collect());
        };
        if names.len() != self.leaves.len() {
            return refuse(format!(
                "{} names were given for {} inputs",
                names.len(),
                self.leaves.len()
            ));
        }
        for (i, name) in names.iter().enumerate() {
            if !is_identifier(name) {
                return refuse(format!(
                    "`{name}` cannot name input {i}: expected letters, digits and `_`, not \
                        starting with a digit"
                ));
            }
            if let Some(j) = names.iter().take(i).position(|n| n == name) {
                return refuse(format!("inputs {j} and {i} are both named `{name}`"));
            }
        }
        Ok(names.clone())
    }

    /// The metadata of a sample as plain numbers; fake tensors may have these too.
    fn concrete(&self, index: usize, t: &Tensor) -> Result<Concrete> {
        match t.meta().concrete() {
            Some(c) => Ok(c),
            None => {
                refuse(format!("input {index} is {}; a sample must have static sizes", t.meta()))
            }
        }
    }

    /// The sample's size in a dimension that `what` declares.
    fn declared_size(&self, what: &str, input: usize, dim: usize) -> Result<i64> {
        let Some(leaf) = self.leaves.get(input) else {
            return refuse(format!(
                "{what} refers to input {input}, but there are {} inputs",
                self.leaves.len()
            ));
        };
        let Value::Tensor(t) = &leaf.value else {
            return refuse(format!(
                "{what} refers to input {input}, which is {}, not a tensor",
                leaf.value.kind()
            ));
        };
        let sizes = self.concrete(input, t)?.sizes;
        match sizes.get(dim) {
            Some(&size) => Ok(size),
            None => refuse(format!(
                "{what} is dimension {dim} of input {input}, which has {} dimensions",
                sizes.len()
            )),
        }
    }

    /// The symbols of the declared dynamic dimensions, by input and dimension.
    ///
    /// # Errors
    /// A declaration does not fit its input, or two declarations with one name disagree.
    fn dynamic(&self, scope: &Scope) -> Result<FxHashMap<(usize, usize), SymInt>> {
        let mut by_name: FxHashMap<&str, FirstUse<'_>> = FxHashMap::default();
        let mut out = FxHashMap::default();
        for (input, dim, declared) in &self.options.dims {
            let (input, dim) = (*input, *dim);
            let (name, range) = (declared.name(), declared.range());
            let size = self.declared_size(&format!("dynamic dimension `{name}`"), input, dim)?;
            if range.lo < 0 || range.lo > range.hi {
                return refuse(format!(
                    "the range of dimension `{name}` is {range}; expected 0 <= min <= max"
                ));
            }
            if size < range.lo || size > range.hi {
                return refuse(format!(
                    "input {input} has size {size} in dimension {dim}, outside the range {range} \
                        of `{name}`"
                ));
            }
            let symbol = match by_name.get(name) {
                None => {
                    let symbol = scope
                        .backed(Some(name), range, size)
                        .map_err(|e| TraceError::Input(e.to_string()))?;
                    by_name.insert(name, (declared, (input, dim, size), symbol));
                    symbol
                }
                Some((first, ..)) if first.range() != range => {
                    return refuse(format!(
                        "dimension `{name}` is declared with two ranges, {} and {range}",
                        first.range()
                    ));
                }
                Some((_, (i, d, n), _)) if *n != size => {
                    return refuse(format!(
                        "`{name}` is dimension {d} of input {i}, of size {n}, and dimension {dim} \
                            of input {input}, of size {size}; dimensions of one name must have \
                            equal sizes"
                    ));
                }
                Some((.., symbol)) => *symbol,
            };
            if out.insert((input, dim), symbol).is_some() {
                return refuse(format!(
                    "dimension {dim} of input {input} is declared dynamic twice"
                ));
            }
        }
        for &(input, dim) in &self.options.undecided {
            self.declared_size("an unbacked dimension", input, dim)?;
            let declaration = format!("the declaration `.unbacked({input}, {dim})`");
            let range = Range { lo: 0, hi: i64::MAX };
            let symbol = scope.undecided(range, &declaration, self.loc);
            if out.insert((input, dim), symbol).is_some() {
                return refuse(format!("dimension {dim} of input {input} is declared twice"));
            }
        }
        Ok(out)
    }
}

/// The label of a part of the inputs with this path; empty for the whole.
pub(crate) fn part_label(path: &str) -> String {
    if path.starts_with(|c: char| c.is_ascii_digit()) {
        format!("in{path}")
    } else {
        path.to_owned()
    }
}

/// The strides of an input as expressions of its sizes.
///
/// Dimensions are visited from the innermost outwards, by the sample's strides. A stride that
/// equals the product of the inner sizes in the sample becomes the product of the inner symbols;
/// any other stride stays the sample's number. For example, a transposed sample of sizes `[3, 4]`
/// and strides `[1, 3]` gets strides `[1, s0]`.
pub(crate) fn symbolic_strides(sample: &Concrete, sizes: &[SymInt]) -> Dims {
    if sample.is_contiguous() {
        return contiguous_strides(sizes);
    }
    // of two equal strides, that of a dimension of size 1 is the inner one, as in
    // `contiguous_strides`
    let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).rev().collect();
    order.sort_by_key(|&d| (sample.strides[d], sample.sizes[d] > 1));
    let mut strides: Dims = sample.strides.iter().map(|&s| SymInt::from(s)).collect();
    let (mut dense, mut symbol) = (1i64, SymInt::from(1));
    for d in order {
        let (size, stride) = (sample.sizes[d].max(1), sample.strides[d]);
        if stride == 0 {
            continue;
        }
        if stride == dense {
            strides[d] = symbol;
        } else {
            (dense, symbol) = (stride, stride.into());
        }
        dense = dense.saturating_mul(size);
        symbol *= sizes[d].max(1);
    }
    strides
}
