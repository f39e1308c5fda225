//! Autocast: which operators compute in which dtype, and where it does not apply.

use maquette_aten as _;
use maquette_ir::DType::{self, BF16, F16, F32, F64, I64};
use maquette_ops::{
    Result, Tensor, args, autocast, autocast_dtype, call, custom_op, without_autocast,
};

fn ones(sizes: [i64; 2], dtype: DType) -> Tensor {
    Tensor::ones(sizes, dtype)
}

fn dtype(name: &str, args: maquette_ops::Args) -> DType {
    call(name, args).unwrap()[0].tensor().unwrap().dtype()
}

#[test]
fn products_compute_in_the_lower_precision() {
    let (x, w, b) = (ones([2, 3], F32), ones([3, 4], F32), Tensor::ones([4], F32));
    autocast(BF16, || {
        assert_eq!(x.mm(&w).dtype(), BF16);
        assert_eq!(x.matmul(&w).dtype(), BF16);
        assert_eq!(dtype("aten::addmm", args![&b, &x, &w]), BF16);
        assert_eq!(x.linear(&w.t(), Some(&b)).dtype(), BF16);
        // a composite without a policy is its parts
        assert_eq!(dtype("aten::einsum", args!["ij,jk->ik", vec![x.clone(), w.clone()]]), BF16);
        // others compute in the dtypes of their operands
        assert_eq!((&x + 1.0).dtype(), F32);
        assert_eq!(x.mm(&w).relu().dtype(), BF16);
        assert_eq!((x.mm(&w) + &b).dtype(), F32);
        assert_eq!(autocast_dtype(), Some(BF16));
        // f64 is left alone
        assert_eq!(ones([2, 3], F64).mm(&ones([3, 2], F64)).dtype(), F64);
    });
    assert_eq!(autocast(F16, || x.mm(&w).dtype()), F16);
    assert_eq!((x.mm(&w).dtype(), autocast_dtype()), (F32, None));
    // the values are those of the casts
    let random = || Tensor::randn([5, 7], F32);
    let (a, b) = (random(), random().t());
    let bits = |t: Tensor| t.to_dtype(F32).to_vec::<f32>().unwrap();
    let expected = a.to_dtype(BF16).mm(&b.to_dtype(BF16));
    assert_eq!(bits(autocast(BF16, || a.mm(&b))), bits(expected));
}

#[test]
fn losses_compute_in_f32_and_concatenations_in_the_wider_dtype() {
    let (x, y) = (ones([2, 3], BF16), ones([2, 3], F32));
    autocast(BF16, || {
        assert_eq!(dtype("aten::mse_loss", args![&x, &x]), F32);
        assert_eq!(dtype("aten::prod", args![&x]), F32);
        assert_eq!(dtype("aten::cat", args![vec![x.clone(), y.clone()]]), F32);
        assert_eq!(dtype("aten::cat", args![vec![x.clone(), x.clone()]]), BF16);
        assert_eq!(dtype("aten::stack", args![vec![y.clone(), y.clone()]]), F32);
        let (logits, target) = (ones([2, 3], BF16), Tensor::zeros([2], I64));
        assert_eq!(dtype("aten::cross_entropy_loss", args![&logits, &target]), F32);
    });
    assert_eq!(dtype("aten::mse_loss", args![&x, &x]), BF16);
}

#[test]
fn regions_nest_and_end() {
    let (x, w) = (ones([2, 3], F32), ones([3, 4], F32));
    autocast(BF16, || {
        assert_eq!(without_autocast(|| x.mm(&w).dtype()), F32);
        assert_eq!(autocast(F16, || x.mm(&w).dtype()), F16);
        let off = || without_autocast(|| autocast(F16, || x.mm(&w).dtype()));
        assert_eq!(off(), F16);
        assert_eq!(x.mm(&w).dtype(), BF16);
        let thread = std::thread::scope(|s| s.spawn(|| x.mm(&w).dtype()).join().unwrap());
        assert_eq!(thread, F32);
    });
    let caught = std::panic::catch_unwind(|| autocast(BF16, || panic!("out")));
    assert!(caught.is_err() && autocast_dtype().is_none());
    let e = autocast(I64, || x.mm(&w)).ok().unwrap_err().to_string();
    assert!(e.contains("bf16 or f16, found i64") && e.contains("aten::mm"), "{e}");
    assert_eq!(autocast(I64, || (&x + 1.0).dtype()), F32);
}

#[test]
fn gradients_have_the_dtypes_of_the_weights() {
    let (x, w) = (ones([2, 3], F32), ones([3, 4], F32).requires_grad_());
    let loss = || {
        let y = x.mm(&w).relu().mm(&ones([4, 1], F32));
        call("aten::mse_loss", args![&y, Tensor::zeros([2, 1], F32)]).unwrap().remove(0)
    };
    let loss = autocast(BF16, || {
        let loss = loss().tensor().unwrap().clone();
        loss.backward().unwrap();
        loss
    });
    assert_eq!(loss.dtype(), F32);
    let grad = w.grad().unwrap();
    assert_eq!((grad.dtype(), grad.to_vec::<f32>().unwrap()[0]), (F32, 24.0));
}

#[test]
fn kernels_run_without_it() {
    let kernel = |x: &Tensor, w: &Tensor| -> Result<Tensor> { x.mm(w).ok().cloned() };
    let op = custom_op("autocast_test::product").kernel(kernel).register().unwrap();
    let (x, w) = (ones([2, 3], F32), ones([3, 4], F32));
    let found = autocast(BF16, || op.call(args![&x, &w]).unwrap().remove(0));
    assert_eq!(found.tensor().unwrap().dtype(), F32);
}

#[test]
fn the_lists_are_sorted_and_name_operators() {
    for list in maquette_ops::operator::autocast_lists() {
        assert!(list.is_sorted());
        for name in list {
            let found = maquette_ops::Op::find(&format!("aten::{name}"));
            assert!(found.is_ok(), "{name}: {found:?}");
        }
    }
}
