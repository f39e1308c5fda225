//! The reference evaluator: stage by stage, one element at a time, without optimization.

mod point;

use super::array::{Array, each_position, numel};
use super::contract::sum_of_products;
use super::fold::{Fold, Lanes, Order, ReferenceFold, State};
use super::sort::sorted;
use super::{AxisId, Combine, LaunchScalar, LoopNest, Source, Stage, StageKind, StageOutput};
use crate::Scalar;
use crate::scalar_expr::{self, Functions, StdFunctions, binary};
use crate::sym::{Expr, SymError, SymbolId};
use point::Point;
use smallvec::SmallVec;

/// The error of an evaluation of a nest.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The number of operands or of launch scalars is wrong.
    #[error("the nest takes {expected} {what}, found {found}")]
    Count {
        /// `operands` or `numbers`.
        what: &'static str,
        /// The number that it takes.
        expected: usize,
        /// The number given.
        found: usize,
    },
    /// An operand has another dtype or other sizes.
    #[error("operand a{operand} must be {expected}, found {found}")]
    Operand {
        /// The operand.
        operand: usize,
        /// Its dtype and sizes.
        expected: String,
        /// Those given.
        found: String,
    },
    /// A size has no value, or overflows.
    #[error(transparent)]
    Size(#[from] SymError),
    /// An extent is negative, or a stage has too many points.
    #[error("stage t{stage} has extents {extents:?}")]
    Extents {
        /// The stage.
        stage: usize,
        /// The extents of its axes.
        extents: Vec<i64>,
    },
    /// A load is outside its source.
    #[error("stage t{stage} reads outside the source of load {load}")]
    Outside {
        /// The stage.
        stage: usize,
        /// The load.
        load: u32,
    },
    /// A sort keeps more elements than there are.
    #[error("a sort of {of} elements cannot keep {kept}")]
    Kept {
        /// The elements to keep.
        kept: usize,
        /// Those that there are.
        of: usize,
    },
    /// An assertion does not hold.
    #[error("{0}")]
    Assertion(Box<str>),
    /// The error of an expression.
    #[error(transparent)]
    Expr(#[from] scalar_expr::EvalError),
}

type Result<T, E = EvalError> = std::result::Result<T, E>;

/// The values of a launch.
struct Launch<'a> {
    nest: &'a LoopNest,
    operands: &'a [Array],
    scalars: Vec<Scalar>,
    extents: Vec<i64>,
    symbols: &'a dyn Fn(SymbolId) -> Option<i64>,
    functions: &'a dyn Functions,
    /// The outputs of the stages that are evaluated.
    stages: Vec<SmallVec<[Array; 2]>>,
}

impl LoopNest {
    /// Evaluates the nest with the constants of CPUs and the functions of the standard library.
    /// `symbols` is the value of a symbol. `numbers` are the values of [`LaunchScalar::Number`], in
    /// order.
    ///
    /// # Errors
    /// An operand, number or size is missing or of another type; an integer is divided by zero; a
    /// position is out of bounds; or an assertion does not hold. The first failure in the order of
    /// stages, and of a stage's points, is reported.
    pub fn eval(
        &self,
        symbols: &dyn Fn(SymbolId) -> Option<i64>,
        operands: &[Array],
        numbers: &[Scalar],
    ) -> Result<Vec<Array>> {
        self.eval_with(symbols, operands, numbers, &StdFunctions)
    }

    /// As [`LoopNest::eval`], with other elementary functions.
    ///
    /// # Errors
    /// As [`LoopNest::eval`].
    pub fn eval_with(
        &self,
        symbols: &dyn Fn(SymbolId) -> Option<i64>,
        operands: &[Array],
        numbers: &[Scalar],
        functions: &dyn Functions,
    ) -> Result<Vec<Array>> {
        let number = |e: Expr| self.symbols.eval(e, symbols);
        self.check_operands(operands, &number)?;
        let extents = self.axes.iter().map(|&e| number(e)).collect::<Result<_, SymError>>()?;
        let scalars = self.launch_scalars(numbers, &number)?;
        let mut launch = Launch {
            nest: self,
            operands,
            scalars,
            extents,
            symbols,
            functions,
            stages: Vec::new(),
        };
        for (s, stage) in self.stages.iter().enumerate() {
            let outputs = launch.stage(s, stage)?;
            launch.stages.push(outputs);
        }
        Ok(self.results.iter().filter_map(|&r| launch.output(r).cloned()).collect())
    }

    fn check_operands(
        &self,
        operands: &[Array],
        number: &dyn Fn(Expr) -> Result<i64, SymError>,
    ) -> Result<()> {
        count("operands", self.operands.len(), operands.len())?;
        for (i, (operand, array)) in self.operands.iter().zip(operands).enumerate() {
            let sizes = operand.sizes.iter().map(|&e| number(e));
            let sizes = sizes.collect::<Result<Vec<i64>, SymError>>()?;
            if operand.dtype != array.dtype() || sizes != array.sizes() {
                let expected = format!("{}{sizes:?}", operand.dtype);
                let found = format!("{}{:?}", array.dtype(), array.sizes());
                return Err(EvalError::Operand { operand: i, expected, found });
            }
        }
        Ok(())
    }

