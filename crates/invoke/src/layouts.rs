//! Layouts of a plan in numbers.

use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use maquette_ops::Result;
use smallvec::SmallVec;

/// Offset, sizes and strides, in elements.
pub type ConcreteLayout = (i64, SmallVec<[i64; 4]>, SmallVec<[i64; 4]>);

/// The offset, sizes and strides of a view in one run. `eval` gives the value of an expression.
///
/// # Errors
/// The error of `eval`.
pub fn concrete_layout(
    spec: &ViewSpec,
    eval: &dyn Fn(Expr) -> Result<i64>,
) -> Result<ConcreteLayout> {
    let sizes = spec.dims().iter().map(|d| eval(d.size)).collect::<Result<_>>()?;
    let strides = spec.dims().iter().map(|d| eval(d.stride)).collect::<Result<_>>()?;
    let mut layout: ConcreteLayout = (eval(spec.offset())?, sizes, strides);
    let (offset, sizes, strides) = &mut layout;
    if sizes.contains(&0) {
        // The offset of an empty view may be outside the buffer, which is then also empty. No run
        // checks the strides that the graph declares for it.
        *offset = 0;
        strides.iter_mut().for_each(|stride| *stride = (*stride).max(0));
    }
    Ok(layout)
}

/// The number of elements from the first of a memory to the last of a layout in it;
/// `None` if it is beyond `i64`.
pub fn extent(offset: i64, sizes: &[i64], strides: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut steps = sizes.iter().zip(strides);
    steps.try_fold(offset.checked_add(1)?, |end, (n, s)| {
        end.checked_add(n.checked_sub(1)?.checked_mul(*s)?)
    })
}
