//! Mutations of graph texts. Most change tokens, so that many mutated texts still parse.

use maquette_check::Rng;
use maquette_ir::functional_ops;

/// Tokens that mean something in many places of a graph text.
const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "7",
    "63",
    "64",
    "65",
    "-1",
    "-2",
    "0.5",
    "-0.0",
    "inf",
    "nan",
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
    "None",
    "true",
    "false",
    "f32",
    "f64",
    "f16",
    "bf16",
    "i64",
    "i32",
    "u8",
    "bool",
    "copy",
    "effect",
    "strides",
    "offset",
    "requires_grad",
    "device",
    "cuda:0",
    "cpu",
    "meta",
    "min",
    "max",
    "oo",
    "s0",
    "s1",
    "u0",
    "n",
    "[]",
    "[1]",
    "[0]",
    "[2, 3]",
    "int(1)",
    "float",
    "str",
    "dtype=f64",
    "dim=0",
    "alpha=2",
    "keepdim=true",
    "\"\"",
    "_",
    "//",
    "%",
    "*",
    "+",
    "size",
    "where",
    "guard",
    "bind",
    "assert",
    "const",
    "return",
    functional_ops::CALL,
    functional_ops::VIEW,
    functional_ops::SCATTER,
    functional_ops::STRIDED,
];

const DTYPES: &[&str] = &["f32", "f64", "f16", "bf16", "i64", "i32", "i16", "u8", "bool"];

/// Characters that are inserted.
const CHARACTERS: &[char] = &[
    '(', ')', '[', ']', '{', '}', ',', ':', '%', '=', '"', '.', '-', '0', '9', 'x', ' ', '\n',
    '\u{0}', 'é',
];

/// A token: a name, a number, a run of spaces, or another character.
fn tokens(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        c if c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '%' | '-') => 1,
        ' ' => 2,
        _ => 3,
    };
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut last = 0;
    for (i, c) in text.char_indices() {
        let now = class(c);
        if i > start && (now != last || now == 3) {
            tokens.extend(text.get(start..i));
            start = i;
        }
        last = now;
    }
    tokens.extend(text.get(start..));
    tokens
}

/// One seed, and the names of operators that occur in any.
pub(super) fn mutate(rng: &mut Rng, seed: &str, operators: &[String]) -> String {
    let mut text = seed.to_owned();
    let times = if rng.chance(60) { 1 } else { 1 + rng.below(3) };
    for _ in 0..times {
        text = match rng.below(20) {
            0 => characters(rng, &text),
            1..=3 => lines(rng, &text),
            4..=7 => operator(rng, &text, operators),
            8..=10 => number(rng, &text),
            11..=15 => everywhere(rng, &text),
            _ => token(rng, &text),
        };
    }
    text
}

fn characters(rng: &mut Rng, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let at = rng.below(characters.len());
    let other = rng.one(CHARACTERS).unwrap_or(' ');
    match rng.below(3) {
        0 => characters.insert(at, other),
        1 if !characters.is_empty() => drop(characters.remove(at)),
        _ => characters.iter_mut().skip(at).take(1).for_each(|c| *c = other),
    }
    characters.into_iter().collect()
}

fn lines(rng: &mut Rng, text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let (a, b) = (rng.below(lines.len()), rng.below(lines.len()));
    if lines.is_empty() {
        return String::new();
    }
    match rng.below(3) {
        0 => drop(lines.remove(a)),
        1 => lines.insert(a, lines[b]),
        _ => lines.swap(a, b),
    }
    lines.join("\n") + "\n"
}

/// Replaces one of the tokens that `wanted` accepts.
fn replace(
    rng: &mut Rng,
    text: &str,
    wanted: impl Fn(&str) -> bool,
    by: impl FnOnce(&mut Rng, &str) -> String,
) -> String {
    let tokens = tokens(text);
    let found: Vec<usize> = (0..tokens.len()).filter(|&i| wanted(tokens[i])).collect();
    let Some(at) = rng.one(&found) else { return text.to_owned() };
    let new = by(rng, tokens[at]);
    let all = tokens.iter().enumerate().map(|(i, t)| if i == at { new.as_str() } else { t });
    all.collect()
}

fn operator(rng: &mut Rng, text: &str, operators: &[String]) -> String {
    let other = rng.one(operators);
    replace(rng, text, |t| t.contains("::"), |_, old| other.unwrap_or_else(|| old.to_owned()))
}

fn number(rng: &mut Rng, text: &str) -> String {
    replace(
        rng,
        text,
        |t| t.parse::<i64>().is_ok(),
        |rng, old| {
            let old: i64 = old.parse().unwrap_or_default();
            let choices = [old.wrapping_add(1), old.wrapping_sub(1), old.wrapping_neg(), 0, 1, 2];
            rng.one(&choices).unwrap_or_default().to_string()
        },
    )
}

/// Replaces a size, a dtype or a symbol wherever it occurs, which keeps types consistent.
fn everywhere(rng: &mut Rng, text: &str) -> String {
    let tokens = tokens(text);
    let is_dtype = |t: &str| DTYPES.contains(&t);
    let found: Vec<&str> =
        tokens.iter().copied().filter(|t| t.parse::<i64>().is_ok() || is_dtype(t)).collect();
    let Some(old) = rng.one(&found) else { return text.to_owned() };
    let new = match is_dtype(old) {
        true => rng.one(DTYPES),
        false => rng.one(&["0", "1", "2", "3", "4", "5", "6", "8", "n", "s0"]),
    };
    let new = new.unwrap_or_default();
    tokens.iter().map(|t| if *t == old { new } else { t }).collect()
}

fn token(rng: &mut Rng, text: &str) -> String {
    let mut tokens = tokens(text);
    let solid: Vec<usize> = (0..tokens.len()).filter(|&i| !tokens[i].trim().is_empty()).collect();
    let (Some(a), Some(b)) = (rng.one(&solid), rng.one(&solid)) else { return text.to_owned() };
    match rng.below(6) {
        0 => drop(tokens.remove(a)),
        1 => tokens.insert(a, tokens[b]),
        2 => tokens.swap(a, b),
        3 => tokens[a] = tokens[b],
        _ => tokens[a] = rng.one(WORDS).unwrap_or_default(),
    }
    tokens.concat()
}
