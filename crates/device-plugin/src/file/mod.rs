//! Files: a manifest as it is read, and a library as it is checked, up to the moment when it is opened.

pub(crate) mod checked;
pub(crate) mod digest;
mod fields;
pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod rights;
pub(crate) mod symbols;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod trust;
