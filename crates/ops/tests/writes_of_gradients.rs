//! Writes that the history of gradients cannot follow: through views that were made in `no_grad`,
//! and through arrays.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::autograd::no_grad;
use maquette_ops::{Result, Tensor, args};

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn gradient(t: &Tensor) -> Vec<f64> {
    t.grad().expect("a gradient").to_vec::<f64>().unwrap()
}

#[track_caller]
fn is_refused(t: Tensor, why: &str) {
    let e = t.ok().unwrap_err().to_string();
    assert!(e.contains(why), "{e}");
}

const IN_NO_GRAD: &str = "made in `no_grad`";

#[test]
fn views_of_results_that_were_made_in_no_grad_are_not_written() {
    let x = leaf([1.0, 2.0]);
    let y = || &x * 2.0;
    let view = |y: &Tensor| no_grad(|| y.slice(0, 1..));
    // by a number, and by a tensor with a gradient
    is_refused(view(&y()).mul_(3.0), IN_NO_GRAD);
    is_refused(view(&y()).mul_(leaf([3.0])), IN_NO_GRAD);
    is_refused(view(&y()).copy_(&Tensor::from([3.0f64])), IN_NO_GRAD);
    // views of the view, made in `no_grad` or outside
    let result = y();
    is_refused(no_grad(|| view(&result).unsqueeze(0)).mul_(3.0), IN_NO_GRAD);
    is_refused(view(&y()).unsqueeze(0).mul_(3.0), IN_NO_GRAD);
    is_refused(view(&y()).unsqueeze(0).squeeze().mul_(leaf([3.0])), IN_NO_GRAD);
    // one of several
    let parts = no_grad(|| result.split(1, 0)).unwrap();
    is_refused(parts[0].mul_(3.0), IN_NO_GRAD);
    // of a leaf
    is_refused(no_grad(|| leaf([1.0, 2.0]).slice(0, 1..)).fill_(3.0), IN_NO_GRAD);
    // nothing was written
    let y = y();
    assert!(maquette_ops::call("aten::mul_.Scalar", args![&view(&y), 3.0]).is_err());
    y.sum().backward().unwrap();
    assert_eq!(gradient(&x), [2.0, 2.0]);
}

#[test]
fn the_base_may_require_a_gradient_later() {
    let buffer = || Tensor::from([0.0f64, 0.0]);
    let w = leaf([3.0]);
    // the write itself would make the buffer a result
    let (a, v) = {
        let a = buffer();
        let v = no_grad(|| a.slice(0, 1..));
        (a, v)
    };
    is_refused(v.copy_(&w), IN_NO_GRAD);
    assert!(!a.requires_grad());
    // a write through another view has made it one
    let (a, v) = {
        let a = buffer();
        let v = no_grad(|| a.slice(0, 1..));
        (a, v)
    };
    a.slice(0, ..1).copy_(&w).ok().unwrap();
    is_refused(v.mul_(2.0), IN_NO_GRAD);
    is_refused(v.slice(0, ..).mul_(2.0), IN_NO_GRAD);
    // `requires_grad_`
    let (a, v) = {
        let a = buffer();
        let v = no_grad(|| a.slice(0, 1..));
        (a, v)
    };
    a.requires_grad_();
    is_refused(v.copy_(&w), IN_NO_GRAD);
}

#[test]
fn what_has_no_gradient_is_written_through_any_view() {
    let a = Tensor::from([0.0f64, 0.0]);
    let v = no_grad(|| a.slice(0, 1..));
    v.fill_(5.0).ok().unwrap();
    assert_eq!(a.to_vec::<f64>().unwrap(), [0.0, 5.0]);
    // in `no_grad`, and of a detached handle
    let y = leaf([1.0, 2.0]) * 2.0;
    no_grad(|| y.slice(0, 1..).fill_(5.0)).ok().unwrap();
    no_grad(|| y.detach()).slice(0, 1..).fill_(6.0).ok().unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), [2.0, 6.0]);
    // a view that was made with gradients, also where several were made
    let x = leaf([1.0, 2.0]);
    let y = &x * 2.0;
    y.split(1, 0).unwrap()[0].mul_(3.0).ok().unwrap();
    y.sum().backward().unwrap();
    assert_eq!(gradient(&x), [6.0, 2.0]);
}

#[test]
fn gradients_that_are_views_may_be_written() {
    let w = leaf([3.0]);
    for of in [|x: &Tensor| x.t().sum(), |x: &Tensor| x.reshape([4]).cumsum(0).sum()] {
        let x = Tensor::ones([2, 2], DType::F64).requires_grad_();
        of(&x).backward().unwrap();
        x.grad().unwrap().mul_(&w).ok().unwrap();
    }
}

#[test]
fn arrays_do_not_write_tensors_with_a_history() {
    let write = |t: &Tensor| -> Result<()> {
        t.clone().write::<f64>()?.fill(9.0);
        Ok(())
    };
    let refusal = |t: &Tensor| write(t).unwrap_err().to_string();
    let x = leaf([1.0, 2.0]);
    let y = &x * 2.0;
    let e = refusal(&y);
    assert!(e.contains("`write`") && e.contains("writes_of_gradients.rs"), "{e}");
    assert!(refusal(&y.slice(0, 1..)).contains("`write`"));
    assert!(refusal(&x).contains("leaf"));
    assert!(refusal(&x.slice(0, 1..)).contains("view of a leaf"));
    assert!(refusal(&no_grad(|| y.slice(0, 1..))).contains(IN_NO_GRAD));
    // nothing was written, and the tensor is as it was
    assert_eq!((y.to_vec::<f64>().unwrap(), y.version()), (vec![2.0, 4.0], 0));
    // a buffer that got a history by a write
    let buffer = Tensor::from([0.0f64, 0.0]);
    let view = buffer.slice(0, 1..);
    write(&view).unwrap();
    buffer.slice(0, ..1).copy_(&x.slice(0, 1..)).ok().unwrap();
    assert!(refusal(&buffer).contains("`write`") && refusal(&view).contains("`write`"));
    // in `no_grad`, and where there is no history
    no_grad(|| write(&x)).unwrap();
    write(&y.detach()).unwrap();
    assert_eq!(x.to_vec::<f64>().unwrap(), [9.0, 9.0]);
}
