//! The guards of a compiled program: everything about a call's inputs under which it is valid.
//!
//! The trace was made for one call. [`Guards::new`] turns its assumptions into a flat list of
//! [`Check`]s over the numbers of a call ([`CallInputs::numbers`]): a static size is compared with
//! a number; the first size that is a symbol alone binds the symbol; every other size and stride is
//! compared with an expression. The conditions on which the program branched follow.
//!
//! **Invariant.** A call that passes has the metadata that the graph declares for its inputs, up to
//! strides that address nothing: those of empty tensors and of dimensions of size 1. The
//! interpreter's checks of inputs and guards then pass.
//!
//! **Cost.** Linear in the number of sizes and strides, with one evaluation for each expression and
//! condition. For the numbers that were accepted last, one comparison each ([`AcceptedNumbers`]). A
//! check allocates nothing, for up to 16 symbols.

use super::accepted::AcceptedNumbers;
use super::call_inputs::{CallInputs, TensorClass, equal};
use super::sharing::SharingGuard;
use crate::operators::OperatorGuard;
use maquette_ir::graph::{Graph, TensorType, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, Range, SymTable, SymbolId, SymbolKind};
use maquette_ir::{Device, Loc};
use maquette_ops::autograd::is_grad_enabled;
use maquette_ops::internals::default_device;
use maquette_ops::tree::TreeSpec;
use maquette_ops::{Error, Result, Value};
use maquette_runtime::LayoutStamp;
use maquette_trace::{LeafKind, TracedProgram};
use smallvec::{SmallVec, smallvec};

/// The guards of one program.
#[derive(Debug)]
pub(crate) struct Guards {
    pub(super) spec: TreeSpec,
    pub(super) leaves: Vec<LeafGuard>,
    pub(super) checks: Vec<Check>,
    /// For each check: the number that it is about.
    pub(super) about: Vec<CallNumber>,
    pub(super) conditions: Vec<(BoolExpr, Option<Loc>)>,
    /// The symbols in expressions and conditions.
    pub(super) table: SymTable,
    symbols: usize,
    accepted: AcceptedNumbers,
    pub(super) sharing: SharingGuard,
    pub(super) operators: OperatorGuard,
    /// Whether calls recorded derivatives while the program was traced.
    pub(super) grad_enabled: bool,
    /// The device on which the call made tensors from nothing.
    pub(super) default_device: Device,
    /// The sizes that would be symbols, had the program not required one number of them: the leaf,
    /// the dimension and the line.
    pub(super) pinned: Vec<(usize, usize, Option<Loc>)>,
}

/// What a leaf must be, apart from its numbers.
#[derive(Debug)]
pub(crate) enum LeafGuard {
    Tensor(TensorClass),
    Integer,
    /// A number that is part of the program.
    Fixed(Value),
}

/// A step of the check of a call's numbers; `at` is the position of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// The number is `n`.
    Is { at: u32, n: i64 },
    /// The number is the value of a symbol, and in its range.
    Binds { at: u32, symbol: SymbolId, range: Range },
    /// The number is that of a symbol that is bound.
    IsSymbol { at: u32, symbol: SymbolId },
    /// The number is the value of an expression of bound symbols.
    IsExpr { at: u32, expr: Expr },
    /// The tensor whose `rank` sizes and then strides are from `at` on is row-major, or empty.
    IsRowMajor { at: u32, rank: u32 },
    /// If any of `rank` numbers from `at` on is 0, the next `checks` are left out.
    SkipIfEmpty { at: u32, rank: u32, checks: u32 },
    /// If the number is 1, the next check is left out.
    SkipIfOne { at: u32 },
}

/// A number of a call: the leaf that has it, and which property of the leaf it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallNumber {
    pub(super) leaf: usize,
    pub(super) what: What,
}

/// A property of a leaf that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Size(usize),
    Stride(usize),
    Strides,
    Offset,
    Value,
}

/// A guard that does not hold. A greater one was checked later: the call met more of the guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    Operators,
    GradMode,
    DefaultDevice,
    Structure,
    Leaf(usize),
    Check(usize),
    Condition(usize),
    Sharing,
}

/// The values of symbols, by their indices.
pub(super) type Symbols = SmallVec<[i64; 16]>;

