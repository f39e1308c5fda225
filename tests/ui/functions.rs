use maquette::prelude::*;

#[custom_op("ui::not_a_function")]
struct NotAFunction;

struct Model;

impl Model {
    #[custom_op("ui::method")]
    fn method(&self, x: &Tensor) -> Result<Tensor> {
        x.ok().cloned()
    }
}

#[custom_op("ui::qualified")]
async unsafe extern "C" fn qualified(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::generic")]
fn generic<'a, T>(x: &'a Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::no_return")]
fn no_return(x: &mut Tensor) {}

#[custom_op("ui::no_result")]
fn no_result(x: &Tensor) -> (Tensor, Tensor) {
    (x.clone(), x.clone())
}

fn main() {}
