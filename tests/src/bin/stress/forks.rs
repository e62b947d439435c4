//! A fork of the process while all threads are at work: the child gets an error from each use of a device,
//! and ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use device_registry::{DeviceError, device};

use crate::worker::Worker;

/// How long a child may take. It has a few hundred calls to make, all of which are errors.
const LIMIT: Duration = Duration::from_secs(20);

/// The step that the child is at, which the parent reads.
struct Progress(*mut libc::c_void);

impl Progress {
    fn new() -> Result<Self, String> {
        const SHARED: (i32, i32) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: it maps new memory at an address that the kernel chooses.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<AtomicU32>(), SHARED.0, SHARED.1, -1, 0) };
        match memory {
            libc::MAP_FAILED => Err(format!("no memory to share: {}", std::io::Error::last_os_error())),
            memory => Ok(Self(memory)),
        }
    }

    fn step(&self) -> &AtomicU32 {
        // SAFETY: the memory is mapped until `self` is dropped, begins at a page and is zeroed, which an
        // atomic number may be; nothing else refers to it.
        unsafe { &*self.0.cast::<AtomicU32>() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // SAFETY: it is what `new` has mapped, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.0, size_of::<AtomicU32>()) };
    }
}

/// Forks, and waits for the child to find only errors.
pub(crate) fn fork(worker: &mut Worker<'_>) -> Result<(), String> {
    let progress = Progress::new()?;
    // SAFETY: the child calls what is to be tested, takes no lock of this program's, and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let wrong = catch_unwind(AssertUnwindSafe(|| child(worker, progress.step())));
            // SAFETY: it ends the child, and runs nothing of its parent's.
            unsafe { libc::_exit(wrong.map_or(101, |wrong| wrong.min(100))) }
        }
        -1 => Err(format!("cannot fork: {}", std::io::Error::last_os_error())),
        child => match wait(child)? {
            Some(0) => Ok(()),
            Some(status) => Err(format!(
                "a forked process ended with {}, after `{}`",
                ending(status),
                name_of(progress.step().load(Ordering::SeqCst))
            )),
            None => {
                let doing = name_of(progress.step().load(Ordering::SeqCst));
                Err(format!("a forked process hung in `{doing}`, and was killed after {LIMIT:?}"))
            }
        },
    }
}

/// Waits for a child. One that takes too long is killed, and has no status.
fn wait(child: libc::pid_t) -> Result<Option<i32>, String> {
    let (start, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: the child is this thread's and was not waited for, and `status` is there to be written to.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_micros(500)),
            0 => {
                // SAFETY: it was not waited for, so that the number is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as it is killed, this returns; `status` is there to be written to.
                unsafe { libc::waitpid(child, &mut status, 0) };
                return Ok(None);
            }
            found if found == child => return Ok(Some(status)),
            _ => return Err(format!("cannot wait for a child: {}", std::io::Error::last_os_error())),
        }
    }
}

fn ending(status: i32) -> String {
    match (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status)) {
        (true, _) => format!("signal {}", libc::WTERMSIG(status)),
        (false, 101) => "a panic".into(),
        (false, wrong) => format!("{wrong} results that are not the error of a fork"),
    }
}

const STEPS: [&str; 11] = [
    "fork",
    "allocate, open and synchronize each device",
    "use of streams",
    "use of buffers",
    "use of events",
    "Pending::is_ready and Debug",
    "Pending::wait",
    "an unknown name",
    "is_available",
    "close_all",
    "drop",
];

fn name_of(step: u32) -> &'static str {
    STEPS.get(step as usize).unwrap_or(&"unknown")
}

/// Runs in the child. Returns how many results are not the expected error.
fn child(worker: &mut Worker<'_>, step: &AtomicU32) -> i32 {
    let mut wrong = 0;
    let mut forked =
        |error: Option<DeviceError>| wrong += i32::from(!matches!(error, Some(DeviceError::Forked { .. })));
    let at = |number| step.store(number, Ordering::SeqCst);
    at(1);
    for device in &worker.scene.devices {
        forked(device.allocate(16).err());
        forked(device.open().err());
        forked(device.synchronize().err());
        forked(device.create_stream().err());
        forked(device.memory_statistics().err());
    }
    at(2);
    for lane in &worker.lanes {
        forked(lane.stream.query().err());
        forked(lane.stream.synchronize().err());
        forked(lane.stream.record().err());
        forked(lane.stream.host_call(|| ()).err());
    }
    at(3);
    for held in &worker.buffers {
        forked(held.buffer.fill(.., b"x").err());
        forked(held.buffer.read(0, &mut [0; 16]).err());
    }
    at(4);
    for mark in &worker.marks {
        forked(mark.event.query().err());
        forked(mark.event.synchronize().err());
    }
    at(5);
    for (read, _) in &worker.reads {
        let _ = read.is_ready();
        let _ = format!("{read:?}");
    }
    at(6);
    for (read, _) in worker.reads.drain(..) {
        forked(read.wait().err());
    }
    at(7);
    wrong += i32::from(!matches!(device("no_such_backend"), Err(DeviceError::UnknownBackend(_))));
    at(8);
    for device in &worker.scene.devices {
        wrong += i32::from(device_registry::is_available(&device.to_string()));
    }
    at(9);
    drop(device_registry::close_all());
    at(10);
    worker.lanes.clear();
    worker.buffers.clear();
    worker.marks.clear();
    wrong
}
