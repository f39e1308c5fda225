//! What a compiled function has compiled, and why.

use super::Stance;
use super::program::GuardedProgram;
use maquette_ir::fused::NoFusionReason;
use maquette_ir::graph::Graph;
use maquette_pipeline::{AttentionExplanation, RecomputeExplanation};
use std::fmt;

/// The programs of a compiled function. Displays as text for people.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The function's name.
    pub name: String,
    /// How the function treats a call that no program fits.
    pub stance: Stance,
    /// How often the function was compiled, for programs that are gone included.
    pub compilations: usize,
    /// The number of programs that the function may have.
    pub recompile_limit: usize,
    /// The programs, in order of compilation.
    pub programs: Vec<ProgramExplanation>,
}

/// One program of a compiled function.
#[derive(Clone, Debug)]
pub struct ProgramExplanation {
    /// Its number, in order of compilation.
    pub number: usize,
    /// Why it was compiled: the guards of the other programs that the call broke.
    pub reason: String,
    /// The inputs of its graph, with their types.
    pub inputs: Vec<String>,
    /// The ranges of its symbols.
    pub ranges: Vec<String>,
    /// What it requires besides: conditions, each with its line, and which inputs share memory.
    pub guards: Vec<String>,
    /// Why no size is a symbol, although some have changed: the error of the trace with symbols.
    pub why_static: Option<String>,
    /// How it runs.
    pub execution: String,
    /// Whether it runs compiled, in planned memory; otherwise operator by operator.
    pub is_compiled: bool,
    /// What it computes again to need less memory, if
    /// [`CompileOptions::rematerialize`](super::CompileOptions::rematerialize) asks for it.
    pub recomputed: Option<RecomputeExplanation>,
    /// The attentions that are written as products and a softmax, if
    /// [`CompileOptions::fast_math`](super::CompileOptions::fast_math) allows to recognise them.
    pub attention: Option<AttentionExplanation>,
    /// The operators that one kernel computes, a text for each kernel.
    pub fused: Vec<String>,
    /// Operators that are not computed together, although one reads what the other computes: their
    /// names, and why.
    pub not_fused: Vec<(String, String, NoFusionReason)>,
    /// For how many layouts of the inputs it runs without fusion, because there is no such kernel.
    pub unfused_layouts: usize,
    /// The calls that run on copies in host memory, since the device of their tensors has no kernel
    /// for the operator.
    pub on_host: Vec<String>,
    /// The composites that are not decomposed, with the reasons.
    pub composites: Vec<String>,
    /// Its graph, decomposed, from which all else is made.
    pub graph: Graph,
}

impl ProgramExplanation {
    pub(crate) fn of(program: &GuardedProgram) -> ProgramExplanation {
        let graph = &program.traced.graph;
        let table = graph.symbols();
        let executable = program.executor.executable();
        let fused = executable.fused();
        let input = |v: &_| {
            format!("%{}: {}", graph.value_name(*v), graph.display_type(graph.value_type(*v)))
        };
        ProgramExplanation {
            number: program.number,
            reason: program.reason.clone(),
            inputs: graph.inputs().iter().map(input).collect(),
            ranges: table
                .symbols()
                .map(|s| format!("{} in {}", table.name(s), table.range(s)))
                .collect(),
            guards: program.guards.requirements(&program.traced.interface.labels),
            why_static: program.why_static.as_ref().map(ToString::to_string),
            execution: program.executor.describe().to_owned(),
            is_compiled: executable.is_compiled(),
            recomputed: program.executor.recomputed(),
            attention: program.attention.clone(),
            fused: fused.map_or_else(Vec::new, |fused| {
                (0..fused.regions.len()).map(|region| fused.describe_region(region)).collect()
            }),
            not_fused: {
                let name = |node| executable.graph().op_name(node).to_owned();
                let edges = executable.refusals().iter();
                edges.map(|r| (name(r.producer), name(r.consumer), r.reason)).collect()
            },
            unfused_layouts: executable.unfused_instances(),
            on_host: {
                let (graph, nodes) = (executable.graph(), executable.on_host());
                let line = |node| match graph.loc(node) {
                    Some(loc) => format!("{} at {loc}", graph.called_op(node)),
                    None => graph.called_op(node).to_owned(),
                };
                nodes.into_iter().map(line).collect()
            },
            composites: program
                .kept
                .iter()
                .map(|kept| {
                    let at = kept.loc.map_or_else(String::new, |loc| format!(" at {loc}"));
                    format!("{}{at}: {}", kept.op, kept.reason)
                })
                .collect(),
            graph: graph.clone(),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { name, stance, compilations, recompile_limit, programs } = self;
        let times = match compilations {
            0 => "not compiled yet".to_owned(),
            1 => "compiled once".to_owned(),
            n => format!("compiled {n} times"),
        };
        let held = programs.len();
        write!(f, "`{name}`: {times}, {held} of at most {recompile_limit} programs")?;
        if *stance != Stance::Compile {
            write!(f, ", stance {stance:?}")?;
        }
        programs.iter().try_for_each(|program| write!(f, "\n{program}"))
    }
}

impl fmt::Display for ProgramExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}: {}", self.number, self.reason)?;
        write!(f, "\n  inputs: {}", self.inputs.join(", "))?;
        if !self.ranges.is_empty() {
            write!(f, "\n  symbols: {}", self.ranges.join(", "))?;
        }
        self.guards.iter().try_for_each(|guard| write!(f, "\n  requires: {guard}"))?;
        if let Some(why) = self.why_static.as_ref().and_then(|why| why.lines().next()) {
            write!(f, "\n  without symbols: {why}")?;
        }
        write!(f, "\n  runs: {}", self.execution)?;
        if let Some(recomputed) = &self.recomputed {
            write!(f, "\n  recomputes: {recomputed}")?;
        }
        if let Some(attention) = &self.attention {
            let text = attention.to_string();
            text.lines().try_for_each(|line| write!(f, "\n  fast math: {line}"))?;
        }
        self.fused.iter().try_for_each(|region| write!(f, "\n  one kernel: {region}"))?;
        self.on_host.iter().try_for_each(|call| write!(f, "\n  on the host: {call}"))?;
        let mut reasons: Vec<(NoFusionReason, usize)> = Vec::new();
        for (_, _, reason) in &self.not_fused {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((*reason, 1)),
            }
        }
        for (reason, count) in reasons {
            let pairs = if count == 1 { "pair" } else { "pairs" };
            write!(f, "\n  not fused: {count} {pairs} of operators: {reason}")?;
        }
        self.composites.iter().try_for_each(|kept| write!(f, "\n  not decomposed: {kept}"))
    }
}
