//! Profiles: which kernels a program runs, where they come from, and what they have to do.

mod common;

use common::{fused, planned};
use maquette_aten as _;
use maquette_invoke::SourceInfo;
use maquette_ir::fused::FusionKind;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ir::{DType, Device};
use maquette_ops::{FakeCtx, Result, Tensor, Value, Work, custom_op};
use maquette_runtime::Executable;
use maquette_runtime::peaks::{Bandwidth, Peaks, Rate};
use maquette_runtime::profile::{KernelKind, Profile, ProfileOptions};
use maquette_test_device as _;
use std::sync::Once;
use std::time::Duration;

fn executable(text: &str) -> Executable {
    fused(&planned(text))
}

fn ramp(sizes: &[i64]) -> Value {
    let n: i64 = sizes.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    Value::Tensor(Tensor::from_vec(data, sizes.to_vec()))
}

fn define_custom() {
    static DEFINED: Once = Once::new();
    DEFINED.call_once(|| {
        let twice = custom_op("profile::twice")
            .arg_names(["x"])
            .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x * 2.0) })
            .register()
            .unwrap();
        twice
            .register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
                Ok(x.new_empty(x.sizes(), x.dtype()))
            })
            .unwrap();
    });
}

const MODEL: &str = "graph model(%x: f32[n, 64], %w: f32[64, 32]) -> (f32[n, 32], f32[n, 32]) \
    where n in [1, oo) {
        %mm: f32[n, 32] = aten::mm(%x, %w)
        %relu: f32[n, 32] = aten::relu(%mm)
        %twice: f32[n, 32] = profile::twice(%relu)
        %softmax: f32[n, 32] = aten::_softmax(%twice, -1, false)
        %sort: f32[n, 32], %order: i64[n, 32] = aten::sort(%softmax)
        return %softmax, %sort
    }";

fn profile_of_model(options: &ProfileOptions) -> Profile {
    define_custom();
    let inputs = [ramp(&[16, 64]), ramp(&[64, 32])];
    executable(MODEL).profile(&inputs, options, &SourceInfo::of_caller()).unwrap()
}

/// Peaks that no machine has.
fn peaks() -> Peaks {
    let rate = |all| Rate { one: all, all };
    let bandwidths = vec![Bandwidth { bytes: 1 << 30, read: rate(1e9), copy: rate(1e9) }];
    Peaks { f32: rate(1e9), f64: rate(1e9), bandwidths, ..Peaks::default() }
}

#[test]
fn kernels_have_operators_and_work() {
    let profile = profile_of_model(&ProfileOptions::new().warm_up(1).repeat(5));
    let found: Vec<(KernelKind, String, Option<Work>)> =
        profile.kernels.iter().map(|k| (k.kind, k.label(), k.work)).collect();
    let work = |flops, bytes_read, bytes_written| {
        Some(Work { flops, is_double: false, bytes_read, bytes_written })
    };
    let (x, w, y) = (16 * 64 * 4, 64 * 32 * 4, 16 * 32 * 4);
    // a product of two operations an inner point, and a maximum; a softmax of a maximum, a
    // difference, an exponential, a sum, and a product, and a reciprocal for each row
    let product = work(2 * 16 * 32 * 64 + 16 * 32, x + w, y);
    let softmax = work(5 * 16 * 32 + 16, y, y);
    let expected = [
        (KernelKind::Fused(FusionKind::Product), "mm + relu".to_owned(), product),
        (KernelKind::Call, "profile::twice".to_owned(), None),
        (KernelKind::Operator, "_softmax".to_owned(), softmax),
        (KernelKind::Call, "sort".to_owned(), None),
    ];
    assert_eq!(found, expected);
    let values: Vec<&str> = profile.kernels.iter().map(|k| &k.value[..]).collect();
    assert_eq!(values, ["relu", "twice", "_softmax", "sort"]);
    assert_eq!(profile.kernels[0].sizes[..], [16, 32]);
}

