//! Changes of the arguments of a call: numbers at the edges, other dtypes, sizes and texts.

use maquette_check::Rng;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{Args, Tensor, Value};

/// More elements than any address space has.
pub const MANY: i64 = 1 << 50;

/// The choices of a change.
pub struct Changes(pub Rng);

impl Changes {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn int(&mut self) -> i64 {
        self.one(&[
            0,
            1,
            -1,
            2,
            3,
            -2,
            -3,
            4,
            5,
            7,
            -9,
            64,
            1 << 62,
            -(1 << 62),
            i64::MAX,
            i64::MIN,
        ])
    }

    fn float(&mut self) -> f64 {
        self.one(&[
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.3,
            2.0,
            1e300,
            -1e300,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ])
    }

    fn tensor(&mut self, t: &Tensor) -> Tensor {
        use DType::*;
        let dim = self.below(t.dim().max(1)) as i64;
        match self.below(12) {
            0..2 => t.to_dtype(self.one(&[F32, F64, F16, BF16, I64, I32, I16, I8, U8, Bool])),
            2 if t.dim() > 0 => t.slice(dim, 0..0),
            3 if t.dim() > 0 => t.slice(dim, 0..1),
            4 if t.dim() > 0 && t.size(dim).as_i64() != Some(0) => t.select(dim, 0),
            5 => t.unsqueeze(dim),
            6 if t.dim() > 1 => t.transpose(0, -1),
            7 => Tensor::full([] as [i64; 0], self.float(), F32),
            8 => Tensor::stack([t, t], self.below(t.dim() + 1) as i64),
            9 => Tensor::full(t.sizes(), self.int(), I64),
            10 if t.dim() > 0 => times(&t.slice(dim, 0..0), MANY),
            _ => times(t, 3),
        }
    }

    /// Something else of about the same type.
    fn instead_of(&mut self, v: &Value, others: &Args) -> Value {
        match v {
            _ if self.below(12) == 0 => Value::None,
            Value::Tensor(_) if self.below(12) == 0 => self.one(others),
            Value::Tensor(t) => Value::Tensor(self.tensor(t)),
            Value::Int(_) => self.int().into(),
            Value::Float(_) => Value::Float(self.float()),
            Value::Bool(b) => Value::Bool(!b),
            Value::Str(_) => {
                Value::Str(self.one(&["", "mean", "sum", "bogus", "floor", "linear"]).into())
            }
            Value::DType(_) => Value::DType(self.one(&[
                DType::F32,
                DType::F16,
                DType::I64,
                DType::Bool,
                DType::U8,
            ])),
            Value::Ints(of) => {
                let mut of = of.to_vec();
                match (self.below(4), of.len()) {
                    (0, _) => of.push(self.int().into()),
                    (1, 1..) => drop(of.pop()),
                    (_, 0) => of.push(1.into()),
                    (_, n) => of[self.below(n)] = self.int().into(),
                }
                Value::Ints(of.into())
            }
            Value::List(of) => {
                let mut of = of.to_vec();
                match (self.below(4), of.len()) {
                    (_, 0) => {}
                    (0, _) => drop(of.pop()),
                    (1, _) => of.push(of[0].clone()),
                    (_, n) => {
                        let at = self.below(n);
                        of[at] = self.instead_of(&of[at].clone(), others);
                    }
                }
                Value::List(of.into())
            }
            Value::None => {
                let (int, float) = (self.int(), self.float());
                self.one(&[int.into(), Value::Float(float), Value::DType(DType::F32)])
            }
            other => other.clone(),
        }
    }

    /// The arguments with one or two of them changed.
    pub fn change(&mut self, mut args: Args) -> Args {
        let before = args.clone();
        for _ in 0..(1 + self.below(2)).min(args.len()) {
            let at = self.below(args.len());
            args[at] = self.instead_of(&args[at].clone(), &before);
        }
        args
    }
}

/// Repeated over a dimension in front.
fn times(t: &Tensor, n: i64) -> Tensor {
    t.unsqueeze(0).expand([&[SymInt::from(n)], t.sizes()].concat())
}
