//! Chains of cheap operations, on values that show the order of operands and the signs of zeros.

use super::{agrees, noise};
use maquette_ir::loops::{Array, LoopNest};
use maquette_ir::{DType, Scalar};

/// Zeros of both signs, infinities, a NaN, and numbers whose sums and products round.
const SPECIAL: [f64; 13] = [
    0.0,
    -0.0,
    1.5,
    -2.25,
    f64::NAN,
    f64::INFINITY,
    0.7,
    f64::NEG_INFINITY,
    -0.0625,
    1e-42,
    7e30,
    -1.0,
    3.1,
];

/// Every `step`-th special value, so that pairs of steps give all pairs.
fn special(dtype: DType, sizes: &[i64], step: usize) -> Array {
    let at = |i: usize| Scalar::Float(SPECIAL[(i * step + i / SPECIAL.len()) % SPECIAL.len()]);
    let n: i64 = sizes.iter().product();
    Array::new(dtype, sizes, (0..n as usize).map(at)).expect("fits")
}

fn parse(text: &str, dtype: DType, rows: i64, columns: i64) -> LoopNest {
    let text = text
        .replace("FLOAT", dtype.name())
        .replace("ROWS", &rows.to_string())
        .replace("COLUMNS", &columns.to_string());
    LoopNest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Every operation with the accumulator on either side, of blocks, rows and constants.
const OPERATIONS: &str = "
loops (a0: FLOAT[ROWS, COLUMNS], a1: FLOAT[ROWS, COLUMNS], a2: FLOAT[ROWS]) -> (t0, t0:1)
  axes i0 < ROWS, i1 < COLUMNS
{
  t0[i0, i1] = map {
    r0: FLOAT = load a0[i0, i1]
    r1: FLOAT = load a1[i0, i1]
    r2: FLOAT = load a2[i0]
    r3: FLOAT = const 0.75
    OPERATIONS
    return RETURN
  }
}
";

#[test]
fn each_operation_agrees() {
    let names = ["add", "sub", "mul", "div", "min", "max"];
    // The accumulator is `neg` of a block, and `abs` follows.
    let pairs = ["r4, r1", "r1, r4", "r4, r2", "r2, r4", "r4, r3", "r3, r4", "r4, r4"];
    for dtype in [DType::F32, DType::F64] {
        for (name, (i, pair)) in
            names.into_iter().flat_map(|name| pairs.iter().enumerate().map(move |p| (name, p)))
        {
            let lines = format!(
                "r4: FLOAT = neg r0
                 r5: FLOAT = {name} {pair}
                 r6: FLOAT = abs r5"
            );
            let text = OPERATIONS.replace("OPERATIONS", &lines).replace("RETURN", "r5, r6");
            let columns = [300, 257, 169, 1050, 31, 5, 400][i];
            let sizes = [2, columns];
            let nest = parse(&text, dtype, 2, columns);
            let operands =
                [special(dtype, &sizes, 1), special(dtype, &sizes, 5), special(dtype, &[2], 3)];
            assert_eq!(agrees(&nest, &operands, &[]), None);
        }
    }
}

#[test]
fn values_with_several_uses_agree() {
    let lines = "r4: FLOAT = mul r0, r1
        r5: FLOAT = add r4, r0
        r6: FLOAT = sub r4, r5
        r7: FLOAT = mul r5, r5
        r8: FLOAT = sqrt r7
        r9: FLOAT = rsqrt r7
        r10: FLOAT = mul r8, r9
        r11: FLOAT = exp r6
        r12: FLOAT = reciprocal r11
        r13: FLOAT = sub r2, r12
        r14: FLOAT = max r13, r10
        r15: FLOAT = add r14, r4
        r16: FLOAT = div r3, r15
        r17: FLOAT = add r2, r3
        r18: FLOAT = mul r16, r17";
    let text = OPERATIONS.replace("OPERATIONS", lines).replace("RETURN", "r18, r14");
    for dtype in [DType::F32, DType::F64] {
        for (rows, columns) in [(1, 1), (3, 15), (2, 129), (3, 300), (2, 1100)] {
            let nest = parse(&text, dtype, rows, columns);
            let array = |sizes: &[i64], at: usize| {
                let n = sizes.iter().product::<i64>() as usize;
                let elements = noise(n + at).skip(at).map(Scalar::Float);
                Array::new(dtype, sizes, elements).expect("fits")
            };
            let operands =
                [array(&[rows, columns], 0), array(&[rows, columns], 99), array(&[rows], 7)];
            assert_eq!(agrees(&nest, &operands, &[]), None);
        }
    }
}

#[test]
fn the_exponential_of_a_difference_behind_a_sum_agrees() {
    let lines = "r4: FLOAT = add r0, r1
        r5: FLOAT = sub r4, r2
        r6: FLOAT = exp r5";
    let text = OPERATIONS.replace("OPERATIONS", lines).replace("RETURN", "r6, r4");
    for dtype in [DType::F32, DType::F64] {
        for columns in [5, 40, 300] {
            let nest = parse(&text, dtype, 2, columns);
            let sizes = [2, columns];
            let operands =
                [special(dtype, &sizes, 1), special(dtype, &sizes, 5), special(dtype, &[2], 2)];
            assert_eq!(agrees(&nest, &operands, &[]), None);
        }
    }
}

#[test]
fn a_long_chain_agrees() {
    let lines: String = (4..60)
        .map(|r| {
            let (op, with) = (["add", "mul", "sub", "max"][r % 4], ["r0", "r1", "r2", "r4"][r % 3]);
            format!("r{r}: FLOAT = {op} r{}, {with}\n", if r == 4 { 0 } else { r - 1 })
        })
        .collect();
    let text = OPERATIONS.replace("OPERATIONS", &lines).replace("RETURN", "r59, r20");
    let nest = parse(&text, DType::F32, 2, 500);
    let sizes = [2, 500];
    let operands = [1, 5]
        .map(|step| special(DType::F32, &sizes, step))
        .into_iter()
        .chain([special(DType::F32, &[2], 3)]);
    assert_eq!(agrees(&nest, &operands.collect::<Vec<_>>(), &[]), None);
}

/// A layer norm whose reciprocals of deviations are evaluated where they are read, and a value of
/// the outermost axis alone.
const ROW_VALUES: &str = "
loops (a0: FLOAT[3, ROWS, COLUMNS], a1: FLOAT[COLUMNS], a2: FLOAT[3], a3: FLOAT[1]) -> (t1, t1:1)
  axes i0 < 3, i1 < ROWS, i2 < COLUMNS
{
  t0[i0, i1] = reduce moments lanes over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i1, i2]
    return r0
  }
  t1[i0, i1, i2] = map {
    r0: FLOAT = load a0[i0, i1, i2]
    r1: FLOAT = load t0[i0, i1]
    r2: FLOAT = sub r0, r1
    r3: FLOAT = load t0:1[i0, i1]
    r4: FLOAT = const COLUMNS.0
    r5: FLOAT = div r3, r4
    r6: FLOAT = rsqrt r5
    r7: FLOAT = mul r2, r6
    r8: FLOAT = load a1[i2]
    r9: FLOAT = div r7, r8
    r10: FLOAT = load a2[i0]
    r11: FLOAT = exp r10
    r12: FLOAT = add r9, r11
    r13: FLOAT = load a3[0]
    r14: FLOAT = sqrt r13
    r15: FLOAT = max r12, r14
    return r15, r11
  }
}
";

