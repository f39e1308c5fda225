//! Random programs, their gradients and chains on a device whose memory the host cannot read have
//! the bits of the eager programs on the CPU, and leave no memory allocated there.

use maquette_fuzz::chains::{check_on, generate};
use maquette_fuzz::oracle::{Family, Fuzzer, gradient_modes, modes, on_device};
use maquette_ir::Device;
use maquette_test_device::live_blocks;

const DEVICE: Device = Device::test(0);

fn agree(family: Family, programs: u64) {
    let of_family = match family {
        Family::Programs => modes(),
        Family::Gradients => gradient_modes(),
    };
    let modes = on_device(of_family, DEVICE);
    let fuzzer =
        Fuzzer { programs, seed: 1, statements: 12, modes, threads: 2, stats: false, family };
    let report = fuzzer.run(&|_| {});
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|f| {
            let program = f.program.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("program {}, {}: {}\n{program}", f.index, f.mode, f.what)
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// One test, so that no other holds memory of the device.
#[test]
fn programs_there_have_the_bits_of_the_cpu_and_leave_no_memory() {
    agree(Family::Programs, 300);
    agree(Family::Gradients, 100);
    for index in 0..60 {
        let chain = generate(20_261_128, index).unwrap();
        check_on(&chain, index, DEVICE).unwrap_or_else(|what| panic!("{what}\n{chain}"));
    }
    assert_eq!(live_blocks(DEVICE.index()), 0);
}
