//! Marks on sizes.

use super::*;
use maquette_trace::Dim;

#[test]
fn a_range_is_kept() {
    let n = Dim::new("n").min(2).max(8);
    let f = CompileOptions::new().dynamic(0, 0, n).names(["x"]).compile(|x: Tensor| x.relu());
    assert_eq!(counts(&f, [2, 8, 5], arange), [1, 1, 1]);
    insta::assert_snapshot!(text(&err(f.call(arange(9)))), @r"
    input 0 has size 9 in dimension 0, outside the range [2, 8] of `n`
      at marks.rs:LINE
    ");
}

#[test]
fn dimensions_of_one_name_are_equal() {
    let options = CompileOptions::new().dynamic(0, 0, Dim::new("n")).dynamic(1, 0, Dim::new("n"));
    let f = options.compile(|(x, y): (Tensor, Tensor)| x + y);
    assert_eq!(counts(&f, [2, 8, 1], |n| (arange(n), arange(n))), [1, 1, 1]);
    insta::assert_snapshot!(text(&err(f.call((arange(2), arange(1))))), @r"
    `n` is dimension 0 of input 0, of size 2, and dimension 0 of input 1, of size 1; dimensions of one name must have equal sizes
      at marks.rs:LINE
    ");
}

#[test]
fn a_dynamic_size_that_the_program_requires() {
    let f = CompileOptions::new().dynamic(0, 0, Dim::new("n")).names(["x"]).compile(
        |x: Tensor| -> Result<Tensor> {
            let n = x.size(0).guard_int()?;
            Ok(x * n as f64)
        },
    );
    insta::assert_snapshot!(text(&err(f.call(arange(4)))), @r#"
    the program is not valid for every size that is declared dynamic:
      - `n` in [0, oo) (dimension 0 of `x`): the program assumes `n == 4`, at marks.rs:LINE
    suggested fixes:
      - remove `.dynamic(0, 0, Dim::new("n"))`: the program requires `n` to be 4
      at marks.rs:LINE
    "#);
}

#[test]
fn a_declared_range_that_the_program_restricts() {
    let f = CompileOptions::new().dynamic(0, 0, Dim::new("n").max(100)).names(["x"]).compile(
        |x: Tensor| -> Result<Tensor> { Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x }) },
    );
    insta::assert_snapshot!(text(&err(f.call(arange(7)))), @r#"
    the program is not valid for every size that is declared dynamic:
      - `n` in [0, 100] (dimension 0 of `x`): the program assumes `n > 4`, at marks.rs:LINE
    suggested fixes:
      - declare `.dynamic(0, 0, Dim::new("n").min(5).max(100))`
      at marks.rs:LINE
    "#);
}

#[test]
fn an_unbacked_size_is_never_decided() {
    let f = CompileOptions::new().unbacked(0, 0).compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [4, 5, 1, 0, 6], arange), [1, 1, 1, 1, 1]);
    for n in [4, 1, 0] {
        same(|x: Tensor| x.relu() + 1.0, &f, || arange(n));
    }
    let f =
        CompileOptions::new().unbacked(0, 0).names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
            Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x })
        });
    insta::assert_snapshot!(text(&err(f.call(arange(7)))), @r#"
    cannot branch on `s0 > 4` at marks.rs:LINE: s0 is the data-dependent size made by the declaration `.unbacked(0, 0)` at marks.rs:LINE, unknown while tracing; use .check("message") to assert what you know about it, or .statically_known() to ask without deciding
      at marks.rs:LINE
    "#);
}

#[test]
fn an_unbacked_size_is_asserted() {
    let options = CompileOptions::new().unbacked(0, 0).names(["x", "y"]);
    let f = options.compile(|(x, y): (Tensor, Tensor)| x + y);
    assert_eq!(f.call((arange(3), arange(3))).unwrap().sizes_i64().unwrap(), [3]);
    insta::assert_snapshot!(text(&err(f.call((arange(2), arange(3))))), @r#"
    assertion failed: sizes s0 and 3 of dimension 0 must be equal: a data-dependent size does not broadcast: `s0 == 3` does not hold: s0 = 2
      at marks.rs:LINE
    > assert s0 == 3 "sizes s0 and 3 of dimension 0 must be equal: a data-dependent size does not broadcast"
      %add: f32[3] = aten::add.Tensor(%x, %y)
    "#);
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
    insta::assert_snapshot!(texts.join("\n"), @r"
    `.static_(0, 1)` is dimension 1 of input 0, which has 1 dimensions
      at marks.rs:LINE
    `.static_(1, 0)` refers to input 1, but there are 1 inputs
      at marks.rs:LINE
    dimension 0 of input 0 is declared both static and dynamic
      at marks.rs:LINE
    dimension 0 of input 0 is declared both static and unbacked
      at marks.rs:LINE
    dynamic dimension `n` is dimension 3 of input 0, which has 1 dimensions
      at marks.rs:LINE
    an unbacked dimension refers to input 2, but there are 1 inputs
      at marks.rs:LINE
    dimension 0 of input 0 is declared twice
      at marks.rs:LINE
    ");
}
