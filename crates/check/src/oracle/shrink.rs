//! Makes a failing program small: fewer outputs, statements and inputs, smaller sizes, plainer values, as long as it fails.

use super::draft::{Draft, Item, Step};
use super::program::Program;
use maquette_ir::graph::Arg;
use maquette_ir::sym::Expr;
use maquette_ir::{DType, Scalar};

/// How many programs are tried before the best so far is taken.
const TRIES: usize = 3000;

/// The smallest program found that still fails. `fails` is asked about programs that are not larger than the given one.
pub fn shrink(program: &Program, fails: &dyn Fn(&Program) -> bool) -> Program {
    let Ok(draft) = Draft::of(program) else { return program.clone() };
    let mut s = Shrinker { draft, program: program.clone(), fails, tries: 0 };
    while s.pass() && s.tries < TRIES {}
    s.program
}

struct Shrinker<'f> {
    draft: Draft,
    program: Program,
    fails: &'f dyn Fn(&Program) -> bool,
    tries: usize,
}

impl Shrinker<'_> {
    /// Tries every cut once; whether one helped.
    fn pass(&mut self) -> bool {
        let mut better = self.counted(|d| d.sizes.len(), |d, i| drop_at(&mut d.sizes, i, 1));
        better |= self.try_edit(plain_sizes);
        better |= self.counted(|d| d.outputs.len(), |d, i| drop_at(&mut d.outputs, i, 0));
        better |= self.counted(|d| d.steps.len(), drop_step);
        better |= self.counted(|d| d.inputs.len(), drop_input);
        better |= self.counted(|d| d.memories.len(), drop_memory);
        better |= self.counted(|d| d.steps.len(), drop_elements);
        better |= self.counted(|d| d.inputs.len(), give_memory);
        better |= self.numbers();
        better | self.values()
    }

    /// Tries an edit at each index, from the last.
    fn counted(&mut self, len: impl Fn(&Draft) -> usize, edit: impl Fn(&mut Draft, usize) -> bool) -> bool {
        let mut better = false;
        for i in (0..len(&self.draft)).rev() {
            better |= self.try_edit(|d| edit(d, i));
        }
        better
    }

    fn try_edit(&mut self, edit: impl FnOnce(&mut Draft) -> bool) -> bool {
        let mut draft = self.draft.clone();
        if self.tries >= TRIES || !edit(&mut draft) {
            return false;
        }
        self.tries += 1;
        match draft.program() {
            Ok(program) if (self.fails)(&program) => {
                (self.draft, self.program) = (draft, program);
                true
            }
            _ => false,
        }
    }

    /// Smaller sizes: of inputs, and of the runs of a program with symbols.
    fn numbers(&mut self) -> bool {
        let mut better = false;
        let dims: Vec<(usize, usize)> =
            self.draft.inputs.iter().enumerate().flat_map(|(i, input)| (0..input.sizes.len()).map(move |d| (i, d))).collect();
        for (i, d) in dims {
            for n in [0, 1, 2] {
                better |= self.try_edit(|draft| {
                    let size = draft.inputs.get_mut(i).and_then(|input| input.sizes.get_mut(d));
                    let Some(size) = size.filter(|e| matches!(e, Expr::Int(old) if *old > n)) else { return false };
                    *size = Expr::Int(n);
                    true
                });
            }
        }
        for i in 0..self.draft.inputs.len() {
            better |= self.try_edit(|draft| draft.inputs.get_mut(i).is_some_and(|input| std::mem::take(&mut input.place.offset) != 0));
            better |= self.try_edit(|draft| draft.inputs.get_mut(i).is_some_and(|input| input.strides.take().is_some()));
        }
        better
    }

    /// Plainer contents: fewer of them, then small numbers.
    fn values(&mut self) -> bool {
        let mut better = false;
        for m in 0..self.draft.memories.len() {
            better |= self.try_edit(|d| {
                d.memories.get_mut(m).is_some_and(|memory| {
                    let half = memory.values.len() / 2;
                    half > 0 && {
                        memory.values.truncate(half);
                        true
                    }
                })
            });
            for v in 0..self.draft.memories.get(m).map_or(0, |m| m.values.len()) {
                better |= self.try_edit(|d| {
                    d.memories.get_mut(m).is_some_and(|memory| {
                        let plain = match memory.dtype {
                            DType::Bool => Scalar::Bool(true),
                            DType::I64 => Scalar::Int(1 + v as i64),
                            _ => Scalar::Float(1.0 + v as f64),
                        };
                        memory.values.get_mut(v).is_some_and(|value| std::mem::replace(value, plain) != plain)
                    })
                });
            }
        }
        better
    }
}

