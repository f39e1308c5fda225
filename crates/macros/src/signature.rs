//! Validation of a kernel's Rust signature. Each function reports every problem it finds, so that
//! the user sees them in one compilation.

use crate::arguments::{
    Access, Parameter, SUPPORTED, access, is_tensor, last_segment, parameter, strip_parens, text,
};
use proc_macro2::TokenStream;
use syn::{
    Error, FnArg, Ident, Item, ItemFn, Pat, Result, ReturnType, Signature, Token, Type, parse2,
};

/// An argument of a kernel: its name and its access.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) access: Access,
}

/// The kind of value inside a kernel's `Result`.
pub(crate) enum Output {
    /// One tensor, or a tuple of tensors: the generated wrapper returns these without the `Result`,
    /// since a failed call can return poisoned tensors.
    Tensors(Type),
    /// Anything else.
    Other(Type),
}

/// Parses the function that an attribute annotates.
///
/// # Errors
/// The item is not a function with a body, or has a receiver, qualifiers or generic parameters.
pub(crate) fn function(attribute: &str, item: TokenStream) -> Result<ItemFn> {
    let function = match parse2::<Item>(item)? {
        Item::Fn(function) => function,
        other => {
            return Err(Error::new_spanned(
                other,
                format!(
                    "`#[{attribute}]` applies to a function with a body, `fn(…) -> Result<…> {{ … \
                        }}`"
                ),
            ));
        }
    };
    let mut errors = Vec::new();
    qualifiers(attribute, &function.sig, &mut errors);
    all(errors).map(|()| function)
}

fn qualifiers(attribute: &str, sig: &Signature, errors: &mut Vec<Error>) {
    let mut refuse = |tokens: &dyn quote::ToTokens, why: &str| {
        errors.push(Error::new_spanned(
            tokens.to_token_stream(),
            format!("a function with `#[{attribute}]` cannot {why}"),
        ));
    };
    if let Some(t) = &sig.constness {
        refuse(t, "be `const`: kernels run at run time only");
    }
    if let Some(t) = &sig.asyncness {
        refuse(t, "be `async`: a call returns when its work is done, or queued on the device");
    }
    if let syn::Safety::Unsafe(t) = &sig.safety {
        refuse(
            t,
            "be `unsafe`: safe code may call the operator; use an `unsafe` block in the body",
        );
    }
    if let Some(t) = &sig.abi {
        refuse(t, "be `extern`: call the foreign function from a Rust function");
    }
    if !sig.generics.params.is_empty() {
        refuse(
            &sig.generics,
            "be generic: an operator has one schema; branch on `x.dtype()` in the body",
        );
    } else if let Some(clause) = &sig.generics.where_clause {
        refuse(clause, "have a `where` clause");
    }
    if let Some(t) = &sig.variadic {
        refuse(t, "be variadic; take a list, such as `&[Tensor]`");
    }
    if let Some(t) = sig.receiver() {
        refuse(
            t,
            "take `self`: an operator is not a method; make it a free function with the tensors as \
                arguments",
        );
    }
}

/// The arguments with their names and types.
///
/// # Errors
/// An argument is a pattern, or has a type that operators do not take.
pub(crate) fn arguments(sig: &Signature) -> Result<Vec<Argument>> {
    let mut errors = Vec::new();
    let mut out = Vec::new();
    let mut listed = false;
    for arg in &sig.inputs {
        let FnArg::Typed(arg) = arg else { continue };
        let name = match &*arg.pat {
            Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => Some(p.ident.clone()),
            other => {
                errors.push(Error::new_spanned(
                    other,
                    "an argument needs a plain name, which is its name in the schema; destructure \
                        it in the body",
                ));
                None
            }
        };
        match (name, access(&arg.ty)) {
            // Only the first such error lists the supported types.
            (_, Err(e)) if !std::mem::replace(&mut listed, true) => {
                errors.push(Error::new_spanned(&arg.ty, format!("{e}\n{SUPPORTED}")))
            }
            (_, Err(e)) => errors.push(e),
            (Some(name), Ok(access)) => out.push(Argument { name, ty: (*arg.ty).clone(), access }),
            (None, Ok(_)) => {}
        }
    }
    all(errors).map(|()| out)
}

