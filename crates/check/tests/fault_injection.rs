//! Would the oracle find a fault? Faults are made in lifting, the view algebra, the rules and
//! plans, one at a time; each must be found.
//!
//! `cargo test --release -p maquette-check --features fault-injection --test fault_injection --
//! --nocapture` prints how many programs each took.

use maquette_check::oracle::{
    Mode, TestProgram, Verdict, check, generate::generate, modes, register,
};
use maquette_ir::fault_injection;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By the name at the place that is wrong.
const FAULTS: &[&str] = &[
    // the view algebra
    "disjoint: views that share their ends are apart",
    "diophantine: a remainder may be longer than the stride",
    "residues: of the longest stride",
    "relative: not confirmed",
    "compose: digits carry",
    "join: as if the inner stride were 1",
    "proofs: what is not known holds",
    "symbols: no size is 0",
    "merge: windows with gaps between them",
    "injective: every view",
    // rules
    "dead-store: the other way round",
    "no-op-store: of any version",
    "past: a store that overlaps in part",
    "push-in: into views that repeat elements",
    "nested-store: not placed",
    "whole-store: not inverted",
    "schedule: as soon as operands are there",
    // lifting
    "writers: a write that overlaps in part",
    "lift: a part of an input is written and not told",
    "lift: outputs of one memory in several",
    "lift: effects are like other calls",
    "lift: random numbers are like others",
    "lift: arguments that are written may overlap",
    "share: counted from the storage",
    "order of memory: not taken back",
    "located: gaps are not counted",
    "whole: in any order",
    // plans
    "plan: needed until the statement before",
    "plan: views hold nothing",
    "plan: inputs that are left alone may be written",
    "plan: mutated tensors may meet",
    "plan: any operator may write over an operand",
    "plan: operands are never in the way",
    "plan: copies never overlap",
    "plan: a base is dead once something is stored in it",
    "plan: outputs share memory",
    "plan: outputs lie in inputs",
    "plan: written back over what is written back later",
    "plan: what is mutated may have any strides",
    "plan: holes where elements share their place",
    // what plans copy
    "copies: any plan will do",
    "copies: operands meet what is written",
    "copies: operands in the way are free",
];

/// Faults that random programs show too rarely, and a program that once failed and shows each.
const RARE: &[(&str, &str)] = &[
    (
        "emit: assertions are left out",
        include_str!("../../../tests/programs/as_strided_beyond_a_symbolic_size.txt"),
    ),
    (
        "lift: views reach what there is",
        include_str!("../../../tests/programs/as_strided_beyond_a_symbolic_size.txt"),
    ),
    (
        "bound: calls in their places are made at any time",
        include_str!("../../../tests/programs/effects_stay_in_order.txt"),
    ),
    (
        "copies: all strides are told",
        include_str!("../../../tests/programs/strides_of_what_a_twin_makes.txt"),
    ),
    (
        "copies: runs know less of many elements than plans",
        include_str!("../../../tests/programs/apart_among_many_elements.txt"),
    ),
    (
        "lift: elements of an input may meet",
        include_str!("../../../tests/programs/windows_that_are_written.txt"),
    ),
    (
        "repeated elements: there is one",
        include_str!("../../../tests/programs/repeated_no_times.txt"),
    ),
    (
        "lift: elements that are written may meet",
        include_str!("../../../tests/programs/write_to_an_expansion_by_data.txt"),
    ),
];

/// The faults that the research on functionalization tried, by what it calls them.
const TRIED: &[(&str, &str)] = &[
    ("disjoint off by one", "disjoint: views that share their ends are apart"),
    ("reversed dead-store containment", "dead-store: the other way round"),
    ("no-op store ignoring the version", "no-op-store: of any version"),
    ("residue test wrong", "residues: of the longest stride"),
    ("lift forwards past a partial overlap", "writers: a write that overlaps in part"),
    ("relative-view arithmetic", "relative: not confirmed"),
    ("missing mutated-input flag", "lift: a part of an input is written and not told"),
    ("missing temporary on an overlapping copy", "plan: copies never overlap"),
    ("view aliases ignored in liveness", "plan: views hold nothing"),
    ("unchecked call operand", "plan: operands are never in the way"),
    ("liveness off by one", "plan: needed until the statement before"),
    ("base assumed dead after a store", "plan: a base is dead once something is stored in it"),
    ("operand and destination overlap", "plan: any operator may write over an operand"),
    ("write into an input that is not mutated", "plan: inputs that are left alone may be written"),
    // it did not find these three
    ("end of an input's life not checked", "plan: written back over what is written back later"),
    ("overlap that only streaming kernels show", "plan: copies never overlap"),
    ("two mutated arguments share a region", "plan: mutated tensors may meet"),
];

