//! Other work on the machine, for measurements under load.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that compute until it is dropped.
#[derive(Debug)]
pub struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts so many threads.
    #[must_use]
    pub fn start(threads: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let work = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut number = 1_u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1000 {
                        number = black_box(number.wrapping_mul(3).rotate_left(7));
                    }
                }
            })
        };
        Self { threads: (0..threads).map(work).collect(), stop }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only computes does not panic.
            let _ = thread.join();
        }
    }
}
