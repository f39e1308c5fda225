//! `#[register_kernel]` and `#[register_fake]`: keep the function unchanged, and add a static
//! registration for the operator. The compiler compares the function's arguments with those of the
//! operator's first kernel.

use crate::custom_op::submit;
use crate::options::{Register, private};
use crate::signature;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::{Error, ItemFn, Result};

pub(crate) fn kernel(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options =
        (|input: syn::parse::ParseStream<'_>| Register::parse(input, "register_kernel", true))
            .parse2(args);
    expand(options, signature::function("register_kernel", item))
}

pub(crate) fn fake(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options =
        (|input: syn::parse::ParseStream<'_>| Register::parse(input, "register_fake", false))
            .parse2(args);
    let function = signature::function("register_fake", item)
        .and_then(|f| signature::fake_context(&f.sig).map(|()| f));
    expand(options, function)
}

fn expand(options: Result<Register>, function: Result<ItemFn>) -> Result<TokenStream> {
    let function = function.and_then(|f| signature::output(&f.sig).map(|_| f));
    let (options, function) = match (options, function) {
        (Ok(options), Ok(function)) => (options, function),
        (options, function) => {
            let errors: Vec<Error> = options.err().into_iter().chain(function.err()).collect();
            return signature::all(errors).map(|()| TokenStream::new());
        }
    };
    let private = private(options.root.as_ref());
    let (op, ident) = (&options.op, &function.sig.ident);
    let cfg = function.attrs.iter().filter(|a| a.path().is_ident("cfg"));
    // The operator's first kernel is passed only for its type. The span makes an error of the
    // comparison point at this function's name.
    let span = ident.span().resolved_at(Span::call_site());
    let add = match &options.device {
        Some(device) => {
            quote_spanned! { span =>
                #private::register_kernel(#op::op(), #op::kernel, #device, #ident)
            }
        }
        None => quote_spanned!(span => #private::register_fake(#op::op(), #op::kernel, #ident)),
    };
    let run = quote!(#add.map_err(|e| e.at(loc)));
    let registration = submit(&private, &quote!(Extend), &quote!(#op::NAME), &run);
    Ok(quote! {
        #[allow(dead_code)]
        #function
        #(#cfg)*
        #registration
    })
}
