//! Reduces a failing program: fewer outputs, statements and inputs, smaller sizes, simpler values,
//! as long as it still fails.
//!
//! Greedy delta debugging on the program in editable form: each edit removes or simplifies one part
//! and is kept if the program still fails. Passes over all edits repeat until none succeeds, or
//! until `MAX_TRIES` programs were tried. Removing a statement connects its users to its first
//! operand, so that the rest of the program stays valid.

use super::program::TestProgram;
use super::program_builder::{BuilderArg, BuilderStmt, ProgramBuilder};
use maquette_ir::graph::Arg;
use maquette_ir::sym::Expr;
use maquette_ir::{DType, Scalar};

/// The maximum number of programs that are tried.
const MAX_TRIES: usize = 3000;

/// The smallest failing program that was found. `fails` is called with programs that are no larger
/// than `program`.
pub fn shrink(program: &TestProgram, fails: &dyn Fn(&TestProgram) -> bool) -> TestProgram {
    let Ok(builder) = ProgramBuilder::of(program) else { return program.clone() };
    let mut shrinker = Shrinker { builder, program: program.clone(), fails, tries: 0 };
    while shrinker.pass() && shrinker.tries < MAX_TRIES {}
    shrinker.program
}

/// The best program so far, in both forms.
struct Shrinker<'f> {
    builder: ProgramBuilder,
    program: TestProgram,
    fails: &'f dyn Fn(&TestProgram) -> bool,
    tries: usize,
}

impl Shrinker<'_> {
    /// Tries every edit once. Returns whether one of them succeeded.
    fn pass(&mut self) -> bool {
        let mut better = self.counted(|d| d.sizes.len(), |d, i| drop_at(&mut d.sizes, i, 1));
        better |= self.try_edit(concrete_sizes);
        better |= self.counted(|d| d.outputs.len(), |d, i| drop_at(&mut d.outputs, i, 0));
        better |= self.counted(|d| d.stmts.len(), drop_stmt);
        better |= self.counted(|d| d.inputs.len(), drop_input);
        better |= self.counted(|d| d.memories.len(), drop_memory);
        better |= self.counted(|d| d.stmts.len(), drop_elements);
        better |= self.counted(|d| d.inputs.len(), unshare_memory);
        better |= self.numbers();
        better | self.values()
    }

    /// Tries an edit at each index, from the last to the first.
    fn counted(
        &mut self,
        len: impl Fn(&ProgramBuilder) -> usize,
        edit: impl Fn(&mut ProgramBuilder, usize) -> bool,
    ) -> bool {
        let mut better = false;
        for i in (0..len(&self.builder)).rev() {
            better |= self.try_edit(|d| edit(d, i));
        }
        better
    }

    /// Applies an edit and keeps it if the program still fails. Returns whether it was kept.
    fn try_edit(&mut self, edit: impl FnOnce(&mut ProgramBuilder) -> bool) -> bool {
        let mut builder = self.builder.clone();
        if self.tries >= MAX_TRIES || !edit(&mut builder) {
            return false;
        }
        self.tries += 1;
        match builder.program() {
            Ok(program) if (self.fails)(&program) => {
                (self.builder, self.program) = (builder, program);
                true
            }
            _ => false,
        }
    }

    /// Smaller sizes and simpler layouts of inputs.
    fn numbers(&mut self) -> bool {
        let mut better = false;
        let dims: Vec<(usize, usize)> = self
            .builder
            .inputs
            .iter()
            .enumerate()
            .flat_map(|(i, input)| (0..input.sizes.len()).map(move |d| (i, d)))
            .collect();
        for (i, d) in dims {
            for n in [0, 1, 2] {
                better |= self.try_edit(|builder| {
                    let size = builder.inputs.get_mut(i).and_then(|input| input.sizes.get_mut(d));
                    let Some(size) = size.filter(|e| matches!(e, Expr::Int(old) if *old > n))
                    else {
                        return false;
                    };
                    *size = Expr::Int(n);
                    true
                });
            }
        }
        for i in 0..self.builder.inputs.len() {
            better |= self.try_edit(|builder| {
                builder
                    .inputs
                    .get_mut(i)
                    .is_some_and(|input| std::mem::take(&mut input.location.offset) != 0)
            });
            better |= self.try_edit(|builder| {
                builder.inputs.get_mut(i).is_some_and(|input| input.strides.take().is_some())
            });
        }
        better
    }

    /// Simpler contents of memories: fewer values, then small numbers.
    fn values(&mut self) -> bool {
        let mut better = false;
        for m in 0..self.builder.memories.len() {
            better |= self.try_edit(|d| {
                d.memories.get_mut(m).is_some_and(|memory| {
                    let half = memory.values.len() / 2;
                    half > 0 && {
                        memory.values.truncate(half);
                        true
                    }
                })
            });
            for v in 0..self.builder.memories.get(m).map_or(0, |m| m.values.len()) {
                better |= self.try_edit(|d| {
                    d.memories.get_mut(m).is_some_and(|memory| {
                        let plain = match memory.dtype {
                            DType::Bool => Scalar::Bool(true),
                            DType::I64 => Scalar::Int(1 + v as i64),
                            _ => Scalar::Float(1.0 + v as f64),
                        };
                        memory
                            .values
                            .get_mut(v)
                            .is_some_and(|value| std::mem::replace(value, plain) != plain)
                    })
                });
            }
        }
        better
    }
}

