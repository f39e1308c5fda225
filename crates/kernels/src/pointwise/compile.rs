//! Compiles an expression for one operand layout into the steps that run on each block.
//!
//! A single forward pass selects a loop for each instruction and allocates scratch blocks to
//! registers by linear scan: a block is free again after the last use of its register. Inputs are
//! loaded at their first use.
//!
//! A value that does not depend on the element (constants, inputs of stride 0) is computed once a
//! call, and one that does not depend on the element of a row once a row: its [`Level`]. Steps that
//! take such a value as a scalar read its first element alone. If all do, it has no other element.

use super::broadcast;
use super::chain::{Chain, ChainFormer};
use super::frame::Location;
use super::moves;
use super::place::ReadStep;
use super::steps::{self, Kind, Step, StepFn, class_of, divides, rounds, step_fn};
use crate::error::{KernelError, Result};
use maquette_ir::scalar_expr::{Op, Reg, ScalarExpr};
use maquette_ir::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

/// The way an input is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// A single element, broadcast to the whole output.
    Uniform,
    /// A single element for each row.
    Row,
    /// In place: the dtype is a class and each block is contiguous.
    Direct,
    /// Loaded into scratch, with conversion or strided access.
    Gather,
    /// Read at computed positions, of which no dimension is empty. The elements of a row are
    /// adjacent if the positions are those of the row.
    AdjacentSource,
}

/// How often a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Once a call, on each thread.
    Once,
    /// Once a row.
    Row,
    /// For each block.
    Each,
}

/// The properties of the operand layout that determine the steps.
pub(crate) struct OperandLayout<'a> {
    pub inputs: &'a [InputMode],
    /// For each output, whether it is written in place.
    pub outputs: &'a [bool],
    /// Some output may overlap an input: a block's outputs are written only after all its inputs
    /// are read.
    pub overlap: bool,
    /// The only input that overlaps the only output, if both occupy the same memory and are
    /// accessed in place.
    pub in_place: Option<usize>,
    /// In a loop nest: the axes whose coordinates are operands behind the outputs, with their
    /// levels.
    pub coords: Option<&'a [(u32, Level)]>,
}

/// The steps of each [`Level`], and the number of scratch blocks of each class.
#[derive(Default)]
pub(crate) struct CompiledSteps {
    pub once: SmallVec<[Step; 2]>,
    pub row: SmallVec<[Step; 2]>,
    pub each: SmallVec<[Step; 4]>,
    /// Whether the values of [`Level::Once`] and [`Level::Row`] fill blocks. Otherwise they have
    /// one element.
    pub fills: [bool; 2],
    pub blocks: [usize; 4],
    /// The reads at computed positions, which their steps refer to.
    pub reads: Vec<ReadStep>,
    /// The chains, which their steps refer to.
    pub chains: Vec<Chain>,
}

pub(super) struct StepCompiler<'a> {
    pub(super) expr: &'a ScalarExpr,
    pub(super) shape: &'a OperandLayout<'a>,
    pub(super) steps: CompiledSteps,
    pub(super) locations: SmallVec<[Option<Location>; 8]>,
    pub(super) levels: SmallVec<[Level; 8]>,
    last_use: SmallVec<[usize; 8]>,
    free: [SmallVec<[u16; 4]>; 4],
    /// The output operand that a register is computed into directly.
    target: SmallVec<[Option<u16>; 8]>,
    /// The step whose destination is its first operand.
    in_place_op: Option<(Reg, StepFn)>,
}

/// The instruction that gives the only output, if it can be computed in the memory of an input: its
/// first operand is that input, of which there is no other use.
pub(crate) fn in_place_op(expr: &ScalarExpr, input: usize) -> Option<(Reg, StepFn)> {
    let &[r] = expr.outputs() else { return None };
    let instrs = expr.instrs();
    let Op::Binary(op, a, b) = instrs[r.index()].op else { return None };
    let is_input = |r: Reg| matches!(instrs[r.index()].op, Op::Input(i) if i as usize == input);
    let uses = instrs.iter().flat_map(|i| i.op.operands()).filter(|r| is_input(*r)).count();
    if !is_input(a) || is_input(b) || uses != 1 {
        return None;
    }
    Some((r, steps::in_place_fn(op, instrs[r.index()].dtype)?))
}

