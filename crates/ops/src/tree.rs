//! Trees: the structured inputs and outputs of traced functions, as PyTorch's pytrees. A tree
//! flattens to a list of leaves (tensors and numbers) and a [`TreeSpec`], and is rebuilt from the
//! two.

use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::functional_call;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use std::collections::BTreeMap;
use std::fmt;

/// The structure of a tree without its leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeSpec {
    /// A tensor or a number.
    Leaf,
    /// An absent [`Option`].
    None,
    /// A tuple or a vector.
    List(Vec<TreeSpec>),
    /// A struct: its name, and its fields with their names.
    Struct(&'static str, Vec<(&'static str, TreeSpec)>),
    /// A map: its parts with their names, in order.
    Map(Vec<(String, TreeSpec)>),
}

fn join(step: &str, path: String) -> String {
    if path.is_empty() { step.to_owned() } else { format!("{step}.{path}") }
}

impl TreeSpec {
    /// The first part in which the two structures differ: its path, and a description of the part
    /// in `self` and in `other`. `None` if they are equal.
    pub fn difference(&self, other: &TreeSpec) -> Option<(String, String, String)> {
        let below = |step: &str, a: &TreeSpec, b: &TreeSpec| {
            a.difference(b).map(|(path, a, b)| (join(step, path), a, b))
        };
        match (self, other) {
            (TreeSpec::List(a), TreeSpec::List(b)) if a.len() == b.len() => {
                a.iter().zip(b).enumerate().find_map(|(i, (a, b))| below(&i.to_string(), a, b))
            }
            (TreeSpec::Struct(name, a), TreeSpec::Struct(other, b))
                if name == other && a.len() == b.len() =>
            {
                a.iter().zip(b).find_map(|((field, a), (_, b))| below(field, a, b))
            }
            (TreeSpec::Map(a), TreeSpec::Map(b)) if a.iter().map(key).eq(b.iter().map(key)) => {
                a.iter().zip(b).find_map(|((name, a), (_, b))| below(name, a, b))
            }
            (a, b) if a == b => None,
            (a, b) => Some((String::new(), a.describe(), b.describe())),
        }
    }

    /// The paths of the leaves in flattening order; see [`Leaf::path`].
    pub fn leaf_paths(&self) -> Vec<String> {
        let below = |step: &str, part: &TreeSpec| {
            part.leaf_paths().into_iter().map(|p| join(step, p)).collect::<Vec<_>>()
        };
        match self {
            TreeSpec::Leaf => vec![String::new()],
            TreeSpec::None => Vec::new(),
            TreeSpec::List(parts) => {
                parts.iter().enumerate().flat_map(|(i, part)| below(&i.to_string(), part)).collect()
            }
            TreeSpec::Struct(_, parts) => {
                parts.iter().flat_map(|(field, part)| below(field, part)).collect()
            }
            TreeSpec::Map(parts) => {
                parts.iter().flat_map(|(name, part)| below(name, part)).collect()
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            TreeSpec::Leaf => "a single value".to_owned(),
            TreeSpec::None => "an absent value".to_owned(),
            TreeSpec::List(l) => format!("a list of {}", l.len()),
            TreeSpec::Struct(name, _) => format!("a {name}"),
            TreeSpec::Map(parts) => {
                let names: Vec<&str> = parts.iter().map(key).collect();
                format!("a map with the names {}", names.join(", "))
            }
        }
    }
}

fn key((name, _): &(String, TreeSpec)) -> &str {
    name
}

/// A leaf and its path in the tree.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Field names and list positions joined by dots, such as `layers.0.weight`; empty for a tree
    /// that is a single leaf.
    pub path: String,
    /// The tensor or number.
    pub value: Value,
}

/// A step of a leaf's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The name of a field.
    Field(&'static str),
    /// A name in a map.
    Key(String),
    /// A position in a list.
    Position(usize),
}

impl From<&'static str> for Step {
    fn from(name: &'static str) -> Step {
        Step::Field(name)
    }
}

