//! Questions to drivers that a process of their own answers.
//!
//! A driver that was loaded does not survive a fork. Programs ask how many devices there are, and fork
//! afterwards, for the children to use them. So until a device is used, a child of this process loads the
//! drivers, answers and ends.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long a driver may take.
const MOST: Duration = Duration::from_secs(60);

/// The text that a function returns in a child of this process, or why there is none. Without a child, this
/// process runs the function.
pub(crate) fn ask(question: impl FnOnce() -> String) -> Result<String, String> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: there is room for two ends.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Ok(question());
    }
    // SAFETY: each end was just made, and nothing else has it.
    let (from, to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child runs only `answer`, and none of its parent's code. The system's allocator and loader
    // work there. A lock that another thread of this process held may not, which ends with the time limit.
    let child = match unsafe { libc::fork() } {
        -1 => return Ok(question()),
        0 => answer(to, question),
        child => child,
    };
    drop(to);
    let answer = read(from);
    if answer.is_err() {
        // SAFETY: the child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: likewise, and a place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    match answer? {
        Some(text) => Ok(text),
        None if libc::WIFSIGNALED(status) => {
            Err(format!("its driver ended the process that asked it, with signal {}", libc::WTERMSIG(status)))
        }
        None => Err("its driver ended the process that asked it".to_owned()),
    }
}

/// Writes the answer, and ends this process without what its parent has for its own end.
fn answer(mut to: File, question: impl FnOnce() -> String) -> ! {
    // The trace is the parent's.
    // SAFETY: this process has one thread.
    unsafe { std::env::remove_var("DEVICE_TRACE") };
    if let Ok(text) = catch_unwind(AssertUnwindSafe(question)) {
        // The last byte says that it is whole.
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.write_all(&[0]));
    }
    // SAFETY: it ends this process, and runs no code of the parent before that.
    unsafe { libc::_exit(0) }
}

/// A whole answer; `None` if the child ended without one. An error if the time limit has passed.
fn read(mut from: File) -> Result<Option<String>, String> {
    let until = Instant::now() + MOST;
    let mut bytes = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut ready = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which is open.
        let count = unsafe { libc::poll(&raw mut ready, 1, left.as_millis() as c_int) };
        if count == 0 {
            return Err(format!("its driver has not answered within {} s", MOST.as_secs()));
        }
        let mut piece = [0; 4096];
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let is_whole = bytes.pop() == Some(0);
    Ok(is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned()))
}
