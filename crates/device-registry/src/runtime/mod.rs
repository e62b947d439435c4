//! The private machinery: open devices, their queues, and isolated calls into drivers.

pub(crate) mod activity;
pub(crate) mod at_once;
pub(crate) mod call_watch;
pub(crate) mod chosen_stream;
pub(crate) mod deadline;
pub(crate) mod deferred;
pub(crate) mod device_use;
// A callback of the system counts forks.
#[allow(unsafe_code)]
pub(crate) mod fork;
pub(crate) mod isolation;
pub(crate) mod listing;
pub(crate) mod memory_cache;
pub(crate) mod open_device;
pub(crate) mod operation;
pub(crate) mod origin;
pub(crate) mod outcome;
pub(crate) mod point;
pub(crate) mod probe;
pub(crate) mod queue;
pub(crate) mod recorded;
pub(crate) mod statistics;
pub(crate) mod switch;
pub(crate) mod table;
pub(crate) mod timed;
pub(crate) mod transfer;
pub(crate) mod validation;
pub(crate) mod waits;
