//! The protocol of `compare.py`, which the workers in Rust have in common.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

/// An error of any kind.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A run of a case, with errors of an engine.
pub type Run<E> = Box<dyn FnMut() -> Result<(), E>>;

/// Reads lines `SECONDS CASE`, runs the case for that long, and prints the least time of a run in
/// microseconds, or `-` if `prepare` has no such case. Two runs before are not timed.
///
/// # Errors
/// Those of `prepare`, of runs, and of the lines.
pub fn serve<E: Into<Failure>>(
    mut prepare: impl FnMut(&str) -> Result<Option<Run<E>>, E>,
) -> Result<(), Failure> {
    let mut ready: Option<(String, Option<Run<E>>)> = None;
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some((seconds, name)) = line.split_once(' ') else { continue };
        let seconds: f64 = seconds.parse()?;
        if ready.as_ref().is_none_or(|(of, _)| of != name) {
            drop(ready.take()); // one model in memory at a time
            let mut run = prepare(name).map_err(E::into)?;
            if let Some(run) = &mut run {
                run().map_err(E::into)?;
                run().map_err(E::into)?;
            }
            ready = Some((name.to_owned(), run));
        }
        match &mut ready {
            Some((_, Some(run))) => {
                writeln!(out, "{:.3}", least(run, seconds).map_err(E::into)?)?;
            }
            _ => writeln!(out, "-")?,
        }
        out.flush()?;
    }
    Ok(())
}

/// The least time of a run, in microseconds.
fn least<E>(run: &mut Run<E>, seconds: f64) -> Result<f64, E> {
    let (mut least, begun) = (f64::INFINITY, Instant::now());
    while begun.elapsed().as_secs_f64() < seconds || least.is_infinite() {
        let start = Instant::now();
        run()?;
        least = least.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(least)
}
