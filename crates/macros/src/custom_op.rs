//! `#[custom_op]`: expands a kernel to a wrapper function, a type and a static registration.
//!
//! The wrapper has the kernel's name and calls the operator. The kernel becomes an associated
//! function of an empty type of the same name. A module of that name would also work for paths. But
//! it would change the meaning of `self::` and `super::` in the kernel, and it could not see the
//! imports of an enclosing function body, as examples and tests have.

use crate::arguments::{Access, Parameter, parameter};
use crate::options::{CustomOp, DeclaredEffect, private};
use crate::signature::{self, Argument, Output};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Ident, ItemFn, Result, Signature, parse2};

/// The attributes of the function, by the items that receive them.
struct Attributes<'a> {
    /// For all items.
    cfg: Vec<&'a Attribute>,
    /// For the wrapper: attributes that concern callers, such as documentation.
    wrapper: Vec<&'a Attribute>,
    /// For the kernel: attributes that concern the function's code.
    kernel: Vec<&'a Attribute>,
}

impl<'a> Attributes<'a> {
    fn of(function: &'a ItemFn) -> Attributes<'a> {
        let mut out = Attributes { cfg: Vec::new(), wrapper: Vec::new(), kernel: Vec::new() };
        for attr in &function.attrs {
            match attr.path().get_ident().map(ToString::to_string).as_deref() {
                Some("cfg") => out.cfg.push(attr),
                Some("doc" | "must_use" | "deprecated" | "cfg_attr") => out.wrapper.push(attr),
                Some("allow") => {
                    out.wrapper.push(attr);
                    out.kernel.push(attr);
                }
                _ => out.kernel.push(attr),
            }
        }
        out
    }
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    // Report the errors of both.
    let (options, parts) = match (parse2::<CustomOp>(args), read(item)) {
        (Ok(options), Ok(parts)) => (options, parts),
        (options, parts) => {
            return signature::all(options.err().into_iter().chain(parts.err()).collect())
                .map(|()| TokenStream::new());
        }
    };
    let (function, arguments, output) = parts;
    let private = private(options.root.as_ref());
    let attrs = Attributes::of(&function);
    let wrapper = wrapper(&private, &function, &attrs, &arguments, &output);
    let op_type = op_type(&private, &function, &attrs, &options.name);
    let registration = registration(&private, &function.sig.ident, &arguments, &options);
    let cfg = &attrs.cfg;
    Ok(quote! {
        #wrapper
        #op_type
        #(#cfg)*
        #registration
    })
}

fn read(item: TokenStream) -> Result<(ItemFn, Vec<Argument>, Output)> {
    let function = signature::function("custom_op", item)?;
    match (signature::arguments(&function.sig), signature::output(&function.sig)) {
        (Ok(arguments), Ok(output)) => Ok((function, arguments, output)),
        (Ok(_), Err(e)) | (Err(e), Ok(_)) => Err(e),
        (Err(mut a), Err(b)) => {
            a.combine(b);
            Err(a)
        }
    }
}

/// The wrapper: a function that boxes its arguments and calls the operator.
fn wrapper(
    private: &TokenStream,
    function: &ItemFn,
    attrs: &Attributes<'_>,
    arguments: &[Argument],
    output: &Output,
) -> TokenStream {
    let (ItemFn { vis, sig, .. }, Attributes { cfg, wrapper, .. }) = (function, attrs);
    let (ident, parameters) = (&sig.ident, signature::parameters(private, arguments));
    // A hygienic name, which no argument can have.
    let boxed = Ident::new("boxed", Span::mixed_site());
    let count = arguments.len();
    let pushes = arguments.iter().enumerate().map(|(i, Argument { name, ty, access })| {
        let value = match (access, parameter(ty)) {
            (Access::Mutate, _) => quote!(#private::Written::boxed(&#name)),
            (_, Parameter::Integer) => quote!(#private::integer(#name)),
            (_, Parameter::Integers) => quote!(#private::integers(#ident::op(), #i, #name)),
            (_, Parameter::AsKernel) => quote!(#private::boxed(#name)),
        };
        quote!(#boxed.push(#value);)
    });
    let call = quote!(#ident::op(), #boxed);
    let (ty, call) = match output {
        Output::Tensors(ty) => (quote!(#ty), quote!(tensors(#call))),
        Output::Other(ty) => (quote!(#private::Result<#ty>), quote!(values(#call))),
    };
    quote! {
        #(#cfg)*
        #(#wrapper)*
        #[allow(dead_code, clippy::too_many_arguments)]
        #[track_caller]
        #vis fn #ident(#parameters) -> #ty {
            #[allow(unused_mut)]
            let mut #boxed = #private::Args::with_capacity(#count);
            #(#pushes)*
            #private::#call
        }
    }
}

/// The empty type with the operator's handle and the kernel.
fn op_type(
    private: &TokenStream,
    function: &ItemFn,
    attrs: &Attributes<'_>,
    name: &str,
) -> TokenStream {
    let (ItemFn { vis, sig, block, .. }, Attributes { cfg, kernel, .. }) = (function, attrs);
    let Signature { ident, inputs, output, .. } = sig;
    let doc = format!("The operator `{name}`, which the function of this name calls.");
    quote! {
        #(#cfg)*
        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #ident {}

        #(#cfg)*
        #[allow(dead_code, clippy::too_many_arguments)]
        impl #ident {
            /// The operator's full name.
            pub const NAME: &'static str = #name;

            /// The operator.
            pub fn op() -> #private::Op {
                static OP: #private::LazyOp = #private::LazyOp::new(#name);
                OP.get()
            }

            /// The kernel itself, past the dispatcher.
            #(#kernel)*
            pub fn kernel(#inputs) #output #block
        }

        #(#cfg)*
        #[automatically_derived]
        impl #private::CustomOperator for #ident {
            const NAME: &'static str = #name;

            fn op() -> #private::Op {
                #ident::op()
            }
        }
    }
}

/// The static registration of the definition.
fn registration(
    private: &TokenStream,
    ident: &Ident,
    arguments: &[Argument],
    options: &CustomOp,
) -> TokenStream {
    let mut steps = TokenStream::new();
    if !arguments.is_empty() {
        let names = arguments.iter().map(|a| a.name.unraw().to_string());
        steps.extend(quote!(.arg_names([#(#names),*])));
    }
    if !options.devices.is_empty() {
        let devices = &options.devices;
        steps.extend(quote!(.device_types([#(#devices),*])));
    }
    if let Some(schema) = &options.schema {
        steps.extend(quote!(.schema(#schema)));
    }
    match &options.effect {
        None => {}
        Some(DeclaredEffect::Ordered) => steps.extend(quote!(.effect(#private::Effect::Ordered))),
        Some(DeclaredEffect::On(name)) => {
            let resource = quote!(#private::Resource::new(#name));
            steps.extend(quote!(.effect(#private::Effect::On(#resource))));
        }
    }
    if !options.tags.is_empty() {
        let tags = &options.tags;
        steps.extend(quote!(.tags([#(#private::Tag::#tags),*])));
    }
    if options.mutates_unknown {
        steps.extend(quote!(.mutates_unknown()));
    }
    let define = quote_spanned! { ident.span().resolved_at(Span::call_site()) =>
        #private::custom_op(#ident::NAME)#steps
            .defined_at(loc)
            .kernel(#ident::kernel)
            .register()
            .map(|_| ())
    };
    submit(private, &quote!(Define), &quote!(#ident::NAME), &define)
}

/// A static registration that evaluates `run`. The variable `loc` in it is the line of the macro.
pub(crate) fn submit(
    private: &TokenStream,
    stage: &TokenStream,
    op: &TokenStream,
    run: &TokenStream,
) -> TokenStream {
    quote! {
        const _: () = {
            #private::inventory::submit! {
                #private::StaticRegistration {
                    stage: #private::Stage::#stage,
                    op: #op,
                    file: ::core::file!(),
                    line: ::core::line!(),
                    run: |loc| #run,
                }
            }
        };
    }
}
