//! Profiles in the trace event format of Chrome, which Perfetto and `chrome://tracing` show.

use super::{KernelProfile, Profile};
use std::fmt::Write;
use std::time::Duration;

/// A string of JSON, with its quotes.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if (c as u32) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Microseconds, to the nanosecond.
fn micros(time: Duration) -> String {
    format!("{:.3}", time.as_nanos() as f64 / 1e3)
}

impl KernelProfile {
    /// The arguments of its events, as a JSON object.
    fn arguments(&self, peaks: Option<&crate::peaks::Peaks>) -> String {
        let mut args = format!(
            "\"result\": {}, \"sizes\": {}, \"operators\": {}, \"lines\": {}",
            string(&format!("%{}", self.value)),
            list(self.sizes.iter().map(ToString::to_string)),
            list(self.operators.iter().map(|op| string(&op.name))),
            list(self.lines().iter().map(|loc| string(&loc.to_string()))),
        );
        if let Some(scope) = self.scope() {
            let _ = write!(args, ", \"scope\": {}", string(scope));
        }
        if let Some(work) = &self.work {
            let _ = write!(
                args,
                ", \"flops\": {}, \"bytes read\": {}, \"bytes written\": {}",
                work.flops, work.bytes_read, work.bytes_written
            );
        }
        if let Some(bound) = peaks.and_then(|peaks| self.bound(peaks)) {
            let limit = string(bound.limit.name());
            let _ = write!(args, ", \"bound µs\": {}, \"limit\": {limit}", micros(bound.time));
        }
        format!("{{{args}}}")
    }
}

impl Profile {
    /// The launches of the fastest run as a JSON text in the trace event format, which Perfetto
    /// (<https://ui.perfetto.dev>) shows as a time line. An event has the operators of its kernel,
    /// their lines and scope, and its work.
    pub fn chrome_trace(&self) -> String {
        let event = |name: &str, start: Duration, time: Duration, args: &str| {
            format!(
                "{{\"name\": {}, \"cat\": \"kernel\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \
                    \"ts\": {}, \"dur\": {}, \"args\": {args}}}",
                string(name),
                micros(start),
                micros(time),
            )
        };
        let process = string(&format!("maquette: {}", self.name));
        let mut events = vec![
            format!(
                "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": 1, \
                    \"args\": {{\"name\": {process}}}}}"
            ),
            event(&self.name, Duration::ZERO, self.timeline.run, "{}"),
        ];
        for launched in &self.timeline.launches {
            if let Some(kernel) = self.kernels.get(launched.kernel as usize) {
                let args = kernel.arguments(self.peaks.as_ref());
                events.push(event(&kernel.label(), launched.start, launched.time, &args));
            }
        }
        let events = events.join(",\n");
        format!("{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n{events}\n]}}\n")
    }
}
