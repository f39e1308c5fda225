//! Profiles as tables of at most [`WIDTH`] columns.

use super::{KernelProfile, Profile};
use crate::peaks::Limit;
use maquette_ir::Loc;
use maquette_ops::Work;
use std::fmt;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns of a terminal that a table takes at most.
const WIDTH: usize = 100;

/// The columns of a bar.
const BAR: usize = 10;

/// The rows that are shown. The rest is one row.
const ROWS: usize = 40;

/// The columns before the label.
const NUMBERS: usize = 9 + 1 + 6 + 2 + BAR + 1 + 7 + 1 + 8 + 1 + 7 + 2;

/// A row: one kernel, or several.
pub(super) struct Row {
    pub label: String,
    pub place: Place,
    pub time: Duration,
    pub work: Option<Work>,
    pub bound: Option<Duration>,
    pub limit: Option<Limit>,
}

/// Where the operators of a row are in the program.
#[derive(Default)]
pub(super) struct Place {
    pub lines: Vec<Loc>,
    pub scope: Option<Box<str>>,
}

impl Place {
    /// The lines and the scope, of at most `width` columns.
    fn label(&self, width: usize) -> String {
        let Some(scope) = &self.scope else { return lines_label(&self.lines, width) };
        let scope = format!("@ {scope}");
        let room = width.saturating_sub(columns(&scope) + 1);
        let lines = lines_label(&self.lines, room.max(width / 2));
        cut_front(format!("{lines} {scope}").trim_start(), width)
    }
}

pub(super) struct Table<'a> {
    profile: &'a Profile,
    rows: Vec<Row>,
    /// The sum of the column of times.
    whole: Duration,
}

/// A time in four digits and a unit.
pub(super) fn time_text(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// The number of columns that a text takes.
fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A text of at most `width` columns, cut at its end.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut taken = 0;
    let kept = text.chars().take_while(|c| {
        taken += c.width().unwrap_or_default();
        taken < width
    });
    kept.chain(['…']).collect()
}

/// A text of at most `width` columns, cut at its beginning.
fn cut_front(text: &str, width: usize) -> String {
    let reversed: String = text.chars().rev().collect();
    cut(&reversed, width).chars().rev().collect()
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// A bar for a number from 0 to 1, in eighths of a column.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    format!("{}{}", "█".repeat(eighths / 8), rest[eighths % 8])
}

/// Lines by file, as `a.rs:3, 5; b.rs:7`, of at most `width` columns: without folders if that is
/// too long.
pub(super) fn lines_label(lines: &[Loc], width: usize) -> String {
    let text = |name: &dyn Fn(&'static str) -> &'static str| {
        let mut text = String::new();
        let mut file = "";
        for loc in lines {
            if loc.file == file {
                text += &format!(", {}", loc.line);
            } else {
                let separator = if text.is_empty() { "" } else { "; " };
                text += &format!("{separator}{}:{}", name(loc.file), loc.line);
            }
            file = loc.file;
        }
        text
    };
    let full = text(&|file| file);
    match columns(&full) <= width {
        true => full,
        false => cut_front(&text(&|file| file.rsplit(['/', '\\']).next().unwrap_or(file)), width),
    }
}

/// Units of 10⁹ in a second.
fn rate(amount: u64, time: Duration) -> Option<f64> {
    let rate = amount as f64 / time.as_secs_f64() / 1e9;
    (amount > 0 && rate.is_finite()).then_some(rate)
}

/// A number of at most 6 columns.
fn number(rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(n) if n >= 1e3 => format!("{n:.0}"),
        Some(n) if n >= 1.0 => format!("{n:.1}"),
        Some(n) => format!("{n:.2}"),
    }
}

impl KernelProfile {
    /// The label of kernels with the same operators.
    pub(super) fn label_of_group(&self) -> String {
        match self.kind {
            super::KernelKind::Copy => "copy".to_owned(),
            _ => self.label(),
        }
    }

    fn row(&self, profile: &Profile) -> Row {
        let bound = profile.peaks.as_ref().and_then(|peaks| self.bound(peaks));
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        Row {
            label: match sizes.is_empty() {
                true => self.label(),
                false => format!("{} [{}]", self.label(), sizes.join(", ")),
            },
            place: Place { lines: self.lines(), scope: self.scope().map(Into::into) },
            time: self.timing.median,
            work: self.work,
            bound: bound.map(|bound| bound.time),
            limit: bound.map(|bound| bound.limit),
        }
    }
}

