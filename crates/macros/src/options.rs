//! Parsing of the attributes' arguments.

use crate::module::FieldKind;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Ident, LitStr, Meta, Path, Result, Token, Type, parenthesized};

/// The path by which generated code refers to the library: the facade's `__private` module.
pub(crate) fn private(root: Option<&Path>) -> TokenStream {
    match root {
        Some(path) => quote!(#path::__private),
        None => quote!(::maquette::__private),
    }
}

/// `#[custom_op("ns::name", device_types("cpu"), schema("…"), effect("ordered"), tags(Pointwise),
/// mutates_unknown, crate = path)]`; an effect on a resource is `effect(on("nccl:0"))`.
pub(crate) struct CustomOp {
    pub(crate) name: String,
    pub(crate) devices: Vec<LitStr>,
    pub(crate) schema: Option<LitStr>,
    pub(crate) effect: Option<DeclaredEffect>,
    pub(crate) tags: Vec<Ident>,
    pub(crate) mutates_unknown: bool,
    pub(crate) root: Option<Path>,
}

impl Parse for CustomOp {
    fn parse(input: ParseStream<'_>) -> Result<CustomOp> {
        if !input.peek(LitStr) {
            return Err(input.error(
                "expected the operator's name first, as in `#[custom_op(\"mylib::my_op\")]`",
            ));
        }
        let name = operator_name(&input.parse()?)?;
        let mut out = CustomOp {
            name,
            devices: Vec::new(),
            schema: None,
            effect: None,
            tags: Vec::new(),
            mutates_unknown: false,
            root: None,
        };
        options(
            input,
            &["device_types", "schema", "effect", "tags", "mutates_unknown", "crate"],
            |key, input| {
                match key {
                    "device_types" => out.devices = texts(key, "\"cpu\", \"cuda\"", input)?,
                    "schema" => {
                        out.schema =
                            Some(one_text(key, "\"(Tensor x, int y=3) -> Tensor\"", input)?)
                    }
                    "effect" => out.effect = Some(DeclaredEffect::parse(key, input)?),
                    "tags" => out.tags = idents(key, "Inplace, Pointwise", input)?,
                    "mutates_unknown" => out.mutates_unknown = true,
                    _ => out.root = Some(root(input)?),
                }
                Ok(())
            },
        )?;
        Ok(out)
    }
}

/// What a registration attribute registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Kernel,
    Fake,
    Autograd,
}

impl Purpose {
    /// The attribute's name.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Purpose::Kernel => "register_kernel",
            Purpose::Fake => "register_fake",
            Purpose::Autograd => "register_autograd",
        }
    }
}

/// `#[register_kernel(op, "cuda", crate = path)]`, `#[register_fake(op, crate = path)]`,
/// `#[register_autograd(op, setup_context = path, crate = path)]`
pub(crate) struct Register {
    pub(crate) op: Path,
    pub(crate) device: Option<LitStr>,
    pub(crate) setup_context: Option<Path>,
    pub(crate) root: Option<Path>,
}

impl Register {
    /// Parses the arguments of a registration attribute.
    pub(crate) fn parse(input: ParseStream<'_>, purpose: Purpose) -> Result<Register> {
        let attribute = purpose.attribute();
        let with_device = purpose == Purpose::Kernel;
        let usage = if with_device {
            format!("`#[{attribute}(my_op, \"cuda\")]`")
        } else {
            format!("`#[{attribute}(my_op)]`")
        };
        if input.peek(LitStr) {
            let message = format!(
                "expected the path of the function with `#[custom_op]`, as in {usage}; to extend \
                    an operator that has only a name, use `Op::find(name)?.{attribute}(…)`"
            );
            return Err(input.error(message));
        }
        if input.is_empty() {
            return Err(input.error(format!(
                "expected the path of the function with `#[custom_op]`, as in {usage}"
            )));
        }
        let op = Path::parse_mod_style(input)?;
        let mut device = None;
        if with_device {
            let comma = input.parse::<Option<Token![,]>>()?;
            if comma.is_none() || !input.peek(LitStr) {
                return Err(
                    input.error(format!("expected the device type of the kernel, as in {usage}"))
                );
            }
            device = Some(input.parse()?);
        }
        let mut out = Register { op, device, setup_context: None, root: None };
        let known: &[&str] = match purpose {
            Purpose::Autograd => &["setup_context", "crate"],
            Purpose::Kernel | Purpose::Fake => &["crate"],
        };
        options(input, known, |key, input| {
            match key {
                "setup_context" => out.setup_context = Some(path(input, "setup_context = setup")?),
                _ => out.root = Some(root(input)?),
            }
            Ok(())
        })?;
        Ok(out)
    }
}

