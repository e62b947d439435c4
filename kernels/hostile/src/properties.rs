//! Properties that cannot be right.

use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, HostMemory, Memory,
    MemoryInfo, MemoryReuse, OpenedDevice, Span, open_windows,
};
use device_registry::{Device, DeviceError, backends, device, device_count};

use crate::{Test, hostile_backend};

pub(crate) fn tests() -> Vec<Test> {
    vec![("properties_that_cannot_be_right_are_errors_and_no_panics", odd)]
}

static ODD: BackendDescriptor = BackendDescriptor::new("odd", || Ok(Box::new(Odd)));

const ALIGNMENTS: [usize; 7] = [0, 1, 3, 7, 1 << 30, usize::MAX, 1 << (usize::BITS - 1)];
const LARGEST: [Option<u64>; 4] = [None, Some(0), Some(1), Some(u64::MAX)];

fn reuses() -> impl Iterator<Item = MemoryReuse> {
    let divided =
        [0, 3, usize::MAX, 1 << (usize::BITS - 1)].map(|alignment| MemoryReuse::Divided { alignment });
    let large = [0, 101, usize::MAX].map(|from| MemoryReuse::Large { from });
    [MemoryReuse::Never, MemoryReuse::Exact, MemoryReuse::Rounded].into_iter().chain(divided).chain(large)
}

fn all() -> Vec<DeviceProperties> {
    let mut all = Vec::new();
    for reuse in reuses() {
        for alignment in ALIGNMENTS {
            for largest in LARGEST {
                let odd =
                    DeviceProperties::new("odd").with_memory_reuse(reuse).with_copy_alignment(alignment);
                all.push(largest.map_or(odd.clone(), |bytes| odd.with_largest_allocation(bytes)));
            }
        }
    }
    all
}

struct Odd;

hostile_backend!(Odd, all().len(), |ordinal| Ok(all().swap_remove(ordinal)), |this, _ordinal| Ok(
    OpenedDevice::new(this, OddDevice)
));

struct OddDevice;

impl DeviceDriver for OddDevice {
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

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        destination.copy_from_slice(&source.memory_as::<HostMemory>()?.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let from = source.memory_as::<HostMemory>()?;
        let to = destination.memory_as::<HostMemory>()?;
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }
}

/// What a program does with a device.
fn uses() -> [fn(Device) -> Result<(), DeviceError>; 6] {
    [
        |device| device.allocate(100).map(drop),
        |device| {
            let _large = device.allocate(3 << 20)?;
            device.allocate(1).map(drop)
        },
        |device| device.allocate(100)?.fill(.., b"x"),
        |device| {
            let buffer = device.allocate(101)?;
            let mut found = [0; 101];
            buffer.write(0, &[7; 101])?;
            buffer.read(0, &mut found)?;
            assert_eq!(found, [7; 101]);
            Ok(())
        },
        |device| {
            let stream = device.create_stream()?;
            let buffer = stream.allocate(64)?;
            stream.fill(&buffer, .., b"y")?;
            stream.copy(&buffer.slice(..32)?, &buffer.slice(32..)?)?;
            stream.synchronize()
        },
        |device| {
            device.memory_statistics()?;
            device.empty_cache()?;
            device.close()
        },
    ]
}

fn odd() {
    backends().register(&ODD).unwrap();
    let mut fine = 0;
    let mut errors = 0;
    for ordinal in 0..device_count("odd").unwrap() {
        let device = device(&format!("odd:{ordinal}")).unwrap();
        for run in uses() {
            match run(device) {
                Ok(()) => fine += 1,
                Err(error) => {
                    errors += 1;
                    assert!(!error.to_string().contains("panicked"), "{error}");
                }
            }
        }
    }
    assert!(fine > 0 && errors > 0, "{fine} fine, {errors} errors");
}
