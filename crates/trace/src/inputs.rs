//! The inputs of a trace: symbols for their sizes, fake tensors, names.

use crate::dim::Dim;
use crate::options::TraceOptions;
use crate::record::Recorder;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::typing::contiguous_strides;
use maquette_ops::tree::Leaf;
use maquette_ops::{Concrete, Dims, Meta, Result, Tensor, TraceError, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What became of a leaf of the input tree.
#[derive(Clone, Debug)]
pub enum LeafKind {
    /// The next input of the graph.
    Input,
    /// A number that is a constant of the graph: a run must give the same.
    Fixed(Value),
}

/// What a trace is asked to take.
pub(crate) struct TraceInputs<'a> {
    pub(crate) options: &'a TraceOptions,
    pub(crate) leaves: &'a [Leaf],
    /// Per leaf, whether an integer is a plain number of the program; empty where all are.
    pub(crate) fixed: &'a [bool],
    /// Tensors of the program's own that are inputs too, if those are asked for.
    pub(crate) state: Option<&'a [(String, Tensor)]>,
}

/// Where a named dimension was met first: its declaration, input, dimension and size; and its
/// symbol.
type FirstUse<'a> = (&'a Dim, (usize, usize, i64), SymInt);

/// The leaves that the program sees, and what each of them is to the graph.
pub(crate) struct PreparedInputs {
    pub(crate) values: Vec<Value>,
    pub(crate) kinds: Vec<LeafKind>,
    pub(crate) labels: Vec<String>,
}

/// Which integers among the leaves the tree's type turns into plain numbers: those on which
/// rebuilding it guards.
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
            let asked = !probe.close().guards.is_empty();
            asked || rebuilt.is_err()
        })
        .collect()
}

fn refuse<T>(message: String) -> Result<T> {
    Err(TraceError::Input(message).into())
}

/// A letter or `_`, then letters, digits and `_`.
fn is_identifier(name: &str) -> bool {
    name.bytes().next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

impl TraceInputs<'_> {
    /// Makes symbols, fake tensors and graph inputs.
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
                    let offset = if self.options.keep_offsets { t.meta().offset } else { 0.into() };
                    let fake = Tensor::fake_of(Meta {
                        sizes: symbols,
                        strides,
                        offset,
                        ..t.meta().clone()
                    });
                    Some(Value::Tensor(recorder.input_tensor(fake, &name)?))
                }
                Value::Int(i) if self.options.symbolic && self.fixed.get(index) != Some(&true) => {
                    let Some(hint) = i.as_i64() else {
                        return refuse(format!(
                            "input {index} is the integer {i}; a sample must be a number"
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

    /// What each leaf is called: as given, or its path in the tree.
    fn labels(&self) -> Result<Vec<String>> {
        let Some(names) = &self.options.names else {
            return Ok(self
                .leaves
                .iter()
                .enumerate()
                .map(|(i, l)| label_of_path(&l.path).unwrap_or_else(|| format!("in{i}")))
                .collect());
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

    /// The sample's metadata in plain numbers. Fake and traced tensors have some too.
    fn concrete(&self, index: usize, t: &Tensor) -> Result<Concrete> {
        match t.meta().concrete() {
            Some(c) => Ok(c),
            None => refuse(format!(
                "input {index} is {}; a sample's sizes must be plain numbers",
                t.meta()
            )),
        }
    }

    /// The symbols asked for by input and dimension.
    fn dynamic(&self, scope: &Scope) -> Result<FxHashMap<(usize, usize), SymInt>> {
        let mut by_name: FxHashMap<&str, FirstUse<'_>> = FxHashMap::default();
        let mut out = FxHashMap::default();
        for (input, dim, symbol) in &self.options.dims {
            let (input, dim) = (*input, *dim);
            let (name, range) = (symbol.name(), symbol.range());
            let Some(leaf) = self.leaves.get(input) else {
                return refuse(format!(
                    "dynamic dimension `{name}` is of input {input}, but there are {} inputs",
                    self.leaves.len()
                ));
            };
            let Value::Tensor(t) = &leaf.value else {
                return refuse(format!(
                    "dynamic dimension `{name}` is of input {input}, which is {}, not a tensor",
                    leaf.value.kind()
                ));
            };
            let sizes = self.concrete(input, t)?.sizes;
            let Some(&size) = sizes.get(dim) else {
                return refuse(format!(
                    "dynamic dimension `{name}` is dimension {dim} of input {input}, which has {} \
                        dimensions",
                    sizes.len()
                ));
            };
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
            let s = match by_name.get(name) {
                None => {
                    let s = scope
                        .backed(Some(name), range, size)
                        .map_err(|e| TraceError::Input(e.to_string()))?;
                    by_name.insert(name, (symbol, (input, dim, size), s));
                    s
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
                            of input {input}, of size {size}; one name \
                         stands for one size"
                    ));
                }
                Some((.., s)) => *s,
            };
            if out.insert((input, dim), s).is_some() {
                return refuse(format!(
                    "dimension {dim} of input {input} is declared dynamic twice"
                ));
            }
        }
        Ok(out)
    }
}

/// What a leaf is called after its path, `layers.0.weight`; positions alone name nothing.
fn label_of_path(path: &str) -> Option<String> {
    if path.bytes().all(|b| b == b'.' || b.is_ascii_digit()) {
        return None;
    }
    Some(part_label(path))
}

/// What a part of the inputs is called after its path; empty for all of them.
pub(crate) fn part_label(path: &str) -> String {
    if path.starts_with(|c: char| c.is_ascii_digit()) {
        format!("in{path}")
    } else {
        path.to_owned()
    }
}

/// Strides as expressions over the sizes, where the sample's are those of a dense layout in some
/// order of dimensions; else as numbers.
pub(crate) fn symbolic_strides(sample: &Concrete, sizes: &[SymInt]) -> Dims {
    if sample.is_contiguous() {
        return contiguous_strides(sizes);
    }
    // inner dimensions first; of equal strides a dimension of size 1 is the inner one, as in
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
