//! The procedural macros of `entry-points`. Use that crate, which re-exports them.
//!
//! They are not public API. Each macro takes the path of `entry-points` as its first token, which a
//! `macro_rules` wrapper passes as `$crate`. So a crate can re-export the wrapper, and its users need no
//! dependency on `entry-points`.
//!
//! This crate has no dependencies, because every build has to wait for it.
//!
//! | Module | Content |
//! |---|---|
//! | `rustc_args` | the `--extern` list that Cargo passes to rustc |
//! | `autoload` | `autoload!()`: names each crate of that list and refers to its entry points |
//! | `block` | `entry_points! { … }`: the entry points of a plugin crate |
//! | `group` | `group! { … }`: a distributed slice and its group |
//! | `source` | a small parser, a quoter, and errors with a span |

mod autoload;
mod block;
mod group;
mod rustc_args;
mod source;

use proc_macro::TokenStream;

/// Not public API; `entry_points::autoload!` wraps it.
#[doc(hidden)]
#[proc_macro]
pub fn autoload(input: TokenStream) -> TokenStream {
    source::expand(input, autoload::expand)
}

/// Not public API; `entry_points::entry_points!` wraps it.
#[doc(hidden)]
#[proc_macro]
pub fn entry_points(input: TokenStream) -> TokenStream {
    source::expand(input, block::expand)
}

/// Not public API; `entry_points::group!` wraps it.
#[doc(hidden)]
#[proc_macro]
pub fn group(input: TokenStream) -> TokenStream {
    source::expand(input, group::expand)
}