/// Faults that sizes which are symbols show, or views of several dimensions: with one dimension of
/// a known size nothing would come of them.
const IN_SEVERAL_DIMENSIONS: &[&str] = &[
    "diophantine: a remainder may be longer than the stride",
    "compose: digits carry",
    "join: as if the inner stride were 1",
    "proofs: what is not known holds",
    "symbols: no size is 0",
    "merge: windows with gaps between them",
    "whole-store: not inverted",
    "schedule: as soon as operands are there",
    "order of memory: not taken back",
    "located: gaps are not counted",
    "whole: in any order",
    "plan: holes where elements share their place",
];

/// No fault may take more programs than this to be found.
const ENOUGH: u64 = 6000;

/// What is seen of a fault in a program; whether anything asked for it.
fn seen(fault: &'static str, program: &TestProgram, modes: &[&dyn Mode]) -> (Option<String>, bool) {
    let (verdict, asked) = fault_injection::with(fault, || check(program, modes).unwrap());
    match verdict {
        Verdict::Mismatch { mode, what } => {
            (Some(format!("{mode}: {}", what.lines().next().unwrap_or_default())), asked)
        }
        _ => (None, asked),
    }
}

/// How many programs it takes to find a fault, and what is seen of it; whether anything asked for
/// it.
fn found(fault: &'static str, modes: &[&dyn Mode]) -> (Option<(u64, String)>, bool) {
    let mut asked = false;
    for index in 0..ENOUGH {
        let (what, here) = seen(fault, &generate(7, index, 12).unwrap().program, modes);
        asked |= here;
        if let Some(what) = what {
            return (Some((index + 1, what)), asked);
        }
    }
    (None, asked)
}

fn named(names: &[&str]) -> Vec<&'static dyn Mode> {
    modes().into_iter().filter(|m| names.contains(&m.name())).collect()
}

/// The modes that run what lifting and rules make.
const FUNCTIONAL: &[&str] = &["lifted", "functional", "functional-symbolic"];

#[test]
fn programs_that_once_failed_show_rare_faults() {
    register().unwrap();
    for (fault, text) in RARE {
        let program: TestProgram = text.parse().unwrap();
        let modes: Vec<&dyn Mode> = modes().into_iter().map(|m| m as &dyn Mode).collect();
        assert!(!matches!(check(&program, &modes).unwrap(), Verdict::Mismatch { .. }));
        assert!(seen(fault, &program, &modes).0.is_some(), "{fault} is not seen in\n{text}");
    }
}

#[test]
fn faults_that_others_tried_are_among_them() {
    assert!(TRIED.iter().all(|(_, fault)| FAULTS.contains(fault)));
    assert!(
        IN_SEVERAL_DIMENSIONS.len() >= 10
            && IN_SEVERAL_DIMENSIONS.iter().all(|fault| FAULTS.contains(fault))
    );
}

#[test]
fn every_fault_is_found() {
    register().unwrap();
    let next = AtomicUsize::new(0);
    let work = || {
        let modes = |names: &[&str]| -> Vec<&dyn Mode> {
            named(names).into_iter().map(|m| m as &dyn Mode).collect()
        };
        let (functional, planned) = (modes(FUNCTIONAL), modes(&["planned-lifted", "planned"]));
        let mut all = Vec::new();
        while let Some(&fault) = FAULTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (seen, asked) = found(
                fault,
                if fault.starts_with("plan:") || fault.starts_with("copies:") {
                    &planned
                } else {
                    &functional
                },
            );
            match &seen {
                Some((programs, what)) => eprintln!("{programs:>6}  {fault:<50} {what}"),
                None => eprintln!(
                    "     -  {fault:<50} {}",
                    if asked { "not found" } else { "never asked for" }
                ),
            }
            all.push((fault, seen.is_some()));
        }
        all
    };
    let all: Vec<(&str, bool)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2).map(|_| s.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let missed: Vec<&str> =
        all.iter().filter(|(_, found)| !found).map(|(fault, _)| *fault).collect();
    assert!(missed.is_empty(), "not found in {ENOUGH} programs: {missed:?}");
}
