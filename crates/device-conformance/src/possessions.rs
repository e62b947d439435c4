//! What a process has of the system: threads, files, mappings and memory in use.

use std::collections::BTreeMap;
use std::fmt;

use crate::failure::Failure;

/// How much a process has, of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Possessions([usize; KINDS.len()]);

struct Kind {
    name: &'static str,
    /// A cycle that leaves so much behind, on average, may leak. Less is what the core keeps of each device that was open,
    /// which is a few KiB.
    leak: f64,
}

const KINDS: [Kind; 4] = [
    Kind { name: "threads", leak: 0.5 },
    Kind { name: "open files", leak: 0.5 },
    Kind { name: "mappings", leak: 0.5 },
    Kind { name: "KiB of memory in use", leak: 64.0 },
];

impl Possessions {
    /// What this process has now.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Result<Self, Failure> {
        use std::fs;

        let failed = |error: std::io::Error| Failure::new(format_args!("/proc/self cannot be read: {error}"));
        let entries = |folder| fs::read_dir(folder).map(Iterator::count).map_err(failed);
        let text = |file| fs::read_to_string(file).map_err(failed);
        let status = text("/proc/self/status")?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB")?.trim().parse().ok());
        let resident = resident
            .ok_or_else(|| Failure::new("/proc/self/status does not say how much memory is in use"))?;
        let mappings = text("/proc/self/maps")?.lines().count();
        Ok(Self([entries("/proc/self/task")?, entries("/proc/self/fd")?, mappings, resident]))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Result<Self, Failure> {
        Err(Failure::unsupported("what a process has is counted on Linux only"))
    }

    /// What has grown too much since `before`, in a round of so many cycles: the places of its kinds, and by how much.
    fn growth_since(&self, before: &Self, cycles: usize) -> impl Iterator<Item = (usize, usize)> {
        let grown = self.0.iter().zip(before.0).map(|(now, before)| now.saturating_sub(before)).enumerate();
        let grown: Vec<_> = grown.collect();
        grown.into_iter().filter(move |&(kind, by)| by as f64 >= KINDS[kind].leak * cycles as f64)
    }
}

/// What has grown in every round of cycles. A cache grows until it is full, and a leak does not end.
pub(crate) struct Suspects {
    cycles: usize,
    last: Possessions,
    /// By how much in each round, for each kind that is still suspected.
    grown: BTreeMap<usize, Vec<usize>>,
}

impl Suspects {
    /// All kinds are, before the first of the rounds.
    pub(crate) fn new(cycles: usize, start: Possessions) -> Self {
        Self { cycles, last: start, grown: (0..KINDS.len()).map(|kind| (kind, Vec::new())).collect() }
    }

    /// What there is after the next round. Returns whether any is still suspected.
    pub(crate) fn round(&mut self, now: Possessions) -> bool {
        let growth: BTreeMap<_, _> = now.growth_since(&self.last, self.cycles).collect();
        self.grown.retain(|kind, rounds| growth.get(kind).map(|&by| rounds.push(by)).is_some());
        self.last = now;
        !self.grown.is_empty()
    }
}

impl fmt::Display for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cycles = self.cycles;
        for (number, (&kind, rounds)) in self.grown.iter().enumerate() {
            let (name, now) = (KINDS[kind].name, self.last.0[kind]);
            let separator = if number == 0 { "" } else { "; " };
            write!(
                f,
                "{separator}the process has more {name} after every {cycles} times: {rounds:?} more, now {now}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_in_every_round_is_a_leak_and_what_stops_is_not() {
        let mut suspects = Suspects::new(10, Possessions([8, 5, 100, 5000]));
        assert!(suspects.round(Possessions([18, 5, 105, 6000])));
        assert!(
            suspects.round(Possessions([17, 20, 110, 7000])),
            "threads have ended, and files are too late"
        );
        assert!(
            suspects.round(Possessions([17, 40, 120, 7639])),
            "memory grows by less than 64 KiB each time"
        );
        assert_eq!(
            suspects.to_string(),
            "the process has more mappings after every 10 times: [5, 5, 10] more, now 120"
        );
        assert!(!suspects.round(Possessions([30, 60, 124, 9999])));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_process_has_is_counted() {
        let before = Possessions::now().unwrap();
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let memory = vec![1_u8; 64 << 20];
        let after = Possessions::now().unwrap();
        assert!(after.0[1] >= before.0[1] + files.len() / 2, "{before:?} {after:?}");
        assert!(after.0[3] >= before.0[3] + (memory.len() >> 11), "{before:?} {after:?}");
    }
}
