//! Five training programs of burn and a few single operations, as cases that run on any device.
//!
//! A case has the same data and the same first weights on every device, and no dropout, so that its losses on
//! two devices can be compared. [`rounds`] runs cases on several devices in turns.

pub mod args;
pub mod busy;
pub mod cases;
pub mod rounds;
pub mod table;

mod numbers;
mod weights;