/// Compiles the expression's steps for one layout.
pub(crate) fn compile(expr: &ScalarExpr, shape: &OperandLayout<'_>) -> Result<CompiledSteps> {
    let n = expr.instrs().len();
    let mut p = StepCompiler {
        expr,
        shape,
        steps: CompiledSteps::default(),
        locations: smallvec![None; n],
        levels: smallvec![Level::Each; n],
        last_use: smallvec![0; n],
        free: Default::default(),
        target: smallvec![None; n],
        in_place_op: None,
    };
    for (i, instr) in expr.instrs().iter().enumerate() {
        instr.op.operands().for_each(|r| p.last_use[r.index()] = i);
        p.levels[i] = match instr.op {
            Op::Input(k) => match shape.inputs[k as usize] {
                InputMode::Uniform => Level::Once,
                InputMode::Row => Level::Row,
                InputMode::Direct | InputMode::Gather | InputMode::AdjacentSource => Level::Each,
            },
            Op::Const(_) | Op::Launch(_) => Level::Once,
            Op::Coord(axis) => {
                let known = shape.coords.and_then(|c| c.iter().find(|(a, _)| *a == axis));
                known.map_or(Level::Each, |(_, level)| *level)
            }
            // A failure has an element, and a read depends on one.
            Op::Read(_) | Op::Assert(..) => Level::Each,
            op => op.operands().map(|r| p.levels[r.index()]).max().unwrap_or(Level::Once),
        };
    }
    for (j, r) in expr.outputs().iter().enumerate() {
        p.last_use[r.index()] = usize::MAX;
        let computed = !matches!(expr.instrs()[r.index()].op, Op::Input(_))
            && p.levels[r.index()] == Level::Each
            && p.row_read(*r).is_none();
        if computed && shape.outputs[j] && !shape.overlap && p.target[r.index()].is_none() {
            p.target[r.index()] = u16::try_from(shape.inputs.len() + j).ok();
        }
    }
    p.in_place_op = shape.in_place.and_then(|k| in_place_op(expr, k));
    if let Some((r, _)) = p.in_place_op {
        p.target[r.index()] = u16::try_from(shape.inputs.len()).ok();
    }
    p.run()?;
    if p.steps.each.len() > 1 {
        let former = ChainFormer { expr, levels: &p.levels };
        former.form(&mut p.steps.each, &mut p.steps.chains);
    }
    Ok(p.steps)
}

