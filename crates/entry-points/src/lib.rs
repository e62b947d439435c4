#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod assignments;
#[doc(hidden)]
pub mod by_name;
mod claim;
mod collect;
mod declaration;
mod defaults;
mod entry;
mod entry_point;
mod error;
mod error_chain;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod group_name;
mod groups;
mod index;
mod installed;
mod isolation;
#[doc(hidden)]
pub mod message;
mod name;
mod nearest;
mod once_load;
mod options;
mod pattern;
mod report;
#[cfg(feature = "serde")]
mod serialize;
mod slot;
mod state;
mod switches;
mod sync;
mod used_groups;
mod verdict;
mod versions;

pub use crate::defaults::Defaults;
pub use crate::entry::Entry;
pub use crate::entry_point::EntryPoint;
#[doc(hidden)]
pub use crate::entry_point::load_with;
pub use crate::error::{
    ConfigureError, DefaultsError, EntryName, LoadError, OptionError, RegisterError, UnknownName,
    UnknownOption,
};
pub use crate::error_chain::ErrorChain;
pub use crate::failure::LoadFailure;
pub use crate::group::Group;
pub use crate::groups::{Groups, groups};
pub use crate::installed::Installed;
pub use crate::isolation::{Panicked, isolate};
pub use crate::once_load::{Interrupted, OnceLoad};
pub use crate::options::{OptionOrigin, OptionSpec, OptionValue, Options};
pub use crate::report::{Report, Row};
pub use crate::state::{Cause, State};
pub use crate::switches::Switches;

/// Links every direct dependency of this crate and collects their entry points.
///
/// Write it once, in `main.rs`, or in `lib.rs` of a library that brings its own plugins.
///
/// ```
/// entry_points::autoload!();
/// # fn main() {}
/// ```
///
/// # Why a line is needed
///
/// rustc links a crate from Cargo.toml only if some path names it. Without such a path, every registration in
/// the crate is lost without a message.
///
/// `autoload!()` reads the `--extern` list that Cargo passes to rustc for this target, and names each crate
/// in it. So features, target tables, renames and dev-dependencies are taken into account.
///
/// The macro also refers to the hidden constant that an [`entry_points!`] block leaves at the root of its
/// crate, by an ordinary typed path. So it does not depend on the linker keeping another crate's sections. A
/// plugin for another version of its framework is a compile error if entry-points is another version
/// too, and otherwise a note in the report.
///
/// **Every direct dependency is linked**, with or without entry points. `except` leaves one out, such as a
/// crate with a `#[panic_handler]` or an allocator. It accepts a name that is not a dependency of this
/// target, since another target may have it.
///
/// # In a library
///
/// Only *direct* dependencies are linked. A library that brings its own plugins, or re-exports plugin crates,
/// writes the line as well, once and at its root: a program's line leads to the lines of the libraries that
/// it links. Elsewhere in a library, or twice in one module, the line is a compile error.
///
/// A crate that re-exports two plugin crates by glob has two hidden constants under one name, and rustc warns
/// about it. Re-export their items by name, and write the line.
///
/// # By hand
///
/// Nothing guarantees that a procedural macro may read rustc's arguments. Where it cannot, the macro is a
/// compile error that says so. Then name the crates by hand, with the same result:
///
/// ```text
/// entry_points::autoload!(only codec_vorbis, codec_opus);
/// ```
///
/// If the linker keeps the sections of other crates, as it does in any binary that rustc links for Linux,
/// macOS or windows-msvc, this is enough:
///
/// ```text
/// extern crate codec_vorbis as _;
/// ```
///
/// # Where to write it
///
/// In a program, anywhere that items are allowed. One line serves every group, whichever framework re-exports
/// the macro. Each program, test and example needs its own, or names a library of the package that has one
/// (`use mylib as _;`).
///
/// In a `staticlib` that a C linker links, write it in the same module as a function that C calls: a C linker
/// takes an object file from the archive only if it needs one of its symbols. In an IDE the macro expands to
/// nothing.
#[macro_export]
macro_rules! autoload {
    ($($choice:tt)*) => {
        $crate::__private::autoload! { [$crate] $($choice)* }
    };
}

