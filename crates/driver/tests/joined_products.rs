//! Products that share their left factor are one kernel, with the bits of the operators alone.

use maquette_driver::{CompileOptions, ExportOptions, compile};
use maquette_ir::fused::NoFusionReason;
use maquette_ir::{DType, Device};
use maquette_ops::module::{Module, Slot, visit_part};
use maquette_ops::{Tensor, with_num_threads};

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);

fn ramp(sizes: &[i64], dtype: DType) -> Tensor {
    let x = Tensor::arange(sizes.iter().product::<i64>()).to_dtype(dtype);
    ((x * 0.37).sin()).reshape(sizes.to_vec())
}

/// The bits of tensors, as numbers that keep them apart.
fn bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    let bits = |t: &Tensor| -> Vec<u64> {
        let t = t.contiguous().reshape([-1i64]);
        match t.dtype() {
            DType::F64 => t.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect(),
            _ => {
                let wide = t.to_dtype(DType::F32).to_vec::<f32>().unwrap();
                wide.into_iter().map(|x| u64::from(x.to_bits())).collect()
            }
        }
    };
    tensors.iter().map(bits).collect()
}

/// The regions of a compiled function that have several products.
fn joined(fused: &[String]) -> Vec<&str> {
    let products = |text: &&str| text.matches("mm").count() > 1;
    fused.iter().map(String::as_str).filter(products).collect()
}

/// The query, the key and the value of a layer with biases, and without the first.
fn projections((x, w, b): (Tensor, Vec<Tensor>, Tensor)) -> Vec<Tensor> {
    let q = x.linear(&w[0], None);
    let k = x.linear(&w[1], Some(&b));
    let v = x.linear(&w[2], Some(&b)).gelu();
    vec![q, k, v]
}

#[test]
fn sizes_across_tiles_on_some_threads() {
    let dtypes = [DType::F32, DType::F64, DType::BF16];
    for (dtype, n) in dtypes.into_iter().flat_map(|d| [47, 48, 384].map(|n| (d, n))) {
        let f = compile(projections);
        for m in [1, 2, 16, 17, 130] {
            let inputs = || {
                let w = (0..3i64).map(|i| ramp(&[n + i, 384], dtype).narrow(0, i, n)).collect();
                (ramp(&[1, m, 384], dtype), w, ramp(&[n], dtype))
            };
            let expected = bits(&projections(inputs()));
            for threads in [1, 2, 3] {
                let found = with_num_threads(threads, || f.call(inputs()).unwrap());
                assert_eq!(bits(&found), expected, "{dtype} {m} {n} on {threads}");
            }
        }
        for program in f.explain().programs {
            assert_eq!(joined(&program.fused).len(), 1, "{dtype}: {program}");
            assert_eq!(program.unfused_layouts, 0);
        }
    }
}

#[test]
fn other_columns_and_results_that_nobody_reads() {
    let eager = |(x, w, v): (Tensor, Tensor, Tensor)| {
        let (q, k) = (x.mm(&w), x.mm(&v));
        let _unread = x.mm(&w.relu());
        vec![q.tanh(), k]
    };
    let f = compile(eager);
    for (m, k, [n, p]) in [(16, 384, [384, 96]), (1, 512, [130, 7]), (40, 70, [1, 65])] {
        let of = |sizes: [i64; 2]| ramp(&sizes, DType::F32);
        let inputs = || (of([m, k]), of([k, n]), of([k, p]));
        assert_eq!(bits(&f.call(inputs()).unwrap()), bits(&eager(inputs())), "{m} {k}");
    }
    let explained = f.explain();
    assert_eq!(joined(&explained.programs[0].fused), ["product: aten::mm, aten::mm, aten::tanh"]);
}

#[test]
fn a_gate_and_what_it_gates_are_one_kernel() {
    let eager = |(x, g, u): (Tensor, Tensor, Tensor)| x.mm(&g).silu() * x.mm(&u);
    for threads in [1, 2, 3] {
        let f = CompileOptions::new().num_threads(threads).compile(eager);
        for (m, n) in [(1, 384), (16, 384), (17, 47), (300, 130)] {
            let of = |sizes: [i64; 2], by: f64| ramp(&sizes, DType::F32) * by;
            let inputs = || (of([m, 384], 1.0), of([384, n], 0.5), of([384, n], -1.5));
            let found = f.call(inputs()).unwrap();
            assert_eq!(bits(&[found]), bits(&[eager(inputs())]), "{m} {n} on {threads}");
        }
        let fused = &f.explain().programs[0].fused;
        assert_eq!(fused[..], ["product: aten::mm, aten::silu, aten::mm, aten::mul.Tensor"]);
    }
}

