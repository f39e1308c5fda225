use maquette::prelude::*;

fn by_reference() {
    compile(|x: &Tensor| x.relu());
}

fn main() {}
