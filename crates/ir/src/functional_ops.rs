//! The functional dialect: the operators that only functional graphs have, and their decoding.
//!
//! Views and stores address the elements of a value by offset, sizes and strides. These count the
//! value's elements in row-major order, whatever its layout in memory is. Every other node calls an
//! operator of a library, either directly or through [`CALL`].

use crate::fused::FusionKind;
use crate::graph::{Arg, Graph, NodeId, Span, StrId, ValueId};
use crate::sym::Expr;

/// A strided view of a value: `(self, size, stride, offset)`.
pub const VIEW: &str = "ir::view";
/// A value with a strided view of it replaced: `(self, src, size, stride, offset)`.
pub const SCATTER: &str = "ir::scatter";
/// The same value, laid out with these strides: `(self, stride)`. Operators that observe strides
/// take such operands.
pub const STRIDED: &str = "ir::strided";
/// The same value, which is not computed in one kernel with what reads it: `(self)`. Operators that
/// are computed again read their operands through barriers, since fusion would otherwise move them
/// to the operators that compute the operands, and keep their results from there on.
pub const BARRIER: &str = "ir::barrier";
/// A call of an operator that mutates, on copies: the operator's name, then its arguments. It
/// returns the operator's results, except those that are mutated arguments, and then the copies in
/// the order of the arguments.
pub const CALL: &str = "ir::call";
/// A check at run time that two regions share no element:
/// `(first, second, first_name, second_name)`.
pub const DISJOINT: &str = "ir::apart";
/// A check at run time that no two elements of a region coincide: `(size, stride, name)`.
pub const INJECTIVE: &str = "ir::distinct";
/// A tensor with any elements: each is replaced before anything reads it. It has no kernel, since
/// only its memory matters.
pub const EMPTY: &str = "ir::empty";
/// Operators that are computed together: the kind and the number of the region, the tensors that it
/// reads, and the integers among the arguments of its operators. See [`fused`](crate::fused).
pub const FUSED: &str = "ir::fused";

/// The schemas of the operators that have kernels. [`CALL`] has the arguments of the operator it
/// names; [`EMPTY`] and [`FUSED`] stand in graphs that only compiled programs have.
pub mod schemas {
    /// Of [`VIEW`](super::VIEW).
    pub const VIEW: &str =
        "ir::view(Tensor self, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor";
    /// Of [`SCATTER`](super::SCATTER).
    pub const SCATTER: &str = "ir::scatter(Tensor self, Tensor src, SymInt[] size, \
        SymInt[] stride, SymInt offset) -> Tensor";
    /// Of [`STRIDED`](super::STRIDED).
    pub const STRIDED: &str = "ir::strided(Tensor self, SymInt[] stride) -> Tensor";
    /// Of [`BARRIER`](super::BARRIER).
    pub const BARRIER: &str = "ir::barrier(Tensor self) -> Tensor";
    /// Of [`DISJOINT`](super::DISJOINT).
    pub const DISJOINT: &str =
        "ir::apart(SymInt[] first, SymInt[] second, str first_name, str second_name) -> ()";
    /// Of [`INJECTIVE`](super::INJECTIVE).
    pub const INJECTIVE: &str = "ir::distinct(SymInt[] size, SymInt[] stride, str name) -> ()";
}

/// Whether an operator belongs to the functional dialect.
pub fn is_functional_op(name: &str) -> bool {
    name.starts_with("ir::")
}

