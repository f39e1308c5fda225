//! Syntax highlighting of graph text.

use anstyle::{AnsiColor, Style};
use maquette::DType;

const VALUE: Style = AnsiColor::Cyan.on_default();
const KEYWORD: Style = AnsiColor::Magenta.on_default();
const TYPE: Style = AnsiColor::Yellow.on_default();
const STRING: Style = AnsiColor::Green.on_default();
const OPERATOR: Style = Style::new().bold();

const KEYWORDS: [&str; 12] = [
    "graph", "where", "in", "guard", "const", "bind", "assert", "return", "strides", "offset",
    "copy", "effect",
];

/// Graph text with escape codes for colours. [`Output`](crate::output::Output) removes the codes if
/// standard output is not a terminal.
pub fn graph(text: &str) -> String {
    let mut coloured = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while !rest.is_empty() {
        let (length, style) = token(rest);
        let (word, after) = rest.split_at(length);
        match style {
            Some(style) => coloured += &format!("{style}{word}{style:#}"),
            None => coloured += word,
        }
        rest = after;
    }
    coloured
}

/// The length of the first token, and its colour.
fn token(text: &str) -> (usize, Option<Style>) {
    let is_word = |c: char| c.is_alphanumeric() || "_.:".contains(c);
    let word = |from: &str| from.find(|c| !is_word(c)).unwrap_or(from.len());
    match text.chars().next() {
        Some('%') => {
            // The colon after a name separates it from its type.
            let name = &text[..1 + word(&text[1..])];
            (name.trim_end_matches(':').len(), Some(VALUE))
        }
        Some('"') => (string(text), Some(STRING)),
        Some(c) if is_word(c) => {
            let found = &text[..word(text)];
            let style = if KEYWORDS.contains(&found) {
                Some(KEYWORD)
            } else if DType::ALL.iter().any(|d| d.name() == found) {
                Some(TYPE)
            } else {
                found.contains("::").then_some(OPERATOR)
            };
            (found.len(), style)
        }
        c => (c.map_or(0, char::len_utf8), None),
    }
}

/// The length of the string literal at the start of a text, quotes included.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn colours_change_no_character() {
        let text = "graph g(%x: f32[n]) -> (f32[n])\n  where n in [1, oo)\n{\n  %é.0: f32[n] = \
            aten::add.Tensor(%x, 1.0, \"a \\\" %b\")\n  return %é.0\n}\n";
        let coloured = super::graph(text);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text);
        for shown in [
            "\u{1b}[36m%x\u{1b}[0m: \u{1b}[33mf32\u{1b}[0m[",
            "\u{1b}[1maten::add.Tensor\u{1b}[0m(",
            "\u{1b}[32m\"a \\\" %b\"\u{1b}[0m)",
            "\u{1b}[35mreturn\u{1b}[0m ",
        ] {
            assert!(coloured.contains(shown), "{shown:?} is not in {coloured:?}");
        }
        for unfinished in ["\"", "\"a\\", "%", "aten::", ""] {
            assert_eq!(
                anstream::adapter::strip_str(&super::graph(unfinished)).to_string(),
                unfinished
            );
        }
    }
}
