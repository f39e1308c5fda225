//! Functions as programs: an algebra whose operations are recorded.
//!
//! A recorder collects the operations of a function as steps without branches. A [`Value`] is a
//! number that is known while the function is recorded, or the result of a step.
//!
//! - An operation of known numbers is computed at once.
//! - An operation that was recorded before with the same operands is the same step. The cost is one
//!   lookup an operation.
//! - A [`Program`] has the steps that its result needs, in the order of the text.
//!
//! ```
//! use maquette_math::{record, single};
//!
//! let program = record::function(|x: record::Value<f32>| single::tanh(x));
//! assert!(program.to_c("static", "tanh_f32").starts_with("static float tanh_f32(float x0) {"));
//! ```

mod print;
mod value;

use crate::algebra::{Libm, Libm2};
use std::cell::RefCell;
use std::collections::HashMap;

pub use value::Value;

/// The functions of `libm` that programs call, as C that is also CUDA C++, with the bits of the
/// crate.
///
/// A prelude comes before it, and defines
///
/// - `LIBM_FUNCTION` and `LIBM_TABLE`, which declare functions and tables: `static inline` and
///   `static const` in C;
/// - the types `bool`, `int32_t`, `uint32_t` and `uint64_t`;
/// - `bits_f64`, `float_f64`, `abs_f64`, `trunc_f64` and `sqrt_f64`, the root rounded to nearest.
///
/// The compiler must not contract products and sums into fused operations. All other names begin
/// with `libm_` or `LIBM_`.
pub const LIBM_C: &str = include_str!("libm.c");

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// The result of a comparison.
    Flag,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
}

/// A number that is known while a function is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// The type of the number.
    pub ty: Type,
    /// Its bits, the unused ones 0.
    pub bits: u64,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An argument of the function, by position.
    Argument(u32),
    /// The result of an earlier step, by position.
    Step(u32),
    /// A number.
    Constant(Constant),
}

/// An operation of the [algebra](crate::algebra).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Neg,
    MulAdd,
    Abs,
    Trunc,
    Copysign,
    ToBits,
    FromBits,
    FromSigned,
    Lt,
    Le,
    Eq,
    IsNan,
    Select,
    And,
    Or,
    Not,
    Shl,
    Sar,
    IsZero,
    Widen,
    Narrow,
    Libm(Libm),
    Libm2(Libm2),
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// The type of the result.
    pub ty: Type,
    /// With what, in the order of the method's parameters.
    pub operands: Vec<Operand>,
}

/// A recorded function: steps without branches.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The types of the arguments.
    pub arguments: Vec<Type>,
    /// The steps, each after those that it uses.
    pub steps: Vec<Step>,
    /// What the function returns, and its type.
    pub result: (Operand, Type),
}

/// The steps that were recorded so far.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    recorded: RefCell<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    arguments: Vec<Type>,
    steps: Vec<Step>,
    positions: HashMap<Step, u32>,
}

impl Recorder {
    /// The next argument of the function.
    pub fn argument<T: value::Known>(&self) -> Value<'_, T> {
        let mut recorded = self.recorded.borrow_mut();
        let position = recorded.arguments.len() as u32;
        recorded.arguments.push(T::TYPE);
        Value::recorded(self, Operand::Argument(position))
    }

    /// The result of an operation, which is recorded unless it was before.
    fn step(&self, step: Step) -> Operand {
        let Recorded { steps, positions, .. } = &mut *self.recorded.borrow_mut();
        let position = positions.entry(step).or_insert_with_key(|step| {
            steps.push(step.clone());
            steps.len() as u32 - 1
        });
        Operand::Step(*position)
    }

    /// The program whose result is a value of this recorder.
    pub fn program<T: value::Known>(&self, result: Value<'_, T>) -> Program {
        let recorded = self.recorded.borrow();
        let mut is_used = vec![false; recorded.steps.len()];
        let mark = |operand: &Operand, is_used: &mut Vec<bool>| {
            if let Operand::Step(position) = operand {
                is_used[*position as usize] = true;
            }
        };
        let result = result.operand();
        mark(&result, &mut is_used);
        for position in (0..recorded.steps.len()).rev() {
            if is_used[position] {
                recorded.steps[position].operands.iter().for_each(|o| mark(o, &mut is_used));
            }
        }
        let mut moved = vec![0; recorded.steps.len()];
        let mut steps = Vec::new();
        let renumber = |operand: Operand, moved: &[u32]| match operand {
            Operand::Step(position) => Operand::Step(moved[position as usize]),
            other => other,
        };
        for (position, step) in recorded.steps.iter().enumerate().filter(|(i, _)| is_used[*i]) {
            moved[position] = steps.len() as u32;
            let operands = step.operands.iter().map(|o| renumber(*o, &moved)).collect();
            steps.push(Step { operands, ..*step });
        }
        Program {
            arguments: recorded.arguments.clone(),
            steps,
            result: (renumber(result, &moved), T::TYPE),
        }
    }
}

/// The program of a function of one argument.
pub fn function<T, U>(f: impl for<'r> Fn(Value<'r, T>) -> Value<'r, U>) -> Program
where
    T: value::Known,
    U: value::Known,
{
    let recorder = Recorder::default();
    let result = f(recorder.argument());
    recorder.program(result)
}

/// The program of a function of two arguments.
pub fn function2<T, U>(f: impl for<'r> Fn(Value<'r, T>, Value<'r, T>) -> Value<'r, U>) -> Program
where
    T: value::Known,
    U: value::Known,
{
    let recorder = Recorder::default();
    let result = f(recorder.argument(), recorder.argument());
    recorder.program(result)
}
