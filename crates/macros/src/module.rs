//! `#[derive(Module)]`.

use crate::options::{ModuleOptions, field_kind, private};
use crate::tree::{at, member_name};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Field, Member, Result, Type, parse_quote, parse2};

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// Its tensors are what they are where the module is.
    Inherited,
    /// Its tensors are buffers.
    Buffer,
    /// It has none.
    Skip,
}

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = parse2(item)?;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            return Err(not_a_struct(
                &data.enum_token,
                "an enum; use a struct, with an `Option` for a field that may be absent",
            ));
        }
        Data::Union(data) => return Err(not_a_struct(&data.union_token, "a union; use a struct")),
    };
    let options = ModuleOptions::of(&input.attrs)?;
    let private = private(options.root.as_ref());
    let mut visits = Vec::new();
    let mut errors: Option<Error> = None;
    for (field, member) in fields.iter().zip(fields.members()) {
        match field_kind(&field.attrs) {
            Ok(FieldKind::Skip) => {}
            Ok(slot) => visits.push(visit(&private, field, &member, slot)),
            Err(e) => match &mut errors {
                Some(all) => all.combine(e),
                None => errors = Some(e),
            },
        }
    }
    match errors {
        Some(e) => Err(e),
        None => Ok(implement(&private, &input, &options, &visits)),
    }
}

fn not_a_struct(keyword: &dyn quote::ToTokens, what: &str) -> Error {
    Error::new_spanned(
        keyword.to_token_stream(),
        format!("`#[derive(Module)]` is for structs; this is {what}"),
    )
}

/// Visits a field, as a part of what `path` and `slot` say.
fn visit(private: &TokenStream, field: &Field, member: &Member, slot: FieldKind) -> TokenStream {
    let name = member_name(member);
    let slot = match slot {
        FieldKind::Buffer => quote!(#private::ModuleSlot::Buffer),
        FieldKind::Inherited | FieldKind::Skip => quote!(slot),
    };
    // a part behind a reference is the module's as well
    let part = if let Type::Reference(_) = field.ty {
        quote!(&*self.#member)
    } else {
        quote!(&self.#member)
    };
    quote_spanned!(at(&field.ty) => #private::visit_part(#part, path, #name, #slot, v);)
}

fn implement(
    private: &TokenStream,
    input: &DeriveInput,
    options: &ModuleOptions,
    visits: &[TokenStream],
) -> TokenStream {
    let ident = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#private::ModuleState));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let visitor =
        quote!(v: &mut dyn ::core::ops::FnMut(&str, #private::ModuleSlot, &#private::Tensor));
    let Some((takes, returns)) = &options.signature else {
        return quote! {
            #[automatically_derived]
            impl #impl_generics #private::ModuleState for #ident #type_generics #where_clause {
                #[allow(unused_variables)]
                fn visit_at(&self, path: &str, slot: #private::ModuleSlot, #visitor) {
                    #(#visits)*
                }
            }
        };
    };
    // At the signature, so that a `forward` that is missing or another is reported there. A
    // struct's own method comes before those of traits; without one there would be the one that is
    // written here, which would call itself, were it not for another that does not fit.
    let forward = quote_spanned! { at(takes) =>
        fn forward(&self, x: #takes) -> #returns {
            struct NoMethodForward;
            #[allow(dead_code)]
            trait MissingForward {
                fn forward<X>(&self, x: X) -> NoMethodForward;
            }
            impl<T: ?::core::marker::Sized> MissingForward for T {
                fn forward<X>(&self, _: X) -> NoMethodForward {
                    NoMethodForward
                }
            }
            Self::forward(self, x)
        }
    };
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Module for #ident #type_generics #where_clause {
            type In = #takes;
            type Out = #returns;

            #forward

            #[allow(unused_variables)]
            fn visit(&self, #visitor) {
                let (path, slot) = ("", #private::ModuleSlot::Parameter);
                #(#visits)*
            }
        }
    }
}
