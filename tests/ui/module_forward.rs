use maquette::prelude::*;

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct WithoutForward {
    weight: Tensor,
}

fn main() {}
