use maquette::prelude::*;

#[custom_op("sin")]
fn no_namespace(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("mylib::math::sin")]
fn two_namespaces(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("mylib::")]
fn empty(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("mylib::my-op")]
fn character(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op]
fn nameless(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

fn main() {}
