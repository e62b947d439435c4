//! The bookkeeping alone: examples, and random programs beside a plain allocator.

use super::*;
use crate::backend::MemoryReuse;

mod random;

/// A cache whose segments are numbers.
fn cache(reuse: MemoryReuse) -> MemoryCache<u32> {
    MemoryCache::of(&DeviceProperties::new("test").with_memory_reuse(reuse), |memory| *memory == HELD)
        .expect("it is used again")
}

const DIVIDED: MemoryReuse = MemoryReuse::Divided { alignment: 512 };

/// Other code holds this segment.
const HELD: u32 = u32::MAX;

/// Adds segments that are whole blocks of this size, in use.
fn add_all(cache: &MemoryCache<u32>, names: impl IntoIterator<Item = u32>, size: usize) -> Vec<Block> {
    names.into_iter().map(|name| cache.add(name, size, size).1).collect()
}

#[test]
fn rounded_blocks_are_at_most_an_eighth_longer() {
    let cache = cache(MemoryReuse::Rounded);
    for (len, size) in [
        (1, 512),
        (512, 512),
        (513, 1024),
        (8192, 8192),
        (8193, 9216),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, (1 << 20) + (1 << 17)),
    ] {
        assert_eq!(cache.block_size(len), Some(size), "{len}");
    }
    for len in (8192..1 << 22).step_by(if cfg!(miri) { 99_991 } else { 997 }) {
        let size = cache.block_size(len).unwrap();
        assert!(size >= len && size - len <= len / 8 && size.is_multiple_of(512), "{len}: {size}");
        assert_eq!((cache.block_size(size), cache.segment_size(size)), (Some(size), size));
    }
    assert_eq!((cache.block_size(usize::MAX), cache.block_size(isize::MAX as usize)), (None, None));
}

#[test]
fn exact_blocks_serve_their_length_alone() {
    let cache = cache(MemoryReuse::Exact);
    assert_eq!((cache.block_size(1001), cache.segment_size(1001)), (Some(1001), 1001));
    let (_, block) = cache.add(7, 1001, 1001);
    assert!(cache.put(block).is_empty());
    assert!(cache.take(1000).is_none() && cache.take(1002).is_none());
    assert_eq!(cache.take(1001).unwrap().0, 7);
}

#[test]
fn a_rounded_block_serves_its_size_and_a_little_less() {
    let cache = cache(MemoryReuse::Rounded);
    let (_, block) = cache.add(1, 8192, 8192);
    assert!(cache.put(block).is_empty());
    assert!(cache.take(8704).is_none(), "it is too short");
    assert!(cache.take(4096).is_none(), "most of it would be wasted");
    let (memory, block) = cache.take(7680).unwrap();
    assert_eq!((memory, block.start, block.size), (1, 0, 8192));
    assert!(cache.take(8192).is_none(), "it is in use");
}

#[test]
fn of_blocks_that_fit_the_shortest_is_taken_and_of_those_the_latest() {
    let cache = cache(MemoryReuse::Rounded);
    let long = add_all(&cache, [1], 9216);
    let short = add_all(&cache, [2, 3], 8192);
    assert!(long.into_iter().chain(short).all(|block| cache.put(block).is_empty()));
    let names: Vec<_> = std::iter::from_fn(|| cache.take(8192)).map(|(memory, _)| memory).collect();
    assert_eq!(names, [3, 2, 1]);
}

