//! The private machinery: open devices, their queues, and calls into drivers that are not trusted.

pub(crate) mod deferred;
pub(crate) mod device_use;
// The system tells a process that it is a fork.
#[allow(unsafe_code)]
pub(crate) mod fork;
pub(crate) mod isolation;
pub(crate) mod listing;
pub(crate) mod open_device;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod point;
pub(crate) mod queue;
pub(crate) mod statistics;
pub(crate) mod table;
pub(crate) mod transfer;