impl From<&String> for Step {
    fn from(name: &String) -> Step {
        Step::Key(name.clone())
    }
}

impl From<usize> for Step {
    fn from(position: usize) -> Step {
        Step::Position(position)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => f.write_str(name),
            Step::Key(name) => f.write_str(name),
            Step::Position(position) => position.fmt(f),
        }
    }
}

/// The collector of leaves during flattening.
#[derive(Debug, Default)]
pub struct Leaves {
    path: Vec<Step>,
    leaves: Vec<Leaf>,
    /// The leaves' values, in place of `leaves`, for a caller that needs no paths.
    values: Option<Vec<Value>>,
}

impl Leaves {
    /// Adds a leaf at the current path.
    pub fn push(&mut self, value: Value) -> TreeSpec {
        if let Some(values) = &mut self.values {
            values.push(value);
            return TreeSpec::Leaf;
        }
        let path = match self.path.as_slice() {
            [] => String::new(),
            [first, rest @ ..] => {
                rest.iter().fold(first.to_string(), |path, step| format!("{path}.{step}"))
            }
        };
        self.leaves.push(Leaf { path, value });
        TreeSpec::Leaf
    }

    /// Flattens a child of the current node; `step` is its field name or position.
    pub fn at(&mut self, step: impl Into<Step>, part: &impl Tree) -> Result<TreeSpec> {
        if self.values.is_some() {
            return part.flatten(self);
        }
        self.path.push(step.into());
        let spec = part.flatten(self);
        self.path.pop();
        spec
    }
}

/// Types that traced functions can take and return: tensors, numbers, tuples, vectors, maps by
/// name, options, results, and structs with `#[derive(Tree)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree",
    note = "trees are tensors, numbers, tuples, vectors, options and results of trees, and \
        structs with `#[derive(Tree)]`",
    note = "functions take trees by value, as in `|x: Tensor|`: a clone of a tensor is a handle"
)]
pub trait Tree: Sized {
    /// The tree that a run of a traced or exported function returns: this one without its
    /// [`Result`]s. A graph has no branch for an error; an error that the function would return is
    /// the error of the run. It has the shape and the leaves of this tree, so both flatten alike.
    /// `Self` for every tree that holds no result.
    type Output: Tree;

    /// Adds the leaves in order, and returns the shape.
    ///
    /// # Errors
    /// A leaf is a poisoned tensor, or a `Result` in the tree is an error.
    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec>;

    /// Rebuilds the tree from its structure and its leaves in order.
    ///
    /// # Errors
    /// The structure does not match the type, or a leaf is of another kind.
    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self>;
}

/// Flattens a whole tree.
///
/// # Errors
/// As [`Tree::flatten`].
pub fn flatten(tree: &impl Tree) -> Result<(TreeSpec, Vec<Leaf>)> {
    let mut leaves = Leaves::default();
    let spec = tree.flatten(&mut leaves)?;
    Ok((spec, leaves.leaves))
}

/// As [`flatten`], without the paths of the leaves, which take longer to make than all else.
///
/// # Errors
/// As [`Tree::flatten`].
pub fn flatten_values(tree: &impl Tree) -> Result<(TreeSpec, Vec<Value>)> {
    let mut leaves = Leaves { values: Some(Vec::with_capacity(8)), ..Leaves::default() };
    let spec = tree.flatten(&mut leaves)?;
    Ok((spec, leaves.values.unwrap_or_default()))
}

/// The error for a structure that does not match the type.
pub fn wrong_shape(expected: &str, found: &TreeSpec) -> Error {
    Error::value(format!("expected {expected}, found {}", found.describe()))
}

fn next(leaves: &mut dyn Iterator<Item = Value>) -> Result<Value> {
    leaves.next().ok_or_else(|| Error::value("there are fewer values than the tree has leaves"))
}

