//! Shape rules on symbolic sizes: what the outputs' sizes and strides are, and which guards and
//! assertions they take.

use maquette_aten as _;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::{DType, Loc};
use maquette_ops::{Args, Op, Tensor, args, fake};

/// Sizes and strides, in words.
fn shape(t: &Tensor) -> String {
    t.ok().expect("the call succeeds");
    let text = |d: &[SymInt]| d.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("[{}] [{}]", text(t.sizes()), text(t.strides()))
}

fn batch(scope: &Scope) -> SymInt {
    scope.backed(Some("b"), Range::new(1, 64), 4).expect("a fresh symbol")
}

fn guards(scope: &Scope) -> Vec<String> {
    scope.with(|d| d.guards.iter().map(|g| d.table.display_bool(g.cond).to_string()).collect())
}

fn assertions(scope: &Scope) -> Vec<String> {
    scope.with(|d| d.assertions.iter().map(|a| d.table.display_bool(a.cond).to_string()).collect())
}

#[test]
fn views_of_a_symbolic_batch_take_no_guards() {
    let scope = Scope::new();
    let b = batch(&scope);
    let x = Tensor::fake([b, 6.into(), 4.into()], DType::F32);
    for (y, expected) in [
        (x.view([b, 24.into()]), "[b, 24] [24, 1]"),
        (x.view([-1, 24]), "[b, 24] [24, 1]"),
        (x.reshape([-1i64]), "[24 * b] [1]"),
        (x.flatten(1, 2), "[b, 24] [24, 1]"),
        (x.unflatten(1, [2, -1]), "[b, 2, 3, 4] [24, 12, 4, 1]"),
        (x.transpose(0, 1), "[6, b, 4] [4, 24, 1]"),
        (x.select(1, -1), "[b, 4] [24, 1]"),
        (x.slice(1, 2..5), "[b, 3, 4] [24, 4, 1]"),
        (x.slice(0, ..), "[b, 6, 4] [24, 4, 1]"),
        (x.slice(0, ..1), "[1, 6, 4] [24, 4, 1]"),
        (x.slice(0, 1..), "[b - 1, 6, 4] [24, 4, 1]"),
        (x.unsqueeze(0), "[1, b, 6, 4] [24 * b, 24, 4, 1]"),
        (x.expand([2.into(), b, 6.into(), 4.into()]), "[2, b, 6, 4] [0, 24, 4, 1]"),
        (x.unfold(1, 2, 2), "[b, 3, 4, 2] [24, 8, 1, 4]"),
        (x.permute([2, 0, 1]).contiguous(), "[4, b, 6] [6 * b, 6, 1]"),
        (x.repeat([2, 1, 1]), "[2 * b, 6, 4] [24, 4, 1]"),
        (Tensor::cat([&x, &x], 0), "[2 * b, 6, 4] [24, 4, 1]"),
        (x.matmul(&Tensor::fake([4, 5], DType::F32)), "[b, 6, 5] [30, 5, 1]"),
        (
            x.linear(&Tensor::fake([5, 4], DType::F32), Some(&Tensor::fake([5], DType::F32))),
            "[b, 6, 5] [30, 5, 1]",
        ),
        (x.bmm(&x.transpose(1, 2)), "[b, 6, 6] [36, 6, 1]"),
        (x.layer_norm([4], None, None, 1e-5), "[b, 6, 4] [24, 4, 1]"),
        (x.conv1d(&Tensor::fake([3, 6, 2], DType::F32), None, 1, 0, 1, 1), "[b, 3, 3] [9, 3, 1]"),
    ] {
        assert_eq!(shape(&y), expected);
    }
    assert_eq!(guards(&scope), Vec::<String>::new());
}

#[test]
fn branches_on_sizes_become_guards() {
    let scope = Scope::new();
    let b = batch(&scope);
    let x = Tensor::fake([b, 6.into()], DType::F32);
    assert_eq!(x.chunk(2, 0).expect("two parts").len(), 2);
    assert!(!guards(&scope).is_empty());
    let y = Tensor::fake([4, 6], DType::F32);
    assert_eq!(shape(&Tensor::cat([&x, &y], 1)), "[b, 12] [12, 1]");
    assert!(guards(&scope).contains(&"b == 4".to_owned()), "{:?}", guards(&scope));
}

