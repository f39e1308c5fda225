//! Fault injection: faults made on purpose, so that a test shows that the oracle finds each.
//!
//! A place whose mistake would matter asks [`fault_injected`] for its [`Fault`] and then behaves
//! wrongly. Without the feature `fault-injection` the answer is `false` at compile time. With it,
//! `with` switches one fault on for a thread; the test `fault_injection` of `maquette-check` goes
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
    ViewsThatShareEndsAreDisjoint = "disjoint: views that share their ends are apart",
    RemainderLongerThanStride = "diophantine: a remainder may be longer than the stride",
    ResiduesOfLongestStride = "residues: of the longest stride",
    RelativeViewUnconfirmed = "relative: not confirmed",
    ComposedDigitsCarry = "compose: digits carry",
    JoinIgnoresInnerStride = "join: as if the inner stride were 1",
    UnknownIsProved = "proofs: what is not known holds",
    NoSizeIsZero = "symbols: no size is 0",
    MergeWindowsWithGaps = "merge: windows with gaps between them",
    EveryViewIsInjective = "injective: every view",
    // rules and extraction
    DeadStoreReversed = "dead-store: the other way round",
    NoOpStoreOfAnyVersion = "no-op-store: of any version",
    LoadPastPartialOverlap = "past: a store that overlaps in part",
    ViewOfStoreIntoRepeats = "push-in: into views that repeat elements",
    NestedStoreUnplaced = "nested-store: not placed",
    WholeStoreNotInverted = "whole-store: not inverted",
    ScheduleAsSoonAsReady = "schedule: as soon as operands are there",
    AvailableAtAnyTime = "bound: calls in their places are made at any time",
    // lifting and emission
    LastStoreIgnoresPartialOverlap = "last_stores: a write that overlaps in part",
    PartialInputWriteUnreported = "lift: a part of an input is written and not told",
    SharedOutputsSplit = "lift: outputs of one memory in several",
    EffectsUnordered = "lift: effects are like other calls",
    RandomCallsUnordered = "lift: random numbers are like others",
    WrittenArgumentsOverlap = "lift: arguments that are written may overlap",
    ShareCountedFromStorage = "share: counted from the storage",
    MemoryOrderKept = "order of memory: not taken back",
    GapsNotCounted = "located: gaps are not counted",
    WholeInAnyOrder = "whole: in any order",
    AssertionsLeftOut = "emit: assertions are left out",
    ViewsReachAnything = "lift: views reach what there is",
    InputElementsOverlap = "lift: elements of an input may meet",
    OneRepeatedElement = "repeated elements: there is one",
    WrittenElementsOverlap = "lift: elements that are written may meet",
    // buffer plans
    LiveOneStatementLess = "plan: needed until the statement before",
    ViewsKeepNothingAlive = "plan: views hold nothing",
    UnmutatedInputsWritten = "plan: inputs that are left alone may be written",
    MutatedTensorsOverlap = "plan: mutated tensors may meet",
    AnyOperatorInPlace = "plan: any operator may write over an operand",
    OperandsNeverConflict = "plan: operands are never in the way",
    CopiesNeverOverlap = "plan: copies never overlap",
    BaseDeadAfterStore = "plan: a base is dead once something is stored in it",
    OutputsShareMemory = "plan: outputs share memory",
    OutputsLieInInputs = "plan: outputs lie in inputs",
    WriteBackInAnyOrder = "plan: written back over what is written back later",
    MutatedInAnyStrides = "plan: what is mutated may have any strides",
    HolesWhereElementsShare = "plan: holes where elements share their place",
    // the cost of copies
    AnyPlanIsCheapEnough = "copies: any plan will do",
    OperandOverlapCertain = "copies: operands meet what is written",
    ConflictingOperandsAreFree = "copies: operands in the way are free",
    AllStridesKnown = "copies: all strides are told",
    RunsKnowLessThanPlans = "copies: runs know less of many elements than plans",
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
pub use switch::with;

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
