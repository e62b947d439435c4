//! A plugin that misbehaves harms only itself, and the message says what is wrong.
//!
//! Most of them are backends of one library in C, `mistakes.c`, each of which makes the mistake that is its
//! name. After each mistake, `cpu` and a sound plugin have to work.

#![cfg(target_os = "linux")]

mod builds;
mod calls;
mod copies;
mod environment;
mod fork;
mod host;
// Their messages are those of the C library.
#[cfg(target_env = "gnu")]
mod libraries;
mod panics;
mod reads;
mod support;
mod tables;
mod validation;
