//! Operators as [loop nests](maquette_ir::loops): how a lowering builds the nest of a call, and how
//! a call runs it.
//!
//! A nest depends on the operator, the dtypes and ranks of its tensors, and the values that the
//! lowering asks for. Sizes are symbols and numbers are launch scalars, so that another size or
//! another number runs the same nest. Each value that a lowering asks for is recorded as a check:
//! a later call with another value builds a nest of its own.

mod cache;
mod checks;
mod launch;

use checks::{Arg, Check, Size, size_of};
pub(crate) use launch::{PlacedNest, SymbolValues, explained, run};

use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use crate::tensor::shape::wrap_dim;
use maquette_ir::loops::named::Input;
use maquette_ir::loops::{Axes, AxisId, LoopBuilder, LoopError, ScalarId, StageOutput};
use maquette_ir::sym::Expr;
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::ops::Range;

/// The results of a nest, in the order of the operator's tensor results.
pub type NestResults = SmallVec<[StageOutput; 2]>;

/// Builds the nest of a call.
pub type BuildNest = fn(&mut NestCx<'_>) -> Result<NestResults>;

/// The error of a call whose data a nest refused, in the operator's words.
pub type Explain = fn(&[Value]) -> Result<Error>;

/// The context in which a lowering builds the nest of a call. It gives access to what a nest may
/// depend on, and records what it depends on beyond dtypes and ranks.
pub struct NestCx<'a> {
    /// The nest.
    pub nest: LoopBuilder,
    args: &'a [Value],
    results: &'a [Meta],
    operands: SmallVec<[Operand; 4]>,
    result_view: Option<ViewResult>,
    symbols: SmallVec<[Size; 8]>,
    numbers: SmallVec<[Arg; 4]>,
    updates: SmallVec<[u8; 2]>,
    explain: Option<Explain>,
    checks: Vec<Check>,
}

/// Gives an operand from the arguments of a call: a view of one, or a copy where there is no view.
pub type ViewOperand = fn(&[Value]) -> Result<Tensor>;

/// Gives the view of the only result that a nest writes.
pub type ViewResult = fn(&[Value], &Tensor) -> Result<Tensor>;

/// Where a nest takes an operand from.
#[derive(Clone, Copy, Debug)]
enum Operand {
    Arg(Arg),
    View(ViewOperand),
}

