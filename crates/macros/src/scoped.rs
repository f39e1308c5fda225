//! `#[scoped]`: methods that enter the scope of their module.

use crate::options::{Scoped, private};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    Block, Error, ImplItem, ImplItemFn, ItemImpl, Receiver, ReceiverKind, Result, Signature,
    parse_quote, parse2,
};

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let private = private(parse2::<Scoped>(args)?.root.as_ref());
    if let Ok(mut method) = parse2::<ImplItemFn>(item.clone()) {
        return match problem(&method.sig) {
            None => {
                enter(&private, &mut method.block);
                Ok(method.into_token_stream())
            }
            Some(problem) => Err(Error::new_spanned(&method.sig, problem)),
        };
    }
    let Ok(mut block) = parse2::<ItemImpl>(item.clone()) else {
        return Err(Error::new_spanned(
            item,
            "`#[scoped]` is for methods of modules, and for their `impl` blocks",
        ));
    };
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && problem(&method.sig).is_none()
        {
            enter(&private, &mut method.block);
        }
    }
    Ok(block.into_token_stream())
}

/// Why a method cannot enter the scope of its module.
fn problem(signature: &Signature) -> Option<&'static str> {
    let lends = |receiver: &Receiver| !matches!(receiver.kind, ReceiverKind::Value);
    if signature.constness.is_some() || signature.asyncness.is_some() {
        Some("`#[scoped]` is for methods that are neither `const` nor `async`")
    } else if !signature.receiver().is_some_and(lends) {
        Some("`#[scoped]` is for methods that take `&self`: the module keeps its address")
    } else {
        None
    }
}

fn enter(private: &TokenStream, body: &mut Block) {
    body.stmts.insert(0, parse_quote!(let _entered = #private::enter(&*self);));
}
