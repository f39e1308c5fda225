//! Many threads call shared compiled functions for a long time: `cargo run --release -p
//! maquette-fuzz --bin soak -- --seconds 600 --threads 8 --seed 1`.
//!
//! Prints the resident memory each 10 seconds. Exits with 1 where a call does not do what the eager
//! function does, or memory grows; with 2 on bad options.

use maquette_check::maquette_ops::release_cached_memory;
use maquette_fuzz::soak::{Soak, resident_bytes};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: soak [--seconds N] [--threads N] [--seed S] [--functions N] [--programs N] [--calls N]
  --seconds N    how long to call (default: 600)
  --threads N    on how many threads (default: 8)
  --seed S       the seed of the programs (default: 1)
  --functions N  how many compiled functions are called at a time (default: 32)
  --programs N   how many different ones there are (default: 64)
  --calls N      after how many calls another function takes the place of one (default: 200)";

/// The time after which memory has to be flat, and the time between two reports.
const WARM_UP: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_secs(10);
/// By how much later memory may exceed the most of the first minute: a fourth, and this.
const MARGIN: u64 = 32 << 20;

fn main() -> ExitCode {
    let mut soak = Soak { threads: 8, seed: 1, functions: 32, programs: 64, calls_of_one: 200 };
    let mut seconds = 600;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let number = args.next().and_then(|n| n.parse::<u64>().ok());
        match (arg.as_str(), number) {
            ("--seconds", Some(n)) => seconds = n,
            ("--threads", Some(n @ 1..=1024)) => soak.threads = n as usize,
            ("--seed", Some(n)) => soak.seed = n,
            ("--functions", Some(n @ 1..=4096)) => soak.functions = n as usize,
            ("--programs", Some(n @ 1..)) => soak.programs = n,
            ("--calls", Some(n @ 1..)) => soak.calls_of_one = n,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let (begun, end) = (Instant::now(), Duration::from_secs(seconds));
    let calls = AtomicU64::new(0);
    let goes_on = |n| {
        calls.fetch_max(n, Ordering::Relaxed);
        begun.elapsed() < end
    };
    let (report, memory) = thread::scope(|scope| {
        let watched = scope.spawn(|| watch(begun, end, &calls));
        (soak.run(&goes_on), watched.join())
    });
    let (report, memory) = match (report, memory) {
        (Ok(report), Ok(memory)) => (report, memory),
        (Err(e), _) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
        (_, Err(_)) => return ExitCode::from(2),
    };
    report.failures.iter().for_each(|what| println!("{what}"));
    println!(
        "{} calls, {} refused, of {} functions on {} threads, {} mismatches",
        report.calls,
        report.refused,
        report.functions,
        soak.threads,
        report.failures.len()
    );
    ExitCode::from(u8::from(!report.failures.is_empty() || !memory))
}

/// Prints the resident memory each period. Whether it stays flat.
fn watch(begun: Instant, end: Duration, calls: &AtomicU64) -> bool {
    let (mut early, mut late) = (0, 0);
    while begun.elapsed() < end {
        thread::sleep(PERIOD.min(end.saturating_sub(begun.elapsed())));
        // what the allocator keeps for later is not a leak
        release_cached_memory();
        let Some(bytes) = resident_bytes() else { return true };
        let most = if begun.elapsed() <= WARM_UP + PERIOD / 2 { &mut early } else { &mut late };
        *most = bytes.max(*most);
        let calls = calls.load(Ordering::Relaxed);
        println!("{:>5} s  {calls:>9} calls  {:>6} MiB", begun.elapsed().as_secs(), bytes >> 20);
    }
    let bound = early + early / 4 + MARGIN;
    println!(
        "resident memory: at most {} MiB in the first minute, {} MiB after it; the bound is {} MiB",
        early >> 20,
        late >> 20,
        bound >> 20
    );
    late <= bound
}
