//! Fault injection: the oracle must find every [`Fault`], of lifting, the view algebra, the rules
//! and buffer plans. Random programs must show a fault, or else a program that once failed.
//!
//! `cargo test --release -p maquette-fuzz --features fault-injection --test fault_injection --
//! --nocapture` prints how many programs each took.

use maquette_check::maquette_ops::release_cached_memory;
use maquette_device::{OpenDevice, conformance, open};
use maquette_fuzz::chains::{self, Argument, Call, Chain, Input};
use maquette_fuzz::oracle::{
    Family, Mode, TestProgram, Verdict, check, generate::generate, generate::generate_for,
    gradient_modes, modes, on_device, register,
};
use maquette_ir::fault_injection::{self, Fault};
use maquette_ir::{DType, Device};
use maquette_test_device as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Faults that random programs show too rarely, and a program that once failed and shows each.
const RARE: &[(Fault, &str)] = &[
    (
        Fault::AssertionsLeftOut,
        include_str!("../../../tests/programs/as_strided_beyond_a_symbolic_size.txt"),
    ),
    (
        Fault::AssertionsHold,
        include_str!("../../../tests/programs/as_strided_beyond_a_symbolic_size.txt"),
    ),
    (
        Fault::ViewsReachAnything,
        include_str!("../../../tests/programs/as_strided_beyond_a_symbolic_size.txt"),
    ),
    (Fault::AvailableAtAnyTime, include_str!("../../../tests/programs/effects_stay_in_order.txt")),
    (
        Fault::AllStridesKnown,
        include_str!("../../../tests/programs/strides_of_a_functional_variant.txt"),
    ),
    (
        Fault::RunsKnowLessThanPlans,
        include_str!("../../../tests/programs/apart_among_many_elements.txt"),
    ),
    (
        Fault::InputElementsOverlap,
        include_str!("../../../tests/programs/windows_that_are_written.txt"),
    ),
    (
        Fault::CopiesOutliveWrites,
        include_str!("../../../tests/programs/a_copy_in_rows_that_a_dead_value_overwrote.txt"),
    ),
    (Fault::OneRepeatedElement, include_str!("../../../tests/programs/repeated_no_times.txt")),
    (
        Fault::WrittenElementsOverlap,
        include_str!("../../../tests/programs/write_to_an_expansion_by_data.txt"),
    ),
    (
        Fault::WrittenArgumentsOverlap,
        include_str!("../../../tests/programs/mutated_arguments_that_overlap_at_other_sizes.txt"),
    ),
    (
        Fault::QuestionsAnswered,
        include_str!("../../../tests/programs/where_an_input_begins_decides.txt"),
    ),
    (
        Fault::RefusedWritesPoison,
        include_str!("../../../tests/programs/a_refused_write_leaves_the_storage.txt"),
    ),
];

/// The faults that the research on functionalization tried, under its names.
const TRIED: &[(&str, Fault)] = &[
    ("disjoint off by one", Fault::ViewsThatShareEndsAreDisjoint),
    ("reversed dead-store containment", Fault::DeadStoreReversed),
    ("no-op store ignoring the version", Fault::NoOpStoreOfAnyVersion),
    ("residue test wrong", Fault::ResiduesOfLongestStride),
    ("lift forwards past a partial overlap", Fault::LastStoreIgnoresPartialOverlap),
    ("relative-view arithmetic", Fault::RelativeViewUnconfirmed),
    ("missing mutated-input flag", Fault::PartialInputWriteUnreported),
    ("missing temporary on an overlapping copy", Fault::CopiesNeverOverlap),
    ("view aliases ignored in liveness", Fault::ViewsKeepNothingAlive),
    ("unchecked call operand", Fault::OperandsNeverConflict),
    ("liveness off by one", Fault::LiveOneStatementLess),
    ("base assumed dead after a store", Fault::BaseDeadAfterStore),
    ("operand and destination overlap", Fault::AnyOperatorInPlace),
    ("write into an input that is not mutated", Fault::UnmutatedInputsWritten),
    // it did not find these three
    ("end of an input's life not checked", Fault::WriteBackInAnyOrder),
    ("overlap that only streaming kernels show", Fault::CopiesNeverOverlap),
    ("two mutated arguments share a region", Fault::MutatedTensorsOverlap),
];

