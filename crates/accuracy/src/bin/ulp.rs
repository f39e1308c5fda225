//! Measures the elementary functions' errors: `cargo run --release -p maquette-accuracy --bin ulp --
//! [options]`.
//!
//! Without options every one of the 2^32 `f32` patterns goes through every function on every
//! instruction set. Exits with 1 where a bound of `accuracy::bounds` is exceeded.

use maquette_accuracy::report::{Effort, HEADING, line, markdown, measure};
use maquette_accuracy::{Error, instruction_sets};
use maquette_ir::DType;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: ulp [--function NAME[,NAME]] [--dtype f32|bf16|f16|f64] [--samples N] [--pairs N]
           [--wide N] [--threads N] [--markdown]
  --samples N   about N bit patterns of f32 per function, and those near its edges (default: all)
  --pairs N     how many pairs of f32 for functions of two arguments (default: 2^26)
  --wide N      how many arguments of f64 (default: 100000)";

struct Options {
    functions: Vec<String>,
    dtype: Option<String>,
    markdown: bool,
    effort: Effort,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let effort = Effort { step: 1, reach: 1 << 12, pairs: 1 << 26, wide: 100_000, threads };
    let mut o = Options { functions: Vec::new(), dtype: None, markdown: false, effort };
    while let Some(arg) = args.next() {
        if arg == "--markdown" {
            o.markdown = true;
            continue;
        }
        let value = args.next().ok_or(format!("`{arg}` takes a value\n{USAGE}"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|e| format!("`{arg}` takes a number, found `{value}`: {e}"))
        };
        match arg.as_str() {
            "--function" => o.functions.extend(value.split(',').map(String::from)),
            "--dtype" => o.dtype = Some(value),
            "--samples" => {
                o.effort.step = ((1u64 << 32) / number()?.clamp(1, 1 << 32)).next_power_of_two()
            }
            "--pairs" => o.effort.pairs = number()?,
            "--wide" => o.effort.wide = number()?,
            "--threads" => o.effort.threads = number()?.clamp(1, 1024) as usize,
            _ => return Err(format!("unknown option `{arg}`\n{USAGE}")),
        }
    }
    Ok(o)
}

fn run(o: &Options) -> Result<bool, Error> {
    let wanted = |name: &str, d: DType| {
        (o.functions.is_empty() || o.functions.iter().any(|f| f == name))
            && o.dtype.as_ref().is_none_or(|w| *w == d.to_string())
    };
    let sets: Vec<String> = instruction_sets().iter().map(|i| format!("{i:?}")).collect();
    eprintln!("instruction sets: {}\n{HEADING}", sets.join(", "));
    let mut last = Instant::now();
    let start = last;
    let rows = measure(&o.effort, wanted, |row| {
        eprintln!("{}  [{:.1} s]", line(row), last.elapsed().as_secs_f64());
        last = Instant::now();
    })?;
    eprintln!("{:.0} s", start.elapsed().as_secs_f64());
    if o.markdown {
        print!("{}", markdown(&rows));
    }
    if rows.is_empty() {
        eprintln!(
            "no function among {} is measured in {}",
            o.functions.join(", "),
            o.dtype.as_deref().unwrap_or("any dtype")
        );
        return Ok(false);
    }
    let failures: Vec<String> = rows.iter().filter_map(|r| r.failure()).collect();
    failures.iter().for_each(|f| eprintln!("{f}"));
    Ok(failures.is_empty())
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let o = match options(std::env::args().skip(1)) {
        Ok(o) => o,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    match run(&o) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
