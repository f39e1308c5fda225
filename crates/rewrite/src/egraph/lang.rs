//! The e-graph's language. Payloads are indices given out in program order, so that no order depends on a hash or an address.

use crate::dag::{CallId, Kind, Session, SpecId};
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use maquette_ir::graph::OpFacts;
use smallvec::SmallVec;

/// A term. Specs are leaves of their own, so that equal views share them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Term {
    Input(u32),
    Const(u32),
    Spec(SpecId),
    /// Spec, base.
    View([Id; 2]),
    /// Spec, base, source.
    Scatter([Id; 3]),
    Call(CallId, Box<[Id]>),
    Proj(u32, [Id; 1]),
}

impl Language for Term {
    type Discriminant = std::mem::Discriminant<Term>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(self)
    }

    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Term::Input(a), Term::Input(b)) | (Term::Const(a), Term::Const(b)) | (Term::Proj(a, _), Term::Proj(b, _)) => a == b,
            (Term::Spec(a), Term::Spec(b)) => a == b,
            (Term::View(_), Term::View(_)) | (Term::Scatter(_), Term::Scatter(_)) => true,
            (Term::Call(a, x), Term::Call(b, y)) => a == b && x.len() == y.len(),
            _ => false,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            Term::Input(_) | Term::Const(_) | Term::Spec(_) => &[],
            Term::View(c) => c,
            Term::Scatter(c) => c,
            Term::Call(_, c) => c,
            Term::Proj(_, c) => c,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Term::Input(_) | Term::Const(_) | Term::Spec(_) => &mut [],
            Term::View(c) => c,
            Term::Scatter(c) => c,
            Term::Call(_, c) => c,
            Term::Proj(_, c) => c,
        }
    }
}

/// What is known of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Spec(SpecId),
    Value(Kind),
    /// The values of a call that gives several.
    Tuple(SmallVec<[Kind; 4]>),
}

/// The tables, and what operators do.
pub(crate) struct Cx<'f> {
    pub session: Session,
    pub facts: &'f dyn OpFacts,
    /// Kinds of inputs and constants.
    pub inputs: Vec<Kind>,
    pub consts: Vec<Kind>,
    /// Two classes of different kinds were merged: a fault of a rule.
    pub unsound: bool,
}

pub(crate) type Egraph<'f> = EGraph<Term, Cx<'f>>;

impl<'f> Analysis<Term> for Cx<'f> {
    type Data = Data;

    fn make(g: &mut Egraph<'f>, term: &Term, _: Id) -> Data {
        let kind_of = |g: &Egraph<'f>, id: Id| if let Data::Value(k) = g[id].data { k } else { Kind::Tuple };
        match term {
            Term::Input(i) => Data::Value(g.analysis.inputs.get(*i as usize).copied().unwrap_or(Kind::Tuple)),
            Term::Const(i) => Data::Value(g.analysis.consts.get(*i as usize).copied().unwrap_or(Kind::Tuple)),
            Term::Spec(s) => Data::Spec(*s),
            Term::View([s, base]) => match (g[*s].data.clone(), kind_of(g, *base)) {
                (Data::Spec(s), Kind::Tensor(meta)) => {
                    let sizes = g.analysis.session.specs[s.index()].sizes().collect();
                    Data::Value(Kind::Tensor(g.analysis.session.resized(meta, sizes)))
                }
                _ => Data::Value(Kind::Tuple),
            },
            Term::Scatter([_, base, _]) => Data::Value(kind_of(g, *base)),
            Term::Call(call, _) => {
                let template = &g.analysis.session.calls[call.index()];
                match template.kind() {
                    Kind::Tuple => Data::Tuple(template.kinds().collect()),
                    one => Data::Value(one),
                }
            }
            Term::Proj(i, [of]) => match &g[*of].data {
                Data::Tuple(kinds) => Data::Value(kinds.get(*i as usize).copied().unwrap_or(Kind::Tuple)),
                _ => Data::Value(Kind::Tuple),
            },
        }
    }

    fn merge(&mut self, a: &mut Data, b: Data) -> DidMerge {
        self.unsound |= *a != b;
        DidMerge(false, false)
    }
}
