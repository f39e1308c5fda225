//! Maquette's attributes and derives. Use them through the facade, `maquette`.
//!
//! What they emit names everything through `::maquette::__private`; `crate = path` says where else
//! the facade is to be found. Mistakes are reported at the tokens they are in, all of them at once.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arguments;
mod custom_op;
mod module;
mod options;
mod register;
mod signature;
#[cfg(test)]
mod tests;
mod tree;

use proc_macro::TokenStream;

/// Makes a function the kernel of a new operator, and leaves a function of the same name that calls
/// the operator.
///
/// ```ignore
/// #[custom_op("mylib::numpy_sin")]
/// pub fn numpy_sin(x: &Tensor) -> Result<Tensor> { /* … */ }
/// ```
///
/// The signature is the schema, here `mylib::numpy_sin(Tensor x) -> Tensor`; what is taken by
/// `&mut` is mutated. Afterwards
///
/// - `numpy_sin(&x)` calls the operator. It returns what the kernel returns: a `Tensor`, or a tuple
///   of them, without the `Result` (a failure poisons them, and what was to be mutated), everything
///   else with it.
/// - `numpy_sin::op()` is the operator, `numpy_sin::NAME` its name, `numpy_sin::kernel(&x)` the
///   kernel itself, past the dispatcher.
///
/// The operator is registered without any call, wherever the crate is linked.
///
/// Options, after the name: `device_types("cpu", "cuda")`, the devices the kernel is for, every
/// device by default; `schema("(Tensor x, int y=3) -> Tensor")`, to say what a signature cannot;
/// `effect("ordered")`, for an operator that does something besides its outputs; `crate = path`,
/// the path of the facade.
#[proc_macro_attribute]
pub fn custom_op(args: TokenStream, item: TokenStream) -> TokenStream {
    custom_op::expand(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a function an operator's kernel for one device type: `#[register_kernel(numpy_sin,
/// "cuda")]`.
///
/// The first argument is the path of the function that `#[custom_op]` was written on. Option:
/// `crate = path`.
#[proc_macro_attribute]
pub fn register_kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    register::kernel(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a function an operator's fake kernel: `#[register_fake(numpy_sin)]` on `fn(cx: &FakeCtx,
/// x: &Tensor) -> Result<Tensor>`.
///
/// The first argument is the path of the function that `#[custom_op]` was written on. Option:
/// `crate = path`.
#[proc_macro_attribute]
pub fn register_fake(args: TokenStream, item: TokenStream) -> TokenStream {
    register::fake(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct a tree, whose leaves are its fields' leaves: what a traced function may take and
/// return.
///
/// Leaves are named by the fields' names, or positions. Every type parameter must be a tree.
/// `#[tree(crate = path)]` gives the path of the facade.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(item: TokenStream) -> TokenStream {
    tree::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
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
/// `#[module(In -> Out)]` says what the struct's method `forward` takes and returns, and makes it a
/// `Module`; a struct without it is a part that modules can have. Fields are tensors, modules,
/// parts, and options, vectors, arrays and pointers of them, or plain numbers, which have no name;
/// any other is marked `#[module(skip)]`. Tensors are parameters, and buffers where a field is
/// marked `#[buffer]`. Every type parameter must be such a field's type. `#[module(crate = path)]`
/// gives the path of the facade.
#[proc_macro_derive(Module, attributes(module, buffer))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    module::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
