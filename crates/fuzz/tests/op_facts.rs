//! What passes are told of every builtin operator, against what it does: on every call that PyTorch
//! recorded, of it or of the operator whose result it writes in place, and on calls made up from
//! its schema. It draws random numbers, returns its argument's memory, or writes to an argument,
//! only if that is said.

use maquette_fuzz::random_calls::{Recipe, Recorded, ramp};
use maquette_ir::DType;
use maquette_ir::graph::{ArgEffect, MemoryFacts};
use maquette_ops::library::{Facts, all};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Op, Outputs, Tensor, Value, args};
use std::collections::BTreeSet;
use std::path::Path;

/// Operators whose schemas, which are PyTorch's, hide what they write. A trace records an operator
/// that declares it.
const HIDDEN_WRITES: [&str; 3] =
    ["aten::batch_norm", "aten::instance_norm", "aten::native_batch_norm"];

/// What neither recorded calls nor recipes call.
const NEVER_CALLED: [&str; 37] = [
    "aten::_batch_norm_no_update",
    "aten::_batch_norm_with_update_functional",
    "aten::_convolution_mode",
    "aten::_embedding_bag",
    "aten::_native_batch_norm_legit_functional",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_upsample_bicubic2d_aa.vec",
    "aten::_upsample_bilinear2d_aa.vec",
    "aten::_upsample_lanczos2d_aa.vec",
    "aten::_upsample_nearest_exact1d.vec",
    "aten::_upsample_nearest_exact2d.vec",
    "aten::_upsample_nearest_exact3d.vec",
    "aten::affine_grid_generator",
    "aten::col2im",
    "aten::cosine_embedding_loss",
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::embedding_renorm",
    "aten::float_power_.Scalar",
    "aten::float_power_.Tensor",
    "aten::histogramdd.TensorList_bins",
    "aten::linalg_householder_product",
    "aten::linalg_lu_solve",
    "aten::linalg_matrix_norm",
    "aten::linalg_norm.ord_str",
    "aten::multilabel_margin_loss",
    "aten::nll_loss",
    "aten::nll_loss2d",
    "aten::nll_loss_nd",
    "aten::orgqr",
    "aten::upsample_bicubic2d.vec",
    "aten::upsample_bilinear2d.vec",
    "aten::upsample_linear1d.vec",
    "aten::upsample_nearest1d.vec",
    "aten::upsample_nearest2d.vec",
    "aten::upsample_nearest3d.vec",
    "aten::upsample_trilinear3d.vec",
];

/// Calls that no recipe makes.
fn special() -> Vec<(&'static str, Args)> {
    let [x, v] = [[2, 3], [1, 3]].map(|sizes| ramp(&sizes, DType::F32));
    let ones = |sizes: &[i64]| Tensor::ones(sizes.to_vec(), DType::F32);
    let sequence = |name, gates: i64| {
        let weights = [0, 1].map(|_| [ones(&[gates * 3, 3]), ones(&[gates * 3, 3])]);
        let weights = Value::List(weights.into_iter().flatten().map(Value::Tensor).collect());
        let h = Value::Tensor(ones(&[2, 2, 3]));
        let state = if name == "aten::lstm.input" { Value::List([h.clone(), h].into()) } else { h };
        (name, args![ones(&[5, 2, 3]), state, weights, false, 2, 0.5, true, false, false])
    };
    vec![
        sequence("aten::lstm.input", 4),
        sequence("aten::gru.input", 3),
        sequence("aten::rnn_tanh.input", 1),
        sequence("aten::rnn_relu.input", 1),
        ("aten::einsum", args!["ij->ji", Value::List([Value::Tensor(x.clone())].into())]),
        ("aten::cross", args![&x, &v]),
        ("aten::linalg_cross", args![&x, &v]),
        ("aten::gru_cell", args![&v, &v, ones(&[9, 3]), ones(&[9, 3])]),
        (
            "aten::lstm_cell",
            args![
                &v,
                Value::List([Value::Tensor(v.clone()), Value::Tensor(v.clone())].into()),
                ones(&[12, 3]),
                ones(&[12, 3])
            ],
        ),
        (
            "aten::instance_norm",
            args![
                ones(&[2, 2, 3]),
                Value::None,
                Value::None,
                ones(&[2]),
                ones(&[2]),
                true,
                0.5,
                1e-5,
                false
            ],
        ),
        (
            "aten::embedding_dense_backward",
            args![ones(&[4, 3]), Tensor::from_vec(vec![1i64, 0, 1, 5], [4]), 3, 0, true],
        ),
        ("grad::layer_norm", args![&x, &x, [3], ones(&[2, 1]), ones(&[2, 1]), ones(&[3])]),
        ("fast::attention", args![&x, &x, &x]),
        ("aten::randint.low", args![0, 9, [4]]),
        ("aten::randint_like.low_dtype", args![ones(&[4]), 0, 9]),
    ]
}

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_dtype(DType::F64)
        .contiguous()
        .reshape([-1i64])
        .to_vec::<f64>()
        .unwrap()
        .into_iter()
        .map(f64::to_bits)
        .collect()
}

