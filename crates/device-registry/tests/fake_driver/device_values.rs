//! What kernels keep with an open device is dropped before the driver ends the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::backend::{BackendError, NativeDevice};
use device_registry::{Device, DeviceError};

use crate::fake::{Control, both};

/// Pipelines of one device.
struct Pipelines {
    control: &'static Control,
    made: usize,
}

/// How many were made and dropped.
#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

static COUNTS: Counts = Counts { made: AtomicUsize::new(0), dropped: AtomicUsize::new(0) };

impl Drop for Pipelines {
    fn drop(&mut self) {
        let calls = self.control.log();
        assert!(!calls.contains(&"close"), "the driver has ended the device before: {calls:?}");
        COUNTS.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// The number of the pipelines that the device keeps.
fn kept(device: Device, control: &'static Control) -> Result<usize, DeviceError> {
    let make = || Ok(Pipelines { control, made: COUNTS.made.fetch_add(1, Ordering::SeqCst) });
    device.with_native(|native: NativeDevice<'_>| Ok(native.value(make)?.made))
}

fn dropped() -> usize {
    COUNTS.dropped.load(Ordering::SeqCst)
}

// One test, as it counts.
#[test]
fn values_of_kernels_end_with_the_device_and_before_its_driver() {
    for (device, control) in both() {
        let before = dropped();
        let first = kept(device, control).unwrap();
        assert_eq!((kept(device, control).unwrap(), dropped()), (first, before));
        device.close().unwrap();
        assert!(control.log().contains(&"close"));
        assert_eq!(dropped(), before + 1);

        let second = kept(device, control).unwrap();
        assert_ne!(second, first);
        control.report(BackendError::lost("unplugged"));
        assert!(kept(device, control).is_err());
        assert_eq!(dropped(), before + 1, "what runs at a loss may still use it");
        device.reset().unwrap();
        assert_eq!(dropped(), before + 2);
        assert_eq!(kept(device, control).unwrap(), second + 1);
    }
}

#[test]
fn a_kernel_of_the_stream_and_native_code_share_a_value() {
    for (device, _) in both() {
        let [first, second] = [3_u64, 5].map(|number| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let launch = move |launch: &device_registry::backend::Launch<'_>| {
                let value: Arc<u64> = launch.native_device().value(|| Ok(number))?;
                sender.send(*value).map_err(BackendError::other)
            };
            let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
            stream.launch(&[&buffer], launch).unwrap();
            stream.synchronize().unwrap();
            receiver.recv().unwrap()
        });
        assert_eq!((first, second), (3, 3));
        assert_eq!(device.with_native(|native| Ok(*native.value(|| Ok(7_u64))?)).unwrap(), 3);
    }
}
