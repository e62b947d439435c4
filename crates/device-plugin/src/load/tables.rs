//! The tables of a backend, read once and checked.

use device_registry::backend::LoadFailure;

use crate::abi::{self, BackendApi, DeviceApi, EventApi, Object, StreamApi, Table, TableError};

/// A backend of a library: its object and its functions.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) object: Object,
    pub(crate) backend: BackendApi,
    pub(crate) device: DeviceApi,
    pub(crate) stream: StreamApi,
    pub(crate) event: EventApi,
}

// SAFETY: the tables do not change, and the rules of the interface allow their functions on any thread.
unsafe impl Send for Tables {}
// SAFETY: the tables do not change, and the rules of the interface allow their functions on any thread, at the same time.
unsafe impl Sync for Tables {}

/// Fails for the first function that is missing.
macro_rules! require {
    ($table:expr, $name:literal, [$($function:ident)*]) => {
        $(if $table.$function.is_none() {
            return Err(LoadFailure::new(concat!(
                "the plug-in does not have the function `", $name, ".", stringify!($function), "`, which is required",
            )));
        })*
    };
}

impl Tables {
    /// Reads the tables of a backend.
    ///
    /// # Errors
    ///
    /// If a table has a size that none can have, or a required function is missing.
    ///
    /// # Safety
    ///
    /// The tables are valid, as far as their sizes say.
    pub(crate) unsafe fn read(loaded: &abi::Backend) -> Result<Self, LoadFailure> {
        // SAFETY: the caller promises that the tables are valid.
        let tables = unsafe {
            Self {
                object: loaded.backend,
                backend: table(loaded.backend_api, "dp_backend_api")?,
                device: table(loaded.device_api, "dp_device_api")?,
                stream: optional(loaded.stream_api, StreamApi::zeroed(), "dp_stream_api")?,
                event: optional(loaded.event_api, EventApi::zeroed(), "dp_event_api")?,
            }
        };
        let Self { backend, device, stream, event, .. } = &tables;
        require!(backend, "dp_backend_api", [device_count properties open]);
        require!(device, "dp_device_api", [memory_info allocate free]);
        if device.create_stream.is_some() {
            require!(stream, "dp_stream_api", [destroy write read copy record query synchronize]);
            require!(event, "dp_event_api", [destroy query synchronize]);
        } else {
            require!(device, "dp_device_api", [write read copy]);
        }
        Ok(tables)
    }
}

/// # Safety
///
/// The table is null or valid, as far as its size says.
unsafe fn table<T: Table>(table: *const T, name: &str) -> Result<T, LoadFailure> {
    // SAFETY: the caller promises it.
    unsafe { abi::take(table) }
        .map_err(|error| LoadFailure::new(format_args!("the table `{name}` of the plug-in {error}")))
}

/// # Safety
///
/// The table is null or valid, as far as its size says.
unsafe fn optional<T: Table>(pointer: *const T, none: T, name: &str) -> Result<T, LoadFailure> {
    // SAFETY: the caller promises it.
    match unsafe { abi::take(pointer) } {
        Err(TableError::Null) => Ok(none),
        // SAFETY: the caller promises it.
        _ => unsafe { table(pointer, name) },
    }
}
