//! Parts of an expression.

use super::{Instr, Op, Reg, ScalarExpr};

impl ScalarExpr {
    /// The same inputs, with one of the outputs alone and the instructions that it needs; `None` if
    /// there is no such output.
    pub fn only_output(&self, output: usize) -> Option<ScalarExpr> {
        Some(self.needed_for(&[*self.outputs.get(output)?]))
    }

    /// The expression of these registers, with the same inputs, and this expression with the values
    /// of the registers as further inputs. Both have the instructions alone that they need. `None`
    /// if there is no such register.
    pub fn split(&self, ahead: &[Reg]) -> Option<(ScalarExpr, ScalarExpr)> {
        let mut rest = self.clone();
        for r in ahead {
            let instr = rest.instrs.get_mut(r.index())?;
            instr.op = Op::Input(u32::try_from(rest.inputs.len()).ok()?);
            rest.inputs.push(instr.dtype);
        }
        Some((self.needed_for(ahead), rest.needed_for(&self.outputs)))
    }

    /// The same inputs, with these outputs and the instructions that they need.
    fn needed_for(&self, outputs: &[Reg]) -> ScalarExpr {
        let mut is_needed = vec![false; self.instrs.len()];
        outputs.iter().for_each(|r| is_needed[r.index()] = true);
        for i in (0..self.instrs.len()).rev() {
            if is_needed[i] {
                self.instrs[i].op.operands().for_each(|r| is_needed[r.index()] = true);
            }
        }
        let mut renamed = vec![Reg(0); self.instrs.len()];
        let mut instrs = Vec::new();
        for (i, instr) in self.instrs.iter().enumerate().filter(|(i, _)| is_needed[*i]) {
            renamed[i] = Reg(instrs.len() as u32);
            instrs.push(Instr { op: instr.op.renamed(&|r| renamed[r.index()]), ..*instr });
        }
        let outputs = outputs.iter().map(|r| renamed[r.index()]).collect();
        ScalarExpr { inputs: self.inputs.clone(), instrs, outputs }
    }
}
