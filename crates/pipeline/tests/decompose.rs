//! Decomposition of composites: what the graph has afterwards, what stays and why, and that a run
//! gives the same.

use insta::assert_snapshot;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ops::library::{Kind, Library};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Result, Tensor, Value, args, call};
use maquette_pipeline::{Decompose, KeptReason, decompose};
use maquette_trace::{TraceOptions, trace};

fn ramp<const R: usize>(sizes: [i64; R]) -> Tensor {
    let numbers = (0..sizes.iter().product()).map(|i| i as f32 * 0.25 - 1.0);
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), sizes)
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The only composite of a graph text that stays.
fn kept(text: &str) -> KeptReason {
    let graph: Graph = text.parse().unwrap();
    let decomposed = decompose(&graph).unwrap();
    assert_eq!(decomposed.graph, graph, "what stays does not change");
    let [kept] = &decomposed.kept[..] else { panic!("{:?}", decomposed.kept) };
    kept.reason.clone()
}

#[test]
fn composites_in_composites_are_decomposed() {
    let model =
        |(x, w, b): (Tensor, Tensor, Tensor)| x.linear(&w, Some(&b)).softmax(-1).flatten(0, 1);
    let options = TraceOptions::symbolic().names(["x", "w", "b"]);
    let inputs = || (ramp([2, 3, 4]), ramp([5, 4]), ramp([5]));
    let traced = options.trace(model, inputs()).unwrap();
    let (decomposed, kept) = traced.decompose().unwrap();
    assert!(kept.is_empty(), "{kept:?}");
    assert_snapshot!(decomposed, @r"
    graph graph(%x: f32[s0, s1, s2], %w: f32[s3, s4], %b: f32[s5]) -> (f32[s0 * s1, s3])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo), s3 in [0, oo), s4 in [0, oo), s5 in [0, oo)
      guard s2 == s4
      guard s3 == s5
    {
      %t: f32[s4, s3] strides [1, max(1, s4)] = aten::t(%w)
      %view: f32[s0 * s1, s2] = aten::view(%x, [s0 * s1, s2])
      %addmm: f32[s0 * s1, s3] = aten::addmm(%b, %view, %t)
      %linear: f32[s0, s1, s3] = aten::view(%addmm, [s0, s1, s3])
      %softmax: f32[s0, s1, s3] = aten::_softmax(%linear, -1, false)
      %flatten: f32[s0 * s1, s3] = aten::view(%softmax, [s0 * s1, s3])
      return %flatten
    }
    ");
    let (x, y) = (traced.run(inputs()).unwrap(), decomposed.run(inputs()).unwrap());
    assert_eq!(bits(&x), bits(&y));
    // every part has the line of the program
    let graph = decomposed.graph();
    let lines: Vec<u32> = graph.nodes().map(|n| graph.loc(n).unwrap().line).collect();
    let of_program = traced.graph().nodes().map(|n| traced.graph().loc(n).unwrap().line);
    let of_program: Vec<u32> = of_program.collect();
    assert!(lines.iter().all(|line| of_program.contains(line)), "{lines:?} {of_program:?}");
    // nothing is left to do
    let again = decompose(graph).unwrap();
    assert_eq!(&again.graph, graph);
}

#[test]
fn one_matrix_for_a_batch_is_not_copied() {
    let model = |(x, y): (Tensor, Tensor)| x.matmul(&y);
    let traced = |sizes: [i64; 4]| {
        let options = TraceOptions::symbolic().names(["x", "y"]);
        options.trace(model, (ramp([4, 3]), ramp(sizes))).unwrap()
    };
    let (decomposed, _) = traced([2, 5, 3, 2]).decompose().unwrap();
    assert_snapshot!(decomposed, @r"
    graph graph(%x: f32[s0, s1], %y: f32[s2, s3, s4, s5]) -> (f32[s2, s3, s0, s5])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo), s3 in [0, oo), s4 in [0, oo), s5 in [0, oo)
      guard s1 == s4
    {
      %expand: f32[s2 * s3, s0, s1] strides [0, max(1, s1), 1] = aten::expand(%x, [s2 * s3, s0, s1])
      %expand_1: f32[s2, s3, s4, s5] = aten::expand(%y, [s2, s3, s4, s5])
      %view: f32[s2 * s3, s4, s5] = aten::view(%expand_1, [s2 * s3, s4, s5])
      %bmm: f32[s2 * s3, s0, s5] = aten::bmm(%expand, %view)
      %matmul: f32[s2, s3, s0, s5] = aten::view(%bmm, [s2, s3, s0, s5])
      return %matmul
    }
    ");
    // Without elements, a batch may be as large as any number.
    let huge = || Tensor::zeros([1i64 << 50, 1, 3, 0], DType::F32);
    let found = decomposed.run((ramp([4, 3]), huge())).unwrap();
    assert_eq!(found.sizes_i64().unwrap(), [1 << 50, 1, 4, 0]);
}

