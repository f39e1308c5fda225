//! Random programs, every way: `cargo run --release -p maquette-fuzz --bin oracle -- --programs
//! 10000 --seed 1`.
//!
//! Exits with 1 where a mode does not do what the eager program does, with 2 on bad options.

use maquette_fuzz::oracle::{
    Family, FuzzFailure, Fuzzer, Mode, Seeds, TestProgram, TextReport, Verdict, check,
    generate::generate_for, gradient_modes, modes, on_device, shrink::shrink,
};
use maquette_ir::Device;
// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: oracle [--programs N] [--seed S] [--mode NAME[,NAME]] [--device D] [--statements K]
              [--threads N] [--write DIR] [--stats]
       oracle --replay FILE [--mode NAME[,NAME]] [--device D]
       oracle --show INDEX [--seed S] [--statements K]
       oracle --texts DIR[,DIR] [--programs N | --seconds T] [--seed S]
  --programs N    how many random programs to generate (default: 1000)
  --seed S        the seed of the generator; a seed always gives the same programs (default: 1)
  --mode NAME     run only these modes (default: all); `gradients`: differentiate the programs,
                  and run these gradients in every mode that can
  --device D      run the modes on this device, such as `test:0` (default: cpu)
  --statements K  about how many statements a program has at most (default: 12)
  --threads N     how many threads (default: one per core)
  --write DIR     write each failing program, shrunk, to DIR/mode-seed-index.txt
  --stats         print how many programs have each feature
  --replay FILE   check the program in a file; if it fails, print it shrunk
  --show INDEX    print a program
  --texts DIR     mutate the graph texts in these folders, and check what becomes of them
  --seconds T     how long to mutate, instead of how many texts";

struct Options {
    fuzzer: Fuzzer,
    write: Option<PathBuf>,
    replay: Option<PathBuf>,
    show: Option<u64>,
    texts: Option<Vec<PathBuf>>,
    seconds: Option<u64>,
    has_modes: bool,
    device: Device,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let fuzzer = Fuzzer {
        programs: 1000,
        seed: 1,
        statements: 12,
        modes: modes(),
        threads,
        stats: false,
        family: Family::Programs,
    };
    let mut o = Options {
        fuzzer,
        write: None,
        replay: None,
        show: None,
        texts: None,
        seconds: None,
        has_modes: false,
        device: Device::Cpu,
    };
    let mut given: Vec<String> = Vec::new();
    while let Some(arg) = args.next() {
        if given.contains(&arg) {
            return Err(format!("duplicate option `{arg}`\n{USAGE}"));
        }
        given.push(arg.clone());
        match arg.as_str() {
            "--stats" => {
                o.fuzzer.stats = true;
                continue;
            }
            "--programs" | "--seed" | "--mode" | "--statements" | "--threads" | "--write"
            | "--replay" | "--show" | "--texts" | "--seconds" | "--device" => {}
            _ => return Err(format!("unknown option `{arg}`\n{USAGE}")),
        }
        o.has_modes |= arg == "--mode";
        let value = args.next().ok_or_else(|| format!("`{arg}` takes a value\n{USAGE}"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|e| format!("`{arg}` takes a number, found `{value}`: {e}"))
        };
        match arg.as_str() {
            "--programs" => o.fuzzer.programs = number()?,
            "--seed" => o.fuzzer.seed = number()?,
            "--statements" => o.fuzzer.statements = number()?.clamp(1, 1000) as usize,
            "--threads" => o.fuzzer.threads = number()?.clamp(1, 1024) as usize,
            "--mode" if value == "gradients" => {
                o.fuzzer.family = Family::Gradients;
                o.fuzzer.modes = modes_of(Family::Gradients);
            }
            "--mode" => o.fuzzer.modes = value.split(',').map(named).collect::<Result<_, _>>()?,
            "--device" => o.device = value.parse().map_err(|e| format!("{e}"))?,
            "--show" => o.show = Some(number()?),
            "--texts" => o.texts = Some(value.split(',').map(PathBuf::from).collect()),
            "--seconds" => o.seconds = Some(number()?),
            "--write" => o.write = Some(value.into()),
            _ => o.replay = Some(value.into()),
        }
    }
    o.fuzzer.modes = on_device(o.fuzzer.modes, o.device);
    contradiction(&given).map_or(Ok(o), |told| Err(format!("{told}\n{USAGE}")))
}

/// Options that mean nothing beside `--replay`, `--show` and `--texts`, each of which does one
/// thing.
fn contradiction(given: &[String]) -> Option<String> {
    if given.iter().any(|o| o == "--seconds") && !given.iter().any(|o| o == "--texts") {
        return Some("`--seconds` needs `--texts`".to_owned());
    }
    for (alone, beside) in [
        ("--replay", &["--mode", "--device"][..]),
        ("--show", &["--seed", "--statements", "--mode"][..]),
        ("--texts", &["--seed", "--programs", "--seconds"][..]),
    ] {
        let other = given.iter().find(|o| *o != alone && !beside.contains(&o.as_str()));
        if let Some(other) = other.filter(|_| given.iter().any(|o| o == alone)) {
            return Some(format!("`{alone}` and `{other}` cannot be given together"));
        }
    }
    None
}

/// The modes that run what is run of a family.
fn modes_of(family: Family) -> Vec<&'static dyn Mode> {
    match family {
        Family::Programs => modes(),
        Family::Gradients => gradient_modes(),
    }
}

/// Every mode, also those of gradients alone.
fn all_modes() -> Vec<&'static dyn Mode> {
    let mut all = modes();
    let known: Vec<&str> = all.iter().map(|m| m.name()).collect();
    all.extend(gradient_modes().into_iter().filter(|m| !known.contains(&m.name())));
    all
}

