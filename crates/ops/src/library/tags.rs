//! Tags: what a schema cannot say of an operator.

use std::fmt;
use std::str::FromStr;

macro_rules! tags {
    ($($(#[$doc:meta])* $tag:ident = $name:literal,)*) => {
        /// A statement about an operator, made at its definition. The names are PyTorch's; the
        /// meanings are those that they have here.
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
    /// The operator keeps the contract that tracing relies on. Every operator defined here must;
    /// `custom_op` adds the tag, and it changes nothing.
    Pt2Compliant = "pt2_compliant_tag",
    /// A compiled graph gives the kernel operands with exactly the strides of the eager program.
    /// The default of custom operators.
    NeedsExactStrides = "needs_exact_strides",
    /// A compiled graph gives the kernel contiguous operands.
    NeedsContiguousStrides = "needs_contiguous_strides",
    /// A compiled graph gives the kernel operands whose strides have the eager program's order, not
    /// necessarily its values.
    NeedsFixedStrideOrder = "needs_fixed_stride_order",
    /// The kernel takes operands of any strides.
    FlexibleLayout = "flexible_layout",
    /// The kernel must not be captured into a CUDA graph: it synchronises, allocates outside the
    /// pool, or reads on the host.
    CudagraphUnsafe = "cudagraph_unsafe",
    /// Results depend on a random number generator's state: calls are never merged, and keep their
    /// place among the calls that draw.
    NondeterministicSeeded = "nondeterministic_seeded",
    /// Two runs on equal inputs may differ in bits (atomics, timing): calls are never merged, and
    /// opcheck does not compare two runs.
    NondeterministicBitwise = "nondeterministic_bitwise",
    /// The value of a result that is not a tensor depends on data, so a trace cannot know it.
    DataDependentOutput = "data_dependent_output",
    /// The size of a result depends on data: a trace gives it a symbol of its own.
    DynamicOutputShape = "dynamic_output_shape",
    /// The call changes the metadata of its first argument. A handle's metadata never changes here,
    /// so no operator can have this tag.
    InplaceView = "inplace_view",
    /// The operator may alias or mutate more than its schema says. That is refused on every call
    /// here, so no operator can have this tag.
    MaybeAliasingOrMutating = "maybe_aliasing_or_mutating",
    /// The operator writes its first argument and returns it: `f_(Tensor(a!) x, …) -> Tensor(a!)`.
    /// It needs no fake kernel, and its kernel may return nothing.
    Inplace = "inplace",
    /// The operator writes its results into keyword-only tensors and returns those: `f.out(Tensor
    /// x, *, Tensor(a!) out) -> Tensor(a!)`. It needs no fake kernel, and its kernel may return
    /// nothing.
    Out = "out",
    /// Each element of the result is computed from the elements in its place, broadcast.
    Pointwise = "pointwise",
    /// Elements are combined along dimensions.
    Reduction = "reduction",
    /// The copying variant of a view. A note for readers.
    ViewCopy = "view_copy",
    /// One of the operators that decompositions end in. A note for readers.
    Core = "core",
    /// The definition was generated from another. A note for readers.
    Generated = "generated",
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tag `{found}`{}", near(.found))]
pub struct ParseTagError {
    /// As given.
    pub found: String,
}

fn near(found: &str) -> String {
    let near = maquette_ir::schema::closest(found, Tag::ALL.iter().map(|t| t.name()));
    near.map(|t| format!("; did you mean `{t}`?")).unwrap_or_default()
}

impl FromStr for Tag {
    type Err = ParseTagError;

    /// Reads PyTorch's name.
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
    /// Whether the tag is in it.
    pub const fn contains(self, tag: Tag) -> bool {
        self.0 >> tag as u32 & 1 == 1
    }

    /// The set with the tag.
    #[must_use]
    pub const fn with(self, tag: Tag) -> TagSet {
        TagSet(self.0 | 1 << tag as u32)
    }

    /// The tags, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = Tag> {
        Tag::ALL.iter().copied().filter(move |t| self.contains(*t))
    }

    /// What the kernel asks of its operands' strides: the strictest of the layout tags, which are
    /// declared in that order. Without one, [`Tag::NeedsExactStrides`].
    pub fn layout(self) -> Tag {
        let layouts = [
            Tag::NeedsExactStrides,
            Tag::NeedsContiguousStrides,
            Tag::NeedsFixedStrideOrder,
            Tag::FlexibleLayout,
        ];
        layouts.into_iter().find(|t| self.contains(*t)).unwrap_or(Tag::NeedsExactStrides)
    }

    /// All returns are arguments: no fake kernel is needed, and the kernel may return nothing.
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
