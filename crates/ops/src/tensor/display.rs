//! Tensors as text: `Display` as PyTorch prints them, `Debug` in one line.
//!
//! `Display` follows the rules of PyTorch's `torch/_tensor_str.py` with its default options. One
//! format holds for the whole tensor, so that columns align: it is chosen from the finite elements
//! that are not zero. Floats that are all integers print as `1.`; others with [`PRECISION`]
//! digits; all in scientific notation where the largest is more than 1000 times the smallest, or
//! beyond 1e8, or (unless all are integers) below 1e-4. A tensor of more than [`THRESHOLD`]
//! elements shows [`EDGE_ITEMS`] at both ends of every dimension, and only these are read: the
//! cost depends on the rank alone. Dtypes have Maquette's names, as in the text of
//! a graph.

use crate::autograd::history;
use crate::dispatch::mode::{self, Question};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::element::Element;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device};
use maquette_kernels::Class;
use ndarray::{ArrayRef, ArrayViewD, IxDyn};
use std::fmt;

/// Digits after the decimal point.
const PRECISION: usize = 4;
/// The most elements that are shown without a summary.
const THRESHOLD: usize = 1000;
/// The elements shown at each end of a dimension in a summary.
const EDGE_ITEMS: usize = 3;
/// The length of a line.
const LINE_WIDTH: usize = 80;
/// The most elements that `Debug` shows.
const DEBUG_ITEMS: usize = 8;

impl fmt::Display for Tensor {
    /// The elements as PyTorch prints them; the sizes alone of a tensor without contents, and the
    /// error of a poisoned one.
    ///
    /// ```
    /// # use maquette_ops::Tensor;
    /// let x = Tensor::from([[1.0f32, 0.5], [-2.25, 10.0]]);
    /// assert_eq!(x.to_string(), "tensor([[ 1.0000,  0.5000],\n        [-2.2500, 10.0000]])");
    /// assert_eq!(Tensor::from([1i32, 2]).to_string(), "tensor([1, 2], dtype=i32)");
    /// assert_eq!(Tensor::fake([2], x.dtype()).to_string(), "FakeTensor(..., size=(2,))");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Err(e) = self.alive() {
            return write!(f, "tensor(poisoned: {e})");
        }
        let prefix = match (self.slot(), self.is_fake() && self.device() != Device::Meta) {
            (Some(_), _) => "TracedTensor(",
            (None, true) => "FakeTensor(",
            (None, false) => "tensor(",
        };
        let contents = self.contents_text(prefix.len());
        let is_empty = self.numel().as_i64() == Some(0);
        let mut suffixes = Vec::new();
        if self.device() != Device::Cpu {
            suffixes.push(format!("device='{}'", self.device()));
        }
        if contents.is_none() || is_empty && self.dim() != 1 {
            suffixes.push(format!("size={}", tuple_text(self.sizes())));
        }
        // the elements tell these dtypes apart, where there are any
        let elements_show_dtype =
            contents.is_some() && !is_empty && matches!(self.dtype(), DType::I64 | DType::Bool);
        if self.dtype() != DType::F32 && !elements_show_dtype {
            suffixes.push(format!("dtype={}", self.dtype()));
        }
        if history::requires_grad(self) {
            suffixes.push("requires_grad=True".to_owned());
        }
        f.write_str(&with_suffixes(
            format!("{prefix}{}", contents.as_deref().unwrap_or("...")),
            &suffixes,
            prefix.len(),
        ))
    }
}

impl fmt::Debug for Tensor {
    /// Metadata and, where there is data, the first elements; the error of a poisoned tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Err(e) = self.alive() {
            return write!(f, "Tensor(poisoned: {e})");
        }
        write!(f, "Tensor({}", self.meta())?;
        if let Some(slot) = self.slot() {
            return write!(f, ", traced in `{}`)", slot.trace.name);
        }
        if self.is_fake() {
            return f.write_str(", fake)");
        }
        if self.shows_contents()
            && let Ok(source) = self.readable()
        {
            crate::typed!(source.dtype(), T => if let Ok(a) = source.read::<T>() {
                write!(f, ", {:?}", FirstElements(&a))?;
            });
        }
        f.write_str(")")
    }
}

