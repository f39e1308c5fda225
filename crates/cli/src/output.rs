//! Standard output and standard error of the command.
//!
//! `println!` panics if it cannot write. The command prints through [`Output`] instead, and the
//! subcommands return its errors.

use anstream::AutoStream;
use maquette::{Error, ErrorKind};
use std::io::{self, ErrorKind as Io, StdoutLock, Write};

/// Standard output, with colours if it is a terminal.
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

/// Adds the name of the stream to an error.
fn named(e: io::Error) -> io::Error {
    match e.kind() {
        // Callers retry the first, and stop silently on the second.
        Io::Interrupted | Io::BrokenPipe => e,
        kind => io::Error::new(kind, format!("cannot write to standard output: {e}")),
    }
}

/// Whether an error means that the reader has closed the pipe, as in `maquette demo | head -1`.
pub fn is_closed_pipe(e: &Error) -> bool {
    let ErrorKind::Other(inner) = e.kind() else { return false };
    inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == Io::BrokenPipe)
}

/// Writes a line to standard error. A failure is ignored, since there is nowhere to report it.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
