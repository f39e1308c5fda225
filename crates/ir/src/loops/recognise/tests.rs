use super::*;
use crate::loops::fold::Fold;
use crate::loops::named::{self, Addend, Number, Reduced, Reduction};
use crate::loops::{Axes, LoopBuilder, StageOutput};
use crate::sym::SymTable;
use crate::{DType, Scalar};

/// The nest that a function appends to a builder.
fn nest<const N: usize>(build: impl FnOnce(&mut LoopBuilder) -> [StageOutput; N]) -> LoopNest {
    let mut builder = LoopBuilder::new(SymTable::new());
    let results = build(&mut builder);
    builder.finish(&results).unwrap()
}

fn softmax_of(x: DType, out: DType) -> LoopNest {
    nest(|b| {
        let x = b.input(x, 3);
        [named::softmax(b, &x, x.axes[1], out).unwrap().into()]
    })
}

fn sum_of(x: DType, out: DType, keep: bool) -> LoopNest {
    nest(|b| {
        let x = b.input(x, 3);
        let along: Axes = [x.axes[0], x.axes[2]].into_iter().collect();
        [named::reduce(b, Reduction::Sum, Reduced { x: &x, along: &along, keep, out }).unwrap()]
    })
}

#[test]
fn named_nests_are_recognised_with_their_parameters() {
    let dim = Recognised::Softmax(Softmax { dim: 1, log: false });
    assert_eq!(recognise(&softmax_of(DType::F32, DType::F32)), Some(dim.clone()));
    assert_eq!(recognise(&softmax_of(DType::F16, DType::F32)), Some(dim));

    let dims = [0, 2].into_iter().collect();
    let sum = Recognised::Reduce(Reduce { reduction: Reduction::Sum, dims });
    assert_eq!(recognise(&sum_of(DType::F32, DType::F32, false)), Some(sum.clone()));
    assert_eq!(recognise(&sum_of(DType::BF16, DType::F32, true)), Some(sum));

    let scan = nest(|b| {
        let x = b.input(DType::F64, 2);
        [named::scan(b, &x, x.axes[0], Fold::Prod, DType::F64).unwrap()]
    });
    let expected = Recognised::Scan(Scan::Fold { fold: Fold::Prod, dim: 0 });
    assert_eq!(recognise(&scan), Some(expected));

    let product = nest(|b| {
        let [x, y, addend] = [3, 2, 1].map(|rank| b.input(DType::F32, rank));
        let alpha = Some(b.number(DType::F32));
        let addend = Some(Addend { beta: b.number(DType::F32), of: &addend });
        let of = named::Product { a: &x, b: &y, batch: 1, alpha, addend, out: DType::F32 };
        [named::product(b, &of).unwrap()]
    });
    let expected = Product { is_row: false, is_column: true, has_alpha: true, has_addend: true };
    assert_eq!(recognise(&product), Some(Recognised::Product(expected)));

    let fill = nest(|b| {
        let size = b.new_size();
        let over: Axes = [b.axis(size)].into_iter().collect();
        let value = Number::Constant(Scalar::Float(2.5));
        [named::fill(b, &over, value, DType::F32).unwrap().into()]
    });
    let expected = Recognised::Fill(Fill::Constant(Scalar::Float(2.5)));
    assert_eq!(recognise(&fill), Some(expected));

    let triangle = nest(|b| {
        let x = b.input(DType::I64, 2);
        let diagonal = b.number(DType::I64);
        [named::triangle(b, &x, false, diagonal).unwrap().into()]
    });
    assert_eq!(recognise(&triangle), Some(Recognised::Triangle(Triangle { lower: false })));
}

#[test]
fn each_reduction_is_recognised_as_itself() {
    use Reduction::{All, Any, ArgMax, ArgMin};
    for reduction in Reduction::ALL {
        for x in [DType::F32, DType::I64, DType::Bool, DType::BF16] {
            let out = match reduction {
                Any | All => DType::Bool,
                ArgMin | ArgMax => DType::I64,
                _ if x == DType::Bool => continue,
                Reduction::Mean if !x.is_float() => continue,
                _ => x,
            };
            let reduced = nest(|b| {
                let x = b.input(x, 2);
                let along: Axes = [x.axes[1]].into_iter().collect();
                let of = Reduced { x: &x, along: &along, keep: false, out };
                [named::reduce(b, reduction, of).unwrap()]
            });
            let dims = [1].into_iter().collect();
            let expected = Recognised::Reduce(Reduce { reduction, dims });
            assert_eq!(recognise(&reduced), Some(expected), "{reduction:?} of {x}");
        }
    }
}

/// A computation beside another one is not the computation of its first stages.
#[test]
fn nests_that_differ_are_not_recognised() {
    let two_softmaxes = nest(|b| {
        let x = b.input(DType::F32, 2);
        let first = named::softmax(b, &x, x.axes[1], DType::F32).unwrap();
        let second = named::softmax(b, &x, x.axes[1], DType::F32).unwrap();
        [first.into(), second.into()]
    });
    assert_eq!(recognise(&two_softmaxes), None);

    let two_operands = nest(|b| {
        let [x, y] = [2, 2].map(|rank| b.input(DType::F32, rank));
        [&x, &y].map(|x| {
            let along: Axes = [x.axes[1]].into_iter().collect();
            let of = Reduced { x, along: &along, keep: false, out: DType::F32 };
            named::reduce(b, Reduction::Sum, of).unwrap()
        })
    });
    assert_eq!(recognise(&two_operands), None);
}
