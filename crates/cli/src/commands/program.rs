//! Compiled graphs of files, and inputs for them.

use super::{GraphFile, read};
use maquette::Loc;
use maquette::ir::graph::{ValueId, ValueType};
use maquette::ir::sym::{Expr, SymbolId, SymbolKind};
use maquette::pipeline::{PassOptions, WhyUnplanned, compile};
use maquette::prelude::*;
use maquette::runtime::Executable;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A size of an input: `NAME=NUMBER`.
#[derive(Clone, Debug)]
struct Size {
    name: String,
    value: i64,
}

/// Parses the text of a size.
fn size(text: &str) -> Result<Size, String> {
    let parsed = text.split_once('=').and_then(|(name, value)| {
        let value = value.trim().parse().ok()?;
        Some(Size { name: name.trim().to_owned(), value })
    });
    parsed.ok_or_else(|| "expected a symbol of the graph and its value, such as `n=128`".into())
}

/// Which program is compiled, for which inputs.
#[derive(clap::Args)]
pub struct ProgramOptions {
    /// The file with the graph's text; `-` reads standard input.
    file: PathBuf,
    /// The value of a symbol: `n=128`. Several are separated by commas.
    #[arg(long, value_name = "NAME=N", value_parser = size, value_delimiter = ',')]
    size: Vec<Size>,
    /// The first N inputs are parameters: the same tensors in every run, which products may keep in
    /// packed form.
    #[arg(long, value_name = "N", default_value_t = 0)]
    parameters: usize,
}

/// A compiled graph, with inputs.
pub struct Program {
    pub executable: Executable,
    pub inputs: Vec<Value>,
    /// Why the program runs as it was written, if it has no plan.
    pub why_unplanned: Option<String>,
}

impl Program {
    /// Compiles the graph of a file, and makes inputs.
    ///
    /// # Errors
    /// The file has no valid graph; the graph has a constant; a size is missing or has no meaning.
    pub fn of(options: &ProgramOptions) -> Result<Program> {
        let ProgramOptions { size, parameters, .. } = options;
        let (graph, name) = options.graph()?;
        if let Some(constant) = graph.consts().first() {
            bail!(
                "{name}: the contents of constant `{}` are not in the file; make it an input",
                graph.value_name(constant.value())
            );
        }
        let symbols = symbol_values(&graph, name, size)?;
        let inputs = inputs(&graph, &symbols).map_err(|e| in_file(name, &e))?;
        let compilation = compile(&graph, &PassOptions::new())?;
        let why_unplanned = compilation.why_unplanned.as_ref().map(unplanned);
        let executable = Executable::new(compilation.program)?;
        let why_unplanned = why_unplanned.or_else(|| {
            let why = "not all tensors are on the CPU";
            (!executable.is_compiled()).then(|| why.to_owned())
        });
        let executable = executable.with_fixed_inputs(*parameters);
        Ok(Program { executable, inputs, why_unplanned })
    }
}

impl ProgramOptions {
    /// The graph, whose statements have the lines of the file, and the name of the file.
    ///
    /// # Errors
    /// The file has no valid graph.
    pub fn graph(&self) -> Result<(Graph, &'static str)> {
        let GraphFile { mut graph, name, positions } = read(&self.file)?;
        // The command ends with the program, so the name may live as long.
        let name: &'static str = name.leak();
        graph.set_stmt_locs(|at| {
            positions.get(at).map(|position| Loc { file: name, line: position.line as u32 })
        });
        Ok((graph, name))
    }
}

/// Why a program runs as it was written.
pub fn unplanned(why: &WhyUnplanned) -> String {
    match why {
        WhyUnplanned::Refused(e) => e.to_string().lines().next().unwrap_or_default().to_owned(),
        WhyUnplanned::Copies => "no plan is known to copy as little as the program itself".into(),
    }
}

fn in_file(name: &str, e: &Error) -> Error {
    Error::msg(format!("{name}: {}", e.kind()))
}

