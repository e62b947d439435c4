//! What devices did: records for profilers, traces and memory tools.
//!
//! This crate calls every function of every driver. So it sees each allocation, copy and launch, whatever the
//! backend, in Rust or in C, and whatever framework is above it. An [`Observer`] gets a [`Record`] of each:
//!
//! | what | records |
//! |---|---|
//! | backends and devices | [`Loaded`](Activity::Loaded), [`Opened`](Activity::Opened), [`Closed`](Activity::Closed), [`Lost`](Activity::Lost), [`Reset`](Activity::Reset) |
//! | memory | [`Allocated`](Activity::Allocated), [`Freed`](Activity::Freed), [`AllocationFailed`](Activity::AllocationFailed), each with what is in use |
//! | queued work | [`Enqueued`](Activity::Enqueued), [`Begun`](Activity::Begun), [`Ended`](Activity::Ended) |
//! | blocking calls and waits of the host | [`Called`](Activity::Called), [`Returned`](Activity::Returned) |
//! | the program's own parts | [`Entered`](Activity::Entered), [`Left`](Activity::Left), by [`span`]; [`StreamCreated`](Activity::StreamCreated); [`StreamLabeled`](Activity::StreamLabeled), by [`Stream::set_label`](crate::Stream::set_label) |
//!
//! A crate with an observer registers it as a backend does, and is one line in a program's `Cargo.toml`:
//!
//! ```rust,standalone_crate
//! use device_registry::activity::{Batch, OBSERVERS, Observer, ObserverDescriptor};
//! use device_registry::backend::LoadFailure;
//!
//! device_registry::backend::entry_points! {
//!     #[distributed_slice(OBSERVERS)]
//!     pub static PRINT: ObserverDescriptor = ObserverDescriptor::new("print", load);
//! }
//!
//! fn load() -> Result<Box<dyn Observer>, LoadFailure> {
//!     match std::env::var_os("PRINT_ACTIVITY") {
//!         Some(_) => Ok(Box::new(Print)),
//!         None => Err(LoadFailure::unavailable("PRINT_ACTIVITY is not set")),
//!     }
//! }
//!
//! struct Print;
//!
//! impl Observer for Print {
//!     fn observe(&self, batch: &Batch) {
//!         for record in &batch.records {
//!             eprintln!("thread {}: {:?}", batch.thread.number, record.activity);
//!         }
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! A program starts one in code with [`observe`]. Without an observer, each call only reads one more atomic
//! value.
//!
//! # Threads and losses
//!
//! A thread writes its records into its own memory, without waiting, and a collector takes them every 20
//! milliseconds. Each observer runs on its own thread: one that is slow or blocks loses records, with [a
//! count](Batch::lost), and delays neither work nor other observers. One that panics ends. At its end, the
//! process hands over the last records, if it runs the functions of C's `atexit`, and waits at most five
//! seconds for observers; a process that is killed loses the records of the last 20 milliseconds. A child of
//! `fork` has no observers.

pub use crate::runtime::activity::{
    Activity, Batch, Clock, Id, MemoryInUse, Name, OBSERVERS, Observation, Observer, ObserverDescriptor,
    Outcome, Place, Record, SpanGuard, Thread, WaitFor, Work, flush, observe, observers, span,
};
