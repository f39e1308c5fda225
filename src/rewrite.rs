//! Passes over graphs: programs that mutate as graphs of values, and plans for their memory.
//! [`Interpreter`](crate::interp::Interpreter) runs them. The guide is
//! [Functionalization](crate::guide::functionalization).

/// Where each value of a functional graph is stored, and what is copied. [`plan`] makes one.
///
/// ```
/// use maquette::interp::Interpreter;
/// use maquette::prelude::*;
/// use maquette::rewrite::{BufferPlan, Options, functionalize, plan};
///
/// let x = Tensor::from([1.0f32, 2.0]);
/// let traced = trace(|x: Tensor| drop(x.mul_(10.0)), x.clone())?;
/// let f = functionalize(traced.graph(), &library::Facts, &Options::new())?;
/// let plan: BufferPlan = plan(&f, &library::Facts)?;
/// println!("{}", plan.display(&f.graph));
///
/// // The product is written into the memory of the input, as the program does.
/// let run = Interpreter::new((&f, &plan)).run(&[Value::from(&x)])?;
/// assert_eq!(x.to_vec::<f32>()?, [10.0, 20.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use maquette_ir::buffer_plan::BufferPlan;
/// The options of [`functionalize`]: how much is rewritten.
///
/// ```
/// use maquette::prelude::*;
/// use maquette::rewrite::{Level, Options, functionalize};
///
/// let x = Tensor::from([1.0f32, 2.0]);
/// let traced = trace(|x: Tensor| x.neg().neg().mul_(10.0), x)?;
/// let text = |options: &Options| {
///     functionalize(traced.graph(), &library::Facts, options).map(|f| f.graph.to_string())
/// };
/// assert!(!text(&Options::new())?.contains("aten::neg"));
/// assert!(text(&Options::new().only(["store-to-load"]))?.contains("aten::neg"));
/// // Every call keeps its operator, on copies.
/// let lifted = text(&Options::new().level(Level::LiftOnly))?;
/// assert!(lifted.contains("ir::call(\"aten::mul_.Tensor\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use maquette_rewrite::Options;
pub use maquette_rewrite::*;