/// The steps of a program on another device are waited for, and say where they run.
#[test]
fn a_profile_says_which_operators_run_on_the_host() {
    let text = "graph g(%x: f32[8, 8] device test:0) -> (f32[8, 8] device test:0) {
        %relu: f32[8, 8] device test:0 = aten::relu(%x)
        %sort: f32[8, 8] device test:0, %order: i64[8, 8] device test:0 = aten::sort(%relu)
        return %sort
    }";
    let eye = Tensor::eye(8, DType::F32).to_device(Device::test(0));
    let options = ProfileOptions::new().warm_up(1).repeat(2);
    let profile = executable(text).profile(&[eye.into()], &options, &SourceInfo::of_caller());
    let profile = profile.unwrap();
    let found: Vec<(KernelKind, String)> =
        profile.kernels.iter().map(|k| (k.kind, k.label())).collect();
    let on_host = |(kind, label): &(KernelKind, String)| {
        *kind == KernelKind::OnHost && label.ends_with("(on the host)")
    };
    assert!(profile.is_compiled && on_host(&found[1]), "{found:?}");
    assert_eq!(found[0], (KernelKind::Operator, "relu".to_owned()));
}

#[test]
fn times_are_those_of_the_runs() {
    let profile = profile_of_model(&ProfileOptions::new().warm_up(0).repeat(7));
    assert_eq!((profile.runs.count, profile.between.count), (7, 7));
    let mut kernels = Duration::ZERO;
    for kernel in &profile.kernels {
        let timing = kernel.timing;
        assert_eq!(timing.count, 7);
        assert!(timing.min <= timing.median && timing.median * 7 >= timing.min * 7);
        assert!(timing.total >= timing.min * 7);
        kernels += timing.total;
    }
    assert!(kernels + profile.between.total <= profile.runs.total + Duration::from_micros(1));
}

#[test]
fn a_profile_is_grouped_by_operators_and_lines() {
    let text = "graph g(%x: f32[8, 8], %y: f32[8, 8]) -> (f32[8, 8], f32[8, 8]) {
        %a: f32[8, 8] = aten::mm(%x, %y)
        %b: f32[8, 8] = aten::mm(%y, %x)
        return %a, %b
    }";
    let inputs = [ramp(&[8, 8]), ramp(&[8, 8])];
    let options = ProfileOptions::new().repeat(2).peaks(peaks());
    let profile = executable(text).profile(&inputs, &options, &SourceInfo::of_caller()).unwrap();
    let groups = profile.by_operator().groups;
    assert_eq!(groups.len(), 1);
    assert_eq!((&groups[0].label[..], groups[0].kernels), ("mm", 2));
    assert_eq!(groups[0].work.map(|work| work.flops), Some(2 * 2 * 8 * 8 * 8));
    assert_eq!(groups[0].bound, Some(Duration::from_nanos(2 * 2 * 8 * 8 * 8)));
    assert_eq!(profile.by_line().groups[0].label, "(no line)");
}

/// Replaces each number by `#`, and bars by one sign.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        let mut line: String =
            line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        for (from, to) in [("##", "#"), ("#.#", "#"), (" ns", " s"), (" µs", " s"), (" ms", " s")]
        {
            while line.contains(from) {
                line = line.replace(from, to);
            }
        }
        let words = line
            .split_whitespace()
            .filter(|word| !word.starts_with(['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉']));
        shown += &words.collect::<Vec<_>>().join(" ");
        shown.push('\n');
    }
    shown
}

