//! What the sources and the pages of this repository say that can be checked.

mod activity;
mod layers;
mod left_out;
mod locks;
mod pages;
mod pass_throughs;
mod rust_version;
mod unused_dependencies;
mod variables;
