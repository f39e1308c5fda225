//! Borrows and the registry under threads: no lost borrow, no lost registration, no torn data.
//! Rounds are bounded.

use maquette_aten as _;
use maquette_ir::Loc;
use maquette_ops::{
    Access, AccessError, ErrorKind, Result, RunBorrow, RunInput, RunTensor, Tensor, Value, args,
    custom_op, library,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

const THREADS: usize = 8;
const ROUNDS: usize = 500;

/// Writers fill the tensor with one number each; a reader that got in must see a single number.
#[test]
fn readers_never_see_half_a_write() {
    let x = Tensor::from(vec![0i64; 256]);
    let barrier = Arc::new(Barrier::new(THREADS));
    let (done, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|s| {
        for id in 0..THREADS {
            let (mut x, barrier, done, refused) =
                (x.clone(), barrier.clone(), done.clone(), refused.clone());
            s.spawn(move || {
                barrier.wait();
                for round in 0..ROUNDS {
                    let outcome = if id % 2 == 0 {
                        x.write::<i64>().map(|mut w| w.fill((id * ROUNDS + round) as i64))
                    } else {
                        x.read::<i64>()
                            .map(|r| assert!(r.iter().all(|v| *v == r[0]), "a torn read"))
                    };
                    match outcome {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(e) => {
                            assert!(
                                matches!(e.kind(), ErrorKind::Access(AccessError::Conflict { .. })),
                                "{e}"
                            );
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), THREADS * ROUNDS);
    assert!(done.load(Ordering::Relaxed) > 0);
    let mut x = x;
    assert!(x.write::<i64>().is_ok(), "every borrow was given back");
}

/// Each run borrows two overlapping tensors at once, one for writing and one for reading. Several
/// calls then update the first from the second. Admitted runs are atomic, and a refused run leaves
/// no trace.
#[test]
fn runs_of_shared_tensors_are_whole_or_refused() {
    let x = Tensor::from(vec![0i64; 64]);
    let (barrier, done) = (Barrier::new(THREADS), AtomicUsize::new(0));
    let run = || -> Result<()> {
        let (mut all, mut head) = (x.clone(), x.slice(0, 0..8));
        let tensor = |tensor, access, name: &str| {
            let input = RunInput { role: "input", name: name.into(), loc: Loc::caller() };
            RunTensor { tensor, access, input: input.into() }
        };
        let mut inputs =
            vec![tensor(&mut all, Access::Write, "all"), tensor(&mut head, Access::Read, "head")];
        let mut borrow = RunBorrow::default();
        borrow.take(&mut inputs)?;
        let before = head.slice(0, 0..1) + 1;
        all.zero_();
        all.add_(&before).ok()?;
        let mut result = Value::Tensor(all.slice(0, 8..16));
        borrow.restore(&mut result);
        drop(borrow);
        assert!(result.tensor()?.shares_storage(&x));
        Ok(())
    };
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                barrier.wait();
                for _ in 0..ROUNDS {
                    match run() {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(e) => assert!(
                            matches!(e.kind(), ErrorKind::Access(AccessError::Conflict { .. })),
                            "{e}"
                        ),
                    }
                }
            });
        }
    });
    let done = done.into_inner() as i64;
    assert!(done > 0);
    assert_eq!(x.to_vec::<i64>().unwrap(), vec![done; 64]);
}

/// Threads define operators, look them up and call them; each definition is found by everybody
/// afterwards, and of two definitions of one name exactly one wins.
#[test]
fn no_registration_is_lost() {
    let barrier = Arc::new(Barrier::new(THREADS));
    let wins = Arc::new(AtomicUsize::new(0));
    const NAMES: usize = 64;
    thread::scope(|s| {
        for id in 0..THREADS {
            let (barrier, wins) = (barrier.clone(), wins.clone());
            s.spawn(move || {
                barrier.wait();
                for k in 0..NAMES {
                    let mine = custom_op(&format!("threads::own_{id}_{k}"))
                        .arg_names(["n"])
                        .kernel(move |n: i64| -> Result<i64> { Ok(n + k as i64) })
                        .register()
                        .unwrap();
                    assert_eq!(mine.call(args![1]).unwrap()[0].int_i64().unwrap(), 1 + k as i64);
                    let shared = custom_op(&format!("threads::shared_{k}"))
                        .arg_names(["n"])
                        .kernel(move |_n: i64| -> Result<i64> { Ok(id as i64) })
                        .register();
                    wins.fetch_add(usize::from(shared.is_ok()), Ordering::Relaxed);
                    let winner = maquette_ops::call(&format!("threads::shared_{k}"), args![0])
                        .unwrap()[0]
                        .int_i64()
                        .unwrap();
                    assert!((0..THREADS as i64).contains(&winner));
                }
            });
        }
    });
    assert_eq!(wins.load(Ordering::Relaxed), NAMES);
    let found = library::all().iter().filter(|op| op.name().starts_with("threads::")).count();
    assert_eq!(found, NAMES * (THREADS + 1));
}
