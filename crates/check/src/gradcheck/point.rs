//! All checks on one choice of inputs.

use super::variants::{Variant, len};
use super::{Function, GradcheckOptions, jacobian};
use crate::values::{element_bytes, on_device_of};
use maquette_ir::DType;
use maquette_ops::autograd::{BackwardOptions, grad};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Result, Tensor};

/// A function and its inputs.
pub(super) struct Point<'a> {
    pub(super) f: &'a Function<'a>,
    pub(super) variant: &'a Variant,
    pub(super) options: &'a GradcheckOptions,
}

type Checked = Result<std::result::Result<(), String>>;

/// Returns early with a gradient that is wrong.
macro_rules! agree {
    ($checked:expr) => {
        if let Err(what) = $checked? {
            return Ok(Err(what));
        }
    };
}

impl Point<'_> {
    /// The inner error says what is wrong.
    pub(super) fn check(&self) -> Checked {
        let variant = self.variant;
        let before = bytes(&variant.inputs)?;
        for input in variant.floats() {
            agree!(self.jacobians(input));
        }
        agree!(self.repeats());
        agree!(self.layouts_of_weights());
        if self.options.undefined {
            agree!(self.undefined());
        }
        if bytes(&variant.inputs)? != before {
            return Ok(Err(self.wrong("the function, or its gradient, writes an input")));
        }
        Ok(Ok(()))
    }

    fn wrong(&self, what: impl std::fmt::Display) -> String {
        let of = |t: &Tensor| t.meta().to_string();
        let inputs: Vec<String> = self.variant.inputs.iter().map(of).collect();
        format!("{what}\non {}: {}", self.variant.what, inputs.join(", "))
    }

    /// The leaves, and those of them whose gradients are wanted.
    fn leaves(&self) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let leaves = self.variant.leaves()?;
        let wanted = self.variant.floats().map(|i| leaves[i].clone()).collect();
        Ok((leaves, wanted))
    }

    /// Compares the Jacobians of all results with respect to one input.
    fn jacobians(&self, input: usize) -> Checked {
        let outputs = jacobian::outputs(self.f, &self.variant.leaves()?)?;
        // results without a gradient must not change
        let places: Vec<Option<usize>> = self.places()?;
        if self.options.fast {
            return self.projections(input, &outputs, &places);
        }
        let n = len(&self.variant.inputs[input])? as usize;
        let by_sweeps = self.rows(input, &outputs)?;
        for at in 0..n {
            let unit = jacobian::unit_like(&self.variant.inputs[input], at)?;
            let columns =
                jacobian::differences(self.f, self.variant, input, &unit, self.options.eps)?;
            for (output, column) in columns.iter().enumerate() {
                for (row, &numeric) in column.iter().enumerate() {
                    let analytic = match places[output] {
                        Some(place) => by_sweeps[place][row][at],
                        None => 0.0,
                    };
                    if !self.near(analytic, numeric) {
                        let worst = self.worst(input, &by_sweeps, &places)?;
                        return Ok(worst.map_or(Ok(()), Err));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    /// For each float among the results, its place among those with a gradient.
    fn places(&self) -> Result<Vec<Option<usize>>> {
        let mut next = 0;
        let floats = (self.f)(&self.variant.leaves()?)?;
        let floats = floats.into_iter().filter(|t| t.dtype().is_float());
        Ok(floats
            .map(|t| {
                next += usize::from(t.tracks_gradient());
                t.tracks_gradient().then(|| next - 1)
            })
            .collect())
    }

    fn near(&self, analytic: f64, numeric: f64) -> bool {
        let GradcheckOptions { atol, rtol, .. } = self.options;
        (analytic - numeric).abs() <= atol + rtol * numeric.abs()
            || analytic.is_nan() && numeric.is_nan()
    }

    /// The Jacobians by sweeps: for each result with a gradient, for each of its elements, the
    /// gradient of the input.
    fn rows(&self, input: usize, outputs: &[Tensor]) -> Result<Vec<Vec<Vec<f64>>>> {
        let n = len(&self.variant.inputs[input])? as usize;
        let leaves = self.variant.leaves()?;
        let results = jacobian::outputs(self.f, &leaves)?;
        let options = BackwardOptions { retain_graph: true, ..BackwardOptions::default() };
        let mut all = Vec::new();
        for (result, t) in results.iter().zip(outputs) {
            let mut rows = Vec::new();
            for at in 0..len(t)? as usize {
                let unit = jacobian::unit_like(t, at)?;
                let root = std::slice::from_ref(result);
                let found =
                    grad(root, std::slice::from_ref(&leaves[input]), &[Some(unit)], options)?;
                rows.push(match found.into_iter().next().flatten() {
                    Some(g) => g.to_dtype(DType::F64).to_vec::<f64>()?,
                    None => vec![0.0; n],
                });
            }
            all.push(rows);
        }
        Ok(all)
    }

    /// The entry that is farthest off, in words; `None` if all are near.
    fn worst(
        &self,
        input: usize,
        rows: &[Vec<Vec<f64>>],
        places: &[Option<usize>],
    ) -> Result<Option<String>> {
        let x = &self.variant.inputs[input];
        let entry = |output: usize, row: usize, at: usize| {
            places[output].map_or(0.0, |place| rows[place][row][at])
        };
        let (mut worst, mut text, mut count, mut all) = (-1.0, String::new(), 0, 0);
        for at in 0..len(x)? as usize {
            let unit = jacobian::unit_like(x, at)?;
            let columns =
                jacobian::differences(self.f, self.variant, input, &unit, self.options.eps)?;
            for (output, column) in columns.iter().enumerate() {
                for (row, &numeric) in column.iter().enumerate() {
                    let analytic = entry(output, row, at);
                    all += 1;
                    if self.near(analytic, numeric) {
                        continue;
                    }
                    count += 1;
                    let off = (analytic - numeric).abs();
                    if off > worst || off.is_nan() {
                        worst = off;
                        text = format!(
                            "the gradient of output {output} with respect to input {input} is \
                                wrong: of element {row} of the output with respect to element {at} \
                                of the input, it is {analytic} by the derivative, and {numeric} \
                                by differences"
                        );
                    }
                }
            }
        }
        let text = format!("{text}\n{count} of {all} entries of the Jacobians differ");
        Ok((count > 0).then(|| self.wrong(text)))
    }

    /// Compares a random projection of each Jacobian. On a difference, compares every entry, for
    /// the message.
    fn projections(&self, input: usize, outputs: &[Tensor], places: &[Option<usize>]) -> Checked {
        let x = &self.variant.inputs[input];
        for seed in 0..2 {
            let direction = jacobian::random_like(x, seed)?;
            let columns =
                jacobian::differences(self.f, self.variant, input, &direction, self.options.eps)?;
            for (output, column) in columns.iter().enumerate() {
                let (mut analytic, mut numeric, mut size) = (0.0, 0.0, 0.0);
                let weight = match places[output] {
                    Some(place) => Some(jacobian::random_like(&outputs[place], 50 + seed)?),
                    None => None,
                };
                let weights = match &weight {
                    Some(w) => w.to_dtype(DType::F64).to_vec::<f64>()?,
                    None => vec![1.0; column.len()],
                };
                for (slope, w) in column.iter().zip(&weights) {
                    numeric += slope * w;
                    size += (slope * w).abs();
                }
                if let (Some(place), Some(weight)) = (places[output], weight) {
                    let leaves = self.variant.leaves()?;
                    let wanted = [leaves[input].clone()];
                    let given = |i: usize, _: &Tensor| Ok((i == place).then(|| weight.clone()));
                    let found = jacobian::sweep(self.f, &leaves, &wanted, &given)?;
                    if let Some(Some(g)) = found.first() {
                        analytic = (g * &direction).sum().to_dtype(DType::F64).item::<f64>()?;
                    }
                }
                let GradcheckOptions { atol, rtol, .. } = self.options;
                let allowed = atol * (1.0 + column.len() as f64) + rtol * size;
                if (analytic - numeric).abs() > allowed || analytic.is_nan() != numeric.is_nan() {
                    let rows = self.rows(input, outputs)?;
                    if let Some(worst) = self.worst(input, &rows, places)? {
                        return Ok(Err(worst));
                    }
                    return Ok(Err(self.wrong(format!(
                        "the gradient of output {output} with respect to input {input} is wrong: \
                            along a random direction, it is {analytic} by the derivative, and \
                            {numeric} by differences"
                    ))));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The gradients of all inputs, for random weights of all results.
    fn gradients(&self, layout: &dyn Fn(Tensor) -> Result<Tensor>) -> Result<Vec<Option<Tensor>>> {
        let (leaves, wanted) = self.leaves()?;
        let weights = |i: usize, t: &Tensor| {
            jacobian::random_like(t, 20 + i as u64).and_then(layout).map(Some)
        };
        jacobian::sweep(self.f, &leaves, &wanted, &weights)
    }

    /// Two sweeps give the same.
    fn repeats(&self) -> Checked {
        let (first, second) = (self.gradients(&Ok)?, self.gradients(&Ok)?);
        let tol = self.options.nondet_tol;
        Ok(compare(&first, &second, tol, tol)
            .map_err(|what| self.wrong(format!("two sweeps give different gradients: {what}"))))
    }

    /// The layout of a gradient of a result does not matter, and it is not written.
    fn layouts_of_weights(&self) -> Checked {
        let GradcheckOptions { atol, rtol, .. } = *self.options;
        let dense = self.gradients(&Ok)?;
        let written = std::cell::Cell::new(false);
        let keep: std::cell::RefCell<Vec<(Tensor, Vec<u8>)>> = Default::default();
        let turned = |t: Tensor| {
            let last = t.dim().saturating_sub(1) as i64;
            if t.dim() > 1 {
                return t.transpose(0, last).contiguous().transpose(0, last).ok().cloned();
            }
            let wide = Tensor::stack([&t, &t], -1);
            wide.select(-1, 1).ok().cloned()
        };
        let watched = |t: Tensor| {
            let t = turned(t)?;
            keep.borrow_mut().push((t.clone(), element_bytes(&t)?));
            Ok(t)
        };
        let strided = self.gradients(&watched)?;
        for (t, before) in keep.borrow().iter() {
            written.set(written.get() || element_bytes(t)? != *before);
        }
        if written.get() {
            return Ok(Err(self.wrong("the derivative writes the gradient of a result")));
        }
        if let Err(what) = compare(&dense, &strided, atol, rtol) {
            let text = "a gradient of a result that is not contiguous gives another gradient";
            return Ok(Err(self.wrong(format!("{text}: {what}"))));
        }
        self.expanded_weights()
    }

    /// An expanded gradient, as `sum` gives it, equals one of as many elements.
    fn expanded_weights(&self) -> Checked {
        let GradcheckOptions { atol, rtol, .. } = *self.options;
        let with = |expanded: bool| {
            let (leaves, wanted) = self.leaves()?;
            jacobian::sweep(self.f, &leaves, &wanted, &|_, t: &Tensor| {
                let one = on_device_of(t, vec![0.75], &[]).to_dtype(t.dtype());
                let wide = one.expand(t.sizes());
                let given = if expanded { wide } else { wide.contiguous() };
                given.ok().cloned().map(Some)
            })
        };
        let (dense, expanded) = (with(false)?, with(true)?);
        Ok(compare(&dense, &expanded, atol, rtol).map_err(|what| {
            let text = "an expanded gradient of a result gives another gradient";
            self.wrong(format!("{text}: {what}"))
        }))
    }

    /// A result without a gradient counts as one with a gradient of zeros.
    fn undefined(&self) -> Checked {
        let GradcheckOptions { atol, rtol, .. } = *self.options;
        let n = jacobian::outputs(self.f, &self.variant.leaves()?)?.len();
        for only in 0..n {
            let with = |zeros: bool| {
                let (leaves, wanted) = self.leaves()?;
                jacobian::sweep(self.f, &leaves, &wanted, &|i, t: &Tensor| {
                    if i == only {
                        jacobian::random_like(t, 30).map(Some)
                    } else {
                        Ok(zeros.then(|| t.detach().zeros_like()))
                    }
                })
            };
            let absent = match with(false) {
                Ok(found) => found,
                Err(e) => {
                    return Ok(Err(self.wrong(format!(
                        "the derivative fails where only output {only} has a gradient: {}",
                        super::first_line(&e)
                    ))));
                }
            };
            if let Err(what) = compare(&absent, &with(true)?, atol, rtol) {
                return Ok(Err(self.wrong(format!(
                    "where only output {only} has a gradient, the gradient differs from that with \
                        zeros for the others: {what}"
                ))));
            }
        }
        Ok(Ok(()))
    }
}

fn bytes(tensors: &[Tensor]) -> Result<Vec<Vec<u8>>> {
    tensors.iter().map(element_bytes).collect()
}

/// Compares gradients; `None` counts as zeros.
fn compare(
    first: &[Option<Tensor>],
    second: &[Option<Tensor>],
    atol: f64,
    rtol: f64,
) -> std::result::Result<(), String> {
    let read = |t: &Option<Tensor>| match t {
        Some(t) => t.to_dtype(DType::F64).to_vec::<f64>().map_err(|e| e.to_string()),
        None => Ok(Vec::new()),
    };
    for (input, (a, b)) in first.iter().zip(second).enumerate() {
        let (mut a, mut b) = (read(a)?, read(b)?);
        let n = a.len().max(b.len());
        a.resize(n, 0.0);
        b.resize(n, 0.0);
        for (at, (a, b)) in a.iter().zip(&b).enumerate() {
            let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            if !same && ((a - b).abs() > atol + rtol * b.abs() || a.is_nan() || b.is_nan()) {
                return Err(format!("{a} and {b} for element {at} of input {input}"));
            }
        }
    }
    Ok(())
}