#[test]
fn a_size_that_the_graph_leaves_open_keeps_a_composite() {
    // whether a reshape is a view depends on `m`
    let reason = kept(
        "graph g(%x: f32[n, m] strides [1, n]) -> (f32[m*n])
          where n in [0, oo), m in [0, oo)
        {
            %y: f32[m*n] = aten::reshape(%x, [m*n])
            return %y
        }",
    );
    assert!(matches!(reason, KeptReason::Undecided(_)), "{reason}");
}

#[test]
fn other_types_than_the_declared_ones_keep_a_composite() {
    let reason = kept(
        "graph g(%x: f32[2, 3], %w: f32[5, 3]) -> (f32[2, 5] strides [1, 2]) {
            %y: f32[2, 5] strides [1, 2] = aten::linear(%x, %w)
            return %y
        }",
    );
    assert_snapshot!(reason, @"its results are not those that the graph declares: result 0 is f32[2, 5] instead of f32[2, 5] strides [1, 2]");
}

#[test]
fn only_assertions_before_a_composite_are_taken_for_granted() {
    let text = |before: &str, after: &str| {
        format!(
            "graph g(%x: f32[n], %mask: bool[n]) -> (f32[2, 3])
              where n in [0, oo), u0 in [0, oo)
            {{
                %a: f32[u0] = aten::masked_select(%x, %mask)
                bind u0 = size(%a, 0)
                {before}
                %y: f32[2, 3] = aten::reshape(%a, [2, 3])
                {after}
                return %y
            }}"
        )
    };
    let assertion = "assert u0 == 6";
    let graph: Graph = text(assertion, "").parse().unwrap();
    assert!(decompose(&graph).unwrap().kept.is_empty());
    let reason = kept(&text("", assertion));
    assert!(matches!(reason, KeptReason::Undecided(_) | KeptReason::Asserts(_)), "{reason}");
}

#[test]
fn a_result_that_is_an_argument_stays_one() {
    let model = |x: Tensor| (x.contiguous(), x.to_dtype(maquette_ir::DType::F32), x);
    let traced = trace(model, ramp([3])).unwrap();
    let (decomposed, _) = traced.decompose().unwrap();
    for program in [&traced, &decomposed] {
        let (a, b, c) = program.run(ramp([3])).unwrap();
        assert!(a.shares_storage(&c) && b.shares_storage(&c), "{program}");
    }
}

#[test]
fn a_copy_stays_one() {
    // an eager reshape of these sizes is a view; this one was a copy where it was traced
    let text = |copy: &str| {
        format!(
            "graph g(%x: f32[2, 3]) -> (f32[6]) {{
                %y: f32[6] = aten::reshape(%x, [6]){copy}
                return %y
            }}"
        )
    };
    assert!(matches!(kept(&text(" copy")), KeptReason::Results(_)));
    let view: Graph = text("").parse().unwrap();
    assert!(decompose(&view).unwrap().kept.is_empty());
}

#[test]
fn constants_of_parts_are_usable_on_every_thread() {
    let model = |x: Tensor| -> Result<Tensor> {
        call("aten::combinations", args![&x])?[0].tensor().cloned()
    };
    let traced = trace(model, ramp([4])).unwrap();
    let (decomposed, kept) = traced.decompose().unwrap();
    assert!(kept.is_empty() && decomposed.graph().consts().len() == 1, "{decomposed}");
    let run = |graph: &Graph| {
        let run = Interpreter::new(graph).run(&[Value::from(ramp([4]))]).unwrap();
        bits(run.results[0].tensor().unwrap())
    };
    let elsewhere = std::thread::scope(|s| s.spawn(|| run(decomposed.graph())).join().unwrap());
    assert_eq!(elsewhere, run(traced.graph()));
}

#[test]
fn random_composites_draw_the_same_numbers() {
    let model = |x: Tensor| x.dropout(0.5, true) + x.dropout(0.25, true);
    let traced = trace(model, ramp([40])).unwrap();
    let (decomposed, kept) = traced.decompose().unwrap();
    assert!(kept.is_empty() && decomposed.graph().node_count() > traced.graph().node_count());
    let begin = || Philox { seed: 3, offset: 8 };
    let [x, y, z] = [
        apart(&mut begin(), || model(ramp([40]))),
        apart(&mut begin(), || traced.run(ramp([40])).unwrap()),
        apart(&mut begin(), || decomposed.run(ramp([40])).unwrap()),
    ];
    assert_eq!(bits(&x), bits(&y));
    assert_eq!(bits(&x), bits(&z));
}

