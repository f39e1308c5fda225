//! [`OpRecord`]: the facts of an operator that the recorder needs, and the rule by which it omits
//! default arguments.

use maquette_ir::graph::{GraphBuilder, StrId};
use maquette_ops::internals::parts_count_writes;
use maquette_ops::{Effect, Op, Result, Value};
use smallvec::SmallVec;

/// The facts of an operator, looked up once per trace.
pub(crate) struct OpRecord {
    pub(crate) name: StrId,
    /// The number of arguments that can be positional.
    pub(crate) positional: usize,
    pub(crate) args: Vec<ArgRecord>,
    /// For each return, the mutated argument that it is.
    pub(crate) returns_arg: SmallVec<[Option<usize>; 2]>,
    /// For each return, the argument that it may be a view of.
    pub(crate) views_arg: SmallVec<[Option<usize>; 2]>,
    pub(crate) mutated: SmallVec<[usize; 2]>,
    /// Its fake execution counts its writes.
    pub(crate) counts_writes: bool,
    pub(crate) builtin: bool,
    pub(crate) effect: Option<Effect>,
    /// The fake kernel accepts traced tensors, because it reads only metadata.
    pub(crate) takes_traced: bool,
}

pub(crate) struct ArgRecord {
    pub(crate) keyword: StrId,
    default: Option<Value>,
}

impl OpRecord {
    pub(crate) fn of(op: Op, builder: &mut GraphBuilder) -> Result<OpRecord> {
        let schema = op.schema()?;
        let mutated: SmallVec<[usize; 2]> = schema.mutates().collect();
        let args = schema.args.iter().enumerate();
        let name = builder.intern(op.name());
        if !op.is_builtin() {
            builder.bind_schema(name, schema.clone());
        }
        Ok(OpRecord {
            name,
            positional: schema.args.iter().take_while(|a| !a.kwarg_only).count(),
            args: args
                .map(|(i, a)| ArgRecord {
                    keyword: builder.intern(&a.name),
                    default: op.default_value(i),
                })
                .collect(),
            returns_arg: (0..schema.returns.len())
                .map(|i| op.return_alias(i).filter(|a| mutated.contains(a)))
                .collect(),
            views_arg: (0..schema.returns.len())
                .map(|i| op.return_alias(i).filter(|a| !mutated.contains(a)))
                .collect(),
            mutated,
            counts_writes: parts_count_writes(op),
            builtin: op.is_builtin(),
            effect: op.effect(),
            takes_traced: op.fake_takes_traced(),
        })
    }
}

impl ArgRecord {
    /// Whether the argument can be omitted, because the value is its default.
    pub(crate) fn is_default(&self, v: &Value) -> bool {
        self.default.as_ref().is_some_and(|d| same(d, v))
    }
}

/// Whether a value is exactly the default. A symbolic integer never is, because its value may
/// differ between runs.
fn same(default: &Value, v: &Value) -> bool {
    match (default, v) {
        (Value::None, Value::None) => true,
        (Value::Int(a), Value::Int(b)) => a.as_i64().is_some() && a.as_i64() == b.as_i64(),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::DType(a), Value::DType(b)) => a == b,
        (Value::Device(a), Value::Device(b)) => a == b,
        (Value::Layout(a), Value::Layout(b)) => a == b,
        (Value::MemoryFormat(a), Value::MemoryFormat(b)) => a == b,
        (Value::Ints(a), Value::Ints(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a.as_i64().is_some() && a.as_i64() == b.as_i64())
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => false,
    }
}
