//! The procedural macros of `entry-points`, which re-exports them; use that crate.
//!
//! Not public API: every macro here takes the path of `entry-points` as its first token, put there by a
//! `macro_rules` wrapper as `$crate`, so that a crate which re-exports the wrapper needs nothing else.
//! There are no dependencies, on purpose: this crate stands in the critical path of every build.
//!
//! | file | concern |
//! |---|---|
//! | `rustc_args` | the `--extern` list that Cargo hands to rustc |
//! | `autoload` | `autoload!()`: that list as `extern crate` lines and direct references |
//! | `block` | `entry_points! { … }`: what a plugin crate offers |
//! | `group` | `group! { … }`: what a framework collects |
//! | `source` | source text in, tokens out, and errors with a place |

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
