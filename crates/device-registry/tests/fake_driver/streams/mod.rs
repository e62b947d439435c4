//! Streams, events and errors in queued work, on a driver without queues and on its own with queues.

mod checks;
mod failed_events;
mod failures;
mod flushes;
mod host_calls;
mod loss;
mod native;
mod order;
mod ownership;
mod plugins;
mod queues;
mod reads;
