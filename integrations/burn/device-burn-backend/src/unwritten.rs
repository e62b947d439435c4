//! Which kernels did not write their output.
//!
//! Two sides know. A stream reports a failure once, to any call that asks, and cannot say which work failed
//! first: what it reports holds for all kernels since the last that is known to have succeeded. A kernel that
//! is skipped or that fails by itself notes its own number, also when the stream's report went to a call of
//! the program.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::backend::BackendError;
use device_registry::{DeviceError, ErrorChain};
use parking_lot::Mutex;

/// The numbers of the kernels whose output was not written.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// Whether there are any: the usual check takes no lock.
    any: AtomicBool,
    ranges: Mutex<Vec<(Range<u64>, Why)>>,
}

/// Why a kernel has not written its output.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Why {
    /// The stream reported a failure.
    #[error(transparent)]
    Reported(DeviceError),
    /// The kernel failed, was skipped, or refused its inputs.
    #[error(transparent)]
    Kernel(BackendError),
}

impl Unwritten {
    /// Why the kernel of this number has not written.
    pub(crate) fn why(&self, number: u64) -> Option<Why> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let ranges = self.ranges.lock();
        // The last ones are in use the most, and what the stream reports comes after what kernels note.
        ranges.iter().rev().find(|(range, _)| range.contains(&number)).map(|(_, why)| why.clone())
    }

    /// The stream has reported a failure, which holds for these kernels.
    pub(crate) fn reported(&self, numbers: Range<u64>, error: DeviceError) {
        self.add(numbers, Why::Reported(error));
    }

    fn failed(&self, number: u64, error: BackendError) {
        self.add(number..number + 1, Why::Kernel(error));
    }

    fn skipped(&self, number: u64) {
        let mut ranges = self.ranges.lock();
        match ranges.last_mut() {
            // It was skipped for the failure of the kernel before it, or is one of those that a report holds
            // for.
            Some((range, _)) if range.end == number => range.end += 1,
            Some((range, _)) if range.contains(&number) => {}
            _ => {
                let why = "the kernel did not run, because work before it in the stream of the device failed";
                ranges.push((number..number + 1, Why::Kernel(BackendError::other(why))));
            }
        }
        self.any.store(true, Ordering::Release);
    }

    fn add(&self, numbers: Range<u64>, why: Why) {
        self.ranges.lock().push((numbers, why));
        self.any.store(true, Ordering::Release);
    }

    /// Forgets all: no ticket of these numbers is in use.
    pub(crate) fn clear(&self) {
        let mut ranges = self.ranges.lock();
        ranges.clear();
        self.any.store(false, Ordering::Release);
    }
}

impl Why {
    fn into_backend_error(self) -> BackendError {
        match self {
            Self::Kernel(error) => error,
            Self::Reported(error) => BackendError::other(ErrorChain::new(&error)),
        }
    }
}

/// What a kernel is to write. Dropped before [`write`](Self::write), it notes that the kernel was skipped.
pub(crate) struct Output {
    number: u64,
    unwritten: Option<Arc<Unwritten>>,
}

impl Output {
    pub(crate) fn new(number: u64, unwritten: &Arc<Unwritten>) -> Self {
        Self { number, unwritten: Some(Arc::clone(unwritten)) }
    }

    /// Runs `kernel`, unless one of the kernels that wrote its inputs did not. The stream is past those.
    pub(crate) fn write(
        mut self,
        inputs: impl IntoIterator<Item = u64>,
        kernel: impl FnOnce() -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let Some(unwritten) = self.unwritten.take() else { return Ok(()) };
        let why = inputs.into_iter().find_map(|input| unwritten.why(input));
        let result = why.map_or_else(kernel, |why| Err(why.into_backend_error()));
        result.inspect_err(|error| unwritten.failed(self.number, error.clone()))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(unwritten) = &self.unwritten {
            unwritten.skipped(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reaches_those_behind_it_until_one_writes_again() {
        let unwritten = Arc::<Unwritten>::default();
        let [written, failed, skipped, after] = [0, 1, 2, 3].map(|number| Output::new(number, &unwritten));
        written.write([], || Ok(())).unwrap();
        failed.write([0], || Err(BackendError::other("no stars"))).unwrap_err();
        drop(skipped);
        after.write([0], || Ok(())).unwrap();
        let errors = [0, 1, 2, 3].map(|number| unwritten.why(number).map(|why| why.to_string()));
        assert_eq!(errors, [None, Some("no stars".to_owned()), Some("no stars".to_owned()), None]);
    }

    #[test]
    fn a_kernel_does_not_run_on_what_was_not_written() {
        let unwritten = Arc::<Unwritten>::default();
        drop(Output::new(4, &unwritten));
        let error = Output::new(5, &unwritten).write([4], || panic!("it runs")).unwrap_err();
        assert!(error.to_string().contains("the kernel did not run"), "{error}");
        assert!(unwritten.why(5).is_some());
    }
}