impl<'a> Table<'a> {
    /// A table of these rows, in this order.
    pub fn new(profile: &'a Profile, rows: Vec<Row>) -> Table<'a> {
        let kernels: Duration = rows.iter().map(|row| row.time).sum();
        Table { profile, rows, whole: kernels + profile.between.median }
    }

    fn share(&self, time: Duration) -> f64 {
        let whole = self.whole.as_secs_f64();
        if whole > 0.0 { time.as_secs_f64() / whole } else { 0.0 }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, row: &Row, label: usize) -> fmt::Result {
        let share = self.share(row.time);
        let gbytes = number(row.work.and_then(|work| rate(work.bytes(), row.time)));
        let gflops = number(row.work.and_then(|work| rate(work.flops, row.time)));
        let peak = row.bound.filter(|bound| !bound.is_zero()).map_or_else(String::new, |bound| {
            let of = bound.as_secs_f64() / row.time.as_secs_f64().max(1e-12);
            let limit = row.limit.map_or(" ", Limit::letter);
            format!("{:.0} % {limit}", of * 100.0)
        });
        let lines = row.place.label((WIDTH - NUMBERS).saturating_sub(label + 2));
        let text = match lines.is_empty() {
            true => cut(&row.label, WIDTH - NUMBERS),
            false => format!("{}  {lines}", padded(&cut(&row.label, label), label)),
        };
        let line = format!(
            "{} {}  {} {} {} {}  {text}",
            right(&time_text(row.time), 9),
            right(&format!("{:.1} %", share * 100.0), 6),
            padded(&bar(share), BAR),
            right(&gbytes, 7),
            right(&gflops, 8),
            right(&peak, 7),
        );
        write!(f, "\n{}", line.trim_end())
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile { name, threads, runs, between, kernels, peaks, is_compiled, .. } =
            self.profile;
        let threads =
            if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let count = kernels.iter().filter(|kernel| kernel.timing.count > 0).count();
        write!(
            f,
            "`{name}` on {threads}: {} a run (median of {}, least {}), {count} kernel{}",
            time_text(runs.median),
            runs.count,
            time_text(runs.min),
            if count == 1 { "" } else { "s" }
        )?;
        if !is_compiled {
            return write!(f, "\nit runs operator by operator, which is not timed");
        }
        match peaks {
            Some(peaks) => write!(f, "\npeaks: {}", peaks.summary())?,
            None => write!(f, "\npeaks: not known")?,
        }
        let room = WIDTH - NUMBERS;
        // The lines take half of the room at most, unless labels leave more.
        let lines = self.rows.iter().map(|row| columns(&row.place.label(room / 2)));
        let lines = lines.max().unwrap_or_default();
        let labels = self.rows.iter().map(|row| columns(&row.label)).max().unwrap_or_default();
        let label = labels.min(room.saturating_sub(lines + 2));
        let header = format!(
            "{} {}  {} {} {} {}  kernel",
            right("time", 9),
            right("share", 6),
            padded("", BAR),
            right("GB/s", 7),
            right("GFLOP/s", 8),
            right("of peak", 7),
        );
        write!(f, "\n{header}")?;
        for row in self.rows.iter().take(ROWS) {
            self.write(f, row, label)?;
        }
        let rest = self.rows.get(ROWS..).unwrap_or_default();
        let mut last = Vec::new();
        if !rest.is_empty() {
            last.push((format!("({} more)", rest.len()), rest.iter().map(|row| row.time).sum()));
        }
        last.push(("(between kernels)".to_owned(), between.median));
        for (label, time) in last {
            let place = Place::default();
            let row = Row { label, place, time, work: None, bound: None, limit: None };
            self.write(f, &row, 0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = self.kernels.iter().filter(|kernel| kernel.timing.count > 0);
        let mut rows: Vec<Row> = kernels.map(|kernel| kernel.row(self)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        Table::new(self, rows).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_the_columns_that_they_take() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(columns(&cut("行列の積行列の積", 7)), 7);
        assert_eq!(cut_front("src/model.rs:31", 10), "…del.rs:31");
        assert_eq!(columns(&padded("µ行", 6)), 6);
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(7.0), "█".repeat(BAR));
        assert_eq!(bar(1.5 / BAR as f64), "█▌");
    }

    #[test]
    fn lines_name_a_file_once() {
        let at = |file, line| Loc { file, line };
        let lines = [at("a.rs", 3), at("a.rs", 5), at("b.rs", 7)];
        assert_eq!(lines_label(&lines, 100), "a.rs:3, 5; b.rs:7");
        assert_eq!(lines_label(&[], 100), "");
        assert_eq!(lines_label(&[at("src/a/b.rs", 3), at("src/a/b.rs", 5)], 10), "b.rs:3, 5");
        assert_eq!(lines_label(&[at("src/a/b.rs", 3), at("src/a/b.rs", 5)], 8), "…rs:3, 5");
    }

    #[test]
    fn times_have_a_unit() {
        let texts = [12, 12_345, 1_234_567, 2_345_678_901].map(Duration::from_nanos).map(time_text);
        assert_eq!(texts, ["12 ns", "12.3 µs", "1.23 ms", "2.35 s"]);
    }
}
