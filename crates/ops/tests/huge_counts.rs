//! Counts of elements that no memory holds are errors, and no panics: in factories, in operators
//! that repeat, and in those that take a size.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{Args, Tensor, Value, args, call};

/// Calls whose results would have `n` elements, or more.
fn calls(n: i64) -> Vec<(&'static str, Args)> {
    let pair = || Tensor::from([0i64, 1]);
    let floats = || Tensor::from([0.0f32, 1.0]);
    let image = || Tensor::zeros([1, 1, 2], DType::F32);
    vec![
        ("aten::arange", args![n]),
        ("aten::arange", args![n, DType::U8]),
        ("aten::arange", args![n as f64]),
        ("aten::arange", args![n as f64, DType::I64]),
        ("aten::arange.start", args![i64::MIN, n]),
        ("aten::arange.start_step", args![i64::MIN, n, 1]),
        ("aten::linspace", args![0, 1, n]),
        ("aten::linspace", args![0, 1, n, DType::U8]),
        ("aten::logspace", args![0, 1, n]),
        ("aten::full", args![[n], 1.0]),
        ("aten::full", args![[n, n], 1]),
        ("aten::zeros", args![[n], DType::U8]),
        ("aten::ones", args![[n], DType::U8]),
        ("aten::empty.memory_format", args![[n], DType::U8]),
        ("aten::new_zeros", args![pair(), [n, n]]),
        ("aten::rand", args![[n]]),
        ("aten::randint", args![5, [n]]),
        ("aten::eye", args![n]),
        ("aten::eye.m", args![n, 1]),
        ("aten::tril_indices", args![n, 1]),
        ("aten::tril_indices", args![n, n]),
        ("aten::triu_indices", args![1, n, 0]),
        ("aten::one_hot", args![Tensor::from([0i64]), n]),
        ("aten::repeat", args![pair(), [n]]),
        ("aten::tile", args![pair(), [n]]),
        ("aten::repeat_interleave.self_int", args![pair(), n]),
        ("aten::repeat_interleave.self_Tensor", args![pair(), Tensor::from([n, n])]),
        ("aten::repeat_interleave.Tensor", args![Tensor::from([n, n])]),
        ("aten::linalg_vander", args![floats(), n]),
        ("aten::constant_pad_nd", args![pair(), [n, n]]),
        ("aten::bincount", args![pair(), Value::None, n]),
        ("aten::bincount", args![Tensor::from([n])]),
        ("aten::histc", args![floats(), n]),
        ("aten::diag_embed", args![pair(), n]),
        ("aten::diag", args![pair(), n]),
        ("aten::upsample_nearest1d", args![image(), [n]]),
        ("aten::adaptive_avg_pool1d", args![image(), [n]]),
    ]
}

#[test]
fn counts_beyond_memory_are_errors() {
    for n in [i64::MAX, i64::MAX - 1, 1 << 62, 1 << 60, 1 << 50] {
        for (op, args) in calls(n) {
            let result = call(op, args);
            assert!(result.is_err(), "{op} with {n} gave {result:?}");
        }
    }
    for t in
        [Tensor::arange(i64::MAX), Tensor::arange_step(0, i64::MAX, 1), Tensor::arange(1i64 << 50)]
    {
        let e = t.ok().expect_err("no memory").to_string();
        assert!(e.contains("cannot allocate a tensor of sizes"), "{e}");
    }
}

#[test]
fn counts_that_overflow_are_errors() {
    let over = SymInt::from(i64::MAX) + 1;
    let calls: [(&str, Args); 5] = [
        ("aten::arange", args![over]),
        ("aten::arange.start", args![5, over]),
        ("aten::arange.start_step", args![0, over, 3]),
        ("aten::linspace", args![0, 1, over]),
        ("aten::full", args![[over], 1]),
    ];
    for (op, args) in calls {
        let e = call(op, args).expect_err(op).to_string();
        assert!(e.contains("overflows a 64-bit integer"), "{op}: {e}");
    }
    let too_many = call("aten::arange.start", args![-1, i64::MAX]).expect_err("a count of 2^63");
    assert!(too_many.to_string().contains("gives too many elements"), "{too_many}");
}
