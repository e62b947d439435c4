//! What a crate needs to define its own group, whose entries are in files.
//!
//! A group has its own header, which declares its *table*: a struct that begins with `struct_size`, with
//! the functions of an entry. `device_plugin.h` has the rules that hold for all of them. The crate of the
//! group has the same struct in Rust, as a [`Table`], and two sides:
//!
//! - *The program's* is a [`FileGroup`](crate::group::FileGroup). It gets a
//!   [`FileEntry`](crate::group::FileEntry) for each manifest, whose `load` fills the table. Each function of
//!   the table is called by [`call`], with the library's own objects, which
//!   [`FileLibrary::launched`](crate::group::FileLibrary::launched) has.
//! - *The library's* is an [`ExportedEntry`], which fills the table by [`put`]. Each function of the table is
//!   a [`guard`] around Rust code, and [`launch`] around a kernel. A library in C needs only the header.
//!
//! ```
//! use device_plugin::interface::{
//!     ExportedEntry, Object, Report, Setting, Span, Status, Table, guard, launch, put,
//! };
//! use device_registry::backend::{BackendError, LoadFailure};
//!
//! /// `acme_filter` of `acme_filters.h`.
//! #[repr(C)]
//! #[derive(Clone, Copy)]
//! pub struct Filter {
//!     pub struct_size: usize,
//!     pub run: Option<
//!         unsafe extern "C" fn(device: Object, stream: Object, image: *const Span, report: *const Report) -> Status,
//!     >,
//! }
//!
//! // SAFETY: it is `repr(C)` and begins with `struct_size`, and any bits are a value of the other field.
//! unsafe impl Table for Filter {}
//!
//! /// The entry `blur` of the group `acme.filters`.
//! pub struct Blur;
//!
//! impl ExportedEntry for Blur {
//!     fn group(&self) -> &'static str {
//!         "acme.filters"
//!     }
//!
//!     fn name(&self) -> &'static str {
//!         "blur"
//!     }
//!
//!     unsafe fn load(&self, _options: &[Setting<'_>], table: Object) -> Result<(), LoadFailure> {
//!         // SAFETY: the caller promises that it is the place for a table of this group.
//!         unsafe { put(table.cast(), Filter { run: Some(run), ..Filter::ZEROED }) }
//!             .map_err(|error| LoadFailure::new(format_args!("the place for the filter {error}")))
//!     }
//! }
//!
//! unsafe extern "C" fn run(
//!     device: Object,
//!     stream: Object,
//!     image: *const Span,
//!     report: *const Report,
//! ) -> Status {
//!     // SAFETY: the program passes a device and a stream of this library, a span of its memory, and a valid
//!     // report.
//!     unsafe {
//!         guard(report, || {
//!             launch(device, stream, &[*image], |launch| {
//!                 // Here is what a kernel for a linked backend would have.
//!                 let _image = &launch.spans()[0];
//!                 Err(BackendError::unsupported("to blur"))
//!             })
//!         })
//!     }
//! }
//! # mod device_acme {
//! #     use device_registry::backend::{BackendDescriptor, LoadFailure};
//! #     pub static ACME: BackendDescriptor = BackendDescriptor::new("acme", || Err(LoadFailure::new("")));
//! # }
//!
//! device_plugin::export!(device_acme::ACME; Blur);
//! # fn main() {}
//! ```
//!
//! The tests of this crate's repository have both sides of such a group: `tests/plugins/tests/group.rs`.

pub use device_registry::plugin::Setting;

pub use crate::abi::{Object, Report, Span, Status, Str, Table, TableError, TooLong, put, take};
pub use crate::export::ExportedEntry;
pub use crate::export::launch::launch;
pub use crate::export::report::guard;
#[cfg(feature = "load")]
pub use crate::load::call;
