//! Fusion keeps the order of all that can be told apart: random numbers, errors, and what a failed
//! run has written. A region that cannot be fused leaves the others alone.

mod common;

use common::planned;
use maquette_aten as _;
use maquette_invoke::SourceInfo;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{FakeCtx, Result, Tensor, Value, custom_op};
use maquette_runtime::Executable;

/// Results, or the first line of the error; inputs afterwards; the state of the random numbers
/// afterwards. Elements are bits.
type Outcome = (std::result::Result<Vec<Vec<u32>>, String>, Vec<Vec<u32>>, Philox);

/// Runs a program with and without fusion on equal inputs and random numbers. Both have the same
/// outcome. Returns the fused executable.
#[track_caller]
fn same(text: &str, inputs: &dyn Fn() -> Vec<Value>) -> (Executable, Outcome) {
    let mode = planned(text);
    let fused = common::fused(&mode);
    let bits = |v: &Value| -> Vec<u32> {
        let t = v.tensor().unwrap().to_dtype(maquette_ir::DType::F32);
        t.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    };
    let outcome = |executable: &Executable| -> Outcome {
        let given = inputs();
        // tests run beside each other: each run has a private sequence
        let mut random = Philox { seed: 5, offset: 0 };
        let results = apart(&mut random, || executable.run(&given, &SourceInfo::of_caller()));
        let results = results.map(|all| all.iter().map(bits).collect());
        let line = |e: maquette_ops::Error| e.to_string().lines().next().unwrap().to_owned();
        (results.map_err(line), given.iter().map(bits).collect(), random)
    };
    let found = outcome(&fused);
    assert_eq!(found, outcome(&Executable::new(mode).unwrap()));
    assert_eq!(fused.unfused_instances(), 0);
    (fused, found)
}

fn ramp(sizes: &[i64]) -> Value {
    let n: i64 = sizes.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    Value::Tensor(Tensor::from_vec(data, sizes.to_vec()))
}

fn ints(data: &[i64]) -> Value {
    Value::Tensor(Tensor::from_vec(data.to_vec(), vec![data.len() as i64]))
}

#[test]
fn random_numbers_are_drawn_in_order() {
    let (_, (results, ..)) = same(
        "graph g(%x: f32[64], %w: f32[8]) -> (f32[64], f32[8]) {
            %a: f32[64] = aten::gelu(%x)
            %m: f32[64] = aten::bernoulli.p(%a, 0.5)
            %d: f32[64] = aten::mul.Tensor(%a, %m)
            %n: f32[8] = aten::bernoulli.p(%w, 0.5)
            %e: f32[8] = aten::mul.Tensor(%w, %n)
            %r: f32[64] = aten::add.Tensor(%a, %x)
            %s: f32[64] = aten::add.Tensor(%r, %d)
            return %s, %e
        }",
        &|| vec![ramp(&[64]), ramp(&[8])],
    );
    assert!(results.is_ok());
}

#[test]
fn the_first_error_is_reported() {
    let (_, (results, ..)) = same(
        "graph g(%x: i64[8], %z: i64[8], %i: i64[2], %w: f32[4]) -> (i64[8], i64[8], f32[2]) {
            %a: i64[8] = aten::mul.Tensor(%x, %x)
            %r: i64[8] = aten::remainder.Tensor(%a, %z)
            %q: f32[2] = aten::index_select(%w, 0, %i)
            %b: i64[8] = aten::add.Tensor(%a, %x)
            return %r, %b, %q
        }",
        &|| vec![ints(&[3; 8]), ints(&[0; 8]), ints(&[77, 99]), ramp(&[4])],
    );
    insta::assert_snapshot!(results.unwrap_err(), @"aten::remainder.Tensor: integer division by zero");
}

#[test]
fn custom_operators_fail_in_order() {
    for name in ["order::first", "order::second"] {
        let fail = move |_: &Tensor| -> Result<Tensor> {
            Err(maquette_ops::Error::msg(format!("{name} fails")))
        };
        let op = custom_op(name).arg_names(["x"]).kernel(fail).register().unwrap();
        let fake =
            |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.new_empty(x.sizes(), x.dtype())) };
        op.register_fake(fake).unwrap();
    }
    let (_, (results, ..)) = same(
        "graph g(%x: f32[64], %w: f32[8]) -> (f32[64], f32[64], f32[8]) {
            %a: f32[64] = aten::exp(%x)
            %r: f32[64] = order::first(%a)
            %q: f32[8] = order::second(%w)
            %b: f32[64] = aten::add.Tensor(%a, %x)
            return %r, %b, %q
        }",
        &|| vec![ramp(&[64]), ramp(&[8])],
    );
    insta::assert_snapshot!(results.unwrap_err(), @"order::first: order::first fails");
}

