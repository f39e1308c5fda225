//! The images whose channels are last in memory.
//!
//! **Problem.** Images `[N, C, H, W]` are declared with channels as planes. A convolution computes
//! a few channels of each pixel together, so with channels last it writes what it has, its windows
//! are whole vectors however small a plane is, and what follows it for each channel is a vector.
//! Mixed layouts cost more than either one, as between a convolution and the residual that it adds.
//!
//! **Algorithm.** As the layout optimization of Inductor, but by a greatest fixed point: it begins
//! with all values whose layout is free, and drops those that a node would read or make beside
//! planes. A dropped value has its neighbours examined again.
//!
//! **Invariant:** no operator observes the layout of such a value, and the graph has no view of it.
//!
//! **Cost.** Linear in the operands of nodes: a value is dropped once.

use super::Planner;
use super::node_kind::{NodeKind, OpCall};
use crate::error::Result;
use crate::functionalize::value_graph::SpecId;
use maquette_ir::DType;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Arg, ImageRole, NodeId, Placement, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::{SmallVec, smallvec};

/// Images of fewer channels stay planes: pixels would be parts of vectors.
const LEAST_CHANNELS: i64 = 16;

impl Planner<'_> {
    /// Finds the values whose channels are last. Their buffers get that layout when they are made.
    pub(super) fn compute_image_layouts(&mut self) {
        let values = self.graph.values().len();
        self.channels_last = vec![false; values];
        let mut are_any = false;
        for kind in &self.node_kinds {
            let results: &[ValueId] = match kind {
                NodeKind::Call(call) if has_free_layout(call) => &call.results,
                NodeKind::Store { result, .. } | NodeKind::Empty { result } => {
                    std::slice::from_ref(result)
                }
                _ => &[],
            };
            for v in results {
                self.channels_last[v.index()] = self.may_have_channels_last(*v);
            }
            are_any |= matches!(kind, NodeKind::Call(call) if call.images == ImageRole::Makes);
        }
        if !are_any {
            self.channels_last.fill(false);
            return;
        }
        for output in self.graph.outputs() {
            if let Arg::Value(v) = output {
                self.channels_last[v.index()] = false;
            }
        }
        let nodes = self.graph.body().iter().rev().filter_map(|stmt| match stmt {
            Stmt::Node(node) => Some(*node),
            _ => None,
        });
        let mut queue: Vec<NodeId> = nodes.collect();
        while let Some(node) = queue.pop() {
            for v in self.beside_planes(node) {
                if std::mem::take(&mut self.channels_last[v.index()]) {
                    queue.extend(self.graph.producer(v));
                    queue.extend(self.graph.users(v));
                }
            }
        }
    }

    /// Whether a value is a batch of images with enough channels.
    fn may_have_channels_last(&self, v: ValueId) -> bool {
        let Some(ty) = self.graph.tensor_type(v) else { return false };
        let [_, channels, ..] = &ty.sizes[..] else { return false };
        ty.sizes.len() == 4
            && matches!(ty.dtype, DType::F32 | DType::F64)
            && channels.as_i64().is_some_and(|n| n >= LEAST_CHANNELS)
            && !self.is_one_pixel(v)
    }

    fn is_one_pixel(&self, v: ValueId) -> bool {
        let is_one = |e: &Expr| e.as_i64() == Some(1);
        match self.graph.tensor_type(v).map(|ty| &ty.sizes[..]) {
            Some([_, _, rows, columns]) => is_one(rows) && is_one(columns),
            _ => false,
        }
    }

    /// The values with channels last that a node would read or make beside planes.
    fn beside_planes(&self, node: NodeId) -> SmallVec<[ValueId; 4]> {
        let is_last = |v: &ValueId| self.channels_last[v.index()];
        let all_or_none = |values: SmallVec<[ValueId; 4]>| match values.iter().all(is_last) {
            true => smallvec![],
            false => values,
        };
        match &self.node_kinds[node.index()] {
            NodeKind::Call(call) => {
                let sizes = |v: &ValueId| self.graph.tensor_type(*v).map(|ty| &ty.sizes);
                let of_result = call.results.first().and_then(sizes);
                let is_like = |v: &&ValueId| sizes(v) == of_result;
                // An operator that mutates an image may observe its layout.
                let written = call.writes.iter().map(|(before, _)| before).filter(|v| is_last(v));
                if !call.writes.is_empty() && !fault_injected(Fault::WrittenImages) {
                    return written.chain(&call.reads).copied().filter(is_last).collect();
                }
                // Images of one pixel are the same in both layouts.
                let results = call.results.iter().filter(|v| !self.is_one_pixel(**v));
                let reads = call.reads.iter();
                match (call.images, call.placement) {
                    // The first operand is the input, in either layout; others of the result's
                    // sizes are read at its positions.
                    (ImageRole::Makes, _) => {
                        all_or_none(results.chain(reads.skip(1).filter(is_like)).copied().collect())
                    }
                    // An operand of other sizes is repeated, and so is a plane.
                    (ImageRole::Keeps, Placement::Elementwise) => {
                        let is_repeated = |v: &ValueId| is_last(v) && !is_like(&v);
                        let has_images = reads.clone().any(|v| is_like(&v));
                        let all = results.chain(reads.clone()).copied();
                        match has_images && !reads.clone().any(is_repeated) {
                            true => all_or_none(all.filter(|v| is_like(&v)).collect()),
                            false => all.filter(is_last).collect(),
                        }
                    }
                    (ImageRole::Keeps, _) => all_or_none(results.chain(reads).copied().collect()),
                    (ImageRole::Other, _) if fault_injected(Fault::ObservedImages) => smallvec![],
                    (ImageRole::Other, _) => {
                        results.chain(reads).copied().filter(is_last).collect()
                    }
                }
            }
            NodeKind::Store { base, source, result, .. } => {
                all_or_none(smallvec![*base, *source, *result])
            }
            NodeKind::Empty { .. } => smallvec![],
            NodeKind::View { .. } if fault_injected(Fault::ViewedImages) => smallvec![],
            NodeKind::View { base: of, .. }
            | NodeKind::Strided { of, .. }
            | NodeKind::Barrier { of, .. } => smallvec![*of],
        }
    }

    /// The layout of a value whose channels are last; `None` if they are planes.
    pub(super) fn image_layout(&mut self, v: ValueId) -> Result<Option<SpecId>> {
        if !self.channels_last[v.index()] {
            return Ok(None);
        }
        let sizes = self.sizes(v)?;
        let [images, channels, rows, columns] = sizes[..] else { return Ok(None) };
        let by_pixels = [images, rows, columns, channels];
        let by_pixels = ViewSpec::contiguous(&by_pixels, &mut self.interner.symbols)?;
        let strides: SmallVec<[Expr; 4]> = by_pixels.dims().iter().map(|dim| dim.stride).collect();
        let [image, row, column, channel] = strides[..] else { return Ok(None) };
        let strides = [image, channel, row, column];
        let spec = ViewSpec::strided(Expr::Int(0), &sizes, &strides, &mut self.interner.symbols)?;
        Ok(Some(self.interner.spec(spec)))
    }
}

/// Whether a call makes images in any layout.
fn has_free_layout(call: &OpCall) -> bool {
    let is_free = matches!(call.placement, Placement::Elementwise | Placement::Anywhere);
    is_free && matches!(call.images, ImageRole::Makes | ImageRole::Keeps)
}