impl Guards {
    /// The guards of a program that was traced for a call. `pinned` is the field of this name;
    /// `offsets` tells whether inputs must begin where those of the call do.
    ///
    /// # Errors
    /// The graph is not one that a trace makes.
    pub(crate) fn new(
        program: &TracedProgram,
        sharing: SharingGuard,
        operators: OperatorGuard,
        pinned: Vec<(usize, usize, Option<Loc>)>,
        offsets: bool,
    ) -> Result<Guards> {
        let TracedProgram { graph, interface, .. } = program;
        let mut guards = Guards {
            spec: interface.in_spec.clone(),
            leaves: Vec::new(),
            checks: Vec::new(),
            about: Vec::new(),
            conditions: graph
                .guards()
                .iter()
                .enumerate()
                .map(|(i, &guard)| (guard, graph.guard_loc(i)))
                .collect(),
            table: graph.symbols().clone(),
            symbols: graph.symbols().symbols().count(),
            accepted: AcceptedNumbers::new(0),
            sharing,
            operators,
            grad_enabled: is_grad_enabled(),
            default_device: default_device(),
            pinned,
        };
        let count = guards.add_leaves(graph, &interface.inputs, offsets)?;
        guards.accepted = AcceptedNumbers::new(count as usize);
        guards.require_bound(graph)?;
        Ok(guards)
    }

    /// Adds the checks of all leaves. Those that bind symbols and compare with numbers come first:
    /// expressions may use symbols that a later leaf binds. Returns how many numbers a call has.
    fn add_leaves(&mut self, graph: &Graph, kinds: &[LeafKind], offsets: bool) -> Result<u32> {
        let mut inputs = graph.inputs().iter();
        let mut at = 0;
        let mut later: Vec<(usize, u32, &TensorType, bool)> = Vec::new();
        for (leaf, kind) in kinds.iter().enumerate() {
            let guard = match kind {
                LeafKind::Fixed(value) => {
                    at += u32::from(matches!(value, Value::Int(_)));
                    LeafGuard::Fixed(value.clone())
                }
                LeafKind::Input => match inputs.next().map(|v| graph.value_type(*v)) {
                    Some(ValueType::Tensor(id)) => {
                        let ty = graph.type_of(id);
                        for (dim, &size) in ty.sizes.iter().enumerate() {
                            self.add_number(leaf, What::Size(dim), at + dim as u32, size, true);
                        }
                        later.push((leaf, at, ty, graph.is_contiguous(id)));
                        let rank = ty.sizes.len();
                        at += 2 * rank as u32 + 1;
                        let (dtype, device, layout) = (ty.dtype, ty.device, ty.layout);
                        LeafGuard::Tensor(TensorClass { dtype, device, layout, rank })
                    }
                    Some(ValueType::Int(e)) => {
                        self.add_number(leaf, What::Value, at, e, true);
                        at += 1;
                        LeafGuard::Integer
                    }
                    _ => return Err(Error::value("a traced graph has an input without a leaf")),
                },
            };
            self.leaves.push(guard);
        }
        for (leaf, at, ty, is_row_major) in later {
            self.add_expressions(leaf, at, ty, offsets);
            self.add_strides(leaf, at, ty, is_row_major);
        }
        Ok(at)
    }

    /// Adds the checks of sizes that are expressions, and of the offset.
    fn add_expressions(&mut self, leaf: usize, at: u32, ty: &TensorType, offset: bool) {
        let rank = ty.sizes.len() as u32;
        for (dim, &size) in ty.sizes.iter().enumerate() {
            self.add_number(leaf, What::Size(dim), at + dim as u32, size, false);
        }
        if offset && let Expr::Int(n) = ty.offset {
            self.push(leaf, What::Offset, Check::Is { at: at + 2 * rank, n });
        }
    }

    /// Adds the checks of strides, as far as they address anything.
    fn add_strides(&mut self, leaf: usize, at: u32, ty: &TensorType, is_row_major: bool) {
        let rank = ty.sizes.len() as u32;
        if ty.sizes.contains(&Expr::Int(0)) {
            return;
        }
        let start = self.checks.len();
        let may_be_empty = ty.sizes.iter().any(|e| e.as_i64().is_none());
        if may_be_empty && is_row_major {
            // the sizes themselves give the strides, without an expression
            self.push(leaf, What::Strides, Check::IsRowMajor { at, rank });
            return;
        }
        if may_be_empty {
            let skip = Check::SkipIfEmpty { at, rank, checks: 0 };
            self.push(leaf, What::Size(0), skip);
        }
        for (dim, (&size, &stride)) in ty.sizes.iter().zip(&ty.strides).enumerate() {
            let (what, size_at) = (What::Stride(dim), at + dim as u32);
            match size {
                Expr::Int(1) => continue,
                Expr::Int(_) => {}
                Expr::Id(_) => self.push(leaf, what, Check::SkipIfOne { at: size_at }),
            }
            let stride_at = size_at + rank;
            match stride {
                Expr::Int(n) => self.push(leaf, what, Check::Is { at: stride_at, n }),
                expr => {
                    let check = match self.symbol(expr) {
                        Some(symbol) => Check::IsSymbol { at: stride_at, symbol },
                        None => Check::IsExpr { at: stride_at, expr },
                    };
                    self.push(leaf, what, check);
                }
            }
        }
        let added = self.checks.len() - start;
        if let (true, Some(Check::SkipIfEmpty { checks, .. })) =
            (may_be_empty, self.checks.get_mut(start))
        {
            *checks = (added - 1) as u32;
        }
    }