#[test]
fn what_was_written_before_an_error_stays() {
    let (_, (results, inputs, _)) = same(
        "graph g(%x: f32[8], %y: f32[8], %i: i64[2]) -> (f32[8], f32[2]) {
            %a: f32[8] = aten::exp(%y)
            %w: f32[8] = aten::copy_(%x, %a)
            %q: f32[2] = aten::index_select(%y, 0, %i)
            %b: f32[8] = aten::add.Tensor(%a, %y)
            return %b, %q
        }",
        &|| vec![ramp(&[8]), ramp(&[8]), ints(&[77, 99])],
    );
    assert!(results.is_err());
    assert_ne!(inputs[0], inputs[1], "the first input was written");
}

#[test]
fn regions_on_a_cycle_leave_the_others_alone() {
    // `%p` and `%q` need `%n`, and `%n` and `%m` need `%p`.
    let (executable, _) = same(
        "graph g(%x: f32[5, 64], %y: f32[64]) -> (f32[5, 64], f32[64]) {
            %p: f32[5, 64] = aten::exp(%x)
            %g: f32[64] = aten::sum.dim_IntList(%p, [0])
            %n: f32[64] = aten::neg(%y)
            %q: f32[5, 64] = aten::add.Tensor(%p, %n)
            %m: f32[64] = aten::mul.Tensor(%n, %g)
            return %q, %m
        }",
        &|| vec![ramp(&[5, 64]), ramp(&[64])],
    );
    assert_eq!(executable.fused().unwrap().regions.len(), 1);
}

#[test]
fn a_region_that_would_copy_leaves_the_others_alone() {
    let (executable, _) = same(
        "graph g(%x: f32[6, 6], %w: f32[6, 6], %z: f32[40]) -> (f32[40]) {
            %p: f32[6, 6] = aten::mm(%w, %w)
            %c: f32[6, 6] = aten::gelu(%p)
            %v: f32[6, 6] = aten::add_.Tensor(%x, %c)
            %a: f32[40] = aten::exp(%z)
            %b: f32[40] = aten::tanh(%a)
            return %b
        }",
        &|| vec![ramp(&[6, 6]), ramp(&[6, 6]), ramp(&[40])],
    );
    assert!(executable.fused().is_some());
}

#[test]
fn a_region_that_waits_for_another_one_still_fails_first() {
    // `%m` needs `%r`, which one kernel computes with `%q` and `%n`.
    let (_, (results, ..)) = same(
        "graph g(%x: f32[3, 10], %i: i64[3, 4], %y: f32[4], %z: f32[10], %j: i64[4]) \
            -> (f32[3, 4], f32[4]) {
            %p: f32[3, 4] = aten::gather(%x, 1, %i)
            %r: f32[4] = aten::exp(%y)
            %m: f32[3, 4] = aten::mul.Tensor(%p, %r)
            %q: f32[4] = aten::gather(%z, 0, %j)
            %n: f32[4] = aten::mul.Tensor(%q, %r)
            return %m, %n
        }",
        &|| {
            let out_of_range = Tensor::from_vec(vec![99i64; 12], vec![3, 4]);
            vec![
                ramp(&[3, 10]),
                Value::Tensor(out_of_range),
                ramp(&[4]),
                ramp(&[10]),
                ints(&[77; 4]),
            ]
        },
    );
    insta::assert_snapshot!(
        results.unwrap_err(),
        @"aten::gather: index 99 is out of bounds for dimension 1 with size 10"
    );
}

/// `count` blocks in which two regions need each other, one block behind the other, and behind each
/// `behind` regions that need none.
fn cycles(count: usize, behind: usize) -> String {
    let mut text = String::from("graph g(%y: f32[3, 4], %u: f32[4]) -> (f32[3, 4], f32[4]) {\n");
    let (mut y, mut u) = ("y".to_owned(), "u".to_owned());
    for i in 0..count {
        text += &format!(
            "%p{i}: f32[3, 4] = aten::sin(%{y})
            %x{i}: f32[4] = aten::sum.dim_IntList(%p{i}, [0])
            %u{i}: f32[4] = aten::cos(%{u})
            %q{i}: f32[3, 4] = aten::mul.Tensor(%p{i}, %u{i})
            %v{i}: f32[4] = aten::add.Tensor(%u{i}, %x{i})\n"
        );
        (y, u) = (format!("q{i}"), format!("v{i}"));
        for k in 0..behind {
            text += &format!(
                "%s{i}_{k}: f32[3, 4] = aten::sin(%{y})
                %m{i}_{k}: f32[3, 4] = aten::neg(%s{i}_{k})
                %c{i}_{k}: f32[3, 4] = aten::cumsum(%m{i}_{k}, 0)\n"
            );
            y = format!("c{i}_{k}");
        }
    }
    text + &format!("return %{y}, %{u}\n}}")
}

#[test]
fn each_cycle_gives_up_one_region() {
    for (count, behind) in [(1, 5), (7, 0)] {
        let (executable, _) = same(&cycles(count, behind), &|| vec![ramp(&[3, 4]), ramp(&[4])]);
        let fused = executable.fused().unwrap();
        assert_eq!(fused.regions.len(), count * (1 + behind), "{count} cycles, {behind} behind");
    }
}
