//! Reads at computed positions that are those of a row, as the rows of an embedding are.
//!
//! The address of a row is computed and checked once, and its elements are used where they are, or
//! loaded with conversion. Other reads take one element at a time.

use super::compile::{InputMode, Level, StepCompiler, is_class, step};
use super::frame::Location;
use super::moves;
use super::place::{self, ReadStep};
use super::steps::{Step, class_of};
use crate::error::Result;
use maquette_ir::scalar_expr::{Bounds, Op, Read, Reg};

impl StepCompiler<'_> {
    /// The read of a register whose elements in a row are adjacent in memory: its positions are
    /// those of the row.
    pub(super) fn row_read(&self, r: Reg) -> Option<Read> {
        let Op::Read(read) = self.expr.instrs()[r.index()].op else { return None };
        let is_adjacent = self.shape.inputs[read.input as usize] == InputMode::AdjacentSource;
        let is_of_row = |r: &Reg| self.levels[r.index()] != Level::Each;
        let has_choice = read.when.is_some() || matches!(read.bounds, Bounds::Else(_));
        // An address belongs to one read.
        let instrs = self.expr.instrs().iter();
        let reads = instrs.filter(|i| matches!(i.op, Op::Read(of) if of.input == read.input));
        let is_row = is_adjacent && !has_choice && read.at.regs().iter().all(is_of_row);
        (is_row && reads.count() == 1).then_some(read)
    }

    /// Computes a read whose elements in a row are adjacent: its address once a row, and a block of
    /// elements that are used where they are, or loaded with conversion.
    pub(super) fn compute_row_read(&mut self, r: Reg, read: &Read) -> Result<()> {
        let dtype = self.expr.dtype(r);
        let at = read.at.regs().iter().map(|a| self.read(*a)).collect::<Result<_>>()?;
        self.steps.reads.push(ReadStep::of_row(read, at));
        let direct = Location::Direct(read.input as u16);
        let (run, operand) = (place::read_row_fn(dtype), self.place_operand(Op::Read(*read))?);
        self.emit(Level::Row, Step { operand, instr: r.0, ..step(run, direct, [direct; 3]) });
        let mut location = direct;
        if !is_class(dtype) {
            location = self.scratch(class_of(dtype), Level::Each)?;
            let (run, operand) = (moves::load_direct_fn(dtype), read.input as u16);
            let loads = Step { operand, in_memory: true, ..step(run, location, [direct; 3]) };
            self.emit(Level::Each, Step { instr: r.0, ..loads });
        }
        self.locations[r.index()] = Some(location);
        read.at.regs().iter().for_each(|a| self.release(*a, r.index()));
        Ok(())
    }
}
