use maquette::prelude::*;

struct Config;

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Unmarked {
    weight: Tensor,
    config: Config,
}

impl Unmarked {
    fn forward(&self, x: Tensor) -> Tensor {
        x
    }
}

#[derive(Module)]
#[module((Tensor, Tensor) -> Tensor)]
struct OtherForward {
    weight: Tensor,
}

impl OtherForward {
    fn forward(&self, x: Tensor) -> Tensor {
        x
    }
}

fn main() {}
