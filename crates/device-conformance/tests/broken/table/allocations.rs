//! Defects of memory: reported sizes, allocations, and running out of memory.

use super::{Row, fails};
use crate::defect::Defect::*;
use crate::twin::{IN_WORDS, SOUND};

pub(super) const ROWS: &[Row] = &[
    fails(FreeMemoryStays, &SOUND, &["properties::free_memory_falls_while_some_is_held"]),
    fails(MoreIsFreeThanThereIs, &SOUND, &["properties::free_memory_is_at_most_all"]),
    fails(TotalIsWhatIsFree, &SOUND, &["properties::total_memory_stays"]),
    fails(
        TotalIsZero,
        &SOUND,
        &[
            "properties::free_memory_is_at_most_all",
            "memory::all_of_it_can_be_used_up",
            "messages::out_of_memory_tells_what_is_free",
        ],
    ),
    fails(ReportsBits, &SOUND, &["memory::all_of_it_can_be_used_up"]),
    fails(MeasuresByTakingAll, &SOUND, &["properties::memory_is_told_on_all_threads"]),
    fails(SumsInPlace, &SOUND, &["properties::memory_is_told_on_all_threads"]),
    fails(
        LengthsWrap,
        &SOUND,
        &[
            "memory::more_than_any_device_has",
            "memory::it_goes_on_after_out_of_memory",
            "messages::causes_end",
        ],
    ),
    fails(SharesTheLastByte, &SOUND, &["memory::no_two_share_bytes"]),
    fails(
        DoesNotRoundUp,
        &IN_WORDS,
        &[
            "memory::new_memory_can_be_copied",
            "memory::it_keeps_what_it_holds",
            "copies::zeros_are_written",
            "copies::the_source_stays",
            "copies::a_long_chain",
            "threads::each_with_buffers_of_its_own",
            "programs::of_one_stream",
            "programs::of_several_streams",
            "programs::with_functions_that_block",
            "programs::that_drop_what_is_in_use",
            "programs::on_many_threads",
        ],
    ),
    fails(LargeOnesShare, &SOUND, &["copies::large_at_odd_places", "streams::large"]),
    fails(
        DevicesShareTheirMemory,
        &SOUND,
        &[
            "foreign::peers_have_memory_of_their_own",
            "foreign::devices_in_turn",
            "foreign::dropping_for_a_peer",
        ],
    ),
    fails(
        NewMemoryCannotBeRead,
        &SOUND,
        &["memory::new_memory_can_be_read", "memory::new_memory_can_be_copied"],
    ),
    fails(NewMemoryIsClearedTooFar, &SOUND, &["memory::no_two_share_bytes", "memory::many_at_once"]),
    fails(
        MemoryIsOfItsThread,
        &SOUND,
        &[
            "opening::every_thread_may_use_it",
            "events::what_comes_behind_is_not_waited_for",
            "events::many_in_flight",
        ],
    ),
    fails(FewHandles, &SOUND, &["memory::many_at_once"]),
    fails(HandlesAreNotReturned, &SOUND, &["memory::many_in_turn"]),
    fails(
        MemoryLeaks,
        &SOUND,
        &[
            "properties::free_memory_falls_while_some_is_held",
            "memory::what_is_dropped_can_be_had_again",
            "memory::small_ones_do_not_leak",
            "drops::on_another_thread_it_is_freed_too",
        ],
    ),
    fails(
        LargeMemoryLeaks,
        &SOUND,
        &["properties::free_memory_falls_while_some_is_held", "memory::what_is_dropped_can_be_had_again"],
    ),
    fails(FreesOnItsThreadOnly, &SOUND, &["drops::on_another_thread_it_is_freed_too"]),
    fails(
        FreesTheOneBeforeOnOtherThreads,
        &SOUND,
        &["threads::dropping_what_others_made", "streams::buffers_may_be_dropped_at_once"],
    ),
    fails(
        FreesTooMuch,
        &SOUND,
        &[
            "memory::new_memory_can_be_read",
            "memory::what_is_freed_is_no_other",
            "copies::the_source_stays",
            "drops::the_place_is_taken_at_once",
            "streams::round_trip",
            "streams::the_device_waits_for_all_streams",
        ],
    ),
    fails(
        FreesOnTheDeviceUsedLast,
        &SOUND,
        &[
            "foreign::to_every_peer_and_back",
            "foreign::the_source_on_a_peer_stays",
            "foreign::devices_in_turn",
        ],
    ),
    fails(WipesWhatItHasFreed, &SOUND, &["threads::allocating_and_dropping"]),
    fails(
        WipesAtTheNextDrop,
        &SOUND,
        &[
            "opening::every_thread_may_use_it",
            "memory::what_is_freed_is_no_other",
            "copies::a_long_chain",
            "drops::in_every_order",
            "drops::the_source_of_a_copy",
            "drops::the_place_is_taken_at_once",
        ],
    ),
    fails(PanicsPoison, &SOUND, &["drops::while_a_panic_unwinds"]),
    fails(OutOfMemoryPanics, &SOUND, &["memory::more_than_any_device_has", "messages::causes_end"]),
    fails(OutOfMemoryIsAnyError, &SOUND, &["memory::more_than_any_device_has", "messages::causes_end"]),
    fails(
        OutOfMemoryStaysAnError,
        &SOUND,
        &[
            "memory::more_than_any_device_has",
            "memory::it_goes_on_after_out_of_memory",
            "memory::out_of_memory_touches_nothing",
            "memory::failed_allocations_do_not_leak",
        ],
    ),
    fails(OutOfMemoryWipes, &SOUND, &["memory::out_of_memory_touches_nothing"]),
    fails(FailedAllocationsLeak, &SOUND, &["memory::failed_allocations_do_not_leak"]),
    fails(OutOfMemoryAsksForMore, &SOUND, &["messages::out_of_memory_tells_what_was_asked"]),
    fails(OutOfMemoryReportsTooMuch, &SOUND, &["messages::out_of_memory_tells_what_is_free"]),
    fails(OutOfMemoryShouts, &SOUND, &["messages::out_of_memory_reads_as_others"]),
    fails(
        OutOfMemorySaysNothing,
        &SOUND,
        &["messages::out_of_memory_tells_what_was_asked", "messages::out_of_memory_reads_as_others"],
    ),
    fails(CausesRepeatTheMessage, &SOUND, &["messages::causes_end"]),
];
