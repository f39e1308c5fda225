//! Random chains of operators: the oracle of fusion.
//!
//! The programs of the [oracle](crate::oracle) are about memory: views, writes and aliases. They
//! seldom have operators that one kernel can compute. A [`Chain`] is two to eight calls of recorded
//! operators, one after another, with random dtypes, broadcasts, views and writes, at extents
//! around the blocks and chunks of the kernels. Custom operators, an overridden one, random numbers
//! and selections that may fail are among the calls. A chain runs eagerly, and compiled on inputs
//! of several sizes; results and inputs must have equal bytes.
//!
//! The generator calls each operator eagerly before it takes it, so that nearly all programs run.

mod generate;
mod library;
mod run;

pub use generate::generate;
pub use run::{ChainReport, check, check_on};
pub(crate) use run::{compare, compare_elements};

use std::fmt;

/// A program: calls of operators, one after another.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The inputs, which are the first values.
    pub inputs: Vec<Input>,
    /// The calls. The tensors that each returns are the next values.
    pub calls: Vec<Call>,
    /// The values that the program returns.
    pub outputs: Vec<usize>,
}

/// An input. Its elements follow from its number and the program's seed.
#[derive(Clone, Debug)]
pub struct Input {
    /// The dtype.
    pub dtype: maquette_ir::DType,
    /// The sizes.
    pub sizes: Vec<i64>,
    /// Whether the first size is the one that changes between runs.
    pub is_batched: bool,
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operator.
    pub op: &'static str,
    /// Its arguments.
    pub args: Vec<Argument>,
}

/// An argument of a call.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A value of the program.
    Value(usize),
    /// A list of values.
    Values(Vec<usize>),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A float.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A dtype.
    DType(maquette_ir::DType),
    /// An absent argument.
    None,
}

impl Call {
    /// The values that it takes.
    fn values(&self) -> Vec<usize> {
        let values = |arg: &Argument| match arg {
            Argument::Value(v) => vec![*v],
            Argument::Values(all) => all.clone(),
            _ => Vec::new(),
        };
        self.args.iter().flat_map(values).collect()
    }

    /// The value that it writes: the first one of an operator whose name ends with an underscore.
    fn written(&self) -> Option<usize> {
        let name = self.op.split('.').next().unwrap_or_default();
        name.ends_with('_').then(|| self.values().first().copied()).flatten()
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Value(v) => write!(f, "%{v}"),
            Argument::Values(values) => {
                let values: Vec<String> = values.iter().map(|v| format!("%{v}")).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Argument::Int(i) => write!(f, "{i}"),
            Argument::Ints(ints) => write!(f, "{ints:?}"),
            Argument::Float(x) => write!(f, "{x:?}"),
            Argument::Bool(b) => write!(f, "{b}"),
            Argument::DType(d) => write!(f, "{d}"),
            Argument::None => f.write_str("None"),
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Input { dtype, sizes, is_batched }) in self.inputs.iter().enumerate() {
            let batched = if *is_batched { " batched" } else { "" };
            writeln!(f, "%{i} = input {dtype}{sizes:?}{batched}")?;
        }
        for call in &self.calls {
            let args: Vec<String> = call.args.iter().map(ToString::to_string).collect();
            writeln!(f, "{}({})", call.op, args.join(", "))?;
        }
        writeln!(f, "return {:?}", self.outputs)
    }
}
