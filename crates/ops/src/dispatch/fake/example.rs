//! Generates the example fake kernel that the error for a missing one shows.

use maquette_ir::schema::{Arg, Schema, Type};

/// The source of a closure with the operator's argument and return types. Tensor outputs have the
/// sizes and dtype of the first tensor argument; integers are data-dependent.
pub(super) fn of(schema: &Schema) -> String {
    let like = schema.args.iter().find(|a| a.ty == Type::Tensor).map(|a| a.name.as_str());
    let (types, values): (Vec<String>, Vec<String>) = schema
        .returns
        .iter()
        .map(|r| {
            let argument = schema.args.iter().find(|a| match (&r.alias, &a.alias) {
                (Some(r), Some(a)) => a.write && r.may_share(a),
                _ => false,
            });
            match argument {
                Some(a) => (owned(&r.ty), format!("{}.clone()", a.name)),
                None => (owned(&r.ty), value(&r.ty, like)),
            }
        })
        .unzip();
    let cx = if values.iter().any(|v| v.contains("cx.")) { "cx" } else { "_cx" };
    let params: Vec<String> =
        schema.args.iter().map(|a| format!("{}: {}", a.name, borrowed(a))).collect();
    let params = if params.is_empty() { String::new() } else { format!(", {}", params.join(", ")) };
    format!("|{cx}: &FakeCtx{params}| -> Result<{}> {{ Ok({}) }}", tuple(types), tuple(values))
}

fn tuple(parts: Vec<String>) -> String {
    match <[String; 1]>::try_from(parts) {
        Ok([one]) => one,
        Err(parts) => format!("({})", parts.join(", ")),
    }
}

/// The expression for one output. `like` is the name of the tensor whose metadata a tensor output
/// copies.
fn value(ty: &Type, like: Option<&str>) -> String {
    match (ty, like) {
        (Type::Tensor, Some(x)) => format!("{x}.new_empty({x}.sizes(), {x}.dtype())"),
        (Type::Tensor, None) => "Tensor::fake([1, 2], DType::F32)".to_owned(),
        (Type::List(inner, _), _) => format!("vec![{}]", value(inner, like)),
        (Type::Int | Type::SymInt, _) => "cx.new_dynamic_size()?".to_owned(),
        _ => "todo!()".to_owned(),
    }
}

/// The Rust type of an argument.
fn borrowed(arg: &Arg) -> String {
    let reference = if arg.alias.as_ref().is_some_and(|a| a.write) { "&mut " } else { "&" };
    match &arg.ty {
        Type::Optional(inner) => format!("Option<{}>", one(inner, reference)),
        ty => one(ty, reference),
    }
}

fn one(ty: &Type, reference: &str) -> String {
    match ty {
        Type::Tensor => format!("{reference}Tensor"),
        Type::List(inner, _) => format!("{reference}[{}]", owned(inner)),
        Type::Str => "&str".to_owned(),
        other => owned(other),
    }
}

fn owned(ty: &Type) -> String {
    match ty {
        Type::Tensor => "Tensor".to_owned(),
        Type::Int | Type::SymInt => "SymInt".to_owned(),
        Type::Float => "f64".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::ScalarType => "DType".to_owned(),
        Type::Optional(inner) => format!("Option<{}>", owned(inner)),
        Type::List(inner, _) => format!("Vec<{}>", owned(inner)),
        // the schema's name of every other type is also its Rust name
        other => other.to_string(),
    }
}
