//! The text form: printing and parsing are inverse, and syntax errors show their location.

mod common;

use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::{Arg, Graph, GraphBuilder, ResultSpec, TensorType, ValueType};
use maquette_ir::sym::{Expr, Range, SymTable, SymbolKind};
use maquette_ir::{DType, Device};
use proptest::prelude::*;

/// Parses a text and checks that printing reproduces the text, and parsing again the graph.
#[track_caller]
fn round_trip(text: &str) -> Graph {
    let g: Graph = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(g.to_string(), text);
    assert_eq!(Graph::parse(&g.to_string()).unwrap(), g);
    g
}

const MODEL: &str = r#"graph model(%x: f32[batch, 784], %w: f32[10, 784]) -> (f32[batch, 10], i64[u0, 2])
  where batch in [1, 64], u0 in [0, oo)
  const %c0: f32[10] = sha256:5be2000000000001
{
  %t: f32[784, 10] strides [1, 784] = aten::t(%w)
  %mm: f32[batch, 10] = aten::mm(%x, %t)
  %nz: i64[u0, 2] = mylib::custom_nonzero(%mm)
  bind u0 = size(%nz, 0)
  assert u0 <= 10 * batch "more rows than elements"
  return %mm, %nz
}"#;

#[test]
fn the_design_example_round_trips() {
    assert_eq!(round_trip(MODEL).verify(), Ok(()));
}

#[test]
fn every_construct_round_trips() {
    let g = round_trip(
        r#"graph all(%x: f32[n, 3] strides [1, n] offset n + 1 device cuda:0 requires_grad, %k: int(k), %s: str) -> (f32[n, 3], [int(n), None], float, dtype)
  where n in [2, 64], k in (-oo, oo), unbacked rows in [0, oo), backed u7 in [1, 9]
  guard n % 4 == 0
  guard n <= 7 or k <= 3 and k != n
  const %c0: i8[2, 0] strides [3, 1] = sha256:00000000000000ff
{
  %a: f32[n, 3], [%b: f32[u7], %b_1: bool[]], _ = t::split.Tensor(%x, [1, k, None], memory_format(channels_last), layout=layout(strided), device=device(cuda:1))
  t::effect(-0.0, inf, -inf, nan, nan:7ff8000000000001, 1e-7, true, "a\"b\\\n\u{202e}é", bool, bf16, -9223372036854775808) effect
  %rows: int(rows) = t::count([[%a], []], dim=-1)
  bind rows = %rows
  assert rows <= n
  [] = t::none()
  return %a, [n, None], 1.0, f32
}"#,
    );
    assert!(g.verify().unwrap_err().to_string().contains("`u7`"));
}

#[test]
fn the_empty_graph_round_trips() {
    round_trip("graph graph() -> ()\n{\n  return ()\n}");
}

