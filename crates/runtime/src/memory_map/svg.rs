//! Maps as pictures: time to the right, addresses down.
//!
//! A buffer of the arena is a rectangle from its first kernel to its last, and from its first byte
//! to its last. Two rectangles never overlap: that is the invariant of the arena's layout. Buffers
//! with memory of their own are bars below, and the kernels are named under these.

use super::{BufferMemory, MappedBuffer, MemoryMap};
use std::fmt::Write;

/// The left margin, in which addresses stand.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
/// The top margin, in which the title stands.
const TOP: f64 = 56.0;
/// The height of the arena.
const ARENA: f64 = 420.0;
/// The height of a bar below the arena.
const BAR: f64 = 18.0;
/// The height of the names of kernels.
const NAMES: f64 = 190.0;
/// The width of a character of the font.
const CHARACTER: f64 = 6.6;
/// The colours of buffers.
const COLOURS: [&str; 8] =
    ["#8dd3c7", "#ffffb3", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5"];

/// A text in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Bytes with a unit, in two decimals at most.
fn bytes_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        n if n >= 1 << 30 => (1u64 << 30, "GiB"),
        n if n >= 1 << 20 => (1 << 20, "MiB"),
        n if n >= 1 << 10 => (1 << 10, "KiB"),
        _ => return format!("{bytes} B"),
    };
    let number = format!("{:.2}", bytes as f64 / unit as f64);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A text that fits a width, cut if need be; empty if there is no room for a few characters.
fn fitting(text: &str, width: f64) -> String {
    let room = (width / CHARACTER).floor().max(0.0) as usize;
    let count = text.chars().count();
    match room {
        room if room >= count => text.to_owned(),
        0..4 => String::new(),
        room => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

struct Picture<'a> {
    map: &'a MemoryMap,
    /// The width of a kernel.
    column: f64,
    text: String,
}

impl Picture<'_> {
    fn x(&self, kernel: usize) -> f64 {
        LEFT + kernel as f64 * self.column
    }

    /// A rectangle for a buffer, from `top` with a height.
    fn buffer(&mut self, index: usize, buffer: &MappedBuffer, top: f64, height: f64) {
        let (first, last) = buffer.lifetime;
        let (x, width) = (self.x(first), (last + 1 - first) as f64 * self.column);
        let colour = COLOURS[index % COLOURS.len()];
        let names = buffer.values.join(", ");
        let size = bytes_text(buffer.bytes);
        let place = match buffer.memory {
            BufferMemory::Arena { offset } => format!("arena + {offset}"),
            memory => memory.name().to_owned(),
        };
        let title = escaped(&format!("{names}\n{size}, {place}, kernels {first} to {last}"));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                fill=\"{colour}\" stroke=\"#444\" stroke-width=\"0.7\"><title>{title}</title></rect>"
        );
        let own = !matches!(buffer.memory, BufferMemory::Arena { .. });
        let prefix = if own { format!("{}: ", buffer.memory.name()) } else { String::new() };
        let full = format!("{prefix}{names} {size}");
        let room = width - 6.0;
        let y = top + height / 2.0 + 4.0;
        if height < 12.0 {
            return;
        }
        let (x, anchor, label) = match fitting(&full, room) == full {
            true => (x + 3.0, "start", full),
            // Beside the bar there is room on one of its sides.
            false if own && first * 2 > self.map.kernels.len() => (x - 3.0, "end", full),
            false if own => (x + width + 3.0, "start", full),
            false => (x + 3.0, "start", fitting(&names, room)),
        };
        if !label.is_empty() {
            let label = escaped(&label);
            let _ = writeln!(
                self.text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text>"
            );
        }
    }

    /// Lines of addresses, at most eight of them, at multiples of a power of two.
    fn addresses(&mut self, right: f64) {
        let bytes = self.map.arena_bytes.max(1);
        let step = (bytes / 8).max(1).next_power_of_two();
        for at in (0..=bytes / step).map(|i| i * step).filter(|at| *at <= bytes) {
            let y = TOP + at as f64 / bytes as f64 * ARENA;
            let (left, below, text) = (LEFT - 6.0, y + 4.0, bytes_text(at));
            let _ = writeln!(
                self.text,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" \
                    stroke=\"#ddd\"/>\n\
                <text x=\"{left}\" y=\"{below:.1}\" text-anchor=\"end\">{text}</text>"
            );
        }
    }

    /// The names of the kernels, turned, under their columns.
    fn names(&mut self, top: f64) {
        for (i, kernel) in self.map.kernels.iter().enumerate() {
            let label = escaped(&fitting(&format!("{i} {}", kernel.label), NAMES - 10.0));
            let lines: Vec<String> = kernel.lines.iter().map(ToString::to_string).collect();
            let title = escaped(&format!("{}\n{}", kernel.label, lines.join(", ")));
            let x = self.x(i) + self.column / 2.0 - 4.0;
            let _ = writeln!(
                self.text,
                "<text transform=\"translate({x:.1} {top:.1}) rotate(90)\">{label}\
                    <title>{title}</title></text>"
            );
        }
    }
}

impl MemoryMap {
    /// The map as an SVG picture: kernels from left to right, addresses of the arena from top to
    /// bottom. Each buffer shows its values, size and place to a pointer that rests on it.
    pub fn svg(&self) -> String {
        let kernels = self.kernels.len().max(1);
        let column = (1_000.0 / kernels as f64).clamp(16.0, 220.0);
        let others: Vec<&MappedBuffer> = self
            .buffers
            .iter()
            .filter(|b| !matches!(b.memory, BufferMemory::Arena { .. }))
            .collect();
        let right = LEFT + kernels as f64 * column;
        let width = (right + RIGHT).max(640.0);
        let bars = TOP + ARENA + 14.0;
        let names = bars + others.len() as f64 * BAR + 10.0;
        let height = names + NAMES;
        let mut picture = Picture { map: self, column, text: String::new() };
        let title = escaped(&self.name);
        let _ = writeln!(
            picture.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
                width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"monospace\" \
                font-size=\"11\">\n\
            <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
            <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}: memory of {} kernels</text>\n\
            <text x=\"{LEFT}\" y=\"42\">arena of {}, {} in use at one time, {} without sharing\
            </text>",
            self.kernels.len(),
            bytes_text(self.arena_bytes),
            bytes_text(self.live_bytes()),
            bytes_text(self.bytes_without_sharing()),
        );
        picture.addresses(right);
        let scale = ARENA / self.arena_bytes.max(1) as f64;
        let mut below = bars;
        for (index, buffer) in self.buffers.iter().enumerate() {
            match buffer.memory {
                BufferMemory::Arena { offset } => {
                    let (top, height) = (TOP + offset as f64 * scale, buffer.bytes as f64 * scale);
                    picture.buffer(index, buffer, top, height);
                }
                _ => {
                    picture.buffer(index, buffer, below, BAR - 4.0);
                    below += BAR;
                }
            }
        }
        picture.names(names);
        picture.text + "</svg>\n"
    }
}
