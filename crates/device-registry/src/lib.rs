#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! - *A device is a value.* [`Device`] is a name and perhaps an index, small and `Copy`. Parsing one runs no
//!   backend code, unless the string selects it by UUID or PCI address. The first use checks whether the
//!   device exists; the documentation of [`Device`] has a table of when each check happens.
//! - *Backends are plugins, and no list names them.* A backend crate depends on this one and registers a
//!   [`BackendDescriptor`](backend::BackendDescriptor) in [`BACKENDS`](backend::BACKENDS); no crate below it
//!   names it, and there is no enum to extend. [`entry-points`] finds, loads and disables backends. An extra
//!   backend in the program has no effect until a device string names it.
//! - *Loading, counting and opening are three steps.* The first use of a name loads the backend. Counting its
//!   devices claims none of them. The first use of a device opens it. A backend that fails to load keeps its
//!   error ([`Group::retry`](registry::Group::retry) tries again). If the driver is missing, a use looks
//!   again after [`UNAVAILABLE_FOR`](backend::LoadFailure::UNAVAILABLE_FOR). A device that fails to open
//!   is tried again at its next use.
//! - *Every check is made once, above the drivers.* [`Buffer`] checks ranges, overflow and overlap; a driver
//!   gets a [`Span`](backend::Span), which only this crate can construct. So drivers are short, and all of
//!   them refuse the same arguments with the same messages.
//! - *A backend is not trusted.* Every call into one is isolated: a panic becomes an error of that call. This
//!   crate holds no lock during the call, except the lock that serializes submissions to a driver's queue.
//!   Backends that need each other, to load or to open a device, get an error instead of a deadlock.
//! - *Errors are values, and complete.* A [`DeviceError`] says what is wrong, what exists, and what to do. A
//!   backend returns a [`BackendError`](backend::BackendError), to which this crate adds the device and the
//!   call.
//! - *Asynchronous work goes into streams.* Queued work owns the buffers that it uses. Where a driver has no
//!   queues, this crate runs a thread for each [`Stream`]. A failure of queued work is reported exactly once.
//! - *A lost device and a forked process get errors*; nothing hangs.
//!
//! | what | where |
//! |---|---|
//! | a device by its string | [`device()`], [`Device`] |
//! | one of several devices | [`first_available`], [`Selection`], [`choose`], [`default_selection`] |
//! | which devices there are | [`is_available`], [`devices()`], [`device_count`], [`device_list`], [`Device::presence`] |
//! | the current and the default device of a thread | [`DeviceGuard`], [`current_device`], [`set_current_device`], [`default_device`], [`DefaultDeviceGuard`] |
//! | memory | [`Device::allocate`], [`Buffer`], [`HostBuffer`], [`MemoryStatistics`] |
//! | asynchronous work | [`Device::create_stream`], [`Stream`], [`Event`], [`Pending`], [`StreamGuard`] |
//! | when a call fails | [`DeviceError`], the module [`error`], [`Device::is_lost`], [`Device::reset`] |
//! | fault injection, for tests | [`Device::faults`] |
//! | what devices did | the module [`activity`] |
//! | closing devices | [`Device::close`], [`close_all`] |
//! | writing a backend | the module [`backend`] |
//! | which backends are linked, and their states | [`backends()`], the module [`registry`] |
//! | all groups of the process | [`registry::groups`] |
//! | options of a backend | [`Group::set_option`](registry::Group::set_option), `DEVICE_BACKEND_OPTIONS` |
//!
//! [`entry-points`]: mod@entry_points

// Where docs.rs builds the docs, they show which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

pub mod activity;
mod available;
pub mod backend;
mod buffer;
mod cpu;
mod current;
mod current_stream;
mod device;
mod device_list;
pub mod error;
mod event;
#[allow(unsafe_code)]
mod exit;
mod faults;
mod lifecycle;
#[cfg(all(test, shuttle))]
mod model;
mod parse;
mod pending;
#[doc(hidden)]
// A library gives objects to a program as pointers.
#[allow(unsafe_code)]
pub mod plugin;
mod runtime;
mod select;
mod selection;
#[cfg(feature = "serde")]
mod serialize;
mod stream;
mod sync;
#[cfg(test)]
mod testing;

pub use entry_points::ErrorChain;
/// A program that depends on this crate writes it as `device_registry::autoload!();`.
pub use entry_points::autoload;

pub use crate::available::{device_count, devices, is_available};
pub use crate::backend::{
    Api, AttributeValue, Attributes, BackendErrorKind, DeviceKind, DeviceProperties, DeviceUuid,
    EventOptions, Fault, HostBuffer, LaunchOptions, MemoryInfo, PciAddress, Presence, Priority,
    StreamOptions, Version, backends,
};
pub use crate::buffer::Buffer;
pub use crate::current::{
    DefaultDeviceGuard, DeviceGuard, current_device, default_device, set_current_device, set_default_device,
};
pub use crate::current_stream::StreamGuard;
pub use crate::device::Device;
pub use crate::device_list::{DeviceList, ListedBackend, ListedDevice, device_list};
pub use crate::error::DeviceError;
pub use crate::event::Event;
pub use crate::faults::Faults;
pub use crate::lifecycle::close_all;
pub use crate::parse::device;
pub use crate::pending::Pending;
pub use crate::runtime::call_watch::{CallStep, CallWatch, DriverCall};
pub use crate::runtime::statistics::MemoryStatistics;
pub use crate::runtime::validation::take_validation_reports;
pub use crate::selection::auto::{default_selection, set_default_selection};
pub use crate::selection::{Candidate, Chosen, Selection, choose, first_available};
pub use crate::stream::Stream;

/// Groups of entry points and their reports: what is linked into the program, in which state, and how it was
/// registered.
///
/// [`backends()`] is the group of device backends. A framework declares its own groups with
/// [`group!`](entry_points::group).
pub mod registry {
    pub use entry_points::{
        ConfigureError, Defaults, DefaultsError, Entry, EntryName, EntryPoint, Group, Groups, Installed,
        LoadError, OptionError, OptionOrigin, OptionSpec, OptionValue, Options, Panicked, RegisterError,
        Report, Row, State, Switches, UnknownName, UnknownOption, groups, isolate,
    };
}