macro_rules! leaf {
    ($($t:ty, $name:literal, $get:expr;)*) => { $(
        impl Tree for $t {
            type Output = $t;

            fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
                Ok(leaves.push(Value::from(self.clone())))
            }
            fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
                match spec {
                    TreeSpec::Leaf => $get(&next(leaves)?),
                    other => Err(wrong_shape($name, other)),
                }
            }
        }
    )* };
}
leaf!(
    SymInt, "an integer", Value::int;
    i64, "an integer", Value::int_i64;
    f64, "a float", Value::float;
    bool, "a bool", Value::bool;
);

impl Tree for Tensor {
    type Output = Tensor;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        self.alive()?;
        Ok(leaves.push(functional_call::leaf(self)))
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
        match spec {
            TreeSpec::Leaf => next(leaves)?.tensor().cloned(),
            other => Err(wrong_shape("a tensor", other)),
        }
    }
}

impl<T: Tree> Tree for Option<T> {
    type Output = Option<T::Output>;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        match self.as_ref().map(|x| x.flatten(leaves)) {
            None => Ok(TreeSpec::None),
            Some(Ok(TreeSpec::None)) => Err(Error::value(
                "an option inside an option is `None`, and a tree cannot tell `Some(None)` from \
                 `None`; use a struct or a list for the inner one",
            )),
            Some(spec) => spec,
        }
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
        if *spec == TreeSpec::None { Ok(None) } else { T::unflatten(spec, leaves).map(Some) }
    }
}

impl<T: Tree> Tree for Result<T> {
    type Output = T::Output;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        match self {
            Ok(x) => x.flatten(leaves),
            Err(e) => Err(e.clone()),
        }
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
        T::unflatten(spec, leaves).map(Ok)
    }
}

fn parts(expected: &str, n: Option<usize>, spec: &TreeSpec) -> Result<Vec<TreeSpec>> {
    match spec {
        TreeSpec::List(l) if n.is_none_or(|n| n == l.len()) => Ok(l.clone()),
        other => Err(wrong_shape(expected, other)),
    }
}

impl<T: Tree> Tree for Vec<T> {
    type Output = Vec<T::Output>;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        let parts = self.iter().enumerate().map(|(i, x)| leaves.at(i, x)).collect::<Result<_>>()?;
        Ok(TreeSpec::List(parts))
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
        parts("a list", None, spec)?.iter().map(|s| T::unflatten(s, leaves)).collect()
    }
}

/// The parts in the order of their names.
impl<T: Tree> Tree for BTreeMap<String, T> {
    type Output = BTreeMap<String, T::Output>;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        let part = |(name, x): (&String, &T)| Ok((name.clone(), leaves.at(name, x)?));
        Ok(TreeSpec::Map(self.iter().map(part).collect::<Result<_>>()?))
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
        let TreeSpec::Map(parts) = spec else { return Err(wrong_shape("a map", spec)) };
        parts.iter().map(|(name, s)| Ok((name.clone(), T::unflatten(s, leaves)?))).collect()
    }
}

macro_rules! tuple {
    ($n:literal $name:literal: $($t:ident $i:tt),*) => {
        impl<$($t: Tree),*> Tree for ($($t,)*) {
            type Output = ($($t::Output,)*);

            #[allow(unused_variables)]
            fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
                Ok(TreeSpec::List(vec![$(leaves.at(stringify!($i), &self.$i)?),*]))
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<Self> {
                let parts = parts($name, Some($n), spec)?;
                Ok(($($t::unflatten(&parts[$i], leaves)?,)*))
            }
        }
    };
}
tuple!(0 "nothing":);
tuple!(1 "a tuple of 1": A 0);
tuple!(2 "a tuple of 2": A 0, B 1);
tuple!(3 "a tuple of 3": A 0, B 1, C 2);
tuple!(4 "a tuple of 4": A 0, B 1, C 2, D 3);
tuple!(5 "a tuple of 5": A 0, B 1, C 2, D 3, E 4);
tuple!(6 "a tuple of 6": A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7 "a tuple of 7": A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8 "a tuple of 8": A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
