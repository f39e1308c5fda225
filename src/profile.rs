//! Profiles of compiled programs: the time of each kernel beside its work, and the peaks of the
//! machine. `maquette bench` prints them.
//!
//! ```
//! use maquette::prelude::*;
//! use maquette::profile::{Peaks, ProfileOptions};
//!
//! let f = compile(|(x, w): (Tensor, Tensor)| x.matmul(&w).relu().softmax(-1));
//! let inputs = (Tensor::ones([16, 64], DType::F32), Tensor::ones([64, 32], DType::F32));
//! let profile = f.profile(inputs, &ProfileOptions::new().repeat(5).peaks(Peaks::kept()))?;
//! println!("{profile}");
//!
//! let labels: Vec<String> = profile.kernels.iter().map(|kernel| kernel.label()).collect();
//! assert_eq!(labels, ["mm + relu", "_softmax"]);
//! let product = profile.kernels[0].work.unwrap();
//! assert_eq!(product.flops, 2 * 16 * 32 * 64 + 16 * 32);
//! assert_eq!(product.bytes_read, 4 * (16 * 64 + 64 * 32));
//!
//! // for https://ui.perfetto.dev
//! let trace: String = profile.chrome_trace();
//! # assert!(trace.contains("mm + relu"));
//! # Ok::<(), Error>(())
//! ```

pub use maquette_ops::Work;
pub use maquette_runtime::peaks::*;
pub use maquette_runtime::profile::*;
