//! The defects of a backend. A process has at most one.

use crate::wrong::defects;

defects! {
    // How many devices there are, and what they are.

    /// Counting panics after a few times.
    CountPanics,
    /// The count is one more now and then.
    CountChanges,
    /// The count is one more each time.
    CountGrows,
    /// Devices that are open are not counted.
    CountsFreeDevices,
    /// There is one device less than are counted.
    CountsOneTooMany,
    /// All threads count in one variable.
    CountsInPlace,
    /// Presence panics after a few times.
    PresencePanics,
    /// A device that the process has open, or had, is reported as absent.
    AbsentOnceOpened,
    /// Presence is looked for in one variable by all threads.
    PresenceInPlace,
    /// Properties panic after a few times.
    PropertiesPanic,
    /// The version in the driver's name changes from call to call.
    PropertiesChange,
    /// The device has an empty name.
    NoName,
    /// The name has the padding of a C array.
    NameIsPadded,
    /// The driver's name has the zero of a C string.
    DriverEndsInAZero,
    /// The vendor is unknown, and not left out.
    VendorIsEmpty,
    /// All devices have one UUID.
    OneUuidForAll,
    /// An unknown UUID is reported as zeros.
    ZerosForAUuid,
    /// One allocation may be longer than the memory.
    LargestIsMoreThanAll,
    /// Longer allocations than the longest would succeed.
    LargestIsTooSmall,
    /// Copies have to be aligned, and it is not declared.
    AlignmentIsDeclaredTooSmall,
    /// The declared total differs from the reported one.
    DeclaresAnotherTotal,

    // Opening.

    /// Opening panics.
    OpenPanics,
    /// The last device does not open.
    LastDoesNotOpen,
    /// Opening a device closes those that were opened before.
    OpeningClosesOthers,
    /// All ordinals open the first device.
    EveryOrdinalIsOneDevice,
    /// Only the thread that opened a device can use it.
    WorksOnOneThread,
    /// After two hundred threads no other can use the device.
    FewThreads,

    // How much memory there is.

    /// The memory that is reported as free does not fall.
    FreeMemoryStays,
    /// More memory is reported as free than the total.
    MoreIsFreeThanThereIs,
    /// The free memory is reported as the total.
    TotalIsWhatIsFree,
    /// The total is reported as zero.
    TotalIsZero,
    /// Sizes are reported in bits, not in bytes.
    ReportsBits,
    /// The free memory is measured by allocating all of it for a moment.
    MeasuresByTakingAll,
    /// All threads add up in one variable.
    SumsInPlace,

    // Allocations.

    /// A length of 64 bits is cut to 32.
    LengthsWrap,
    /// Memory is a byte too short.
    SharesTheLastByte,
    /// Memory is not rounded up to the words that are copied.
    DoesNotRoundUp,
    /// Large memory begins at multiples of a MiB, even inside other memory.
    LargeOnesShare,
    /// The memory of all devices is the same memory.
    DevicesShareTheirMemory,
    /// New memory cannot be read or copied before it is written.
    NewMemoryCannotBeRead,
    /// New memory is cleared from 64 bytes before its start on.
    NewMemoryIsClearedTooFar,
    /// Memory can be used on the thread that allocated it only.
    MemoryIsOfItsThread,
    /// There can be a thousand allocations.
    FewHandles,
    /// There can be fifteen thousand allocations, one after the other.
    HandlesAreNotReturned,
    /// Memory is not freed.
    MemoryLeaks,
    /// Memory of more than a MiB is not freed.
    LargeMemoryLeaks,
    /// Memory is freed on the thread that allocated it only.
    FreesOnItsThreadOnly,
    /// Memory that is dropped on another thread frees what lies before it.
    FreesTheOneBeforeOnOtherThreads,
    /// More is freed than was allocated.
    FreesTooMuch,
    /// Memory is freed on the device that was used last.
    FreesOnTheDeviceUsedLast,
    /// Memory is wiped when it is free already.
    WipesWhatItHasFreed,
    /// Memory is wiped when other memory is dropped.
    WipesAtTheNextDrop,
    /// Memory that a panic drops leaves a poisoned lock behind.
    PanicsPoison,

    // Out of memory.

    /// Out of memory is a panic.
    OutOfMemoryPanics,
    /// Out of memory is an error of kind `Other`.
    OutOfMemoryIsAnyError,
    /// After an allocation that did not fit, none fits.
    OutOfMemoryStaysAnError,
    /// Memory in use is wiped to make room.
    OutOfMemoryWipes,
    /// An allocation that does not fit takes something all the same.
    FailedAllocationsLeak,
    /// The error has a larger requested length.
    OutOfMemoryAsksForMore,
    /// The error says that more is free than there is.
    OutOfMemoryReportsTooMuch,
    /// The message is a sentence with a line's end.
    OutOfMemoryShouts,
    /// The message is empty.
    OutOfMemorySaysNothing,
    /// The error's cause is the error.
    CausesRepeatTheMessage,

    // Writes, reads and copies.

    /// The last byte is not written.
    ShortWrites,
    /// The last byte is not read.
    ShortReads,
    /// The last byte is not copied.
    ShortCopies,
    /// All writes begin at the memory's start.
    WritesIgnoreOffsets,
    /// All reads begin at the memory's start.
    ReadsIgnoreOffsets,
    /// All copies begin at the start of the source.
    CopiesIgnoreSourceOffsets,
    /// All copies go to the start of the destination.
    CopiesIgnoreOffsets,
    /// Writes end at the end of a page.
    WritesStopAtPages,
    /// Reads end at the end of a page.
    ReadsStopAtPages,
    /// Copies end at the end of a page.
    CopiesStopAtPages,
    /// Nothing is written behind the first MiB.
    LargeWritesAreCut,
    /// Nothing is read behind the first MiB.
    LargeReadsAreCut,
    /// Nothing is copied behind the first MiB.
    LargeCopiesAreCut,
    /// Copies go from the destination to the source.
    CopiesGoBackwards,
    /// The source of a copy is zero afterwards.
    CopiesMove,
    /// Copies are delayed until the next read.
    CopiesOnTheNextRead,
    /// A copy between memory that touches is refused as one that overlaps.
    NeighboursOverlap,
    /// A blocking read writes a byte behind its destination.
    ReadsWriteTooFar,
    /// What is read is zero afterwards.
    ReadsDestroy,
    /// Zeros are not written.
    SkipsZeros,
    /// Bytes have seven bits.
    LosesTheHighBit,
    /// A long run of one byte is as long as 16 bits can say.
    LongRunsWrap,
    /// Bytes on the host have to be aligned to four.
    HostPointersHaveToBeAligned,
    /// A second write to the same place is not made.
    WritesOnceOnly,
    /// Writes return before they are made.
    WritesInTheBackground,
    /// Writes read and write whole words, with bytes that are others'.
    WritesWholeWords,
    /// Writes clear the place first, and other threads see that.
    ClearsBeforeItWrites,
    /// All threads copy by way of the same memory.
    SharesAScratchBuffer,
    /// A copy within one memory waits for itself.
    LocksOneMemoryTwice,
    /// Copies in opposite directions wait for each other.
    LocksTheSourceFirst,
    /// A copy from a peer takes the bytes that lie there on its own device.
    PeerCopiesAreOfItsOwnMemory,
    /// A copy from a peer is one to it.
    PeerCopiesGoBackwards,

    // Fills.

    /// The last byte is not filled.
    ShortFills,
    /// All fills begin at the memory's start.
    FillsIgnoreOffsets,
    /// The pattern is not repeated.
    FillsWriteThePatternOnce,
    /// The pattern is written from its end to its start.
    FillsReverseThePattern,
    /// Only the first 8 bytes of a pattern of 16 are used.
    LongPatternsAreCut,
    /// Fills end at the end of a page.
    FillsStopAtPages,
    /// Nothing is filled behind 8 MiB.
    LargeFillsAreCut,
    /// What is less than 16 bytes is not filled.
    FillsLeaveTheTail,
    /// A pattern with zeros is not written.
    FillsWithZerosAreSkipped,
    /// Fills read and write whole words, with bytes that are others'.
    FillsWholeWords,

    // Pinned memory.

    /// Pinned memory is a byte too short.
    PinnedMemoryIsTooShort,
    /// What is given as pinned memory is memory like any other.
    PinnedMemoryIsOrdinary,

    // Streams.

    /// There can be 32 streams.
    FewStreams,
    /// There can be 200 streams, one after the other.
    StreamsAreNotReturned,
    /// A stream of high priority is refused.
    UrgentStreamsAreRefused,
    /// The work of every second stream is not done.
    EverySecondStreamIsLost,
    /// Work that another thread than the stream's enqueues is not done.
    StreamsAreOfTheirThread,
    /// Behind a thousand pieces of work, others are not done.
    QueuesAreShort,
    /// The last work that waits is done first.
    TheLastIsFirst,
    /// Every second piece of work is not waited for by the next.
    WorkRunsBesideOther,
    /// Nothing runs while a stream waits for another.
    OneQueueRunsAtATime,
    /// A query of a stream always returns that all work is done.
    StreamsAreAlwaysDone,
    /// A query of a stream never returns that all work is done.
    StreamsAreNeverDone,
    /// A query of a stream returns that all work is done five milliseconds after the last was enqueued.
    StreamsAreDoneAfterAWhile,
    /// Synchronizing a stream returns at once.
    SynchronizeDoesNotWait,
    /// The errors of asynchronous work are dropped.
    AsynchronousErrorsAreDropped,
    /// The error of failed work is reported permanently.
    ErrorsAreReportedForEver,
    /// Reads are done when they are enqueued.
    ReadsAreDoneAtOnce,
    /// Reads are never finished.
    ReadsAreForgotten,
    /// Queued reads return one byte less than they were given to fill.
    QueuedReadsAreShort,
    /// Reads are dropped when they are done.
    ReadsAreDropped,
    /// A read gets the bytes of the one before.
    ReadsGetTheBytesBefore,
    /// A query of a stream waits for its work.
    StreamQueriesWait,
    /// Bytes of the host are kept after they were written.
    SourcesAreKept,

    // Events.

    /// An event is done when it is recorded.
    EventsAreDoneAtOnce,
    /// A query of an event always returns that it is done.
    EventsAreAlwaysDone,
    /// Synchronizing an event returns at once.
    EventsAreNotWaitedFor,
    /// A query of an event returns that it is done five milliseconds after it was recorded.
    EventsAreDoneAfterAWhile,
    /// Synchronizing an event returns after five milliseconds.
    EventsAreWaitedForAWhile,
    /// A query of an event returns that it is done when all but the last 32 pieces of work before it are
    /// done.
    EventsAreABatchEarly,
    /// A query of an event waits for it.
    EventQueriesWait,
    /// Events behind failed work are done without an error.
    EventsForgetFailures,
    /// A query of an event never returns that it is done.
    EventsAreNeverDone,
    /// A query of an event returns whether its stream is idle.
    EventsAreDoneWithTheirStream,
    /// An event of a stream without work is done with the next work.
    EventsWaitForLaterWork,
    /// A stream has one event, which each recording takes.
    EventsShareAPoint,
    /// A stream can have a thousand events.
    FewEvents,
    /// Only one of the threads that wait for an event wakes up.
    EventsWakeOneWaiter,
    /// Streams do not wait for events.
    WaitsAreIgnored,
    /// Streams do not wait for events of other devices.
    WaitsForPeersAreIgnored,
    /// A stream that waits for an event never continues.
    WaitsNeverEnd,
    /// A stream that waits for an event that fails never continues.
    WaitsForFailuresNeverEnd,
    /// No time passes.
    TimesAreZero,
    /// The same time passes always.
    TimesAreConstant,
    /// Times are in microseconds, and reported as milliseconds.
    TimesAreInOtherUnits,
    /// The time between two events has no direction.
    TimesHaveNoSign,
    /// Each measurement takes two milliseconds.
    TimesHaveAnOverhead,
    /// Streams have clocks that began at different times.
    EachStreamHasAClock,
    /// The time of a dropped event is written where a later event has its own.
    TimesOfDroppedEventsAreWritten,

    // Fault injection, and its effects.

    /// Injected faults do not make copies fail.
    CopiesDoNotFail,
    /// All copies after the injected failure fail too.
    CopiesFailFromThenOn,
    /// A fault of copies counts allocations too.
    AllocationsAreCountedAsCopies,
    /// The first of two faults of one kind counts.
    TheFirstFaultCounts,
    /// Faults happen one operation late.
    FaultsComeLate,
    /// Faults are not cleared.
    FaultsAreNotCleared,
    /// Every second call, the device does not offer fault injection.
    FaultsComeAndGo,
    /// An injected fault has the message of a host that got none.
    FaultsSayNothing,
    /// The report of a failed queued read has a size that no loader of backends in files can read.
    QueuedReadsSayNothing,
    /// The report of failed queued work that is no read has a size that no such loader can read.
    QueuedWorkSaysNothing,
    /// The messages of injected faults have a line's end, which the loader of backends in files escapes.
    FaultsAreEscaped,
    /// The messages of injected faults are not UTF-8, and a loader has replaced the invalid bytes.
    FaultsAreNotUtf8,
    /// The messages of injected faults are sentences.
    FaultsShout,
    /// An allocation with an injected failure returns an error of kind `Other`.
    AllocationsFailWithAnyError,
    /// A copy that fails writes before its destination.
    FailedCopiesHarmTheirNeighbours,
    /// A failed copy loses the device.
    FailuresLoseTheDevice,
    /// A stall ends before the faults are cleared.
    StallsEndByThemselves,
    /// A stall does not end when the faults are cleared.
    StallsNeverEnd,
    /// One stalled operation stalls all operations of the device.
    StallsHoldUpAllStreams,
    /// A slow device is as fast as before.
    NothingIsSlow,
    /// A query of a stream does not report errors.
    QueryReportsNoErrors,
    /// Reads and events behind a failure are never finished.
    SkippedWorkIsForgotten,
    /// When the work of one stream fails, all streams' work does.
    FailuresAreOfAllStreams,

    // Loss.

    /// A device is not lost by a fault.
    LossIsNotNoticed,
    /// A lost device returns an error of kind `Other`.
    LossIsAnyError,
    /// A loss gives no reason.
    LossSaysNothing,
    /// When one device is lost, all are.
    LossSpreads,
    /// When a device is lost, so are devices whose queues wait for its events.
    LossSpreadsByEvents,
    /// A lost device is not counted.
    LostDevicesAreNotCounted,
    /// A loss without an operation is not reported, and found by the next call only.
    UnplugIsNotReported,
    /// A device that was lost once is reported as absent, even after a reset.
    AbsentAfterALoss,
    /// A device is still lost after a reset.
    ResetForgetsNothing,
    /// A device that is lost cannot be reset.
    ResetFails,
    /// A device that is reset has another name.
    ResetChangesTheName,
    /// Memory of a lost device is wiped where the new one has its own.
    FreesOnTheNewDevice,

    // Closing.

    /// A close does not end a thread.
    CloseLeavesAThread,
    /// A close leaves a file open.
    CloseLeavesAFile,
    /// The memory of a device that is closed is wiped, while peers copy from it.
    CloseWipesItsMemory,
    /// The memory of a device that is closed is kept.
    CloseKeepsTheMemory,
    /// The memory of a device that was reset is kept.
    ResetKeepsTheMemory,

    // What is held and what is declared.

    /// Spans of work that is done are kept.
    SpansAreKept,
    /// An allocation of a MiB is an error.
    LargeAllocationsFail,
    /// Every third allocation is refused.
    AllocationsFailNowAndThen,
    /// Pinned memory is declared, and there is none.
    PinnedMemoryIsDeclaredOnly,
    /// Pinned memory is there, and not declared.
    PinnedMemoryIsNotDeclared,
    /// Times of events are declared, and there are none.
    TimesAreDeclaredOnly,
    /// A device has a native handle of every kind.
    DevicesHaveEveryHandle,
    /// Memory has a native handle of every kind.
    MemoryHasEveryHandle,
    /// A stream has a native handle of every kind.
    StreamsHaveEveryHandle,
    /// An unsupported call returns an error of kind `Other`.
    UnsupportedIsAnyError,
    /// The message of an unsupported call is a sentence.
    UnsupportedShouts,
    /// The message of an unsupported call changes each time.
    UnsupportedChanges,
}
