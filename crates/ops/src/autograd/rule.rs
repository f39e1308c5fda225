//! The derivative of an operator, as its table entry or its registration gives it.

use super::AutogradRule;
use super::collected::Collected;
use super::grad_mode::is_grad_enabled;
use super::node::{Edge, Edges, Grads};
use super::saved::SavedCall;
use crate::dispatch::value::Value;
use crate::error::{AutogradError, Error, Result};
use crate::library::Op;
use crate::operator::OpDef;
use crate::operator::lowering::CompositeFn;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::SymInt;
use std::cell::RefCell;
use std::fmt;

/// The derivative of a builtin operator.
pub enum Derivative {
    /// That of its scalar expression.
    Expression,
    /// That of the operators that it calls. In-place operators have that of the functional one.
    Parts,
    /// That of the operators that the function calls. Where a gradient is needed, they are called
    /// in place of this one.
    Calls(CompositeFn),
    /// A rule.
    Rule(RuleDef),
    /// There is none, for this reason. Results do not require gradients.
    None(&'static str),
    /// There is none, for this reason. A sweep that reaches a call of the operator fails.
    Refused(&'static str),
}

impl fmt::Display for Derivative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Derivative::Expression => f.write_str("expression"),
            Derivative::Parts | Derivative::Calls(_) => f.write_str("parts"),
            Derivative::Rule(_) => f.write_str("rule"),
            Derivative::None(why) => write!(f, "none: {why}"),
            Derivative::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

/// A rule in a table.
pub struct RuleDef {
    /// What the rule reads.
    pub saves: &'static [Saved],
    /// Computes the gradients of the operands.
    pub backward: fn(&Backward<'_>) -> Result<()>,
}

/// Results with zeros as gradients, since the function is constant almost everywhere.
pub const ZEROS: RuleDef = RuleDef { saves: &[], backward: |b| b.set(0, || b.grad().zeros_like()) };

/// A tensor of a call that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The tensors in an argument, by its index.
    Input(usize),
    /// As [`Saved::Input`], if the second argument needs a gradient.
    InputFor(usize, usize),
    /// A result, by its index.
    Output(usize),
}

impl Saved {
    pub(crate) fn reads_input(self, argument: usize, needs: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Saved::Input(i) => i == argument,
            Saved::InputFor(i, of) => i == argument && needs(of),
            Saved::Output(_) => false,
        }
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Saved::Input(i) | Saved::InputFor(i, _) => write!(f, "operand {i}"),
            Saved::Output(i) => write!(f, "result {i}"),
        }
    }
}

/// A rule, ready to run.
#[derive(Clone)]
pub(crate) enum Rule {
    Table(&'static RuleDef),
    /// A rule that was registered.
    Custom(AutogradRule),
    /// The derivative of the operator's scalar expression.
    Expression(&'static OpDef),
    /// There is no rule, which is an error if a sweep gets here; for a builtin operator, why.
    Missing(Option<&'static str>),
}

impl Rule {
    /// Whether the rule reads the tensors in an argument; `needs` says which arguments need
    /// gradients.
    pub(crate) fn reads_input(&self, argument: usize, needs: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Rule::Table(def) => def.saves.iter().any(|s| s.reads_input(argument, needs)),
            Rule::Expression(_) => true,
            Rule::Custom(_) | Rule::Missing(_) => false,
        }
    }

    /// Whether the rule reads a result.
    pub(crate) fn reads_output(&self, index: usize) -> bool {
        match self {
            Rule::Table(def) => def.saves.contains(&Saved::Output(index)),
            Rule::Expression(_) | Rule::Custom(_) | Rule::Missing(_) => false,
        }
    }

    fn run(&self, b: &Backward<'_>) -> Result<()> {
        match self {
            Rule::Table(def) => (def.backward)(b),
            Rule::Expression(def) => super::expression::backward(def, b),
            Rule::Missing(Some(why)) => {
                Err(AutogradError::Refused { op: b.call.op.name().to_owned(), why }.into())
            }
            Rule::Custom(_) | Rule::Missing(None) => {
                Err(AutogradError::NoRule { op: b.call.op.name().to_owned() }.into())
            }
        }
    }
}

/// One application of a rule: the gradients of the results, the saved parts of the call, and the
/// gradients of the operands, which the rule gives.
pub struct Backward<'a> {
    call: &'a SavedCall,
    next: &'a Edges,
    node: Edge,
    grads: &'a [Option<Tensor>],
    given: RefCell<Grads>,
    collected: RefCell<&'a mut Collected>,
}

impl<'a> Backward<'a> {
    /// Applies the rule of a call. `grads` are those of the results; `next` has an edge for each
    /// operand that needs a gradient.
    pub(crate) fn apply(
        call: &'a SavedCall,
        next: &'a Edges,
        node: Edge,
        grads: &'a [Option<Tensor>],
        collected: &'a mut Collected,
    ) -> Result<Grads> {
        let given = RefCell::new(smallvec::smallvec![None; next.len()]);
        let b = Backward { call, next, node, grads, given, collected: RefCell::new(collected) };
        let run = || {
            call.check_unwritten()?;
            call.rule.run(&b)
        };
        crate::mode::on_behalf_of(call.loc, run)
            .map_err(|e| e.in_call(call.op.shared_name(), call.loc))?;
        Ok(b.given.into_inner())
    }

