//! What passes are told of every builtin operator, against what it does: on every call that PyTorch recorded, of it or of the operator whose result it
//! writes in place, and on calls made up from its schema. It draws random numbers, returns its argument's memory, or writes to an argument, only if that
//! is said.

use maquette_check::conform::{File, operator_files};
use maquette_ir::graph::{ArgEffect, MemoryFacts, OpFacts};
use maquette_ir::schema::{Schema, Type};
use maquette_ir::{DType, Device, Layout, MemoryFormat};
use maquette_ops::library::{Facts, all};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Op, Outputs, Tensor, Value, args};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Operators whose schemas, which are PyTorch's, hide what they write. A trace records an operator that declares it.
const HIDDEN_WRITES: [&str; 3] = ["aten::batch_norm", "aten::instance_norm", "aten::native_batch_norm"];

fn ramp(sizes: &[i64], dtype: DType) -> Tensor {
    let count = sizes.iter().product::<i64>();
    Tensor::from_vec((0..count).map(|i| 0.125 + i as f32 / count as f32).collect(), sizes.to_vec()).to_dtype(dtype)
}

/// What a call is made up of.
#[derive(Clone, Copy)]
struct Recipe {
    /// Tensors have so many dimensions, of size 2.
    rank: usize,
    dtype: DType,
    /// Every integer, how many elements a list of any length has, and which text is given.
    int: i64,
    /// What has a default is given.
    given: bool,
}

impl Recipe {
    fn all() -> impl Iterator<Item = Recipe> {
        let dtypes = [DType::F32, DType::I64, DType::Bool];
        let of = move |rank| {
            let each =
                move |dtype| [0, 1, 2].into_iter().flat_map(move |int| [false, true].map(|given| Recipe { rank, dtype, int, given }));
            dtypes.into_iter().flat_map(each)
        };
        (0..=5).flat_map(of)
    }

    fn call(self, op: Op, schema: &Schema) -> Option<Args> {
        let arg = |(i, a): (usize, &maquette_ir::schema::Arg)| match op.default_value(i) {
            Some(default) if !self.given => Some(default),
            Some(Value::Bool(b)) => Some(Value::Bool(!b)),
            _ => self.value(&a.ty),
        };
        schema.args.iter().enumerate().map(arg).collect()
    }

