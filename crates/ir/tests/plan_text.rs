//! The text form of plans: what prints parses back, and what does not parse says where.

use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::Graph;
use proptest::prelude::*;

/// A graph with a statement of each kind.
const GRAPH: &str = r#"graph g(%x: f32[n, 4], %y: f32[4]) -> (f32[4], i64[u0, 2], f32[n, 4])
  where n in [0, 16], u0 in [0, oo)
  const %c: f32[4] = sha256:0011223344556677
{
  %nz: i64[u0, 2] = aten::nonzero(%x)
  bind u0 = size(%nz, 0)
  assert u0 <= 4 * n "too many"
  %call: f32[n, 4] = ir::call("mylib::scale_", %x, 2.0)
  mylib::log(%call) effect
  %add: f32[4] = aten::add.Tensor(%y, %c)
  return %add, %nz, %call
}"#;

/// A plan with a buffer and a step of each kind.
const PLAN: &str = "plan g
  b0 = input %x
  b1 = input %y
  b2 = const %c
  b3 = result %nz
  b4 = alloc f32[n, 4] strides [1, n] device cuda:1
  b5 = alloc f32[4]
{
  0: aten::nonzero reads %x in b0[n, 4] writes %nz as b3
  1: bind u0
  2: assert u0 <= 4 * n
  copy %x from b0[n, 4] to b4[n, 4] strides [1, n] because the operator observes strides
  copy %y from b1[3] to b1[3] offset 1 through temporary because the value is stored into a tensor
  3: mylib::scale_ reads %x in b0[n, 4] mutates b0[n, 4]
  alias %call in b0[n, 4]
  4: mylib::log reads %call in b0[n, 4]
  5: aten::add.Tensor reads %y in b1[4], %c in b2[4] strides [0] offset 3 writes %add in b5[4]
  return b5[4], _, b0[2 * n, 2] offset n + 1
}
";

fn graph() -> Graph {
    GRAPH.parse().unwrap()
}

#[test]
fn each_kind_of_buffer_and_step_parses_back() {
    let graph = graph();
    let plan = BufferPlan::parse(PLAN, &graph).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan.display(&graph).to_string(), PLAN);
    let again = BufferPlan::parse(&plan.display(&graph).to_string(), &graph).unwrap();
    assert_eq!(
        (&again.buffers, &again.steps, &again.outputs),
        (&plan.buffers, &plan.steps, &plan.outputs)
    );
    // both copies, the second by way of a temporary
    assert_eq!(plan.cost.copied.to_text(&plan.symbols), "4 * n + 6");
}

/// The planner counts two more writes for each element of a copy whose target overlaps itself, and
/// so does the parser.
#[test]
fn a_copy_to_a_target_that_overlaps_itself_is_counted_three_times() {
    let graph = graph();
    let (step, overlapping) = ("to b1[3] offset 1 through temporary", "to b5[3] strides [0]");
    let plan = BufferPlan::parse(&PLAN.replace(step, overlapping), &graph).unwrap();
    assert_eq!(plan.cost.copied.to_text(&plan.symbols), "4 * n + 9");
}

#[test]
fn a_plan_without_steps_or_outputs() {
    let graph: Graph = "graph g() -> ()\n{\n  return ()\n}".parse().unwrap();
    let text = "plan g\n{\n  return ()\n}\n";
    let plan = BufferPlan::parse(text, &graph).unwrap();
    assert_eq!(plan.display(&graph).to_string(), text);
}

#[test]
fn parse_errors_show_where() {
    let graph = graph();
    let errors: Vec<String> = [
        ("plan g", "plan h"),
        ("b1 = input", "b2 = input"),
        ("b0 = input %x", "b0 = input %add"),
        ("b2 = const", "b2 = constant"),
        ("b5 = alloc f32[4]", "b5 = alloc f31[4]"),
        ("%x in b0[n, 4] writes", "%x in b6[n, 4] writes"),
        ("%x in b0[n, 4] writes", "%z in b0[n, 4] writes"),
        ("%x in b0[n, 4] writes", "%x at b0[n, 4] writes"),
        ("strides [1, n] because", "strides [1] because"),
        ("1: bind u0", "1: bind n"),
        ("1: bind u0", "7: bind u0"),
        ("2: assert", "1: assert"),
        ("assert u0 <= 4 * n", "assert u0 <= 3 * n"),
        ("3: mylib::scale_", "3: ir::call"),
        ("4: mylib::log", "4: mylib::lag"),
        ("the operator observes strides", "of the strides"),
        ("offset n + 1", "offset m + 1"),
        ("return b5[4], _", "return b5, _"),
        ("alias %call in", "aliases %call in"),
        ("}\n", "}\nplan"),
    ]
    .into_iter()
    .map(|(found, instead)| {
        let text = PLAN.replacen(found, instead, 1);
        BufferPlan::parse(&text, &graph).expect_err(instead).to_string()
    })
    .collect();
    insta::assert_snapshot!(errors.join("\n\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A text that was cut, or into which another part of it was put, parses back or is an error.
    #[test]
    fn damaged_text_never_panics(
        edits in prop::collection::vec((0..PLAN.len(), 0usize..30, 0..PLAN.len()), 1..4),
    ) {
        let (graph, mut text) = (graph(), PLAN.to_owned());
        for (at, len, from) in edits {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            let piece = PLAN.get(from..from + len).unwrap_or_default();
            text.replace_range(at..end, piece);
        }
        if let Ok(plan) = BufferPlan::parse(&text, &graph) {
            let printed = plan.display(&graph).to_string();
            let again = BufferPlan::parse(&printed, &graph).map(|p| p.display(&graph).to_string());
            prop_assert_eq!(again.as_ref(), Ok(&printed), "{}", text);
        }
    }
}