/// The type inside the returned `Result`.
///
/// # Errors
/// The function does not return a `Result`.
pub(crate) fn output(sig: &Signature) -> Result<Output> {
    let ReturnType::Type(_, ty) = &sig.output else {
        let close = sig.paren_token.span.close();
        return Err(Error::new(
            close,
            "a kernel can fail: write its return type, `-> Result<Tensor>`, or `-> Result<()>` if \
                it returns nothing",
        ));
    };
    let inner = match last_segment(strip_parens(ty)) {
        Some((name, Some(inner))) if name == "Result" => strip_parens(inner),
        Some((name, None)) if name == "Result" => {
            return Err(Error::new_spanned(
                ty,
                "`Result` needs a type argument: write `Result<Tensor>`, or `Result<()>` if it \
                    returns nothing",
            ));
        }
        _ => {
            return Err(Error::new_spanned(
                ty,
                format!("a kernel can fail: return `Result<{}>`", text(ty)),
            ));
        }
    };
    let tensors = match inner {
        Type::Tuple(t) => !t.elems.is_empty() && t.elems.iter().all(is_tensor),
        other => is_tensor(other),
    };
    Ok(if tensors { Output::Tensors(inner.clone()) } else { Output::Other(inner.clone()) })
}

/// Checks the fake kernel's first argument.
///
/// # Errors
/// The first argument is not a `&FakeCtx`.
pub(crate) fn fake_context(sig: &Signature) -> Result<()> {
    let message = "a fake kernel takes `cx: &FakeCtx` before the operator's arguments";
    match sig.inputs.first() {
        Some(FnArg::Typed(first)) if is_reference_to(&first.ty, "FakeCtx") => Ok(()),
        Some(other) => Err(Error::new_spanned(other, message)),
        None => Err(Error::new(sig.paren_token.span.join(), message)),
    }
}

/// Whether a type is a shared reference to a type of this name.
fn is_reference_to(ty: &Type, name: &str) -> bool {
    match strip_parens(ty) {
        Type::Reference(r) if r.mutability.is_none() => {
            matches!(last_segment(strip_parens(&r.elem)), Some((found, None)) if found == name)
        }
        _ => false,
    }
}

/// Checks the arguments of a derivative.
///
/// # Errors
/// They are not a `&AutogradCtx` and a slice.
pub(crate) fn backward(sig: &Signature) -> Result<()> {
    let is_slice = |ty: &Type| match strip_parens(ty) {
        Type::Reference(r) => {
            r.mutability.is_none() && matches!(strip_parens(&r.elem), Type::Slice(_))
        }
        _ => false,
    };
    let arguments: Vec<&FnArg> = sig.inputs.iter().collect();
    match arguments[..] {
        [FnArg::Typed(ctx), FnArg::Typed(grads)]
            if is_reference_to(&ctx.ty, "AutogradCtx") && is_slice(&grads.ty) =>
        {
            Ok(())
        }
        _ => Err(Error::new(
            sig.paren_token.span.join(),
            "a derivative takes `ctx: &AutogradCtx, grads: &[Tensor]`, where `grads` are those of \
                the results, and returns `Result<Vec<Option<Tensor>>>`",
        )),
    }
}

/// The wrapper's parameters: those of the kernel, but without `mut`, which concerns only the
/// kernel, and with `impl Into<SymInt>` for integers.
pub(crate) fn parameters(
    private: &TokenStream,
    args: &[Argument],
) -> syn::punctuated::Punctuated<TokenStream, Token![,]> {
    let parameter = |Argument { name, ty, .. }: &Argument| match parameter(ty) {
        Parameter::AsKernel => quote::quote!(#name: #ty),
        Parameter::Integer => {
            quote::quote!(#name: impl ::core::convert::Into<#private::SymInt>)
        }
        Parameter::Integers => quote::quote!(#name: impl #private::IntoDims),
    };
    args.iter().map(parameter).collect()
}

/// Combines all errors into one.
pub(crate) fn all(errors: Vec<Error>) -> Result<()> {
    let combined = errors.into_iter().reduce(|mut a, b| {
        a.combine(b);
        a
    });
    combined.map_or(Ok(()), Err)
}
