//! The form of a filetest: a comment that says the point, directives, a graph, expected output.
//!
//! Comments of graph text begin with `#`, so a whole file is one graph text: directives are lines
//! that begin with `#!`, lines of expected output begin with `#>`. A word that is no directive, or
//! an option that its pass does not have, is an error, as a misspelt directive would test nothing.

use maquette_ops::library::{Effect, Resource, Tag};
use maquette_rewrite::{Level, Options, Rematerialization, rules};

/// What a file tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The functional graph.
    Functionalize,
    /// The functional graph and its plan.
    Bufferize,
    /// How the program runs in memory: by which plan, or as it is.
    SelectPlan,
    /// The functional graph in which values are computed again.
    Rematerialize(Rematerialization),
    /// The graph whose regions are nodes, and why others are none.
    Fuse,
    /// The functional graph, and which calls effects order.
    Order,
}

/// A custom operator that a file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its name, with a namespace.
    pub name: String,
    /// Its arguments and results.
    pub signature: String,
    pub tag: Option<Tag>,
    pub effect: Option<Effect>,
}

impl Operator {
    /// Reads `ns::name(arguments) -> results`, and then `tag NAME` and the effect where they hold.
    fn parse(text: &str) -> Result<Operator, String> {
        let (text, effect) = match text.rsplit_once(" effect") {
            Some((rest, "")) => (rest, Some(Effect::Ordered)),
            Some((rest, on)) => {
                let name = on.strip_prefix("(\"").and_then(|on| on.strip_suffix("\")"));
                let name = name.ok_or("an effect is `effect` or `effect(\"resource\")`")?;
                (rest, Some(Effect::On(Resource::new(name))))
            }
            None => (text, None),
        };
        let (schema, tag) = match text.split_once(" tag ") {
            Some((schema, tag)) => (schema, Some(tag.trim().parse().map_err(|e| format!("{e}"))?)),
            None => (text, None),
        };
        let open = schema.find('(').ok_or_else(|| format!("no operator's schema: `{schema}`"))?;
        let (name, signature) = schema.split_at(open);
        Ok(Operator { name: name.into(), signature: signature.into(), tag, effect })
    }
}

/// A file, read.
#[derive(Debug)]
pub struct FileTest {
    pub pass: Pass,
    pub options: Options,
    pub operators: Vec<Operator>,
    /// Rules that must be of use.
    pub fires: Vec<String>,
    /// Rules that must not be.
    pub rejects: Vec<String>,
    /// All in front of the expected output.
    pub input: String,
    pub expected: String,
}

const EXPECTED: &str = "#>";
const DIRECTIVE: &str = "#!";

impl FileTest {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The line at fault, and what is wrong with it.
    pub fn parse(text: &str) -> Result<FileTest, String> {
        let point = text.lines().next().unwrap_or_default();
        let says = point.strip_prefix('#').filter(|p| !p.starts_with(['!', '>']));
        if says.is_none_or(|p| p.trim().is_empty()) {
            return Err("line 1: expected a comment that says the point of the file".into());
        }
        let mut header = Header::default();
        let (mut input, mut expected) = (String::new(), String::new());
        let mut graph_begins = false;
        for (at, line) in text.lines().enumerate() {
            let fail = |message: &str| format!("line {}: {message}", at + 1);
            if let Some(output) = line.strip_prefix(EXPECTED) {
                expected += output.strip_prefix(' ').unwrap_or(output);
                expected += "\n";
                continue;
            }
            if !expected.is_empty() {
                return Err(fail("nothing comes behind the expected output"));
            }
            if let Some(directive) = line.strip_prefix(DIRECTIVE) {
                if graph_begins {
                    return Err(fail("directives come before the graph"));
                }
                header.directive(directive.trim()).map_err(|e| fail(&e))?;
            }
            graph_begins |= !line.starts_with('#') && !line.trim().is_empty();
            input += line;
            input += "\n";
        }
        let Header { pass, options, operators, fires, rejects } = header;
        let pass = pass.ok_or(
            "no directive `#! test PASS`: PASS is one of functionalize, \
            bufferize, select-plan, rematerialize, fuse, order",
        )?;
        Ok(FileTest { pass, options, operators, fires, rejects, input, expected })
    }

    /// The file's text with this output as the expected one.
    pub fn blessed(&self, output: &str) -> String {
        let lines: Vec<String> = output
            .lines()
            .map(|l| if l.is_empty() { EXPECTED.into() } else { format!("{EXPECTED} {l}") })
            .collect();
        format!("{}\n\n{}\n", self.input.trim_end(), lines.join("\n"))
    }
}

#[derive(Default)]
struct Header {
    pass: Option<Pass>,
    options: Options,
    operators: Vec<Operator>,
    fires: Vec<String>,
    rejects: Vec<String>,
}

impl Header {
    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "test" => self.test(rest),
            "op" => {
                self.operators.push(Operator::parse(rest)?);
                Ok(())
            }
            "fires" => known_rules(rest).map(|rules| self.fires.extend(rules)),
            "rejects" => known_rules(rest).map(|rules| self.rejects.extend(rules)),
            _ => Err(format!("no directive `{word}`; there are test, op, fires, rejects")),
        }
    }

    fn test(&mut self, text: &str) -> Result<(), String> {
        if self.pass.is_some() {
            return Err("a file has one `test` directive".into());
        }
        let mut words = text.split_whitespace();
        self.pass = Some(match words.next().unwrap_or_default() {
            "functionalize" => Pass::Functionalize,
            "bufferize" => Pass::Bufferize,
            "select-plan" => Pass::SelectPlan,
            "fuse" => Pass::Fuse,
            "order" => Pass::Order,
            "rematerialize" => Pass::Rematerialize(Rematerialization::least()),
            other => {
                return Err(format!(
                    "no pass `{other}`; there are functionalize, bufferize, select-plan, \
                        rematerialize, fuse, order"
                ));
            }
        });
        let mut shared: Vec<Vec<usize>> = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if let Some(Pass::Rematerialize(of)) = &mut self.pass {
                *of = match (key, value) {
                    ("within", bytes) => of.with_bound(number(bytes)?),
                    ("expensive", "") => of.expensive(true),
                    _ => {
                        return Err(format!("no option `{word}`; there are within=, expensive"));
                    }
                };
                continue;
            }
            let options = std::mem::take(&mut self.options);
            self.options = match (key, value) {
                ("level", "lift-only") => options.level(Level::LiftOnly),
                ("level", "exact") => options.level(Level::Exact),
                ("level", _) => return Err(format!("no level `{value}`: lift-only or exact")),
                ("stop-at", n) => options.stopping_at(number(n)?),
                ("only", list) => {
                    let list = known_rules(list)?;
                    options.only(list.iter().map(String::as_str))
                }
                ("sharing", list) => {
                    shared.push(list.split(',').map(number).collect::<Result<_, _>>()?);
                    options.sharing(shared.clone())
                }
                ("no-signed-zeros", "") => options.no_signed_zeros(true),
                ("disable-forwarding", "") => options.disable_forwarding(true),
                _ => {
                    return Err(format!(
                        "no option `{word}`; there are level=, stop-at=, only=, sharing=, \
                            no-signed-zeros, disable-forwarding"
                    ));
                }
            };
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected a number, found `{text}`"))
}

fn known_rules(list: &str) -> Result<Vec<String>, String> {
    let known = |name: &str| match rules().any(|(rule, _)| rule == name) {
        true => Ok(name.to_owned()),
        false => Err(format!("no rule `{name}`")),
    };
    list.split(',').map(|name| known(name.trim())).collect()
}