#[test]
fn values_of_short_rows_agree() {
    for dtype in [DType::F32, DType::F64] {
        for (rows, columns) in [(1, 1), (4, 7), (1, 64), (70, 128), (0, 9), (5, 300)] {
            let array = |sizes: &[i64], from: usize| {
                let n = sizes.iter().product::<i64>() as usize;
                let elements = noise(n + from).skip(from).map(|x| Scalar::Float(x.abs()));
                Array::new(dtype, sizes, elements).expect("fits")
            };
            let operands = [
                array(&[3, rows, columns], 0),
                array(&[columns], 50),
                array(&[3], 7),
                array(&[1], 8),
            ];
            assert_eq!(agrees(&parse(ROW_VALUES, dtype, rows, columns), &operands, &[]), None);
        }
    }
}

/// The exponential and the error function amid a chain, of arguments of every size.
#[test]
fn functions_agree_in_chains() {
    let lines = "
    r4: FLOAT = mul r0, r3
    r5: FLOAT = FUNCTION r4
    r6: FLOAT = add r5, r2
    r7: FLOAT = mul r1, r6
    r8: FLOAT = neg r7
    r9: FLOAT = FUNCTION r8";
    for dtype in [DType::F32, DType::F64] {
        for (name, columns) in [("exp", 1050), ("erf", 1050), ("exp", 31), ("erf", 85)] {
            let lines = lines.replace("FUNCTION", name);
            let text = OPERATIONS.replace("OPERATIONS", &lines).replace("RETURN", "r7, r9");
            let nest = parse(&text, dtype, 3, columns);
            let sizes = [3, columns];
            let number = |i: i64| (i - 1500) as f64 * 0.0625 * (i % 7) as f64 / 4.0;
            let numbers = (0..3 * columns).map(|i| Scalar::Float(f64::from(number(i) as f32)));
            let numbers = Array::new(dtype, &sizes, numbers).expect("fits");
            for x in [numbers, special(dtype, &sizes, 1)] {
                let operands = [x, special(dtype, &sizes, 5), special(dtype, &[3], 3)];
                assert_eq!(agrees(&nest, &operands, &[]), None);
            }
        }
    }
}