#[test]
fn comments_blank_lines_and_spacing_are_ignored() {
    let text = "\n# a comment\ngraph model (\n  %x : f32[ 2,3 ] , # first\n) -> ( f32[2, 3] ) \
        {\n\n  %y: f32[2, 3] = t::f( %x,\n dim = 1 )\n\n  return %y\n}\n";
    let error = Graph::parse(text).unwrap_err();
    assert!(error.message.contains("expected the name of a value"), "{error}"); // no trailing comma
    let g = Graph::parse(&text.replace(" , #", " #")).unwrap();
    insta::assert_snapshot!(g, @r"
    graph model(%x: f32[2, 3]) -> (f32[2, 3])
    {
      %y: f32[2, 3] = t::f(%x, dim=1)
      return %y
    }
    ");
}

/// The brackets of an expression may contain what may stand between any other tokens.
#[test]
fn comments_and_spacing_inside_expressions_are_ignored() {
    for (text, plain) in [
        (
            "graph g(%x: f32[2 * # twice\n n], %y: f32[n]) -> ()\n  where n in [1, oo)\n{\n  \
                return ()\n}",
            "graph g(%x: f32[2 * n], %y: f32[n]) -> ()\n  where n in [1, oo)\n{\n  return ()\n}",
        ),
        (
            "graph g(%k: int(n)) -> ()\n  where n in [- 3, 4]\n{\n  return ()\n}",
            "graph g(%k: int(n)) -> ()\n  where n in [-3, 4]\n{\n  return ()\n}",
        ),
        (
            "graph g(%k: int(n)) -> ()\n  where n in [- # least\n 9223372036854775808, 4]\n{\n  \
                return ()\n}",
            "graph g(%k: int(n)) -> ()\n  where n in (-oo, 4]\n{\n  return ()\n}",
        ),
        (
            "graph g(%y: f32[n]) -> ()\n  where n in [1, oo)\n{\n  assert max(n, # at least\n 2) \
                > 1\n  return ()\n}",
            "graph g(%y: f32[n]) -> ()\n  where n in [1, oo)\n{\n  assert max(n, 2) > 1\n  return \
                ()\n}",
        ),
        (
            "graph g(%x: f32[(# (\n# \"\n 2)] device cuda : 1) -> ()\n{\n  return ()\n}",
            "graph g(%x: f32[2] device cuda:1) -> ()\n{\n  return ()\n}",
        ),
    ] {
        let parse = |text: &str| Graph::parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(parse(text), parse(plain), "{text}");
    }
    // A comment hides nothing that the expression cannot contain.
    for text in [
        "graph g(%x: f32[(# x\n %n)], %y: f32[n]) -> ()\n  where n in [1, oo)\n{\n  return ()\n}",
        "graph g(%x: f32[(# x\n sha256:1234567890123456)]) -> ()\n{\n  return ()\n}",
        "graph g(%x: f32[(2 # x\n # y\n \"#\")]) -> ()\n{\n  return ()\n}",
    ] {
        let error = Graph::parse(text).unwrap_err();
        assert_eq!((error.line, error.column), (1, 17), "{error}");
    }
}

#[test]
fn built_graphs_print_canonically() {
    let mut symbols = SymTable::new();
    let unused = symbols.symbol("unused", SymbolKind::Backed, Range { lo: 0, hi: 9 }).unwrap();
    let s = symbols.symbol("n", SymbolKind::Backed, Range { lo: 1, hi: i64::MAX }).unwrap();
    let (_, n) = (symbols.expr(unused), symbols.expr(s));
    let mut b = GraphBuilder::new("built");
    let mut ty =
        TensorType::contiguous(DType::F32, &[n, Expr::Int(1), Expr::Int(4)], &mut symbols).unwrap();
    let contiguous = b.intern_type(ty.clone());
    ty.strides[1] = Expr::Int(1);
    ty.device = Device::cuda(1);
    let odd = b.intern_type(ty);
    let (x, op) = (b.input(ValueType::Tensor(contiguous), None), b.intern("aten::add_.Tensor"));
    let one = [ResultSpec::Value(ValueType::Tensor(odd))];
    let y = b.node(op, &[x.into(), x.into()], &[], &one, None).values.get(0).unwrap();
    let alpha = b.intern("alpha");
    let z = b
        .node(op, &[y.into(), 2.0.into()], &[(alpha, n.into())], &one, None)
        .values
        .get(0)
        .unwrap();
    let late = b.input(ValueType::Int(n), Some("x.y/z"));
    b.set_name(z, "add_");
    b.set_name(y, "y");
    let outputs = b.list(&[z.into(), late.into()]);
    let g = b.finish(&symbols, &[outputs, Arg::None]).unwrap();
    insta::assert_snapshot!(g, @r"
    graph built(%in0: f32[n, 1, 4], %x.y_z: int(n)) -> ([f32[n, 1, 4] strides [4, 1, 1] device cuda:1, int(n)], None)
      where n in [1, oo)
    {
      %y: f32[n, 1, 4] strides [4, 1, 1] device cuda:1 = aten::add_.Tensor(%in0, %in0)
      %add__2: f32[n, 1, 4] strides [4, 1, 1] device cuda:1 = aten::add_.Tensor(%y, 2.0, alpha=n)
      return [%add__2, %x.y_z], None
    }
    ");
    assert_eq!(g.verify(), Ok(()));
    let nodes: Vec<_> = g.nodes().collect();
    let y = g.value_named("y").unwrap();
    assert_eq!((g.users(y), g.producer(y), g.loc(nodes[0])), (&nodes[1..], Some(nodes[0]), None));
    insta::assert_snapshot!(g.window(nodes[1], 1), @r"
      %y: f32[n, 1, 4] strides [4, 1, 1] device cuda:1 = aten::add_.Tensor(%in0, %in0)
    > %add__2: f32[n, 1, 4] strides [4, 1, 1] device cuda:1 = aten::add_.Tensor(%y, 2.0, alpha=n)
    ");
}

#[test]
fn invalid_builds_are_errors() {
    let symbols = SymTable::new();
    let mut foreign = GraphBuilder::new("other");
    let far = (0..3).map(|_| foreign.input(ValueType::Float, None)).last().unwrap();
    let mut b = GraphBuilder::new("g");
    let op = b.intern("t::f");
    b.node(op, &[far.into()], &[], &[], None);
    assert_eq!(
        b.finish(&symbols, &[]).unwrap_err().to_string(),
        "`t::f` uses value 2, which no earlier statement defines"
    );

    let mut b = GraphBuilder::new("g");
    let deep = (0..20).fold(Arg::None, |list, _| b.list(&[list]));
    assert!(
        b.finish(&symbols, &[deep])
            .unwrap_err()
            .to_string()
            .contains("nested more than 8 levels deep")
    );

    let mut symbols = SymTable::new();
    let s = symbols.symbol("f32", SymbolKind::Backed, Range { lo: 0, hi: 9 }).unwrap();
    let e = symbols.expr(s);
    assert!(
        GraphBuilder::new("g")
            .finish(&symbols, &[e.into()])
            .unwrap_err()
            .to_string()
            .contains("cannot be named `f32`")
    );
}

#[test]
fn errors_show_where() {
    let cases = [
        ("graph model", "graf model"),
        ("-> (", "("),
        ("%x: f32[batch, 784]", "%x: f33[batch, 784]"),
        ("%x: f32[batch, 784]", "%x: f32[bitch, 784]"),
        ("%w: f32[10, 784]", "%x: f32[10, 784]"),
        ("strides [1, 784]", "strides [1]"),
        ("batch in [1, 64]", "batch in [1, 64), "),
        ("batch in [1, 64]", "batch in [64, 1]"),
        ("batch in [1, 64]", "true in [1, 64]"),
        ("sha256:5be2000000000001", "sha256:5be2"),
        ("aten::mm(%x, %t)", "aten::mm(%x, %mm)"),
        ("aten::mm(%x, %t)", "aten::mm(%x, %t"),
        ("aten::mm(%x, %t)", "aten::mm.(%x, %t)"),
        ("aten::mm(%x, %t)", "mm(%x, %t)"),
        ("aten::mm(%x, %t)", "aten::mm(k=1, %t)"),
        ("aten::mm(%x, %t)", "aten::mm(k=1, k=2)"),
        ("aten::mm(%x, %t)", "aten::mm(1 + , 2)"),
        ("aten::mm(%x, %t)", "aten::mm(12ab)"),
        ("aten::mm(%x, %t)", "aten::mm(\"a\\q\")"),
        ("aten::mm(%x, %t)", "aten::mm([[[[[[[[[1]]]]]]]]])"),
        ("aten::mm(%x, %t)", "aten::mm(device(gpu))"),
        ("aten::mm(%x, %t)", "aten::mm(99999999999999999999)"),
        ("size(%nz, 0)", "size(%nz, batch)"),
        ("bind u0", "bind u1"),
        ("assert u0 <= 10 * batch", "assert u0 <="),
        ("assert u0 <= 10 * batch", "assert "),
        ("elements\"", "elements"),
        ("return %mm, %nz", "return %nz, %mm"),
        ("return %mm, %nz", "return"),
        ("  return %mm, %nz\n}", ""),
        ("  return %mm, %nz\n}", "  return %mm, %nz\n} é"),
        ("  return %mm, %nz\n}", "  return %mm, %nz\n} more"),
    ];
    let mut report = String::new();
    for (from, to) in cases {
        let text = MODEL.replacen(from, to, 1);
        assert_ne!(text, MODEL, "{from}");
        let error = Graph::parse(&text).expect_err(to);
        report += &format!("{error}\n\n");
    }
    insta::assert_snapshot!(report);
}

/// A scope takes no part in equality, and a text without it is that of an equal graph.
#[test]
fn scopes_round_trip() {
    let text = r#"graph g(%x: f32[2]) -> (f32[2])
{
  %f: f32[2] = t::f(%x) copy effect @ encoder.layers.0
  t::log(%f) effect("nccl:0") @ 0
  %f_1: f32[2] = t::f(%f)
  return %f_1
}"#;
    let g = round_trip(text);
    let scopes: Vec<_> = g.nodes().map(|n| g.scope(n)).collect();
    assert_eq!(scopes, [Some("encoder.layers.0"), Some("0"), None]);
    let plain = Graph::parse(&text.replace(" @ encoder.layers.0", "").replace(" @ 0", "")).unwrap();
    assert_eq!((&g, g.digest()), (&plain, plain.digest()));
    let spaced = text.replace("@ encoder", "@\tencoder").replace("@ 0", "@0 # a comment");
    assert_eq!(Graph::parse(&spaced).unwrap().to_string(), text);
    for wrong in [
        "@",
        "@ a..b",
        "effect(",
        "effect()",
        "effect(a)",
        "effect(\"a\"",
        "effect(\"a\", \"b\")",
        "@ a.",
        "@ a b",
        "@ a @ b",
        "@ ä",
        "@ a effect",
    ] {
        let text = text.replace("@ encoder.layers.0", wrong);
        assert!(Graph::parse(&text).is_err(), "{wrong}");
    }
}

#[test]
fn hostile_text_is_rejected_quickly() {
    let n = 200_000;
    for text in [
        "[".repeat(n),
        "graph g() -> (".to_owned() + &"[".repeat(n),
        "graph g() -> ()\n{\n  return ".to_owned() + &"[".repeat(n),
        "graph g() -> ()\n{\n  return ".to_owned() + &"(".repeat(n),
        "graph g() -> ()\n{\n  return ".to_owned() + &"-".repeat(n),
        "graph g() -> ()\n{\n  assert ".to_owned() + &"not (".repeat(n),
        "graph g(%x: f32[".to_owned() + &"2, ".repeat(n),
        format!("graph g(%x: f32[{}]) -> ()\n{{\n  return ()\n}}", vec!["99999999"; 60].join(", ")),
        format!(
            "graph g() -> ()\n{{\n  t::f({})\n  return ()\n}}",
            (0..n).map(|i| format!("k{i}=1")).collect::<Vec<_>>().join(", ")
        ),
        "\"".repeat(n),
        "%".repeat(n),
    ] {
        let error = Graph::parse(&text).expect_err(&text[..40.min(text.len())]);
        assert!(error.to_string().len() < 2000);
    }
}

#[test]
fn the_documentation_examples_round_trip() {
    let page = include_str!("../../../docs/graph-text.md");
    let blocks: Vec<&str> = page
        .split("```text\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(block, _)| block)
        .collect();
    assert!(blocks.len() >= 4);
    let mut graph = None;
    for block in blocks {
        if let (Some(graph), true) = (&graph, block.starts_with("plan ")) {
            let plan = BufferPlan::parse(block, graph).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(plan.display(graph).to_string().trim_end(), block);
            continue;
        }
        let parsed = round_trip(block);
        assert_eq!(parsed.verify(), Ok(()), "{block}");
        graph = Some(parsed);
    }
}

/// Applies a small edit to a text: deletes a range, duplicates a range, or inserts a token.
fn edit(text: &mut String, (what, at, len, insert): (u8, usize, usize, usize)) {
    const PIECES: [&str; 24] = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "%",
        "%x",
        ",",
        "=",
        "-",
        "->",
        "\"",
        "\n",
        ":",
        "9999999999999999999",
        "1e999",
        "//",
        "bind ",
        "where ",
        "nan:",
        "é",
        "\\u{",
        "s0",
    ];
    let boundary = |text: &str, at: usize| {
        (at.min(text.len())..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len())
    };
    let from = boundary(text, at % (text.len() + 1));
    let to = boundary(text, from + len);
    match what % 3 {
        0 => text.replace_range(from..to, ""),
        1 => text.insert_str(from, PIECES[insert % PIECES.len()]),
        _ => {
            let piece = text[from..to].to_owned();
            text.insert_str(boundary(text, insert % (text.len() + 1)), &piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_and_parsing_are_inverse(choices in prop::collection::vec(any::<u32>(), 0..300)) {
        let g = common::graph(&choices);
        prop_assert!(g.verify().is_ok(), "{}\n{g}", g.verify().unwrap_err());
        let text = g.to_string();
        let parsed = Graph::parse(&text);
        prop_assert!(parsed.is_ok(), "{}\n{text}", parsed.unwrap_err());
        let parsed = parsed.unwrap();
        prop_assert_eq!(parsed.to_string(), text);
        prop_assert!(parsed == g, "{g}");
    }

    #[test]
    fn damaged_text_never_panics(
        choices in prop::collection::vec(any::<u32>(), 0..120),
        edits in prop::collection::vec(
            (any::<u8>(), any::<usize>(), 0usize..40, any::<usize>()),
            1..6,
        ),
    ) {
        let mut text = common::graph(&choices).to_string();
        for e in edits {
            edit(&mut text, e);
        }
        if let Ok(g) = Graph::parse(&text) {
            let _ = g.verify();
            let again = Graph::parse(&g.to_string());
            prop_assert!(again.as_ref() == Ok(&g), "{text}\n{:?}", again.err());
        }
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}") {
        let _ = Graph::parse(&text);
        let _ = Graph::parse(&format!("graph g() -> ()\n{{\n  t::f({text})\n  return ()\n}}"));
    }
}
