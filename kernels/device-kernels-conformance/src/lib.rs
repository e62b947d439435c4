#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod case;
mod check;
mod checks;
mod draw;
#[doc(hidden)]
pub mod element;
#[doc(hidden)]
pub mod expect;
mod failure;
#[doc(hidden)]
pub mod reference;
mod subject;
mod suite;
mod tolerance;
mod values;

pub use crate::check::{Check, DEFAULT_TIME_LIMIT};
#[doc(hidden)]
pub use crate::checks::calls;
pub use crate::checks::checks;
pub use crate::subject::Subject;
pub use crate::suite::{Suite, run};
pub use device_conformance::harness::Outcome;
