//! Fusion of the programs of files, with a few operators whose classes are known here.

use super::{Result, describe};
use maquette_ir::fused::{FusedRegion, Fusible, FusionClass, FusionFacts, Gain, NoFusionReason};
use maquette_ir::graph::{Graph, NodeId};
use maquette_rewrite::{FunctionalGraph, fuse};
use std::fmt::Write;

/// Classes by the names of operators. Each region has a kernel.
struct Classes;

impl FusionFacts for Classes {
    fn class(&self, graph: &Graph, node: NodeId) -> std::result::Result<Fusible, NoFusionReason> {
        let rows = FusionClass::Rows { outer: 2 };
        let failing = |gain| Ok(Fusible { class: rows, may_fail: true, gain });
        match graph.op_name(node) {
            "aten::mm" => Ok(FusionClass::Product { left: Some(0) }.into()),
            "aten::addmm" => Ok(FusionClass::Product { left: Some(1) }.into()),
            "aten::add.Tensor" | "aten::mul.Tensor" | "aten::neg" | "aten::silu" => {
                Ok(FusionClass::Elements.into())
            }
            "aten::embedding" => failing(Gain::Always),
            "aten::floor_divide" => failing(Gain::WithFold),
            "aten::remainder.Tensor" => failing(Gain::Never),
            "aten::_softmax" => Ok(rows.into()),
            "aten::index_select" => Err(NoFusionReason::Assert),
            "aten::cumsum" => Err(NoFusionReason::LosesSpecialisation),
            _ => Err(NoFusionReason::Opaque),
        }
    }

    fn joins_products(&self) -> bool {
        true
    }

    fn has_kernel(&self, _: &Graph, _: &FusedRegion) -> bool {
        true
    }
}

/// The fused program, its regions, and why other operators are apart.
pub fn run(f: FunctionalGraph) -> Result<String> {
    let fused = fuse(f, &Classes).map_err(|e| e.to_string())?;
    let mut text = describe(&fused.program)?;
    for region in 0..fused.regions.len() {
        writeln!(text, "region {region}: {}", fused.describe_region(region)).unwrap();
    }
    for r in &fused.refusals {
        let graph = &fused.original.graph;
        let name = |node| graph.result_values(node).next().map(|v| graph.value_name(v).to_string());
        let [first, second] = [r.producer, r.consumer].map(|n| name(n).unwrap_or_default());
        writeln!(text, "{first} and {second} apart: {}", r.reason).unwrap();
    }
    Ok(text)
}