/// Removes an element, unless only `at_least` are left.
fn drop_at<T>(from: &mut Vec<T>, i: usize, at_least: usize) -> bool {
    let droppable = i < from.len() && from.len() > at_least;
    if droppable {
        from.remove(i);
    }
    droppable
}

/// Replaces symbols by the sizes of the first run.
pub(super) fn concrete_sizes(d: &mut ProgramBuilder) -> bool {
    let Some(at) = d.sizes.first().filter(|at| !at.is_empty()) else { return false };
    let number = |e: Expr| {
        d.table
            .eval(e, &|s| at.iter().find(|(name, _)| name == d.table.name(s)).map(|(_, n)| *n))
            .ok()
    };
    let Some(concrete) = d.with_concrete_sizes(&number) else { return false };
    *d = concrete;
    true
}

/// Removes a statement. Users of its results use its first operand instead, or are removed too.
pub(super) fn drop_stmt(d: &mut ProgramBuilder, i: usize) -> bool {
    if i >= d.stmts.len() {
        return false;
    }
    let BuilderStmt::Call(mut call) = d.stmts.remove(i) else { return true };
    let mut operand = None;
    call.args_mut().for_each(|a| a.for_each_value(&mut |v| operand = operand.or(Some(*v))));
    let gone: Vec<usize> = call.results.iter().flat_map(|g| g.values().to_vec()).collect();
    replace(d, &gone, operand);
    true
}

/// Removes an unused input.
fn drop_input(d: &mut ProgramBuilder, i: usize) -> bool {
    let Some(value) = d.inputs.get(i).map(|input| input.value) else { return false };
    let mut used = false;
    let mut look = |v: &mut usize| used |= *v == value;
    for step in &mut d.stmts {
        match step {
            BuilderStmt::Call(c) => c.args_mut().for_each(|a| a.for_each_value(&mut look)),
            BuilderStmt::Bind(_, v, _) => look(v),
        }
    }
    d.outputs.iter_mut().for_each(|a| a.for_each_value(&mut look));
    if used || d.inputs.len() == 1 {
        return false;
    }
    d.inputs.remove(i);
    true
}

/// Removes a memory that no input views.
fn drop_memory(d: &mut ProgramBuilder, i: usize) -> bool {
    if d.inputs.iter().any(|input| input.location.memory == i) || !drop_at(&mut d.memories, i, 0) {
        return false;
    }
    d.inputs
        .iter_mut()
        .filter(|input| input.location.memory > i)
        .for_each(|input| input.location.memory -= 1);
    true
}

/// Removes the last tensor of each list argument.
fn drop_elements(d: &mut ProgramBuilder, i: usize) -> bool {
    let Some(BuilderStmt::Call(call)) = d.stmts.get_mut(i) else { return false };
    let mut shorter = false;
    for a in &mut call.args {
        if let BuilderArg::List(l) = a
            && l.len() > 1
            && l.iter().any(|e| matches!(e, BuilderArg::Value(_) | BuilderArg::Plain(Arg::None)))
        {
            l.pop();
            shorter = true;
        }
    }
    shorter
}

/// Gives an input that shares its memory a copy of that memory.
fn unshare_memory(d: &mut ProgramBuilder, i: usize) -> bool {
    let Some(memory) = d.inputs.get(i).map(|input| input.location.memory) else { return false };
    let (Some(copy), true) = (
        d.memories.get(memory).cloned(),
        d.inputs.iter().filter(|o| o.location.memory == memory).count() > 1,
    ) else {
        return false;
    };
    d.memories.push(copy);
    let own = d.memories.len() - 1;
    if let Some(input) = d.inputs.get_mut(i) {
        input.location.memory = own;
    }
    true
}

/// Replaces removed values by another one; without `by`, removes their users, transitively.
fn replace(d: &mut ProgramBuilder, gone: &[usize], by: Option<usize>) {
    let mut gone = gone.to_vec();
    let edit = |item: &mut BuilderArg, gone: &[usize]| {
        let mut dead = false;
        item.for_each_value(&mut |v| {
            if gone.contains(v) {
                match by {
                    Some(by) => *v = by,
                    None => dead = true,
                }
            }
        });
        dead
    };
    d.stmts.retain_mut(|step| match step {
        BuilderStmt::Bind(_, v, _) => !gone.contains(v),
        BuilderStmt::Call(c) => {
            let mut dead = false;
            for a in c.args_mut() {
                dead |= edit(a, &gone);
            }
            if dead {
                gone.extend(c.results.iter().flat_map(|g| g.values()));
            }
            !dead
        }
    });
    d.outputs.retain_mut(|a| !edit(a, &gone));
}
