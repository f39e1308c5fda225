//! Generator of random valid graphs from a list of choices, which proptest can shrink.

use maquette_ir::graph::{
    Arg, BindSource, Digest, Graph, GraphBuilder, NodeInfo, ResultSpec, TensorType, TypeId,
    ValueId, ValueType,
};
use maquette_ir::sym::{BoolExpr, Expr, Range, Rel, SymTable, SymbolId, SymbolKind};
use maquette_ir::{DType, Device, DeviceKind, Effect, Layout, MemoryFormat};
use std::sync::Arc;

const STRINGS: [&str; 6] =
    ["", "mean", "two\nlines\t\"quoted\" \\", "ünïcode \u{202e}\u{0}", "# no comment", "%x = f()"];
const FLOATS: [f64; 9] = [
    0.0,
    -0.0,
    1.0,
    -2.5,
    1e-300,
    1.7976931348623157e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const OPS: [&str; 6] = [
    "aten::add.Tensor",
    "aten::add_.Tensor",
    "my_lib::conv_2",
    "t::x",
    "bind::size",
    "aten::_softmax.out_2",
];
const NAMES: [&str; 7] = ["x", "x_1", "layers.0.weight", "return", "a b", "", "x__3"];

struct Gen<'c> {
    choices: std::slice::Iter<'c, u32>,
    table: SymTable,
    b: GraphBuilder,
    /// Expressions and values that later statements may use.
    exprs: Vec<Expr>,
    values: Vec<ValueId>,
    unbacked: usize,
}

/// A valid graph. When the choices run out, every decision takes its first alternative.
pub fn graph(choices: &[u32]) -> Graph {
    let mut g = Gen {
        choices: choices.iter(),
        table: SymTable::new(),
        b: GraphBuilder::new("random graph"),
        exprs: vec![Expr::Int(0), Expr::Int(7)],
        values: Vec::new(),
        unbacked: 0,
    };
    g.header();
    while g.choices.len() > 0 {
        g.stmt();
    }
    let outputs: Vec<Arg> = (0..g.pick(4)).map(|_| g.arg(0)).collect();
    let Gen { b, table, .. } = g;
    b.finish(&table, &outputs).expect("the generator builds valid graphs")
}

