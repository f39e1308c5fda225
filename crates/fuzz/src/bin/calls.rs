//! Random calls of every builtin operator: `cargo run --release -p maquette-fuzz --bin calls --
//! --calls 100000 --seed 1`.
//!
//! Exits with 1 where a mode does not do what the eager call does, with 2 on bad options.

use maquette_fuzz::oracle::{Mode, modes};
use maquette_fuzz::random_calls::{CallGenerator, call_modes};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: calls [--calls N] [--seed S] [--from I] [--op PART] [--mode NAME[,NAME]] [--recorded DIR]
             [--show INDEX]
  --calls N       how many calls to make (default: 10000)
  --seed S        the seed of the generator (default: 1)
  --from I        the first call (default: 0)
  --op PART       only operators whose name contains PART
  --mode NAME     these modes of the oracle only
  --recorded DIR  the recorded calls to start from (default: tests/data/aten)
  --show INDEX    print a call and its program";

struct Options {
    calls: u64,
    seed: u64,
    from: u64,
    op: Option<String>,
    modes: Vec<&'static dyn Mode>,
    recorded: PathBuf,
    show: Option<u64>,
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut o = Options {
        calls: 10_000,
        seed: 1,
        from: 0,
        op: None,
        modes: call_modes(),
        recorded: "tests/data/aten".into(),
        show: None,
    };
    while let Some(option) = args.next() {
        let value = args.next()?;
        match option.as_str() {
            "--calls" => o.calls = value.parse().ok()?,
            "--seed" => o.seed = value.parse().ok()?,
            "--from" => o.from = value.parse().ok()?,
            "--op" => o.op = Some(value),
            "--mode" => {
                let named = |name: &str| modes().into_iter().find(|mode| mode.name() == name);
                o.modes = value.split(',').map(named).collect::<Option<_>>()?;
            }
            "--recorded" => o.recorded = value.into(),
            "--show" => o.show = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(o)
}

fn run(o: &Options) -> Result<bool, String> {
    let generator = CallGenerator::new(o.seed, o.op.as_deref(), Some(&o.recorded))
        .map_err(|e| e.to_string())?;
    if let Some(index) = o.show {
        let call = generator.call(index).map_err(|e| e.to_string())?;
        let call = call.ok_or("there is no such call: its number is left out")?;
        println!("{call}");
        match call.program() {
            Ok(program) => print!("{program}"),
            Err(e) => println!("{e}"),
        }
        return Ok(true);
    }
    let modes: Vec<&dyn Mode> = o.modes.iter().map(|mode| *mode as &dyn Mode).collect();
    let report = generator.run(o.from, o.calls, &modes, &|failure| {
        println!(
            "call {} of seed {}, {}: {}\n  {}",
            failure.index, o.seed, failure.mode, failure.what, failure.call
        );
    });
    println!("{report}");
    Ok(report.failures.is_empty())
}

fn main() -> ExitCode {
    let Some(o) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&o) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
