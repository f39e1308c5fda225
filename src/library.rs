//! Operators: defining them, registering kernels for them, and checking that they keep their
//! contract.

#[cfg(feature = "check")]
pub use maquette_check::gradcheck::{
    GradcheckError, GradcheckOptions, GradcheckReport, gradcheck, gradcheck_with, gradgradcheck,
    gradgradcheck_with,
};
/// The options of [`opcheck_with`]: which checks are made, and on how many variants of the sample.
///
/// ```
/// use maquette::check::opcheck::Check;
/// use maquette::library::{OpcheckOptions, custom_op, opcheck_with};
/// use maquette::prelude::*;
///
/// // without a fake kernel, no trace can call it
/// let op = custom_op("doc::untraceable")
///     .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x + x) })
///     .register()?;
/// let sample = || args![Tensor::from([1.0f32, 2.0])];
/// let report = opcheck_with(&op, sample(), OpcheckOptions::new().raise(false))?;
/// assert!(!report.passed());
/// let schema_alone = OpcheckOptions::new().only([Check::Schema]).derive(4);
/// let report = opcheck_with(&op, sample(), schema_alone)?;
/// assert!(report.passed());
/// # Ok::<(), Error>(())
/// ```
#[cfg(feature = "check")]
pub use maquette_check::opcheck::OpcheckOptions;
/// Checks an operator against its contract, on a sample and on variants of the sample.
///
/// ```
/// use maquette::library::opcheck;
/// use maquette::prelude::*;
///
/// #[custom_op("doc::twice")]
/// fn twice(x: &Tensor) -> Result<Tensor> {
///     Ok(x + x)
/// }
///
/// #[register_fake(twice)]
/// fn twice_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
///     Ok(x.new_empty(x.sizes(), x.dtype()))
/// }
///
/// # fn main() -> Result<()> {
/// let report = opcheck(&Op::find("doc::twice")?, args![Tensor::from([1.0f32, 2.0])])?;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "check")]
pub use maquette_check::opcheck::opcheck;
#[cfg(feature = "check")]
pub use maquette_check::opcheck::{OpcheckError, opcheck_with};
/// Registrations in a namespace, which end when the library is dropped.
///
/// ```
/// use maquette::library::{Kind, Library};
/// use maquette::prelude::*;
///
/// let lib = Library::new("halving", Kind::Def)?;
/// let op = lib.define("halve(Tensor x) -> Tensor", &[])?;
/// lib.impl_("halve", "cpu", |x: &Tensor| -> Result<Tensor> { Ok(x * 0.5) })?;
/// lib.register_fake("halve", |_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
///     Ok(x.new_empty(x.sizes(), x.dtype()))
/// })?;
/// let y = op.call(args![Tensor::from([3.0f32])])?;
/// assert_eq!(y[0].tensor()?.to_vec::<f32>()?, [1.5]);
///
/// drop(lib);
/// assert!(Op::find("halving::halve").is_err());
/// # Ok::<(), Error>(())
/// ```
pub use maquette_ops::library::Library;
/// Defines a custom operator step by step: a schema, kernels for devices, a fake kernel.
///
/// ```
/// use maquette::library::{OpBuilder, Tag, custom_op};
/// use maquette::prelude::*;
///
/// let builder: OpBuilder = custom_op("doc::scale")
///     .schema("(Tensor x, float by=2.0) -> Tensor")
///     .tags([Tag::Pointwise])
///     .device_types(["cpu"])
///     .kernel(|x: &Tensor, by: f64| -> Result<Tensor> { Ok(x * by) });
/// let op: Op = builder.register()?;
/// op.register_fake(|_cx: &FakeCtx, x: &Tensor, _by: f64| -> Result<Tensor> {
///     Ok(x.new_empty(x.sizes(), x.dtype()))
/// })?;
/// let y = op.call(args![Tensor::from([1.0f32, 2.0])])?;
/// assert_eq!(y[0].tensor()?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_ops::library::OpBuilder;
pub use maquette_ops::library::*;
