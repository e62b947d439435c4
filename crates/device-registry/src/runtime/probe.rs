//! Queries of a backend, which open no device and ignore which devices are open.

use std::cell::RefCell;
use std::time::Instant;

use entry_points::Entry;

use crate::backend::{Backend, BackendError, DeviceProperties, MemoryReuse, Presence};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::Activity;
use crate::runtime::isolation::isolated;
use crate::runtime::transfer::CHUNK;
use crate::runtime::{device_use, fork};

/// The number of devices of a backend. Loads it.
pub(crate) fn count(backend: Entry<dyn Backend>) -> Result<usize, DeviceError> {
    /// Indices are 0 to 65535.
    const MOST: usize = u16::MAX as usize + 1;

    let device = Device::of_backend(backend, None);
    let loaded = load(device, "device count")?;
    match query(device, "device count", || loaded.device_count())? {
        count if count > MOST => {
            let error = BackendError::invalid(format_args!(
                "invalid device count: expected at most {MOST}, found {count}"
            ));
            Err(DeviceError::Call { device, call: "device count", error })
        }
        count => Ok(count),
    }
}

/// The devices of a backend, each with its index. Loads the backend.
pub(crate) fn devices_of(backend: Entry<dyn Backend>) -> Result<Vec<Device>, DeviceError> {
    let count = count(backend)?;
    // The number of devices may be 65536, which is more than the end of a range of `u16` can be.
    let indices = (0..=u16::MAX).take(count);
    Ok(indices.map(|index| Device::of_backend(backend, Some(index))).collect())
}

/// Runs a query of a backend, which does not block. So it cannot deadlock, but a backend that repeats the
/// same query inside it would overflow the stack: it gets an error instead.
fn query<T>(
    device: Device,
    call: &'static str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, DeviceError> {
    thread_local! {
        /// The queries that run on this thread, outermost first.
        static QUERIES: RefCell<Vec<(Device, &'static str)>> = const { RefCell::new(Vec::new()) };
    }

    // While a thread ends, the list may be destroyed: the query then runs without the check.
    if QUERIES.try_with(|queries| queries.borrow().contains(&(device, call))).unwrap_or(false) {
        let error =
            BackendError::other(format_args!("the backend queries its own {call} inside of that query"));
        return Err(DeviceError::Call { device, call, error });
    }
    let _ = QUERIES.try_with(|queries| queries.borrow_mut().push((device, call)));
    let result = isolated(device, call, run);
    let _ = QUERIES.try_with(|queries| queries.borrow_mut().pop());
    result
}

/// The backend of a device, if this thread and this process may use it. Loads it.
pub(super) fn load(device: Device, call: &'static str) -> Result<&'static dyn Backend, DeviceError> {
    if device_use::is_forbidden() {
        return Err(DeviceError::InHostCall { device, call });
    }
    fork::check(device.backend())?;
    match device.backend().loaded() {
        Some(loaded) => Ok(loaded),
        None => load_first(device),
    }
}

#[cold]
fn load_first(device: Device) -> Result<&'static dyn Backend, DeviceError> {
    activity::begin_linked();
    let begin = activity::is_on().then(Instant::now);
    let loaded = device.backend().load();
    if let Some(begin) = begin {
        let of = Device::of_backend(device.backend(), None);
        let record = Activity::Loaded { took: begin.elapsed(), failed: loaded.is_err() };
        activity::record(Some(of), None, record);
    }
    Ok(loaded?)
}

/// The properties that a backend returns, with valid alignments.
pub(super) fn query_properties(
    device: Device,
    backend: &dyn Backend,
) -> Result<DeviceProperties, DeviceError> {
    let properties = query(device, "properties", || backend.properties(device.ordinal()))?;
    let memory = match properties.memory_reuse {
        MemoryReuse::Divided { alignment } => alignment,
        _ => 1,
    };
    // A copy or a fill through the host uses chunks of this size, which must be a multiple of the alignment.
    for (of, alignment) in [("copy", properties.copy_alignment), ("memory", memory)] {
        if !alignment.is_power_of_two() || alignment > CHUNK {
            let error = BackendError::invalid(format_args!(
                "invalid {of} alignment: expected a power of two of at most {CHUNK} bytes, found {alignment}"
            ));
            return Err(DeviceError::Call { device, call: "properties", error });
        }
    }
    Ok(properties)
}

/// Whether a device is there now, as its backend says.
pub(super) fn query_presence(device: Device, backend: &dyn Backend) -> Result<Presence, DeviceError> {
    query(device, "presence", || backend.presence(device.ordinal()))
}

/// Checks that a device which is not open is there now.
pub(super) fn check_before_open(device: Device, backend: &dyn Backend) -> Result<(), DeviceError> {
    into_result(device, query_presence(device, backend)?)
}

/// The error of a device that is not there.
pub(super) fn into_result(device: Device, presence: Presence) -> Result<(), DeviceError> {
    match presence {
        Presence::Present => Ok(()),
        Presence::Absent(reason) => Err(DeviceError::Absent { device, reason }),
        Presence::Lost(error) => Err(DeviceError::Call { device, call: "presence", error }),
    }
}

/// Checks that the device exists: its backend loads and has a device with this index. Opens nothing.
pub(crate) fn check_exists(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    let count = count(device.backend())?;
    if device.ordinal() < count { Ok(()) } else { Err(DeviceError::NoSuchDevice { device, count }) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::available::is_available;
    use crate::testing::device_of;

    #[test]
    fn queries_work_while_a_thread_ends() {
        struct Queries;
        impl Drop for Queries {
            fn drop(&mut self) {
                assert!(is_available("cpu"));
            }
        }
        thread_local! {
            static QUERIES: Queries = const { Queries };
        }
        let ending = thread::spawn(|| {
            // It is created before the list of queries, and so dropped after it.
            QUERIES.with(|_| assert!(is_available("cpu")));
        });
        ending.join().unwrap();
    }

    #[test]
    fn a_count_above_the_largest_index_is_an_error() {
        let error = device_of("counts_too_many").allocate(1).unwrap_err().to_string();
        assert!(error.contains(&format!("expected at most 65536, found {}", usize::MAX)), "{error}");
    }

    #[test]
    fn a_backend_that_counts_its_devices_inside_of_the_count_gets_an_error() {
        let error = device_of("counts_itself").allocate(1).unwrap_err().to_string();
        assert!(error.contains("queries its own device count inside of that query"), "{error}");
        assert!(!is_available("counts_itself"));
    }

    #[test]
    fn a_backend_that_queries_properties_inside_of_that_query_gets_an_error() {
        let error = device_of("describes_itself").properties().unwrap_err().to_string();
        assert!(error.contains("queries its own properties inside of that query"), "{error}");
    }

    #[test]
    fn an_invalid_alignment_is_an_error_of_the_backend() {
        for (name, alignment) in
            [("declares_odd_alignment", 3), ("declares_huge_alignment", 1_usize << (usize::BITS - 1))]
        {
            let device = device_of(name);
            for error in [device.properties().unwrap_err(), device.open().unwrap_err()] {
                let expected = format!("expected a power of two of at most 1048576 bytes, found {alignment}");
                assert!(error.to_string().contains(&expected), "{error}");
            }
        }
    }
}