#[test]
#[cfg_attr(miri, ignore = "slow: thousands of blocks")]
fn small_blocks_share_a_segment_and_become_one_again() {
    const MIB: usize = 1 << 20;
    let cache = cache(DIVIDED);
    assert_eq!((cache.segment_size(512), cache.segment_size(MIB)), (2 * MIB, MIB));
    let (_, first) = cache.add(1, 2 * MIB, 512);
    let blocks: Vec<_> = (1..4096).map(|_| cache.take(512).expect("the segment has room").1).collect();
    assert!(cache.take(512).is_none(), "it is full");
    let starts: std::collections::BTreeSet<_> =
        blocks.iter().chain([&first]).map(|block| block.start).collect();
    assert_eq!(starts, (0..4096).map(|index| index * 512).collect());
    // Every second one: nothing touches.
    let (even, odd): (Vec<Block>, Vec<_>) = blocks.into_iter().partition(|block| block.start % 1024 == 0);
    assert!(odd.into_iter().all(|block| cache.put(block).is_empty()));
    assert!(cache.take(1024).is_none());
    assert_eq!(cache.counters().cached, MIB as u64);
    // All but the first: what is free is one block.
    assert!(even.into_iter().all(|block| cache.put(block).is_empty()));
    let (_, all) = cache.take(MIB - 512).unwrap();
    assert_eq!((all.start, all.size), (512, MIB - 512));
    assert!(cache.put(all).is_empty() && cache.empty().is_empty(), "a block of it is in use");
    assert!(cache.put(first).is_empty());
    assert_eq!((cache.empty(), cache.counters().reserved), (vec![1], 0));
}

#[test]
fn large_blocks_are_divided_where_the_rest_is_large() {
    const MIB: usize = 1 << 20;
    let cache = cache(DIVIDED);
    let (_, block) = cache.add(1, 8 * MIB, 8 * MIB);
    assert!(cache.put(block).is_empty());
    assert!(cache.take(512).is_none(), "a small block would keep all of it from being used again");
    let (_, first) = cache.take(4 * MIB).unwrap();
    let (_, second) = cache.take(4 * MIB - 512).unwrap();
    assert_eq!((first.start, first.size), (0, 4 * MIB));
    assert_eq!((second.start, second.size), (4 * MIB, 4 * MIB), "the rest would be too short");
    assert!(cache.put(second).is_empty() && cache.put(first).is_empty());
    assert_eq!(cache.take(8 * MIB).unwrap().1.size, 8 * MIB);
}

#[test]
fn parts_begin_where_the_device_wants_them() {
    let properties = DeviceProperties::new("test").with_copy_alignment(4096);
    let cache = MemoryCache::of(&properties.with_memory_reuse(DIVIDED), |_: &mut u32| false).unwrap();
    let size = cache.block_size(1).unwrap();
    let (_, first) = cache.add(1, cache.segment_size(size), size);
    let second = cache.take(cache.block_size(5000).unwrap()).unwrap().1;
    assert_eq!((first.start, first.size, second.start, second.size), (0, 4096, 4096, 8192));
}

#[test]
fn the_oldest_segments_go_where_the_limit_is_exceeded() {
    let cache = cache(MemoryReuse::Rounded);
    let blocks = add_all(&cache, 0..4, 1024);
    assert!(blocks.into_iter().all(|block| cache.put(block).is_empty()));
    assert_eq!(cache.set_limit(2048), [0, 1]);
    assert_eq!(cache.counters().cached, 2048);
    let (_, block) = cache.add(9, 4096, 4096);
    assert_eq!(cache.put(block), [9], "it alone is more than the limit");
    assert_eq!(cache.set_limit(0), [2, 3]);
    let (_, block) = cache.add(8, 512, 512);
    assert_eq!(cache.put(block), [8]);
    assert_eq!(cache.counters(), Counters { peak_reserved: 6144, ..Counters::default() });
}

#[test]
fn of_the_hosts_memory_large_blocks_are_kept_up_to_a_limit() {
    const MIB: usize = 1 << 20;
    let cache = cache(MemoryReuse::Large { from: 1000 });
    assert_eq!([0, 999, 1000, usize::MAX].map(|len| cache.keeps(len)), [false, false, true, true]);
    assert_eq!((cache.block_size(1000), cache.block_size(8193)), (Some(1024), Some(9216)));
    let (_, block) = cache.add(8, MIB, MIB);
    assert!(cache.put(block).is_empty() && cache.make_room(31 * MIB).is_empty());
    let blocks = add_all(&cache, 10..14, 8 * MIB);
    assert!(blocks.into_iter().all(|block| cache.put(block).is_empty()));
    assert!(cache.make_room(31 * MIB).is_empty(), "64 MiB is twice what was in use");
    assert!(cache.make_room(usize::MAX).is_empty(), "the driver refuses it, and nothing is lost");
    assert_eq!(cache.make_room(32 * MIB), [8]);
    assert_eq!(cache.empty().len(), 4);
    let blocks = add_all(&cache, 0..5, 64 * MIB);
    let evicted: Vec<_> = blocks.into_iter().flat_map(|block| cache.put(block)).collect();
    assert_eq!((evicted, cache.counters().cached), (vec![0], 256 << 20));
    assert!(cache.set_limit(u64::MAX).is_empty(), "the program may want more");
    let (_, block) = cache.add(9, 30 * MIB, 30 * MIB);
    assert!(cache.put(block).is_empty());
    assert_eq!((cache.counters().cached, cache.reserved()), (286 << 20, 286 << 20));
    assert_eq!((cache.empty().len(), cache.reserved()), (5, 0));
}

