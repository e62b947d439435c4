//! The system resources of this process: threads, open files, mappings and memory.

use std::collections::BTreeMap;
use std::fmt;

use crate::failure::Failure;

/// A variable for a process whose memory is counted, and its value. With it, glibc returns what is freed to
/// the system. Else it may keep hundreds of megabytes that are between others, which looks like a leak.
pub(crate) const RETURNS_MEMORY: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "65536");

/// How much of each kind of resource the process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessResources([usize; KINDS.len()]);

struct Kind {
    name: &'static str,
    /// A cycle that leaks so much on average is suspect. The core itself keeps a few KiB for each device that
    /// it opened, which is less.
    leak: f64,
}

const KINDS: [Kind; 4] = [
    Kind { name: "threads", leak: 0.5 },
    Kind { name: "open files", leak: 0.5 },
    Kind { name: "mappings", leak: 0.5 },
    Kind { name: "KiB of memory in use", leak: 64.0 },
];

impl ProcessResources {
    /// Measures the resources now.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Result<Self, Failure> {
        use std::fs;

        let failed = |error: std::io::Error| Failure::new(format_args!("cannot read /proc/self: {error}"));
        let entries = |folder| fs::read_dir(folder).map(Iterator::count).map_err(failed);
        let text = |file| fs::read_to_string(file).map_err(failed);
        let status = text("/proc/self/status")?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB")?.trim().parse().ok());
        let resident = resident.ok_or_else(|| Failure::new("/proc/self/status has no `VmRSS`"))?;
        let mappings = text("/proc/self/maps")?.lines().count();
        Ok(Self([entries("/proc/self/task")?, entries("/proc/self/fd")?, mappings, resident]))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Result<Self, Failure> {
        Err(Failure::unsupported("the resources of a process are counted on Linux only"))
    }

    /// The kinds, by index, that grew too much since `before`, in this many cycles, and by how much.
    fn growth_since(&self, before: &Self, cycles: usize) -> impl Iterator<Item = (usize, usize)> {
        let grown = self.0.iter().zip(before.0).map(|(now, before)| now.saturating_sub(before)).enumerate();
        let grown: Vec<_> = grown.collect();
        grown.into_iter().filter(move |&(kind, by)| by as f64 >= KINDS[kind].leak * cycles as f64)
    }
}

/// The kinds of resources that grew in every round of cycles so far. A cache stops growing when it is full; a
/// leak does not.
pub(crate) struct SuspectedLeaks {
    cycles: usize,
    last: ProcessResources,
    /// The growth in each round, for each kind that is still suspect.
    grown: BTreeMap<usize, Vec<usize>>,
}

impl SuspectedLeaks {
    /// Before the first round, every kind is suspect.
    pub(crate) fn new(cycles: usize, start: ProcessResources) -> Self {
        Self { cycles, last: start, grown: (0..KINDS.len()).map(|kind| (kind, Vec::new())).collect() }
    }

    /// Compares with the resources after the next round. Returns whether any kind is still suspect.
    pub(crate) fn round(&mut self, now: ProcessResources) -> bool {
        let growth: BTreeMap<_, _> = now.growth_since(&self.last, self.cycles).collect();
        self.grown.retain(|kind, rounds| growth.get(kind).map(|&by| rounds.push(by)).is_some());
        self.last = now;
        !self.grown.is_empty()
    }

    /// Whether any suspect still grows about as much as in its first round. For rounds that are too few for a
    /// cache to stop: one that fills grows by less and less.
    pub(crate) fn grow_steadily(&mut self) -> bool {
        self.grown.retain(|_, rounds| {
            let [first, .., last] = rounds[..] else { return true };
            last * 3 >= first * 2
        });
        !self.grown.is_empty()
    }
}

impl fmt::Display for SuspectedLeaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cycles = self.cycles;
        for (number, (&kind, rounds)) in self.grown.iter().enumerate() {
            let name = KINDS[kind].name;
            let now = self.last.0[kind];
            let separator = if number == 0 { "" } else { "; " };
            write!(
                f,
                "{separator}the process leaks {name}: {rounds:?} more after each round of {cycles} times, {now} now"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    use crate::process;

    #[test]
    fn growth_in_every_round_is_a_leak_and_growth_that_stops_is_not() {
        let mut suspects = SuspectedLeaks::new(10, ProcessResources([8, 5, 100, 5000]));
        assert!(suspects.round(ProcessResources([18, 5, 105, 6000])));
        assert!(
            suspects.round(ProcessResources([17, 20, 110, 7000])),
            "fewer threads, and the files did not grow in the first round"
        );
        assert!(
            suspects.round(ProcessResources([17, 40, 120, 7639])),
            "memory grows by less than 64 KiB each time"
        );
        assert_eq!(
            suspects.to_string(),
            "the process leaks mappings: [5, 5, 10] more after each round of 10 times, 120 now"
        );
        assert!(!suspects.round(ProcessResources([30, 60, 124, 9999])));
    }

    #[test]
    fn of_few_rounds_a_growth_that_shrinks_is_no_leak() {
        let grow = |first: usize, second: usize| {
            let mut suspects = SuspectedLeaks::new(6, ProcessResources([8, 5, 100, 5000]));
            suspects.round(ProcessResources([8, 5, 100, 5000 + first]));
            suspects.round(ProcessResources([8, 5, 100, 5000 + first + second])) && suspects.grow_steadily()
        };
        // llvmpipe of Mesa 25, whose growth ends.
        assert!(!grow(3128, 1100) && !grow(3992, 652) && !grow(2472, 1232));
        // A megabyte in each cycle, beside such caches.
        assert!(grow(6144, 6144) && grow(8744, 6468) && grow(6144, 7000));
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn memory_that_is_freed_is_not_counted() {
        const TEST: &str = "process_resources::tests::memory_that_is_freed_is_not_counted";
        if !process::is_child() {
            let (variable, value) = RETURNS_MEMORY;
            return process::passes(TEST, |child| child.env(variable, value));
        }
        let before = ProcessResources::now().unwrap().0[3];
        // Freeing one lets glibc take others of its size from the heap.
        drop(vec![1_u8; 1 << 20]);
        let (large, between): (Vec<_>, Vec<_>) =
            (0..64).map(|_| (vec![1_u8; 1 << 19], vec![1_u8; 1 << 14])).unzip();
        drop(large);
        let after = ProcessResources::now().unwrap().0[3];
        assert!(after < before + 8 * 1024, "{before} {after}");
        drop(between);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_files_and_memory_are_counted() {
        let before = ProcessResources::now().unwrap();
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let memory = vec![1_u8; 64 << 20];
        let after = ProcessResources::now().unwrap();
        assert!(after.0[1] >= before.0[1] + files.len() / 2, "{before:?} {after:?}");
        assert!(after.0[3] >= before.0[3] + (memory.len() >> 11), "{before:?} {after:?}");
    }
}
