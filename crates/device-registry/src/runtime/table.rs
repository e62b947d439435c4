//! The table of open devices. The first use of a device opens it, once.
//!
//! The core holds no lock while a backend's code runs. A backend that opens its own device inside `open`, or
//! two backends that open each other's, get an error instead of a deadlock. [`OnceLoad`] detects the
//! cycle, even one that includes loading a backend.

use std::cell;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use entry_points::{Interrupted, OnceLoad};

use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::Activity;
use crate::runtime::at_once::AtOnce;
use crate::runtime::fork::PerProcess;
use crate::runtime::isolation::{isolated, log_isolated, panicked};
use crate::runtime::open_device::OpenDevice;
use crate::runtime::validation::Layer;
use crate::runtime::{fork, memory_cache, probe};

/// The open device, if it is open. An error in a fork of the process that uses it.
pub(crate) fn find(device: Device) -> Result<Option<&'static OpenDevice>, DeviceError> {
    fork::check(device.backend())?;
    Ok(find_cell(device.resolve()).and_then(OnceLoad::get))
}

/// The open device; the first call opens it. Waits for another thread that is opening it, and returns that
/// thread's result. It does not keep a failure: a device that was busy may be free at the next call.
pub(crate) fn open(device: Device) -> Result<&'static OpenDevice, DeviceError> {
    let device = device.resolve();
    if let Some(open) = LAST.get().filter(|last| last.device() == device && last.is_usable()) {
        return Ok(open);
    }
    let open = match find(device)? {
        Some(open) => open,
        None => open_first(device)?,
    };
    LAST.set(Some(open));
    Ok(open)
}

thread_local! {
    /// The device that this thread used last. Most threads use one.
    static LAST: cell::Cell<Option<&'static OpenDevice>> = const { cell::Cell::new(None) };
}

fn open_first(device: Device) -> Result<&'static OpenDevice, DeviceError> {
    // Checked before the cell exists: otherwise a program that tries many invalid indices would leak a cell
    // for each.
    probe::check_exists(device)?;
    let opened = cell(device).get_or_load(
        ("devices", &device.to_string()),
        || open_observed(device),
        |interrupted| match interrupted {
            Interrupted::Cycle(path) => DeviceError::OpenCycle { device, path },
            Interrupted::Panicked(message) => panicked(device, "open", &message),
            Interrupted::Forked => DeviceError::Forked { device },
        },
    )?;
    // Only now is there a reference that the driver may keep.
    opened.connect_loss_reporter();
    if opened.check_thread("open").is_ok() {
        opened.drop_what_is_due();
    }
    Ok(opened)
}

fn open_observed(device: Device) -> Result<OpenDevice, DeviceError> {
    let begin = activity::is_on().then(Instant::now);
    let opened = open_now(device);
    if let Some(begin) = begin {
        let record = Activity::Opened { took: begin.elapsed(), failed: opened.is_err() };
        activity::record(Some(device), None, record);
    }
    opened
}

fn open_now(device: Device) -> Result<OpenDevice, DeviceError> {
    let backend = probe::load(device, "open")?;
    probe::check_before_open(device, backend)?;
    // Done before the device is open: an open driver is never dropped, so a later error would leak it.
    let properties = probe::query_properties(device, backend)?;
    let reuses =
        memory_cache::is_allowed().map_err(|error| DeviceError::Call { device, call: "open", error })?;
    let at_once = AtOnce::of_variable().map_err(|error| DeviceError::Call { device, call: "open", error })?;
    let layer = Layer::of_variable().map_err(|error| DeviceError::Call { device, call: "open", error })?;
    let opened = isolated(device, "open", || {
        let parts = backend.open(device.ordinal())?.into_parts(backend)?;
        Ok(layer.before(device, parts))
    })?;
    let name = properties.name.clone();
    let open = OpenDevice::new(device, opened, properties).with_memory_reuse(reuses).with_at_once(at_once);
    log_isolated(|| log::debug!("opened `{device}`: {name}"));
    Ok(open)
}

/// Resets a lost device, so that the next use opens it again.
pub(crate) fn reset(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    let Some(open) = find(device)? else { return Ok(()) };
    open.reset()?;
    forget(device, open);
    Ok(())
}

/// Closes a device, so that the next use opens it again.
pub(crate) fn close(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    let Some(open) = find(device)? else { return Ok(()) };
    let outcome = open.close();
    if matches!(open.check("close"), Err(DeviceError::Closed { .. })) {
        forget(device, open);
    }
    outcome
}

