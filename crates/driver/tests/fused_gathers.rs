//! Gathers are one kernel with what follows them, with the bits and the errors of the operators
//! alone.

use maquette_driver::{CompileOptions, Compiled, compile};
use maquette_ir::DType;
use maquette_ir::fused::NoFusionReason;
use maquette_ops::{Error, Result, Tensor};

fn ramp(sizes: &[i64]) -> Tensor {
    ((Tensor::arange(sizes.iter().product::<i64>()) * 0.37).sin()).reshape(sizes.to_vec())
}

fn bits(t: &Tensor) -> Vec<u64> {
    let wide = t.contiguous().reshape([-1i64]).to_dtype(DType::F64);
    wide.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

/// Indices of some sizes, below `n`.
fn indices(sizes: [i64; 2], n: i64, seed: i64) -> Tensor {
    let count = sizes[0] * sizes[1];
    (Tensor::arange(count) * 7 + seed).remainder(n).to_dtype(DType::I64).reshape(sizes.to_vec())
}

/// The input of a transformer: three embeddings, their sum, and its norm.
struct Input {
    ids: [Tensor; 3],
    tables: [Tensor; 3],
    norm: [Tensor; 2],
}

const ROWS: [i64; 3] = [101, 2, 40];

impl Input {
    fn new(sizes: [i64; 2], width: i64, dtype: DType, of_index: DType) -> Input {
        let at = |i: usize| indices(sizes, ROWS[i], i as i64).to_dtype(of_index);
        Input {
            ids: [0, 1, 2].map(at),
            tables: ROWS.map(|n| ramp(&[n, width]).to_dtype(dtype)),
            norm: [ramp(&[width]), ramp(&[width]) * 0.5].map(|t| t.to_dtype(dtype)),
        }
    }

    fn list(&self) -> Vec<Tensor> {
        self.ids.iter().chain(&self.tables).chain(&self.norm).cloned().collect()
    }
}

fn embedded(x: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let width = x[3].sizes()[1];
    let word = x[3].embedding(&x[0]).ok()?.clone();
    let kind = x[4].embedding(&x[1]).ok()?.clone();
    let place = x[5].embedding(&x[2]).ok()?.clone();
    let sum = word + kind + place;
    Ok(vec![sum.layer_norm([width], Some(&x[6]), Some(&x[7]), 1e-5)])
}

/// Whether the embeddings are one kernel with the norm.
#[track_caller]
fn is_one_kernel<F>(f: &Compiled<Vec<Tensor>, Result<Vec<Tensor>>, F>)
where
    F: Fn(Vec<Tensor>) -> Result<Vec<Tensor>>,
{
    for program in f.explain().programs.iter() {
        let is_one = |text: &String| {
            text.starts_with("rows")
                && text.matches("embedding").count() == 3
                && text.contains("norm")
        };
        assert!(program.fused.iter().any(is_one), "{program}");
        assert_eq!(program.unfused_layouts, 0, "{program}");
    }
}

#[track_caller]
fn is_no_gather_fused<F>(f: &Compiled<Vec<Tensor>, Result<Vec<Tensor>>, F>)
where
    F: Fn(Vec<Tensor>) -> Result<Vec<Tensor>>,
{
    for program in f.explain().programs.iter() {
        assert!(!program.fused.iter().any(|text| text.contains("embedding")), "{program}");
    }
}

/// The operator, the line and the first line of the text of an error.
fn described(e: &Error) -> (Option<String>, Option<u32>, String) {
    let text = e.to_string().lines().next().unwrap_or_default().to_owned();
    (e.op().map(str::to_owned), e.loc().map(|loc| loc.line), text)
}

#[test]
fn embeddings_their_sum_and_its_norm_are_one_kernel() {
    let cases = [
        (DType::F32, DType::I64, 384),
        (DType::F32, DType::I32, 40),
        (DType::F64, DType::I64, 7),
        (DType::BF16, DType::I32, 384),
        (DType::F16, DType::I64, 33),
    ];
    for (dtype, of_index, width) in cases {
        let (fixed, symbolic) = (compile(embedded), CompileOptions::symbolic().compile(embedded));
        for sizes in [[1, 16], [2, 3], [3, 130], [1, 1]] {
            let x = Input::new(sizes, width, dtype, of_index);
            let expected = bits(&embedded(x.list()).unwrap()[0]);
            for f in [&fixed, &symbolic] {
                let found = f.call(x.list()).unwrap();
                assert_eq!(bits(&found[0]), expected, "{dtype} {of_index} {width} {sizes:?}");
            }
        }
        // Rows of halves are copied faster alone.
        match dtype {
            DType::F32 | DType::F64 => {
                is_one_kernel(&fixed);
                is_one_kernel(&symbolic);
            }
            _ => is_no_gather_fused(&fixed),
        }
    }
}

#[test]
fn no_index_and_no_element() {
    let f = CompileOptions::symbolic().compile(embedded);
    for (sizes, width) in [([2, 5], 8), ([2, 0], 8), ([0, 3], 8), ([2, 5], 0)] {
        let x = Input::new(sizes, width, DType::F32, DType::I64);
        let expected = bits(&embedded(x.list()).unwrap()[0]);
        assert_eq!(bits(&f.call(x.list()).unwrap()[0]), expected, "{sizes:?} {width}");
    }
}

#[test]
fn the_first_embedding_that_fails_has_the_error() {
    let (fixed, symbolic) = (compile(embedded), CompileOptions::symbolic().compile(embedded));
    let sizes = [2, 37];
    for bad in 1..8 {
        for (at, index) in [(0, -1), (73, 101), (40, i64::MAX), (5, i64::MIN)] {
            let mut x = Input::new(sizes, 384, DType::F32, DType::I64);
            for i in (0..3).filter(|i| bad & (1 << i) != 0) {
                let place = (Tensor::arange(74i64) - at).eq(0.0).reshape([2i64, 37]);
                x.ids[i] = x.ids[i].masked_fill(&place, index);
            }
            let before: Vec<_> = x.list().iter().map(bits).collect();
            let expected = described(&embedded(x.list()).unwrap_err());
            assert_eq!(expected.0.as_deref(), Some("aten::embedding"));
            for f in [&fixed, &symbolic] {
                assert_eq!(described(&f.call(x.list()).unwrap_err()), expected, "{bad} {index}");
            }
            assert_eq!(x.list().iter().map(bits).collect::<Vec<_>>(), before);
        }
        // A failed call leaves nothing to the next one.
        let x = Input::new(sizes, 384, DType::F32, DType::I64);
        let expected = bits(&embedded(x.list()).unwrap()[0]);
        assert_eq!(bits(&fixed.call(x.list()).unwrap()[0]), expected);
    }
    is_one_kernel(&fixed);
}

#[test]
fn other_gathers_and_divisions_with_what_follows() {
    type F = fn(Vec<Tensor>) -> Result<Vec<Tensor>>;
    let gathered: F = |x| Ok(vec![(x[0].gather(1, &x[1]).tanh() + 1.0).neg()]);
    let by_columns: F = |x| Ok(vec![x[0].gather(0, &x[1]).exp() * 2.0]);
    let selected: F = |x| {
        let rows = x[0].index_select(0, &x[1].select(0, 0)).exp();
        Ok(vec![rows.softmax(1)])
    };
    let last: F = |x| Ok(vec![x[0].index_select(1, &x[1].select(0, 0)).exp().sum_dim([1], true)]);
    let divided: F = |x| {
        let quotients = (x[1].clone() + 7).floor_divide(&x[2]).to_dtype(DType::F32);
        Ok(vec![(quotients * 0.1).softmax(1)])
    };
    let cases = [
        (gathered, "gather"),
        (by_columns, "gather"),
        (selected, "index_select"),
        (last, "index_select"),
        (divided, "floor_divide"),
    ];
    for (function, name) in cases {
        let f = compile(function);
        for (rows, columns) in [(9, 70), (40, 9), (9, 300)] {
            let (table, ids) = (ramp(&[rows, columns]), indices([rows, columns], 9, 3));
            let ones = Tensor::full([rows, columns], 2i64, DType::I64);
            let good = vec![table.clone(), ids.clone(), ones.clone()];
            let expected = bits(&function(good.clone()).unwrap()[0]);
            assert_eq!(bits(&f.call(good).unwrap()[0]), expected, "{name} {rows} {columns}");
            let place = Tensor::arange(rows * columns).eq(7.0).reshape([rows, columns]);
            let (ids, zeros) = (ids.masked_fill(&place, 400), ones.masked_fill(&place, 0));
            let bad = vec![table, ids, zeros];
            let expected = described(&function(bad.clone()).unwrap()[0].ok().unwrap_err());
            assert_eq!(described(&f.call(bad).unwrap_err()), expected, "{name} {rows} {columns}");
        }
        let programs = f.explain().programs;
        let is_fused = |text: &String| text.contains(name) && text.contains(',');
        assert!(programs[0].fused.iter().any(is_fused), "{name}: {}", programs[0]);
    }
}

/// Copies of whole rows and divisions are as fast alone, if no reduction follows.
#[test]
fn elementwise_operators_after_rows_or_divisions_are_apart() {
    type F = fn(Vec<Tensor>) -> Result<Vec<Tensor>>;
    let embedded: F = |x| Ok(vec![(x[0].embedding(&x[1]) + 1.0).tanh()]);
    let divided: F = |x| Ok(vec![(x[1].floor_divide(&x[2]) + 1) * 3]);
    for (function, name) in [(embedded, "embedding"), (divided, "floor_divide")] {
        let f = compile(function);
        let ids = indices([9, 10], 9, 3);
        let x = vec![ramp(&[9, 64]), ids, Tensor::full([9, 10], 2i64, DType::I64)];
        let expected = bits(&function(x.clone()).unwrap()[0]);
        assert_eq!(bits(&f.call(x).unwrap()[0]), expected, "{name}");
        let program = &f.explain().programs[0];
        assert!(program.fused.iter().all(|text| !text.contains(name)), "{program}");
        assert_eq!(program.fused.len(), 1, "{program}");
        let is_faster = |reason| reason == NoFusionReason::LosesSpecialisation;
        assert!(program.not_fused.iter().any(|(.., reason)| is_faster(*reason)), "{program}");
    }
}

/// What a failed call leaves behind is what the eager program leaves that ends with the error.
#[test]
fn inputs_are_written_up_to_the_error() {
    type F = fn(Vec<Tensor>) -> Result<Vec<Tensor>>;
    let before: F = |x| {
        x[2].add_(&x[2]).ok()?;
        let e = x[0].gather(1, &x[1]).ok()?.clone();
        Ok(vec![e.tanh() + 1.0])
    };
    let between: F = |x| {
        let e = x[0].gather(1, &x[1]).ok()?.clone();
        x[2].add_(&x[2]).ok()?;
        Ok(vec![e.tanh() + 1.0])
    };
    let behind: F = |x| {
        let e = x[0].gather(1, &x[1]).ok()?.tanh() + 1.0;
        x[2].add_(e.ok()?).ok()?;
        Ok(vec![])
    };
    let over: F = |x| {
        let e = x[0].gather(1, &x[1]).ok()?.tanh() + 1.0;
        x[2].copy_(e.ok()?).ok()?;
        Ok(vec![])
    };
    // What the write needs is computed before the gather, and read behind it.
    let shared: F = |x| {
        let s = x[1].to_dtype(DType::F32).tanh();
        x[2].copy_(s.mm(&ramp(&[10, 10])).ok()?).ok()?;
        let e = x[0].gather(1, &x[1]).ok()?.clone();
        Ok(vec![e + s])
    };
    let cases = [(before, true), (between, false), (behind, true), (over, true), (shared, true)];
    for (function, fused) in cases {
        let f = compile(function);
        for index in [3, 400] {
            let inputs = || {
                let place = Tensor::arange(90i64).eq(70.0).reshape([9i64, 10]);
                let ids = indices([9, 10], 9, 3).masked_fill(&place, index);
                vec![ramp(&[9, 64]), ids, ramp(&[9, 10])]
            };
            let (given, expected) = (inputs(), inputs());
            let (found, eager) = (f.call(given.clone()), function(expected.clone()));
            match (found, eager) {
                (Ok(found), Ok(eager)) => {
                    assert!(found.iter().map(bits).eq(eager.iter().map(bits)))
                }
                (Err(found), Err(eager)) => assert_eq!(described(&found), described(&eager)),
                (found, eager) => panic!("{found:?} and {eager:?}"),
            }
            assert!(given.iter().map(bits).eq(expected.iter().map(bits)), "{index}");
        }
        let is_fused = |text: &String| text.contains("gather");
        let program = &f.explain().programs[0];
        assert_eq!(program.fused.iter().any(is_fused), fused, "{program}");
    }
}
