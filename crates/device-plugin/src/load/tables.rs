//! The tables of a backend, read once and checked.

use device_registry::backend::LoadFailure;

use crate::abi::{self, BackendApi, DeviceApi, EventApi, Object, StreamApi, Table, TableError};
use crate::load::library::Library;

/// A backend of a library: its object and its functions.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Which library they are of. Tests have tables of none.
    pub(crate) library: Option<&'static Library>,
    /// What the library calls the backend.
    pub(crate) entry: String,
    pub(crate) object: Object,
    pub(crate) backend: BackendApi,
    pub(crate) device: DeviceApi,
    pub(crate) stream: StreamApi,
    pub(crate) event: EventApi,
}

// SAFETY: the tables do not change, and the rules of the interface allow their functions on any thread.
unsafe impl Send for Tables {}
// SAFETY: the tables do not change, and the rules of the interface allow their functions on any thread, at
// the same time.
unsafe impl Sync for Tables {}

/// The functions that a backend must have, by table: the tables of streams and events only if it creates
/// streams.
pub(crate) const REQUIRED: [(&str, &[&str]); 4] = [
    ("backend", &["device_count", "properties", "open"]),
    ("device", &["memory_info", "allocate", "free"]),
    ("stream", &["destroy", "write", "read", "copy", "record", "query", "synchronize"]),
    ("event", &["destroy", "query", "synchronize"]),
];

/// What the table of devices has to have as well if the backend creates no streams.
const WITHOUT_STREAMS: [(&str, &[&str]); 1] = [("device", &["write", "read", "copy"])];

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
    pub(crate) unsafe fn read(
        library: &'static Library,
        entry: &str,
        loaded: &abi::Backend,
    ) -> Result<Self, LoadFailure> {
        // SAFETY: the caller promises that the tables are valid.
        let tables = unsafe {
            Self {
                library: Some(library),
                entry: entry.to_owned(),
                object: loaded.backend,
                backend: table(loaded.backend_api, "dp_backend_api")?,
                device: table(loaded.device_api, "dp_device_api")?,
                stream: optional(loaded.stream_api, StreamApi::ZEROED, "dp_stream_api")?,
                event: optional(loaded.event_api, EventApi::ZEROED, "dp_event_api")?,
            }
        };
        let Self { backend, device, stream, event, .. } = &tables;
        let functions = [
            ("backend", backend.functions()),
            ("device", device.functions()),
            ("stream", stream.functions()),
            ("event", event.functions()),
        ];
        let (always, of_streams) = REQUIRED.split_at(2);
        let then = if device.create_stream.is_some() { of_streams } else { &WITHOUT_STREAMS };
        for (table, names) in always.iter().chain(then) {
            let missing =
                |name: &&&str| !functions.iter().any(|(of, has)| of == table && has.contains(&(name, true)));
            if let Some(name) = names.iter().find(missing) {
                return Err(LoadFailure::new(format_args!(
                    "the plugin does not have the function `dp_{table}_api.{name}`, which is required"
                )));
            }
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
        .map_err(|error| LoadFailure::new(format_args!("the table `{name}` of the plugin {error}")))
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
