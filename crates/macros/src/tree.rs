//! `#[derive(Tree)]`: flattens a struct to the leaves of its fields.

use crate::options::{private, tree_root};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Member, Result, Type, parse_quote, parse2};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = parse2(item)?;
    let root = tree_root(&input.attrs)?;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            return Err(not_a_struct(
                &data.enum_token,
                "an enum, whose variant cannot be represented in a graph; use a struct, or `Option`",
            ));
        }
        Data::Union(data) => return Err(not_a_struct(&data.union_token, "a union; use a struct")),
    };
    Ok(implement(&private(root.as_ref()), &input, fields))
}

fn not_a_struct(keyword: &dyn quote::ToTokens, what: &str) -> Error {
    Error::new_spanned(
        keyword.to_token_stream(),
        format!("`#[derive(Tree)]` is for structs; this is {what}"),
    )
}

fn implement(private: &TokenStream, input: &DeriveInput, fields: &Fields) -> TokenStream {
    let ident = &input.ident;
    let name = ident.unraw().to_string();
    let article = format!("the struct {name}");
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#private::Tree));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();

    let members: Vec<Member> = fields.members().collect();
    let names: Vec<String> = members.iter().map(member_name).collect();
    let parts: Vec<_> = (0..members.len()).map(|i| format_ident!("part{i}")).collect();
    let flatten = fields.iter().zip(&members).zip(&names).map(|((field, member), name)| {
        quote_spanned!(at(&field.ty) => (#name, leaves.at(#name, &self.#member)?))
    });
    let unflatten = fields.iter().zip(&members).zip(&parts).map(|((field, member), part)| {
        let ty = &field.ty;
        quote_spanned!(at(ty) => #member: <#ty as #private::Tree>::unflatten(#part, leaves)?)
    });
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Tree for #ident #type_generics #where_clause {
            type Output = Self;

            #[allow(unused_variables)]
            fn flatten(
                &self,
                leaves: &mut #private::Leaves,
            ) -> #private::Result<#private::TreeSpec> {
                let parts = ::std::vec![#(#flatten),*];
                ::core::result::Result::Ok(#private::TreeSpec::Struct(#name, parts))
            }

            #[allow(unused_variables)]
            fn unflatten(
                spec: &#private::TreeSpec,
                leaves: &mut dyn ::core::iter::Iterator<Item = #private::Value>,
            ) -> #private::Result<Self> {
                let parts = match spec {
                    #private::TreeSpec::Struct(#name, parts) => parts.as_slice(),
                    _ => return ::core::result::Result::Err(#private::wrong_shape(#article, spec)),
                };
                match parts {
                    [#((#names, #parts)),*] => ::core::result::Result::Ok(Self { #(#unflatten),* }),
                    _ => ::core::result::Result::Err(#private::wrong_shape(#article, spec)),
                }
            }
        }
    }
}

/// The span of a type, for error messages. Names resolve as in the rest of the derive, even if the
/// type comes from a macro.
pub(crate) fn at(ty: &Type) -> Span {
    ty.span().resolved_at(Span::call_site())
}

pub(crate) fn member_name(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}
