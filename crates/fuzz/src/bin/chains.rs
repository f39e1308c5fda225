//! Random chains of operators, compiled: `cargo run --release -p maquette-fuzz --bin chains --
//! --programs 10000 --seed 1`.
//!
//! Exits with 1 where a compiled chain does not do what the eager one does, with 2 on bad options.

use maquette_fuzz::chains::{ChainReport, check_on, generate};
use maquette_ir::Device;
use maquette_ops::Error;
// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;
use std::process::ExitCode;

const USAGE: &str = "\
usage: chains [--programs N] [--seed S] [--from I] [--device D] [--show INDEX]
  --programs N  how many chains to generate (default: 1000)
  --seed S      the seed of the generator (default: 1)
  --from I      the first chain (default: 0)
  --device D    run the compiled chains on this device, such as `test:0` (default: cpu)
  --show INDEX  print a chain";

fn main() -> ExitCode {
    let (mut programs, mut seed, mut from, mut show) = (1_000u64, 1u64, 0u64, None);
    let (mut args, mut device) = (std::env::args().skip(1), Device::Cpu);
    while let Some(arg) = args.next() {
        if arg == "--device" {
            match args.next().map(|d| d.parse()) {
                Some(Ok(parsed)) => device = parsed,
                Some(Err(e)) => return fail(&Error::msg(format!("{e}"))),
                None => {
                    eprintln!("{USAGE}");
                    return ExitCode::from(2);
                }
            }
            continue;
        }
        let Some(number) = args.next().and_then(|n| n.parse::<u64>().ok()) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        match arg.as_str() {
            "--programs" => programs = number,
            "--seed" => seed = number,
            "--from" => from = number,
            "--show" => show = Some(number),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(index) = show {
        return match generate(seed, index) {
            Ok(chain) => {
                print!("{chain}");
                ExitCode::SUCCESS
            }
            Err(e) => fail(&e),
        };
    }
    let (mut all, mut with_regions, mut failures) = (ChainReport::default(), 0u64, 0u64);
    for index in from..from + programs {
        let chain = match generate(seed, index) {
            Ok(chain) => chain,
            Err(e) => return fail(&e),
        };
        match check_on(&chain, seed ^ index, device) {
            Ok(report) => {
                all.planned += report.planned;
                all.programs += report.programs;
                all.regions += report.regions;
                all.unfused += report.unfused;
                with_regions += u64::from(report.regions > 0);
            }
            Err(what) => {
                failures += 1;
                println!("chain {index} of seed {seed}: {what}\n{chain}");
            }
        }
    }
    println!(
        "{programs} chains, {failures} mismatches; {} of {} compiled programs planned; {with_regions} \
         chains with fused operators, {} regions, {} inputs without fusion",
        all.planned, all.programs, all.regions, all.unfused
    );
    ExitCode::from(u8::from(failures > 0))
}

fn fail(e: &maquette_ops::Error) -> ExitCode {
    eprintln!("{e}");
    ExitCode::from(2)
}