    /// The line of the call.
    pub fn loc(&self) -> Loc {
        self.call.loc
    }

    /// The gradient of the first result; zeros if it has none.
    pub fn grad(&self) -> Tensor {
        self.grad_of(0)
    }

    /// The gradient of a result; zeros if it has none.
    pub fn grad_of(&self, result: usize) -> Tensor {
        match self.grads.get(result) {
            Some(Some(grad)) => grad.clone(),
            _ => match self.node.node.outputs.get(result) {
                Some(info) => info.zeros(),
                None => Tensor::poison(Error::value(format!("there is no result {result}"))),
            },
        }
    }

    /// Whether a result has a gradient that is not known to be zero.
    pub fn has_grad(&self, result: usize) -> bool {
        matches!(self.grads.get(result), Some(Some(_)))
    }

    /// The argument at an index of the schema, if it is not a tensor; `None` in place of a tensor.
    /// In place of a list with tensors, a list of whether each entry is one.
    pub fn arg(&self, argument: usize) -> &Value {
        self.call.args.get(argument).unwrap_or(&Value::None)
    }

    /// The saved tensor in an argument; poisoned if it was not saved.
    pub fn input(&self, argument: usize) -> Tensor {
        self.input_at(argument, 0)
    }

    /// The saved tensor at a position in a list.
    pub fn input_at(&self, argument: usize, position: usize) -> Tensor {
        let operand = self.operand(argument, position);
        operand.and_then(|i| self.call.input(i, self.next)).unwrap_or_else(Tensor::poison)
    }

    /// A saved result.
    pub fn output(&self, index: usize) -> Tensor {
        let edge = Edge { node: self.node.node.clone(), output: index as u32 };
        self.call.output(index, Some(&edge)).unwrap_or_else(Tensor::poison)
    }

    /// The operator.
    pub fn op(&self) -> Op {
        self.call.op
    }

    /// The number of arguments.
    pub fn arguments(&self) -> usize {
        self.call.args.len()
    }

    /// An argument with `of` of each of its tensors: the positions among these are those in its
    /// list.
    pub fn argument_with(
        &self,
        argument: usize,
        of: &mut dyn FnMut(usize) -> Result<Tensor>,
    ) -> Result<Value> {
        let n = self.tensors(argument);
        match self.arg(argument) {
            Value::List(places) if n > 0 => {
                let mut position = 0;
                let values = places.iter().map(|place| {
                    if !matches!(place, Value::Bool(true)) {
                        return Ok(Value::None);
                    }
                    position += 1;
                    of(position - 1).map(Value::Tensor)
                });
                Ok(Value::List(values.collect::<Result<_>>()?))
            }
            _ if n > 0 => of(0).map(Value::Tensor),
            other => Ok(other.clone()),
        }
    }

    /// An argument with its saved tensors.
    pub fn argument(&self, argument: usize) -> Result<Value> {
        self.argument_with(argument, &mut |position| {
            self.input_at(argument, position).ok().cloned()
        })
    }

    /// The number of tensors in an argument: 0 for an absent one.
    pub fn tensors(&self, argument: usize) -> usize {
        self.call.operands.get(argument).map_or(0, |(_, n)| *n as usize)
    }

