use maquette::prelude::*;

#[derive(Module)]
enum Norm {
    Layer(Tensor),
    Rms(Tensor),
}

#[derive(Module)]
#[module(Tensor)]
struct HalfASignature {
    weight: Tensor,
}

#[derive(Module)]
struct Marks {
    #[buffer(persistent)]
    mean: Tensor,
    #[module(hidden)]
    scale: Tensor,
    #[buffer]
    #[module(skip)]
    both: Tensor,
}

#[derive(Module)]
#[buffer]
struct Whole {
    mean: Tensor,
}

fn main() {}