/// The path of the facade from `#[tree(crate = path)]`.
pub(crate) fn tree_root(attrs: &[syn::Attribute]) -> Result<Option<Path>> {
    let mut out = None;
    for attr in attrs.iter().filter(|a| a.path().is_ident("tree")) {
        attr.parse_args_with(|input: ParseStream<'_>| {
            let first = named_option(input, &["crate"])?;
            if out.is_some() {
                return Err(duplicate(&first));
            }
            out = Some(root(input)?);
            trailing_comma(input)
        })?;
    }
    Ok(out)
}

/// `#[scoped(crate = path)]` on a method or an `impl` block.
#[derive(Default)]
pub(crate) struct Scoped {
    pub(crate) root: Option<Path>,
}

impl Parse for Scoped {
    fn parse(input: ParseStream<'_>) -> Result<Scoped> {
        if input.is_empty() {
            return Ok(Scoped::default());
        }
        named_option(input, &["crate"])?;
        let root = Some(root(input)?);
        trailing_comma(input)?;
        Ok(Scoped { root })
    }
}

/// `#[module(In -> Out, crate = path)]` on a struct; each part is optional.
#[derive(Default)]
pub(crate) struct ModuleOptions {
    pub(crate) signature: Option<(Type, Type)>,
    pub(crate) root: Option<Path>,
}

impl ModuleOptions {
    pub(crate) fn of(attrs: &[Attribute]) -> Result<ModuleOptions> {
        let mut out = ModuleOptions::default();
        for attr in attrs.iter().filter(|a| a.path().is_ident("module")) {
            attr.parse_args_with(|input: ParseStream<'_>| out.read(input))?;
        }
        match attrs.iter().find(|a| a.path().is_ident("buffer")) {
            Some(attr) => Err(Error::new_spanned(attr, "`#[buffer]` applies to a field")),
            None => Ok(out),
        }
    }

    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        loop {
            if input.peek(Token![crate]) && input.peek2(Token![=]) {
                let key = Ident::parse_any(input)?;
                if self.root.is_some() {
                    return Err(duplicate(&key));
                }
                self.root = Some(root(input)?);
            } else {
                let takes: Type = input.parse()?;
                if !input.peek(Token![->]) {
                    return Err(Error::new_spanned(
                        takes,
                        "expected the argument and return types of `forward`, as in \
                            `#[module(Tensor -> Tensor)]`",
                    ));
                }
                input.parse::<Token![->]>()?;
                if self.signature.is_some() {
                    return Err(Error::new_spanned(
                        takes,
                        "duplicate argument and return types of `forward`",
                    ));
                }
                self.signature = Some((takes, input.parse()?));
            }
            if input.is_empty() {
                return Ok(());
            }
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                return Ok(());
            }
        }
    }
}

/// The options of a module's field: `#[buffer]` and `#[module(skip)]`.
pub(crate) fn field_kind(attrs: &[Attribute]) -> Result<FieldKind> {
    let mut found = FieldKind::Inherited;
    for attr in attrs {
        let slot = if attr.path().is_ident("buffer") {
            match attr.meta {
                Meta::Path(_) => FieldKind::Buffer,
                _ => return Err(Error::new_spanned(attr, "`#[buffer]` takes no arguments")),
            }
        } else if attr.path().is_ident("module") {
            attr.parse_args_with(|input: ParseStream<'_>| {
                named_option(input, &["skip"])?;
                trailing_comma(input)
            })?;
            FieldKind::Skip
        } else {
            continue;
        };
        if found != FieldKind::Inherited {
            return Err(Error::new_spanned(
                attr,
                "duplicate attribute: a field is either a buffer or skipped",
            ));
        }
        found = slot;
    }
    Ok(found)
}

/// Parses `, key …` up to the end of the input; each key of `known` may occur once.
fn options(
    input: ParseStream<'_>,
    known: &[&str],
    mut read: impl FnMut(&str, ParseStream<'_>) -> Result<()>,
) -> Result<()> {
    let mut seen: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        let key = named_option(input, known)?;
        if seen.contains(&key) {
            return Err(duplicate(&key));
        }
        read(&key.to_string(), input)?;
        seen.push(key);
    }
    Ok(())
}

fn named_option(input: ParseStream<'_>, known: &[&str]) -> Result<Ident> {
    let list = || known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
    if !input.peek(Ident::peek_any) {
        return Err(input.error(format!("expected an option: {}", list())));
    }
    let key = Ident::parse_any(input)?;
    if known.iter().any(|k| key == k) {
        return Ok(key);
    }
    Err(Error::new(key.span(), format!("unknown option `{key}`; expected one of {}", list())))
}

fn duplicate(key: &Ident) -> Error {
    Error::new(key.span(), format!("duplicate option `{key}`"))
}

