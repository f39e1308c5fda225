//! The pool under many callers, nested calls and panics; and every kernel's bits under pools of
//! every size.

use super::*;
use crate::*;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, ScalarExpr, UnaryOp};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

/// The number of times each index below `n` runs, with jobs nested to `depth`.
fn visits(n: usize, depth: usize) -> Vec<usize> {
    let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
    try_for(n, true, &|i| {
        if depth > 0 {
            assert!(visits(5, depth - 1).iter().all(|v| *v == 1));
        }
        seen[i].fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .expect("no task fails");
    seen.into_iter().map(AtomicUsize::into_inner).collect()
}

/// The panic message of a job in which the tasks selected by `panics` panic.
fn panic_of(n: usize, panics: impl Fn(usize) -> bool + Sync) -> Option<String> {
    let job = || {
        try_for(n, true, &|i| {
            if panics(i) {
                resume_unwind(Box::new(format!("task {i}")));
            }
            // long enough for workers to take part
            thread::sleep(Duration::from_micros(50));
            Ok(())
        })
    };
    let ended = catch_unwind(AssertUnwindSafe(job));
    assert!(!IN_JOB.get(), "a thread whose job ended is in no job");
    ended.err().and_then(|payload| payload.downcast::<String>().ok()).map(|text| *text)
}

#[test]
fn each_index_once_from_many_threads() {
    thread::scope(|s| {
        for t in 0..8usize {
            s.spawn(move || {
                for round in 0..60 {
                    let n = 1 + (t * 7 + round) % 40;
                    assert!(visits(n, round % 3).iter().all(|v| *v == 1), "{t} {round}");
                    if round % 16 == t {
                        // longer than a worker spins
                        thread::sleep(SPIN * 3);
                    }
                }
            });
        }
    });
}

#[test]
fn the_error_of_the_lowest_index_is_returned() {
    for lowest in [0usize, 1, 17, 63] {
        let fails = |i: usize| {
            if i >= lowest {
                Err(KernelError::Dim { kernel: "test", dim: i, rank: 0 })
            } else {
                Ok(())
            }
        };
        for _ in 0..20 {
            assert_eq!(try_for(64, true, &fails), fails(lowest));
        }
    }
    assert_eq!(try_for(0, true, &|_| Err(KernelError::DivisionByZero)), Ok(()));
}

#[test]
fn panics_reach_only_the_caller() {
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for round in 0..30 {
                    let at = round % 12;
                    assert_eq!(panic_of(12, |i| i == at), Some(format!("task {at}")));
                    assert!(panic_of(12, |_| true).is_some());
                    assert_eq!(panic_of(12, |_| false), None);
                    assert!(visits(30, 1).iter().all(|v| *v == 1));
                }
            });
        }
    });
    // in a task of a job: the inner call's panic is that task's
    let nested = catch_unwind(|| {
        try_for(4, true, &|i| {
            try_for(4, true, &|j| {
                if i == 2 && j == 2 { resume_unwind(Box::new(7)) } else { Ok(()) }
            })
        })
    });
    assert_eq!(nested.expect_err("panics").downcast_ref::<i32>(), Some(&7));
    assert_eq!(map(100, |i| i * i), (0..100).map(|i| i * i).collect::<Vec<_>>());
}

#[test]
fn budgets_are_the_least_of_all_and_end() {
    let all = num_threads();
    let inner = with_num_threads(2, || {
        let (more, less) = (with_num_threads(9, num_threads), with_num_threads(0, num_threads));
        let panics = catch_unwind(|| with_num_threads(1, || resume_unwind(Box::new(0))));
        assert!(panics.is_err() && num_threads() == all.min(2));
        (more, less)
    });
    assert_eq!((inner, num_threads()), ((all.min(2), 1), all));
}

/// The most tasks of a job that ran at one time.
fn most_at_once(n: usize) -> usize {
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let job = try_for(n, true, &|_| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // long enough for workers to take part
        thread::sleep(Duration::from_micros(200));
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    assert_eq!(job, Ok(()));
    most.into_inner()
}

#[test]
fn a_job_uses_no_more_threads_than_its_budget() {
    for _ in 0..10 {
        // workers of larger jobs still spin
        most_at_once(40);
        for budget in [1, 2, 3, 5] {
            let most = with_num_threads(budget, || most_at_once(40));
            assert!(most <= budget, "{most} threads, {budget} are allowed");
        }
    }
}

/// With as many callers as the pool has threads, all of them inside, no worker takes part.
#[test]
fn workers_give_way_to_callers() {
    let callers = POOL.threads.max(2);
    let (begin, end) = (std::sync::Barrier::new(callers), std::sync::Barrier::new(callers));
    thread::scope(|s| {
        for _ in 0..callers {
            s.spawn(|| {
                occupying_a_core(|| {
                    begin.wait();
                    let caller = thread::current().id();
                    for _ in 0..20 {
                        let here = |_| {
                            assert_eq!(thread::current().id(), caller);
                            Ok(())
                        };
                        assert_eq!(try_for(16, true, &here), Ok(()));
                    }
                    end.wait();
                });
            });
        }
    });
}

/// Two callers with a budget of one are inside a task at the same time: neither waits for the
/// other.
#[test]
fn callers_with_a_budget_of_one_do_not_wait() {
    let both = std::sync::Barrier::new(2);
    let job = || {
        with_num_threads(1, || {
            try_for(4, true, &|_| {
                both.wait();
                Ok(())
            })
        })
    };
    thread::scope(|s| {
        let other = s.spawn(job);
        assert_eq!((job(), other.join().expect("no panic")), (Ok(()), Ok(())));
    });
}

fn f32s(n: usize) -> Vec<f32> {
    // The factor makes all digits count, so that sums round.
    (0..n).map(|i| (((i * 7919 + 13) % 4099) as f32 / 512.0 - 4.0) * 0.731_058_6).collect()
}

fn view<'a>(x: &'a [f32], sizes: &[i64]) -> View<'a> {
    View::from_slice_sized(x, sizes).expect("fits")
}