fn named(name: &str) -> Result<&'static dyn Mode, String> {
    let all = all_modes();
    let mut known: Vec<&str> = all.iter().map(|m| m.name()).collect();
    known.push("gradients");
    all.iter()
        .copied()
        .find(|m| m.name() == name)
        .ok_or_else(|| format!("unknown mode `{name}`; expected one of {}", known.join(", ")))
}

fn write(dir: &Path, seed: u64, failure: &FuzzFailure) -> std::io::Result<()> {
    let Some(program) = &failure.program else { return Ok(()) };
    std::fs::create_dir_all(dir)?;
    let path = dir.join(format!("{}-{seed}-{}.txt", failure.mode, failure.index));
    let what: String = failure.what.lines().map(|l| format!("# {l}\n")).collect();
    std::fs::write(&path, format!("{what}{program}"))
}

/// Without `modes`, those of the program's family.
fn replay(
    path: &Path,
    modes: Option<&[&'static dyn Mode]>,
    device: Device,
) -> Result<bool, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    maquette_fuzz::oracle::register().map_err(|e| e.to_string())?;
    let program: TestProgram = text.parse().map_err(|e| format!("{}: {e}", path.display()))?;
    let modes = modes.map_or_else(|| on_device(modes_of(program.family), device), <[_]>::to_vec);
    let modes: Vec<&dyn Mode> = modes.into_iter().map(|m| m as &dyn Mode).collect();
    let verdict = |p: &TestProgram| check(p, &modes);
    match verdict(&program).map_err(|e| e.to_string())? {
        Verdict::Agree => say(&"agree\n"),
        Verdict::Refused(why) => {
            say(&format_args!("refused: {why}\n"));
            for at in &program.sizes {
                let given = program.run_inputs(at).map_err(|e| e.to_string())?;
                if let Err(e) = program.call(&given.inputs) {
                    say(&format_args!("eager: {e}\n"));
                }
            }
        }
        Verdict::Mismatch { .. } => {
            let small = shrink(&program, &|p| matches!(verdict(p), Ok(Verdict::Mismatch { .. })));
            if let Ok(Verdict::Mismatch { mode, what }) = verdict(&small) {
                say(&format_args!("{mode}: {what}\n{small}"));
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints; a reader that went away is not a failure.
fn say(text: &dyn std::fmt::Display) {
    let _ = write!(std::io::stdout(), "{text}");
}

/// Mutates graph texts, so many of them or for so long.
fn mutate_texts(o: &Options, folders: &[PathBuf]) -> Result<bool, String> {
    let seeds = Seeds::read(folders).map_err(|e| format!("cannot read the texts: {e}"))?;
    if seeds.is_empty() {
        return Err("the folders of `--texts` have no graph texts".to_owned());
    }
    maquette_fuzz::oracle::register().map_err(|e| e.to_string())?;
    let start = Instant::now();
    let goes_on = |index: u64| match o.seconds {
        Some(seconds) => start.elapsed().as_secs() < seconds,
        None => index < o.fuzzer.programs,
    };
    let mut report = TextReport::default();
    for index in (0..).take_while(|index| goes_on(*index)) {
        seeds.check(o.fuzzer.seed, index, &mut report, &|failure| {
            eprintln!("text {}: {}\n{}", failure.index, failure.what, failure.text);
        });
    }
    say(&format_args!("{report}\n"));
    Ok(report.failures.is_empty())
}

fn run(o: &Options) -> Result<bool, String> {
    let fuzzer = &o.fuzzer;
    if let Some(folders) = &o.texts {
        return mutate_texts(o, folders);
    }
    if let Some(path) = &o.replay {
        return replay(path, o.has_modes.then_some(&fuzzer.modes[..]), o.device);
    }
    if let Some(index) = o.show {
        let made = generate_for(fuzzer.family, fuzzer.seed, index, fuzzer.statements)
            .map_err(|e| e.to_string())?;
        say(&made.program);
        return Ok(true);
    }
    let report = fuzzer.run(&|failure| {
        let program = failure.program.as_ref().map(ToString::to_string).unwrap_or_default();
        eprintln!(
            "program {} of seed {}, {}: {}\n{program}",
            failure.index, fuzzer.seed, failure.mode, failure.what
        );
        if let Some(dir) = &o.write
            && let Err(e) = write(dir, fuzzer.seed, failure)
        {
            eprintln!("cannot write to {}: {e}", dir.display());
        }
    });
    if fuzzer.stats {
        say(&report.stats);
        say(&report.copies);
    }
    say(&format_args!("{report}\n"));
    Ok(report.failures.is_empty())
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match options(std::env::args().skip(1)).and_then(|o| run(&o)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let told = |line: &str| options(line.split(' ').map(String::from)).err();
        for (line, expected) in [
            ("--replay f --show 3", "`--replay` and `--show` cannot be given together"),
            ("--replay f --seed 2", "`--replay` and `--seed` cannot be given together"),
            ("--texts a --mode traced", "`--texts` and `--mode` cannot be given together"),
            ("--seconds 3", "`--seconds` needs `--texts`"),
            ("--stats --show 3", "`--show` and `--stats` cannot be given together"),
            ("--seed 1 --seed 2", "duplicate option `--seed`"),
        ] {
            let told = told(line).unwrap_or_default();
            assert!(told.starts_with(expected), "{line}: {told}");
        }
        for line in [
            "--replay f --mode traced",
            "--show 3 --seed 1 --statements 4",
            "--stats",
            "--texts a,b --seconds 600 --seed 2",
        ] {
            assert_eq!(told(line), None);
        }
    }
}