    fn launch_scalars(
        &self,
        numbers: &[Scalar],
        number: &dyn Fn(Expr) -> Result<i64, SymError>,
    ) -> Result<Vec<Scalar>> {
        let is_number = |s: &&LaunchScalar| matches!(s, LaunchScalar::Number(_));
        count("numbers", self.scalars.iter().filter(is_number).count(), numbers.len())?;
        let mut given = numbers.iter();
        let mut value = |scalar: &LaunchScalar| match scalar {
            LaunchScalar::Size(e) => Ok(Scalar::Int(number(*e)?)),
            LaunchScalar::Number(_) => Ok(given.next().copied().unwrap_or(Scalar::Int(0))),
        };
        self.scalars.iter().map(&mut value).collect()
    }
}

fn count(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(EvalError::Count { what, expected, found }) }
}

impl Launch<'_> {
    fn output(&self, of: StageOutput) -> Option<&Array> {
        self.stages.get(of.stage.index())?.get(of.output as usize)
    }

    fn source(&self, from: Source) -> Option<&Array> {
        match from {
            Source::Operand(o) => self.operands.get(o.index()),
            Source::Stage(output) => self.output(output),
        }
    }

    fn extents(&self, axes: &[AxisId]) -> Vec<i64> {
        axes.iter().map(|a| self.extents.get(a.index()).copied().unwrap_or(0)).collect()
    }

    /// Evaluates a stage.
    fn stage(&self, s: usize, stage: &Stage) -> Result<SmallVec<[Array; 2]>> {
        let extents = self.extents(&stage.over);
        if numel(&extents).is_none() {
            return Err(EvalError::Extents { stage: s, extents });
        }
        let at = |coords: &[i64]| {
            let point = Point { launch: self, stage, coords };
            stage.expr.eval_in(&point, self.functions).map_err(|e| self.error(s, e))
        };
        match &stage.kind {
            StageKind::Scatter { into, combine } => self.scatter(stage, *into, *combine, &at),
            kind => {
                let outer = stage.axes();
                let mut outputs: SmallVec<[Vec<Scalar>; 2]> =
                    stage.output_dtypes().iter().map(|_| Vec::new()).collect();
                // a scan and a sort give a line at a time, which is put in its place afterwards
                let lines = match kind {
                    StageKind::Scan { along, .. } => Some((*along, *along)),
                    StageKind::Sort { along, keep, .. } => Some((*along, *keep)),
                    _ => None,
                };
                let sizes = self.extents(&outer);
                let total = numel(&sizes).unwrap_or(0);
                outputs.iter_mut().for_each(|o| o.resize(total, Scalar::Int(0)));
                match lines {
                    None => {
                        let mut flat = 0;
                        each_position(&sizes, |position| {
                            for (o, x) in outputs.iter_mut().zip(self.value(stage, position, &at)?)
                            {
                                o[flat] = x;
                            }
                            flat += 1;
                            Ok::<(), EvalError>(())
                        })?;
                    }
                    Some((along, keep)) => {
                        let dim = outer.iter().position(|a| *a == keep).unwrap_or(0);
                        let mut starts = sizes.clone();
                        starts[dim] = starts[dim].min(1);
                        let stride: i64 = sizes[dim + 1..].iter().product();
                        each_position(&starts, |position| {
                            let start = position.iter().zip(&sizes).fold(0, |f, (p, n)| f * n + p);
                            let kept = sizes[dim] as usize;
                            let line = self.line(stage, along, (dim, kept), position, &at)?;
                            for (o, values) in outputs.iter_mut().zip(line) {
                                for (x, i) in values.into_iter().zip(0..sizes[dim]) {
                                    o[(start + i * stride) as usize] = x;
                                }
                            }
                            Ok::<(), EvalError>(())
                        })?;
                    }
                }
                let dtypes = stage.output_dtypes();
                let arrays = outputs.into_iter().zip(dtypes);
                Ok(arrays.filter_map(|(xs, dtype)| Array::new(dtype, &sizes, xs)).collect())
            }
        }
    }

    /// The outputs of a map, reduction or contraction at a position of its result.
    fn value(
        &self,
        stage: &Stage,
        position: &[i64],
        at: &dyn Fn(&[i64]) -> Result<Vec<Scalar>>,
    ) -> Result<Vec<Scalar>> {
        let values = |along: &[AxisId]| -> Result<Vec<Vec<Scalar>>> {
            let mut values = Vec::new();
            // the axes in the order of the stage: those of the result at the position, the others
            // at every coordinate
            let extents: Vec<i64> = stage
                .over
                .iter()
                .map(|a| match along.contains(a) {
                    true => self.extents[a.index()],
                    false => 1,
                })
                .collect();
            each_position(&extents, |folded| {
                let mut kept = position.iter();
                let coords: Vec<i64> = stage
                    .over
                    .iter()
                    .zip(folded)
                    .map(
                        |(a, &f)| {
                            if along.contains(a) { f } else { kept.next().copied().unwrap_or(0) }
                        },
                    )
                    .collect();
                values.push(at(&coords)?);
                Ok::<(), EvalError>(())
            })?;
            Ok(values)
        };
        match &stage.kind {
            StageKind::Reduce { along, fold, order } => {
                let states: Vec<_> = values(along)?.into_iter().map(Into::into).collect();
                Ok(self.folding(stage, fold, *order).fold(&states)?.into_vec())
            }
            StageKind::Contract { along } => {
                let factors: Vec<(Scalar, Scalar)> =
                    values(along)?.iter().map(|v| (v[0], v[1])).collect();
                Ok(vec![sum_of_products(stage.output_dtypes()[0], &factors)?])
            }
            _ => at(position),
        }
    }

    /// The outputs of a scan or sort along a line.
    fn line(
        &self,
        stage: &Stage,
        along: AxisId,
        (dim, kept): (usize, usize),
        position: &[i64],
        at: &dyn Fn(&[i64]) -> Result<Vec<Scalar>>,
    ) -> Result<Vec<Vec<Scalar>>> {
        let mut coords = position.to_vec();
        let mut values = Vec::new();
        for i in 0..self.extents[along.index()] {
            coords[dim] = i;
            values.push(at(&coords)?);
        }
        let mut outputs = vec![Vec::new(); stage.output_dtypes().len()];
        match &stage.kind {
            StageKind::Scan { fold, order, .. } => {
                let values: Vec<State> = values.into_iter().map(Into::into).collect();
                for state in self.folding(stage, fold, Order::Lanes).scan(*order, &values)? {
                    outputs.iter_mut().zip(&state).for_each(|(o, x)| o.push(Array::one_nan(*x)));
                }
            }
            StageKind::Sort { descending, .. } => {
                let values: Vec<Scalar> = values.iter().map(|v| v[0]).collect();
                if values.len() < kept {
                    return Err(EvalError::Kept { kept, of: values.len() });
                }
                for i in sorted(&values, *descending) {
                    outputs[0].push(values[i]);
                    outputs[1].push(Scalar::Int(i as i64));
                }
            }
            _ => {}
        }
        Ok(outputs)
    }

    fn folding<'f>(&'f self, stage: &Stage, fold: &'f Fold, order: Order) -> ReferenceFold<'f> {
        let dtypes = stage.expr.output_dtypes().collect();
        ReferenceFold { fold, order, lanes: Lanes::ORDER, dtypes, functions: self.functions }
    }

    fn scatter(
        &self,
        stage: &Stage,
        into: Source,
        combine: Combine,
        at: &dyn Fn(&[i64]) -> Result<Vec<Scalar>>,
    ) -> Result<SmallVec<[Array; 2]>> {
        let Some(mut result) = self.source(into).cloned() else { return Ok(SmallVec::new()) };
        let mut updates = Vec::new();
        each_position(&self.extents(&stage.over), |coords| {
            let values = at(coords)?;
            let position: Vec<i64> = values[1..].iter().map(|p| p.to_i64()).collect();
            let flat = result.flat(&position).ok_or_else(|| out_of_bounds(&position, &result))?;
            updates.push((flat, values[0]));
            Ok::<(), EvalError>(())
        })?;
        let dtype = result.dtype();
        for (flat, new) in updates {
            if let Some(old) = result.element_mut(flat) {
                *old = match combine {
                    Combine::Replace => new,
                    Combine::Op(op) => {
                        Array::one_nan(binary(op, *old, new, dtype, self.functions)?)
                    }
                };
            }
        }
        Ok([result].into_iter().collect())
    }

    fn error(&self, stage: usize, e: scalar_expr::EvalError) -> EvalError {
        match e {
            scalar_expr::EvalError::Assertion { message } => {
                let message = self.nest.messages.get(message as usize).cloned();
                EvalError::Assertion(message.unwrap_or_default())
            }
            scalar_expr::EvalError::Outside { input } => EvalError::Outside { stage, load: input },
            e => e.into(),
        }
    }
}

fn out_of_bounds(position: &[i64], source: &Array) -> EvalError {
    let outside = position.iter().zip(source.sizes()).enumerate();
    let outside = outside
        .filter(|(_, (p, size))| !(0..**size).contains(p))
        .map(|(dim, (&position, &size))| scalar_expr::EvalError::Index { position, dim, size });
    outside.map(EvalError::from).next().unwrap_or(EvalError::Assertion("out of bounds".into()))
}