impl StepCompiler<'_> {
    fn run(&mut self) -> Result<()> {
        for i in 0..self.expr.instrs().len() {
            let r = Reg(i as u32);
            // Inputs are read at their first use, so that they do not occupy scratch earlier.
            if !matches!(self.expr.instrs()[i].op, Op::Input(_)) {
                self.compute(r)?;
            }
        }
        if self.shape.overlap {
            // an output that is an input is read before the first store
            for r in self.expr.outputs() {
                self.read(*r)?;
            }
        }
        for (j, r) in self.expr.outputs().iter().enumerate() {
            let operand = (self.shape.inputs.len() + j) as u16;
            if self.target[r.index()] == Some(operand) {
                continue;
            }
            let src = self.read(*r)?;
            self.fill(*r);
            let step = Step {
                operand,
                in_memory: true,
                ..step(moves::store_fn(self.expr.dtype(*r)), Location::Scratch(0), [src; 3])
            };
            self.steps.each.push(step);
        }
        Ok(())
    }

    /// The location of a register's value. Loads an input at its first use.
    pub(super) fn read(&mut self, r: Reg) -> Result<Location> {
        if let Some(location) = self.locations[r.index()] {
            return Ok(location);
        }
        let instr = self.expr.instrs()[r.index()];
        let Op::Input(k) = instr.op else {
            return Err(KernelError::argument(
                "pointwise",
                format!("register {r} is used before it is defined"),
            ));
        };
        let kept = self.shape.overlap && self.expr.outputs().contains(&r);
        let location = match self.shape.inputs[k as usize] {
            InputMode::Direct if !kept => Location::Direct(k as u16),
            access => {
                let level = self.levels[r.index()];
                let location = self.scratch(class_of(instr.dtype), level)?;
                let run = match access {
                    InputMode::Uniform => moves::splat_input_fn(instr.dtype),
                    InputMode::Row => moves::splat_row_fn(instr.dtype),
                    InputMode::Direct | InputMode::Gather | InputMode::AdjacentSource => {
                        moves::load_fn(instr.dtype)
                    }
                };
                self.emit(
                    level,
                    Step {
                        operand: k as u16,
                        in_memory: true,
                        ..step(run, location, [location; 3])
                    },
                );
                location
            }
        };
        self.locations[r.index()] = Some(location);
        Ok(location)
    }

    /// Notes that a step reads a register's value as a block.
    fn fill(&mut self, r: Reg) {
        match self.levels[r.index()] {
            Level::Once => self.steps.fills[0] = true,
            // A value of a row can be computed from values of the call.
            Level::Row => self.steps.fills = [true; 2],
            Level::Each => {}
        }
    }

    /// The operand of an instruction that its step takes as a scalar. Pointwise kernels take blocks
    /// alone: of two NaNs, an operation on a scalar and one on a block may give different ones, and
    /// an operator must give the same in place and elsewhere.
    fn scalar_operand(&self, r: Reg) -> Option<usize> {
        self.shape.coords?;
        let instr = self.expr.instrs()[r.index()];
        let Op::Binary(op, a, b) = instr.op else { return None };
        if !broadcast::is_known(op, instr.dtype) {
            return None;
        }
        match [a, b].map(|x| self.levels[x.index()] == Level::Each) {
            [false, true] => Some(0),
            [true, false] => Some(1),
            _ => None,
        }
    }

    /// Replaces the last step by one that applies an operation to its values as well, if it has no
    /// other use.
    fn join(&mut self, r: Reg) -> Option<()> {
        let instr = self.expr.instrs()[r.index()];
        let Op::Unary(op, a) = instr.op else { return None };
        let of = self.expr.instrs()[a.index()];
        let is_last = self.steps.each.last().is_some_and(|s| s.instr == a.0 && !s.in_memory);
        if !is_last || self.last_use[a.index()] != r.index() || self.scalar_operand(a) != Some(1) {
            return None;
        }
        let run = broadcast::joined_fn(of.op, op, instr.dtype)?;
        let last = self.steps.each.pop()?;
        let dst = match self.target[r.index()] {
            Some(k) => {
                self.release(a, r.index());
                Location::Direct(k)
            }
            None => last.dst,
        };
        self.emit(Level::Each, Step { run, dst, instr: r.0, ..last });
        self.locations[r.index()] = Some(dst);
        Some(())
    }

    /// Allocates a scratch block. A value that outlives a block of elements gets one of its own.
    pub(super) fn scratch(&mut self, class: Kind, level: Level) -> Result<Location> {
        let c = class as usize;
        if level == Level::Each
            && let Some(i) = self.free[c].pop()
        {
            return Ok(Location::Scratch(i));
        }
        let i = u16::try_from(self.steps.blocks[c]).map_err(|_| {
            KernelError::argument(
                "pointwise",
                "the expression needs more than 65,536 blocks of scratch",
            )
        })?;
        self.steps.blocks[c] += 1;
        Ok(Location::Scratch(i))
    }

    pub(super) fn emit(&mut self, level: Level, s: Step) {
        match level {
            Level::Once => self.steps.once.push(s),
            Level::Row => self.steps.row.push(s),
            Level::Each => self.steps.each.push(s),
        }
    }

    /// Frees a register's scratch block after its last use, unless the value must survive for later
    /// blocks.
    pub(super) fn release(&mut self, r: Reg, at: usize) {
        if let (Some(Location::Scratch(i)), Level::Each) =
            (self.locations[r.index()], self.levels[r.index()])
            && self.last_use[r.index()] == at
        {
            self.last_use[r.index()] = usize::MAX;
            self.free[class_of(self.expr.dtype(r)) as usize].push(i);
        }
    }

    /// The number that the step of an operation of a loop nest needs: of an operand, scalar, read
    /// or message.
    pub(super) fn place_operand(&self, op: Op) -> Result<u16> {
        let number = match (op, self.shape.coords) {
            (op, _) if op.is_pure() => Some(0),
            (Op::Coord(axis), Some(coords)) => {
                let known = coords.iter().position(|(a, _)| *a == axis);
                known.map(|at| self.shape.inputs.len() + self.shape.outputs.len() + at)
            }
            (Op::Launch(k) | Op::Assert(_, k), Some(_)) => Some(k as usize),
            (Op::Read(_), Some(_)) => self.steps.reads.len().checked_sub(1),
            _ => None,
        };
        number.and_then(|n| u16::try_from(n).ok()).ok_or_else(|| {
            KernelError::argument("pointwise", format!("`{}` needs a loop nest", op.name()))
        })
    }

    fn compute(&mut self, r: Reg) -> Result<()> {
        if self.join(r).is_some() {
            return Ok(());
        }
        if let Some(read) = self.row_read(r) {
            return self.compute_row_read(r, &read);
        }
        let (i, instr) = (r.index(), self.expr.instrs()[r.index()]);
        let level = self.levels[i];
        let mut src = [Location::Scratch(0); 3];
        let scalar = self.scalar_operand(r);
        if let Op::Read(read) = instr.op {
            let read = ReadStep::new(&read, |r| {
                self.fill(r);
                self.read(r)
            })?;
            self.steps.reads.push(read);
        } else {
            for (k, a) in instr.op.operands().enumerate() {
                src[k] = self.read(a)?;
                if level == Level::Each && scalar != Some(k) {
                    self.fill(a);
                }
            }
        }
        let operand_dtype = instr.op.operands().next().map_or(instr.dtype, |a| self.expr.dtype(a));
        let rounds = rounds(instr.op, instr.dtype);
        let final_location = |p: &mut Self| match p.target[i] {
            Some(k) => Ok(Location::Direct(k)),
            None => p.scratch(class_of(instr.dtype), level),
        };
        if divides(instr.op) && instr.dtype.is_int() {
            self.emit(
                level,
                Step { instr: r.0, ..step(steps::check_divisor, src[1], [src[1]; 3]) },
            );
        }
        let mut dst = if rounds {
            self.scratch(class_of(instr.dtype), level)?
        } else {
            final_location(self)?
        };
        let run = self
            .in_place_op
            .filter(|(of, _)| *of == r)
            .and_then(|(_, run)| match scalar {
                Some(_) => broadcast::in_place_fn(instr.op, instr.dtype),
                None => Some(run),
            })
            .or_else(|| scalar.and_then(|k| broadcast::step_fn(instr.op, instr.dtype, k)))
            .or_else(|| step_fn(instr.op, operand_dtype, instr.dtype));
        let run = run.ok_or_else(|| {
            KernelError::argument(
                "pointwise",
                format!("`{}` does not take {operand_dtype}", instr.op.name()),
            )
        })?;
        let value = if let Op::Const(c) = instr.op { c } else { Scalar::Int(0) };
        let operand = self.place_operand(instr.op)?;
        self.emit(level, Step { value, operand, instr: r.0, ..step(run, dst, src) });
        if rounds {
            let rounded = final_location(self)?;
            self.emit(level, step(steps::cast_fn(instr.dtype, instr.dtype), rounded, [dst; 3]));
            if let (Location::Scratch(s), Level::Each) = (dst, level) {
                self.free[class_of(instr.dtype) as usize].push(s);
            }
            dst = rounded;
        }
        self.locations[i] = Some(dst);
        instr.op.operands().for_each(|a| self.release(a, i));
        Ok(())
    }
}

/// Whether elements of a dtype are used where they are.
pub(super) fn is_class(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I64 | DType::Bool)
}

pub(super) fn step(run: StepFn, dst: Location, src: [Location; 3]) -> Step {
    Step { run, dst, src, operand: 0, in_memory: false, value: Scalar::Int(0), instr: 0 }
}