/// A node of a functional graph.
#[derive(Clone, Copy, Debug)]
pub enum FunctionalOp<'g> {
    /// [`VIEW`].
    View {
        /// The viewed value.
        base: ValueId,
        /// The viewed elements.
        region: Region<'g>,
    },
    /// [`SCATTER`].
    Scatter {
        /// The value of which a part is replaced.
        base: ValueId,
        /// The new elements.
        source: ValueId,
        /// The replaced elements.
        region: Region<'g>,
    },
    /// [`STRIDED`].
    Strided {
        /// The value.
        operand: ValueId,
    },
    /// [`BARRIER`].
    Barrier {
        /// The value.
        operand: ValueId,
    },
    /// [`DISJOINT`], which graph text calls `ir::apart`.
    Disjoint {
        /// Both regions: each an offset, then sizes, then strides.
        regions: [List<'g>; 2],
    },
    /// [`INJECTIVE`], which graph text calls `ir::distinct`.
    Injective {
        /// The sizes.
        sizes: List<'g>,
        /// The strides.
        strides: List<'g>,
    },
    /// [`EMPTY`].
    Empty,
    /// [`FUSED`].
    Fused {
        /// How it is computed.
        kind: FusionKind,
        /// The number of the region.
        region: usize,
        /// The tensors that it reads.
        operands: &'g [Arg],
        /// The integers that its operators take.
        integers: List<'g>,
        /// Pairs of an operand and of a result that may be written over it, as a flat list of their
        /// positions. Absent if there are none. Every result of [`FusionKind::Elements`] may be
        /// written over every operand, without a pair.
        overwrites: List<'g>,
    },
    /// Every other operator.
    Call(Callee<'g>),
}

/// A list of integers among a node's arguments.
#[derive(Clone, Copy, Debug)]
pub struct List<'g>(&'g [Arg]);

/// Arguments are not those of an operator of the functional dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedNode;

impl<'g> List<'g> {
    /// A list of a graph.
    ///
    /// # Errors
    /// An element is not an integer.
    pub fn of(graph: &'g Graph, list: Span) -> Result<List<'g>, MalformedNode> {
        let elements = graph.list(list);
        let integers = elements.iter().all(|a| matches!(a, Arg::Int(_)));
        if integers { Ok(List(elements)) } else { Err(MalformedNode) }
    }

    /// The integers.
    pub fn iter(self) -> impl Iterator<Item = Expr> + 'g {
        self.0.iter().filter_map(|a| if let Arg::Int(e) = a { Some(*e) } else { None })
    }
}

/// A strided region of a value.
#[derive(Clone, Copy, Debug)]
pub struct Region<'g> {
    /// Its sizes.
    pub sizes: List<'g>,
    /// Its strides.
    pub strides: List<'g>,
    /// The position of its first element.
    pub offset: Expr,
}

/// The library operator that a node calls.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'g> {
    /// Its name.
    pub op: &'g str,
    /// Its name as an interned string of the graph: equal operators have equal ids.
    pub id: StrId,
    /// Its positional arguments.
    pub args: &'g [Arg],
    /// Whether it mutates arguments, which are copies then.
    pub mutates: bool,
}

