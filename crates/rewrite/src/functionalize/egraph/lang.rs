//! The e-graph's language: terms, and the analysis that gives every term its metadata.
//!
//! A [`Term`] is a node of the [value graph](crate::functionalize::value_graph) whose operands are
//! e-classes. Payloads are indices that are assigned in program order, so that the order of terms
//! depends on no hash and no address.

use super::op_semantics::OpSemantics;
use crate::functionalize::value_graph::{CallId, Interner, Kind, MetaId, SpecId};
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use maquette_ir::graph::OpFacts;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The operand classes of a call.
pub(crate) type Operands = SmallVec<[Id; 4]>;

/// The metadata of a call's operands; `None` for operands that are no tensors.
pub(crate) type Metas = SmallVec<[Option<MetaId>; 4]>;

/// A term of the e-graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Term {
    Input(u32),
    Const(u32),
    /// `View(spec, [base])`: the elements of `base` that `spec` names.
    View(SpecId, [Id; 1]),
    /// `Scatter(spec, [base, source])`: `base`, with the elements that `spec` names replaced by
    /// `source`.
    Scatter(SpecId, [Id; 2]),
    /// A call of an operator.
    Call(CallId, Operands),
    /// One value of a call with several.
    Proj(u32, [Id; 1]),
}

impl Language for Term {
    type Discriminant = std::mem::Discriminant<Term>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(self)
    }

    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Term::Input(a), Term::Input(b))
            | (Term::Const(a), Term::Const(b))
            | (Term::Proj(a, _), Term::Proj(b, _)) => a == b,
            (Term::View(a, _), Term::View(b, _)) | (Term::Scatter(a, _), Term::Scatter(b, _)) => {
                a == b
            }
            (Term::Call(a, x), Term::Call(b, y)) => a == b && x.len() == y.len(),
            _ => false,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            Term::Input(_) | Term::Const(_) => &[],
            Term::View(_, c) | Term::Proj(_, c) => c,
            Term::Scatter(_, c) => c,
            Term::Call(_, c) => c,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Term::Input(_) | Term::Const(_) => &mut [],
            Term::View(_, c) | Term::Proj(_, c) => c,
            Term::Scatter(_, c) => c,
            Term::Call(_, c) => c,
        }
    }
}

/// The e-class data: the metadata that all terms of a class share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// One value.
    Value(Kind),
    /// All values of a call with several.
    Tuple(CallId),
}

/// The context of a saturation: interned tables, facts of operators and caches.
pub(crate) struct Cx<'f> {
    pub interner: Interner,
    pub facts: &'f dyn OpFacts,
    /// The kinds of the graph's inputs.
    pub inputs: Vec<Kind>,
    /// The kinds of the graph's constants.
    pub consts: Vec<Kind>,
    /// The data of each term, by the term's id. The terms of one class have equal data.
    pub data: Vec<Data>,
    /// What rules know of calls, by key and operand metadata.
    pub calls: FxHashMap<(CallId, Metas), OpSemantics>,
    /// For each tensor metadata, the first input or constant that has it.
    pub leaves: FxHashMap<MetaId, Id>,
    /// Treat `0.0` and `-0.0` as equal, so that more operands are identities.
    pub no_signed_zeros: bool,
}

impl Cx<'_> {
    /// The kind of a class's value.
    fn kind(&self, id: Id) -> Kind {
        match self.data.get(usize::from(id)) {
            Some(Data::Value(k)) => *k,
            Some(Data::Tuple(_)) | None => Kind::Tuple,
        }
    }

    /// The metadata of a class if it is a tensor.
    pub fn meta(&self, id: Id) -> Option<MetaId> {
        if let Kind::Tensor(m) = self.kind(id) { Some(m) } else { None }
    }

    /// Derives the data of a term from its operands' data.
    fn describe(&mut self, term: &Term) -> Data {
        Data::Value(match term {
            Term::Input(i) => self.inputs.get(*i as usize).copied().unwrap_or(Kind::Tuple),
            Term::Const(i) => self.consts.get(*i as usize).copied().unwrap_or(Kind::Tuple),
            Term::View(s, [base]) => match self.kind(*base) {
                Kind::Tensor(meta) => Kind::Tensor(self.interner.viewed(*s, meta)),
                _ => Kind::Tuple,
            },
            Term::Scatter(_, [base, _]) => self.kind(*base),
            Term::Call(call, _) => match self.interner.calls[call.index()].kind() {
                Kind::Tuple => return Data::Tuple(*call),
                one => one,
            },
            Term::Proj(i, [of]) => match self.data.get(usize::from(*of)) {
                Some(Data::Tuple(call)) => self.interner.calls[call.index()]
                    .kinds()
                    .nth(*i as usize)
                    .unwrap_or(Kind::Tuple),
                _ => Kind::Tuple,
            },
        })
    }
}

pub(crate) type Egraph<'f> = EGraph<Term, Cx<'f>>;

impl<'f> Analysis<Term> for Cx<'f> {
    /// The data of a term never changes, and merged classes have equal data. So the data is stored
    /// by term in [`Cx::data`] and not in egg's classes, which are many and small:
    /// [`Worklist::union`] reads it before a merge.
    ///
    /// [`Worklist::union`]: super::worklist::Worklist::union
    type Data = ();

    fn make(egraph: &mut Egraph<'f>, term: &Term, id: Id) {
        if usize::from(id) == egraph.analysis.data.len() {
            let data = egraph.analysis.describe(term);
            egraph.analysis.data.push(data);
            if let (Data::Value(Kind::Tensor(meta)), Term::Input(_) | Term::Const(_)) = (data, term)
            {
                egraph.analysis.leaves.entry(meta).or_insert(id);
            }
        }
    }

    fn merge(&mut self, _: &mut (), _: ()) -> DidMerge {
        DidMerge(false, false)
    }
}