/// Faults that only symbolic sizes or views of several dimensions show: with one dimension of a
/// known size they change nothing.
const IN_SEVERAL_DIMENSIONS: &[Fault] = &[
    Fault::RemainderLongerThanStride,
    Fault::ComposedDigitsCarry,
    Fault::JoinIgnoresInnerStride,
    Fault::UnknownIsProved,
    Fault::NoSizeIsZero,
    Fault::MergeWindowsWithGaps,
    Fault::WholeStoreNotInverted,
    Fault::ScheduleAsSoonAsReady,
    Fault::MemoryOrderKept,
    Fault::GapsNotCounted,
    Fault::WholeInAnyOrder,
    Fault::HolesWhereElementsShare,
];

/// No fault may take more programs than this to be found.
const ENOUGH: u64 = 6000;

/// Chains override operators of the whole process: other programs must not run meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_rare(fault: Fault) -> bool {
    RARE.iter().any(|(rare, _)| *rare == fault)
}

/// The mismatch that a fault causes in a program; whether anything asked for the fault.
fn seen(fault: Fault, program: &TestProgram, modes: &[&dyn Mode]) -> (Option<String>, bool) {
    let (verdict, asked) = fault_injection::with(fault, || check(program, modes).unwrap());
    match verdict {
        Verdict::Mismatch { mode, what } => {
            (Some(format!("{mode}: {}", what.lines().next().unwrap_or_default())), asked)
        }
        _ => (None, asked),
    }
}

/// The number of programs that it takes to find a fault, and the mismatch; whether anything asked
/// for the fault.
fn found(fault: Fault, modes: &[&dyn Mode]) -> (Option<(u64, String)>, bool) {
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
    let _alone = alone();
    register().unwrap();
    for (fault, text) in RARE {
        let program: TestProgram = text.parse().unwrap();
        let modes: Vec<&dyn Mode> = modes().into_iter().map(|m| m as &dyn Mode).collect();
        assert!(!matches!(check(&program, &modes).unwrap(), Verdict::Mismatch { .. }));
        assert!(seen(*fault, &program, &modes).0.is_some(), "{fault} is not seen in\n{text}");
    }
}

#[test]
fn random_programs_show_the_faults_that_others_tried() {
    assert!(TRIED.iter().all(|(_, fault)| !is_rare(*fault)));
    assert!(
        IN_SEVERAL_DIMENSIONS.len() >= 10
            && IN_SEVERAL_DIMENSIONS.iter().all(|fault| !is_rare(*fault))
    );
}

/// The parts of the project whose faults chains show.
const IN_CHAINS: [&str; 3] = ["fusion", "images", "overwrites"];

/// The part of the project to which a fault belongs.
fn part(fault: Fault) -> &'static str {
    fault.text().split(':').next().unwrap_or_default()
}

