//! The sources of queued writes, and what kernels keep, until the driver says that the work is done.
//!
//! A driver may rely on the core to keep them (rule D10). The program may free a source as soon as the
//! library has released it (rule 4 of `device_plugin.h`), so this side does what the core does for a linked
//! driver.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use device_registry::HostBuffer;
use parking_lot::Mutex;

use crate::export::report::guard_quietly;

/// The sources of one queue's writes. Each has a number, in the order of submission.
#[derive(Default)]
pub(crate) struct Sources(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Oldest first.
    sources: VecDeque<Used>,
    /// The count of released sources, which is the number of the oldest kept one.
    released: u64,
}

/// What queued work uses.
enum Used {
    Source(#[expect(dead_code, reason = "it is only kept")] Arc<HostBuffer>),
    /// What a kernel keeps.
    Value(#[expect(dead_code, reason = "it is only kept")] Box<dyn Any + Send>),
}

impl Sources {
    /// Keeps a source once the result is dropped, so after the call that submits the write. Before that, a
    /// query of another thread does not cover the write, and must not release its source.
    pub(crate) fn keep_after(&self, source: Arc<HostBuffer>) -> Source<'_> {
        Source { sources: self, source: Some(source) }
    }

    /// Keeps what a kernel keeps, which has submitted its work.
    pub(crate) fn keep(&self, values: Vec<Box<dyn Any + Send>>) {
        if !values.is_empty() {
            self.with(|kept| kept.sources.extend(values.into_iter().map(Used::Value)));
        }
    }

    /// The number of the next source. All that are kept have lower numbers.
    pub(crate) fn reached(&self) -> u64 {
        self.with(|kept| kept.released + kept.sources.len() as u64)
    }

    /// Releases all sources below a number, whose work is done.
    pub(crate) fn release(&self, number: u64) {
        let done: Vec<_> = self.with(|kept| {
            let count = number.saturating_sub(kept.released).min(kept.sources.len() as u64);
            kept.released += count;
            kept.sources.drain(..count as usize).collect()
        });
        // Dropped without the lock: the drop calls the program, or is a kernel's own.
        for used in done {
            guard_quietly("a panic while dropping what a kernel kept", || drop(used));
        }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Kept) -> T) -> T {
        run(&mut self.0.lock())
    }
}

impl Drop for Sources {
    /// The queue and its events do not exist any more. The remaining sources may have been in use at a loss
    /// (rule D19), so they are never released. A program that destroys a stream without a query of it or a
    /// wait for it, because it knows by another stream that the work is done, loses the sources.
    fn drop(&mut self) {
        self.with(|kept| mem::take(&mut kept.sources).into_iter().for_each(mem::forget));
    }
}

/// The source of a write that is being submitted. The work may have begun even if the driver refuses it.
pub(crate) struct Source<'a> {
    sources: &'a Sources,
    /// `None` during the drop.
    source: Option<Arc<HostBuffer>>,
}

impl Deref for Source<'_> {
    type Target = Arc<HostBuffer>;

    fn deref(&self) -> &Arc<HostBuffer> {
        self.source.as_ref().expect("it is not dropped")
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        let source = self.source.take();
        self.sources.with(|kept| kept.sources.extend(source.map(Used::Source)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_of_another_thread_does_not_cover_a_write_that_is_being_submitted() {
        let sources = Sources::default();
        let source = Arc::new(HostBuffer::from([7]));
        let submitted = sources.keep_after(Arc::clone(&source));
        let reached = sources.reached();
        drop(submitted);
        sources.release(reached);
        assert_eq!(Arc::strong_count(&source), 2);
        sources.release(sources.reached());
        assert_eq!(Arc::strong_count(&source), 1);
    }
}
