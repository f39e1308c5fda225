//! Marks on sizes.

use super::*;
use maquette_trace::Dim;

#[test]
fn a_range_is_kept() {
    let n = Dim::new("n").min(2).max(8);
    let f = CompileOptions::new().dynamic(0, 0, n).names(["x"]).compile(|x: Tensor| x.relu());
    assert_eq!(counts(&f, [2, 8, 5], arange), [1, 1, 1]);
    insta::assert_snapshot!(text(&err(f.call(arange(9)))), @"");
}

#[test]
fn dimensions_of_one_name_are_equal() {
    let options =
        CompileOptions::new().dynamic(0, 0, Dim::new("n")).dynamic(1, 0, Dim::new("n"));
    let f = options.compile(|(x, y): (Tensor, Tensor)| x + y);
    assert_eq!(counts(&f, [2, 8, 1], |n| (arange(n), arange(n))), [1, 1, 1]);
    insta::assert_snapshot!(text(&err(f.call((arange(2), arange(1))))), @"");
}

#[test]
fn a_dynamic_size_that_the_program_requires() {
    let f = CompileOptions::new().dynamic(0, 0, Dim::new("n")).names(["x"]).compile(
        |x: Tensor| -> Result<Tensor> {
            let n = x.size(0).guard_int()?;
            Ok(x * n as f64)
        },
    );
    insta::assert_snapshot!(text(&err(f.call(arange(4)))), @"");
}

#[test]
fn a_declared_range_that_the_program_restricts() {
    let f = CompileOptions::new().dynamic(0, 0, Dim::new("n").max(100)).names(["x"]).compile(
        |x: Tensor| -> Result<Tensor> {
            Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x })
        },
    );
    insta::assert_snapshot!(text(&err(f.call(arange(7)))), @"");
}

#[test]
fn an_unbacked_size_is_never_decided() {
    let f = CompileOptions::new().unbacked(0, 0).compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [4, 5, 1, 0, 6], arange), [1, 1, 1, 1, 1]);
    for n in [4, 1, 0] {
        same(|x: Tensor| x.relu() + 1.0, &f, || arange(n));
    }
    let f = CompileOptions::new().unbacked(0, 0).names(["x"]).compile(
        |x: Tensor| -> Result<Tensor> {
            Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x })
        },
    );
    insta::assert_snapshot!(text(&err(f.call(arange(7)))), @"");
}

#[test]
fn an_unbacked_size_is_asserted() {
    let options = CompileOptions::new().unbacked(0, 0).names(["x", "y"]);
    let f = options.compile(|(x, y): (Tensor, Tensor)| x + y);
    assert_eq!(f.call((arange(3), arange(3))).unwrap().sizes_i64().unwrap(), [3]);
    insta::assert_snapshot!(text(&err(f.call((arange(2), arange(3))))), @"");
    assert_eq!(f.compilations(), 1);
}

#[test]
fn marks_that_do_not_fit() {
    let f = |options: CompileOptions| text(&err(options.compile(|x: Tensor| x).call(arange(2))));
    let new = CompileOptions::new;
    let texts = [
        f(new().static_(0, 1)),
        f(new().static_(1, 0)),
        f(new().static_(0, 0).dynamic(0, 0, Dim::new("n"))),
        f(new().static_(0, 0).unbacked(0, 0)),
        f(new().dynamic(0, 3, Dim::new("n"))),
        f(new().unbacked(2, 0)),
        f(new().unbacked(0, 0).dynamic(0, 0, Dim::new("n"))),
    ];
    insta::assert_snapshot!(texts.join("\n"), @"");
}