    /// The metadata of the tensor in an argument.
    pub fn meta(&self, argument: usize) -> Result<&Meta> {
        self.meta_at(argument, 0)
    }

    /// The metadata of the tensor at a position in a list.
    pub fn meta_at(&self, argument: usize, position: usize) -> Result<&Meta> {
        Ok(&self.call.metas[self.operand(argument, position)?])
    }

    /// The number of tensors among the results.
    pub fn results(&self) -> usize {
        self.node.node.outputs.len()
    }

    /// The metadata of a result.
    pub fn result_meta(&self, result: usize) -> Result<&Meta> {
        let missing = || Error::value(format!("there is no result {result}"));
        self.call.results.get().and_then(|r| r.get(result)).ok_or_else(missing)
    }

    /// The sizes of the tensor in an argument.
    pub fn sizes(&self, argument: usize) -> Result<&[SymInt]> {
        Ok(&self.meta(argument)?.sizes)
    }

    /// Whether an argument needs a gradient; for a list, whether any of its tensors does.
    pub fn needs(&self, argument: usize) -> bool {
        let (first, n) = self.call.operands.get(argument).copied().unwrap_or_default();
        let of = first as usize..(first + n) as usize;
        self.next.get(of).is_some_and(|edges| edges.iter().any(Option::is_some))
    }

    /// Whether the tensor at a position in a list needs a gradient.
    pub fn needs_at(&self, argument: usize, position: usize) -> bool {
        self.operand(argument, position).is_ok_and(|i| self.next[i].is_some())
    }

    /// Gives the gradient of an argument, if it needs one. A gradient of broadcast sizes is summed,
    /// and converted to the argument's dtype.
    pub fn set(&self, argument: usize, grad: impl FnOnce() -> Tensor) -> Result<()> {
        self.set_at(argument, 0, grad)
    }

    /// As [`Backward::set`], at a position in a list.
    pub fn set_at(
        &self,
        argument: usize,
        position: usize,
        grad: impl FnOnce() -> Tensor,
    ) -> Result<()> {
        if self.needs_at(argument, position) {
            let i = self.operand(argument, position)?;
            let grad = grad();
            grad.alive()?;
            self.given.borrow_mut()[i] = Some(grad.reduced_to(&self.call.metas[i])?);
        }
        Ok(())
    }

    /// Adds to the gradient of argument 0: to what an earlier call gave, or the sweep has
    /// collected. `rule` is as in [`Collected::add`].
    pub fn add(&self, rule: impl FnOnce(Option<Tensor>) -> Result<Tensor>) -> Result<()> {
        if !self.needs(0) {
            return Ok(());
        }
        let given = self.given.borrow_mut()[self.operand(0, 0)?].take();
        let grad = match given {
            None => self.collected.borrow_mut().add(rule)?,
            Some(given) if is_grad_enabled() => given + rule(None)?,
            given => rule(given)?,
        };
        self.set(0, || grad)
    }

    /// The index among all tensor operands.
    fn operand(&self, argument: usize, position: usize) -> Result<usize> {
        match self.call.operands.get(argument) {
            Some(&(first, n)) if position < n as usize => Ok(first as usize + position),
            _ => Err(Error::value(format!("argument {argument} has no tensor {position}"))),
        }
    }
}

impl Tensor {
    /// The elements of a broadcast tensor, each once.
    fn first_repetition(&self, sizes: &[SymInt]) -> Tensor {
        let leading = self.dim().saturating_sub(sizes.len());
        let t = (0..leading).fold(self.clone(), |t, _| t.select(0, 0));
        (0..t.dim()).fold(t, |t, d| t.narrow(d as i64, 0, sizes[d]))
    }

    /// The gradient of an operand with this metadata that was broadcast and converted.
    fn reduced_to(self, to: &Meta) -> Result<Tensor> {
        let mut grad = self;
        let same = grad.dim() == to.rank()
            && grad
                .sizes()
                .iter()
                .zip(&to.sizes)
                .all(|(a, b)| a.eq(*b).statically_known() == Some(true));
        if !same && fault_injected(Fault::RepetitionsNotSummed) {
            grad = grad.first_repetition(&to.sizes);
        } else if !same {
            grad = grad.sum_to_size(&to.sizes);
        }
        if grad.dtype() != to.dtype {
            grad = grad.to_dtype(to.dtype);
        }
        grad.alive().cloned()
    }
}
