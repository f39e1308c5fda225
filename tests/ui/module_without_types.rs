use maquette::prelude::*;

#[derive(Module)]
struct WithoutTypes {
    weight: Tensor,
}

fn takes_a_module<M: Module>(_module: M) {}

fn gives_a_part(part: WithoutTypes) {
    takes_a_module(part);
}

fn main() {}
