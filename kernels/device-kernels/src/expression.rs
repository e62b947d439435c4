//! How expressions are made: by a builder, from data or a text, and as parts of others.

pub(crate) mod builder;
mod describe;
pub(crate) mod extract;
