//! Errors of launches.

use super::Run;
use crate::instance::{Launch, LaunchSource, LaunchedRegion, Segment, TensorAt};
use crate::region_nodes::run_nodes;
use maquette_invoke::{in_window, wrong_graph};
use maquette_ir::Loc;
use maquette_ops::{Error, ErrorKind, Result, Tensor};

impl Run<'_> {
    /// The error of a launch. The memory of the program that it wrote is partly written, so it is
    /// poisoned as by an eager call.
    #[cold]
    pub(super) fn launch_error(&mut self, segment: &Segment, launch: &Launch, e: Error) -> Error {
        let (explained, writes) = match &launch.source {
            LaunchSource::Infallible { writes, .. } => (e, writes),
            LaunchSource::Node(node) => {
                let explained = match self.arguments(segment, node.op, &node.arguments) {
                    Ok((args, _)) => launch.call.explained(e, &args),
                    // Without the arguments, the error of the kernel has to do.
                    Err(_) => e,
                };
                (explained, &node.writes)
            }
            LaunchSource::Region(region) => match self.region_error(segment, region) {
                Some(found) => (found, &region.writes),
                None => (e, &region.writes),
            },
        };
        // Other errors are found before anything is written.
        let writes: &[_] =
            if matches!(explained.kind(), ErrorKind::Kernel(_)) { writes } else { &[] };
        let e = match &launch.source {
            LaunchSource::Node(node) => {
                let loc = node.loc.unwrap_or(self.source_info.call_site);
                in_window(self.graph, launch.call.in_call(explained, loc), node.at)
            }
            LaunchSource::Infallible { region: Some(region), .. } => {
                match self.region_line(*region) {
                    Some(loc) if explained.loc().is_none() => explained.at(loc),
                    _ => explained,
                }
            }
            LaunchSource::Infallible { region: None, .. } | LaunchSource::Region(_) => explained,
        };
        for b in writes {
            let base = self.memory.bases.get(b.index());
            if let Some(tensor) = base.and_then(|base| base.tensor.as_ref()) {
                tensor.poison_storage(&e);
            }
        }
        e
    }

    /// The line of the last operator of a region.
    fn region_line(&self, region: usize) -> Option<Loc> {
        let fused = self.planned.fused.as_ref()?;
        let last = fused.regions.get(region)?.nodes.last()?;
        fused.original.graph.loc(*last)
    }

    /// The error of a region that failed; `None` if its operators do not fail one by one.
    fn region_error(&mut self, segment: &Segment, launched: &LaunchedRegion) -> Option<Error> {
        self.region_results(segment, launched).err()
    }

    /// The results of the operators of a region, run one by one.
    pub(super) fn region_results(
        &mut self,
        segment: &Segment,
        launched: &LaunchedRegion,
    ) -> Result<Vec<Tensor>> {
        let fused = self.planned.fused.as_ref().ok_or_else(wrong_graph)?;
        let region = fused.regions.get(launched.region).ok_or_else(wrong_graph)?;
        let tensor = |at: &TensorAt| self.tensor(segment, at);
        let operands = launched.operands.iter().map(tensor).collect::<Result<Vec<Tensor>>>()?;
        let (graph, numbers) = (&fused.original.graph, &launched.integers);
        run_nodes(graph, region, numbers, &operands, self.source_info)
    }
}
