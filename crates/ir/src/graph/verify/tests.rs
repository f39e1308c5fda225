//! Graphs that violate each invariant, derived from a valid graph: by a text edit if the text form
//! can express the violation, else by modifying the tables.

use super::*;
use crate::graph::NodeId;
use crate::graph::types::TypeId;

const VALID: &str = r#"graph g(%x: f32[n, 4], %k: int(k)) -> (i64[u0, 2], [f32[n, 4]])
  where n in [1, 64], k in [0, 9], u0 in [0, oo)
  guard n <= 32
  const %c: f32[4] = sha256:0123456789abcdef
{
  %y: f32[n, 4] = t::add(%x, %c, alpha=k)
  %nz: i64[u0, 2] = t::nonzero(%y)
  bind u0 = size(%nz, 0)
  assert u0 <= 4 * n "too many"
  %p: f32[n, 4] = t::pad([%y, [%y]], [u0, 2], mode="zero")
  return %nz, [%p]
}"#;

fn valid() -> Graph {
    let g = Graph::parse(VALID).unwrap();
    assert_eq!(g.verify(), Ok(()));
    g
}

fn broken(invariant: Invariant, g: &Graph) -> VerifyError {
    let e = g.verify().expect_err(&format!("expected {invariant:?} to be violated by\n{g}"));
    assert_eq!(e.invariant, invariant, "{e}");
    e
}

#[test]
fn verifier_rejects_corrupt_tables() {
    type Break = fn(&mut Graph);
    let cases: &[(Invariant, Break)] = &[
        (Invariant::Ids, |g| g.name = StrId(999)),
        (Invariant::Ids, |g| g.values[0].ty = ValueType::Tensor(TypeId(99))),
        (Invariant::Ids, |g| g.nodes[0].args.start = 999),
        (Invariant::Ids, |g| g.nodes[0].results.len = u32::MAX),
        (Invariant::Ids, |g| g.nodes[1].op = StrId(999)),
        (Invariant::Ids, |g| g.inputs[0] = ValueId(999)),
        (Invariant::Ids, |g| g.body.push(Stmt::Node(NodeId(99)))),
        (Invariant::Ids, |g| g.outputs[0] = Arg::Value(ValueId(99))),
        (Invariant::Ids, |g| g.kwargs[0].0 = StrId(999)),
        (Invariant::Ids, |g| {
            // A list that contains itself.
            let at = g.args.iter().position(|a| matches!(a, Arg::List(_))).unwrap();
            g.args[at] = Arg::List(Span { start: at as u32, len: 1 });
        }),
        (Invariant::Definitions, |g| {
            g.body.remove(0);
        }),
        (Invariant::Definitions, |g| g.body.push(Stmt::Node(NodeId(0)))),
        (Invariant::Definitions, |g| g.inputs.swap(0, 1)),
        (Invariant::Definitions, |g| g.values[0].def = Def::Const(0)),
        (Invariant::Definitions, |g| g.results[1] = g.results[0]),
        (Invariant::Definitions, |g| g.values.push(g.values[0])),
        (Invariant::Order, |g| {
            let last = Arg::Value(ValueId(g.values.len() as u32 - 1));
            let first = g.nodes[0].args.start as usize;
            g.args[first] = last;
        }),
        (Invariant::Names, |g| g.values[1].name = g.values[0].name),
        (Invariant::Names, |g| g.strings[g.values[0].name.base.index()] = "a b".into()),
        (Invariant::Names, |g| g.strings[g.values[0].name.base.index()] = "a_1".into()),
        (Invariant::Names, |g| g.strings[g.name.index()] = "a.b".into()),
        (Invariant::Operators, |g| g.strings[g.nodes[0].op.index()] = "add".into()),
        (Invariant::Operators, |g| g.strings[g.kwargs[0].0.index()] = "a.b".into()),
        (Invariant::Operators, |g| {
            g.kwargs[1].0 = g.kwargs[0].0;
            g.nodes[0].kwargs.len = 2;
        }),
        (Invariant::Types, |g| {
            g.types[0].strides.pop();
        }),
        (Invariant::Types, |g| g.types[0].layout = Layout::SparseCoo),
        (Invariant::Lists, |g| {
            let mut list = Arg::None;
            for _ in 0..=MAX_LIST_DEPTH {
                g.args.push(list);
                list = Arg::List(Span { start: g.args.len() as u32 - 1, len: 1 });
            }
            g.outputs.push(list);
        }),
    ];
    for (i, (invariant, change)) in cases.iter().enumerate() {
        let mut g = valid();
        change(&mut g);
        match g.verify() {
            Err(e) => assert_eq!(e.invariant, *invariant, "case {i}: {e}"),
            Ok(()) => panic!("case {i}: {invariant:?} is not checked"),
        }
    }
}

