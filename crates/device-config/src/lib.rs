#![doc = include_str!("../README.md")]
// Where docs.rs builds the docs, they show which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod apply;
mod config;
mod document;
mod error;
mod report;
mod source;

pub use crate::config::Config;
pub use crate::error::Error;
pub use crate::report::{ConfigReport, ConfigValue, Effect};
