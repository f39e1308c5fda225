//! The plans that a kernel keeps, by the layouts of its last launches.

use super::launch::Symbols;
use super::plan::LaunchPlan;
use crate::error::Result;
use crate::view::{View, ViewMut};
use maquette_ir::sym::SymbolId;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError, RwLock};

/// The plans that a kernel keeps.
const KEPT: usize = 8;

/// The values of a nest's symbols.
type SymbolValues = SmallVec<[Option<i64>; 4]>;

/// The plans of the last layouts that a kernel was launched with, the newest first.
#[derive(Debug, Default)]
pub(super) struct Plans(RwLock<Vec<(SymbolValues, Arc<LaunchPlan>)>>);

impl Plans {
    /// The kept plan of these layouts and symbols, or else one that `make` makes.
    pub fn find(
        &self,
        names: &[SymbolId],
        symbols: Symbols<'_>,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
        make: impl FnOnce() -> Result<LaunchPlan>,
    ) -> Result<Arc<LaunchPlan>> {
        let values: SymbolValues = names.iter().map(|s| symbols(*s)).collect();
        let plans = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(of, plan): &&(SymbolValues, Arc<LaunchPlan>)| {
            *of == values && plan.fits(operands, results)
        };
        if let Some((_, plan)) = plans.iter().find(is_it) {
            return Ok(Arc::clone(plan));
        }
        drop(plans);
        let plan = Arc::new(make()?);
        let mut plans = self.0.write().unwrap_or_else(PoisonError::into_inner);
        plans.truncate(KEPT - 1);
        plans.insert(0, (values, Arc::clone(&plan)));
        Ok(plan)
    }
}
