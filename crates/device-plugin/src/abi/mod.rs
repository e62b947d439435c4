//! The C interface, as `include/device_plugin.h` declares it. All rules are there; a test compares the two.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the header has the documentation; `export!` names some of it"
)]
#![cfg_attr(not(feature = "load"), allow(dead_code, unused_imports, reason = "the loader uses the rest"))]

#[cfg(all(test, unix))]
mod header;
#[cfg(test)]
mod rules;
#[macro_use]
mod table;
mod text;
mod types;

pub use crate::abi::table::{Table, TableError, put, take};
pub use crate::abi::text::TooLong;
pub use crate::abi::types::*;

/// The major version of the interface, which is part of the symbol's name.
pub const MAJOR: u32 = 0;

/// The minor version of the interface: what has been added.
pub const MINOR: u32 = 3;

/// The function that a library exports.
pub const SYMBOL: &str = "device_plugin_v0";

/// The group of the entries that are backends.
pub const BACKENDS: &str = "device.backends";

/// The status of a call, or the kind of its error.
pub type Status = u32;

pub const OK: Status = 0;
pub const OUT_OF_MEMORY: Status = 1;
pub const UNSUPPORTED: Status = 2;
pub const UNAVAILABLE: Status = 3;
pub const LOST: Status = 4;
pub const INVALID: Status = 5;
pub const OTHER: Status = 6;
pub const DROPPED: Status = 7;
pub const ABSENT: Status = 8;

/// The name of a status in the header.
pub(crate) fn status_name(status: Status) -> Option<&'static str> {
    const NAMES: [&str; 9] = [
        "DP_OK",
        "DP_OUT_OF_MEMORY",
        "DP_UNSUPPORTED",
        "DP_UNAVAILABLE",
        "DP_LOST",
        "DP_INVALID",
        "DP_OTHER",
        "DP_DROPPED",
        "DP_ABSENT",
    ];
    NAMES.get(usize::try_from(status).ok()?).copied()
}

/// An unknown number of bytes.
pub const UNKNOWN: u64 = u64::MAX;

pub const KIND_OTHER: u32 = 0;
pub const KIND_CPU: u32 = 1;
pub const KIND_GPU: u32 = 2;
pub const KIND_INTEGRATED_GPU: u32 = 3;
pub const KIND_ACCELERATOR: u32 = 4;
pub const KIND_SIMULATED: u32 = 5;

pub const SERIAL_STREAMS: u32 = 1;
pub const NO_TIMED_EVENTS: u32 = 2;
pub const PINNED_MEMORY: u32 = 4;

pub const REUSE_NEVER: u32 = 0;
pub const REUSE_EXACT: u32 = 1;
pub const REUSE_ROUNDED: u32 = 2;
pub const REUSE_DIVIDED: u32 = 3;
pub const REUSE_LARGE: u32 = 4;

pub const FAIL_ALLOCATION: u32 = 1;
pub const FAIL_COPY: u32 = 2;
pub const LOSE_DEVICE: u32 = 3;
pub const UNPLUG: u32 = 4;
pub const SLOW: u32 = 5;
pub const STALL: u32 = 6;