#[test]
fn an_overridden_composite_is_a_node() {
    let graph: Graph = "graph g(%x: f32[4], %y: f32[4]) -> (f32[4]) {
        %z: f32[4] = aten::hardswish_that_nobody_has(%x)
        %a: f32[2, 4] = aten::vstack([%x, %y])
        return %x
    }"
    .parse()
    .unwrap();
    let has_composite = || decompose(&graph).unwrap().graph.to_string().contains("aten::vstack");
    assert!(!has_composite());
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.impl_("vstack", "cpu", |x: &[Tensor]| -> Result<Tensor> {
        Ok(x.first().cloned().unwrap_or_else(|| Tensor::from([0.0f32])))
    })
    .unwrap();
    assert!(has_composite());
    drop(lib);
    assert!(!has_composite());
}

#[test]
fn lists_keywords_binds_and_constants_are_copied() {
    let weight = ramp([4]);
    let captured = weight.clone();
    let model = move |(x, mask): (Tensor, Tensor)| -> Result<Vec<Tensor>> {
        let found = call("aten::masked_select", args![&x, &mask])?[0].tensor()?.clone();
        let parts = x.split(2, 0)?;
        let joined = call("aten::hstack", args![[parts[1].clone(), captured.clone()]])?;
        let sums = found.sum_dtype([0], false, maquette_ir::DType::F64);
        Ok(vec![joined[0].tensor()?.clone(), found, sums])
    };
    let inputs = || (ramp([4]), Tensor::from([true, false, true, true]));
    let traced = TraceOptions::symbolic().trace(model, inputs()).unwrap();
    let (decomposed, kept) = traced.decompose().unwrap();
    assert!(kept.is_empty(), "{kept:?}");
    assert_snapshot!(decomposed, @r"
    graph graph(%in0: f32[s0], %in1: bool[s1]) -> (f32[s0 + 2], f32[u0], f64[])
      where s0 in [0, oo), s1 in [0, oo), u0 in [0, oo)
      guard s0 == s1
      guard (s0 + 1) // 2 == 2
      const %c0: f32[4] = sha256:90919005ede92e32
    {
      %masked_select: f32[u0] = aten::masked_select(%in0, %in1)
      bind u0 = size(%masked_select, 0)
      [%split: f32[2], %split_1: f32[s0 - 2] offset 2] = aten::split.Tensor(%in0, 2)
      %hstack: f32[s0 + 2] = aten::cat([%split_1, %c0])
      %sum: f64[] = aten::sum.dim_IntList(%masked_select, [0], dtype=f64)
      return %hstack, %masked_select, %sum
    }
    ");
    weight.add_(1.0);
    let show = |all: Vec<Tensor>| all.iter().map(|t| t.to_string()).collect::<Vec<_>>();
    assert_eq!(show(decomposed.run(inputs()).unwrap()), show(traced.run(inputs()).unwrap()));
}

#[test]
fn an_unknown_number_keeps_a_composite() {
    let reason = kept(
        "graph g(%x: f32[3], %p: float) -> (f32[3]) {
            %y: f32[3] = aten::dropout(%x, %p, false)
            return %y
        }",
    );
    assert_eq!(reason, KeptReason::UnknownArgument);
}

#[test]
fn mutated_arguments_are_written_by_the_parts() {
    let graph: Graph = "graph g(%x: f32[2, 3]) -> () {
        %y: f32[2, 3] = aten::squeeze_that_nobody_has(%x)
        return ()
    }"
    .parse()
    .unwrap();
    assert!(decompose(&graph).unwrap().kept.is_empty(), "an unknown operator is no composite");
    let run = |graph: &Graph, x: &Tensor| {
        Interpreter::new(graph).run(&[Value::from(x.clone())]).map(|_| bits(x))
    };
    let traced = trace(
        |x: Tensor| {
            x.t().reshape([-1]).add_(1.0);
            x.view([-1]).add_(1.0);
            x.reshape([3, 2]).mul_(2.0);
        },
        ramp([2, 3]),
    )
    .unwrap();
    let decomposed = decompose(traced.graph()).unwrap();
    assert!(decomposed.kept.is_empty(), "{:?}", decomposed.kept);
    let (x, y) = (ramp([2, 3]), ramp([2, 3]));
    assert_eq!(run(traced.graph(), &x).unwrap(), run(&decomposed.graph, &y).unwrap());
}

/// The graph has the casts that the program made, and no others.
#[test]
fn autocast_is_no_part_of_a_decomposition() {
    let f = |(x, h, c, w, u): (Tensor, Tensor, Tensor, Tensor, Tensor)| -> Result<Tensor> {
        maquette_ops::call("aten::lstm_cell", args![x, vec![h, c], w, u])?[1].tensor().cloned()
    };
    let ones = |sizes: [i64; 2]| Tensor::ones(sizes, DType::F32);
    let inputs = (ones([2, 3]), ones([2, 4]), ones([2, 4]), ones([16, 3]), ones([16, 4]));
    let traced = trace(f, inputs).unwrap();
    let plain = traced.decompose().unwrap().0.to_string();
    let inside = maquette_ops::autocast(DType::BF16, || traced.decompose());
    assert_eq!(plain, inside.unwrap().0.to_string());
}
