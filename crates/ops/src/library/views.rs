//! What decides which elements the views have that an operator returns.
//!
//! A builtin view has a rule, which both the kernel and the fake kernel apply. A kernel that
//! overrides the operator chooses other elements, and the rule still tells a trace those of the
//! builtin. A composite is overridden by an override of an operator that it calls, too.

use super::op::{Op, builtins_changed};
use super::registry;
use crate::operator;
use maquette_ir::graph::ViewSource;
use std::sync::OnceLock;

impl Op {
    /// What decides which elements the views have that the operator returns.
    #[doc(hidden)]
    pub fn view_source(self) -> ViewSource {
        let Ok(state) = self.state() else { return ViewSource::Kernel };
        match state.plain_builtin().filter(|_| state.fake.is_none()) {
            Some(def) if def.lowering.composite_body().is_none() => ViewSource::Rule,
            Some(_) if have_own_rules() => ViewSource::Rule,
            None if state.builtin.is_none() => ViewSource::Promise,
            Some(_) | None => ViewSource::Kernel,
        }
    }

    /// Whether the operator returns views that only its kernel knows, while the rule of the builtin
    /// operator tells a trace other ones: what a trace knows of them are the sizes and strides.
    #[doc(hidden)]
    pub fn chooses_views(self) -> bool {
        let is_view = |i: usize| self.return_alias(i).is_some_and(|arg| !self.mutates(arg));
        let Ok(state) = self.state() else { return false };
        state.fake.is_none()
            && (0..state.schema.returns.len()).any(is_view)
            && self.view_source() == ViewSource::Kernel
    }

    /// The operators whose registrations decide what the views of this one are, besides its own:
    /// a composite calls other views.
    #[doc(hidden)]
    pub fn views_in_parts(self) -> &'static [Op] {
        let composite = self.0.builtin.is_some_and(|def| def.lowering.composite_body().is_some());
        let is_view = || self.return_alias(0).is_some_and(|arg| !self.mutates(arg));
        if composite && is_view() { builtin_views() } else { &[] }
    }

    /// Whether nothing overrides the kernel or the fake kernel of the builtin operator.
    fn has_own_rule(self) -> bool {
        self.state().is_ok_and(|state| state.plain_builtin().is_some() && state.fake.is_none())
    }
}

/// Whether nothing overrides a builtin view.
fn have_own_rules() -> bool {
    !builtins_changed() || builtin_views().iter().all(|view| view.has_own_rule())
}

/// The builtin operators that return views.
fn builtin_views() -> &'static [Op] {
    static VIEWS: OnceLock<Vec<Op>> = OnceLock::new();
    VIEWS.get_or_init(|| {
        let views = operator::builtins().filter(|def| def.schema.contains("-> Tensor(a"));
        let ops = views.filter_map(|def| registry::find_defined(def.schema.split('(').next()?));
        ops.collect()
    })
}
