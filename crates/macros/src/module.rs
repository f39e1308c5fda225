//! `#[derive(Module)]`: names the tensors of a struct after its fields.

use crate::arguments::{last_segment, strip_parens};
use crate::options::{ModuleOptions, field_kind, private};
use crate::tree::{at, member_name};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Member, Result, Type, parse_quote, parse2};

/// The treatment of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// The field's tensors have the slot of the enclosing module: parameters, or buffers within a
    /// field marked `#[buffer]`.
    Inherited,
    /// The field's tensors are buffers.
    Buffer,
    /// The field is not visited.
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

/// The statement that visits a field. The generated code has the enclosing module's name and slot
/// in the variables `path` and `slot`.
fn visit(private: &TokenStream, field: &Field, member: &Member, slot: FieldKind) -> TokenStream {
    let name = member_name(member);
    let slot = match slot {
        FieldKind::Buffer => quote!(#private::ModuleSlot::Buffer),
        FieldKind::Inherited | FieldKind::Skip => quote!(slot),
    };
    // A part after a reference or in a box belongs to the module too.
    let mut part = quote!(self.#member);
    let mut ty = strip_parens(&field.ty);
    while let Some(inner) = pointed_to(ty) {
        part = quote!(*#part);
        ty = inner;
    }
    let part = quote!(&#part);
    quote_spanned!(at(&field.ty) => #private::walk_part(#part, path, #name, #slot, v);)
}

/// The type after a reference or in a `Box`.
fn pointed_to(ty: &Type) -> Option<&Type> {
    let inner = match (ty, last_segment(ty)) {
        (Type::Reference(r), _) => &*r.elem,
        (_, Some((name, Some(inner)))) if name == "Box" => inner,
        _ => return None,
    };
    Some(strip_parens(inner))
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
    let walk = quote! {
        (&self, path: &str, slot: #private::ModuleSlot, v: &mut dyn #private::ModuleVisitor) {
            v.part(path, #private::PartId::of(self));
            #(#visits)*
        }
    };
    let Some((takes, returns)) = &options.signature else {
        return quote! {
            #[automatically_derived]
            impl #impl_generics #private::ModuleState for #ident #type_generics #where_clause {
                #[allow(unused_variables)]
                fn visit_at #walk
            }
        };
    };
    // The span makes an error about a missing or different `forward` point at the declared
    // signature. `Self::forward` resolves to the struct's inherent method. Without one, it could
    // resolve to this trait method, which would recurse forever. A second trait with a `forward`
    // makes that case a compile error: the call is ambiguous, or has the wrong type. The error
    // shows the name of the trait, which says what is missing.
    let missing = format_ident!("{}_needs_fn_forward", ident.unraw());
    let forward = quote_spanned! { at(takes) =>
        fn forward(&self, x: #takes) -> #returns {
            struct NoFnForward;
            #[allow(dead_code, non_camel_case_types)]
            trait #missing {
                fn forward<X>(&self, x: X) -> NoFnForward;
            }
            impl<T: ?::core::marker::Sized> #missing for T {
                fn forward<X>(&self, _: X) -> NoFnForward {
                    NoFnForward
                }
            }
            let _entered = #private::enter(self);
            Self::forward(self, x)
        }
    };
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Module for #ident #type_generics #where_clause {
            type In = #takes;
            type Out = #returns;

            #forward

            fn visit(
                &self,
                v: &mut dyn ::core::ops::FnMut(&str, #private::ModuleSlot, &#private::Tensor),
            ) {
                #private::visit_tensors(self, v);
            }

            #[allow(unused_variables)]
            fn walk #walk
        }
    }
}
