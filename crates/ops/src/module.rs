//! Modules: programs that own tensors, and what those are called.

use crate::tensor::Tensor;
use crate::tree::Tree;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

/// What a tensor is to the module that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// It is learnt.
    Parameter,
    /// It belongs to the module's state, but is not learnt: running statistics, a cache, a table.
    Buffer,
}

impl Slot {
    /// `parameter` or `buffer`.
    pub const fn name(self) -> &'static str {
        match self {
            Slot::Parameter => "parameter",
            Slot::Buffer => "buffer",
        }
    }
}

/// A program that owns parameters and buffers. `#[derive(Module)]` with `#[module(In -> Out)]`
/// writes this.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module",
    label = "the trait `Module` is not implemented for `{Self}`",
    note = "`#[derive(Module)]` makes a struct a module if it says what `forward` takes and \
        returns, as in `#[module(Tensor -> Tensor)]`; without that, the struct is a part that \
        modules contain"
)]
pub trait Module {
    /// What it takes.
    type In: Tree;
    /// What it returns.
    type Out: Tree;

    /// Runs the program.
    fn forward(&self, x: Self::In) -> Self::Out;

    /// Calls `v` with each parameter and buffer and its name: field names and positions joined by
    /// dots, `layers.0.weight`. A tensor that the module has under several names is visited under
    /// each.
    fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor));
}

impl<M: Module + ?Sized> Module for &M {
    type In = M::In;
    type Out = M::Out;

    fn forward(&self, x: M::In) -> M::Out {
        (**self).forward(x)
    }

    fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        (**self).visit(v);
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    type In = M::In;
    type Out = M::Out;

    fn forward(&self, x: M::In) -> M::Out {
        (**self).forward(x)
    }

    fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        (**self).visit(v);
    }
}

/// What a module may be made of: modules and their parts, which own tensors under names.
/// `#[derive(Module)]` writes this for structs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no parameters or buffers that a module could name",
    note = "a module's fields are tensors, modules, structs with `#[derive(Module)]`, and \
        options, vectors, arrays and shared pointers of \
            them; mark any other field `#[module(skip)]`"
)]
pub trait State {
    /// Visits each tensor, as [`Module::visit`] does. Names continue `path`; in a buffer everything
    /// is a buffer.
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor));
}

/// Visits a part of something that is called `path`.
pub fn visit_part(
    part: &(impl State + ?Sized),
    path: &str,
    name: &str,
    slot: Slot,
    v: &mut dyn FnMut(&str, Slot, &Tensor),
) {
    part.visit_at(&join(path, name), slot, v);
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<M: Module + ?Sized> State for M {
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        self.visit(&mut |name, own, t| {
            v(&join(path, name), if slot == Slot::Buffer { slot } else { own }, t)
        });
    }
}

impl State for Tensor {
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        v(path, slot, self);
    }
}

macro_rules! elements {
    ($(($($generics:tt)*) $t:ty;)*) => { $(
        impl<$($generics)*> State for $t {
            fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
                for (i, x) in self.iter().enumerate() {
                    visit_part(x, path, &i.to_string(), slot, v);
                }
            }
        }
    )* };
}
elements! {
    (T: State) Vec<T>;
    (T: State, const N: usize) [T; N];
}

impl<T: State> State for Option<T> {
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
        self.iter().for_each(|x| x.visit_at(path, slot, v));
    }
}

macro_rules! pointers {
    ($($t:ident),*) => { $(
        impl<T: State + ?Sized> State for $t<T> {
            fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
                (**self).visit_at(path, slot, v);
            }
        }
    )* };
}
pointers!(Arc, Rc);

macro_rules! nothing {
    ($(($($generics:tt)*) $t:ty;)*) => { $(
        impl<$($generics)*> State for $t {
            fn visit_at(&self, _path: &str, _slot: Slot, _v: &mut dyn FnMut(&str, Slot, &Tensor)) {}
        }
    )* };
}
nothing! {
    () i8; () i16; () i32; () i64; () i128; () isize;
    () u8; () u16; () u32; () u64; () u128; () usize;
    () f32; () f64;
    () bool;
    (T: ?Sized) PhantomData<T>;
}
