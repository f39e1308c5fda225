//! Fault injection: faults made on purpose, so that a test shows that the oracle finds each.
//!
//! A place whose mistake would matter asks [`fault_injected`] for its [`Fault`] and then behaves
//! wrongly. Without the feature `fault-injection` the answer is `false` at compile time. With it,
//! `with` switches one fault on for a thread; the test `fault_injection` of `maquette-fuzz` goes
//! through all of [`Fault::ALL`].

use std::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident = $text:literal,)*) => {
        /// A fault that can be switched on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the texts are the documentation")]
        pub enum Fault { $($(#[$doc])* $fault,)* }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Fault] = &[$(Fault::$fault),*];

            /// The part of the project, and the mistake.
            pub const fn text(self) -> &'static str {
                match self { $(Fault::$fault => $text,)* }
            }
        }
    };
}

faults! {
    // the view algebra
    ViewsThatShareEndsAreDisjoint = "disjoint: views that touch at an end are disjoint",
    RemainderLongerThanStride = "diophantine: the remainder may exceed the stride",
    ResiduesOfLongestStride = "residues: the longest stride instead of the gcd",
    RelativeViewUnconfirmed = "relative: the candidate view is not verified",
    ComposedDigitsCarry = "compose: index digits may carry",
    JoinIgnoresInnerStride = "join: the inner stride is taken as 1",
    UnknownIsProved = "proofs: an unknown relation is taken as proved",
    NoSizeIsZero = "symbols: every size is taken as positive",
    MergeWindowsWithGaps = "merge: windows with gaps between them are merged",
    EveryViewIsInjective = "injective: every view is taken as injective",
    // rules and extraction
    DeadStoreReversed = "dead-store: the containment test is reversed",
    NoOpStoreOfAnyVersion = "idempotent-store: a view of any version matches",
    LoadPastPartialOverlap = "load-past-disjoint-store: stores may overlap partially",
    ViewOfStoreIntoRepeats = "view-of-store: the view may repeat elements",
    NestedStoreUnplaced = "nested-store: the two views are not composed",
    WholeStoreNotInverted = "whole-store: the view is not inverted",
    ScheduleAsSoonAsReady = "linearize: nodes are emitted as early as possible",
    AvailableAtAnyTime = "availability: serial calls are available at any time",
    // lifting and emission
    LastStoreIgnoresPartialOverlap = "last_stores: a partial overlap is taken as disjoint",
    PartialInputWriteUnreported = "lift: a partial write to an input is not recorded",
    SharedOutputsSplit = "lift: outputs that share a storage are separated",
    EffectsUnordered = "lift: calls with effects are not ordered",
    RandomCallsUnordered = "lift: calls that draw random numbers are not ordered",
    WrittenArgumentsOverlap = "lift: overlap of mutated arguments is not checked",
    ShareCountedFromStorage = "lift: offsets of shared memory count from the storage",
    MemoryOrderKept = "storage layout: the order of dimensions is not restored",
    GapsNotCounted = "view queries: gaps between rows are ignored",
    WholeInAnyOrder = "view queries: a permuted view is taken as whole",
    AssertionsLeftOut = "emit: assertions are dropped",
    ViewsReachAnything = "lift: views are not checked to stay in bounds",
    InputElementsOverlap = "lift: overlap within an input is not checked",
    OneRepeatedElement = "storage layout: repeated dimensions are taken as nonempty",
    WrittenElementsOverlap = "lift: overlap within a mutated argument is not checked",
    // fusion
    NumbersOfFirstPart = "fusion: a part reads the numbers of the first part",
    OperandsInReverse = "fusion: a part takes its operands in reverse order",
    BlocksApart = "fusion: the blocks of a scan do not continue those before them",
    // images whose channels are last
    ObservedImages = "images: operators that know nothing of images may read channels last",
    ViewedImages = "images: an image of which there are views may have its channels last",
    WrittenImages = "images: an image that an operator mutates may have its channels last",
    NoDilation = "images: the windows of a fused convolution have no dilation",
    PartsAreWhole = "images: a part of a concatenation has the distances of a whole image",
    // results that are written over operands
    EarlierValuesInOperands = "overwrites: values of an earlier stage are in an operand's memory",
    FactorsOverwritten = "overwrites: factors of a product may be overwritten",
    OverwrittenAndRead = "overwrites: an operand may be read after it is overwritten",
    // buffer plans
    LiveOneStatementLess = "plan: live regions end one statement early",
    ViewsKeepNothingAlive = "plan: views do not keep their base alive",
    UnmutatedInputsWritten = "plan: inputs that are not mutated may be written",
    MutatedTensorsOverlap = "plan: mutated operands may overlap",
    AnyOperatorInPlace = "plan: any operator may write over an operand",
    OperandsNeverConflict = "plan: operands never conflict with results",
    CopiesNeverOverlap = "plan: overlapping copies use no temporary",
    CopiesOutliveWrites = "plan: a copy in another layout is read after a write over it",
    BaseDeadAfterStore = "plan: a store ends the live range of its base",
    OutputsShareMemory = "plan: outputs may share a buffer",
    OutputsLieInInputs = "plan: outputs may use the memory of inputs",
    WriteBackInAnyOrder = "plan: write-backs may overwrite pending write-backs",
    MutatedInAnyStrides = "plan: strides of mutated operands are ignored",
    HolesWhereElementsShare = "plan: regions of self-overlapping views have holes",
    // the cost of copies
    AnyPlanIsCheapEnough = "copies: every plan is taken as within the bound",
    OperandOverlapCertain = "copies: operands are taken to overlap the destination",
    ConflictingOperandsAreFree = "copies: copies of conflicting operands are not counted",
    AllStridesKnown = "copies: all strides are taken as known",
    RunsKnowLessThanPlans = "copies: runs prove less disjointness than plans",
    // gradients
    GradientsReplaced = "gradients: a second gradient of a result replaces the first",
    LeafGradientsReplaced = "gradients: a sweep replaces the gradient of a leaf",
    NodesInCallOrder = "gradients: nodes are visited in the order of their calls",
    BaseNotRebased = "gradients: a write through a view does not change the history of its base",
    ViewsKeepHistory = "gradients: views keep their history after a write to their base",
    SavedWritesUnchecked = "gradients: a saved tensor may be written",
    WrittenKeepGradient = "gradients: elements that are written keep their gradient",
    ViewAtStart = "gradients: the gradient of a view is put at the start of its base",
    PermutationNotInverted = "gradients: a permutation is not inverted",
    RepetitionsNotSummed = "gradients: the gradient of a broadcast operand is not summed",
    SignOfSecondOperand = "gradients: the second operand of an expression has the wrong sign",
    ChainRuleLeftOut = "gradients: the derivative of an expression leaves out the chain rule",
    CustomGradientsReversed = "gradients: gradients of custom operators are in reverse order",
    TracedViewsAreBases = "gradients: views that traced custom operators return are no views",
    SoftmaxOneTerm = "gradients: the derivative of softmax has one term",
    MeanNotDivided = "gradients: the gradient of a mean is not divided",
    SumsFromStart = "gradients: the gradient of a cumulative sum runs forward",
    ProductOfEarlier = "gradients: the gradient of a product has the earlier factors alone",
    PicksInOrder = "gradients: the gradient of a sort is not put back",
    SharedSumsInPlace = "gradients: a gradient with other owners is added to in place",
    GivenGradientsWritten = "gradients: a derivative may write the gradient that it is given",
    SumLeftOut = "gradients: a sum to which a rule adds nothing is left out",
    // questions and refusals
    QuestionsAnswered = "questions: a trace answers what may differ from run to run",
    RefusedWritesPoison = "writes: a write that is refused poisons its storage",
    // devices
    ReadsDoNotWait = "device: a read does not wait for the commands before",
    BlocksFreedAtOnce = "device: a block is freed before the commands that use it",
    LateErrorsLost = "device: the late error of a kernel is lost",
    LaunchesAfterErrors = "device: a launch after the error of its slot writes",
    ResultsOnTheHost = "device: what ran on the host stays there",
    // compiled programs
    BuffersDieEarly = "compiled: buffers of an arena die with the step that makes them",
    OffsetsOfViewsLost = "compiled: offsets of views are lost",
    InstanceOfAnySizes = "compiled: an instance serves inputs of any sizes",
    ResultsOverOperands = "compiled: launches write over any operand",
    MutatedInAnyOrder = "compiled: mutated arguments are returned in another order",
    AssertionsHold = "compiled: assertions are taken to hold",
    RandomNumbersDrawnTwice = "compiled: what draws random numbers is computed again",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

#[cfg(feature = "fault-injection")]
mod switch {
    use super::Fault;
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<Option<Fault>> = const { Cell::new(None) };
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn ask(fault: Fault) -> bool {
        let on = ON.get() == Some(fault);
        ASKED.set(ASKED.get() || on);
        on
    }

    /// Whether any fault is switched on, on this thread.
    pub fn is_on() -> bool {
        ON.get().is_some()
    }

    /// Runs `f` with a fault switched on, on this thread, and tells whether anything asked for it.
    pub fn with<R>(fault: Fault, f: impl FnOnce() -> R) -> (R, bool) {
        ASKED.set(false);
        let before = ON.replace(Some(fault));
        let result = f();
        ON.set(before);
        (result, ASKED.get())
    }
}

#[cfg(feature = "fault-injection")]
pub use switch::{is_on, with};

/// Whether any fault is switched on: never.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub const fn is_on() -> bool {
    false
}

/// Whether this fault is switched on.
#[cfg(feature = "fault-injection")]
#[inline]
pub fn fault_injected(fault: Fault) -> bool {
    switch::ask(fault)
}

/// Whether this fault is switched on: never.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub const fn fault_injected(_fault: Fault) -> bool {
    false
}
