//! Random choices: tensors, dimensions and numbers.

use super::{Generator, LiveTensor};
use crate::oracle::program_builder::BuilderArg;
use maquette_check::Rng;
use maquette_ir::sym::{Expr, SymbolKind};
use maquette_ir::{DType, Scalar};

impl Generator<'_> {
    /// Any tensor. Data-dependent sizes are chosen less often, since most operators must decide
    /// something about a size.
    pub(super) fn any(&mut self) -> Option<LiveTensor> {
        self.pick(|_| true)
    }

    /// A tensor that passes a test; recent ones are more likely.
    pub(super) fn pick(&mut self, test: impl Fn(&LiveTensor) -> bool) -> Option<LiveTensor> {
        let data_dependent = self.rng.chance(12);
        let recent = self.live.len().saturating_sub(6);
        for _ in 0..8 {
            let at = if self.rng.chance(50) {
                recent + self.rng.below(self.live.len() - recent)
            } else {
                self.rng.below(self.live.len())
            };
            if let Some(l) =
                self.live.get(at).filter(|l| test(l) && (data_dependent || !l.data_dependent))
            {
                return Some(l.clone());
            }
        }
        let fit: Vec<&LiveTensor> =
            self.live.iter().filter(|l| test(l) && (data_dependent || !l.data_dependent)).collect();
        fit.get(self.rng.below(fit.len())).map(|l| (*l).clone())
    }

    /// A tensor to mutate: likely a view, or a tensor that was mutated before.
    pub(super) fn target(&mut self) -> Option<LiveTensor> {
        if self.rng.chance(65)
            && let Some(write_target) = self.pick(|l| l.write_target)
        {
            return Some(write_target);
        }
        self.any()
    }

    /// A tensor of this dtype that broadcasts to these sizes; mostly one of exactly these sizes.
    pub(super) fn operand(&mut self, dtype: DType, sizes: &[i64]) -> Option<LiveTensor> {
        let same = |l: &LiveTensor| l.dtype() == dtype && l.sizes() == sizes;
        if self.rng.chance(70)
            && let Some(found) = self.pick(same)
        {
            return Some(found);
        }
        self.pick(|l| {
            let from = l.sizes();
            l.dtype() == dtype
                && from.len() <= sizes.len()
                && from.iter().rev().zip(sizes.iter().rev()).all(|(a, b)| a == b || *a == 1)
        })
    }

    /// A dimension, sometimes counted from the end.
    pub(super) fn dim(&mut self, t: &LiveTensor) -> Option<(usize, BuilderArg)> {
        let rank = t.rank();
        if rank == 0 {
            return None;
        }
        let d = self.rng.below(rank);
        let written = if self.rng.chance(25) { d as i64 - rank as i64 } else { d as i64 };
        Some((d, BuilderArg::from(written)))
    }

    /// A number as an argument. If expressions of symbols have this value, one of them is likely.
    pub(super) fn int(&mut self, n: i64) -> BuilderArg {
        if self.symbols.is_empty() || self.rng.chance(30) {
            return n.into();
        }
        let mut fitting: Vec<Expr> = Vec::new();
        // few operators accept a data-dependent number without deciding on its value
        let data = self.rng.chance(25);
        let table = &mut self.builder.table;
        for (i, &(s, v)) in self.symbols.iter().enumerate() {
            if !data && table.kind(s) == SymbolKind::Unbacked {
                continue;
            }
            let e = table.expr(s);
            let mut offer =
                |value: i64, candidate: std::result::Result<Expr, maquette_ir::sym::SymError>| {
                    if value == n {
                        fitting.extend(candidate.ok());
                    }
                };
            offer(v, Ok(e));
            offer(v - 1, table.sub(e, Expr::Int(1)));
            offer(v + 1, table.add(e, Expr::Int(1)));
            offer(2 * v, table.mul(e, Expr::Int(2)));
            offer(v.div_euclid(2), table.floor_div(e, Expr::Int(2)));
            for &(t, w) in self.symbols.iter().skip(i + 1) {
                if !data && table.kind(t) == SymbolKind::Unbacked {
                    continue;
                }
                let f = table.expr(t);
                offer(v + w, table.add(e, f));
                offer(v * w, table.mul(e, f));
                offer(v - w, table.sub(e, f));
                offer(v.min(w), table.min(e, f));
            }
            if v > 1 && n > v && n % v == 0 {
                offer(n, table.mul(e, Expr::Int(n / v)));
            }
        }
        self.rng.one(&fitting).map_or(n.into(), BuilderArg::from)
    }

    pub(super) fn ints(&mut self, of: &[i64]) -> BuilderArg {
        BuilderArg::List(of.iter().map(|&n| self.int(n)).collect())
    }

    /// A number of a dtype, sometimes a special one.
    pub(super) fn scalar(&mut self, dtype: DType) -> BuilderArg {
        match number(self.rng, dtype) {
            Scalar::Float(x) => x.into(),
            Scalar::Int(n) => n.into(),
            Scalar::Bool(b) => b.into(),
        }
    }
}

/// A number of a dtype: small, or one that arithmetic treats specially.
pub(super) fn number(rng: &mut Rng, dtype: DType) -> Scalar {
    const FLOATS: [f32; 11] = [
        f32::NAN,
        -f32::NAN,
        -0.0,
        0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::from_bits(1),
        -1e-40,
        f32::MAX,
        f32::EPSILON,
        16_777_217.0,
    ];
    const INTS: [i64; 6] = [0, -1, i64::MAX, i64::MIN, 1 << 53, -(1 << 40) + 1];
    let special = rng.chance(18);
    match dtype {
        DType::Bool => Scalar::Bool(rng.chance(50)),
        DType::I64 if special => Scalar::Int(rng.one(&INTS).unwrap_or(0)),
        DType::I64 => Scalar::Int(rng.between(-5, 9)),
        // away from zero, where quotients have no slope
        DType::F64 => {
            let x = (rng.below(1 << 20) as f64 + 0.5) / f64::from(1 << 20);
            Scalar::Float(if rng.chance(50) { 0.2 + 1.8 * x } else { -0.2 - 1.8 * x })
        }
        _ if special => Scalar::Float(rng.one(&FLOATS).unwrap_or(0.0).into()),
        _ => Scalar::Float(rng.between(-12, 12) as f64 / 4.0),
    }
}
