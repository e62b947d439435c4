//! A logger that panics, as `println!` does on a closed pipe: it changes no result. A separate test binary,
//! as a process has one logger.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostBuffer, Memory, MemoryInfo, OpenedDevice, Span, StreamDriver,
    StreamOptions,
};
use device_registry::{DeviceError, Pending, backends, device};

struct Panics;

impl log::Log for Panics {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert!(!record.target().starts_with("device_registry"), "the pipe is closed");
    }

    fn flush(&self) {}
}

/// A backend whose queue accepts reads and leaves them to the test.
struct Holds;

static READS: Mutex<Vec<Completion>> = Mutex::new(Vec::new());

impl Memory for Holds {}

impl Backend for Holds {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(2)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("holds"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, Self))
    }
}

impl DeviceDriver for Holds {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(Self))
    }

    fn write(&self, _destination: &Span, _source: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(&self, _source: &Span, _destination: &mut [u8]) -> Result<(), BackendError> {
        Err(BackendError::lost("the cable is out"))
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(Self))
    }
}

impl StreamDriver for Holds {
    fn write(&self, _destination: &Span, _source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(&self, _: &Span, _: HostBuffer, completion: Completion) -> Result<(), BackendError> {
        READS.lock().unwrap().push(completion);
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Err(BackendError::unsupported("events"))
    }

    fn query(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

static HOLDS: BackendDescriptor = BackendDescriptor::new("holds", || Ok(Box::new(Holds)));

fn outcome(read: Pending) -> Result<HostBuffer, DeviceError> {
    assert!(read.wait_timeout(Duration::from_secs(20)), "the read is not finished");
    read.wait()
}

#[test]
fn a_logger_that_panics_changes_no_outcome() {
    log::set_logger(&Panics).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    backends().register(&HOLDS).unwrap();

    // The driver finishes one of two reads with a loss, on its own thread.
    let holds = device("holds:0").unwrap();
    let (stream, buffer) = (holds.create_stream().unwrap(), holds.allocate(4).unwrap());
    let [first, second] = [(); 2].map(|()| stream.read(&buffer, ..).unwrap());
    let finish = || READS.lock().unwrap().remove(0).finish(Err(BackendError::lost("the cable is out")));
    std::thread::spawn(finish).join().expect("finishing never unwinds");
    for read in [first, second] {
        let error = outcome(read).unwrap_err().to_string();
        assert!(error.contains("the cable is out"), "{error}");
    }

    // A blocking call of the program's finds the loss.
    let holds = device("holds:1").unwrap();
    let (stream, buffer) = (holds.create_stream().unwrap(), holds.allocate(4).unwrap());
    let read = stream.read(&buffer, ..).unwrap();
    let error = buffer.read(0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("the cable is out"), "{error}");
    let error = outcome(read).unwrap_err().to_string();
    assert!(error.contains("the cable is out"), "{error}");

    // The failure of a stream that was dropped is logged, and reported by the device all the same.
    let cpu = device("cpu").unwrap();
    cpu.create_stream().unwrap().host_call(|| panic!("on purpose")).unwrap();
    let error = loop {
        match cpu.synchronize() {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("on purpose"), "{error}");
}