    /// Adds the check of a size or value: in the first pass, unless it is an expression; in the
    /// second one, if it is.
    fn add_number(&mut self, leaf: usize, what: What, at: u32, e: Expr, first_pass: bool) {
        let check = match e {
            Expr::Int(n) => Some(Check::Is { at, n }),
            e => self.symbol(e).map(|symbol| match self.is_bound(symbol) {
                true => Check::IsSymbol { at, symbol },
                false => Check::Binds { at, symbol, range: self.table.range(symbol).in_practice() },
            }),
        };
        match (check, first_pass) {
            (Some(check), true) => self.push(leaf, what, check),
            (None, false) => self.push(leaf, what, Check::IsExpr { at, expr: e }),
            _ => {}
        }
    }

    /// The symbol that an expression is.
    fn symbol(&mut self, e: Expr) -> Option<SymbolId> {
        let [symbol] = self.table.free_symbols(e)[..] else { return None };
        (self.table.expr(symbol) == e).then_some(symbol)
    }

    fn is_bound(&self, symbol: SymbolId) -> bool {
        self.checks.iter().any(|c| matches!(c, Check::Binds { symbol: s, .. } if *s == symbol))
    }

    fn push(&mut self, leaf: usize, what: What, check: Check) {
        self.checks.push(check);
        self.about.push(CallNumber { leaf, what });
    }

    /// # Errors
    /// An input does not bind a symbol of a guard or an input's type.
    fn require_bound(&self, graph: &Graph) -> Result<()> {
        let backed = |s: &SymbolId| graph.symbols().kind(*s) == SymbolKind::Backed;
        match self.table.symbols().filter(backed).find(|s| !self.is_bound(*s)) {
            None => Ok(()),
            Some(s) => {
                let name = self.table.name(s);
                Err(Error::value(format!("no size of an input is the symbol `{name}`")))
            }
        }
    }

    /// Whether a call satisfies the guards. Returns the stamp of its numbers, if they are kept.
    ///
    /// # Errors
    /// The first guard that the call breaks.
    pub(crate) fn check(&self, call: &CallInputs) -> Result<Option<LayoutStamp>, Broken> {
        if let Some(broken) = self.broken_structure(call) {
            return Err(broken);
        }
        let stamp = match self.accepted.stamp_of(&call.numbers) {
            Some(stamp) => Some(stamp),
            None => {
                let mut symbols: Symbols = smallvec![0; self.symbols];
                if let Some(broken) = self.broken_numbers(call, &mut symbols) {
                    return Err(broken);
                }
                self.accepted.set(&call.numbers)
            }
        };
        if self.sharing.holds(call) { Ok(stamp) } else { Err(Broken::Sharing) }
    }

    /// The guard that [`Guards::check`] finds; `symbols` gets the values that were bound until
    /// then.
    pub(super) fn broken_with(&self, call: &CallInputs, symbols: &mut Symbols) -> Option<Broken> {
        let sharing = || (!self.sharing.holds(call)).then_some(Broken::Sharing);
        self.broken_structure(call).or_else(|| self.broken_numbers(call, symbols)).or_else(sharing)
    }

    /// The first guard that a call breaks, other than those of its numbers and of sharing.
    fn broken_structure(&self, call: &CallInputs) -> Option<Broken> {
        if !self.operators.holds() {
            return Some(Broken::Operators);
        }
        if self.grad_enabled != is_grad_enabled() {
            return Some(Broken::GradMode);
        }
        if self.default_device != default_device() {
            return Some(Broken::DefaultDevice);
        }
        if self.spec != call.spec {
            return Some(Broken::Structure);
        }
        for (i, (guard, leaf)) in self.leaves.iter().zip(&call.values).enumerate() {
            let holds = match (guard, leaf) {
                (LeafGuard::Tensor(class), Value::Tensor(t)) => *class == TensorClass::of(t.meta()),
                (LeafGuard::Integer, Value::Int(_)) => true,
                (LeafGuard::Fixed(expected), found) => equal(expected, found),
                _ => false,
            };
            if !holds {
                return Some(Broken::Leaf(i));
            }
        }
        None
    }
}
