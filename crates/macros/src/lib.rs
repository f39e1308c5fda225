//! Maquette's attributes and derives. Use them through the facade, `maquette`.
//!
//! The generated code refers to the library as `::maquette::__private`. The option `crate = path`
//! sets another path of the facade. An expansion reports all mistakes at once, each at its tokens.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arguments;
mod custom_op;
mod module;
mod options;
mod register;
mod scoped;
mod signature;
mod snippets;
#[cfg(test)]
mod tests;
mod tree;

use proc_macro::TokenStream;

/// Makes a function the kernel of a new operator. A function with the same name and arguments then
/// calls the operator.
///
/// ```ignore
/// #[custom_op("mylib::numpy_sin")]
/// pub fn numpy_sin(x: &Tensor) -> Result<Tensor> { /* … */ }
/// ```
///
/// The schema is inferred from the signature, here `mylib::numpy_sin(Tensor x) -> Tensor`. The
/// kernel mutates the arguments that it takes by `&mut`. The attribute defines:
///
/// - `numpy_sin(&x)`, which calls the operator. If the kernel returns a `Tensor` or a tuple of
///   tensors, the function returns them without the `Result`: a failed call returns poisoned
///   tensors. A kernel that fails also poisons the arguments that it mutates. Other types are
///   returned in a `Result`.
/// - `numpy_sin::op()`, the operator; `numpy_sin::NAME`, its name; `numpy_sin::kernel(&x)`, the
///   kernel itself, without dispatch.
///
/// The operator is registered in every program that links the crate.
///
/// Options, after the name:
///
/// - `device_types("cpu", "cuda")`: the devices of the kernel; by default every device.
/// - `schema("(Tensor x, int y=3) -> Tensor")`: an explicit schema, for defaults and keywords. The
///   arguments have the kernel's names, in its order; underscores at either end do not count, and
///   any name stands for `self`.
/// - `effect("ordered")`: the operator has an effect besides its outputs and mutations.
/// - `crate = path`: the path of the facade.
#[proc_macro_attribute]
pub fn custom_op(args: TokenStream, item: TokenStream) -> TokenStream {
    custom_op::expand(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Registers a function as an operator's kernel for one device type: `#[register_kernel(numpy_sin,
/// "cuda")]`.
///
/// The first argument is the path of the function with `#[custom_op]`. Option: `crate = path`.
#[proc_macro_attribute]
pub fn register_kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    register::kernel(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Registers a function as an operator's fake kernel: `#[register_fake(numpy_sin)]` on `fn(cx:
/// &FakeCtx, x: &Tensor) -> Result<Tensor>`.
///
/// The first argument is the path of the function with `#[custom_op]`. Option: `crate = path`.
#[proc_macro_attribute]
pub fn register_fake(args: TokenStream, item: TokenStream) -> TokenStream {
    register::fake(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Registers a function as an operator's derivative: `#[register_autograd(crop, setup_context =
/// crop_setup)]` on `fn(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>>`.
///
/// The function is given a gradient for each tensor among the results, and returns one for each
/// argument. With `grads: &[Option<Tensor>]` it is given `None` instead of zeros where nothing
/// depends on a result. It consists of calls of operators, so that it can be traced.
///
/// The first argument is the path of the function with `#[custom_op]`. Options:
///
/// - `setup_context = f`: the path of a function that saves what the derivative reads, `fn(ctx:
///   &mut AutogradCtx, inputs: &[Value], outputs: &[Value]) -> Result<()>`.
/// - `crate = path`: the path of the facade.
#[proc_macro_attribute]
pub fn register_autograd(args: TokenStream, item: TokenStream) -> TokenStream {
    register::autograd(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a struct a tree of the leaves of its fields, so that traced functions can take and return
/// it.
///
/// A leaf is named by its field's name or position. Every type parameter must be a tree.
/// `#[tree(crate = path)]` gives the path of the facade.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(item: TokenStream) -> TokenStream {
    tree::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Puts what a method computes into the scope of its module: its path in the outermost module, as
/// `encoder.layers.0`. Traced graphs show the scopes of their calls.
///
/// ```ignore
/// #[derive(Module)]
/// struct Attention { /* … */ }
///
/// #[scoped]
/// impl Attention {
///     fn forward(&self, x: &Tensor, mask: &Tensor) -> Tensor { /* … */ }
/// }
/// ```
///
/// On an `impl` block, it applies to all methods that take `&self`. The struct has a
/// `#[derive(Module)]`, or implements `Module`. `Module::forward` by derive enters the scope
/// without the attribute; a call `module.forward(x)` of the struct's own method does not.
/// `#[scoped(crate = path)]` gives the path of the facade.
#[proc_macro_attribute]
pub fn scoped(args: TokenStream, item: TokenStream) -> TokenStream {
    scoped::expand(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Names a module's parameters and buffers after its fields, as in `layers.0.weight`.
///
/// ```ignore
/// #[derive(Module)]
/// #[module(Tensor -> Tensor)]
/// struct Mlp {
///     layers: Vec<Linear>,
///     #[buffer]
///     mean: Tensor,
///     #[module(skip)]
///     config: Config,
/// }
///
/// impl Mlp {
///     fn forward(&self, x: Tensor) -> Tensor { /* … */ }
/// }
/// ```
///
/// `#[module(In -> Out)]` declares the argument and result of the struct's method `forward`, and
/// makes the struct a `Module`. Without it, the struct is a part that modules can contain.
///
/// A field may be a tensor, a module, a part, a number, a `bool`, `PhantomData`, or an option,
/// vector, array, `Arc` or `Rc` of these, or a reference to or `Box` of any of them. Within an
/// option, vector, array, `Arc` or `Rc`, a reference or `Box` must be of a module. Mark fields of
/// other types with `#[module(skip)]`. Tensors are parameters, or buffers if the field is marked
/// `#[buffer]`. Every type parameter must be the type of such a field. `#[module(crate = path)]`
/// gives the path of the facade.
#[proc_macro_derive(Module, attributes(module, buffer))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    module::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The text of a page, given by its path in the package, with the lines that its snippets need as
/// doc tests.
#[doc(hidden)]
#[proc_macro]
pub fn snippets(path: TokenStream) -> TokenStream {
    snippets::expand(path.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