fn trailing_comma(input: ParseStream<'_>) -> Result<()> {
    input.parse::<Option<Token![,]>>()?;
    if input.is_empty() { Ok(()) } else { Err(input.error("expected the end of the options")) }
}

fn root(input: ParseStream<'_>) -> Result<Path> {
    path(input, "crate = ::maquette")
}

/// `= path`
fn path(input: ParseStream<'_>, example: &str) -> Result<Path> {
    if !input.peek(Token![=]) {
        return Err(input.error(format!("expected a path, as in `{example}`")));
    }
    input.parse::<Token![=]>()?;
    Path::parse_mod_style(input)
}

/// `("a", "b")`
fn texts(key: &str, example: &str, input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    let usage = || format!("expected strings in parentheses, as in `{key}({example})`");
    if !input.peek(syn::token::Paren) {
        return Err(input.error(usage()));
    }
    let content;
    parenthesized!(content in input);
    let mut out = Vec::new();
    while out.is_empty() || !content.is_empty() {
        if !content.peek(LitStr) {
            return Err(content.error(usage()));
        }
        out.push(content.parse()?);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(out)
}

/// `(A, B)`
fn idents(key: &str, example: &str, input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let usage = || format!("expected names in parentheses, as in `{key}({example})`");
    if !input.peek(syn::token::Paren) {
        return Err(input.error(usage()));
    }
    let content;
    parenthesized!(content in input);
    let names = content
        .parse_terminated(Ident::parse, Token![,])
        .map_err(|e| Error::new(e.span(), usage()))?;
    Ok(names.into_iter().collect())
}

fn one_text(key: &str, example: &str, input: ParseStream<'_>) -> Result<LitStr> {
    let mut all = texts(key, example, input)?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => Err(Error::new_spanned(
            last,
            format!("`{key}` takes one string, as in `{key}({example})`"),
        )),
    }
}

/// What `effect("ordered")` or `effect(on("nccl:0"))` declares.
pub(crate) enum DeclaredEffect {
    Ordered,
    /// On the resource of this name.
    On(LitStr),
}

impl DeclaredEffect {
    fn parse(key: &str, input: ParseStream<'_>) -> Result<DeclaredEffect> {
        let ahead = input.fork();
        if ahead.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in ahead);
            if content.peek(Ident) && content.peek2(syn::token::Paren) {
                let content;
                parenthesized!(content in input);
                let on: Ident = content.parse()?;
                if on != "on" {
                    let message = format!("unknown effect `{on}`; expected `on(\"resource\")`");
                    return Err(Error::new(on.span(), message));
                }
                let resource = one_text("on", "\"nccl:0\"", &content)?;
                trailing_comma(&content)?;
                return Ok(DeclaredEffect::On(resource));
            }
        }
        let name = one_text(key, "\"ordered\"", input)?;
        match name.value().as_str() {
            "ordered" => Ok(DeclaredEffect::Ordered),
            other => Err(Error::new(
                name.span(),
                format!(
                    "unknown effect `{other}`; expected `ordered`, which keeps calls in program \
                        order, or `on(\"{other}\")` for a resource of this name"
                ),
            )),
        }
    }
}

/// Checks the form `namespace::name` or `namespace::name.overload`. The overload `default` denotes
/// the operator without an overload name.
fn operator_name(literal: &LitStr) -> Result<String> {
    let text = literal.value();
    let fail = |why: String| Err(Error::new(literal.span(), why));
    let parts: Vec<&str> = text.split("::").collect();
    let (namespace, rest) = match parts[..] {
        [namespace, rest] => (namespace, rest),
        [_] => {
            return fail(format!(
                "the operator name `{text}` has no namespace; write `namespace::{text}`, such as \
                    `mylib::{text}`"
            ));
        }
        _ => {
            return fail(format!(
                "the operator name `{text}` has {} `::`, expected one: `namespace::name`",
                parts.len() - 1
            ));
        }
    };
    let (name, overload) = rest.split_once('.').map_or((rest, None), |(n, o)| (n, Some(o)));
    for (what, part) in
        [("namespace", Some(namespace)), ("name", Some(name)), ("overload", overload)]
    {
        let Some(part) = part else { continue };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if part.is_empty() {
            return fail(format!(
                "the operator name `{text}` has an empty {what}; write `namespace::name` or \
                    `namespace::name.overload`"
            ));
        }
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            return fail(format!(
                "the {what} `{part}` of the operator name `{text}` starts with a digit"
            ));
        }
        if let Some(bad) = part.chars().find(|&c| !plain(c)) {
            return fail(format!(
                "the {what} `{part}` of the operator name `{text}` has the character {bad:?}; use \
                    letters, digits and `_`"
            ));
        }
    }
    Ok(text.strip_suffix(".default").unwrap_or(&text).to_owned())
}
