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

    /// Shows `v` the module and its parts. Names continue `path`; in a buffer everything is a
    /// buffer. `#[derive(Module)]` writes this. Without it, the parts of the module have no names
    /// of their own in traces, and belong to the module.
    #[doc(hidden)]
    fn walk(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        v.part(path, PartId::of(self));
        self.visit(&mut |name, own, t| {
            v.tensor(&join(path, name), if slot == Slot::Buffer { slot } else { own }, t);
        });
    }
}

/// What sees the parts of a module.
#[doc(hidden)]
pub trait Visitor {
    /// Called with each parameter and buffer.
    fn tensor(&mut self, name: &str, slot: Slot, t: &Tensor);
    /// Called with each module and part that may have code of its own.
    fn part(&mut self, path: &str, id: PartId);
}

/// Which part of a module a value is. No other value of the type has its address as long as it is
/// borrowed, unless it has no size.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartId {
    address: usize,
    of: &'static str,
}

impl PartId {
    /// That of this value.
    pub fn of<T: ?Sized>(part: &T) -> PartId {
        let address = std::ptr::from_ref(part).cast::<()>().addr();
        PartId { address, of: std::any::type_name::<T>() }
    }
}

/// Passes on tensors alone.
struct TensorsOnly<'a>(&'a mut dyn FnMut(&str, Slot, &Tensor));

impl Visitor for TensorsOnly<'_> {
    fn tensor(&mut self, name: &str, slot: Slot, t: &Tensor) {
        (self.0)(name, slot, t);
    }

    fn part(&mut self, _path: &str, _id: PartId) {}
}

/// [`Module::visit`] by [`Module::walk`], for modules by derive.
#[doc(hidden)]
pub fn visit_tensors(module: &(impl Module + ?Sized), v: &mut dyn FnMut(&str, Slot, &Tensor)) {
    module.walk("", Slot::Parameter, &mut TensorsOnly(v));
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

    fn walk(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        (**self).walk(path, slot, v);
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

    fn walk(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        (**self).walk(path, slot, v);
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
    /// Shows each tensor and part to `v`, as [`Module::walk`] does.
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor);
}

/// Visits the tensors of a part of something that is called `path`, for a [`Module::visit`] by
/// hand.
pub fn visit_part(
    part: &(impl State + ?Sized),
    path: &str,
    name: &str,
    slot: Slot,
    v: &mut dyn FnMut(&str, Slot, &Tensor),
) {
    walk_part(part, path, name, slot, &mut TensorsOnly(v));
}

/// Shows a part of something that is called `path` to `v`.
pub fn walk_part(
    part: &(impl State + ?Sized),
    path: &str,
    name: &str,
    slot: Slot,
    v: &mut dyn Visitor,
) {
    part.visit_at(&join(path, name), slot, v);
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<M: Module + ?Sized> State for M {
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        self.walk(path, slot, v);
    }
}

impl State for Tensor {
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        v.tensor(path, slot, self);
    }
}

macro_rules! elements {
    ($(($($generics:tt)*) $t:ty;)*) => { $(
        impl<$($generics)*> State for $t {
            fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
                for (i, x) in self.iter().enumerate() {
                    walk_part(x, path, &i.to_string(), slot, v);
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
    fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
        self.iter().for_each(|x| x.visit_at(path, slot, v));
    }
}

macro_rules! pointers {
    ($($t:ident),*) => { $(
        impl<T: State + ?Sized> State for $t<T> {
            fn visit_at(&self, path: &str, slot: Slot, v: &mut dyn Visitor) {
                (**self).visit_at(path, slot, v);
            }
        }
    )* };
}
pointers!(Arc, Rc);

macro_rules! nothing {
    ($(($($generics:tt)*) $t:ty;)*) => { $(
        impl<$($generics)*> State for $t {
            fn visit_at(&self, _path: &str, _slot: Slot, _v: &mut dyn Visitor) {}
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