struct FirstElements<'a, T>(&'a ArrayRef<T, IxDyn>);

impl<T: fmt::Debug> fmt::Debug for FirstElements<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().take(DEBUG_ITEMS)).finish()?;
        if self.0.len() > DEBUG_ITEMS { write!(f, " … {} in all", self.0.len()) } else { Ok(()) }
    }
}

impl Tensor {
    /// Whether a text may show the elements: not while a mode is active. The text of a tensor from
    /// outside of a trace is refused there, since runs of the graph would not make it again.
    fn shows_contents(&self) -> bool {
        if !mode::is_active() {
            return true;
        }
        let after = mode::current_loc().map(|loc| format!(", after the call at {loc}"));
        let what = format!(
            "the text of a tensor from outside of the trace, {}{},",
            self.meta(),
            after.unwrap_or_default()
        );
        // A trace gets the error, which a text cannot return.
        let _reported = mode::ask_somewhere(Question::State(self), &what);
        false
    }

    /// The elements in brackets, in lines indented by `indent`; `None` where none can be read.
    fn contents_text(&self, indent: usize) -> Option<String> {
        if self.is_fake() || !self.shows_contents() {
            return None;
        }
        let source = self.readable().ok()?;
        let shown: Result<Shown> = crate::typed!(
            source.dtype(),
            T => source.read::<T>().map(|data| Shown::of(data.view()))
        );
        shown.ok().map(|shown| shown.text(indent))
    }
}

/// An element of any dtype, in the type that it prints as.
#[derive(Clone, Copy)]
enum Item {
    Float(f64),
    Int(i64),
    Bool(bool),
}

impl Item {
    fn of<T: Element>(x: T) -> Item {
        let x = x.load();
        match T::DTYPE {
            DType::Bool => Item::Bool(x.to_bool()),
            dtype if dtype.is_float() => Item::Float(x.to_f64()),
            _ => Item::Int(x.to_i64()),
        }
    }
}

/// How every element of a tensor prints.
#[derive(Clone, Copy)]
enum Style {
    /// Integers and booleans.
    Plain,
    /// Floats that are integers: `1.`
    Whole,
    Fixed,
    Scientific,
}

impl Style {
    /// The style for these elements, and its width: that of the longest finite element that is not
    /// zero.
    fn of(items: &[Item]) -> (Style, usize) {
        let floats: Vec<f64> = items
            .iter()
            .filter_map(|item| match item {
                Item::Float(x) if x.is_finite() && *x != 0.0 => Some(*x),
                _ => None,
            })
            .collect();
        if !matches!(items.first(), Some(Item::Float(_))) {
            return (Style::Plain, width(Style::Plain, items.iter().copied()));
        }
        let smallest = floats.iter().map(|x| x.abs()).fold(f64::INFINITY, f64::min);
        let largest = floats.iter().map(|x| x.abs()).fold(0.0, f64::max);
        let whole = floats.iter().all(|x| *x == x.ceil());
        let wide = largest / smallest > 1000.0 || largest > 1.0e8;
        let style = match (whole, wide || !whole && smallest < 1.0e-4) {
            (_, true) => Style::Scientific,
            (true, false) => Style::Whole,
            (false, false) => Style::Fixed,
        };
        (style, width(style, floats.into_iter().map(Item::Float)))
    }

    fn text(self, item: Item) -> String {
        match (self, item) {
            (_, Item::Int(i)) => i.to_string(),
            (_, Item::Bool(b)) => if b { "True" } else { "False" }.to_owned(),
            (_, Item::Float(x)) if x.is_nan() => "nan".to_owned(),
            (_, Item::Float(x)) if x.is_infinite() => x.to_string(),
            (Style::Plain | Style::Whole, Item::Float(x)) => format!("{x:.0}."),
            (Style::Fixed, Item::Float(x)) => format!("{x:.PRECISION$}"),
            (Style::Scientific, Item::Float(x)) => scientific(x),
        }
    }
}

