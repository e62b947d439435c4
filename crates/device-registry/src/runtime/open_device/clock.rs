//! The device's clock beside that of the host, for observers that want the times of queued work.

use std::sync::Arc;
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

    /// Aligns the clocks again, if that was done long ago. The caller has just waited for the device.
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
            // Not under the lock: it is the driver's event.
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
        Ok(Arc::new(Alignment { event: Some(event), host, error, device: self }))
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

    /// When the event was reached, on the clock of the host, and by how much that may be wrong; `None` if the
    /// driver cannot say. The event is done.
    pub(crate) fn time(&self) -> Option<(Instant, Duration)> {
        let Alignment { event: start, host, error, device } = &*self.alignment;
        let (event, start) = (self.event.as_deref()?, start.as_deref()?);
        let elapsed = device.call("elapsed time", |_| event.elapsed_since(start)).ok()?;
        Some((host.checked_add(elapsed)?, *error))
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.alignment.device.drop_when_allowed(self.event.take());
    }
}
