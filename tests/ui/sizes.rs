use maquette::prelude::*;

fn greater(x: &Tensor) -> bool {
    x.size(0) > 3
}

fn branch(x: &Tensor) -> Tensor {
    if x.size(0).gt(3) { x.relu() } else { x.neg() }
}

fn range(x: &Tensor) {
    for i in 0..x.size(0) {
        x.select(0, i);
    }
}

fn range_of_symbols(n: SymInt) {
    for _ in SymInt::from(0)..n {}
}

fn main() {}
