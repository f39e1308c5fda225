use super::*;
use crate::graph::TensorType;
use crate::sym::{Expr, SymTable};
use crate::{Category, DType, Scalar};
use proptest::prelude::*;

const PROMOTION: [(DType, &str); 10] = [
    // with          bool u8   i8   i16  i32  i64  f16  bf16 f32  f64
    (DType::Bool, "bool u8   i8   i16  i32  i64  f16  bf16 f32  f64"),
    (DType::U8, "u8   u8   i16  i16  i32  i64  f16  bf16 f32  f64"),
    (DType::I8, "i8   i16  i8   i16  i32  i64  f16  bf16 f32  f64"),
    (DType::I16, "i16  i16  i16  i16  i32  i64  f16  bf16 f32  f64"),
    (DType::I32, "i32  i32  i32  i32  i32  i64  f16  bf16 f32  f64"),
    (DType::I64, "i64  i64  i64  i64  i64  i64  f16  bf16 f32  f64"),
    (DType::F16, "f16  f16  f16  f16  f16  f16  f16  f32  f32  f64"),
    (DType::BF16, "bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64"),
    (DType::F32, "f32  f32  f32  f32  f32  f32  f32  f32  f32  f64"),
    (DType::F64, "f64  f64  f64  f64  f64  f64  f64  f64  f64  f64"),
];

#[test]
fn pairs_promote_as_pytorch_documents() {
    for (a, row) in PROMOTION {
        for (b, expected) in DType::ALL.into_iter().zip(row.split_whitespace()) {
            assert_eq!(promote_pair(a, b).name(), expected, "{a} with {b}");
        }
    }
}

fn operand(text: &str) -> Operand {
    let (kind, dtype) = text.split_once(' ').unwrap();
    let kind = match kind {
        "tensor" => OperandKind::Tensor,
        "0-d" => OperandKind::ZeroDim,
        "scalar" => OperandKind::Scalar,
        _ => panic!("{kind}"),
    };
    Operand { dtype: dtype.parse().unwrap(), kind }
}

#[test]
fn recorded_promotions() {
    // Cases of PyTorch's documented rules that the recording does not contain.
    let documented = [
        "tensor i32, scalar f32 -> f32",
        "tensor f16, scalar f64 -> f16",
        "tensor f16, 0-d f32 -> f16",
        "tensor i8, 0-d f16 -> f16",
        "tensor i8, 0-d f16, scalar f64 -> f16",
        "tensor u8, 0-d i64 -> u8",
        "tensor bool, 0-d u8, scalar i64 -> u8",
        "0-d i32, scalar f64 -> f32",
        "0-d bool, scalar i64 -> i64",
        "scalar i64, scalar f64 -> f32",
        "scalar bool, scalar i64 -> i64",
        "tensor u8, tensor i8, scalar bool -> i16",
    ];
    let recorded =
        include_str!("../../tests/data/promote.txt").lines().filter(|l| !l.starts_with('#'));
    let mut count = 0;
    for line in recorded.chain(documented) {
        let (operands, result) = line.split_once(" -> ").unwrap();
        assert_eq!(promote(operands.split(", ").map(operand)).name(), result, "{line}");
        count += 1;
    }
    assert_eq!(count, 43 + documented.len());
    assert_eq!(promote([]), DType::F32);
    assert_eq!(Operand::scalar(Scalar::Float(1.0)), operand("scalar f32"));
    assert_eq!(
        (Operand::tensor(DType::I8, 0), Operand::tensor(DType::I8, 1)),
        (operand("0-d i8"), operand("tensor i8"))
    );
}

#[test]
fn casts_may_not_lower_the_category() {
    assert!(
        can_cast(DType::F64, DType::F16)
            && can_cast(DType::Bool, DType::F32)
            && can_cast(DType::I64, DType::U8)
    );
    assert!(!can_cast(DType::F32, DType::I64) && !can_cast(DType::U8, DType::Bool));
    assert!(DType::ALL.iter().all(|&d| can_cast(d, d)
        && can_cast(DType::Bool, d)
        && (d.category() == Category::Float) == can_cast(DType::F16, d)));
}

fn dims(text: &str) -> DimsI64 {
    text.trim_matches(['[', ']'])
        .split(',')
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().unwrap())
        .collect()
}

fn sized(text: &str) -> (Dims, Dims) {
    let (sizes, strides) = text.split_once('/').unwrap();
    (symbolic(&dims(sizes)), symbolic(&dims(strides)))
}

/// The sizes and strides of the result of operands such as `[2,3]/[3,1]`.
fn strides_of(operands: &str) -> String {
    let operands: Vec<(Dims, Dims)> = operands.split(' ').map(sized).collect();
    let shapes: Vec<&[SymInt]> = operands.iter().map(|(sizes, _)| &sizes[..]).collect();
    let out = broadcast(&shapes).unwrap();
    let operands: Vec<(&[SymInt], &[SymInt])> =
        operands.iter().map(|(sizes, strides)| (&sizes[..], &strides[..])).collect();
    let strides = elementwise_strides(&out, &operands).unwrap();
    let print = |values: &[SymInt]| format!("{:?}", plain(values).unwrap()).replace(' ', "");
    format!("{}/{}", print(&out), print(&strides))
}

