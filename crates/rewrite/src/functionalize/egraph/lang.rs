//! The e-graph's language. Payloads are indices given out in program order, so that no order
//! depends on a hash or an address.

use super::op_semantics::OpSemantics;
use crate::functionalize::value_graph::{CallId, Interner, Kind, MetaId, SpecId};
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use maquette_ir::graph::OpFacts;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Operands of a call.
pub(crate) type Operands = SmallVec<[Id; 4]>;

/// The metadata of a call's operands.
pub(crate) type Metas = SmallVec<[Option<MetaId>; 4]>;

/// A term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Term {
    Input(u32),
    Const(u32),
    /// Of a base.
    View(SpecId, [Id; 1]),
    /// Base, source.
    Scatter(SpecId, [Id; 2]),
    Call(CallId, Operands),
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

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Value(Kind),
    /// The values of a call that gives several.
    Tuple(CallId),
}

/// The tables, and what operators do.
pub(crate) struct Cx<'f> {
    pub interner: Interner,
    pub facts: &'f dyn OpFacts,
    /// Kinds of inputs and constants.
    pub inputs: Vec<Kind>,
    pub consts: Vec<Kind>,
    /// What is known of each term, by its id: the same for all terms of a class.
    pub data: Vec<Data>,
    /// What rules found out about calls, by key and the operands' metadata.
    pub calls: FxHashMap<(CallId, Metas), OpSemantics>,
    /// An input or constant of each kind of tensor.
    pub leaves: FxHashMap<MetaId, Id>,
    /// `0.0` and `-0.0` may stand for each other.
    pub no_signed_zeros: bool,
}

impl Cx<'_> {
    fn kind(&self, id: Id) -> Kind {
        match self.data.get(usize::from(id)) {
            Some(Data::Value(k)) => *k,
            Some(Data::Tuple(_)) | None => Kind::Tuple,
        }
    }

    /// The metadata of a value that is a tensor.
    pub fn meta(&self, id: Id) -> Option<MetaId> {
        if let Kind::Tensor(m) = self.kind(id) { Some(m) } else { None }
    }

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
    /// What is known of a term never changes, and is kept by term: classes of what the program has
    /// are many, and small.
    type Data = ();

    fn make(g: &mut Egraph<'f>, term: &Term, id: Id) {
        if usize::from(id) == g.analysis.data.len() {
            let data = g.analysis.describe(term);
            g.analysis.data.push(data);
            if let (Data::Value(Kind::Tensor(meta)), Term::Input(_) | Term::Const(_)) = (data, term)
            {
                g.analysis.leaves.entry(meta).or_insert(id);
            }
        }
    }

    fn merge(&mut self, _: &mut (), _: ()) -> DidMerge {
        DidMerge(false, false)
    }
}
