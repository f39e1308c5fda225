//! Kernels that touch or keep what is not theirs, and samples that are too large.

use super::{floats, like, report};
use maquette_check::opcheck::{Check, OpcheckOptions, opcheck, opcheck_with};
use maquette_ops::{Result, Tensor, args, custom_op};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[test]
fn a_kernel_that_reads_a_tensor_it_was_not_given_is_a_finding() {
    let held = floats(1);
    let kernel = move |x: &Tensor| -> Result<Tensor> {
        let factor = held.item::<f32>().unwrap_or(2.0);
        Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v * factor)))
    };
    let op = custom_op("bad::peeks").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let report = report(&op, args![floats(3)]);
    assert_eq!(report.failed(), [Check::Schema]);
    assert!(report.to_string().contains("a tensor f32[1] that it was not given"), "{report}");
}

#[test]
fn a_kernel_that_keeps_what_it_returns_is_a_finding() {
    static KEPT: Mutex<Option<Tensor>> = Mutex::new(None);
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let y = x.clone_tensor();
        // only for some sizes, so that a derived sample finds it
        if x.numel().as_i64() == Some(4) {
            *KEPT.lock().unwrap() = Some(y.clone());
        }
        Ok(y)
    };
    let op = custom_op("bad::keeps").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let report = report(&op, args![floats(3)]);
    assert_eq!(report.failed(), [Check::Schema]);
    assert!(report.to_string().contains("output 0 is memory that something"), "{report}");
}

#[test]
fn a_sample_of_too_many_elements_is_refused_before_anything_runs() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let kernel = |x: &Tensor| -> Result<Tensor> {
        CALLS.fetch_add(1, Relaxed);
        Ok(x.clone_tensor())
    };
    let op = custom_op("bad::large").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let large = Tensor::zeros([3_000_000], maquette_ir::DType::F32);
    for sample in [large.clone(), large.slice(0, 0..2), floats(1).expand([1i64 << 40])] {
        let e = opcheck(&op, args![&sample]).unwrap_err().to_string();
        assert!(e.contains("elements") && e.contains("max_elements"), "{e}");
    }
    assert_eq!(CALLS.load(Relaxed), 0);
    let few = OpcheckOptions::new().max_elements(2);
    assert!(opcheck_with(&op, args![floats(3)], few.clone()).is_err());
    assert!(opcheck_with(&op, args![floats(3)], few.max_elements(3)).is_ok());
}
