//! Inputs of a program: memories with special values, and inputs over them that may overlap.

use super::super::gradients;
use super::super::program::{InputLocation, MemoryInit};
use super::super::program_builder::Input;
use super::choices::number;
use super::{Generator, LiveTensor};
use maquette_ir::DType;
use maquette_ir::sym::{Expr, Range, SymbolKind};
use maquette_ops::Result;

/// The maximum number of elements of an input.
const LARGEST: i64 = 120;

impl Generator<'_> {
    pub(super) fn inputs(&mut self) -> Result<()> {
        if self.symbolic {
            self.symbols()?;
        }
        for _ in 0..1 + self.rng.below(4) {
            self.input();
        }
        let home = self.symbols.iter().map(|(s, n)| (self.builder.table.name(*s).to_owned(), *n));
        self.builder.sizes = vec![home.collect()];
        let run_inputs = self.builder.run_inputs()?;
        let has_gradients = self.has_gradients();
        for (input, tensor) in self.builder.inputs.iter().zip(run_inputs.inputs) {
            let tensor = if has_gradients { gradients::copy_of_leaf(&tensor)? } else { tensor };
            self.live.push(LiveTensor {
                value: input.value,
                tensor,
                data_dependent: false,
                write_target: input.location.memory < self.builder.inputs.len() / 2,
            });
        }
        Ok(())
    }

    fn symbols(&mut self) -> Result<()> {
        for i in 0..1 + self.rng.below(3) {
            let symbol =
                self.builder.table.symbol(&format!("s{i}"), SymbolKind::Backed, Range::SIZE)?;
            let taken: Vec<i64> = self.symbols.iter().map(|(_, n)| *n).collect();
            let free: Vec<i64> = (2..7).filter(|n| !taken.contains(n)).collect();
            let n = self.rng.one(&free).unwrap_or(2);
            self.symbols.push((symbol, n));
        }
        Ok(())
    }

    fn size(&mut self, i: usize) -> Expr {
        // the first input uses every symbol as a size, so that every symbol is backed
        let unused = self.symbols.get(i).filter(|_| self.builder.inputs.is_empty()).copied();
        if let Some((s, _)) =
            unused.or_else(|| if self.rng.chance(45) { self.rng.one(&self.symbols) } else { None })
        {
            return self.builder.table.expr(s);
        }
        let n = match self.rng.below(100) {
            0..4 => 0,
            4..16 => 1,
            _ => self.rng.between(2, 5),
        };
        Expr::Int(n)
    }

    fn input(&mut self) {
        let rank = match self.rng.below(100) {
            0..3 => 0,
            3..25 => 1,
            25..65 => 2,
            65..88 => 3,
            _ => 4,
        };
        let first = self.builder.inputs.is_empty();
        let rank = if first { rank.max(self.symbols.len()) } else { rank };
        let mut sizes: Vec<Expr> = (0..rank).map(|d| self.size(d)).collect();
        if self.rng.chance(25)
            && let Some(like) = self.earlier()
        {
            sizes = like;
        }
        let numbers =
            |g: &Self, sizes: &[Expr]| sizes.iter().map(|e| g.number(*e)).collect::<Vec<i64>>();
        while numbers(self, &sizes).iter().product::<i64>() > LARGEST
            && sizes.len() > self.symbols.len().max(1)
        {
            sizes.pop();
        }
        let (n, has_symbols) = (numbers(self, &sizes), sizes.iter().any(|e| e.as_i64().is_none()));
        let strides = if has_symbols { None } else { self.strides(&n) };
        let location = self.location();
        let dtype = self.builder.memories.get(location.memory).map_or(DType::F32, |m| m.dtype);
        self.builder.inputs.push(Input { value: self.next, dtype, sizes, strides, location });
        self.next += 1;
    }

    /// The sizes of an earlier input, sometimes permuted.
    fn earlier(&mut self) -> Option<Vec<Expr>> {
        let at = self.rng.below(self.builder.inputs.len());
        let mut sizes = self.builder.inputs.get(at)?.sizes.clone();
        if self.rng.chance(30) {
            sizes = self
                .rng
                .order(sizes.len())
                .into_iter()
                .filter_map(|d| sizes.get(d).copied())
                .collect();
        }
        Some(sizes)
    }

    /// Strides that are permuted, have gaps, or make the input overlap itself.
    fn strides(&mut self, sizes: &[i64]) -> Option<Vec<Expr>> {
        if !self.rng.chance(30) || sizes.is_empty() {
            return None;
        }
        if self.rng.chance(2) {
            // overlapping windows
            return Some(sizes.iter().map(|_| Expr::Int(self.rng.between(0, 3))).collect());
        }
        let mut strides = vec![Expr::Int(0); sizes.len()];
        let mut next = if self.rng.chance(30) { 2 } else { 1 };
        for d in self.rng.order(sizes.len()) {
            if let (Some(stride), Some(n)) = (strides.get_mut(d), sizes.get(d)) {
                *stride = Expr::Int(next);
                next *= n.max(&1);
            }
        }
        if self.rng.chance(15) {
            // an expanded dimension
            let repeated = self.rng.below(strides.len());
            strides.iter_mut().skip(repeated).take(1).for_each(|s| *s = Expr::Int(0));
        }
        Some(strides)
    }

    /// A new memory, or that of an earlier input.
    fn location(&mut self) -> InputLocation {
        if self.has_gradients() {
            return self.own_location();
        }
        let shares = !self.builder.memories.is_empty() && self.rng.chance(35);
        let offset =
            if self.rng.chance(if shares { 70 } else { 15 }) { self.rng.between(0, 6) } else { 0 };
        if shares {
            return InputLocation { memory: self.rng.below(self.builder.memories.len()), offset };
        }
        let dtype = match self.rng.below(100) {
            0..62 => DType::F32,
            62..88 => DType::I64,
            _ => DType::Bool,
        };
        let values = (0..5 + self.rng.below(9)).map(|_| number(self.rng, dtype)).collect();
        self.builder.memories.push(MemoryInit { dtype, values });
        InputLocation { memory: self.builder.memories.len() - 1, offset }
    }

    /// A new memory: a leaf shares no memory, so that the gradient of each is that of one input.
    fn own_location(&mut self) -> InputLocation {
        let offset = if self.rng.chance(15) { self.rng.between(0, 6) } else { 0 };
        let dtype = match self.rng.below(100) {
            _ if self.builder.memories.is_empty() => DType::F64,
            0..80 => DType::F64,
            80..94 => DType::I64,
            _ => DType::Bool,
        };
        let values = (0..9 + self.rng.below(22)).map(|_| number(self.rng, dtype)).collect();
        self.builder.memories.push(MemoryInit { dtype, values });
        InputLocation { memory: self.builder.memories.len() - 1, offset }
    }
}
