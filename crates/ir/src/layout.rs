//! Layouts and memory formats, as schema arguments. Only strided tensors exist.

use std::fmt;
use std::str::FromStr;

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The name, as PyTorch prints it after `torch.`.
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

            /// With or without PyTorch's `torch.` prefix.
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s.strip_prefix("torch.").unwrap_or(s) {
                    $($text => Ok($name::$variant),)+
                    _ => Err(ParseLayoutError { what: $what, found: s.to_owned(), expected: &[$($text),+] }),
                }
            }
        }
    };
}

named_enum!(
    /// How a tensor's elements are laid out. Sparse layouts exist as names only.
    Layout, "layout" {
        /// Sizes and strides.
        Strided = "strided",
        /// A name only.
        SparseCoo = "sparse_coo",
        /// A name only.
        SparseCsr = "sparse_csr",
    }
);

named_enum!(
    /// The order of dimensions in memory that an operator is asked for.
    MemoryFormat, "memory format" {
        /// Row-major.
        Contiguous = "contiguous_format",
        /// As the input, where that is dense.
        Preserve = "preserve_format",
        /// NHWC order of an NCHW tensor.
        ChannelsLast = "channels_last",
        /// NDHWC order of an NCDHW tensor.
        ChannelsLast3d = "channels_last_3d",
    }
);

/// The text names no layout or memory format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`; expected one of {}", expected.join(", "))]
pub struct ParseLayoutError {
    what: &'static str,
    found: String,
    expected: &'static [&'static str],
}