#[test]
fn recorded_strides() {
    let recorded: Vec<&str> = include_str!("../../tests/data/elementwise_strides.txt")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .collect();
    assert_eq!(recorded.len(), 197);
    for line in recorded {
        let (operands, result) = line.split_once(" -> ").unwrap();
        assert_eq!(strides_of(operands), result, "{line}");
    }
}

#[test]
fn strides_follow_the_operands() {
    let table = [
        // All operands are transposed. Otherwise the first operand that is not broadcast decides.
        ("[2,3]/[1,2] [2,3]/[1,2]", "[2,3]/[1,2]"),
        ("[2,3]/[1,2] [2,3]/[3,1]", "[2,3]/[1,2]"),
        ("[2,3]/[3,1] [2,3]/[1,2]", "[2,3]/[3,1]"),
        ("[2,3]/[1,2] []/[]", "[2,3]/[1,2]"),
        ("[]/[] [2,3]/[1,2]", "[2,3]/[1,2]"),
        ("[3]/[1] [2,3]/[1,2]", "[2,3]/[1,2]"),
        ("[2,1]/[1,1] [2,3]/[1,2]", "[2,3]/[1,2]"),
        // Gaps and overlaps of the operand are absent from the result, which is dense.
        ("[2,3]/[6,2]", "[2,3]/[3,1]"),
        ("[2,3]/[2,4]", "[2,3]/[1,2]"),
        ("[4,3]/[1,1]", "[4,3]/[3,1]"),
        ("[3,4]/[1,1]", "[3,4]/[1,3]"),
        ("[2,3]/[0,0] [2,3]/[0,1]", "[2,3]/[3,1]"),
        ("[2,3]/[1,0]", "[2,3]/[3,1]"),
        // Channels-last.
        ("[2,3,4,5]/[60,1,15,3] [2,3,4,5]/[60,1,15,3]", "[2,3,4,5]/[60,1,15,3]"),
        ("[2,3,4,5]/[60,1,15,3] [3,1,1]/[1,1,1]", "[2,3,4,5]/[60,1,15,3]"),
        ("[2,3,4,5]/[60,1,15,3] [2,3,4,5]/[60,20,5,1]", "[2,3,4,5]/[60,1,15,3]"),
        ("[2,3,4,5]/[60,20,5,1] [2,3,4,5]/[60,1,15,3]", "[2,3,4,5]/[60,20,5,1]"),
        ("[2,3,4,5]/[60,1,15,3] []/[]", "[2,3,4,5]/[60,1,15,3]"),
        // With a size of 1 both layouts apply; contiguous takes precedence.
        ("[2,1,4,5]/[20,1,5,1] [2,1,4,5]/[20,20,5,1]", "[2,1,4,5]/[20,20,5,1]"),
        // Only the second operand orders the outer two dimensions.
        ("[1,1,5]/[5,5,1] [2,3,5]/[5,10,1]", "[2,3,5]/[5,10,1]"),
        ("[2,3,4]/[1,8,2]", "[2,3,4]/[1,8,2]"),
        ("[]/[] []/[]", "[]/[]"),
    ];
    for (operands, result) in table {
        assert_eq!(strides_of(operands), result, "{operands}");
    }
    let (size, stride) = sized("[2,3]/[1]");
    let error = elementwise_strides(&size, &[(&size, &stride)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operand 0 has 1 strides for 2 sizes, in a result of 2 dimensions"
    );
}

#[test]
fn shapes_broadcast() {
    let table = [
        ("[2,3] [3]", "[2, 3]"),
        ("[2,1] [1,3]", "[2, 3]"),
        ("[0,1] [1,3]", "[0, 3]"),
        ("[] [] []", "[]"),
        ("[1] [0]", "[0]"),
        ("[4,1,6] [5,1] []", "[4, 5, 6]"),
        (
            "[2,3] [2,1] [2,4]",
            "cannot broadcast [2, 3] with [2, 4]: dimension 1 of the result is 3 in operand 0, \
                but 4 in operand 2",
        ),
        (
            "[3] [5,2]",
            "cannot broadcast [3] with [5, 2]: dimension 1 of the result is 3 in operand 0, but 2 \
                in operand 1",
        ),
        (
            "[1] [2] [0]",
            "cannot broadcast [2] with [0]: dimension 0 of the result is 2 in operand 1, but 0 in \
                operand 2",
        ),
    ];
    for (shapes, expected) in table {
        let shapes: Vec<Dims> = shapes.split(' ').map(|s| symbolic(&dims(s))).collect();
        let shapes: Vec<&[SymInt]> = shapes.iter().map(|s| &s[..]).collect();
        let found = broadcast(&shapes)
            .map_or_else(|e| e.to_string(), |out| format!("{:?}", plain(&out).unwrap()));
        assert_eq!(found, expected);
    }
    assert!(broadcast(&[]).unwrap().is_empty());
}

#[test]
fn density() {
    let table = [
        // sizes, strides, contiguous, dense
        ("[2,3]/[3,1]", true, true),
        ("[2,3]/[1,2]", false, true),
        ("[2,3]/[4,1]", false, false),
        ("[2,3]/[0,1]", false, false),
        ("[1,3]/[7,1]", true, true),
        ("[0,3]/[7,9]", true, true),
        ("[]/[]", true, true),
        ("[2,3,4]/[1,8,2]", false, true),
        ("[2,2]/[1,1]", false, false),
    ];
    for (text, contiguous, dense) in table {
        let (sizes, strides) = sized(text);
        assert_eq!(is_contiguous(&sizes, &strides).unwrap(), contiguous, "{text}");
        assert_eq!(is_non_overlapping_and_dense(&sizes, &strides).unwrap(), dense, "{text}");
    }
    assert_eq!(&contiguous_strides_i64(&[2, 0, 3]).unwrap()[..], [3, 3, 1]);
    assert_eq!(&dense_strides_i64(&[2, 3, 4, 5], [1, 3, 2, 0]).unwrap()[..], [60, 1, 15, 3]);
}

/// In each arithmetic, a stride that overflows is an error, and the outermost size is not a factor.
#[test]
fn strides_that_overflow_are_errors() {
    let (large, fits) = ([0, 1 << 62, 4], [1 << 62, 4]);
    assert_eq!(contiguous_strides_i64(&large), None);
    assert_eq!(&contiguous_strides_i64(&fits).unwrap()[..], [4, 1]);
    assert!(contiguous_strides(&symbolic(&large))[0].poisoned().is_some());
    assert_eq!(plain(&contiguous_strides(&symbolic(&fits))), contiguous_strides_i64(&fits));
    let mut symbols = SymTable::new();
    let mut strides = |sizes: &[i64]| {
        let sizes: Vec<Expr> = sizes.iter().copied().map(Expr::Int).collect();
        TensorType::contiguous(DType::F32, &sizes, &mut symbols).map(|t| t.strides.to_vec())
    };
    assert!(strides(&large).is_err());
    assert_eq!(strides(&fits).unwrap(), [Expr::Int(4), Expr::Int(1)]);
}

/// Sizes, and an order of their dimensions in memory.
fn permuted() -> impl Strategy<Value = (DimsI64, Vec<usize>)> {
    (0usize..5).prop_flat_map(|rank| {
        (
            proptest::collection::vec(1i64..5, rank).prop_map(DimsI64::from_vec),
            Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
        )
    })
}

/// The strides that can be observed.
fn observable(sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    sizes.iter().zip(strides).filter(|(size, _)| **size != 1).map(|(_, &stride)| stride).collect()
}

proptest! {
    #[test]
    fn results_are_dense_and_keep_the_order_of_one_operand(
        (sizes, order) in permuted(),
        gap in 1i64..3,
    ) {
        let dense = dense_strides_i64(&sizes, order).unwrap();
        let operand: DimsI64 = dense.iter().map(|s| s * gap).collect();
        let (out_sizes, strides) = (symbolic(&sizes), symbolic(&operand));
        let operand = (&out_sizes[..], &strides[..]);
        let number: (&[SymInt], &[SymInt]) = (&[], &[]);
        for operands in [&[operand][..], &[operand, number][..]] {
            let strides = plain(&elementwise_strides(&out_sizes, operands).unwrap()).unwrap();
            prop_assert!(is_non_overlapping_and_dense_i64(&sizes, &strides));
            prop_assert_eq!(observable(&sizes, &strides), observable(&sizes, &dense));
        }
    }

    #[test]
    fn broadcasting_does_not_depend_on_order(
        a in proptest::collection::vec(0i64..3, 0..4),
        b in proptest::collection::vec(0i64..3, 0..4),
        c in proptest::collection::vec(0i64..3, 0..4),
    ) {
        let [a, b, c] = [symbolic(&a), symbolic(&b), symbolic(&c)];
        let shape = |shapes: &[&[SymInt]]| broadcast(shapes).ok().map(|s| plain(&s).unwrap());
        let abc = shape(&[&a, &b, &c]);
        prop_assert_eq!(&abc, &shape(&[&c, &a, &b]));
        prop_assert_eq!(&abc, &shape(&[&b, &a, &c]));
        if let Some(abc) = abc {
            prop_assert_eq!(shape(&[&symbolic(&abc), &b]), Some(abc));
        }
    }
}