/// Products of one column and of several, of which views are broadcast.
fn broadcast((x, w): (Tensor, Vec<Tensor>)) -> Vec<Tensor> {
    let negative = x.mm(&w[0]).squeeze_dim(1).neg();
    let wide = x.mm(&w[1]);
    let narrow = x.mm(&w[2]).squeeze_dim(1);
    vec![negative, &wide * narrow, wide]
}

#[test]
fn a_view_of_another_product_that_is_broadcast() {
    let of = |sizes: [i64; 2]| ramp(&sizes, DType::F32);
    for m in [16, 48] {
        let inputs = || (of([m, 32]), vec![of([32, 1]), of([32, m]), of([32, 1]) + 1.0]);
        let found = compile(broadcast).call(inputs()).unwrap();
        assert_eq!(bits(&found), bits(&broadcast(inputs())), "{m}");
    }
}

/// Products with a reduction behind each: one large value is in memory at a time.
fn greatest((x, w): (Tensor, Vec<Tensor>)) -> Vec<Tensor> {
    w.iter().map(|w| x.mm(w).amax([1], false)).collect()
}

#[test]
fn products_that_are_read_one_after_another_are_apart() {
    let of = |sizes: [i64; 2]| ramp(&sizes, DType::F32);
    let inputs = || (of([64, 32]), (0..4).map(|_| of([32, 500])).collect::<Vec<_>>());
    let f = compile(greatest);
    assert_eq!(bits(&f.call(inputs()).unwrap()), bits(&greatest(inputs())));
    let explained = f.explain();
    assert_eq!(joined(&explained.programs[0].fused), [""; 0]);
    let reason = NoFusionReason::Lifetimes.to_string();
    assert!(explained.to_string().contains(&reason), "{explained}");
}

#[test]
fn an_input_that_one_reader_writes() {
    let eager = |(x, w, v): (Tensor, Tensor, Tensor)| {
        let (q, k) = (x.mm(&w), x.mm(&v));
        x.add_(&q);
        let again = x.mm(&v);
        vec![q, k, again]
    };
    let f = compile(eager);
    for m in [3, 16, 130] {
        let of = |sizes: [i64; 2]| ramp(&sizes, DType::F32);
        let inputs = || (of([m, 96]), of([96, 96]), of([96, 96]) + 1.0);
        let (expected, found) = (inputs(), inputs());
        let mut outputs = [Vec::new(), Vec::new()];
        outputs[0] = eager(expected.clone());
        outputs[1] = f.call(found.clone()).unwrap();
        outputs[0].extend([expected.0, expected.1, expected.2]);
        outputs[1].extend([found.0, found.1, found.2]);
        assert_eq!(bits(&outputs[1]), bits(&outputs[0]), "{m}");
    }
}

/// The projections of an attention, whose weights are packed.
struct Layer(Vec<Tensor>, Tensor);

impl Module for Layer {
    type In = Tensor;
    type Out = Vec<Tensor>;

    fn forward(&self, x: Tensor) -> Vec<Tensor> {
        projections((x, self.0.clone(), self.1.clone()))
    }

    fn visit(&self, v: Visitor<'_>) {
        for (name, weight) in ["q", "k", "v"].into_iter().zip(&self.0) {
            visit_part(weight, "", name, Slot::Parameter, v);
        }
        visit_part(&self.1, "", "bias", Slot::Parameter, v);
    }
}

#[test]
fn packed_weights_that_are_written_between_calls() {
    let of = |i: i64| ramp(&[96, 80], DType::F32) + i as f64;
    let layer = Layer((0..3).map(of).collect(), ramp(&[96], DType::F32));
    let x = |m: i64| ramp(&[m, 80], DType::F32);
    let program = ExportOptions::symbolic().export(&layer, x(5)).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let compare = || {
        for m in [16, 1, 17, 130] {
            let (found, expected) = (compiled.call(x(m)).unwrap(), program.call(x(m)).unwrap());
            assert_eq!(bits(&found), bits(&expected), "{m}");
        }
    };
    compare();
    let bytes = compiled.packed_bytes();
    assert!(bytes >= 3 * 4 * 96 * 80, "{bytes}");
    for (_, _, t) in program.state() {
        t.mul_(-2.0);
        compare();
        assert_eq!(compiled.packed_bytes(), bytes);
    }
}