impl<'g> Callee<'g> {
    /// The operator that a node calls, through [`CALL`] or directly.
    pub fn of(graph: &'g Graph, node: NodeId) -> Callee<'g> {
        let (id, args) = (graph.op(node), graph.args(node));
        match (graph.str(id), args) {
            (CALL, [Arg::Str(id), args @ ..]) => {
                Callee { op: graph.str(*id), id: *id, args, mutates: true }
            }
            (op, args) => Callee { op, id, args, mutates: false },
        }
    }
}

impl<'g> FunctionalOp<'g> {
    /// Decodes a node.
    ///
    /// # Errors
    /// The node has an operator of the functional dialect with arguments that it does not take.
    pub fn of(graph: &'g Graph, node: NodeId) -> Result<FunctionalOp<'g>, MalformedNode> {
        let list = |span| List::of(graph, span);
        Ok(match (graph.op_name(node), graph.args(node)) {
            (VIEW, &[Arg::Value(base), Arg::List(sizes), Arg::List(strides), Arg::Int(offset)]) => {
                let region = Region { sizes: list(sizes)?, strides: list(strides)?, offset };
                FunctionalOp::View { base, region }
            }
            (
                SCATTER,
                &[
                    Arg::Value(base),
                    Arg::Value(source),
                    Arg::List(sizes),
                    Arg::List(strides),
                    Arg::Int(offset),
                ],
            ) => {
                let region = Region { sizes: list(sizes)?, strides: list(strides)?, offset };
                FunctionalOp::Scatter { base, source, region }
            }
            (STRIDED, &[Arg::Value(operand), _]) => FunctionalOp::Strided { operand },
            (BARRIER, &[Arg::Value(operand)]) => FunctionalOp::Barrier { operand },
            (DISJOINT, &[Arg::List(first), Arg::List(second), ..]) => {
                FunctionalOp::Disjoint { regions: [list(first)?, list(second)?] }
            }
            (INJECTIVE, &[Arg::List(sizes), Arg::List(strides), ..]) => {
                FunctionalOp::Injective { sizes: list(sizes)?, strides: list(strides)? }
            }
            (EMPTY, &[]) => FunctionalOp::Empty,
            (
                FUSED,
                &[
                    Arg::Str(kind),
                    Arg::Int(region),
                    Arg::List(operands),
                    Arg::List(integers),
                    ref overwrites @ ..,
                ],
            ) => {
                let kind = FusionKind::named(graph.str(kind)).ok_or(MalformedNode)?;
                let region = region.as_i64().and_then(|n| usize::try_from(n).ok());
                let region = region.ok_or(MalformedNode)?;
                let (operands, integers) = (graph.list(operands), list(integers)?);
                let overwrites = match *overwrites {
                    [] => List(&[]),
                    [Arg::List(pairs)] => list(pairs)?,
                    _ => return Err(MalformedNode),
                };
                FunctionalOp::Fused { kind, region, operands, integers, overwrites }
            }
            (VIEW | SCATTER | STRIDED | BARRIER | DISJOINT | INJECTIVE | EMPTY | FUSED, _) => {
                return Err(MalformedNode);
            }
            _ => FunctionalOp::Call(Callee::of(graph, node)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_decoded_by_operator_and_arguments() {
        let graph: Graph = "graph g(%x: f32[4], %y: f32[2]) -> (f32[4]) {
            %v: f32[2] = ir::view(%x, [2], [1], 1)
            %s: f32[4] = ir::scatter(%x, %y, [2], [2], 0)
            ir::apart([0, 2, 1], [2, 2, 1], \"a\", \"b\")
            %c: f32[4] = ir::call(\"lib::add_\", %s, 1)
            %n: f32[2] = lib::neg(%v)
            %e: f32[4] = ir::empty()
            return %c
        }"
        .parse()
        .unwrap();
        let ops: Vec<FunctionalOp<'_>> =
            graph.nodes().map(|n| FunctionalOp::of(&graph, n).unwrap()).collect();
        let ints = |l: List<'_>| l.iter().map(|e| e.as_i64().unwrap()).collect::<Vec<_>>();
        let FunctionalOp::View { region, .. } = ops[0] else { panic!("{:?}", ops[0]) };
        assert_eq!(
            (ints(region.sizes), ints(region.strides), region.offset),
            (vec![2], vec![1], Expr::Int(1))
        );
        assert!(matches!(ops[1], FunctionalOp::Scatter { base, .. } if base == graph.inputs()[0]));
        let FunctionalOp::Disjoint { regions } = ops[2] else { panic!("{:?}", ops[2]) };
        assert_eq!(regions.map(ints), [[0, 2, 1], [2, 2, 1]]);
        let FunctionalOp::Call(call) = ops[3] else { panic!("{:?}", ops[3]) };
        assert_eq!((call.op, call.args.len(), call.mutates), ("lib::add_", 2, true));
        let FunctionalOp::Call(call) = ops[4] else { panic!("{:?}", ops[4]) };
        assert_eq!((call.op, call.args.len(), call.mutates), ("lib::neg", 1, false));
        assert!(matches!(ops[5], FunctionalOp::Empty));
    }

    #[test]
    fn malformed_nodes_are_refused() {
        let graph: Graph = "graph g(%x: f32[4]) -> (f32[4]) {
            %v: f32[4] = ir::view(%x, [4], 1, 0)
            return %v
        }"
        .parse()
        .unwrap();
        let node = graph.nodes().next().unwrap();
        assert_eq!(FunctionalOp::of(&graph, node).unwrap_err(), MalformedNode);
    }

    #[test]
    fn schemas_name_their_operators() {
        let all = [
            (VIEW, schemas::VIEW),
            (SCATTER, schemas::SCATTER),
            (STRIDED, schemas::STRIDED),
            (BARRIER, schemas::BARRIER),
            (DISJOINT, schemas::DISJOINT),
            (INJECTIVE, schemas::INJECTIVE),
        ];
        for (name, schema) in all {
            let parsed: crate::schema::Schema = schema.parse().unwrap();
            assert_eq!(parsed.name.to_string(), name);
        }
    }
}
