//! Converts the device's clock to the host's, for observers that want the times of queued work.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{BackendError, DeviceDriver, EventDriver, EventOptions};
use crate::runtime::activity;
use crate::runtime::open_device::OpenDevice;
use crate::sync::lock;

/// How long the two clocks are taken to run at one rate.
const ALIGNED_FOR: Duration = Duration::from_secs(5);

/// A moment on both clocks.
pub(crate) struct Alignment {
    event: Option<Box<dyn EventDriver>>,
    host: Instant,
    /// By how much `host` may be wrong.
    error: Duration,
    /// What is added to converted times, in nanoseconds: the clocks do not run at one rate, and work that
    /// seems to begin before it was enqueued shows by how much they have parted.
    drift: AtomicI64,
    device: &'static OpenDevice,
}

/// An event of the driver and the alignment that its time is converted by.
pub(crate) struct Timed {
    event: Option<Box<dyn EventDriver>>,
    alignment: Arc<Alignment>,
}

impl OpenDevice {
    /// Aligns the clocks, if an observer wants device times, the device has timestamps, and there is no
    /// alignment. It waits for an event of an idle queue, so the caller holds no lock.
    #[cold]
    pub(crate) fn align_clocks(&'static self) {
        if lock(&self.alignment).is_none() {
            self.align_clocks_now();
        }
    }

    /// Aligns the clocks again, if the last time was long ago. The caller has just waited for the device.
    #[cold]
    pub(crate) fn align_clocks_again(&'static self) {
        let is_old = |known: &Arc<Alignment>| known.host.elapsed() > ALIGNED_FOR;
        if self.known_alignment().as_ref().is_some_and(is_old) {
            self.align_clocks_now();
        }
    }

    fn align_clocks_now(&'static self) {
        if !activity::wants_device_times() || !self.properties.timed_events {
            return;
        }
        // Without an alignment, observers get the times of the host.
        if let Ok(best) = self.call("align clocks", |driver| self.align(driver)) {
            let before = lock(&self.alignment).replace(best);
            // Dropped without the lock, as it is the driver's event.
            drop(before);
        }
    }

    /// The newest alignment, if an observer wants device times.
    pub(crate) fn known_alignment(&self) -> Option<Arc<Alignment>> {
        if activity::wants_device_times() { lock(&self.alignment).clone() } else { None }
    }

    fn align(&'static self, driver: &dyn DeviceDriver) -> Result<Arc<Alignment>, BackendError> {
        /// Another thread may run between two looks at a clock: the shortest attempt is the best.
        const ATTEMPTS: usize = 4;

        let stream = self.take_idle_stream(driver)?;
        let mut best: Option<(Box<dyn EventDriver>, Instant, Duration)> = None;
        for _ in 0..ATTEMPTS {
            let begin = Instant::now();
            let event = stream.record(&EventOptions::new().timed())?;
            stream.flush()?;
            stream.synchronize()?;
            let error = begin.elapsed() / 2;
            if best.as_ref().is_none_or(|(_, _, smallest)| error < *smallest) {
                best = Some((event, begin + error, error));
            }
        }
        self.keep_idle_stream(stream);
        let (event, host, error) = best.expect("there were attempts");
        let drift = AtomicI64::new(0);
        Ok(Arc::new(Alignment { event: Some(event), host, error, drift, device: self }))
    }
}

impl Drop for Alignment {
    fn drop(&mut self) {
        self.device.drop_when_allowed(self.event.take());
    }
}

impl Timed {
    pub(crate) fn new(event: Box<dyn EventDriver>, alignment: &Arc<Alignment>) -> Self {
        Self { event: Some(event), alignment: Arc::clone(alignment) }
    }

    /// When the work between this event and a later one began and ended, on the clock of the host, and by how
    /// much that may be wrong; `None` if the driver cannot say. The work was enqueued at `enqueued`, and both
    /// events are done. Without a later event, the work took no time.
    pub(crate) fn until(
        &self,
        end: Option<&Self>,
        enqueued: Instant,
    ) -> Option<(Instant, Instant, Duration)> {
        let begin = self.time()?;
        let end = end.map_or(Some(begin), Self::time)?;
        let noticed = Instant::now();
        let parted = enqueued.saturating_duration_since(begin);
        if !parted.is_zero() {
            self.alignment.add_drift(nanoseconds(parted));
            return Some((enqueued, (end + parted).min(noticed), self.alignment.error()));
        }
        let parted = end.saturating_duration_since(noticed);
        if !parted.is_zero() {
            self.alignment.add_drift(-nanoseconds(parted));
            let begin = begin.checked_sub(parted).map_or(enqueued, |begin| begin.max(enqueued));
            return Some((begin, noticed, self.alignment.error()));
        }
        Some((begin, end, self.alignment.error()))
    }

    fn time(&self) -> Option<Instant> {
        let Alignment { event: start, host, device, .. } = &*self.alignment;
        let event = self.event.as_deref()?;
        let start = start.as_deref()?;
        let elapsed = device.call("elapsed time", |_| event.elapsed_since(start)).ok()?;
        let time = host.checked_add(elapsed)?;
        let drift = self.alignment.drift.load(Ordering::Relaxed);
        let by = Duration::from_nanos(drift.unsigned_abs());
        if drift < 0 { time.checked_sub(by) } else { time.checked_add(by) }
    }
}

impl Alignment {
    fn add_drift(&self, nanoseconds: i64) {
        self.drift.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn error(&self) -> Duration {
        self.error + Duration::from_nanos(self.drift.load(Ordering::Relaxed).unsigned_abs())
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    duration.as_nanos().try_into().unwrap_or(i64::MAX)
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.alignment.device.drop_when_allowed(self.event.take());
    }
}
