//! The list of passes.

use crate::{
    Compilation, PassOptions, concats, decompose, fast_math, functionalize, fuse, rematerialize,
    select_plan,
};
use maquette_ops::Result;

/// The passes in their order. A row has the pass, its name for users, and its function, which
/// changes a [`Compilation`] and leaves alone what has a form that the pass does not take.
macro_rules! passes {
    ($($(#[$doc:meta])* $pass:ident = $name:literal => $run:path;)*) => {
        /// A pass. They are declared in the order in which they run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Pass {
            $($(#[$doc])* $pass,)*
        }

        impl Pass {
            /// All passes, in their order.
            pub const ALL: &[Pass] = &[$(Pass::$pass),*];

            /// The name, as in `maquette explain --after NAME`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Pass::$pass => $name,)*
                }
            }

            /// # Errors
            /// The program is not valid.
            pub(crate) fn run(
                self,
                compilation: &mut Compilation,
                options: &PassOptions<'_>,
            ) -> Result<()> {
                match self {
                    $(Pass::$pass => $run(compilation, options),)*
                }
            }
        }
    };
}

passes! {
    /// Makes attention that is written as products and a softmax one operator, if
    /// [`PassOptions::fast_math`] allows it.
    FastMath = "fast-math" => fast_math::run;
    /// Replaces composites by the operators that they call.
    Decompose = "decompose" => decompose::run;
    /// Makes the program functional.
    Functionalize = "functionalize" => functionalize::run;
    /// Plans the memory, of the program as it was rewritten or as it was lifted.
    SelectPlan = "select-plan" => select_plan::run;
    /// Computes values again in place of keeping them, if [`PassOptions::rematerialize`] asks for
    /// it.
    Rematerialize = "rematerialize" => rematerialize::run;
    /// Makes concatenations stores of their parts, which are then computed in place.
    Concats = "concats" => concats::run;
    /// Makes operators that one kernel computes one node.
    Fuse = "fuse" => fuse::run;
}

impl Pass {
    /// The passes after this one, in their order.
    pub(crate) fn later(self) -> &'static [Pass] {
        let at = Pass::ALL.iter().position(|pass| *pass == self);
        at.and_then(|at| Pass::ALL.get(at + 1..)).unwrap_or_default()
    }

    /// The pass of a name.
    pub fn named(name: &str) -> Option<Pass> {
        Pass::ALL.iter().copied().find(|pass| pass.name() == name)
    }
}
