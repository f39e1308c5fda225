//! Every example runs, and prints what its snapshot says.

use insta::assert_snapshot;
use maquette::prelude::*;

#[path = "../examples/branch_on_size.rs"]
mod branch_on_size;
#[path = "../examples/crop.rs"]
mod crop;
#[path = "../examples/custom_linear.rs"]
mod custom_linear;
#[path = "../examples/custom_nonzero.rs"]
mod custom_nonzero;
#[path = "../examples/decoder/main.rs"]
mod decoder;
#[path = "../examples/factory.rs"]
mod factory;
#[path = "../examples/numpy_sin.rs"]
mod numpy_sin;
#[path = "../examples/numpy_sin_cpu.rs"]
mod numpy_sin_cpu;
#[path = "../examples/numpy_sin_inplace.rs"]
mod numpy_sin_inplace;
#[path = "../examples/numpy_sin_out.rs"]
mod numpy_sin_out;
#[path = "../examples/second_device.rs"]
mod second_device;
#[path = "../examples/train_digits/main.rs"]
mod train_digits;

macro_rules! snapshots {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            // lines of code move, the file is enough; the last bits of a matrix product, and times,
            // are the machine's
            let scores = (r"difference of scores: \S+", "difference of scores: SMALL");
            let times = (r"compiled \d+ µs, eager \d+ µs", "compiled TIME, eager TIME");
            let steps = (r"eager \S+ ms, compiled \S+ ms", "eager TIME, compiled TIME");
            let first = (r"in \d+ ms with", "in TIME with");
            let filters = vec![(r"\.rs:\d+", ".rs:LINE"), (r"\S*examples/", "examples/"), scores, times, steps, first];
            insta::with_settings!({ filters => filters }, {
                assert_snapshot!(stringify!($name), $name::report().unwrap());
            });
        }
    )* };
}

snapshots!(
    branch_on_size,
    crop,
    custom_linear,
    custom_nonzero,
    decoder,
    factory,
    numpy_sin,
    numpy_sin_cpu,
    numpy_sin_inplace,
    numpy_sin_out,
    second_device,
    train_digits,
);

/// What an example prints on another device, apart from times, is what it prints on the CPU.
fn assert_alike(on: impl Fn(Device) -> Result<String>) {
    let report = |device| {
        let text = on(device).unwrap();
        let is_timed = |line: &&str| !line.starts_with("time of") && !line.starts_with("compiled ");
        text.lines().filter(is_timed).collect::<Vec<_>>().join("\n")
    };
    let there = report(Device::test(0)).replace(" device test:0", "");
    assert_eq!(there, report(Device::Cpu));
}

#[test]
fn the_decoder_is_the_same_on_another_device() {
    assert_alike(decoder::report_on);
}

#[test]
fn training_is_the_same_on_another_device() {
    assert_alike(train_digits::report_on);
}