    fn value(self, ty: &Type) -> Option<Value> {
        Some(match ty {
            Type::Tensor => Value::Tensor(ramp(&vec![2; self.rank], self.dtype)),
            Type::Int | Type::SymInt => self.int.into(),
            Type::Float => Value::Float(0.5),
            Type::Scalar if self.dtype == DType::F32 => Value::Float(0.5),
            Type::Scalar => 1.into(),
            Type::Bool => Value::Bool(true),
            Type::Str => Value::Str(["mean", "floor", "ij"][self.int as usize].into()),
            Type::ScalarType => Value::DType(self.dtype),
            Type::Layout => Value::Layout(Layout::Strided),
            Type::Device => Value::Device(Device::Cpu),
            Type::MemoryFormat => Value::MemoryFormat(MemoryFormat::Contiguous),
            Type::Optional(of) => self.value(of).unwrap_or(Value::None),
            Type::List(of, count) if matches!(**of, Type::Int | Type::SymInt) => {
                let count = count.map_or(self.rank, |n| n as usize);
                Value::Ints(vec![self.int.into(); count].into_boxed_slice())
            }
            Type::List(of, count) => {
                let elements = (0..count.unwrap_or(self.int.max(1) as u32)).map(|_| self.value(of));
                Value::List(elements.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

/// Calls that no recipe makes.
fn special() -> Vec<(&'static str, Args)> {
    let [x, v] = [[2, 3], [1, 3]].map(|sizes| ramp(&sizes, DType::F32));
    let ones = |sizes: &[i64]| Tensor::ones(sizes.to_vec(), DType::F32);
    let sequence = |name, gates: i64| {
        let weights = [0, 1].map(|_| [ones(&[gates * 3, 3]), ones(&[gates * 3, 3])]);
        let weights = Value::List(weights.into_iter().flatten().map(Value::Tensor).collect());
        let h = Value::Tensor(ones(&[2, 2, 3]));
        let state = if name == "aten::lstm.input" { Value::List([h.clone(), h].into()) } else { h };
        (name, args![ones(&[5, 2, 3]), state, weights, false, 2, 0.5, true, false, false])
    };
    vec![
        sequence("aten::lstm.input", 4),
        sequence("aten::gru.input", 3),
        sequence("aten::rnn_tanh.input", 1),
        sequence("aten::rnn_relu.input", 1),
        ("aten::einsum", args!["ij->ji", Value::List([Value::Tensor(x.clone())].into())]),
        ("aten::cross", args![&x, &v]),
        ("aten::linalg_cross", args![&x, &v]),
        ("aten::gru_cell", args![&v, &v, ones(&[9, 3]), ones(&[9, 3])]),
        (
            "aten::lstm_cell",
            args![&v, Value::List([Value::Tensor(v.clone()), Value::Tensor(v.clone())].into()), ones(&[12, 3]), ones(&[12, 3])],
        ),
        ("aten::instance_norm", args![ones(&[2, 2, 3]), Value::None, Value::None, ones(&[2]), ones(&[2]), true, 0.5, 1e-5, false]),
        ("aten::randint.low", args![0, 9, [4]]),
        ("aten::randint_like.low_dtype", args![ones(&[4]), 0, 9]),
    ]
}

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_dtype(DType::F64).contiguous().reshape([-1i64]).to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

fn contents(v: &Value) -> Vec<Vec<u64>> {
    v.tensors().filter(|t| !t.is_fake()).map(bits).collect()
}

fn share(v: &Value, w: &Value) -> bool {
    v.tensors().any(|t| w.tensors().any(|u| t.shares_storage(u)))
}

/// What came of an operator's calls.
#[derive(Default)]
struct Seen {
    calls: usize,
    draws: bool,
    hidden_writes: bool,
    /// What it did that is not said of it.
    wrong: BTreeSet<String>,
}

impl Seen {
    fn call(&mut self, op: Op, args: &Args) {
        let name = op.name();
        let before: Vec<_> = args.iter().map(contents).collect();
        let mut at = Philox { seed: 7, offset: 0 };
        let Ok(results) = apart(&mut at, || op.call(args.clone())) else { return };
        self.calls += 1;
        self.draws |= at.offset != 0;
        if at.offset != 0 && !Facts.random(name) {
            self.wrong.insert("it draws random numbers".into());
        }
        self.memory(name, args, &results);
        let writes = |i: usize| Facts.arg_effect(name, i) == ArgEffect::Write;
        for (i, (arg, before)) in args.iter().zip(before).enumerate() {
            let said = args.iter().enumerate().any(|(k, other)| writes(k) && (k == i || share(arg, other)));
            if said || contents(arg) == before {
                continue;
            }
            if HIDDEN_WRITES.contains(&name) {
                self.hidden_writes = true;
            } else {
                self.wrong.insert(format!("it writes to argument {i}"));
            }
        }
    }

    fn memory(&mut self, name: &str, args: &Args, results: &Outputs) {
        for (r, result) in results.iter().enumerate() {
            let said = Facts.result_aliases(name, r);
            for t in result.tensors().map(|t| Value::Tensor(t.clone())) {
                let shared = |args: &Args| -> Vec<usize> { (0..args.len()).filter(|i| share(&args[*i], &t)).collect() };
                let found = shared(args);
                if !found.is_empty() && !said.is_some_and(|i| found.contains(&i)) {
                    self.wrong.insert(format!("result {r} shares the memory of arguments {found:?}, not {said:?}"));
                }
            }
            if results.iter().take(r).any(|earlier| said.is_none() && share(earlier, result)) {
                self.wrong.insert(format!("result {r} shares the memory of an earlier one"));
            }
        }
    }
}

#[test]
fn operators_do_what_is_said_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let files = operator_files(&folder, None).unwrap();
    let files: BTreeMap<String, File> = files.iter().map(|path| File::read(path).unwrap()).map(|file| (file.name.clone(), file)).collect();
    let special = special();
    let (mut wrong, mut never, mut steady, mut hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for op in all().into_iter().filter(Op::is_builtin) {
        let (name, schema, mut seen) = (op.name(), op.schema().unwrap(), Seen::default());
        for file in [Some(name), Facts.twin(name)].into_iter().flatten().filter_map(|name| files.get(name)) {
            file.samples(op).for_each(|args| seen.call(op, &args));
        }
        Recipe::all().filter_map(|recipe| recipe.call(op, &schema)).for_each(|args| seen.call(op, &args));
        special.iter().filter(|(of, _)| *of == name).for_each(|(_, args)| seen.call(op, args));
        wrong.extend(seen.wrong.iter().map(|what| format!("{name}: {what}")));
        match seen.calls {
            0 => never.push(name),
            _ if Facts.random(name) && !seen.draws => steady.push(name),
            _ => {}
        }
        hidden.extend(seen.hidden_writes.then_some(name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(steady, Vec::<&str>::new(), "said to draw random numbers, and never seen to");
    assert_eq!(hidden, HIDDEN_WRITES);
    assert!(never.len() < 42, "{} operators were never called: {never:?}", never.len());
}