#[test]
fn verifier_rejects_invalid_text() {
    let cases: &[(Invariant, &str, &str)] = &[
        (Invariant::Unbacked, "  bind u0 = size(%nz, 0)\n", ""),
        (
            Invariant::Unbacked,
            "  bind u0 = size(%nz, 0)\n",
            "  %sum: i64[2] = t::sum([%nz])\n  bind u0 = size(%nz, 0)\n",
        ),
        (Invariant::Unbacked, "%x: f32[n, 4], ", "%x: f32[n, 4], %z: f32[u0], "),
        (Invariant::Unbacked, "guard n <= 32", "guard u0 <= 32"),
        (Invariant::Unbacked, "alpha=k", "alpha=u0 + 1"),
        (Invariant::Unbacked, "%y: f32[n, 4] =", "%y: f32[n, 4], %v: f32[u0] ="),
        (Invariant::Backed, "%k: int(k)", "%k: int(k + 1)"),
        (Invariant::Backed, "%x: f32[n, 4]", "%x: f32[2 * n, 4]"),
        (Invariant::Backed, "%x: f32[n, 4]", "%x: f32[2 * n, 4] offset n"),
        (Invariant::Types, "%x: f32[n, 4]", "%x: f32[n, -4]"),
        (Invariant::Types, "%x: f32[n, 4]", "%x: i64[n, 4] requires_grad"),
        (Invariant::Types, "%x: f32[n, 4]", "%x: f32[n, 4] layout sparse_csr"),
        (Invariant::Binds, "bind u0 = size(%nz, 0)", "bind u0 = size(%nz, 2)"),
        (Invariant::Binds, "bind u0 = size(%nz, 0)", "bind u0 = size(%nz, 1)"),
        (Invariant::Binds, "bind u0 = size(%nz, 0)", "bind u0 = %nz"),
        (
            Invariant::Binds,
            "bind u0 = size(%nz, 0)",
            "bind u0 = size(%nz, 0)\n  bind u0 = size(%nz, 0)",
        ),
        (
            Invariant::Binds,
            "bind u0 = size(%nz, 0)",
            "bind u0 = size(%nz, 0)\n  bind n = size(%x, 0)",
        ),
        (Invariant::Constants, "%c: f32[4]", "%c: f32[n]"),
    ];
    for (invariant, from, to) in cases {
        assert!(VALID.contains(from), "{from}");
        let g = Graph::parse(&VALID.replacen(from, to, 1))
            .unwrap_or_else(|e| panic!("{from} -> {to}: {e}"));
        broken(*invariant, &g);
    }
}

#[test]
fn errors_show_the_statement() {
    let g = Graph::parse(&VALID.replacen("  bind u0 = size(%nz, 0)\n", "", 1)).unwrap();
    insta::assert_snapshot!(broken(Invariant::Unbacked, &g), @r#"
    invalid graph `g` (G6): `u0` is used before a statement binds it
      %y: f32[n, 4] = t::add(%x, %c, alpha=k)
    > %nz: i64[u0, 2] = t::nonzero(%y)
      assert u0 <= 4 * n "too many"
      %p: f32[n, 4] = t::pad([%y, [%y]], [u0, 2], mode="zero")
    "#);
}
