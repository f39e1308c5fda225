//! Forms the chains of a compiled expression out of adjacent steps.
//!
//! **Invariant:** chains change neither the order of operations nor the places of values. They only
//! leave out the stores of values that nothing reads from memory.
//!
//! **Cost:** linear in the steps, times the steps of a chain where loads are moved ahead of it.

use super::{Chain, ChainOp, Code, LONGEST, binary, is_known, step_fn, unary};
use crate::pointwise::compile::Level;
use crate::pointwise::steps::Step;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{Op, Reg, ScalarExpr};
use smallvec::SmallVec;

/// The most steps of a chain: each takes a load, an operation and a store at most.
const MOST_STEPS: usize = LONGEST / 3;

/// What chains are formed from.
pub(in crate::pointwise) struct ChainFormer<'a> {
    pub expr: &'a ScalarExpr,
    /// How often the value of each register is computed.
    pub levels: &'a [Level],
}

impl ChainFormer<'_> {
    /// Replaces steps by chains.
    pub fn form(&self, steps: &mut SmallVec<[Step; 4]>, chains: &mut Vec<Chain>) {
        let last_use = self.last_uses();
        let mut out: SmallVec<[Step; 4]> = SmallVec::with_capacity(steps.len());
        let mut from = 0;
        while let Some(first) = steps.get(from) {
            let Some(dtype) = self.dtype(first) else {
                out.push(*first);
                from += 1;
                continue;
            };
            let mut run: SmallVec<[Step; 16]> = SmallVec::from_elem(*first, 1);
            let mut to = from + 1;
            while let Some(step) = steps.get(to).filter(|_| run.len() < MOST_STEPS) {
                if self.dtype(step) == Some(dtype) {
                    run.push(*step);
                } else if self.is_load_beside(step, &run) {
                    out.push(*step);
                } else {
                    break;
                }
                to += 1;
            }
            from = to;
            match (u16::try_from(chains.len()), run.last()) {
                (Ok(operand), Some(last)) if run.len() > 1 => {
                    out.push(Step { run: step_fn(dtype), operand, ..*last });
                    chains.push(self.chain(&run, &last_use));
                }
                _ => out.extend(run),
            }
        }
        *steps = out;
    }

    /// The last instruction that reads each register.
    fn last_uses(&self) -> Vec<usize> {
        let mut last = vec![0; self.expr.instrs().len()];
        for (i, instr) in self.expr.instrs().iter().enumerate() {
            instr.op.operands().for_each(|r| last[r.index()] = i);
        }
        self.expr.outputs().iter().for_each(|r| last[r.index()] = usize::MAX);
        last
    }

    /// The dtype of a step that a chain can have.
    fn dtype(&self, step: &Step) -> Option<DType> {
        let instr = self.expr.instrs().get(step.instr as usize).filter(|_| !step.in_memory)?;
        is_known(instr.op, instr.dtype).then_some(instr.dtype)
    }

    fn is_scalar(&self, r: Reg) -> bool {
        self.levels[r.index()] != Level::Each
    }

    fn chain(&self, run: &[Step], last_use: &[usize]) -> Chain {
        let end = run.last().map_or(0, |s| s.instr as usize);
        let mut chain = Chain::new();
        // The register whose value is in the accumulator.
        let mut acc: Option<Reg> = None;
        for (i, step) in run.iter().enumerate() {
            let (op, [first, second, _]) = (self.op(step), step.src);
            let mut push = |code, at| chain.push(ChainOp { code, at });
            match op {
                Op::Binary(op, a, b) => {
                    let right = match acc {
                        Some(acc) if acc == a => false,
                        Some(acc) if acc == b => true,
                        _ => {
                            let right = self.is_scalar(a);
                            push(Code::Load, if right { second } else { first });
                            right
                        }
                    };
                    let (other, at) = if right { (a, first) } else { (b, second) };
                    if let Some(code) = binary(op, right, self.is_scalar(other)) {
                        push(code, at);
                    }
                }
                op => {
                    if op.operands().next() != acc {
                        push(Code::Load, first);
                    }
                    if let Some(code) = unary(op, self.expr.dtype(Reg(step.instr))) {
                        push(code, step.dst);
                    }
                }
            }
            let value = Reg(step.instr);
            let uses = |s: &Step| self.op(s).operands().filter(|r| *r == value).count();
            let in_next = run.get(i + 1).map_or(0, uses);
            let later = run.iter().skip(i + 2).any(|s| uses(s) > 0);
            if last_use[value.index()] > end || in_next > 1 || later {
                push(Code::Store, step.dst);
            }
            acc = Some(value);
        }
        chain
    }

    fn op(&self, step: &Step) -> Op {
        self.expr.instrs()[step.instr as usize].op
    }

    /// Whether a step loads an operand to a block that these steps do not use, so that it can run
    /// ahead of them. Blocks of different classes with one number count as the same.
    fn is_load_beside(&self, step: &Step, run: &[Step]) -> bool {
        let uses = |s: &Step| s.dst == step.dst || s.src.contains(&step.dst);
        let is_load = step.in_memory && usize::from(step.operand) < self.expr.inputs().len();
        is_load && !run.iter().any(uses)
    }
}