fn contents(v: &Value) -> Vec<Vec<u64>> {
    v.tensors().filter(|t| !t.is_fake()).map(bits).collect()
}

fn share(v: &Value, w: &Value) -> bool {
    v.tensors().any(|t| w.tensors().any(|u| t.shares_storage(u)))
}

/// What came of an operator's calls.
#[derive(Default)]
struct Seen {
    calls: usize,
    draws: bool,
    hidden_writes: bool,
    /// What it did that is not said of it.
    wrong: BTreeSet<String>,
}

impl Seen {
    fn call(&mut self, op: Op, args: &Args) {
        let name = op.name();
        let before: Vec<_> = args.iter().map(contents).collect();
        let mut at = Philox { seed: 7, offset: 0 };
        let Ok(results) = apart(&mut at, || op.call(args.clone())) else { return };
        self.calls += 1;
        self.draws |= at.offset != 0;
        if at.offset != 0 && !Facts.uses_rng(name) {
            self.wrong.insert("it draws random numbers".into());
        }
        self.memory(name, args, &results);
        let writes = |i: usize| Facts.arg_effect(name, i) == ArgEffect::Write;
        for (i, (arg, before)) in args.iter().zip(before).enumerate() {
            let said = args
                .iter()
                .enumerate()
                .any(|(k, other)| writes(k) && (k == i || share(arg, other)));
            if said || contents(arg) == before {
                continue;
            }
            if HIDDEN_WRITES.contains(&name) {
                self.hidden_writes = true;
            } else {
                self.wrong.insert(format!("it writes to argument {i}"));
            }
        }
    }

    fn memory(&mut self, name: &str, args: &Args, results: &Outputs) {
        for (r, result) in results.iter().enumerate() {
            let said = Facts.result_aliases(name, r);
            for t in result.tensors().map(|t| Value::Tensor(t.clone())) {
                let shared = |args: &Args| -> Vec<usize> {
                    (0..args.len()).filter(|i| share(&args[*i], &t)).collect()
                };
                let found = shared(args);
                if !found.is_empty() && !said.is_some_and(|i| found.contains(&i)) {
                    self.wrong.insert(format!(
                        "result {r} shares the memory of arguments {found:?}, not {said:?}"
                    ));
                }
            }
            if results.iter().take(r).any(|earlier| said.is_none() && share(earlier, result)) {
                self.wrong.insert(format!("result {r} shares the memory of an earlier one"));
            }
        }
    }
}

#[test]
fn operators_have_their_declared_facts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let recorded = Recorded::read(&folder).unwrap();
    let special = special();
    let (mut wrong, mut never, mut steady, mut hidden) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for op in all().into_iter().filter(Op::is_builtin) {
        let (name, schema, mut seen) = (op.name(), op.schema().unwrap(), Seen::default());
        recorded.of(name).for_each(|file| file.samples(op).for_each(|args| seen.call(op, &args)));
        Recipe::all()
            .filter_map(|recipe| recipe.call(op, &schema))
            .for_each(|args| seen.call(op, &args));
        special.iter().filter(|(of, _)| *of == name).for_each(|(_, args)| seen.call(op, args));
        wrong.extend(seen.wrong.iter().map(|what| format!("{name}: {what}")));
        match seen.calls {
            0 => never.push(name),
            _ if Facts.uses_rng(name) && !seen.draws => steady.push(name),
            _ => {}
        }
        hidden.extend(seen.hidden_writes.then_some(name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(steady, Vec::<&str>::new(), "said to draw random numbers, and never seen to");
    assert_eq!(hidden, HIDDEN_WRITES);
    assert_eq!(never, NEVER_CALLED);
}
