//! Loop nests: their text, their verifier and the reference evaluator.

use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::{Affine, Array, Index, IndexMap, LoopBuilder, LoopError, LoopNest};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, UnaryOp};
use maquette_ir::sym::{Expr, Range, SymTable, SymbolKind};
use maquette_ir::{DType, Scalar};

fn floats(sizes: &[i64], elements: &[f32]) -> Array {
    Array::new(DType::F32, sizes, elements.iter().map(|&x| x.into())).expect("fits")
}

fn ints(sizes: &[i64], elements: &[i64]) -> Array {
    Array::new(DType::I64, sizes, elements.iter().map(|&x| x.into())).expect("fits")
}

fn values(array: &Array) -> Vec<f64> {
    array.elements().iter().map(|x| x.to_f64()).collect()
}

/// Parses a nest, whose text is in normal form.
fn parse(text: &str) -> LoopNest {
    let nest = LoopNest::parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(nest.to_string(), text.trim_start());
    nest.verify().expect("a parsed nest is valid");
    nest
}

/// Evaluates a nest of text without symbols.
fn eval(text: &str, operands: &[Array]) -> Vec<Array> {
    parse(text).eval(&|_| None, operands, &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn softmax() -> Result<LoopNest, LoopError> {
    let mut symbols = SymTable::new();
    let mut size = |name| {
        let s = symbols.symbol(name, SymbolKind::Backed, Range::SIZE).expect("is free");
        symbols.expr(s)
    };
    let (rows, columns) = (size("s0"), size("s1"));
    let mut nest = LoopBuilder::new(symbols);
    let (i, j) = (nest.axis(rows), nest.axis(columns));
    let x = nest.operand(DType::F32, &[rows, columns]);
    let scale = nest.number(DType::F32);
    let scaled = nest.map(&[i, j], |s| {
        let (x, scale) = (s.load(x, [i, j])?, s.launch(scale)?);
        Ok(s.expr.binary(BinaryOp::Mul, x, scale)?)
    })?;
    let max = nest.reduce(&[i, j], &[j], Fold::Max, Order::Lanes, |s| s.load(scaled, [i, j]))?;
    let exp = nest.map(&[i, j], |s| {
        let (x, max) = (s.load(scaled, [i, j])?, s.load(max, [i])?);
        let d = s.expr.binary(BinaryOp::Sub, x, max)?;
        Ok(s.expr.unary(UnaryOp::Exp, d)?)
    })?;
    let sum = nest.reduce(&[i, j], &[j], Fold::Sum, Order::Lanes, |s| s.load(exp, [i, j]))?;
    let result = nest.map(&[i, j], |s| {
        let (e, sum) = (s.load(exp, [i, j])?, s.load(sum, [i])?);
        let scale = s.expr.unary(UnaryOp::Reciprocal, sum)?;
        Ok(s.expr.binary(BinaryOp::Mul, e, scale)?)
    })?;
    nest.finish(&[result.into()])
}

#[test]
fn softmax_has_a_text_that_parses() {
    let nest = softmax().expect("is valid");
    insta::assert_snapshot!(nest);
    assert!(nest.unproven().is_empty(), "axes of the operand's sizes are inside");
    parse(&nest.to_string());
}

#[test]
fn softmax_evaluates() {
    let nest = softmax().expect("is valid");
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, -1.0, -1.0, f32::NEG_INFINITY]);
    let sizes = |s| [2, 3].get(nest.symbols().symbols().position(|t| t == s)?).copied();
    let result = nest.eval(&sizes, &[x], &[Scalar::Float(1.0)]).expect("evaluates");
    let found = values(&result[0]);
    for (found, expected) in found.iter().zip([0.0900306, 0.2447285, 0.6652409, 0.5, 0.5, 0.0]) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

#[test]
fn sums_by_lanes_have_a_defined_order() {
    // 1e8 and -1e8 are in one lane, and so lose what is added in between in their own lane alone
    let mut xs = vec![1.0f32; 100];
    (xs[0], xs[64]) = (1e8, -1e8);
    let text = "
loops (a0: f32[100]) -> (t0, t1)
  axes i0 < 100
{
  t0[] = reduce sum lanes over [i0] {
    r0: f32 = load a0[i0]
    return r0
  }
  t1[] = reduce sum sequential over [i0] {
    r0: f32 = load a0[i0]
    return r0
  }
}
";
    let sums = eval(text, &[floats(&[100], &xs)]);
    assert_eq!(values(&sums[0]), [97.0], "only the 1 in lane 0 at 32 is lost");
    assert_eq!(values(&sums[1]), [35.0], "all between 0 and 64 are lost");
}

#[test]
fn moments_of_a_large_mean_are_exact() {
    let text = "
loops (a0: f32[2, 4]) -> (t0, t0:1)
  axes i0 < 2, i1 < 4
{
  t0[i0] = reduce moments lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
}
";
    let x = floats(&[2, 4], &[1e6, 1e6 + 1.0, 1e6 + 2.0, 1e6 + 3.0, 3.0, 3.0, 3.0, 3.0]);
    let moments = eval(text, &[x]);
    assert_eq!(values(&moments[0]), [1000001.5, 3.0]);
    assert_eq!(values(&moments[1]), [5.0, 0.0]);
}

#[test]
fn extremes_give_the_first_index_and_nan() {
    let text = "
loops (a0: f32[3, 4]) -> (t0, t0:1, t1:1)
  axes i0 < 3, i1 < 4
{
  t0[i0] = reduce argmax lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
  t1[i0] = reduce argmin sequential over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
}
";
    let low = f32::NEG_INFINITY;
    let x = [1.0, 5.0, 5.0, 0.0, f32::NAN, 9.0, f32::NAN, -1.0, low, low, low, low];
    let results = eval(text, &[floats(&[3, 4], &x)]);
    assert!(values(&results[0])[1].is_nan());
    assert_eq!(values(&results[1]), [1.0, 0.0, 0.0]);
    assert_eq!(values(&results[2]), [3.0, 0.0, 0.0]);
}

#[test]
fn a_gather_reads_at_computed_positions() {
    let text = "
loops (a0: f32[3, 2], a1: i64[4]) -> (t0)
  axes i0 < 4, i1 < 2
{
  t0[i0, i1] = map {
    r0: i64 = load a1[i0]
    r1: f32 = read a0[r0, i1] wraps
    return r1
  }
}
";
    let table = floats(&[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let rows = eval(text, &[table.clone(), ints(&[4], &[2, -3, 1, -1])]);
    assert_eq!(values(&rows[0]), [20.0, 21.0, 0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let outside = parse(text).eval(&|_| None, &[table, ints(&[4], &[0, 1, -4, 7])], &[]);
    let error = outside.expect_err("-4 is outside");
    assert_eq!(error.to_string(), "index -4 is out of bounds for dimension 0 with size 3");
}

#[test]
fn a_convolution_reads_padding() {
    let text = "
loops (a0: f32[3], a1: f32[3]) -> (t0)
  axes i0 < 3, i1 < 3
{
  t0[i0] = contract over [i0, i1] {
    r0: i64 = coord i0
    r1: i64 = coord i1
    r2: i64 = add r0, r1
    r3: i64 = const 1
    r4: i64 = sub r2, r3
    r5: f32 = const 0.0
    r6: f32 = read a0[r4] else r5
    r7: f32 = load a1[i1]
    return r6, r7
  }
}
";
    let operands = [floats(&[3], &[1.0, 2.0, 3.0]), floats(&[3], &[1.0, 10.0, 100.0])];
    assert_eq!(values(&eval(text, &operands)[0]), [210.0, 321.0, 32.0]);
}

#[test]
fn reads_clamp_and_are_skipped() {
    let text = "
loops (a0: f32[2], a1: i64[3]) -> (t0, t0:1)
  axes i0 < 3
{
  t0[i0] = map {
    r0: i64 = load a1[i0]
    r1: f32 = read a0[r0] clamps
    r2: i64 = const 0
    r3: bool = eq r0, r2
    r4: f32 = read a0[r0] fails when r3
    return r1, r4
  }
}
";
    let results = eval(text, &[floats(&[2], &[5.0, 6.0]), ints(&[3], &[-7, 0, 9])]);
    assert_eq!(values(&results[0]), [5.0, 5.0, 6.0]);
    assert_eq!(values(&results[1]), [0.0, 5.0, 0.0]);
}

#[test]
fn scans_run_along_an_axis() {
    let text = "
loops (a0: i64[2, 3]) -> (t0, t1)
  axes i0 < 2, i1 < 3
{
  t0[i0, i1] = scan sum exact along i0 {
    r0: i64 = load a0[i0, i1]
    return r0
  }
  t1[i0, i1] = scan (0, 0) exact along i1 {
    r0: i64 = load a0[i0, i1]
    r1: i64 = const 1
    return r0, r1
  } combine {
    r0: i64 = input 0
    r1: i64 = input 1
    r2: i64 = input 2
    r3: i64 = input 3
    r4: i64 = max r0, r2
    r5: i64 = add r1, r3
    return r4, r5
  }
}
";
    let results = eval(text, &[ints(&[2, 3], &[1, 3, 2, 10, 20, 30])]);
    assert_eq!(values(&results[0]), [1.0, 3.0, 2.0, 11.0, 23.0, 32.0]);
    assert_eq!(values(&results[1]), [1.0, 3.0, 3.0, 10.0, 20.0, 30.0]);
}

#[test]
fn a_sort_is_stable_and_keeps_the_first() {
    let text = "
loops (a0: f32[4, 2]) -> (t0, t0:1)
  axes i0 < 4, i1 < 2, i2 < 3
{
  t0[i2, i1] = sort descending i0 to i2 {
    r0: f32 = load a0[i0, i1]
    return r0
  }
}
";
    let x = [1.0, 7.0, 2.0, 7.0, f32::NAN, 8.0, 2.0, 7.0];
    let results = eval(text, &[floats(&[4, 2], &x)]);
    assert!(values(&results[0])[0].is_nan());
    assert_eq!(values(&results[0])[1..], [8.0, 2.0, 7.0, 2.0, 7.0]);
    assert_eq!(values(&results[1]), [2.0, 2.0, 1.0, 0.0, 3.0, 1.0]);
}

#[test]
fn a_scatter_combines_in_order() {
    let text = |combine: &str| {
        format!(
            "
loops (a0: f32[3], a1: i64[4], a2: f32[4]) -> (t0)
  axes i0 < 4
{{
  t0 = scatter {combine} into a0 over [i0] {{
    r0: f32 = load a2[i0]
    r1: i64 = load a1[i0]
    return r0, r1
  }}
}}
"
        )
    };
    let base = floats(&[3], &[1.0, 1.0, 1.0]);
    let values_in = floats(&[4], &[10.0, 20.0, 30.0, 40.0]);
    let run = |combine, at: &[i64]| {
        let operands = [base.clone(), ints(&[4], at), values_in.clone()];
        parse(&text(combine)).eval(&|_| None, &operands, &[])
    };
    assert_eq!(values(&run("replace", &[0, 2, 0, 0]).unwrap()[0]), [40.0, 1.0, 20.0]);
    assert_eq!(values(&run("add", &[0, 2, 0, 0]).unwrap()[0]), [81.0, 1.0, 21.0]);
    let error = run("add", &[0, 2, 3, 0]).expect_err("3 is outside");
    assert_eq!(error.to_string(), "index 3 is out of bounds for dimension 0 with size 3");
}

#[test]
fn assertions_fail_with_their_message() {
    let text = r#"
loops (a0: i64[2]) -> (t0)
  axes i0 < 2
  message "the classes must be \"positive\""
{
  t0[i0] = map {
    r0: i64 = load a0[i0]
    r1: i64 = const 0
    r2: bool = ge r0, r1
    r3: bool = assert r2 message 0
    return r0
  }
}
"#;
    assert_eq!(values(&eval(text, &[ints(&[2], &[3, 4])])[0]), [3.0, 4.0]);
    let error = parse(text).eval(&|_| None, &[ints(&[2], &[3, -4])], &[]).expect_err("-4 < 0");
    assert_eq!(error.to_string(), "the classes must be \"positive\"");
}

/// The error of a nest of one stage over `i0 < 4` and `i1 < s0`, with operands `a0: f32[4]` and
/// `a1: f16[s0]`, and a launch scalar `c0: f32`.
fn error(stage: &str) -> String {
    let text = format!(
        "loops (a0: f32[4], a1: f16[s0]) -> (t0)\n  where s0 in [0, oo)\n  launch c0: f32\n  \
            axes i0 < 4, i1 < s0\n{{\n  {stage}\n}}\n"
    );
    LoopNest::parse(&text).expect_err(&text).message
}

#[test]
fn the_verifier_names_stage_and_invariant() {
    let load = |what: &str| format!("{{\n    r0: f32 = load {what}\n    return r0\n  }}");
    let map = |what: &str| error(&format!("t0[i0] = map {}", load(what)));
    insta::assert_snapshot!(
        [
            map("a0[i0 + 1]"),
            map("a0[i1]"),
            map("a0[i0, i0]"),
            map("a0[i0 + i0]"),
            map("t0[i0]"),
            map("a7[i0]"),
            error("t0[i0, i0] = map {\n    r0: i64 = coord i0\n    return r0\n  }"),
            error("t0[i0] = map {\n    r0: i64 = coord i1\n    return r0\n  }"),
            error("t0[i0] = map {\n    r0: i64 = launch c0\n    return r0\n  }"),
            error("t0[i0] = map {\n    r0: i32 = launch c1\n    return r0\n  }"),
            error("t0[i0] = map {\n    return\n  }"),
            error("t0[i0] = contract over [i0, i1] {\n    r0: f32 = load a0[i0]\n    return r0\n  }"),
            error("t0[] = reduce sum lanes over [i1] {\n    r0: f16 = load a1[i1]\n    return r0\n  }"),
            error("t0[i0] = scan moments exact along i0 {\n    r0: f32 = load a0[i0]\n    return r0\n  }"),
            error("t0[i1] = sort ascending i0 to i1 {\n    r0: f32 = load a0[i0]\n    return r0, r0\n  }"),
            error("t0[i0] = scan sum blocks along i1 {\n    r0: f32 = load a0[i0]\n    return r0\n  }"),
            error("t0 = scatter add into a0 over [i0] {\n    r0: f32 = load a0[i0]\n    return r0\n  }"),
            error("t0[i0] = map {\n    r0: f32 = read a0[i0] fails\n    r1: f32 = add r0, r1\n    return r0\n  }"),
            error("t0[i0] = map {\n    r0: i64 = coord i0\n    r1: f32 = read a0[r0] inside when r0\n    return r0\n  }"),
            error("t0[i0] = squash {\n  }"),
        ]
        .join("\n")
    );
}

#[test]
fn what_is_not_proved_inside_is_listed() {
    let text = "
loops (a0: f32[s0]) -> (t0)
  where s0 in [0, oo), s1 in [0, oo)
  axes i0 < s1
{
  t0[i0] = map {
    r0: f32 = load a0[-1 * i0 + (s1 - 1)]
    return r0
  }
}
";
    let nest = parse(text);
    assert_eq!(nest.unproven().len(), 1);
    let sizes = |s| [2, 3].get(nest.symbols().symbols().position(|t| t == s)?).copied();
    let error = nest.eval(&sizes, &[floats(&[2], &[1.0, 2.0])], &[]).expect_err("reads 2");
    assert_eq!(error.to_string(), "stage t0 reads outside the source of load 0");
}

#[test]
fn an_operand_of_another_type_is_refused() {
    let nest = softmax().expect("is valid");
    let sizes = |_| Some(2);
    let errors = [
        nest.eval(&sizes, &[], &[]),
        nest.eval(&sizes, &[floats(&[2, 3], &[0.0; 6])], &[]),
        nest.eval(&sizes, &[floats(&[2, 2], &[0.0; 4])], &[]),
        nest.eval(&|_| None, &[floats(&[2, 2], &[0.0; 4])], &[]),
    ];
    let errors = errors.map(|e| e.expect_err("is refused").to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn the_same_load_is_one_input() {
    let mut nest = LoopBuilder::new(SymTable::new());
    let i = nest.axis(Expr::Int(4));
    let x = nest.operand(DType::F32, &[Expr::Int(4), Expr::Int(4)]);
    let stage = nest.map(&[i], |s| {
        let at = s.coord(i);
        let diagonal: IndexMap = [Index::from(i), Index::Computed].into_iter().collect();
        let a = s.read(x, diagonal.clone(), &[at], Bounds::Inside, None)?;
        let b = s.read(x, diagonal, &[at], Bounds::Fails, None)?;
        let first: IndexMap =
            [Index::from(i), Affine::from(Expr::Int(0)).into()].into_iter().collect();
        let (c, d) = (s.load(x, first.clone())?, s.load(x, first)?);
        let (e, f) = (s.expr.binary(BinaryOp::Add, a, b)?, s.expr.binary(BinaryOp::Add, c, d)?);
        Ok(s.expr.binary(BinaryOp::Add, e, f)?)
    });
    let stage = stage.expect("is valid");
    let nest = nest.finish(&[stage.into()]).expect("is valid");
    assert_eq!(nest.stages()[0].loads.len(), 2);
    let x: Vec<f32> = (0..16).map(|x| x as f32).collect();
    let result = nest.eval(&|_| None, &[floats(&[4, 4], &x)], &[]).expect("evaluates");
    assert_eq!(values(&result[0]), [0.0, 18.0, 36.0, 54.0]);
    parse(&nest.to_string());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]
    #[test]
    fn hostile_text_is_an_error_or_a_nest(
        cuts in proptest::collection::vec((0usize..700, 0usize..6, 0usize..12), 1..5),
    ) {
        const WORDS: [&str; 12] =
            ["i7", "t0", "a9", "r2", "-1", "[", "]", "map", "i64", "0", ", ", "over"];
        let mut text = softmax().expect("is valid").to_string();
        for (at, len, word) in cuts {
            let at = at % text.len();
            let end = (at + len).min(text.len());
            text.replace_range(at..end, WORDS[word]);
        }
        if let Ok(nest) = LoopNest::parse(&text) {
            let printed = nest.to_string();
            let again = LoopNest::parse(&printed).expect("a printed nest parses");
            proptest::prop_assert_eq!(again.to_string(), printed);
        }
    }
}