fn call(scope: &Scope, op: &str, args: Args) -> Tensor {
    let out = fake::call(Op::find(op).expect("an operator"), &args, Some(scope), Loc::caller())
        .expect("the fake rule succeeds");
    out[0].tensor().expect("a tensor").clone()
}

#[test]
fn data_dependent_sizes_are_fresh_symbols() {
    let scope = Scope::new();
    let x = Tensor::fake([3, 4], DType::F32);
    let nz = call(&scope, "aten::nonzero", args![&x]);
    assert_eq!(shape(&nz), "[u0, 2] [1, max(1, u0)]");
    let u0 = nz.size(0);
    assert_eq!(u0.range(), Range::new(0, 12));
    let mask = Tensor::fake([3], DType::Bool);
    let rows = call(&scope, "aten::index.Tensor", args![&x, vec![mask.clone()]]);
    assert_eq!(shape(&rows), "[u1, 4] [4, 1]");
    assert_eq!(
        shape(&call(&scope, "aten::masked_select", args![&x, Tensor::fake([4], DType::Bool)])),
        "[u2] [1]"
    );
    // what needs a relation between unknown sizes asserts it
    assert_eq!(
        shape(&call(&scope, "aten::view", args![&rows, [2i64, -1]])),
        "[2, 2 * u1] [max(1, 2 * u1), 1]"
    );
    assert!(assertions(&scope).is_empty(), "{:?}", assertions(&scope));
    let first = call(&scope, "aten::narrow", args![&nz, 0i64, 0i64, 2i64]);
    assert_eq!(first.size(0).as_i64(), Some(2));
    assert_eq!(assertions(&scope), ["u0 >= 2"]);
    assert!(guards(&scope).is_empty());
}

#[test]
fn contradictions_name_the_assertion_about_data() {
    let scope = Scope::new();
    let b = scope.backed(Some("b"), Range::new(0, 64), 4).expect("a fresh symbol");
    let loc = Loc { file: "model.rs", line: 7 };
    let n = scope.unbacked(Range::SIZE, "mylib::count", loc);
    (n * 4).eq(b + 4).check("as many as there are rows").expect("may be");
    n.ne(2).check("not two").expect("may be");
    n.le(2).check("").expect("may be");
    let x = Tensor::fake([b], DType::F32);
    // of four rows, of which the example has as many, it would be true
    let e = x.narrow(0, 3, 0).ok().expect_err("contradicts").to_string();
    for part in ["b >= 3", "u0 != 2", "not two", "as many as there are rows", "symbolic.rs:"] {
        assert!(e.contains(part), "{part}: {e}");
    }
    // what the example does not have is refused as ever
    let e = x.narrow(0, 5, 0).ok().expect_err("too far").to_string();
    assert!(e.contains("start 5 and length 0 exceed dimension 0 of size b"), "{e}");
}

#[test]
fn the_dimension_of_a_cross_product_is_found_by_guards() {
    let scope = Scope::new();
    let (b, n) =
        (batch(&scope), scope.backed(Some("n"), Range::new(0, 64), 3).expect("a fresh symbol"));
    let x = Tensor::fake([b, n, 3.into()], DType::F32);
    let out = call(&scope, "aten::cross", args![&x, &x, ()]);
    out.ok().expect("a dimension of size 3");
    assert_eq!(guards(&scope), ["b != 3", "n == 3"]);
}

/// Of one element there is no sum, which would have another dtype.
#[test]
fn a_size_that_is_summed_away_is_not_one() {
    let scope = Scope::new();
    let b = batch(&scope);
    let y = Tensor::fake([b, 3.into()], DType::Bool).sum_to_size([1, 3]);
    assert_eq!((y.dtype(), shape(&y).as_str()), (DType::I64, "[1, 3] [3, 1]"));
    assert_eq!(guards(&scope), ["b != 1"]);
    let y = Tensor::fake([1, 3], DType::Bool).sum_to_size([1, 3]);
    assert_eq!(y.dtype(), DType::Bool);
}