#[test]
fn chains_show_the_faults_of_fusion() {
    let _alone = alone();
    let mut missed = Vec::new();
    let is_random = |f: &Fault| IN_CHAINS.contains(&part(*f)) && *f != Fault::WrittenImages;
    for fault in Fault::ALL.iter().copied().filter(is_random) {
        let shown = (0..4_000).find_map(|index| {
            let chain = chains::generate(7, index).unwrap();
            release_cached_memory();
            let (checked, _) = fault_injection::with(fault, || chains::check(&chain, index));
            Some((index + 1, checked.err()?))
        });
        match &shown {
            Some((chains, what)) => {
                eprintln!("{chains:>6}  {fault:<50} {}", what.lines().next().unwrap_or_default());
            }
            None => missed.push(fault.text()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Random chains that write are not asked whether fusion is given up. In this one, an operator
/// writes an image between two convolutions, and observes its strides.
#[test]
fn an_image_that_an_operator_writes_shows_its_fault() {
    let _alone = alone();
    // It registers the operators.
    chains::generate(7, 0).unwrap();
    let convolution = |x, weight, padding| Call {
        op: "aten::convolution",
        args: vec![
            Argument::Value(x),
            Argument::Value(weight),
            Argument::None,
            Argument::Ints(vec![1; 2]),
            Argument::Ints(vec![padding; 2]),
            Argument::Ints(vec![1; 2]),
            Argument::Bool(false),
            Argument::Ints(vec![0; 2]),
            Argument::Int(1),
        ],
    };
    let call = |op, values: &[usize]| Call {
        op,
        args: values.iter().map(|v| Argument::Value(*v)).collect(),
    };
    let input =
        |sizes: &[i64], is_batched| Input { dtype: DType::F32, sizes: sizes.to_vec(), is_batched };
    let image = [2, 16, 6, 7];
    let chain = Chain {
        inputs: vec![
            input(&image, true),
            input(&[16, 16, 3, 3], false),
            input(&[16, 16, 1, 1], false),
            input(&image, true),
        ],
        calls: vec![
            convolution(0, 1, 1),
            call("aten::relu", &[4]),
            call("oracle::strides_", &[5, 3]),
            convolution(5, 2, 0),
            call("aten::relu", &[6]),
        ],
        outputs: vec![7],
    };
    let given_up = || chains::check(&chain, 1).unwrap().given_up;
    assert_eq!(given_up(), 0);
    let (given_up, _) = fault_injection::with(Fault::WrittenImages, given_up);
    eprintln!("{given_up:>6}  programs are less fused: {}", Fault::WrittenImages);
    assert!(given_up > 0);
}

#[test]
fn gradients_show_the_faults_of_derivatives() {
    let _alone = alone();
    register().unwrap();
    let names = ["backward", "differences", "traced", "functional"];
    let modes: Vec<&dyn Mode> = gradient_modes()
        .into_iter()
        .filter(|m| names.contains(&m.name()))
        .map(|m| m as &dyn Mode)
        .collect();
    let mut missed = Vec::new();
    for fault in Fault::ALL.iter().copied().filter(|f| part(*f) == "gradients") {
        let shown = (0..2_000).find_map(|index| {
            let program = generate_for(Family::Gradients, 7, index, 12).unwrap().program;
            seen(fault, &program, &modes).0.map(|what| (index + 1, what))
        });
        match &shown {
            Some((programs, what)) => eprintln!("{programs:>6}  {fault:<50} {what}"),
            None => missed.push(fault.text()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// What the suite of drivers finds on the test device, as its first panic.
fn found_by_the_suite(fault: Fault) -> Option<String> {
    let device = open(Device::test(1)).unwrap();
    let tests: [fn(&'static dyn OpenDevice); 5] = [
        conformance::commands_keep_their_order,
        conformance::a_block_outlives_the_commands_before_its_end,
        conformance::expressions_are_computed_in_order,
        conformance::the_error_of_a_kernel_is_found,
        conformance::packed_operands_change_no_bit,
    ];
    tests.into_iter().find_map(|test| {
        let run = || catch_unwind(AssertUnwindSafe(|| test(device)));
        let panic = fault_injection::with(fault, run).0.err()?;
        // The next test finds no fault of this one.
        let _ = device.queue().wait(device.queue().fence());
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
    })
}

/// Mistakes of a driver are found by the suite of drivers, and others by random programs on a
/// second device.
#[test]
fn the_faults_of_devices_are_found() {
    let _alone = alone();
    register().unwrap();
    let modes = on_device(named(&["planned", "compiled"]), Device::test(0));
    let modes: Vec<&dyn Mode> = modes.into_iter().map(|m| m as &dyn Mode).collect();
    let mut missed = Vec::new();
    for fault in Fault::ALL.iter().copied().filter(|f| part(*f) == "device") {
        let shown =
            found_by_the_suite(fault).or_else(|| found(fault, &modes).0.map(|(_, what)| what));
        match &shown {
            Some(what) => eprintln!("{fault:<50} {}", what.lines().next().unwrap_or_default()),
            None => missed.push(fault.text()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn every_fault_is_found() {
    let _alone = alone();
    register().unwrap();
    let is_searched = |f: &Fault| {
        !is_rare(*f)
            && !["gradients", "device"].contains(&part(*f))
            && !IN_CHAINS.contains(&part(*f))
    };
    let faults: Vec<Fault> = Fault::ALL.iter().copied().filter(is_searched).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let modes = |names: &[&str]| -> Vec<&dyn Mode> {
            named(names).into_iter().map(|m| m as &dyn Mode).collect()
        };
        let (functional, planned) = (modes(FUNCTIONAL), modes(&["planned-lifted", "planned"]));
        let compiled = modes(&["compiled", "compiled-symbolic", "recomputed"]);
        let mut all = Vec::new();
        while let Some(&fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            let modes = match part(fault) {
                "plan" | "copies" => &planned,
                "compiled" => &compiled,
                _ => &functional,
            };
            let (seen, asked) = found(fault, modes);
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
    let all: Vec<(Fault, bool)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2).map(|_| s.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let missed: Vec<&str> =
        all.iter().filter(|(_, found)| !found).map(|(fault, _)| fault.text()).collect();
    assert!(missed.is_empty(), "not found in {ENOUGH} programs: {missed:?}");
}