/// Declares the entry points of a plugin crate, as `[project.entry-points]` does for a Python package.
///
/// Write it once, at the root of the crate. Each static names the distributed slice of its group, as for
/// [linkme](https://docs.rs/linkme), but the crate needs no dependency on linkme:
///
/// ```rust,standalone_crate
/// # mod framework {
/// #     pub trait Greeter: Send + Sync { fn greet(&self) -> String; }
/// #     entry_points::group! {
/// #         /// Greeters.
/// #         pub static GREETERS: [entry_points::EntryPoint<dyn Greeter>];
/// #         /// Their group.
/// #         pub fn greeters() -> Group<dyn Greeter> { entry_points::Group::new("framework.greeters") }
/// #     }
/// # }
/// use entry_points::{EntryPoint, LoadFailure};
/// use framework::{GREETERS, Greeter};
///
/// entry_points::entry_points! {
///     #[distributed_slice(GREETERS)]
///     pub static POLITE: EntryPoint<dyn Greeter> = EntryPoint::new("polite", load);
/// }
///
/// fn load() -> Result<Box<dyn Greeter>, LoadFailure> {
///     Ok(Box::new(Polite))
/// }
/// # struct Polite;
/// # impl Greeter for Polite { fn greet(&self) -> String { "good evening".to_owned() } }
/// # fn main() {
/// let greeter = framework::greeters().load("polite").unwrap();
/// assert_eq!(greeter.greet(), "good evening");
/// # }
/// ```
///
/// The block adds the name and version of the package and the path of `load`. It registers the static through
/// the collector of the target, and leaves one hidden constant at the root of the crate for [`autoload!`].
/// Each static may have documentation, `#[cfg]` and other attributes.
#[macro_export]
macro_rules! entry_points {
    ($($block:tt)*) => {
        $crate::__private::entry_points! { [$crate] $($block)* }
    };
}

/// Declares a group: a distributed slice in which plugin crates register, and the function that returns the
/// [`Group`].
///
/// ```rust,standalone_crate
/// use entry_points::{EntryPoint, Group};
///
/// pub trait Decoder: Send + Sync {}
///
/// entry_points::group! {
///     /// The decoders that are linked into this program.
///     pub static DECODERS: [EntryPoint<dyn Decoder>];
///
///     /// Finds decoders by name.
///     pub fn decoders() -> Group<dyn Decoder> {
///         Group::new("codec.decoders").noun("decoder").switches("CODEC_DECODER")
///     }
/// }
/// # fn main() {
/// let error = decoders().load("vorbis").err().expect("there is none");
/// assert!(error.to_string().starts_with("no decoder is called `vorbis`\ncodec.decoders: 0 decoders"));
/// # }
/// ```
///
/// The function returns `&'static Group<…>`. The slice itself has only the entry points that linkme
/// collected; the group has every collector's, and knows their switches and states. Two groups of one crate
/// need two names.
#[macro_export]
macro_rules! group {
    ($($declaration:tt)*) => {
        $crate::__private::group! { [$crate] $($declaration)* }
    };
}

// Not public API. Used by generated code.
#[doc(hidden)]
pub mod __private {
    pub use entry_points_macros::{autoload, entry_points, group};

    #[allow(unused_imports, unreachable_pub)]
    pub use crate::collect::by_inventory::reexport::*;
    #[allow(unused_imports, unreachable_pub)]
    pub use crate::collect::by_linkme::reexport::*;
    pub use crate::collect::element::{
        AnyGroup, Autoload, Collected, Declared, Linked, Registration, SliceId, Submission,
    };
    pub use crate::collect::{assert_at_crate_root, nothing};
    pub use crate::entry_point::{Origin, with_origin};
}