fn drop_at<T>(from: &mut Vec<T>, i: usize, at_least: usize) -> bool {
    let droppable = i < from.len() && from.len() > at_least;
    if droppable {
        from.remove(i);
    }
    droppable
}

/// Puts the sizes of the first run in the place of symbols.
fn plain_sizes(d: &mut Draft) -> bool {
    let Some(at) = d.sizes.first().filter(|at| !at.is_empty()) else { return false };
    let number = |e: Expr| d.table.eval(e, &|s| at.iter().find(|(name, _)| name == d.table.name(s)).map(|(_, n)| *n)).ok();
    let Some(fixed) = d.fixed(&number) else { return false };
    *d = fixed;
    true
}

/// Takes a step out. Whoever took its results takes its first operand instead, or goes too.
fn drop_step(d: &mut Draft, i: usize) -> bool {
    if i >= d.steps.len() {
        return false;
    }
    let Step::Call(mut call) = d.steps.remove(i) else { return true };
    let mut operand = None;
    call.items().for_each(|a| a.for_each_value(&mut |v| operand = operand.or(Some(*v))));
    let gone: Vec<usize> = call.results.iter().flat_map(|g| g.values().to_vec()).collect();
    replace(d, &gone, operand);
    true
}

/// Takes an input out that nothing uses.
fn drop_input(d: &mut Draft, i: usize) -> bool {
    let Some(value) = d.inputs.get(i).map(|input| input.value) else { return false };
    let mut used = false;
    let mut look = |v: &mut usize| used |= *v == value;
    for step in &mut d.steps {
        match step {
            Step::Call(c) => c.items().for_each(|a| a.for_each_value(&mut look)),
            Step::Bind(_, v, _) => look(v),
        }
    }
    d.outputs.iter_mut().for_each(|a| a.for_each_value(&mut look));
    if used || d.inputs.len() == 1 {
        return false;
    }
    d.inputs.remove(i);
    true
}

/// Takes a memory out that no input sees.
fn drop_memory(d: &mut Draft, i: usize) -> bool {
    if d.inputs.iter().any(|input| input.place.memory == i) || !drop_at(&mut d.memories, i, 0) {
        return false;
    }
    d.inputs.iter_mut().filter(|input| input.place.memory > i).for_each(|input| input.place.memory -= 1);
    true
}

/// Takes the last tensor out of each list of them.
fn drop_elements(d: &mut Draft, i: usize) -> bool {
    let Some(Step::Call(call)) = d.steps.get_mut(i) else { return false };
    let mut shorter = false;
    for a in &mut call.args {
        if let Item::List(l) = a
            && l.len() > 1
            && l.iter().any(|e| matches!(e, Item::Value(_) | Item::Plain(Arg::None)))
        {
            l.pop();
            shorter = true;
        }
    }
    shorter
}

/// Gives an input that shares its memory one of its own.
fn give_memory(d: &mut Draft, i: usize) -> bool {
    let Some(memory) = d.inputs.get(i).map(|input| input.place.memory) else { return false };
    let (Some(copy), true) = (d.memories.get(memory).cloned(), d.inputs.iter().filter(|o| o.place.memory == memory).count() > 1) else {
        return false;
    };
    d.memories.push(copy);
    let own = d.memories.len() - 1;
    if let Some(input) = d.inputs.get_mut(i) {
        input.place.memory = own;
    }
    true
}

/// Puts `by` in the place of values that are gone; without it, whatever takes them goes too, and so on.
fn replace(d: &mut Draft, gone: &[usize], by: Option<usize>) {
    let mut gone = gone.to_vec();
    let edit = |item: &mut Item, gone: &[usize]| {
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
    d.steps.retain_mut(|step| match step {
        Step::Bind(_, v, _) => !gone.contains(v),
        Step::Call(c) => {
            let mut dead = false;
            for a in c.items() {
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
