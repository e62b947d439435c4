//! The types of the interface, in the order of the header, which documents them.

#![allow(missing_docs, reason = "the header has the documentation")]

use std::ffi::c_void;

use crate::abi::Status;

/// An object that only one side understands.
pub type Object = *mut c_void;

/// The receiver of properties.
pub type Receive = Option<unsafe extern "C" fn(context: Object, properties: *const Properties)>;

/// Declares a type of the header with its fields and then its functions, each of which may be null. The tests
/// get its description. A type whose first field is `struct_size` is a [`Table`].
macro_rules! abi {
    (
        $(#[$meta:meta])*
        $name:ident = $c_name:literal {
            $($field:ident: $type:ty,)*
        }
        $(functions {
            $(fn $function:ident($($argument:ident: $argument_type:ty),* $(,)?) $(-> $result:ty)?;)*
        })?
    ) => {
        $(#[$meta])*
        #[doc = concat!("\n`", $c_name, "` of `device_plugin.h`.")]
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(pub $field: $type,)*
            $($(pub $function: Option<unsafe extern "C" fn($($argument: $argument_type),*) $(-> $result)?>,)*)?
        }

        $(impl $name {
            /// The names of its functions, each with whether it is there.
            #[allow(dead_code, reason = "not every type's functions are listed")]
            pub(crate) fn functions(&self) -> Vec<(&'static str, bool)> {
                vec![$((stringify!($function), self.$function.is_some()),)*]
            }
        })?

        #[cfg(all(test, unix))]
        impl crate::abi::header::CType for $name {
            fn c_name() -> String {
                $c_name.to_owned()
            }
        }

        #[cfg(all(test, unix))]
        impl $name {
            pub(super) fn layout() -> crate::abi::header::Layout {
                use crate::abi::header::{Field, Layout};
                Layout {
                    name: $c_name,
                    size: size_of::<Self>(),
                    fields: vec![
                        $(Field::new::<$type>(stringify!($field), std::mem::offset_of!(Self, $field)),)*
                        $($(Field::new::<Option<unsafe extern "C" fn($($argument_type),*) $(-> $result)?>>(
                            stringify!($function), std::mem::offset_of!(Self, $function),
                        ),)*)?
                    ],
                }
            }
        }
    };
}

abi! {
    /// Text in UTF-8.
    Str = "dp_str" {
        // C's `char`, which has a sign on some processors: `c_char` is another type on each.
        start: *const i8,
        len: usize,
    }
}

abi! {
    /// The text of an error.
    Failure = "dp_failure" {
        struct_size: usize,
        message: Str,
        causes: *const Str,
        cause_count: usize,
        asked: u64,
        free: u64,
    }
}

abi! {
    /// Where a function reports its error.
    Report = "dp_report" {
        struct_size: usize,
        context: Object,
    }
    functions {
        fn fail(context: Object, failure: *const Failure);
    }
}

abi! {
    /// Bytes of memory on a device.
    Span = "dp_span" {
        memory: Object,
        offset: usize,
        len: usize,
    }
}

abi! {
    /// Bytes of the host that outlive a call.
    HostBytes = "dp_host_bytes" {
        start: Object,
        len: usize,
        owner: Object,
        reserved: usize,
    }
    functions {
        fn release(owner: Object);
    }
}

abi! {
    /// Whether a read is finished.
    Watch = "dp_watch" {
        watch: Object,
        reserved: usize,
    }
    functions {
        fn is_finished(watch: Object) -> u32;
        fn release(watch: Object);
    }
}

abi! {
    /// The end of a queued read.
    Done = "dp_done" {
        context: Object,
        reserved: usize,
    }
    functions {
        fn finish(context: Object, status: u32, bytes: *const HostBytes, failure: *const Failure);
        fn watch(context: Object, watch: *mut Watch);
    }
}

abi! {
    /// How an open device reports that it is lost.
    Loss = "dp_loss" {
        context: Object,
        reserved: usize,
    }
    functions {
        fn report(context: Object, failure: *const Failure);
    }
}

abi! {
    /// Facts about a device.
    Properties = "dp_properties" {
        struct_size: usize,
        name: Str,
        vendor: Str,
        driver: Str,
        pci: Str,
        uuid: [u8; 16],
        kind: u32,
        flags: u32,
        total_memory: u64,
        largest_allocation: u64,
        copy_alignment: usize,
        memory_reuse: u32,
        memory_reuse_alignment: u32,
        memory_reuse_from: usize,
        driver_version: Str,
        api: Str,
        api_version: Str,
        compute_capability: Str,
        native_dtypes: Str,
        attributes: Str,
    }
}

abi! {
    /// The memory of a device.
    MemoryInfo = "dp_memory_info" {
        struct_size: usize,
        total: u64,
        free: u64,
    }
}

abi! {
    /// Options of an allocation.
    AllocateOptions = "dp_allocate_options" {
        struct_size: usize,
        len: usize,
    }
}

abi! {
    /// Options of a stream.
    StreamOptions = "dp_stream_options" {
        struct_size: usize,
        priority: i32,
        reserved: u32,
    }
}

abi! {
    /// Options of an event.
    EventOptions = "dp_event_options" {
        struct_size: usize,
        timed: u32,
        reserved: u32,
    }
}

abi! {
    /// A fault to inject.
    Fault = "dp_fault" {
        struct_size: usize,
        kind: u32,
        reserved: u32,
        nth: u64,
        nanoseconds: u64,
    }
}

abi! {
    /// An option that a user sets by name.
    OptionSpec = "dp_option_spec" {
        struct_size: usize,
        name: Str,
        description: Str,
    }
}

abi! {
    /// The value of an option.
    OptionSetting = "dp_option" {
        struct_size: usize,
        name: Str,
        value: Str,
        variable: Str,
    }
}

abi! {
    /// One thing that a library offers.
    Entry = "dp_entry" {
        struct_size: usize,
        group: Str,
        name: Str,
        package: Str,
        version: Str,
        options: *const *const OptionSpec,
        option_count: usize,
        requires_minor: u32,
        reserved: u32,
    }
}

abi! {
    /// Functions of a backend.
    BackendApi = "dp_backend_api" {
        struct_size: usize,
    }
    functions {
        fn device_count(backend: Object, count: *mut usize, report: *const Report) -> Status;
        fn presence(backend: Object, ordinal: usize, report: *const Report) -> Status;
        fn properties(
            backend: Object,
            ordinal: usize,
            context: Object,
            receive: Receive,
            report: *const Report
        ) -> Status;
        fn open(
            backend: Object,
            ordinal: usize,
            loss: *const Loss,
            device: *mut Object,
            report: *const Report
        ) -> Status;
    }
}

abi! {
    /// Functions of an open device.
    DeviceApi = "dp_device_api" {
        struct_size: usize,
    }
    functions {
        fn memory_info(device: Object, info: *mut MemoryInfo, report: *const Report) -> Status;
        fn allocate(
            device: Object,
            options: *const AllocateOptions,
            memory: *mut Object,
            report: *const Report
        ) -> Status;
        fn free(device: Object, memory: Object);
        fn write(
            device: Object,
            destination: *const Span,
            source: *const c_void,
            report: *const Report
        ) -> Status;
        fn read(device: Object, source: *const Span, destination: Object, report: *const Report) -> Status;
        fn copy(
            device: Object,
            source: *const Span,
            destination: *const Span,
            report: *const Report
        ) -> Status;
        fn fill(
            device: Object,
            destination: *const Span,
            pattern: *const c_void,
            pattern_len: usize,
            report: *const Report
        ) -> Status;
        fn copy_from_peer(
            device: Object,
            source: *const Span,
            destination: *const Span,
            report: *const Report
        ) -> Status;
        fn create_stream(
            device: Object,
            options: *const StreamOptions,
            stream: *mut Object,
            report: *const Report
        ) -> Status;
        fn allocate_host(
            device: Object,
            len: usize,
            bytes: *mut HostBytes,
            report: *const Report
        ) -> Status;
        fn reset(device: Object, report: *const Report) -> Status;
        fn close(device: Object, report: *const Report) -> Status;
        fn has_faults(device: Object) -> u32;
        fn inject(device: Object, fault: *const Fault, report: *const Report) -> Status;
        fn clear_faults(device: Object);
        fn native_handle(device: Object, kind: Str, handle: *mut u64) -> u32;
        fn memory_native_handle(device: Object, memory: Object, kind: Str, handle: *mut u64) -> u32;
        fn extension(device: Object, name: Str) -> *const c_void;
    }
}

abi! {
    /// Functions of a queue.
    StreamApi = "dp_stream_api" {
        struct_size: usize,
    }
    functions {
        fn destroy(stream: Object);
        fn write(
            stream: Object,
            destination: *const Span,
            source: *const HostBytes,
            report: *const Report
        ) -> Status;
        fn read(
            stream: Object,
            source: *const Span,
            destination: *const HostBytes,
            done: *const Done,
            report: *const Report
        ) -> Status;
        fn copy(
            stream: Object,
            source: *const Span,
            destination: *const Span,
            report: *const Report
        ) -> Status;
        fn fill(
            stream: Object,
            destination: *const Span,
            pattern: *const c_void,
            pattern_len: usize,
            report: *const Report
        ) -> Status;
        fn copy_from_peer(
            stream: Object,
            source: *const Span,
            destination: *const Span,
            report: *const Report
        ) -> Status;
        fn record(
            stream: Object,
            options: *const EventOptions,
            event: *mut Object,
            report: *const Report
        ) -> Status;
        fn wait(stream: Object, event: Object, report: *const Report) -> Status;
        fn launched(stream: Object);
        fn flush(stream: Object, report: *const Report) -> Status;
        fn query(stream: Object, done: *mut u32, report: *const Report) -> Status;
        fn synchronize(stream: Object, report: *const Report) -> Status;
        fn native_handle(stream: Object, kind: Str, handle: *mut u64) -> u32;
    }
}

abi! {
    /// Functions of an event.
    EventApi = "dp_event_api" {
        struct_size: usize,
    }
    functions {
        fn destroy(event: Object);
        fn query(event: Object, done: *mut u32, report: *const Report) -> Status;
        fn is_over(event: Object, over: *mut u32, report: *const Report) -> Status;
        fn synchronize(event: Object, report: *const Report) -> Status;
        fn elapsed_since(
            event: Object,
            start: Object,
            nanoseconds: *mut u64,
            report: *const Report
        ) -> Status;
    }
}

abi! {
    /// A backend that was loaded.
    Backend = "dp_backend" {
        struct_size: usize,
        backend: Object,
        backend_api: *const BackendApi,
        device_api: *const DeviceApi,
        stream_api: *const StreamApi,
        event_api: *const EventApi,
    }
}

abi! {
    /// What a library offers.
    Plugin = "dp_plugin" {
        struct_size: usize,
        major: u32,
        minor: u32,
        entries: *const *const Entry,
        entry_count: usize,
    }
    functions {
        fn load(
            name: Str,
            options: *const *const OptionSetting,
            option_count: usize,
            backend: *mut Backend,
            report: *const Report
        ) -> Status;
        fn load_entry(
            group: Str,
            name: Str,
            options: *const *const OptionSetting,
            option_count: usize,
            table: Object,
            report: *const Report
        ) -> Status;
    }
}

abi! {
    /// The program.
    Host = "dp_host" {
        struct_size: usize,
        major: u32,
        minor: u32,
        name: Str,
        version: Str,
        file: Str,
        context: Object,
        log_level: u32,
        reserved: u32,
    }
    functions {
        fn log(context: Object, level: u32, target: Str, message: Str);
        fn panicked(context: Object, message: Str, place: Str);
    }
}

__tables! {
    Failure Report Properties MemoryInfo AllocateOptions StreamOptions EventOptions Fault OptionSpec
    OptionSetting Entry BackendApi DeviceApi StreamApi EventApi Backend Plugin Host
}

/// The layouts of all types.
#[cfg(all(test, unix))]
pub(super) fn layouts() -> Vec<crate::abi::header::Layout> {
    vec![
        Str::layout(),
        Failure::layout(),
        Report::layout(),
        Span::layout(),
        HostBytes::layout(),
        Watch::layout(),
        Done::layout(),
        Loss::layout(),
        Properties::layout(),
        MemoryInfo::layout(),
        AllocateOptions::layout(),
        StreamOptions::layout(),
        EventOptions::layout(),
        Fault::layout(),
        OptionSpec::layout(),
        OptionSetting::layout(),
        Entry::layout(),
        BackendApi::layout(),
        DeviceApi::layout(),
        StreamApi::layout(),
        EventApi::layout(),
        Backend::layout(),
        Plugin::layout(),
        Host::layout(),
    ]
}
