//! Defects of devices: their count, their properties, and opening.

use super::{Row, fails};
use crate::defect::Defect::*;
use crate::twin::{IN_WORDS, SOUND};

pub(super) const ROWS: &[Row] = &[
    fails(CountPanics, &SOUND, &["enumeration::the_count_stays", "opening::it_stays_open"]),
    fails(
        CountChanges,
        &SOUND,
        &[
            "enumeration::the_count_stays",
            "enumeration::the_count_stays_while_devices_are_used",
            "enumeration::the_count_is_the_same_on_all_threads",
        ],
    ),
    fails(
        CountGrows,
        &SOUND,
        &["enumeration::the_count_stays", "enumeration::no_device_is_beyond_the_count"],
    ),
    fails(
        CountsFreeDevices,
        &SOUND,
        &[
            "enumeration::the_count_stays_while_devices_are_used",
            "enumeration::every_ordinal_opens",
            "foreign::to_every_peer_and_back",
        ],
    ),
    fails(
        CountsOneTooMany,
        &SOUND,
        &[
            "enumeration::every_ordinal_opens",
            "opening::others_may_be_open_too",
            "foreign::to_every_peer_and_back",
        ],
    ),
    fails(CountsInPlace, &SOUND, &["enumeration::the_count_is_the_same_on_all_threads"]),
    fails(PresencePanics, &SOUND, &["enumeration::it_is_present_after_it_was_used"]),
    fails(AbsentOnceOpened, &SOUND, &["enumeration::it_is_present_after_it_was_used"]),
    fails(PresenceInPlace, &SOUND, &["enumeration::it_is_present_after_it_was_used"]),
    fails(PropertiesPanic, &SOUND, &["properties::they_stay"]),
    fails(PropertiesChange, &SOUND, &["properties::they_stay"]),
    fails(NoName, &SOUND, &["properties::the_name_is_text"]),
    fails(NameIsPadded, &SOUND, &["properties::the_name_is_text"]),
    fails(DriverEndsInAZero, &SOUND, &["properties::the_driver_is_text"]),
    fails(VendorIsEmpty, &SOUND, &["properties::the_vendor_is_text"]),
    fails(OneUuidForAll, &SOUND, &["properties::devices_are_told_apart"]),
    fails(ZerosForAUuid, &SOUND, &["properties::devices_are_told_apart"]),
    fails(LargestIsMoreThanAll, &SOUND, &["properties::sizes_go_together"]),
    fails(
        LargestIsTooSmall,
        &SOUND,
        &["memory::large", "streams::bytes_of_the_cpu", "ordering::small_work_behind_large"],
    ),
    fails(
        AlignmentIsDeclaredTooSmall,
        &IN_WORDS,
        &[
            "copies::write_at_every_place",
            "fill::at_every_place",
            "streams::write_at_every_place",
            "programs::of_one_stream",
        ],
    ),
    fails(DeclaresAnotherTotal, &SOUND, &["properties::sizes_go_together"]),
    fails(OpenPanics, &SOUND, &["opening::it_opens"]),
    fails(LastDoesNotOpen, &SOUND, &["enumeration::every_ordinal_opens", "opening::others_may_be_open_too"]),
    fails(
        OpeningClosesOthers,
        &SOUND,
        &[
            "opening::others_may_be_open_too",
            "foreign::peers_have_memory_of_their_own",
            "foreign::threads_on_both_devices",
            "foreign::dropping_for_a_peer",
        ],
    ),
    fails(
        EveryOrdinalIsOneDevice,
        &SOUND,
        &[
            "loss::many_threads_are_told",
            "loss::other_devices_go_on",
            "loss::who_waits_for_it_is_told",
            "loss::a_reset_opens_it_afresh",
            "loss::dropping_what_is_old",
        ],
    ),
    fails(
        WorksOnOneThread,
        &SOUND,
        &[
            "properties::memory_is_told_on_all_threads",
            "opening::every_thread_may_use_it",
            "opening::the_threads_that_come_first_all_get_it",
            "events::many_in_flight",
        ],
    ),
    fails(FewThreads, &SOUND, &["threads::each_in_a_part_of_one_buffer", "threads::many_short_lived_ones"]),
];
