//! A backend whose devices hang until they are released, and can be unplugged.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostBuffer, HostMemory, LoadFailure, LossReporter, Memory, MemoryInfo,
    OpenedDevice, Span, StreamDriver, StreamOptions,
};
use device_registry::{Device, backends, device};

/// The devices of the backend. A test has one for itself.
const DEVICES: usize = 16;

/// From this device on, a device has queues of its own.
pub(crate) const QUEUED: usize = 12;

/// Queues that finish reads although the gate is closed: the first with an error, the second with the bytes.
pub(crate) const FAILS_READS: usize = 14;
pub(crate) const FINISHES_READS: usize = 15;

/// One device's plug: its reads and its queues hang while the gate is closed, and the reporter is that of the
/// latest open.
#[derive(Default)]
pub(crate) struct Plug {
    gate: Mutex<bool>,
    opens: Condvar,
    pub(crate) reporter: Mutex<Option<LossReporter>>,
}

static PLUGS: [Plug; DEVICES] =
    [const { Plug { gate: Mutex::new(false), opens: Condvar::new(), reporter: Mutex::new(None) } }; DEVICES];

impl Plug {
    pub(crate) fn report(&self, error: BackendError) {
        let reporter = self.reporter.lock().unwrap().clone();
        reporter.expect("it was opened").report(error);
    }

    /// Lets all that hangs return.
    pub(crate) fn release(&self) {
        *self.gate.lock().unwrap() = true;
        self.opens.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.gate.lock().unwrap()
    }

    fn wait(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.opens.wait_while(gate, |open| !*open).unwrap());
    }
}

struct Plugged;

impl Backend for Plugged {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(DEVICES)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new(format!("plug {ordinal}")))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let reporter = LossReporter::new();
        *PLUGS[ordinal].reporter.lock().unwrap() = Some(reporter.clone());
        if ordinal == 3 {
            reporter.report(BackendError::lost("unplugged while it was opened"));
        }
        Ok(OpenedDevice::new(self, PluggedDevice { plug: &PLUGS[ordinal], ordinal })
            .with_loss_reporter(reporter))
    }
}

struct PluggedDevice {
    plug: &'static Plug,
    ordinal: usize,
}

impl DeviceDriver for PluggedDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        destination.memory_as::<HostMemory>()?.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    /// Hangs until the gate opens.
    fn read(&self, _source: &Span, _destination: &mut [u8]) -> Result<(), BackendError> {
        self.plug.wait();
        Ok(())
    }

    /// Hangs until the gate opens.
    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.plug.wait();
        Ok(())
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        match self.ordinal {
            QUEUED.. => Ok(Box::new(PluggedQueue(self.plug, self.ordinal))),
            _ => Err(BackendError::unsupported("queues")),
        }
    }

    fn reset(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

/// A queue whose work is done when the gate is open. It moves no bytes.
struct PluggedQueue(&'static Plug, usize);

impl StreamDriver for PluggedQueue {
    fn write(&self, _destination: &Span, _source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(
        &self,
        _source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let (plug, ordinal) = (self.0, self.1);
        thread::spawn(move || {
            if ordinal < FAILS_READS {
                plug.wait();
            } else {
                // The core has accepted the read by then. If not, the test proves less.
                thread::sleep(Duration::from_millis(10));
            }
            completion.finish(match ordinal {
                FAILS_READS => Err(BackendError::other("on purpose")),
                _ => Ok(destination),
            });
        });
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(PluggedQueue(self.0, self.1)))
    }

    fn query(&self) -> Result<bool, BackendError> {
        Ok(self.0.is_open())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.wait();
        Ok(())
    }
}

impl EventDriver for PluggedQueue {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(self.0.is_open())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.wait();
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::ZERO)
    }
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Plugged))
}

static PLUGGED: BackendDescriptor = BackendDescriptor::new("plugged", load);

pub(crate) fn plugged(ordinal: usize) -> (Device, &'static Plug) {
    backends().register(&PLUGGED).unwrap();
    (device(&format!("plugged:{ordinal}")).unwrap(), &PLUGS[ordinal])
}
