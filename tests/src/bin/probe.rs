//! A program with one sound backend and every kind of broken one, for tests that need a process of their own:
//! they run it under some environment and read what it prints.
//!
//! `probe use DEVICE… [then …]` uses each device and prints one line for it; `probe list` prints the names,
//! `probe report` the report; `probe devices` counts the devices of each. `probe register use DEVICE…` first
//! registers the backend `steady` by hand.

use std::error::Error;
use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties,
    LoadFailure, Memory, MemoryInfo, OpenedDevice, Span,
};
use device_registry::{backends, device, devices};
use parking_lot::{Mutex, MutexGuard};

// Not those for real hardware: it does the same on every machine.
device_registry::autoload!(only device_openreg);

type Loaded = Result<Box<dyn Backend>, LoadFailure>;

device_registry::backend::entry_points! {
    /// Works, and says on stderr that it was loaded.
    #[distributed_slice(BACKENDS)]
    static STEADY: BackendDescriptor = BackendDescriptor::new("steady", load_steady);

    #[distributed_slice(BACKENDS)]
    static ABSENT: BackendDescriptor = BackendDescriptor::new("absent", || {
        Err(LoadFailure::unavailable("no driver: looked for libabsent.so.1"))
    });

    #[distributed_slice(BACKENDS)]
    static FAILING: BackendDescriptor = BackendDescriptor::new("failing", || {
        Err(LoadFailure::new("the firmware is too old").with_source(std::io::Error::other("version 3, not 4")))
    });

    #[distributed_slice(BACKENDS)]
    static PANICKING: BackendDescriptor = BackendDescriptor::new("panicking", || panic!("a bug in the backend"));

    /// Uses its own device while it loads.
    #[distributed_slice(BACKENDS)]
    static RECURSIVE: BackendDescriptor = BackendDescriptor::new("recursive", || {
        device("recursive")?.allocate(1)?;
        Ok(Box::new(Steady))
    });

    /// Loads, and panics at every call.
    #[distributed_slice(BACKENDS)]
    static TREACHEROUS: BackendDescriptor = BackendDescriptor::new("treacherous", || Ok(Box::new(Treacherous)));

    /// Loads, and has no device.
    #[distributed_slice(BACKENDS)]
    static EMPTY: BackendDescriptor = BackendDescriptor::new("empty", || Ok(Box::new(Empty)));

    #[distributed_slice(BACKENDS)]
    static TWIN_A: BackendDescriptor =
        BackendDescriptor::new("twin", || Ok(Box::new(Steady))).in_package("device-twin", "1.0.0");

    #[distributed_slice(BACKENDS)]
    static TWIN_B: BackendDescriptor =
        BackendDescriptor::new("twin", || Ok(Box::new(Steady))).in_package("device-castor", "2.0.0");

    /// One package in two versions.
    #[distributed_slice(BACKENDS)]
    static OLD: BackendDescriptor =
        BackendDescriptor::new("aged", || Ok(Box::new(Steady))).in_package("device-aged", "0.1.0");

    #[distributed_slice(BACKENDS)]
    static NEW: BackendDescriptor =
        BackendDescriptor::new("aged", || Ok(Box::new(Steady))).in_package("device-aged", "0.2.0");

    /// Tries to be the cpu.
    #[distributed_slice(BACKENDS)]
    static IMPOSTOR: BackendDescriptor =
        BackendDescriptor::new("cpu", || panic!("the impostor was loaded")).in_package("device-impostor", "6.6.6");
}

fn load_steady() -> Loaded {
    eprintln!("steady: loaded");
    Ok(Box::new(Steady))
}

struct Steady;

impl Backend for Steady {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("a steady device"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, SteadyDevice))
    }
}

struct Empty;

impl Backend for Empty {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(0)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        unreachable!("there is no device")
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        unreachable!("there is no device {ordinal}")
    }
}

struct Treacherous;

impl Backend for Treacherous {
    fn device_count(&self) -> Result<usize, BackendError> {
        panic!("cannot count")
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        panic!("knows nothing")
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        panic!("cannot open")
    }
}

struct SteadyDevice;

struct SteadyMemory(Mutex<Vec<u8>>);

impl Memory for SteadyMemory {}

impl DeviceDriver for SteadyDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(SteadyMemory(vec![0; options.len].into())))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        bytes(destination)?[destination.range()].copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        destination.copy_from_slice(&bytes(source)?[source.range()]);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let moved = bytes(source)?[source.range()].to_vec();
        bytes(destination)?[destination.range()].copy_from_slice(&moved);
        Ok(())
    }
}

fn bytes(span: &Span) -> Result<MutexGuard<'_, Vec<u8>>, BackendError> {
    Ok(span.memory_as::<SteadyMemory>()?.0.lock())
}

/// Writes four bytes to the device and reads them back.
fn round_trip(text: &str) -> Result<String, Box<dyn Error>> {
    let buffer = device(text)?.allocate(4)?;
    buffer.write(0, b"ping")?;
    let mut back = [0; 4];
    buffer.read(0, &mut back)?;
    assert_eq!(&back, b"ping");
    Ok(buffer.device().to_string())
}

fn main() -> Result<(), Box<dyn Error>> {
    // Caught panics are expected here, and the tests read stderr.
    std::panic::set_hook(Box::new(|_| {}));
    let mut arguments = std::env::args().skip(1);
    while let Some(command) = arguments.next() {
        match command.as_str() {
            "register" => backends().register(&STEADY)?,
            "list" => println!("{}", backends().names().collect::<Vec<_>>().join(" ")),
            "devices" => {
                for (backend, devices) in devices() {
                    println!("{}: {} devices", backend.name(), devices.map_or(0, |devices| devices.len()));
                }
            }
            "report" => println!("{}", backends().report()),
            "observers" => println!("{}", device_registry::activity::observers().report()),
            "use" => {
                for text in arguments.by_ref().take_while(|argument| argument != "then") {
                    match round_trip(&text) {
                        Ok(device) => println!("{text}: ok on {device}"),
                        Err(error) => println!("{text}: error: {error}"),
                    }
                }
            }
            other => return Err(format!("no command `{other}`").into()),
        }
    }
    Ok(())
}
