//! `#[register_kernel]`, `#[register_fake]` and `#[register_autograd]`: keep the function
//! unchanged, and add a static registration for the operator. The compiler compares the arguments
//! of kernels with those of the operator's first kernel.

use crate::custom_op::submit;
use crate::options::{Purpose, Register, private};
use crate::signature;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, Result, Signature};

pub(crate) fn kernel(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    expand(Purpose::Kernel, args, item, |_| Ok(()))
}

pub(crate) fn fake(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    expand(Purpose::Fake, args, item, signature::fake_context)
}

pub(crate) fn autograd(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    expand(Purpose::Autograd, args, item, signature::backward)
}

fn expand(
    purpose: Purpose,
    args: TokenStream,
    item: TokenStream,
    check: fn(&Signature) -> Result<()>,
) -> Result<TokenStream> {
    let options = (|input: ParseStream<'_>| Register::parse(input, purpose)).parse2(args);
    let function = signature::function(purpose.attribute(), item)
        .and_then(|f| check(&f.sig).map(|()| f))
        .and_then(|f| signature::output(&f.sig).map(|_| f));
    let (options, function) = match (options, function) {
        (Ok(options), Ok(function)) => (options, function),
        (options, function) => {
            let errors: Vec<Error> = options.err().into_iter().chain(function.err()).collect();
            return signature::all(errors).map(|()| TokenStream::new());
        }
    };
    let private = private(options.root.as_ref());
    let (path, ident) = (&options.op, &function.sig.ident);
    let cfg = function.attrs.iter().filter(|a| a.path().is_ident("cfg"));
    // A name that is not a type, such as that of a plain function, leaves the type of the glob
    // import, which is not an operator and has the words for that.
    let at = path.span().resolved_at(Span::call_site());
    let op = quote_spanned!(at => __maquette_operator);
    let operator = quote_spanned!(at => <#op as #private::CustomOperator>);
    let import = quote! {
        #[allow(unused_imports)]
        use #private::no_operator::*;
        #[allow(unused_imports)]
        use #path as #op;
    };
    // The operator's first kernel is passed only for its type. The span makes an error of the
    // comparison point at this function's name.
    let span = ident.span().resolved_at(Span::call_site());
    let add = match (purpose, &options.device) {
        (Purpose::Autograd, _) => {
            let setup = match &options.setup_context {
                Some(setup) => quote!(#setup),
                None => quote!(#private::keep_nothing),
            };
            quote_spanned!(span => #private::register_autograd(#operator::op(), #ident, #setup))
        }
        (_, Some(device)) => {
            quote_spanned! { span =>
                #private::register_kernel(#operator::op(), #op::kernel, #device, #ident)
            }
        }
        (_, None) => {
            quote_spanned!(span => #private::register_fake(#operator::op(), #op::kernel, #ident))
        }
    };
    let run = quote!(#add.map_err(|e| e.at(loc)));
    let registration = submit(&private, &quote!(Extend), &quote!(#operator::NAME), &run);
    Ok(quote! {
        #[allow(dead_code)]
        #function
        #(#cfg)*
        const _: () = {
            #import
            #registration
        };
    })
}
