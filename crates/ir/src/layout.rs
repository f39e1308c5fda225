//! Layouts and memory formats, as arguments of operators. Every tensor has the strided layout.

use std::fmt;
use std::str::FromStr;

macro_rules! named_enum {
    (
        $(#[$doc:meta])* $name:ident, $what:literal {
            $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The name that PyTorch prints after `torch.`.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = ParseLayoutError;

            /// Accepts the name with or without the prefix `torch.`.
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s.strip_prefix("torch.").unwrap_or(s) {
                    $($text => Ok($name::$variant),)+
                    _ => Err(ParseLayoutError {
                        what: $what,
                        found: s.to_owned(),
                        expected: &[$($text),+],
                    }),
                }
            }
        }
    };
}

named_enum!(
    /// PyTorch's `torch.layout`. Sparse layouts exist only as names.
    Layout, "layout" {
        /// Dense storage addressed by sizes and strides.
        Strided = "strided",
        /// Coordinate format; exists only as a name.
        SparseCoo = "sparse_coo",
        /// Compressed rows; exists only as a name.
        SparseCsr = "sparse_csr",
    }
);

named_enum!(
    /// PyTorch's `torch.memory_format`: the order of dimensions in memory that an operator's result
    /// should have.
    MemoryFormat, "memory format" {
        /// Row-major.
        Contiguous = "contiguous_format",
        /// The order of the input if the input is dense, else row-major.
        Preserve = "preserve_format",
        /// NHWC order of an NCHW tensor.
        ChannelsLast = "channels_last",
        /// NDHWC order of an NCDHW tensor.
        ChannelsLast3d = "channels_last_3d",
    }
);

/// The error of a text that names no layout or memory format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`; expected one of {}", expected.join(", "))]
pub struct ParseLayoutError {
    what: &'static str,
    found: String,
    expected: &'static [&'static str],
}