impl Gen<'_> {
    fn pick(&mut self, n: usize) -> usize {
        self.choices.next().map_or(0, |c| *c as usize % n)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.pick(of.len())]
    }

    fn symbol(&mut self, name: &str, kind: SymbolKind, lo: i64) -> (SymbolId, Expr) {
        let hi = self.one(&[i64::MAX, 64]);
        let s = self.table.symbol(name, kind, Range { lo, hi }).unwrap();
        (s, self.table.expr(s))
    }

    fn header(&mut self) {
        for (name, lo) in [("batch", 1), ("s0", 0), ("u7", 2), ("device", 2)]
            .into_iter()
            .take(1 + self.choices.len() % 4)
        {
            let (_, e) = self.symbol(name, SymbolKind::Backed, lo);
            let ty = match self.pick(3) {
                0 => ValueType::Int(e),
                _ => ValueType::Tensor(self.type_of(&[e, Expr::Int(3)])),
            };
            let input = self.b.input(ty, Some(name));
            self.values.push(input);
            self.exprs.push(e);
        }
        for _ in 0..self.pick(3) {
            let ty = self.value_type();
            let hint = self.one(&[None, Some("x"), Some("x_1")]);
            let input = self.b.input(ty, hint);
            self.values.push(input);
        }
        let ty = TensorType::contiguous(DType::I8, &[Expr::Int(2), Expr::Int(0)], &mut self.table)
            .unwrap();
        for _ in 0..self.pick(3) {
            let ty = self.b.intern_type(ty.clone());
            let digest = Digest([self.pick(256) as u8; 8]);
            let constant = self.b.constant(ty, Arc::new(digest), None);
            self.values.push(constant);
        }
        for _ in 0..self.pick(3) {
            let cond = self.cond();
            self.b.guard(cond, None);
        }
    }

    fn stmt(&mut self) {
        match self.pick(8) {
            0 => {
                let cond = self.cond();
                let message = self.one(&[None, Some(STRINGS[2]), Some(STRINGS[3])]);
                self.b.assert_(cond, message, None);
            }
            1 => self.data_dependent(),
            2 if !self.values.is_empty() => {
                let (value, name) = (self.one(&self.values.clone()), self.one(&NAMES));
                self.b.set_name(value, name);
            }
            _ => {
                let results: Vec<(usize, Vec<ValueType>)> = (0..self.pick(3))
                    .map(|_| {
                        let n = self.pick(3);
                        (self.pick(3), (0..n.max(1)).map(|_| self.value_type()).collect())
                    })
                    .collect();
                let specs: Vec<ResultSpec<'_>> = results
                    .iter()
                    .map(|(kind, types)| match kind {
                        0 => ResultSpec::Value(types[0]),
                        1 => ResultSpec::List(&types[1..]),
                        _ => ResultSpec::Absent,
                    })
                    .collect();
                self.call(&specs);
            }
        }
    }

    /// A call whose result defines a new unbacked symbol.
    fn data_dependent(&mut self) {
        let name = if self.unbacked.is_multiple_of(2) {
            format!("u{}", 10 + self.unbacked)
        } else {
            format!("rows_{}", self.unbacked)
        };
        self.unbacked += 1;
        let (s, e) = self.symbol(&name, SymbolKind::Unbacked, 0);
        if self.pick(2) == 0 {
            let ty = self.type_of(&[Expr::Int(2), e]);
            let value = self.call(&[ResultSpec::Value(ValueType::Tensor(ty))]);
            self.b.bind(s, value[0], BindSource::Size(1));
        } else {
            let value = self.call(&[ResultSpec::Absent, ResultSpec::Value(ValueType::Int(e))]);
            self.b.bind(s, value[0], BindSource::Value);
        }
        self.exprs.push(e);
    }

    fn call(&mut self, results: &[ResultSpec<'_>]) -> Vec<ValueId> {
        let op = self.one(&OPS);
        let op = self.b.intern(op);
        let args: Vec<Arg> = (0..self.pick(4)).map(|_| self.arg(0)).collect();
        let keywords = ["alpha", "dtype", "out", "None"];
        let kwargs: Vec<_> =
            (0..self.pick(4)).map(|i| (self.b.intern(keywords[i]), self.arg(0))).collect();
        let scope = self.one(&[None, Some("layers.0"), Some("layers.0.norm"), Some("ünit..x")]);
        let info = NodeInfo { scope, ..NodeInfo::default() };
        let created = self.b.node(op, &args, &kwargs, results, info);
        if self.pick(5) == 1 {
            let on = [Effect::Ordered, Effect::On("a"), Effect::On("b \"\n")];
            let effect = self.one(&on);
            self.b.set_effect(created.node, effect);
        }
        let values: Vec<ValueId> = created.values.iter().collect();
        self.values.extend(&values);
        values
    }

    fn arg(&mut self, depth: usize) -> Arg {
        match self.pick(12) {
            1 => Arg::Float(self.one(&FLOATS).into()),
            2 => Arg::Bool(self.pick(2) == 1),
            3 => {
                let text = self.one(&STRINGS);
                Arg::Str(self.b.intern(text))
            }
            4 => Arg::DType(self.one(&DType::ALL)),
            5 => Arg::Device(Device::new(self.one(&DeviceKind::ALL), 3)),
            6 => Arg::Layout(self.one(&[Layout::Strided, Layout::SparseCoo])),
            7 => Arg::MemoryFormat(
                self.one(&[MemoryFormat::Contiguous, MemoryFormat::ChannelsLast3d]),
            ),
            8 | 9 => Arg::Int(self.expr()),
            10 if depth < 4 => {
                let items: Vec<Arg> = (0..self.pick(4)).map(|_| self.arg(depth + 1)).collect();
                self.b.list(&items)
            }
            11 if !self.values.is_empty() => Arg::Value(self.one(&self.values.clone())),
            _ => Arg::None,
        }
    }

    fn expr(&mut self) -> Expr {
        let exprs = self.exprs.clone();
        let (a, b) = (self.one(&exprs), self.one(&exprs));
        match self.pick(5) {
            0 => Expr::Int(self.one(&[0, 1, -1, 5, i64::MAX, i64::MIN])),
            1 => a,
            2 => self.table.add(a, b).unwrap_or(a),
            3 => self.table.mul(a, b).unwrap_or(a),
            _ => self.table.max(a, b).unwrap_or(a),
        }
    }

    fn cond(&mut self) -> BoolExpr {
        let exprs = self.exprs.clone();
        let rel = self.one(&[Rel::Le, Rel::Eq, Rel::Ne, Rel::Gt]);
        let (a, b) = (self.one(&exprs), self.one(&exprs));
        self.table.rel(rel, a, b)
    }

    fn value_type(&mut self) -> ValueType {
        match self.pick(6) {
            0 => ValueType::Float,
            1 => ValueType::Bool,
            2 => ValueType::Str,
            3 => ValueType::Int(self.one(&self.exprs.clone())),
            _ => {
                let exprs = self.exprs.clone();
                let sizes: Vec<Expr> = (0..self.pick(4)).map(|_| self.one(&exprs)).collect();
                ValueType::Tensor(self.type_of(&sizes))
            }
        }
    }

    fn type_of(&mut self, sizes: &[Expr]) -> TypeId {
        let dtype = self.one(&DType::ALL);
        let mut ty = TensorType::contiguous(dtype, sizes, &mut self.table).unwrap();
        if self.pick(3) == 1 {
            let exprs = self.exprs.clone();
            ty.strides = sizes.iter().map(|_| self.one(&exprs)).collect();
            ty.offset = self.one(&exprs);
        }
        if self.pick(4) == 1 {
            ty.device = self.one(&[Device::cuda(0), Device::Meta, Device::cuda(12)]);
            ty.requires_grad = dtype.is_float();
        }
        self.b.intern_type(ty)
    }
}
