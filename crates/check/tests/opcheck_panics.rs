//! What `opcheck` prints of panics: nothing, if a kernel panics on samples that are not the given
//! one. The report has what matters.

use maquette_check::opcheck::opcheck;
use maquette_ops::{FakeCtx, Result, Tensor, args, custom_op};
use std::process::Command;

/// Set in the process whose output is examined.
const INNER: &str = "MAQUETTE_OPCHECK_PANICS";

/// A kernel that indexes three elements, and a derivative that does.
#[test]
fn a_kernel_of_one_size() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let x = x.to_vec::<f32>()?;
        assert_eq!(x.len(), 3, "a kernel of three elements");
        Ok(Tensor::from(vec![x[0] + x[1] + x[2]]))
    };
    let op = custom_op("panics::three").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([1], x.dtype()))
    })
    .unwrap();
    op.register_autograd(|_, grads| Ok(vec![Some(grads[0].expand([3]))])).unwrap();
    let report = opcheck(&op, args![Tensor::from([1.0f32, 2.0, 3.0])]).unwrap();
    assert!(report.to_string().contains("a kernel of three elements"), "{report}");
}

#[test]
fn nothing_is_printed_of_derived_samples() {
    for backtrace in ["0", "1"] {
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_kernel_of_one_size", "--nocapture"])
            .env(INNER, "1")
            .env("RUST_BACKTRACE", backtrace)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}");
        assert!(!text.contains("panicked at"), "RUST_BACKTRACE={backtrace}: {text}");
    }
}
