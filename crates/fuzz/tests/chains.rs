//! Random chains of operators do the same compiled as eagerly, and most of them have fused
//! operators.

use maquette_fuzz::chains::{ChainReport, check, generate};

#[test]
fn random_chains_do_the_same_compiled() {
    const CHAINS: u64 = 600;
    let (mut all, mut with_regions) = (ChainReport::default(), 0);
    for index in 0..CHAINS {
        let chain = generate(20_261_124, index).unwrap();
        let report = check(&chain, index).unwrap_or_else(|what| panic!("{what}\n{chain}"));
        all.planned += report.planned;
        all.programs += report.programs;
        all.regions += report.regions;
        all.unfused += report.unfused;
        with_regions += u64::from(report.regions > 0);
    }
    // The acceptance of fusion: nearly all are planned, and every other one has a fused kernel.
    assert!(all.planned * 100 >= all.programs * 99, "{all:?}");
    assert!(with_regions * 2 >= CHAINS, "{with_regions} of {CHAINS}");
    assert!(all.unfused * 10 <= all.regions, "{all:?}");
}

#[test]
fn a_chain_is_the_same_for_equal_seeds() {
    assert_eq!(generate(3, 5).unwrap().to_string(), generate(3, 5).unwrap().to_string());
    assert_ne!(generate(3, 5).unwrap().to_string(), generate(3, 6).unwrap().to_string());
}

/// In the run with a batch of 1, the maximum of no elements is an error, and a copy overwrites all
/// that follows from it. A compiled program does not run what nothing uses.
#[test]
fn an_error_of_what_nothing_uses_is_no_difference() {
    let (seed, index) = (30, 550_972);
    let chain = generate(seed, index).unwrap();
    let text = chain.to_string();
    assert!(text.contains("aten::amax(%2") && text.contains("aten::copy_(%5, %1)"), "{text}");
    check(&chain, seed ^ index).unwrap();
}
