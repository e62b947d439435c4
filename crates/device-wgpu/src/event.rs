//! A point in a stream: a submission, which may have left its time behind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device_registry::backend::{BackendError, EventDriver};
use wgpu::{Buffer, BufferDescriptor, BufferUsages, MapMode, QuerySetDescriptor, QueryType};

use crate::context::Context;
use crate::mapping::Mapping;
use crate::submission::Submission;

/// The size of a time, in ticks of the device.
const TIME: u64 = 8;

pub(crate) struct WgpuEvent {
    context: Arc<Context>,
    /// The last one before it. `None` if there was nothing.
    submission: Option<Arc<Submission>>,
    time: Option<Mutex<Time>>,
}

enum Time {
    /// In a buffer that can be mapped.
    There(Buffer),
    /// Fetched, or why it cannot be.
    Here(Result<u64, BackendError>),
}

impl WgpuEvent {
    pub(crate) fn new(context: &Arc<Context>, submission: Option<Arc<Submission>>) -> Self {
        // Now, before others submit more.
        if let Some(submission) = &submission {
            submission.ask(&context.queue);
        }
        Self { context: Arc::clone(context), submission, time: None }
    }

    /// An event that is a submission of its own, which writes the time.
    pub(crate) fn timed(context: &Arc<Context>) -> Result<Self, BackendError> {
        let buffer = |label, usage| {
            let (size, mapped_at_creation) = (TIME, false);
            context.create_buffer(&BufferDescriptor { label: Some(label), size, usage, mapped_at_creation })
        };
        let set = context.checked(|device| {
            let (label, ty) = (Some("time"), QueryType::Timestamp);
            device.create_query_set(&QuerySetDescriptor { label, ty, count: 1 })
        })?;
        let resolved = buffer("resolved time", BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let there = buffer("time", BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        let submission = context.encode(|encoder| {
            encoder.write_timestamp(&set, 0);
            encoder.resolve_query_set(&set, 0..1, &resolved, 0);
            encoder.copy_buffer_to_buffer(&resolved, 0, &there, 0, TIME);
        })?;
        let time = Some(Mutex::new(Time::There(there)));
        Ok(Self { time, ..Self::new(context, Some(submission)) })
    }

    /// The submission to which its stream has come. `None` if there is none.
    pub(crate) fn submission(&self) -> Option<&Arc<Submission>> {
        self.submission.as_ref()
    }

    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The time, in ticks.
    fn ticks(&self) -> Result<u64, BackendError> {
        let (Some(time), Some(submission)) = (&self.time, &self.submission) else {
            return Err(BackendError::invalid("the event has no time"));
        };
        let mut time = time.lock().unwrap_or_else(PoisonError::into_inner);
        if let Time::There(buffer) = &*time {
            let fetched = self.fetch(buffer, submission);
            *time = Time::Here(fetched);
        }
        match &*time {
            Time::Here(ticks) => ticks.clone(),
            Time::There(_) => Err(BackendError::other("the time is not there")),
        }
    }

    fn fetch(&self, buffer: &Buffer, submission: &Submission) -> Result<u64, BackendError> {
        let mapping = self.context.checked(|_| Mapping::begin(buffer, MapMode::Read, TIME))?;
        self.context.wait_mapped(submission, &mapping)?;
        let view = buffer.get_mapped_range(..).map_err(|error| self.context.loss.unmapped(error))?;
        let bytes = view.first_chunk().ok_or_else(|| BackendError::other("the time is too short"))?;
        Ok(u64::from_le_bytes(*bytes))
    }
}

impl EventDriver for WgpuEvent {
    fn query(&self) -> Result<bool, BackendError> {
        self.context.check()?;
        self.submission.as_ref().map_or(Ok(true), |submission| self.context.is_done(submission))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.context.check()?;
        match &self.submission {
            Some(submission) if !submission.is_done() => self.context.wait(submission),
            _ => Ok(()),
        }
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        let (from, to) = (start.ticks()?, self.ticks()?);
        let ticks = to.checked_sub(from).ok_or_else(|| {
            BackendError::invalid(format_args!(
                "the first event was reached {} ticks after the second",
                from - to
            ))
        })?;
        duration(ticks, self.context.queue.get_timestamp_period())
    }
}

/// So many ticks of `period` nanoseconds. Both are the driver's word.
fn duration(ticks: u64, period: f32) -> Result<Duration, BackendError> {
    Duration::try_from_secs_f64(ticks as f64 * f64::from(period) / 1e9).map_err(|error| {
        let message = format_args!("the device says that {ticks} ticks of {period} ns each have passed");
        BackendError::other(message).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_a_time_and_nonsense_is_an_error() {
        assert_eq!(duration(3, 500.0).unwrap(), Duration::from_nanos(1500));
        assert_eq!(duration(0, 1.0).unwrap(), Duration::ZERO);
        for period in [f32::NAN, f32::INFINITY, -1.0, f32::MAX] {
            let error = duration(7, period).unwrap_err().to_string();
            assert!(error.contains("7 ticks of"), "{error}");
        }
    }
}
