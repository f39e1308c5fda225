//! Tags: properties of an operator that its schema cannot express.

use std::fmt;
use std::str::FromStr;

macro_rules! tags {
    ($($(#[$doc:meta])* $tag:ident = $name:literal,)*) => {
        /// A property that an operator declares at its definition. The names are those of
        /// `torch.Tag`; the documentation here says what they mean in this library.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Tag { $($(#[$doc])* $tag,)* }

        impl Tag {
            /// Every tag, in declaration order.
            pub const ALL: &[Tag] = &[$(Tag::$tag),*];

            /// PyTorch's name for it.
            pub const fn name(self) -> &'static str {
                match self { $(Tag::$tag => $name,)* }
            }
        }
    };
}

tags! {
    /// The operator keeps the contract on which tracing relies. Every operator must, so the tag has
    /// no effect. `custom_op` adds it.
    Pt2Compliant = "pt2_compliant_tag",
    /// A compiled graph gives the kernel operands with exactly the strides of the eager program.
    /// The default of custom operators.
    NeedsExactStrides = "needs_exact_strides",
    /// A compiled graph gives the kernel contiguous operands.
    NeedsContiguousStrides = "needs_contiguous_strides",
    /// A compiled graph gives the kernel operands whose strides have the same order as in the eager
    /// program, but possibly other values.
    NeedsFixedStrideOrder = "needs_fixed_stride_order",
    /// The kernel takes operands of any strides.
    FlexibleLayout = "flexible_layout",
    /// The kernel must not be captured into a CUDA graph: it synchronises, allocates outside the
    /// pool, or reads on the host.
    CudagraphUnsafe = "cudagraph_unsafe",
    /// Results depend on the state of a random number generator: calls are never merged, and keep
    /// their order relative to other calls that draw random numbers.
    NondeterministicSeeded = "nondeterministic_seeded",
    /// Two runs on equal inputs may differ in bits (atomics, timing): calls are never merged, and
    /// opcheck does not compare two runs.
    NondeterministicBitwise = "nondeterministic_bitwise",
    /// The value of a result that is not a tensor depends on data, so a trace cannot know it.
    DataDependentOutput = "data_dependent_output",
    /// The size of a result depends on data: a trace represents it by a new unbacked symbol.
    DynamicOutputShape = "dynamic_output_shape",
    /// The call changes the metadata of its first argument. Metadata of a `Tensor` is immutable, so
    /// no operator can have this tag.
    InplaceView = "inplace_view",
    /// The operator may alias or mutate more than its schema declares. Every call checks the
    /// schema's aliasing, so no operator can have this tag.
    MaybeAliasingOrMutating = "maybe_aliasing_or_mutating",
    /// The operator writes its first argument and returns it: `f_(Tensor(a!) x, …) -> Tensor(a!)`.
    /// It needs no fake kernel, and its kernel may return nothing.
    Inplace = "inplace",
    /// The operator writes its results into keyword-only tensors and returns them: `f.out(Tensor
    /// x, *, Tensor(a!) out) -> Tensor(a!)`. It needs no fake kernel, and its kernel may return
    /// nothing.
    Out = "out",
    /// Each element of the result depends only on the operands' elements at the same position,
    /// after broadcasting.
    Pointwise = "pointwise",
    /// Combines elements along dimensions.
    Reduction = "reduction",
    /// The copying variant of a view operator. Informative only.
    ViewCopy = "view_copy",
    /// An operator of the core set, into which others decompose. Informative only.
    Core = "core",
    /// The definition was generated from another one. Informative only.
    Generated = "generated",
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of a tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tag `{found}`{}", near(.found))]
pub struct ParseTagError {
    /// The text.
    pub found: String,
}

fn near(found: &str) -> String {
    let near = maquette_ir::schema::closest(found, Tag::ALL.iter().map(|t| t.name()));
    near.map(|t| format!("; did you mean `{t}`?")).unwrap_or_default()
}

impl FromStr for Tag {
    type Err = ParseTagError;

    /// Parses PyTorch's name of a tag.
    fn from_str(s: &str) -> Result<Tag, ParseTagError> {
        Tag::ALL
            .iter()
            .copied()
            .find(|t| t.name() == s)
            .ok_or_else(|| ParseTagError { found: s.to_owned() })
    }
}

/// A set of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagSet(u32);

impl TagSet {
    /// Whether the set contains the tag.
    pub const fn contains(self, tag: Tag) -> bool {
        self.0 >> tag as u32 & 1 == 1
    }

    /// The set with the tag added.
    #[must_use]
    pub const fn with(self, tag: Tag) -> TagSet {
        TagSet(self.0 | 1 << tag as u32)
    }

    /// The tags, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = Tag> {
        Tag::ALL.iter().copied().filter(move |t| self.contains(*t))
    }

    /// The kernel's requirement on its operands' strides: the strictest layout tag of the set, or
    /// [`Tag::NeedsExactStrides`] if it has none. The layout tags are declared in descending order
    /// of strictness.
    pub fn layout(self) -> Tag {
        let layouts = [
            Tag::NeedsExactStrides,
            Tag::NeedsContiguousStrides,
            Tag::NeedsFixedStrideOrder,
            Tag::FlexibleLayout,
        ];
        layouts.into_iter().find(|t| self.contains(*t)).unwrap_or(Tag::NeedsExactStrides)
    }

    /// Whether all returns are arguments, so that the operator needs no fake kernel and its kernel
    /// may return nothing.
    pub(crate) const fn returns_arguments(self) -> bool {
        self.contains(Tag::Inplace) || self.contains(Tag::Out)
    }
}

impl FromIterator<Tag> for TagSet {
    fn from_iter<I: IntoIterator<Item = Tag>>(tags: I) -> TagSet {
        tags.into_iter().fold(TagSet::default(), TagSet::with)
    }
}

impl fmt::Display for TagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Tag::name).collect();
        f.write_str(&names.join(" "))
    }
}
