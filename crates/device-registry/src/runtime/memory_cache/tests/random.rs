//! Random programs beside a plain allocator, which also find the defects of wrong caches.

use std::collections::HashMap;

use super::*;
use crate::runtime::memory_cache::sizes::Pool;

/// What a program calls. The cache implements it, and so do wrong caches that the programs have to find.
trait Cache {
    fn take(&mut self, size: usize) -> Option<(u32, Block)>;
    fn add(&mut self, memory: u32, segment: usize, size: usize) -> Block;
    fn put(&mut self, block: Block) -> Vec<u32>;
    fn close(&mut self) -> Vec<u32>;
    fn real(&self) -> &MemoryCache<u32>;
}

impl Cache for MemoryCache<u32> {
    fn take(&mut self, size: usize) -> Option<(u32, Block)> {
        MemoryCache::take(self, size)
    }

    fn add(&mut self, memory: u32, segment: usize, size: usize) -> Block {
        MemoryCache::add(self, memory, segment, size).1
    }

    fn put(&mut self, block: Block) -> Vec<u32> {
        MemoryCache::put(self, block)
    }

    fn close(&mut self) -> Vec<u32> {
        MemoryCache::close(self)
    }

    fn real(&self) -> &MemoryCache<u32> {
        self
    }
}

/// The books of a plain allocator.
#[derive(Default)]
struct Plain {
    next: u32,
    /// The segments that the driver has allocated, with their sizes, and which blocks they are for.
    segments: HashMap<u32, (usize, Pool)>,
    used: Vec<(u32, Block)>,
}

impl Plain {
    fn take(&mut self, memory: u32, block: Block, len: usize) -> Result<(), String> {
        let Some(&(size, _)) = self.segments.get(&memory) else { return Err(format!("{memory} is freed")) };
        if block.size < len || block.start + block.size > size {
            return Err(format!("{block:?} for {len} bytes in a segment of {size}"));
        }
        let end = block.start + block.size;
        let shares = |(other, used): &&(u32, Block)| {
            *other == memory && used.start < end && block.start < used.start + used.size
        };
        if let Some((_, used)) = self.used.iter().find(shares) {
            return Err(format!("{block:?} and {used:?} are given out at once"));
        }
        self.used.push((memory, block));
        Ok(())
    }

    fn given_back(&mut self, memory: Vec<u32>) -> Result<(), String> {
        for memory in memory {
            if self.used.iter().any(|(used, _)| *used == memory) {
                return Err(format!("{memory} was freed with a block in use"));
            }
            self.segments.remove(&memory).ok_or_else(|| format!("{memory} was freed twice"))?;
        }
        Ok(())
    }

    /// Whether free memory would do for another block.
    fn has_free(&self, size: usize, sizes: &Sizes) -> bool {
        self.segments.iter().any(|(memory, &(whole, pool))| {
            let mut used: Vec<_> =
                self.used.iter().filter(|(other, _)| other == memory).map(|(_, block)| *block).collect();
            used.push(Block { segment: 0, start: whole, size: 0 });
            used.sort_by_key(|block| block.start);
            let mut from = 0;
            used.into_iter().any(|block| {
                let gap = block.start - from;
                from = block.start + block.size;
                gap >= size && gap <= sizes.longest_fit(size) && pool == sizes.pool(size)
            })
        })
    }
}

