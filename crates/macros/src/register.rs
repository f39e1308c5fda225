//! `#[register_kernel]` and `#[register_fake]`: the function stays as it is; a static registration
//! adds it to the operator.

use crate::custom_op::submit;
use crate::options::{Register, private};
use crate::signature;
use proc_macro2::TokenStream;
use quote::quote;
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
    let add = match &options.device {
        Some(device) => quote!(register_kernel(#device, #ident)),
        None => quote!(register_fake(#ident)),
    };
    let run = quote!(#op::op().#add.map_err(|e| e.at(loc)));
    let registration = submit(&private, &quote!(Extend), &quote!(#op::NAME), &run);
    Ok(quote! {
        #[allow(dead_code)]
        #function
        #(#cfg)*
        #registration
    })
}