#[test]
fn with_a_limit_of_zero_no_block_has_more_than_it_needs() {
    let cache = cache(DIVIDED);
    assert!(cache.set_limit(0).is_empty());
    assert_eq!(cache.segment_size(512), 512);
}

#[test]
fn a_closed_cache_keeps_nothing() {
    for reuse in [MemoryReuse::Rounded, DIVIDED] {
        let cache = cache(reuse);
        let first = cache.add(1, 512, 512).1;
        let second = cache.add(2, 512, 512).1;
        assert!(cache.put(first).is_empty());
        assert_eq!(cache.close(), [1]);
        assert_eq!(cache.put(second), [2]);
        assert!(cache.take(512).is_none() && cache.empty().is_empty());
        assert_eq!(cache.counters().reserved, 0);
    }
}

#[test]
fn memory_that_other_code_holds_goes_with_its_last_block() {
    let cache = cache(DIVIDED);
    let (_, first) = cache.add(HELD, 4096, 2048);
    let (_, second) = cache.take(2048).unwrap();
    assert!(cache.put(first).is_empty(), "it is in use");
    assert_eq!(cache.put(second), [HELD]);
    assert!(cache.take(512).is_none());
    assert_eq!(cache.counters().reserved, 0);
}

#[test]
fn a_whole_segment_that_other_code_holds_is_not_given_out_again() {
    let cache = cache(MemoryReuse::Rounded);
    let (_, block) = cache.add(HELD, 4096, 4096);
    assert_eq!(cache.put(block), [HELD]);
    assert!(cache.take(4096).is_none());
}

#[test]
fn many_blocks_of_a_size_are_taken_the_newest_first_and_given_back_the_oldest_first() {
    let cache = cache(MemoryReuse::Rounded);
    let names = 0..3 * PARKED as u32;
    let blocks = add_all(&cache, names.clone(), 4096);
    assert!(blocks.into_iter().all(|block| cache.put(block).is_empty()));
    let (last, block) = cache.take(4096).unwrap();
    assert_eq!(last, names.end - 1);
    assert!(cache.put(block).is_empty());
    assert_eq!(cache.empty(), names.collect::<Vec<_>>());
}

#[test]
fn the_cache_holds_as_much_as_was_in_use_and_an_eighth() {
    const MIB: usize = 1 << 20;
    let cache = cache(MemoryReuse::Rounded);
    // A training step: 100 MiB are in use, all are freed, and the next step takes them again.
    for step in 0..3 {
        let blocks: Vec<_> = (0..100)
            .map(|name| {
                cache.take(MIB).map(|(_, block)| block).unwrap_or_else(|| {
                    assert!(step == 0 && cache.make_room(MIB).is_empty(), "{name}");
                    cache.add(name, MIB, MIB).1
                })
            })
            .collect();
        assert!(blocks.into_iter().all(|block| cache.put(block).is_empty()));
    }
    assert_eq!(cache.counters().reused, 200);
    // Blocks of another size: the old ones make room.
    let evicted: usize = (0..20)
        .map(|name| {
            let evicted = cache.make_room(4 * MIB).len();
            cache.add(name, 4 * MIB, 4 * MIB);
            evicted
        })
        .sum();
    assert_eq!(evicted, 68);
    assert_eq!(cache.counters().peak_reserved, 112 << 20);
}
