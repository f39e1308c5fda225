//! A guard that does not hold, in words.

use super::call_inputs::{CallInputs, UNKNOWN};
use super::guards::{Broken, CallNumber, Check, Guards, LeafGuard, What};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ir::{Device, Loc};
use maquette_ops::internals::default_device;
use maquette_ops::{GuardFailure, Remedy, Value};
use smallvec::smallvec;

impl Guards {
    /// The guard that a call breaks. `program` is the number of the program, `labels` are the names
    /// of its leaves.
    pub(crate) fn failure(
        &self,
        call: &CallInputs,
        program: usize,
        labels: &[String],
    ) -> Option<GuardFailure> {
        let mut symbols = smallvec![0; self.table.symbols().count()];
        let broken = self.broken_with(call, &mut symbols)?;
        let label = |leaf: usize| labels.get(leaf).map_or("", String::as_str);
        let value = |s: &SymbolId| {
            let value = symbols.get(s.index()).copied().unwrap_or_default();
            format!("{} = {value}", self.table.name(*s))
        };
        let (required, found, loc) = match broken {
            Broken::Operators => {
                let op = self.operators.changed().map_or("an operator", |op| op.name());
                (format!("the registrations of {op}"), "later ones".to_owned(), None)
            }
            Broken::GradMode => {
                let name = |enabled| if enabled { "recording of derivatives" } else { "`no_grad`" };
                (name(self.grad_enabled).to_owned(), name(!self.grad_enabled).to_owned(), None)
            }
            Broken::DefaultDevice => {
                let name = |device: Device| format!("the default device {device}");
                (name(self.default_device), name(default_device()), None)
            }
            Broken::Structure => match self.spec.difference(&call.spec) {
                Some((path, required, found)) => {
                    let part = if path.is_empty() { String::new() } else { format!(" `{path}`") };
                    (format!("the input{part} is {required}"), found, None)
                }
                None => ("another structure".to_owned(), "this one".to_owned(), None),
            },
            Broken::Leaf(leaf) => {
                let (required, found) = self.leaf_failure(leaf, label(leaf), call);
                (required, found, None)
            }
            Broken::Check(check) => {
                let number = self.about.get(check)?;
                let numbers = |at: u32, n: u32| {
                    call.numbers.get(at as usize..(at + n) as usize).unwrap_or_default()
                };
                if let Some(&Check::IsRowMajor { at, rank }) = self.checks.get(check) {
                    let required = format!("`{}` is row-major", label(number.leaf));
                    let found = format!("strides {:?}", numbers(at + rank, rank));
                    let remedy = Some(Remedy::DynamicSize);
                    return Some(GuardFailure { program, required, found, loc: None, remedy });
                }
                let found = match self.number(check).and_then(|at| call.numbers.get(at as usize)) {
                    Some(&UNKNOWN) | None => "a symbol".to_owned(),
                    Some(n) => n.to_string(),
                };
                let what = self.check_text(check, label(number.leaf));
                let expr = match self.checks.get(check) {
                    Some(Check::IsExpr { expr, .. }) => self.table.free_symbols(*expr).to_vec(),
                    Some(Check::IsSymbol { symbol, .. }) => vec![*symbol],
                    _ => Vec::new(),
                };
                let values: Vec<String> = expr.iter().map(value).collect();
                let required = match values.is_empty() {
                    true => what,
                    false => format!("{what}, where {}", values.join(", ")),
                };
                (required, found, self.pin(*number))
            }
            Broken::Condition(i) => {
                let (condition, loc) = *self.conditions.get(i)?;
                let values: Vec<String> =
                    self.table.free_symbols_bool(condition).iter().map(value).collect();
                let condition = self.table.display_bool(condition);
                (format!("`{condition}`"), values.join(", "), loc)
            }
            Broken::Sharing => {
                let found = match self.sharing.first(call) {
                    Some((leaf, Some(other))) => {
                        format!("`{}` and `{}`, which do", label(leaf), label(other))
                    }
                    Some((leaf, None)) => {
                        format!("`{}`, which shares memory with a captured tensor", label(leaf))
                    }
                    None => "inputs that do not".to_owned(),
                };
                (self.sharing_text().to_owned(), found, None)
            }
        };
        Some(GuardFailure { program, required, found, loc, remedy: self.remedy(broken) })
    }

    /// How the inputs could be given so that one program serves them all.
    fn remedy(&self, broken: Broken) -> Option<Remedy> {
        match broken {
            Broken::Leaf(leaf) => match self.leaves.get(leaf)? {
                LeafGuard::Fixed(Value::Float(_)) => Some(Remedy::FloatAsTensor),
                LeafGuard::Fixed(Value::Int(_)) => Some(Remedy::IntegerAsSymbol),
                LeafGuard::Fixed(_) | LeafGuard::Tensor(_) | LeafGuard::Integer => None,
            },
            Broken::Check(check) => {
                let number = self.about.get(check)?;
                match number.what {
                    What::Size(dim)
                        if self.pinned.iter().any(|(l, d, _)| (*l, *d) == (number.leaf, dim)) =>
                    {
                        Some(Remedy::SizeAsSymbol)
                    }
                    What::Size(_) | What::Stride(_) | What::Strides => Some(Remedy::DynamicSize),
                    What::Value => Some(Remedy::SizeAsSymbol),
                    What::Offset => None,
                }
            }
            Broken::Operators
            | Broken::GradMode
            | Broken::DefaultDevice
            | Broken::Structure
            | Broken::Condition(_)
            | Broken::Sharing => None,
        }
    }

