//! Would the oracle find a fault? Faults are made in lifting, the view algebra, the rules and plans, one at a time; each must be found.
//!
//! `cargo test --release -p maquette-check --features mutants --test mutants -- --nocapture` prints how many programs each took.

use maquette_check::oracle::{Mode, Verdict, check, generate::generate, modes, register};
use maquette_ir::mutant;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By the name at the place that is wrong.
const FAULTS: &[&str] = &[
    // the view algebra
    "disjoint: views that share their ends are apart",
    "reach: a remainder may be longer than the stride",
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
    "schedule: as soon as operands are there",
    // lifting
    "lift: a part of an input is written and not told",
    "lift: outputs of one memory in several",
    "lift: effects are like other calls",
    "lift: random numbers are like others",
    "lift: arguments that are written may overlap",
    "share: counted from the storage",
    "order of memory: not taken back",
    "located: gaps are not counted",
    "whole: in any order",
    "emit: assertions are left out",
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
];

/// Faults that so many programs do not show: what the generator still has to learn. They are tried and reported all the same.
const NOT_DRAWN: &[&str] = &[
    // stores of a whole tensor in another order are rare, and most of them are found equal to something cheaper
    "whole-store: not inverted",
    // two inputs that change places
    "plan: written back over what is written back later",
    // kernels that look at the strides of what they mutate
    "plan: what is mutated may have any strides",
    // writes to what was expanded by data
    "lift: elements that are written may meet",
    // since holes are not passed on through views that repeat elements, nothing depends on this
    "plan: holes where elements share their place",
];

/// No fault may take more programs than this to be found.
const ENOUGH: u64 = 6000;

/// How many programs it takes to find a fault, and what is seen of it; whether anything asked for it.
fn found(fault: &'static str, modes: &[&dyn Mode]) -> (Option<(u64, String)>, bool) {
    let mut asked = false;
    for index in 0..ENOUGH {
        let program = generate(7, index, 12).unwrap().program;
        let (verdict, here) = mutant::with(fault, || check(&program, modes).unwrap());
        asked |= here;
        if let Verdict::Mismatch { mode, what } = verdict {
            return (Some((index + 1, format!("{mode}: {}", what.lines().next().unwrap_or_default()))), asked);
        }
    }
    (None, asked)
}

#[test]
fn every_fault_is_found() {
    register().unwrap();
    let next = AtomicUsize::new(0);
    let work = || {
        let named = |names: &[&str]| -> Vec<&dyn Mode> { modes().into_iter().filter(|m| names.contains(&m.name())).collect() };
        let (functional, planned) = (named(&["lifted", "functional", "functional-symbolic"]), named(&["placed", "planned"]));
        let mut all = Vec::new();
        while let Some(&fault) = FAULTS.iter().chain(NOT_DRAWN).nth(next.fetch_add(1, Ordering::Relaxed)) {
            let (seen, asked) = found(fault, if fault.starts_with("plan:") { &planned } else { &functional });
            match &seen {
                Some((programs, what)) => eprintln!("{programs:>6}  {fault:<50} {what}"),
                None => eprintln!("     -  {fault:<50} {}", if asked { "not found" } else { "never asked for" }),
            }
            all.push((fault, seen.is_some()));
        }
        all
    };
    let all: Vec<(&str, bool)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2).map(|_| s.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let missed: Vec<&str> = all.iter().filter(|(fault, found)| !found && FAULTS.contains(fault)).map(|(fault, _)| *fault).collect();
    assert!(missed.is_empty(), "not found in {ENOUGH} programs: {missed:?}");
}
