//! Random programs under an override of a builtin view. In a process of their own, since an
//! override is everyone's.

use maquette_fuzz::oracle::{Family, Fuzzer, UNKNOWN_VIEW, modes};
use maquette_ops::library::{Kind, Library};
use maquette_ops::{Result, Tensor};

/// What an overridden view returns is its kernel's choice in every mode: here the rows from the
/// end.
#[test]
fn random_programs_follow_an_overridden_view() {
    let library = Library::new("aten", Kind::Impl).unwrap();
    let mirrored = |x: &Tensor, dim: i64, index: i64| -> Result<Tensor> {
        let view = x.narrow(dim, -1 - index, 1).squeeze_dim(dim);
        Ok(view.ok()?.clone())
    };
    library.impl_("select.int", "cpu", mirrored).unwrap();
    let (modes, family) = (modes(), Family::Programs);
    let fuzzer =
        Fuzzer { programs: 300, seed: 3, statements: 12, modes, threads: 2, stats: true, family };
    let report = fuzzer.run(&|f| {
        let program = f.program.as_ref().map(ToString::to_string).unwrap_or_default();
        eprintln!("{}: {}\n{program}", f.mode, f.what);
    });
    assert!(report.failures.is_empty(), "{report}");
    // Functional modes refuse what they cannot know: half of the programs call the overridden view,
    // or an operator that calls it. Other refusals are as rare as in other runs.
    let of_views = report.stats.refusals(UNKNOWN_VIEW);
    assert!(of_views * 4 >= report.programs, "{report}: {}", report.stats);
    assert!((report.refused - of_views) * 20 <= report.programs, "{report}: {}", report.stats);
}
