//! PyTorch's operators that are known to be missing here, and why: an error says so, and so does `docs/operators.md`.

/// Why a group of operators is missing, and their names without namespace, `.default` left out, in alphabetical order.
pub(crate) static ABSENT: &[(&str, &[&str])] = &[(
    "it changes the metadata of its argument: here a tensor's sizes and strides never change; use the operator of the same name without `_`",
    &["as_strided_", "squeeze_", "squeeze_.dim", "squeeze_.dims", "t_", "transpose_", "unsqueeze_"],
)];

/// Why PyTorch's operator of this full name is missing, if it is known to be.
pub fn absent(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("aten::")?;
    ABSENT.iter().find(|(_, names)| names.contains(&bare)).map(|(why, _)| *why)
}

/// Every operator known to be missing, with the reason.
pub fn every_absent() -> impl Iterator<Item = (&'static str, &'static str)> {
    ABSENT.iter().flat_map(|(why, names)| names.iter().map(|n| (*n, *why)))
}