/// All devices that are open.
pub(crate) fn all() -> Vec<Device> {
    let cells = CELLS.current().read().unwrap_or_else(PoisonError::into_inner);
    cells.iter().filter(|(_, cell)| cell.get().is_some()).map(|(&device, _)| device).collect()
}

/// Removes an open device from the table, unless another thread has already opened the device again.
fn forget(device: Device, open: &'static OpenDevice) {
    let mut cells = CELLS.current().write().unwrap_or_else(PoisonError::into_inner);
    if cells.get(&device).and_then(|cell| cell.get()).is_some_and(|now| std::ptr::eq(now, open)) {
        cells.remove(&device);
    }
}

type Cell = OnceLoad<OpenDevice, DeviceError>;

/// The cells by resolved device. A device that is opened again after a reset has a new cell. The cells are
/// leaked, so that no driver is dropped at exit, when its library may already be unloaded.
static CELLS: PerProcess<Cells> = PerProcess::new([const { RwLock::new(BTreeMap::new()) }; 8]);

type Cells = RwLock<BTreeMap<Device, &'static Cell>>;

// No backend's code runs under the lock, so poison would be a defect of this crate. Ignoring it keeps later
// calls working.

fn find_cell(device: Device) -> Option<&'static Cell> {
    CELLS.current().read().unwrap_or_else(PoisonError::into_inner).get(&device).copied()
}

fn cell(device: Device) -> &'static Cell {
    let mut cells = CELLS.current().write().unwrap_or_else(PoisonError::into_inner);
    cells.entry(device).or_insert_with(|| Box::leak(Box::new(Cell::forgetting_failures())))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;

    use crate::testing;
    use crate::testing::{device_of, fake};

    #[test]
    fn many_threads_open_a_device_once() {
        let device = device_of("opened_once");
        let before = testing::OPENED.load(Ordering::SeqCst);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| device.allocate(1).unwrap());
            }
        });
        assert_eq!(testing::OPENED.load(Ordering::SeqCst), before + 1);
    }

    #[test]
    fn the_next_use_tries_again_after_a_failure_to_open() {
        let device = device_of("fails_at_first");
        let error = device.open().unwrap_err();
        assert_eq!(error.to_string(), "`fails_at_first:0`: open: unavailable: busy");
        assert!(device.open().is_ok());
    }

    #[test]
    fn a_backend_that_opens_itself_gets_an_error_and_does_not_hang() {
        let error = device_of("opens_itself").open().unwrap_err().to_string();
        assert!(
            error.ends_with("`opens_itself:0` needs itself to open: opens_itself:0 -> opens_itself:0"),
            "{error}"
        );
    }

    #[test]
    fn two_backends_that_open_each_other_on_two_threads_do_not_hang() {
        let left = device_of("opens_right");
        let right = device_of("opens_left");
        let results = thread::scope(|scope| {
            let left = scope.spawn(|| left.open());
            let right = scope.spawn(|| right.open());
            [left.join().unwrap(), right.join().unwrap()]
        });
        for result in results {
            assert!(result.unwrap_err().to_string().contains("needs itself to open"));
        }
    }

    #[test]
    fn one_backend_that_loads_and_one_that_opens_do_not_wait_for_each_other() {
        let loads = device_of("opens_while_it_loads");
        let opens = device_of("loads_while_it_opens");
        let [loaded, opened] = thread::scope(|scope| {
            let threads = [loads, opens].map(|device| scope.spawn(move || device.open()));
            threads.map(|thread| thread.join().unwrap().unwrap_err().to_string())
        });
        let cycle = "device.backends/opens_while_it_loads -> devices/loads_while_it_opens:0";
        assert!(loaded.contains("itself to") && opened.contains("itself to"), "{loaded} | {opened}");
        assert!(loaded.contains(cycle) || opened.contains(cycle), "{loaded} | {opened}");
    }

    #[test]
    fn a_panic_in_any_call_is_an_error_of_that_call() {
        for (name, call) in [
            ("panics_in_count", "device count"),
            ("panics_in_open", "open"),
            ("panics_in_properties", "properties"),
            ("panics_in_allocate", "allocate"),
        ] {
            let error = device_of(name).allocate(1).unwrap_err().to_string();
            assert!(error.contains(&format!(": {call}: the backend panicked: on purpose")), "{error}");
        }
        assert!(fake(None).allocate(1).is_ok(), "other devices keep working");
    }

    #[test]
    fn a_panic_while_memory_is_freed_does_not_reach_the_caller() {
        let buffer = device_of("panics_in_drop").allocate(1).unwrap();
        drop(buffer);
    }
}
