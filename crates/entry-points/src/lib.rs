#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod collect;
mod entry;
mod entry_point;
mod error;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod group_name;
mod index;
#[doc(hidden)]
pub mod message;
mod nearest;
mod once_load;
mod pattern;
mod report;
mod slot;
mod state;
mod switches;
mod sync;
mod verdict;
mod versions;

pub use crate::entry::Entry;
pub use crate::entry_point::EntryPoint;
pub use crate::error::{ConfigureError, EntryName, LoadError, RegisterError, UnknownName};
pub use crate::failure::LoadFailure;
pub use crate::group::Group;
pub use crate::once_load::{Interrupted, OnceLoad};
pub use crate::report::{Report, Row};
pub use crate::state::State;
pub use crate::switches::Switches;

/// Links every dependency of this crate and finds the entry points in them. Write it once, in `main.rs` (or in
/// `lib.rs` of a library that is to bring its plugins along).
///
/// ```
/// entry_points::autoload!();
/// # fn main() {}
/// ```
///
/// # Why a line is needed
///
/// rustc links a crate from Cargo.toml only if some path names it; what is registered in a crate that no line
/// names is lost without a word. `autoload!()` reads the `--extern` list that Cargo hands to rustc for exactly
/// this target — features, target tables, renames and dev-dependencies are decided there — and names each crate.
/// It also refers to the hidden constant that an [`entry_points!`] block leaves at the root of its crate, by an
/// ordinary typed path. So it does not depend on the linker keeping another crate's sections, and a plugin that
/// was built against another version of its framework is a compile error.
///
/// **Every direct dependency is linked**, whether or not it has entry points. For the rare one that must not be
/// (a `#[panic_handler]`, an allocator) there is `except`; a name there that is no dependency of this target is
/// fine, for it may be one of another.
///
/// A crate that re-exports two plugin crates by glob has two lists under one name. Re-export their items by name.
///
/// # By hand
///
/// No one promises that a procedural macro may read rustc's arguments. Where it cannot, the macro is a compile
/// error that says so, and the crates can be named by hand, with the same result:
///
/// ```text
/// entry_points::autoload!(only codec_vorbis, codec_opus);
/// ```
///
/// or, if linker sections of other crates are kept (any binary that rustc links for Linux, macOS or
/// windows-msvc):
///
/// ```text
/// extern crate codec_vorbis as _;
/// ```
///
/// # Where to put it
///
/// Anywhere that items may stand. One line serves every group, whichever framework re-exports the macro. In a `staticlib` that a C linker links, put it in the same module as a function
/// that C calls: a C linker takes object files from the archive only where it needs them. In an IDE the macro
/// expands to nothing.
#[macro_export]
macro_rules! autoload {
    ($($choice:tt)*) => {
        $crate::__private::autoload! { [$crate] $($choice)* }
    };
}

/// What a plugin crate offers, as `[project.entry-points]` in a Python package. Write it once, at the root of the
/// crate.
///
/// Each static names the distributed slice of its group, as for [linkme](https://docs.rs/linkme), without a
/// dependency on linkme:
///
/// ```
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
/// The block adds the package's name and version and the path of `load`, registers the static through whatever
/// collector the target needs, and leaves one hidden constant at the root of the crate for
/// [`autoload!`]. Documentation, `#[cfg]` and other attributes may stand on each static.
#[macro_export]
macro_rules! entry_points {
    ($($block:tt)*) => {
        $crate::__private::entry_points! { [$crate] $($block)* }
    };
}

/// Declares a group: a distributed slice that plugin crates register in, and the function that returns the
/// [`Group`].
///
/// ```
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
/// Reading the slice itself shows what linkme collected and nothing else; the group knows all ways in, the
/// switches and the states. The function returns `&'static Group<…>`. Two groups of one crate need two names.
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
    pub use crate::collect::{Autoload, Collected, Registration, Submission, assert_at_crate_root, nothing};
    pub use crate::entry_point::{Origin, with_origin};
}
