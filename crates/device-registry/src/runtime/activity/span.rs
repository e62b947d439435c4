//! Spans: parts of a program's run that have a name.

use std::fmt;
use std::marker::PhantomData;

use crate::runtime::activity;
use crate::runtime::activity::record::{Activity, Id, Name};

/// Names what this thread does until the returned guard is dropped: `epoch 3`. Records of this thread carry
/// the innermost span, and queued work the span of the thread that enqueued it. Without an observer the call
/// does nothing.
///
/// ```
/// use device_registry::{activity, device};
///
/// for epoch in 0..2 {
///     let _span = activity::span(&format!("epoch {epoch}"));
///     device("cpu")?.allocate(64)?;
/// }
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// Spans nest. Drop guards in the opposite order of their creation, as scopes do. A name is cut after
/// [`Name::MAX_LEN`] bytes.
pub fn span(name: &str) -> SpanGuard {
    activity::begin_linked();
    let entered = if activity::is_on() { enter(name) } else { None };
    SpanGuard { entered, _not_send: PhantomData }
}

#[cold]
fn enter(name: &str) -> Option<Entered> {
    let span = activity::next_id()?;
    activity::record(None, None, Activity::Entered { span, name: Name::new(name) });
    Some(Entered { span, outer: activity::replace_span(Some(span)) })
}

/// Ends a [`span`] when it is dropped. Bind it to a name such as `_span`: bound to `_`, it is dropped at
/// once. It cannot be sent to another thread.
#[must_use = "the span ends when the guard is dropped"]
pub struct SpanGuard {
    /// `None` if there was no observer.
    entered: Option<Entered>,
    _not_send: PhantomData<*const ()>,
}

struct Entered {
    span: Id,
    outer: Option<Id>,
}

impl SpanGuard {
    /// The number of the span; `None` if there was no observer when it began.
    #[must_use]
    pub fn id(&self) -> Option<Id> {
        self.entered.as_ref().map(|entered| entered.span)
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if let Some(Entered { span, outer }) = self.entered.take() {
            activity::replace_span(outer);
            activity::record(None, None, Activity::Left { span });
        }
    }
}

impl fmt::Debug for SpanGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpanGuard").field(&self.id()).finish()
    }
}