/// A hash of the output of `f`.
fn digest(n: usize, sizes: &[i64], f: impl FnOnce(&mut ViewMut<'_>) -> Result<()>) -> u64 {
    let mut out = vec![f32::NAN; n];
    f(&mut ViewMut::from_slice_sized(&mut out, sizes).expect("fits")).expect("runs");
    let mut h = DefaultHasher::new();
    out.iter().for_each(|x| x.to_bits().hash(&mut h));
    h.finish()
}

/// Prints digests of kernel results, for [`bits_do_not_depend_on_threads_or_instruction_set`].
#[test]
#[ignore = "run by another test"]
fn digests() {
    let x = f32s(1 << 19);
    println!();
    let mut b = ExprBuilder::new();
    let (p, q) = (b.input(DType::F32), b.input(DType::F32));
    let e = b.unary(UnaryOp::Exp, p).expect("floats");
    let product = b.binary(BinaryOp::Mul, e, q).expect("floats");
    let expr: ScalarExpr = b.finish(&[product]).expect("an expression");
    let n = x.len() as i64;
    let said = |kernel: &str, bits: u64| println!("bits {kernel} {bits:x}");
    let (row, cut) = (view(&x, &[n]), view(&x[..300_001], &[300_001]));
    said(
        "pointwise",
        digest(x.len(), &[n], |o| {
            pointwise(&expr, &[row.clone(), row.clone()], &mut [o.reborrow()])
        }),
    );
    said(
        "prepared",
        digest(x.len(), &[n], |o| {
            ContiguousKernel::new(&expr)
                .expect("floats")
                .run(&[row.clone(), row.clone()], &mut [o.reborrow()])
                .map(drop)
        }),
    );
    said("sum", digest(1, &[], |o| reduce(ReduceOp::Sum, &row, &[0], o)));
    said("sum of an odd number", digest(1, &[], |o| reduce(ReduceOp::Sum, &cut, &[0], o)));
    said(
        "sum of few rows",
        digest(3, &[3], |o| reduce(ReduceOp::Sum, &view(&x[..300_000], &[3, 100_000]), &[1], o)),
    );
    said(
        "sum of columns",
        digest(16, &[16], |o| reduce(ReduceOp::Sum, &view(&x, &[n / 16, 16]), &[0], o)),
    );
    said(
        "sum of wide columns",
        digest(1024, &[1024], |o| reduce(ReduceOp::Sum, &view(&x, &[n / 1024, 1024]), &[0], o)),
    );
    let rows = view(&x[..210_000], &[300, 700]);
    said("sum of rows", digest(300, &[300], |o| reduce(ReduceOp::Sum, &rows, &[1], o)));
    said("cumsum", digest(210_000, &[300, 700], |o| scan(ScanOp::Sum, &rows, 1, o)));
    said("softmax", digest(210_000, &[300, 700], |o| softmax(&rows, 1, o)));
    said("log_softmax", digest(210_000, &[300, 700], |o| log_softmax(&rows, 0, o)));
    said(
        "layer_norm",
        digest(210_000, &[300, 700], |o| layer_norm(&rows, 1, 1e-5, LayerNorm::default(), o)),
    );
    let (narrow, few) = (view(&x[..90_000], &[300, 300]), view(&x[..9_000], &[30, 300]));
    said("product", digest(90_000, &[300, 300], |o| gemm(&narrow, &narrow, o, 1.0, 0.0)));
    said("product of few rows", digest(9_000, &[30, 300], |o| gemm(&few, &narrow, o, 1.0, 0.0)));
    let (long, turned) = (view(&x[..1 << 17], &[1, 1 << 17]), view(&x[..1 << 17], &[1 << 17, 1]));
    said("dot product", digest(1, &[1, 1], |o| gemm(&long, &turned, o, 1.0, 0.0)));
    let (long, wide) = (view(&x[..40_000], &[2, 20_000]), view(&x[..400_000], &[20_000, 20]));
    said("product of a long k", digest(40, &[2, 20], |o| gemm(&long, &wide, o, 1.0, 0.0)));
    let (tall, vector) = (view(&x[..300_000], &[1000, 300]), view(&x[..300], &[300, 1]));
    said("matrix times vector", digest(1000, &[1000, 1], |o| gemm(&tall, &vector, o, 1.0, 0.0)));
    let window = Window {
        kernel: vec![3, 3],
        stride: vec![1, 1],
        padding: vec![1, 1],
        dilation: vec![1, 1],
        ceil_mode: false,
    };
    let (image, kernel) =
        (view(&x[..2 * 16 * 48 * 48], &[2, 16, 48, 48]), view(&x[..40 * 16 * 9], &[40, 16, 3, 3]));
    said(
        "product of patches",
        digest(2 * 40 * 48 * 48, &[2, 40, 48, 48], |o| conv(&image, &kernel, None, &window, 1, o)),
    );
    let kernel = view(&x[..16 * 40 * 9], &[16, 40, 3, 3]);
    said(
        "transposed convolution",
        digest(2 * 40 * 48 * 48, &[2, 40, 48, 48], |o| {
            conv_transpose(&image, &kernel, None, &window, 1, o)
        }),
    );
    let kernel = view(&x[..40 * 8 * 9], &[40, 8, 3, 3]);
    let bias = view(&x[..40], &[40]);
    said(
        "convolution of groups",
        digest(2 * 40 * 48 * 48, &[2, 40, 48, 48], |o| {
            conv(&image, &kernel, Some(&bias), &window, 2, o)
        }),
    );
    let (image, kernel) =
        (view(&x[..6 * 80 * 80], &[1, 6, 80, 80]), view(&x[..6 * 9], &[6, 1, 3, 3]));
    said(
        "depthwise convolution",
        digest(6 * 80 * 80, &[1, 6, 80, 80], |o| conv(&image, &kernel, None, &window, 6, o)),
    );
    let q = view(&x[..4 * 200 * 32], &[4, 200, 32]);
    let options = || Attention { scale: 0.2, causal: true, ..Attention::default() };
    said("attention", digest(4 * 200 * 32, &[4, 200, 32], |o| attention(&q, &q, &q, options(), o)));
    let q = view(&x[..600 * 64], &[1, 600, 64]);
    let options = || Attention { scale: 0.2, ..Attention::default() };
    said(
        "wide attention",
        digest(600 * 64, &[1, 600, 64], |o| attention(&q, &q, &q, options(), o)),
    );
}

/// Prints the pool's size, for the test of invalid settings.
#[test]
#[ignore = "run by another test"]
fn size() {
    println!("\nthreads {}", num_threads());
}

/// The output lines with this prefix of a test that runs in a process with these environment
/// variables.
fn said_under(variables: &[(&str, &str)], test: &str, line: &str) -> Vec<String> {
    let mut run = Command::new(std::env::current_exe().expect("this test"));
    run.args([
        &format!("thread_pool::tests::{test}"),
        "--exact",
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    let out =
        run.env_remove("MAQUETTE_ISA").envs(variables.iter().copied()).output().expect("runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    text.lines().filter_map(|l| l.strip_prefix(line)).map(str::to_owned).collect()
}

fn digests_under(threads: &str, isa: &str) -> Vec<String> {
    let lines =
        said_under(&[("MAQUETTE_NUM_THREADS", threads), ("MAQUETTE_ISA", isa)], "digests", "bits ");
    assert_eq!(lines.len(), 23, "{lines:?}");
    lines
}

#[test]
fn bits_do_not_depend_on_threads_or_instruction_set() {
    let one = digests_under("1", "");
    for n in ["3", "61"] {
        assert_eq!(digests_under(n, ""), one, "{n} threads");
    }
    for isa in ["scalar", "avx2", "avx512"] {
        for n in ["1", "2", "4", "8"] {
            assert_eq!(digests_under(n, isa), one, "{isa}, {n} threads");
        }
    }
}

#[test]
fn invalid_thread_counts_mean_one_thread_per_core() {
    let size = |options: &str| said_under(&[("MAQUETTE_NUM_THREADS", options)], "size", "threads ");
    let cores = thread::available_parallelism().map_or(1, usize::from).min(1024);
    for odd in ["", "0", "-1", "two", "1.5", "99999999999999999999999"] {
        assert_eq!(size(odd), [cores.to_string()], "{odd:?}");
    }
    assert_eq!((size("3"), size("5000")), (vec!["3".to_owned()], vec!["1024".to_owned()]));
}

/// Runs the tests above in a process of its own, with more pool threads than cores.
#[test]
fn a_pool_of_many_threads() {
    for name in [
        "each_index_once_from_many_threads",
        "the_error_of_the_lowest_index_is_returned",
        "panics_reach_only_the_caller",
        "budgets_are_the_least_of_all_and_end",
        "a_job_uses_no_more_threads_than_its_budget",
        "workers_give_way_to_callers",
        "callers_with_a_budget_of_one_do_not_wait",
    ] {
        said_under(&[("MAQUETTE_NUM_THREADS", "13")], name, "");
    }
}