#[test]
fn a_table_has_a_row_for_each_kernel() {
    let options = ProfileOptions::new().repeat(2).peaks(peaks());
    let profile = profile_of_model(&options);
    let table = profile.to_string();
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let mut lines: Vec<String> = without_numbers(&table).lines().map(str::to_owned).collect();
    // the order of the rows is that of their times
    lines[3..7].sort();
    insta::assert_snapshot!(lines.join("\n"), @r"
    `model` on # threads: # s a run (median of #, least # s), # kernels
    peaks: # GFLOP/s in f#, # in f#; memory reads # GB/s, copies # GB/s
    time share GB/s GFLOP/s of peak kernel
    # s # % # # # % a mm + relu [#, #]
    # s # % # # # % m _softmax [#, #]
    # s # % profile::twice [#, #]
    # s # % sort
    # s # % (between kernels)
    ");
    assert!(profile.by_operator().to_string().lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn a_trace_is_json_with_an_event_for_each_launch() {
    let profile = profile_of_model(&ProfileOptions::new().repeat(3).peaks(peaks()));
    let trace: serde_json::Value = serde_json::from_str(&profile.chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events.iter().map(|e| e["name"].as_str().unwrap()).collect();
    let expected = ["process_name", "model", "mm + relu", "profile::twice", "_softmax", "sort"];
    assert_eq!(names, expected);
    let time = |event: &serde_json::Value, key: &str| event[key].as_f64().unwrap();
    let (run, launches) = (&events[1], &events[2..]);
    let mut end = time(run, "ts");
    for launch in launches {
        assert_eq!(launch["ph"], "X");
        assert!(time(launch, "ts") >= end, "launches come one after another: {trace}");
        end = time(launch, "ts") + time(launch, "dur");
    }
    assert!(end <= time(run, "dur") + 0.001);
    let args = &launches[0]["args"];
    assert_eq!(args["operators"], serde_json::json!(["aten::mm", "aten::relu"]));
    assert_eq!(args["flops"], 2 * 16 * 32 * 64 + 16 * 32);
    assert_eq!(args["bytes written"], 16 * 32 * 4);
    assert_eq!(args["limit"], "arithmetic");
    assert_eq!(args["sizes"], serde_json::json!([16, 32]));
    assert!(launches[1]["args"].get("flops").is_none());
}

#[test]
fn sizes_from_data_and_copies_are_kernels_too() {
    let text = "graph g(%x: f32[4]) -> (f32[u0, 1], f32[4]) where u0 in [0, oo) {
        %old: f32[4] = aten::clone(%x)
        %new: f32[4] = aten::add_.Scalar(%x, 0.0)
        %nonzero: i64[u0, 1] strides [1, u0] = aten::nonzero(%x)
        bind u0 = size(%nonzero, 0)
        %y: f32[u0, 1] = aten::_to_copy(%nonzero, dtype=f32)
        return %y, %old
    }";
    let options = ProfileOptions::new().repeat(2);
    let inputs = [Value::Tensor(Tensor::from([1.0f32, 0.0, 2.0, 0.0]))];
    let profile = executable(text).profile(&inputs, &options, &SourceInfo::of_caller()).unwrap();
    let labels: Vec<String> = profile.kernels.iter().map(|k| k.label()).collect();
    assert!(labels.iter().any(|label| label == "nonzero"), "{labels:?}");
    assert!(labels.iter().any(|label| label == "_to_copy"), "{labels:?}");
    assert!(labels.iter().any(|label| label == "copy of %x"), "{labels:?}");
    assert!(profile.kernels.iter().all(|k| k.timing.count == 2));
}

#[test]
fn a_program_without_a_plan_is_timed_as_a_whole() {
    let graph: Graph =
        "graph g(%x: f32[4]) -> (f32[4]) {\n %y: f32[4] = aten::exp(%x)\n return %y\n}"
            .parse()
            .unwrap();
    let executable = Executable::new(ProgramForm::Original(graph)).unwrap();
    let options = ProfileOptions::new().repeat(2);
    let profile = executable.profile(&[ramp(&[4])], &options, &SourceInfo::of_caller()).unwrap();
    assert!(profile.kernels.is_empty() && !profile.is_compiled);
    assert_eq!(profile.runs.count, 2);
    assert!(profile.to_string().ends_with("it runs operator by operator, which is not timed"));
}