/// The values of the symbols that the inputs mention.
fn symbol_values(graph: &Graph, file: &str, sizes: &[Size]) -> Result<BTreeMap<SymbolId, i64>> {
    let table = graph.symbols();
    let mut values = BTreeMap::new();
    for Size { name, value } in sizes {
        let Some(symbol) = table.lookup(name) else {
            let names: Vec<&str> = table.symbols().map(|s| table.name(s)).collect();
            let known = match names.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", names.join(", ")),
            };
            bail!("{file}: the graph has no symbol `{name}`; {known}");
        };
        let range = table.range(symbol);
        if !(range.lo..=range.hi).contains(value) {
            bail!("{file}: `{name}` is in {range}; found {value}");
        }
        values.insert(symbol, *value);
    }
    let backed = |s: &SymbolId| table.kind(*s) != SymbolKind::Unbacked;
    let missing = table.symbols().filter(backed).find(|s| !values.contains_key(s));
    if let Some(symbol) = missing {
        let name = table.name(symbol);
        let range = table.range(symbol);
        bail!("{file}: `{name}` in {range} has no value; give it one with `--size {name}=…`");
    }
    Ok(values)
}

/// Random values for the inputs of a graph: floats in [-1, 1), the integers 0 and 1, and booleans.
fn inputs(graph: &Graph, symbols: &BTreeMap<SymbolId, i64>) -> Result<Vec<Value>> {
    let mut random = Random(1);
    graph.inputs().iter().map(|v| input(graph, symbols, *v, &mut random)).collect()
}

fn input(
    graph: &Graph,
    symbols: &BTreeMap<SymbolId, i64>,
    v: ValueId,
    random: &mut Random,
) -> Result<Value> {
    let value = |symbol: SymbolId| symbols.get(&symbol).copied();
    let number = |e: &Expr| graph.symbols().eval(*e, &value).map_err(Error::other);
    Ok(match graph.value_type(v) {
        ValueType::Tensor(ty) => {
            let ty = graph.type_of(ty);
            if ty.device != Device::Cpu {
                bail!("input `{}` is on {}, not on cpu", graph.value_name(v), ty.device);
            }
            let sizes = ty.sizes.iter().map(number).collect::<Result<Vec<i64>>>()?;
            let strides = ty.strides.iter().map(number).collect::<Result<Vec<i64>>>()?;
            let offset = number(&ty.offset)?;
            let steps = sizes
                .iter()
                .zip(&strides)
                .map(|(n, s)| n.saturating_sub(1).max(0).saturating_mul(*s));
            let extent = steps.fold(offset.saturating_add(1), i64::saturating_add);
            let (extent, mut data) = (extent.max(0), Vec::<f32>::new());
            let reserved = usize::try_from(extent).map(|n| data.try_reserve_exact(n));
            if !matches!(reserved, Ok(Ok(()))) {
                bail!("input `{}` has {extent} elements", graph.value_name(v));
            }
            data.extend((0..extent).map(|_| random.next(ty.dtype)));
            let flat = Tensor::from_vec(data, [extent]).to_dtype(ty.dtype);
            flat.as_strided(&sizes[..], &strides[..], Some(offset.into())).ok()?.into()
        }
        ValueType::Int(e) => number(&e)?.into(),
        ValueType::Float => 0.5.into(),
        ValueType::Bool => true.into(),
        ValueType::Str => bail!("input `{}` is a string", graph.value_name(v)),
    })
}

/// A generator of random numbers: Knuth's linear congruential one, whose high bits are used.
struct Random(u64);

impl Random {
    /// A number for an element of this dtype.
    fn next(&mut self, dtype: DType) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = (self.0 >> 40) as f32 / (1 << 24) as f32;
        if dtype.is_float() { bits * 2.0 - 1.0 } else { f32::from(bits >= 0.5) }
    }
}
