//! Standard output and standard error of the command.
//!
//! `println!` panics where it cannot write. Everything that this command prints goes through
//! [`Output`] instead, whose errors the subcommands return.

use anstream::AutoStream;
use maquette::{Error, ErrorKind};
use std::io::{self, ErrorKind as Io, StdoutLock, Write};

/// Standard output, in colour where it is a terminal.
pub struct Output(AutoStream<StdoutLock<'static>>);

impl Output {
    /// Locks standard output.
    pub fn new() -> Output {
        Output(anstream::stdout().lock())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// The same error, with what could not be written.
fn named(e: io::Error) -> io::Error {
    match e.kind() {
        // the callers try again, or stop without a word
        Io::Interrupted | Io::BrokenPipe => e,
        kind => io::Error::new(kind, format!("cannot write to standard output: {e}")),
    }
}

/// Whether an error says that nobody reads the output any more, as of `maquette demo | head -1`.
pub fn is_closed_pipe(e: &Error) -> bool {
    let ErrorKind::Other(inner) = e.kind() else { return false };
    inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == Io::BrokenPipe)
}

/// Writes a line to standard error. Where that is closed too, nobody is left to be told.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
