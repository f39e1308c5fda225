//! A region of a graph is one kernel for all sizes, and equal regions are one kernel.

use maquette_aten as _;
use maquette_ir::fused::{FusedProgram, FusedRegion};
use maquette_ir::graph::{Graph, ValueId};
use maquette_ir::kernel_def::{KernelBody, KernelDef};
use maquette_ir::program_form::ProgramForm;
use maquette_ir::sym::Expr;
use maquette_lower::{LoweredRegion, SizeClasses, lower_region};
use maquette_ops::{IntoDims, KernelBinding, Meta, Tensor};
use maquette_pipeline::{PassOptions, compile};

/// Two layers, of a product with a map each, and a norm. Guards make the sizes of the weights equal.
const LAYERS: &str =
    "graph g(%x: f32[n, k], %v: f32[k, m], %w: f32[k, m], %b: f32[b]) -> (f32[n, m], f32[n, m])
  where n in [2, oo), k in [2, oo), m in [2, oo), b in [2, oo)
  guard b == m
{
  %p: f32[n, m] = aten::mm(%x, %v)
  %y: f32[n, m] = aten::add.Tensor(%p, %b)
  %z: f32[n, m] = aten::tanh(%y)
  %q: f32[n, m] = aten::mm(%x, %w)
  %r: f32[n, m] = aten::add.Tensor(%q, %b)
  %s: f32[n, m] = aten::tanh(%r)
  %t: f32[n, m] = aten::_softmax(%s, 1, false)
  %u: f32[n, m] = aten::neg(%t)
  return %z, %u
}";

fn fused(text: &str) -> FusedProgram {
    let graph: Graph = text.parse().unwrap();
    match compile(&graph, &PassOptions::new()).unwrap().program {
        ProgramForm::Planned(planned) => planned.fused.unwrap().0,
        _ => panic!("the program has no plan"),
    }
}

/// The kernels of all regions for values of the symbols, in the order of their declaration.
fn lowered(program: &FusedProgram, symbols: &[i64]) -> Vec<(KernelDef, KernelBinding)> {
    let graph = &program.original.graph;
    let value = |e: Expr| graph.symbols().eval(e, &|s| symbols.get(s.index()).copied()).ok();
    let fake = |v: &ValueId| {
        let ty = graph.tensor_type(*v).unwrap();
        let sizes: Vec<i64> = ty.sizes.iter().map(|e| value(*e).unwrap()).collect();
        Tensor::fake_of(Meta::contiguous(sizes[..].into_dims(), ty.dtype))
    };
    let classes = SizeClasses::of(graph);
    let kernel = |region: &FusedRegion| {
        let operands: Vec<Tensor> = region.operands.iter().map(fake).collect();
        let results: Vec<Tensor> = region.results.iter().map(fake).collect();
        let lowered = lower_region(graph, region, &classes, &value, &operands, &results);
        let LoweredRegion { def: kernel, binding, .. } = lowered.unwrap();
        (kernel, binding)
    };
    program.regions.iter().map(kernel).collect()
}

#[test]
fn a_kernel_is_one_for_all_sizes() {
    let program = fused(LAYERS);
    let expected = lowered(&program, &[5, 7, 11, 11]);
    assert!(expected.iter().any(|(kernel, _)| matches!(kernel.body, KernelBody::Nest(_))));
    for sizes in [[7, 5, 3, 3], [64, 128, 256, 256], [4, 4, 4, 4]] {
        let found = lowered(&program, &sizes);
        assert_eq!(expected.len(), found.len());
        for ((kernel, binding), (other, bound)) in expected.iter().zip(&found) {
            assert_eq!(kernel, other, "{sizes:?}");
            let is_nest = matches!(kernel.body, KernelBody::Nest(_));
            assert_eq!(binding.symbols != bound.symbols, is_nest, "{sizes:?}");
        }
    }
}

#[test]
fn equal_layers_are_one_kernel() {
    let layer = |x: &str, y: &str| {
        format!(
            "  %a{y}: f32[n, m] = aten::_softmax(%{x}, 1, false)\n  \
               %b{y}: f32[n, m] = aten::mul.Tensor(%a{y}, %{x})\n  \
               %{y}: f32[m, n] strides [1, m] = aten::t(%b{y})\n"
        )
    };
    let (first, second) = (layer("x", "y"), layer("z", "w"));
    let program = fused(&format!(
        "graph g(%x: f32[n, m], %z: f32[n, m]) -> (f32[m, n] strides [1, m], f32[m, n] strides [1, m])
  where n in [2, oo), m in [2, oo)
{{
{first}{second}  return %y, %w
}}"
    ));
    let kernels = lowered(&program, &[5, 7]);
    assert_eq!(kernels.len(), 2);
    assert_eq!(kernels[0].0, kernels[1].0);
}
