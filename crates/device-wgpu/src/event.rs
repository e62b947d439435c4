//! Events: points in a stream, each a submission that may have written a timestamp.

use std::sync::Arc;
use std::time::Duration;

use device_registry::backend::{BackendError, EventDriver};
use parking_lot::Mutex;
use wgpu::{Buffer, BufferDescriptor, BufferUsages, MapMode, QuerySetDescriptor, QueryType};

use crate::context::Context;
use crate::mapping::Mapping;
use crate::submission::Submission;

/// The size of a timestamp in bytes.
const TIMESTAMP_LEN: u64 = 8;

pub(crate) struct WgpuEvent {
    context: Arc<Context>,
    /// The last submission before the event. `None` if there was none.
    submission: Option<Arc<Submission>>,
    timestamp: Option<Mutex<Timestamp>>,
}

enum Timestamp {
    /// In a buffer that can be mapped.
    OnDevice(Buffer),
    /// Fetched, in ticks of the device, or the error of fetching it.
    Fetched(Result<u64, BackendError>),
}

impl WgpuEvent {
    /// An event behind a submission.
    pub(crate) fn new(context: &Arc<Context>, submission: Option<Arc<Submission>>) -> Self {
        Self { context: Arc::clone(context), submission, timestamp: None }
    }

    /// An event with its own submission, which writes the timestamp.
    pub(crate) fn timed(context: &Arc<Context>) -> Result<Self, BackendError> {
        let buffer = |label, usage| {
            let size = TIMESTAMP_LEN;
            let mapped_at_creation = false;
            context.create_buffer(&BufferDescriptor { label: Some(label), size, usage, mapped_at_creation })
        };
        let set = context.checked(|device| {
            let label = Some("timestamp");
            let ty = QueryType::Timestamp;
            device.create_query_set(&QuerySetDescriptor { label, ty, count: 1 })
        })?;
        let resolved = buffer("resolved timestamp", BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let on_device = buffer("timestamp", BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        let submission = context.submit_batch(|batch| {
            batch.encode(0, |encoder| {
                encoder.write_timestamp(&set, 0);
                encoder.resolve_query_set(&set, 0..1, &resolved, 0);
                encoder.copy_buffer_to_buffer(&resolved, 0, &on_device, 0, TIMESTAMP_LEN);
            })
        })?;
        submission.track(&context.queue);
        let timestamp = Some(Mutex::new(Timestamp::OnDevice(on_device)));
        Ok(Self { timestamp, ..Self::new(context, Some(submission)) })
    }

    /// The submission after which the event is reached. `None` if there is none.
    pub(crate) fn submission(&self) -> Option<&Arc<Submission>> {
        self.submission.as_ref()
    }

    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The timestamp, in ticks of the device.
    fn ticks(&self) -> Result<u64, BackendError> {
        let (Some(timestamp), Some(submission)) = (&self.timestamp, &self.submission) else {
            return Err(BackendError::invalid("expected a timed event, found one without a timestamp"));
        };
        let mut timestamp = timestamp.lock();
        if let Timestamp::OnDevice(buffer) = &*timestamp {
            let fetched = self.fetch(buffer, submission);
            *timestamp = Timestamp::Fetched(fetched);
        }
        match &*timestamp {
            Timestamp::Fetched(ticks) => ticks.clone(),
            Timestamp::OnDevice(_) => Err(BackendError::other("the timestamp was not fetched")),
        }
    }

    fn fetch(&self, buffer: &Buffer, submission: &Submission) -> Result<u64, BackendError> {
        let mapping = self.context.checked(|_| Mapping::begin(buffer, MapMode::Read, TIMESTAMP_LEN))?;
        self.context.wait_mapped(submission, &mapping)?;
        let view = buffer.get_mapped_range(..).map_err(|error| self.context.loss.unmapped(error))?;
        let bytes = view
            .first_chunk()
            .ok_or_else(|| BackendError::other("expected a timestamp of 8 bytes, found fewer"))?;
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
        let from = start.ticks()?;
        let to = self.ticks()?;
        let ticks = to.checked_sub(from).ok_or_else(|| {
            BackendError::invalid(format_args!("the event was reached {} ticks before the start", from - to))
        })?;
        duration(ticks, self.context.queue.get_timestamp_period())
    }
}

/// The duration of `ticks` of `period` nanoseconds. The driver gives both numbers, which may be nonsense.
fn duration(ticks: u64, period: f32) -> Result<Duration, BackendError> {
    Duration::try_from_secs_f64(ticks as f64 * f64::from(period) / 1e9).map_err(|error| {
        let message = format_args!("expected a duration, found {ticks} ticks of {period} ns each");
        BackendError::other(message).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_a_duration_and_nonsense_an_error() {
        assert_eq!(duration(3, 500.0).unwrap(), Duration::from_nanos(1500));
        assert_eq!(duration(0, 1.0).unwrap(), Duration::ZERO);
        for period in [f32::NAN, f32::INFINITY, -1.0, f32::MAX] {
            let error = duration(7, period).unwrap_err().to_string();
            assert!(error.contains("7 ticks of"), "{error}");
        }
    }
}
