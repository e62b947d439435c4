//! What a process has of the system: threads, files, mappings and memory in use.

use crate::failure::Failure;

/// How much a process has, of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Possessions([usize; KINDS.len()]);

struct Kind {
    name: &'static str,
    /// A cycle that leaves so much behind, in each half of the cycles, leaks. Less is what allocators keep, or the core,
    /// which keeps a few KiB of each device that was open.
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

    /// What has grown too much in both of two halves of so many cycles, given what there was before each; and how much. What
    /// has grown in one of them only is a cache that has filled.
    pub(crate) fn growth_since(&self, [first, second]: &[Self; 2], cycles: usize) -> Option<String> {
        KINDS.iter().enumerate().find_map(|(place, Kind { name, leak })| {
            let (first, second, now) = (first.0[place], second.0[place], self.0[place]);
            let halves = [second.saturating_sub(first), now.saturating_sub(second)];
            let is_leak = halves.iter().all(|&growth| growth as f64 >= leak * cycles as f64);
            is_leak.then(|| {
                let [before, after] = halves;
                format!(
                    "the process has more {name} each time: {before} more after {cycles} times, and {after} more after \
                     another {cycles}, now {now}"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_in_both_halves_is_a_leak_and_what_grows_in_one_is_not() {
        let [start, grown] = [[8, 5, 100, 5000], [8, 5, 109, 5600]].map(Possessions);
        let since = |now| Possessions(now).growth_since(&[start, grown], 10);
        assert_eq!(since([8, 5, 109, 5600]), None, "once");
        assert_eq!(
            since([8, 5, 113, 6239]),
            None,
            "by less than every other cycle, and by less than 64 KiB each"
        );
        assert_eq!(
            since([30, 40, 109, 9000]),
            None,
            "threads and files in the second half only; memory not in the first"
        );
        let mappings = since([8, 5, 114, 5600]).unwrap();
        assert!(mappings.contains("mappings each time: 9 more after 10 times, and 5 more"), "{mappings}");
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
