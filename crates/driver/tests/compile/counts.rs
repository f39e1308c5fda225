//! How often functions are compiled. PyTorch 2.15 compiles as often, or more often where that is
//! said.

use super::*;
use maquette_ir::sym::SymInt;
use maquette_trace::Dim;

#[test]
fn a_size_that_changes_is_a_symbol() {
    // PyTorch: 1, 2, 2, 3, 4, 4, since it specializes 0 and 1
    let f = compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [4, 5, 6, 1, 0, 7], arange), [1, 2, 2, 2, 2, 2]);
    // from 1 and 0 as well
    let f = compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [1, 0, 1, 5, 0], arange), [1, 2, 2, 2, 2]);
}

#[test]
fn every_size_is_a_symbol() {
    // PyTorch: 1, 1, 2, 3, 3
    let f = CompileOptions::symbolic().compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [4, 5, 1, 0, 6], arange), [1, 1, 1, 1, 1]);
}

#[test]
fn no_size_is_a_symbol() {
    let f = CompileOptions::new().static_(0, 0).compile(|x: Tensor| x.relu() + 1.0);
    assert_eq!(counts(&f, [4, 5, 6, 4], arange), [1, 2, 3, 3]);
}

fn branch(x: Tensor) -> Result<Tensor> {
    Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x + 1.0 })
}

#[test]
fn a_branch_on_a_size() {
    let f = CompileOptions::symbolic().compile(branch);
    assert_eq!(counts(&f, [3, 5, 6, 4, 2], arange), [1, 2, 2, 2, 2]);
    let f = CompileOptions::new().dynamic(0, 0, Dim::new("n")).compile(branch);
    assert_eq!(counts(&f, [3, 5, 6, 4, 2], arange), [1, 2, 2, 2, 2]);
    // the first program is static
    let f = compile(branch);
    assert_eq!(counts(&f, [3, 5, 6, 4, 2, 3], arange), [1, 2, 2, 3, 3, 3]);
}

#[test]
fn metadata_that_differs() {
    let f = compile(|x: Tensor| &x + &x);
    let inputs = |i: i64| match i {
        0 => rows(3),
        1 => rows(3).to_dtype(DType::F64),
        2 => arange(9),
        3 => rows(3).t(),
        _ => rows(3).unsqueeze(0),
    };
    assert_eq!(counts(&f, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], inputs), [1, 2, 3, 4, 5, 5, 5, 5, 5, 5]);
}

#[test]
fn strides_that_address_nothing_do_not_matter() {
    let f = compile(|x: Tensor| x.relu());
    let inputs = |i: i64| match i {
        0 => arange(3).reshape([1, 3]),
        _ => rows(2).slice(0, 0..1),
    };
    assert_eq!(counts(&f, [0, 1, 1, 0], inputs), [1, 1, 1, 1]);
}

#[test]
fn an_integer_that_changes_is_a_symbol() {
    let f = compile(|(x, n): (Tensor, SymInt)| x.sum() + Tensor::ones([n], DType::F32));
    assert_eq!(counts(&f, [3, 4, 5, 0], |n| (arange(2), SymInt::from(n))), [1, 2, 2, 2]);
    // an `i64` is a number of the program
    let f = compile(|(x, n): (Tensor, i64)| x * n as f64);
    assert_eq!(counts(&f, [3, 4, 5, 4], |n| (arange(2), n)), [1, 2, 3, 3]);
}

#[test]
fn a_size_that_the_program_requires_stays_a_number() {
    let f = compile(|x: Tensor| -> Result<Tensor> {
        let n = x.size(0).guard_int()?;
        Ok(x * n as f64)
    });
    assert_eq!(counts(&f, [4, 5, 6, 5, 4], arange), [1, 2, 3, 3, 3]);
    assert!(f.explain().programs.iter().all(|p| p.ranges.is_empty()), "{}", f.explain());
}

#[test]
fn only_the_sizes_that_change_are_symbols() {
    let f = compile(|(x, y): (Tensor, Tensor)| x.relu() + y);
    let inputs = |(a, b)| (rows(a).slice(1, 0..b).contiguous(), arange(b));
    assert_eq!(
        counts(&f, [(2, 3), (4, 3), (5, 3), (5, 2), (2, 1), (7, 3)], inputs),
        [1, 2, 2, 3, 3, 3]
    );
    let ranges: Vec<usize> = f.explain().programs.iter().map(|p| p.ranges.len()).collect();
    assert_eq!(ranges, [0, 1, 3]);
}

#[test]
fn equal_sizes_that_come_apart_compile_again() {
    let f = compile(|(x, y): (Tensor, Tensor)| (x.relu(), y.relu()));
    let inputs = |(a, b)| (arange(a), arange(b));
    assert_eq!(counts(&f, [(3, 3), (4, 4), (4, 5), (6, 2)], inputs), [1, 2, 2, 2]);
}

#[test]
fn sizes_of_another_dtype_do_not_make_symbols() {
    let f = compile(|x: Tensor| x.relu());
    let inputs = |(n, dtype)| arange(n).to_dtype(dtype);
    let calls = [(4, DType::F32), (5, DType::F64), (6, DType::F64), (7, DType::F64)];
    assert_eq!(counts(&f, calls, inputs), [1, 2, 3, 3]);
}

#[test]
fn matching_compiles_nothing() {
    let f = compile(|x: Tensor| x.relu());
    assert!(!f.matches(&arange(3)).unwrap());
    f.call(arange(3)).unwrap();
    assert!(f.matches(&arange(3)).unwrap());
    assert!(!f.matches(&arange(4)).unwrap());
    assert_eq!(f.compilations(), 1);
    f.reset();
    assert!(!f.matches(&arange(3)).unwrap());
    f.call(arange(3)).unwrap();
    assert_eq!(f.compilations(), 2);
}

#[test]
fn layouts_of_every_kind() {
    let eager = |x: Tensor| (x.relu(), &x + 1.0, x.t(), x);
    let options = || CompileOptions::symbolic().recompile_limit(1000);
    let (f, g) = (options().compile(eager), options().static_(0, 0).compile(eager));
    for (m, n) in (0..16).map(|i| (i / 4, i % 4)) {
        for strides in [[n.max(1), 1], [1, m.max(1)], [4, 1], [8, 2], [1, 4], [7, 3], [n, 1]] {
            let inputs = || arange(64).as_strided([m, n], strides, None);
            same(eager, &f, inputs);
            same(eager, &g, inputs);
        }
    }
    // far fewer than layouts
    assert!(f.compilations() <= 40, "{}", f.compilations());
}

#[test]
fn strides_of_symbolic_sizes() {
    let f = CompileOptions::symbolic().names(["x"]).compile(|x: Tensor| x.relu());
    let inputs = |(n, layout): (i64, i64)| match layout {
        0 => rows(n),
        1 => rows(n).t(),
        _ => arange(8 * n).reshape([n, 8]).slice(1, 0..3),
    };
    let calls = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (1, 0), (1, 2), (0, 1), (0, 2)];
    assert_eq!(counts(&f, calls, inputs), [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]);
    f.set_stance(Stance::FailOnRecompile);
    let x = arange(30).as_strided([2i64, 3], [9i64, 2], None);
    insta::assert_snapshot!(text(&err(f.call(x))), @r"
    `graph` would be compiled again, which its stance `FailOnRecompile` forbids:
      - program 0 requires: `x` is row-major; found strides [9, 2]
      - program 1 requires: stride 0 of `x` is 1; found 9
      - program 2 requires: stride 0 of `x` is 8; found 9
      at counts.rs:LINE
    ");
}