/// A program of random calls. The error is the first thing in which the cache and the plain allocator's books
/// differ.
fn program(cache: &mut impl Cache, seed: u64, steps: usize) -> Result<(), String> {
    let mut random = seed;
    let mut draw = move |below: u64| {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut plain = Plain::default();
    for _ in 0..steps {
        match draw(100) {
            0..=47 => {
                let most = 1 << (8 + draw(15));
                let len = 1 + draw(most) as usize;
                let size = cache.real().block_size(len).expect("it is small");
                if let Some((memory, block)) = cache.take(size) {
                    plain.take(memory, block, len)?;
                } else {
                    if plain.has_free(size, &cache.real().sizes) {
                        return Err(format!("there is room for {size} bytes, and it is not used"));
                    }
                    let segment = cache.real().segment_size(size);
                    plain.given_back(cache.real().make_room(segment))?;
                    let memory = plain.next;
                    plain.next += 1;
                    plain.segments.insert(memory, (segment, cache.real().sizes.pool(size)));
                    let block = cache.add(memory, segment, size);
                    plain.take(memory, block, len)?;
                }
            }
            48..=96 if !plain.used.is_empty() => {
                let at = draw(plain.used.len() as u64) as usize;
                let (_, block) = plain.used.swap_remove(at);
                plain.given_back(cache.put(block))?;
            }
            97 => plain.given_back(cache.real().empty())?,
            98 => plain.given_back(cache.real().set_limit(draw(1 << 24)))?,
            99 => plain.given_back(cache.real().set_limit(u64::MAX))?,
            _ => {}
        }
        let reserved: usize = plain.segments.values().map(|(size, _)| size).sum();
        let used: usize = plain.used.iter().map(|(_, block)| block.size).sum();
        let counters = cache.real().counters();
        if (counters.reserved, counters.cached) != (reserved as u64, (reserved - used) as u64) {
            return Err(format!("{counters:?} for {reserved} bytes with {used} in use"));
        }
    }
    // After a loss, some blocks are still in use.
    plain.given_back(cache.close())?;
    for (_, block) in std::mem::take(&mut plain.used) {
        plain.given_back(cache.put(block))?;
    }
    match plain.segments.len() {
        0 => Ok(()),
        count => Err(format!("{count} segments were never freed")),
    }
}

const KINDS: [MemoryReuse; 3] = [MemoryReuse::Exact, MemoryReuse::Rounded, DIVIDED];

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|seed| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[test]
fn random_programs_agree_with_a_plain_allocator() {
    let (programs, steps) = if cfg!(miri) { (2, 200) } else { (30, 2000) };
    for reuse in KINDS {
        for seed in seeds(programs) {
            program(&mut cache(reuse), seed, steps)
                .unwrap_or_else(|error| panic!("{reuse:?}, {seed}: {error}"));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    GivesABlockOutTwice,
    GivesOutWhatIsInUse,
    NeverMerges,
    FreesWithABlockInUse,
    FreesTwice,
    LeaksAfterALoss,
    GivesShortBlocks,
    ForgetsWhatIsFree,
}

/// A cache with a defect.
struct Wrong {
    cache: MemoryCache<u32>,
    defect: Defect,
    taken: Vec<(u32, Block)>,
    freed: Vec<(u32, Block)>,
    /// Where blocks have begun.
    starts: Vec<(u32, usize)>,
    closed: bool,
}

impl Cache for Wrong {
    fn take(&mut self, size: usize) -> Option<(u32, Block)> {
        let fits = |(_, block): &&(u32, Block)| block.size == size;
        match self.defect {
            Defect::GivesABlockOutTwice | Defect::GivesOutWhatIsInUse => {
                let from = if self.defect == Defect::GivesOutWhatIsInUse { &self.taken } else { &self.freed };
                if let Some(again) = from.iter().find(fits) {
                    return Some(*again);
                }
            }
            Defect::ForgetsWhatIsFree => return None,
            _ => {}
        }
        let (memory, mut block) = self.cache.take(size)?;
        if self.defect == Defect::NeverMerges {
            let begins_inside = |(other, start): &(u32, usize)| {
                *other == memory && block.start < *start && *start < block.start + block.size
            };
            if self.starts.iter().any(begins_inside) {
                assert!(self.cache.put(block).is_empty());
                return None;
            }
        }
        self.starts.push((memory, block.start));
        self.taken.push((memory, block));
        if self.defect == Defect::GivesShortBlocks {
            block.size = size - 1;
        }
        Some((memory, block))
    }

    fn add(&mut self, memory: u32, segment: usize, size: usize) -> Block {
        let block = self.cache.add(memory, segment, size).1;
        self.taken.push((memory, block));
        block
    }

    fn put(&mut self, block: Block) -> Vec<u32> {
        let Some(at) = self.taken.iter().position(|(_, taken)| *taken == block) else { return Vec::new() };
        let taken = self.taken.swap_remove(at);
        self.freed.push(taken);
        if self.defect == Defect::LeaksAfterALoss && self.closed {
            return Vec::new();
        }
        let mut back = self.cache.put(block);
        match self.defect {
            Defect::FreesWithABlockInUse => back.extend(self.taken.last().map(|(memory, _)| *memory)),
            Defect::FreesTwice => back.extend(back.clone()),
            _ => {}
        }
        back
    }

    fn close(&mut self) -> Vec<u32> {
        self.closed = true;
        self.cache.close()
    }

    fn real(&self) -> &MemoryCache<u32> {
        &self.cache
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow: the programs are run by many caches")]
fn random_programs_find_each_defect() {
    use Defect::*;
    for (defect, expected) in [
        (GivesABlockOutTwice, ["are given out at once", "is freed"]),
        (GivesOutWhatIsInUse, ["are given out at once"; 2]),
        (NeverMerges, ["there is room for"; 2]),
        (FreesWithABlockInUse, ["with a block in use"; 2]),
        (FreesTwice, ["was freed twice"; 2]),
        (LeaksAfterALoss, ["were never freed"; 2]),
        (GivesShortBlocks, ["in a segment of", "in use"]),
        (ForgetsWhatIsFree, ["there is room for"; 2]),
    ] {
        let found = seeds(20).find_map(|seed| {
            let cache = cache(DIVIDED);
            let taken = Vec::new();
            let freed = Vec::new();
            let starts = Vec::new();
            let mut wrong = Wrong { cache, defect, taken, freed, starts, closed: false };
            program(&mut wrong, seed, 300).err()
        });
        let found = found.unwrap_or_else(|| panic!("{defect:?} is not found"));
        assert!(expected.iter().any(|&text| found.contains(text)), "{defect:?}: {found}");
    }
}