    /// What the program requires of inputs that share memory.
    fn sharing_text(&self) -> &'static str {
        if self.sharing.is_of_one_pattern() {
            "that the same inputs share memory which the program writes, since it has derivatives"
        } else if self.sharing.shared {
            "inputs that share memory which the program writes"
        } else {
            "no inputs that share memory which the program writes"
        }
    }

    fn leaf_failure(&self, leaf: usize, label: &str, call: &CallInputs) -> (String, String) {
        let found = call.values.get(leaf);
        let kind = found.map_or_else(String::new, |v| v.kind().to_string());
        match (self.leaves.get(leaf), found) {
            (Some(LeafGuard::Tensor(class)), Some(Value::Tensor(t))) => {
                let (what, required, found) = if class.rank != t.dim() {
                    ("the rank", class.rank.to_string(), t.dim().to_string())
                } else if class.dtype != t.dtype() {
                    ("the dtype", class.dtype.to_string(), t.dtype().to_string())
                } else if class.device != t.device() {
                    ("the device", class.device.to_string(), t.device().to_string())
                } else {
                    ("the layout", class.layout.to_string(), t.layout().to_string())
                };
                (format!("{what} of `{label}` is {required}"), found)
            }
            (Some(LeafGuard::Fixed(value)), _) => (format!("`{label}` is {}", value.kind()), kind),
            (Some(LeafGuard::Integer), _) => (format!("`{label}` is an integer"), kind),
            _ => (format!("`{label}` is a tensor"), kind),
        }
    }

    /// The line that pins a size.
    fn pin(&self, number: CallNumber) -> Option<Loc> {
        let pinned = |(leaf, dim, _): &&(usize, usize, Option<Loc>)| {
            *leaf == number.leaf && What::Size(*dim) == number.what
        };
        self.pinned.iter().find(pinned).and_then(|(.., loc)| *loc)
    }

    /// The position of the number that a check compares.
    fn number(&self, check: usize) -> Option<u32> {
        match *self.checks.get(check)? {
            Check::Is { at, .. }
            | Check::Binds { at, .. }
            | Check::IsSymbol { at, .. }
            | Check::IsExpr { at, .. } => Some(at),
            Check::IsRowMajor { .. } | Check::SkipIfEmpty { .. } | Check::SkipIfOne { .. } => None,
        }
    }

    /// A check in words.
    fn check_text(&self, check: usize, label: &str) -> String {
        let Some((number, check)) = self.about.get(check).zip(self.checks.get(check)) else {
            return String::new();
        };
        let what = match number.what {
            What::Size(dim) => format!("size {dim} of `{label}`"),
            What::Stride(dim) => format!("stride {dim} of `{label}`"),
            What::Strides => format!("the strides of `{label}`"),
            What::Offset => format!("the storage offset of `{label}`"),
            What::Value => format!("`{label}`"),
        };
        let expr = |e: Expr| self.table.display(e).to_string();
        match check {
            Check::Is { n, .. } => format!("{what} is {n}"),
            Check::Binds { range, .. } => format!("{what} is in {range}"),
            Check::IsSymbol { symbol, .. } => format!("{what} is `{}`", self.table.name(*symbol)),
            Check::IsExpr { expr: e, .. } => format!("{what} is `{}`", expr(*e)),
            Check::IsRowMajor { .. } => format!("`{label}` is row-major"),
            Check::SkipIfEmpty { .. } | Check::SkipIfOne { .. } => String::new(),
        }
    }

    /// What a program requires besides its inputs' types, a line each: for `explain`.
    pub(crate) fn requirements(&self, labels: &[String]) -> Vec<String> {
        let at = |loc: Option<Loc>| loc.map_or_else(String::new, |loc| format!(", at {loc}"));
        let mut lines: Vec<String> = Vec::new();
        if !self.grad_enabled {
            lines.push("a call inside `no_grad`".to_owned());
        }
        if self.default_device != Device::Cpu {
            lines.push(format!("the default device {}", self.default_device));
        }
        for &(leaf, dim, loc) in &self.pinned {
            let label = labels.get(leaf).map_or("", String::as_str);
            lines.push(format!("size {dim} of `{label}` is one number{}", at(loc)));
        }
        for (check, number) in self.about.iter().enumerate() {
            if number.what == What::Offset {
                let label = labels.get(number.leaf).map_or("", String::as_str);
                lines.push(self.check_text(check, label));
            }
        }
        for (condition, loc) in &self.conditions {
            lines.push(format!("`{}`{}", self.table.display_bool(*condition), at(*loc)));
        }
        if self.sharing.depends_on_inputs() {
            lines.push(self.sharing_text().to_owned());
        }
        lines
    }
}