/// The longest text; at least 1.
fn width(style: Style, items: impl Iterator<Item = Item>) -> usize {
    items.map(|item| style.text(item).len()).max().unwrap_or(0).max(1)
}

/// With a sign and two digits at least in the exponent, as C prints it: `1.0000e-05`.
fn scientific(x: f64) -> String {
    let text = format!("{x:.PRECISION$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

/// The elements of a tensor that print.
struct Shown {
    /// In row-major order.
    items: Vec<Item>,
    /// By dimension: how many of its positions print, and whether others are left out.
    dims: Vec<(usize, bool)>,
    style: Style,
    width: usize,
}

impl Shown {
    fn of<T: Element>(data: ArrayViewD<'_, T>) -> Shown {
        let summarized = data.len() > THRESHOLD;
        let positions: Vec<Vec<usize>> = data
            .shape()
            .iter()
            .map(|&n| match summarized && n > 2 * EDGE_ITEMS {
                true => (0..EDGE_ITEMS).chain(n - EDGE_ITEMS..n).collect(),
                false => (0..n).collect(),
            })
            .collect();
        let dims: Vec<(usize, bool)> =
            positions.iter().zip(data.shape()).map(|(p, &n)| (p.len(), p.len() < n)).collect();
        let count: usize = dims.iter().map(|(n, _)| n).product();
        let mut index = vec![0; dims.len()];
        let items: Vec<Item> = (0..count)
            .filter_map(|mut at| {
                for (index, positions) in index.iter_mut().zip(&positions).rev() {
                    *index = positions[at % positions.len()];
                    at /= positions.len();
                }
                data.get(IxDyn(&index)).map(|&x| Item::of(x))
            })
            .collect();
        let (style, width) = Style::of(&items);
        Shown { items, dims, style, width }
    }

    fn text(&self, indent: usize) -> String {
        if self.items.is_empty() { "[]".to_owned() } else { self.part(0, &self.items, indent) }
    }

    /// The text of one position of the dimensions before `dim`, which has these elements.
    fn part(&self, dim: usize, items: &[Item], indent: usize) -> String {
        let padded = |item: &Item| format!("{:>1$}", self.style.text(*item), self.width);
        let rank = self.dims.len();
        let Some(&(n, has_gap)) = self.dims.get(dim) else {
            return items.first().map(padded).unwrap_or_default();
        };
        let is_row = dim + 1 == rank;
        let mut parts: Vec<String> = match is_row {
            true => items.iter().map(padded).collect(),
            false => items
                .chunks(items.len() / n)
                .map(|part| self.part(dim + 1, part, indent + 1))
                .collect(),
        };
        if has_gap {
            parts.insert(EDGE_ITEMS, if is_row { " ..." } else { "..." }.to_owned());
        }
        let margin = " ".repeat(indent + 1);
        let text = if is_row {
            let per_line = (LINE_WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
            let lines: Vec<String> = parts.chunks(per_line).map(|line| line.join(", ")).collect();
            lines.join(&format!(",\n{margin}"))
        } else {
            parts.join(&format!(",{}{margin}", "\n".repeat(rank - dim - 1)))
        };
        format!("[{text}]")
    }
}

/// `(2, s0)`, and `(2,)` for one size.
fn tuple_text(sizes: &[SymInt]) -> String {
    let comma = if sizes.len() == 1 { "," } else { "" };
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!("({}{comma})", sizes.join(", "))
}

/// Adds the suffixes and the closing parenthesis, a new line where one would be too long.
fn with_suffixes(mut text: String, suffixes: &[String], indent: usize) -> String {
    // two more than there are characters, as PyTorch counts
    let mut line = text.len() - text.rfind('\n').map_or(0, |at| at + 1) + 2;
    for suffix in suffixes {
        if line + suffix.len() + 2 > LINE_WIDTH {
            text += &format!(",\n{}{suffix}", " ".repeat(indent));
            line = indent + suffix.len();
        } else {
            text += &format!(", {suffix}");
            line += suffix.len() + 2;
        }
    }
    text + ")"
}
