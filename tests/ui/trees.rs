use maquette::prelude::*;

#[derive(Tree)]
enum Either {
    Left(Tensor),
    Right(Tensor),
}

#[derive(Tree)]
union Bits {
    i: i64,
    f: f64,
}

#[derive(Tree)]
#[tree(skip)]
struct Options {
    x: Tensor,
}

fn main() {}