impl<'a> NestCx<'a> {
    fn new(args: &'a [Value], results: &'a [Meta]) -> NestCx<'a> {
        NestCx {
            nest: LoopBuilder::new(maquette_ir::sym::SymTable::new()),
            args,
            results,
            operands: SmallVec::new(),
            result_view: None,
            symbols: SmallVec::new(),
            numbers: SmallVec::new(),
            updates: SmallVec::new(),
            explain: None,
            checks: Vec::new(),
        }
    }

    /// The arguments. A nest may depend on their dtypes and ranks, on flags and lengths of lists.
    pub fn args(&self) -> &'a [Value] {
        self.args
    }

    /// Whether an optional argument is absent.
    pub fn is_none(&self, arg: usize) -> bool {
        self.args.get(arg).is_none_or(Value::is_none)
    }

    /// Argument `arg`, a tensor, as an operand with an axis for each dimension.
    ///
    /// # Errors
    /// The argument is not a tensor.
    pub fn input(&mut self, arg: usize) -> Result<Input> {
        let args = self.args;
        let t = args[arg].tensor()?;
        Ok(self.operand(Operand::Arg(Arg::of(arg)), t))
    }

    /// As [`NestCx::input`], for an optional tensor.
    ///
    /// # Errors
    /// The argument is neither absent nor a tensor.
    pub fn optional_input(&mut self, arg: usize) -> Result<Option<Input>> {
        let args = self.args;
        let t = args.get(arg).map_or(Ok(None), Value::opt_tensor)?;
        Ok(t.map(|t| self.operand(Operand::Arg(Arg::of(arg)), t)))
    }

    /// The tensor that `view` gives for a call, as an operand. Its dtype and rank depend on no
    /// value that the nest does not.
    ///
    /// # Errors
    /// The error of `view`.
    pub fn view(&mut self, view: ViewOperand) -> Result<Input> {
        let t = view(self.args)?;
        Ok(self.operand(Operand::View(view), &t))
    }

    /// Makes the nest write a view of the only result.
    pub fn view_result(&mut self, view: ViewResult) {
        self.result_view = Some(view);
    }

    fn operand(&mut self, of: Operand, t: &Tensor) -> Input {
        let operand = self.operands.len() as u8;
        self.operands.push(of);
        let sizes = (0..t.dim() as u8).map(|dim| Size::Operand { operand, dim });
        self.symbols.extend(sizes);
        self.nest.input(t.dtype(), t.dim())
    }

    /// An axis for each dimension of a result. Its extent is the size of the dimension.
    pub fn result_axes(&mut self, result: usize) -> Axes {
        self.result_axes_in(result, 0..self.result_rank(result))
    }

    /// As [`NestCx::result_axes`], for some dimensions of the result.
    pub fn result_axes_in(&mut self, result: usize, dims: Range<usize>) -> Axes {
        dims.map(|dim| {
            self.symbols.push(Size::Result { result: result as u8, dim: dim as u8 });
            let size = self.nest.new_size();
            self.nest.axis(size)
        })
        .collect()
    }

    /// The number of results.
    pub fn results(&self) -> usize {
        self.results.len()
    }

    /// The rank of a result.
    pub fn result_rank(&self, result: usize) -> usize {
        self.results.get(result).map_or(0, |m| m.sizes.len())
    }

    /// The dtype of a result.
    pub fn result_dtype(&self, result: usize) -> DType {
        self.results.get(result).map_or(DType::Bool, |m| m.dtype)
    }

    /// The value of argument `arg`, an integer, as a size. It is not read.
    ///
    /// # Errors
    /// The argument is not an integer.
    pub fn size(&mut self, arg: usize) -> Result<Expr> {
        self.args[arg].int()?;
        self.symbols.push(Size::Number(Arg::of(arg)));
        Ok(self.nest.new_size())
    }

    /// The number in argument `arg` as a launch scalar of a dtype. It is not read: another number
    /// runs the same nest.
    ///
    /// # Errors
    /// The argument is not a number.
    pub fn number(&mut self, arg: usize, dtype: DType) -> Result<ScalarId> {
        self.add_number(Arg::of(arg), dtype)
    }

    /// As [`NestCx::number`], for an element of a list of integers.
    ///
    /// # Errors
    /// The argument is not a list of integers with such an element.
    pub fn number_of(&mut self, arg: usize, element: usize) -> Result<ScalarId> {
        self.add_number(Arg { index: arg as u8, element: Some(element as u32) }, DType::I64)
    }

    fn add_number(&mut self, arg: Arg, dtype: DType) -> Result<ScalarId> {
        arg.scalar(self.args)?;
        self.numbers.push(arg);
        Ok(self.nest.number(dtype))
    }

    /// The value of argument `arg`, an integer. The nest is built for this value.
    ///
    /// # Errors
    /// The argument is not an integer.
    pub fn int(&mut self, arg: usize) -> Result<i64> {
        let value = self.args[arg].int_i64()?;
        self.checks.extend(Check::int(Arg::of(arg), self.args));
        Ok(value)
    }

    /// Calls `f` with the arguments. The nest is built for all of their integers, of which it must
    /// depend alone, and on what the key of the cache has: dtypes, ranks and flags.
    ///
    /// # Errors
    /// The error of `f`.
    pub fn by_integers<R>(&mut self, f: impl FnOnce(&[Value]) -> Result<R>) -> Result<R> {
        let all: SmallVec<[usize; 8]> = (0..self.args.len()).collect();
        self.by_integers_in(&all, f)
    }

    /// As [`NestCx::by_integers`], of the integers in some arguments alone.
    ///
    /// # Errors
    /// The error of `f`.
    pub fn by_integers_in<R>(
        &mut self,
        args: &[usize],
        f: impl FnOnce(&[Value]) -> Result<R>,
    ) -> Result<R> {
        for &index in args {
            let (whole, value) = (Arg::of(index), &self.args[index]);
            match value {
                Value::Int(_) => self.checks.extend(Check::int(whole, self.args)),
                Value::Ints(ints) => {
                    let elements =
                        (0..ints.len() as u32).map(|i| Arg { element: Some(i), ..whole });
                    self.checks.extend(elements.filter_map(|arg| Check::int(arg, self.args)));
                }
                _ => {}
            }
        }
        f(self.args)
    }

    /// Whether a condition on the arguments holds. The nest is built for this answer.
    pub fn holds(&mut self, condition: fn(&[Value]) -> bool) -> bool {
        let answer = condition(self.args);
        self.checks.push(Check::Condition { holds: condition, answer });
        answer
    }

    /// Makes an output of the nest the new value of argument `arg`, a tensor that the operator
    /// mutates. The nest has these outputs after the results, in the order of these calls. It reads
    /// the old value.
    pub fn update(&mut self, arg: usize) {
        self.updates.push(arg as u8);
    }

    /// Sets the function that finds the error of a call of which a position was out of bounds or an
    /// assertion did not hold. It may read the data again.
    pub fn explain(&mut self, explain: Explain) {
        self.explain = Some(explain);
    }

    /// The number of elements of argument `arg`, a list of integers. The key of the cache has it.
    ///
    /// # Errors
    /// The argument is not a list of integers.
    pub fn len(&self, arg: usize) -> Result<usize> {
        Ok(self.args[arg].ints()?.len())
    }

    /// The number in argument `arg`. The nest is built for this value.
    ///
    /// # Errors
    /// The argument is not a number.
    pub fn scalar(&mut self, arg: usize) -> Result<Scalar> {
        let value = self.args[arg].scalar()?;
        let arg = Arg::of(arg);
        self.checks.extend(match value {
            // The key of the cache has it.
            Scalar::Bool(_) => None,
            Scalar::Int(value) => Some(Check::Int { arg, value }),
            Scalar::Float(x) => Some(Check::Float { arg, bits: x.to_bits() }),
        });
        Ok(value)
    }

    /// Whether the number in argument `arg` is 0. The nest is built for the answer.
    ///
    /// # Errors
    /// The argument is not a number.
    pub fn is_zero(&mut self, arg: usize) -> Result<bool> {
        let holds = !self.args[arg].scalar()?.to_bool();
        self.checks.push(Check::IsZero { arg: Arg::of(arg), holds });
        Ok(holds)
    }

    /// Whether a dimension of argument `arg`, a tensor, has this size. The nest is built for the
    /// answer.
    ///
    /// # Errors
    /// The argument is not a tensor with such a dimension.
    pub fn has_size(&mut self, arg: usize, dim: usize, size: i64) -> Result<bool> {
        let of = Arg::of(arg);
        let found = size_of(of, dim, self.args).ok_or_else(|| no_dim(arg, dim))?;
        let holds = found == size;
        self.checks.push(Check::HasSize { arg: of, dim: dim as u8, size, holds });
        Ok(holds)
    }

    /// The flag in argument `arg`. The key of the cache has it.
    ///
    /// # Errors
    /// The argument is not a bool.
    pub fn flag(&self, arg: usize) -> Result<bool> {
        self.args[arg].bool()
    }

    /// The axis of `x` that argument `arg` names. A 0-d tensor has an axis of one iteration.
    ///
    /// # Errors
    /// The argument is not a dimension of `x`.
    pub fn axis(&mut self, x: &Input, arg: usize) -> Result<AxisId> {
        let dim = wrap_dim(self.int(arg)?, x.axes.len())?;
        Ok(x.axes.get(dim).copied().unwrap_or_else(|| self.nest.unit_axis()))
    }
}

fn no_dim(arg: usize, dim: usize) -> Error {
    Error::value(format!("argument {arg} has no dimension {dim}"))
}

impl From<LoopError> for Error {
    fn from(e: LoopError) -> Error {
        Error::value(format!("the loop nest of the operator: {e}"))
    }
}
