//! Graphs made functional, and composites decomposed.

use super::{maquette, maquette_reading, text};

#[test]
fn a_graph_becomes_functional() {
    let program = "graph graph(%x: f32[4]) -> (f32[2])
{
  %slice: f32[2] = aten::slice.Tensor(%x, 0, 0, 2)
  %mul_: f32[2] = aten::mul_.Tensor(%slice, 10.0)
  return %mul_
}";
    let out = maquette_reading(&["functionalize", "-", "--explain"], program);
    assert!(out.status.success(), "{}", text(&out.stderr));
    insta::assert_snapshot!(text(&out.stdout));
    let lifted = maquette_reading(&["functionalize", "-", "--level", "lift-only"], program);
    assert!(
        text(&lifted.stdout).contains("ir::call(\"aten::mul_.Tensor\""),
        "{}",
        text(&lifted.stdout)
    );
    let overlapping = "graph graph(%x: f32[4]) -> ()
{
  %as_strided: f32[2] strides [0] = aten::as_strided(%x, [2], [0])
  %mul_: f32[2] strides [0] = aten::mul_.Tensor(%as_strided, 10.0)
  return ()
}";
    let refused = maquette_reading(&["functionalize", "-"], overlapping);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("overlaps itself"),
        "{}",
        text(&refused.stderr)
    );
    let no_view = "graph graph(%x: f32[4, 3]) -> (f32[12])
{
  %t: f32[3, 4] strides [1, 3] = aten::t(%x)
  %reshape: f32[12] = aten::reshape(%t, [12])
  return %reshape
}";
    let refused = maquette_reading(&["functionalize", "-"], no_view);
    assert!(
        !refused.status.success()
            && text(&refused.stderr).contains("aten::reshape must copy (no view"),
        "{}",
        text(&refused.stderr)
    );
    let storage = "graph graph(%x: f32[4, 3], %y: f32[2]) -> (f32[3, 4] strides [1, 3])
{
  %t: f32[3, 4] strides [1, 3] = aten::t(%x)
  %scatter: f32[3, 4] strides [1, 3] = aten::as_strided_scatter(%t, %y, [2], [1], 0)
  return %scatter
}";
    let refused = maquette_reading(&["functionalize", "-"], storage);
    let expected = "<stdin>:4:3: aten::as_strided_scatter reads its argument's storage beyond the \
        argument's elements; write to an `as_strided` view, or copy it, instead";
    assert!(
        !refused.status.success() && text(&refused.stderr).contains(expected),
        "{}",
        text(&refused.stderr)
    );
    let copied = maquette_reading(
        &["functionalize", "-"],
        &no_view.replace("[12])\n  return", "[12]) copy\n  return"),
    );
    assert!(copied.status.success(), "{}", text(&copied.stderr));
}

#[test]
fn rewriting_stops_where_asked() {
    let program = "graph graph(%x: f32[4]) -> (f32[4])
{
  %neg: f32[4] = aten::neg(%x)
  %twice: f32[4] = aten::neg(%neg)
  %exp: f32[4] = aten::exp(%twice)
  %mul_: f32[4] = aten::mul_.Tensor(%exp, 10.0)
  %mul: f32[4] = aten::mul.Tensor(%mul_, 1.0)
  return %mul
}";
    let explain = |args: &[&str]| {
        let out = maquette_reading(&[&["functionalize", "-"], args].concat(), program);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).to_owned()
    };
    let whole = explain(&[]);
    assert!(
        !whole.contains("stop reason") && !whole.contains("neg") && !whole.contains("ir::call"),
        "{whole}"
    );
    assert_eq!(explain(&["--level", "exact"]), whole);
    let explained = explain(&["--explain"]);
    assert!(
        explained.starts_with(&whole)
            && explained.contains("\nstop reason: saturated\nplan graph\n"),
        "{explained}"
    );
    // three rules, each once, in the order of the program
    let all = [
        "1 x involution-or-idempotent: neg neg x",
        "1 x functional-variant: op_(x, …)",
        "1 x identity-operand: x * 1",
    ];
    for n in 0..=all.len() {
        let stopped = explain(&["--stop-at", &n.to_string(), "--explain"]);
        for (rule, uses) in all.iter().enumerate() {
            assert_eq!(stopped.contains(&format!("\n{uses}")), rule < n, "after {n}: {stopped}");
        }
        assert_eq!(
            stopped.contains("stop reason: step limit"),
            n < all.len(),
            "after {n}: {stopped}"
        );
        assert_eq!(
            [stopped.contains("aten::neg("), stopped.contains("ir::call(")],
            [n < 1, n < 2],
            "after {n}: {stopped}"
        );
    }
    assert_eq!(explain(&["--stop-at", "3"]), whole);
    let lifted = explain(&["--level", "lift-only", "--explain"]);
    assert!(
        lifted.contains("ir::call(") && lifted.contains("stop reason: lifting only"),
        "{lifted}"
    );
    for (wrong, expected) in [
        (
            &["--level", "most"][..],
            "invalid value 'most' for '--level <LEVEL>'\n  [possible values: lift-only, exact]",
        ),
        (&["--stop-at", "few"], "invalid value 'few' for '--stop-at <N>'"),
        (&["--stop-at=-1"], "invalid value '-1' for '--stop-at <N>'"),
        (&["--stop-at"], "a value is required for '--stop-at <N>'"),
        (&["--explain=much"], "unexpected value 'much' for '--explain'"),
    ] {
        let out = maquette(&[&["functionalize", "-"], wrong].concat());
        assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{wrong:?}");
        assert!(text(&out.stderr).contains(expected), "{wrong:?}: {}", text(&out.stderr));
    }
}

#[test]
fn composites_that_stay_are_told() {
    let program = "graph g(%x: f32[n, m] strides [1, n], %w: f32[4, m]) -> (f32[m*n], f32[n, 4])
  where n in [0, oo), m in [0, oo)
{
  %y: f32[m*n] = aten::reshape(%x, [m*n])
  %z: f32[n, 4] = aten::linear(%x, %w)
  return %y, %z
}";
    let out = maquette_reading(&["decompose", "-"], program);
    let (shown, told) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success() && shown.contains("aten::mm(") && !shown.contains("linear("));
    assert!(told.starts_with("note: `aten::reshape` stays: the sizes do not decide"), "{told}");
}
