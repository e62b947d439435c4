//! The system resources of this process: threads, open files, mappings and memory.

use std::collections::BTreeMap;
use std::fmt;

use crate::failure::Failure;

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
}

impl fmt::Display for SuspectedLeaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cycles = self.cycles;
        for (number, (&kind, rounds)) in self.grown.iter().enumerate() {
            let (name, now) = (KINDS[kind].name, self.last.0[kind]);
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
