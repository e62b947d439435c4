//! Devices that do not answer: losses that a driver reports, and calls with a time limit.

mod loss_reports;
mod time_limits;
