#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! - *A device is a value.* [`Device`] is a name and perhaps an index, small and `Copy`. Parsing one runs no
//!   backend's code, unless it is to be found by its UUID or address; whether it exists is found out when it is used.
//!   Its documentation has the table.
//! - *Backends are plugins, and there is no list of them.* A backend crate depends on this one and registers a
//!   [`BackendDescriptor`] in [`BACKENDS`]; no crate below it names it, and there is no enum to extend. Finding,
//!   loading and switching them off is the work of [`entry-points`], from which this crate re-exports what its
//!   users need. An extra backend in the program has no effect until its name is asked for.
//! - *Loading, counting and opening are three steps.* A backend is loaded when its name is first used, it counts
//!   its devices without claiming one, and each device is opened once, at its first use. What failed to load is
//!   remembered with its cause ([`Group::retry`] tries again); what failed to open is tried again at the next use.
//! - *All checks are made once, above the drivers.* [`Buffer`] checks ranges, overflow and overlap; a driver gets a
//!   [`Span`], which only this crate can make. So drivers are short, and all of them refuse the same things with
//!   the same words.
//! - *A backend is not trusted to behave.* Every call into one is isolated: a panic becomes an error of that call.
//!   No lock of this crate is held meanwhile, but for the turn of a stream that submits to a driver's queue. Backends
//!   that need each other, to load or to open a device, get an error where they would wait for ever.
//! - *Errors are values, and complete.* A [`DeviceError`] says what was asked, what there is, and what to do; a
//!   backend reports a [`BackendError`], to which the device and the call are added.
//! - *Work beside the host goes into streams*, which own what they touch. A driver need not have any: the core has a
//!   thread for each [`Stream`] then. What fails later is told once, and never dropped.
//! - *A device that is lost, and a process that was forked, get errors*, and nothing hangs.
//!
//! | what | where |
//! |---|---|
//! | a device by its string | [`device()`], [`Device`], [`SyntaxError`], [`SelectorError`] |
//! | which devices there are | [`is_available`], [`first_available`], [`devices()`] |
//! | choices of a thread | [`DeviceGuard`], [`set_current_device`], [`default_device`], [`DefaultDeviceGuard`] |
//! | memory | [`Device::allocate`], [`Buffer`], [`HostBuffer`], [`MemoryStatistics`] |
//! | work beside the host | [`Device::create_stream`], [`Stream`], [`Event`], [`Pending`], [`StreamGuard`] |
//! | when things go wrong | [`DeviceError`], [`Device::reset`], [`Device::inject`] |
//! | the end | [`Device::close`], [`close_all`] |
//! | writing a backend | [`Backend`], [`OpenedDevice`], [`DeviceDriver`], [`Memory`], [`Span`], [`entry_points!`], [`BACKENDS`] |
//! | with queues of its own | [`StreamDriver`], [`EventDriver`], [`Completion`] |
//! | memory of the host as a device's | [`HostMemory`], [`open_windows`] |
//! | what is linked, and in which state | [`backends()`], [`Group`], [`Report`], [`State`] |
//!
//! [`entry-points`]: mod@entry_points

// Where docs.rs builds the docs, they show which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod available;
pub mod backend;
mod buffer;
mod cpu;
mod current;
mod current_stream;
mod device;
mod error;
mod event;
mod lifecycle;
#[cfg(all(test, shuttle))]
mod model;
mod parse;
mod pending;
mod runtime;
mod select;
mod stream;
mod sync;
#[cfg(test)]
mod testing;

/// Written here as `device_registry::autoload!();`.
pub use entry_points::autoload;
/// Written here as `device_registry::entry_points! { … }`, with [`BACKENDS`] as the group.
#[doc(inline)]
pub use entry_points::entry_points;
pub use entry_points::{
    ConfigureError, Entry, EntryName, EntryPoint, Group, LoadError, LoadFailure, RegisterError, Report, Row,
    State, Switches, UnknownName,
};

pub use crate::available::{devices, first_available, is_available};
pub use crate::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, BackendErrorKind, Completion,
    DeviceDriver, DeviceKind, DeviceProperties, DeviceUuid, EventDriver, EventOptions, Fault, FaultInjector,
    HostBuffer, HostMemory, IdentityError, Launch, Memory, MemoryInfo, OpenedDevice, Pattern, PciAddress,
    Priority, Span, StreamDriver, StreamOptions, Window, WindowMut, backends, open_windows,
};
pub use crate::buffer::Buffer;
pub use crate::current::{
    DefaultDeviceGuard, DeviceGuard, default_device, set_current_device, set_default_device,
};
pub use crate::current_stream::StreamGuard;
pub use crate::device::Device;
pub use crate::device::grammar::{SyntaxError, SyntaxErrorKind};
pub use crate::device::selector::SelectorError;
pub use crate::error::{DeviceError, NoneAvailable};
pub use crate::event::Event;
pub use crate::lifecycle::close_all;
pub use crate::parse::device;
pub use crate::pending::Pending;
pub use crate::runtime::statistics::MemoryStatistics;
pub use crate::stream::Stream;
