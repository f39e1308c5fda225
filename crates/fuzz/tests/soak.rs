//! A short soak, of a fixed number of calls: threads that share compiled functions get the eager
//! answers. And calls with given outputs give what calls return.

use maquette_fuzz::soak::{Soak, check_given_outputs};

#[test]
fn threads_that_share_functions_get_the_eager_answers() {
    let soak = Soak { threads: 4, seed: 20_261_124, functions: 12, programs: 40, calls_of_one: 40 };
    let report = soak.run(&|calls| calls < 1_500).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert_eq!(report.calls, 1_500);
    assert!(report.functions > 12 && report.refused * 4 < report.calls, "{report:?}");
}

#[test]
fn given_outputs_get_what_calls_return() {
    for index in 0..300 {
        check_given_outputs(20_261_125, index)
            .unwrap_or_else(|what| panic!("chain {index}, {what}"));
    }
}
