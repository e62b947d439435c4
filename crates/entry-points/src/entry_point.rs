//! An entry point, as a plugin crate declares it.

use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::path::Path;

use crate::failure::LoadFailure;
use crate::message::{shown, shown_path};
use crate::name::{LONGEST_NAME, is_name};
use crate::options::{OptionOrigin, OptionSpec, OptionValue, Options};

/// A named plugin of the interface `P`, as constant data: its name, its package, and the function that loads
/// it.
///
/// It lives in read-only memory and holds no state: the [`Group`](crate::Group) holds the state of its entry
/// points. The constructor runs no plugin's code.
///
/// ```
/// use entry_points::{EntryPoint, LoadFailure};
///
/// trait Greeter: Send + Sync {
///     fn greet(&self) -> String;
/// }
///
/// struct Polite;
/// impl Greeter for Polite {
///     fn greet(&self) -> String {
///         "good evening".to_owned()
///     }
/// }
///
/// fn load() -> Result<Box<dyn Greeter>, LoadFailure> {
///     Ok(Box::new(Polite))
/// }
///
/// static POLITE: EntryPoint<dyn Greeter> = EntryPoint::new("polite", load);
/// assert_eq!(POLITE.name(), "polite");
/// ```
///
/// It has the four facts of Python's `importlib.metadata.EntryPoint`: name, group, package (with its version)
/// and value. The [`entry_points!`](crate::entry_points) block adds all but the name.
pub struct EntryPoint<P: ?Sized + 'static> {
    name: &'static str,
    load: Load<P>,
    options: &'static [OptionSpec],
    origin: Origin,
    file: Option<&'static Path>,
    declared_at: &'static Location<'static>,
}

/// What opens the file of an installed entry point.
pub(crate) type LoadFile<P> = dyn Fn(&Options) -> Result<Box<P>, LoadFailure> + Send + Sync;

enum Load<P: ?Sized + 'static> {
    Plain(fn() -> Result<Box<P>, LoadFailure>),
    WithOptions(fn(&Options) -> Result<Box<P>, LoadFailure>),
    FromFile(&'static LoadFile<P>),
}

// It is called where a panic becomes a state of the entry point, and is never called again on its own.
impl<P: ?Sized> UnwindSafe for EntryPoint<P> {}
impl<P: ?Sized> RefUnwindSafe for EntryPoint<P> {}

// Not public API. Filled in by `entry_points!`.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Origin {
    group: Option<fn() -> &'static str>,
    package: Option<&'static str>,
    version: Option<&'static str>,
    repository: Option<&'static str>,
    value: Option<&'static str>,
}

impl Origin {
    // Not public API. Used by generated code.
    #[doc(hidden)]
    pub const fn new(
        group: fn() -> &'static str,
        package: Option<&'static str>,
        version: Option<&'static str>,
        repository: Option<&'static str>,
        value: &'static str,
    ) -> Self {
        Self { group: Some(group), package, version, repository, value: Some(value) }
    }
}

impl<P: ?Sized + 'static> EntryPoint<P> {
    /// The longest name, in bytes.
    pub const MAX_NAME: usize = LONGEST_NAME;

    /// An entry point called `name`, whose plugin `load` makes.
    ///
    /// `load` runs on the thread that first uses the name, at most once at a time, with no lock held. It may
    /// load other entry points.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not 1 to 32 bytes of `a`–`z`, `0`–`9` and `_`, or starts with a digit. In a
    /// `static` or `const`, where entry points belong, this is a compile error.
    ///
    /// ```compile_fail
    /// # use entry_points::{EntryPoint, LoadFailure};
    /// static BAD: EntryPoint<u8> = EntryPoint::new("Open-Reg", || Ok(Box::new(0)));
    /// ```
    #[track_caller]
    pub const fn new(name: &'static str, load: fn() -> Result<Box<P>, LoadFailure>) -> Self {
        Self::declared(name, Load::Plain(load), &[], Location::caller())
    }

    /// An entry point called `name` that accepts options, which `load` gets.
    ///
    /// The program sets an option by [`Group::set_option`](crate::Group::set_option). If it does not, the
    /// environment may: in the variable `PREFIX_OPTIONS` of the group, as `name.option=value`. An option that
    /// is not declared here is an error.
    ///
    /// ```
    /// use entry_points::{EntryPoint, Group, LoadFailure, OptionSpec, Options};
    ///
    /// static STORES: Group<Vec<String>> = Group::new("example.stores");
    ///
    /// static NET: EntryPoint<Vec<String>> = EntryPoint::with_options(
    ///     "net",
    ///     load,
    ///     &[
    ///         OptionSpec::new("servers", "addresses of the servers, separated by commas"),
    ///         OptionSpec::new("copies", "a number of copies"),
    ///     ],
    /// );
    ///
    /// fn load(options: &Options) -> Result<Box<Vec<String>>, LoadFailure> {
    ///     let servers = options.get("servers").unwrap_or("127.0.0.1:4501");
    ///     let copies = options.parse::<usize>("copies")?.unwrap_or(1);
    ///     Ok(Box::new(servers.split(',').map(str::to_owned).take(copies).collect()))
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// STORES.register(&NET)?;
    /// STORES.set_option("net", "servers", "10.0.0.1:1,10.0.0.2:1")?;
    /// STORES.set_option("net", "copies", "2")?;
    /// assert_eq!(*STORES.load("net")?, ["10.0.0.1:1", "10.0.0.2:1"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics as [`new`](Self::new), and if two options have one name. In a `static` or `const`, this is a
    /// compile error.
    ///
    /// ```compile_fail
    /// # use entry_points::{EntryPoint, OptionSpec};
    /// const X: OptionSpec = OptionSpec::new("x", "anything");
    /// static BAD: EntryPoint<u8> = EntryPoint::with_options("bad", |_| Ok(Box::new(0)), &[X, X]);
    /// ```
    #[track_caller]
    pub const fn with_options(
        name: &'static str,
        load: fn(&Options) -> Result<Box<P>, LoadFailure>,
        options: &'static [OptionSpec],
    ) -> Self {
        assert!(!has_duplicates(options), "two options of an entry point have one name");
        Self::declared(name, Load::WithOptions(load), options, Location::caller())
    }

    const fn declared(
        name: &'static str,
        load: Load<P>,
        options: &'static [OptionSpec],
        declared_at: &'static Location<'static>,
    ) -> Self {
        assert!(
            is_name(name.as_bytes()),
            "invalid name of an entry point: expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start"
        );
        let origin = Origin { group: None, package: None, version: None, repository: None, value: None };
        Self { name, load, options, origin, file: None, declared_at }
    }

    /// The entry point of an [`Installed`](crate::Installed), whose names are checked.
    pub(crate) fn in_file(
        name: &'static str,
        load: &'static LoadFile<P>,
        options: &'static [OptionSpec],
        file: &'static Path,
        declared_at: &'static Location<'static>,
    ) -> Self {
        Self { file: Some(file), ..Self::declared(name, Load::FromFile(load), options, declared_at) }
    }

    /// Sets the package of the entry point. An `entry_points!` block does this by itself.
    #[must_use]
    pub const fn in_package(mut self, name: &'static str, version: &'static str) -> Self {
        self.origin.package = Some(name);
        self.origin.version = Some(version);
        self
    }

    /// The name by which users load it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The options that it accepts.
    #[must_use]
    pub const fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    /// The name of the group, if an `entry_points!` block declared it.
    #[must_use]
    pub fn group(&self) -> Option<&'static str> {
        self.origin.group.map(|name| name())
    }

    /// The name of the package that declares it, if known.
    #[must_use]
    pub const fn package(&self) -> Option<&'static str> {
        self.origin.package
    }

    /// The version of that package, if known.
    #[must_use]
    pub const fn version(&self) -> Option<&'static str> {
        self.origin.version
    }

    /// Where the package's source is: the `repository` of its Cargo.toml, if an `entry_points!` block
    /// declared the entry point.
    #[must_use]
    pub const fn repository(&self) -> Option<&'static str> {
        match self.origin.repository {
            Some(url) if !url.is_empty() => Some(url),
            // Cargo sets an empty text for a package without one.
            _ => None,
        }
    }

    /// The Rust path of its `load` function, such as `codec_vorbis::load`, if an `entry_points!` block
    /// declared it. If `load` is a closure, the path of the static.
    #[must_use]
    pub const fn value(&self) -> Option<&'static str> {
        self.origin.value
    }

    /// The file that it is in, if it was [installed](crate::Group::install).
    #[must_use]
    pub const fn file(&self) -> Option<&'static Path> {
        self.file
    }

    /// The place in the source code that declares it; for an installed one, the call of
    /// [`Installed::new`](crate::Installed::new).
    #[must_use]
    pub const fn declared_at(&self) -> &'static Location<'static> {
        self.declared_at
    }

    pub(crate) fn call(&self, options: &Options) -> Result<Box<P>, LoadFailure> {
        match self.load {
            Load::Plain(load) => load(),
            Load::WithOptions(load) => load(options),
            Load::FromFile(load) => load(options),
        }
    }

    pub(crate) fn declares(&self, option: &str) -> bool {
        self.options.iter().any(|spec| spec.name() == option)
    }

    /// The package, for messages: `codec-vorbis 0.1.0`. The place in the source if the package is unknown.
    /// Also the file if it was installed.
    pub(crate) fn provider(&self) -> String {
        let package = self.package().map(|package| match self.version() {
            Some(version) => format!("{package} {version}"),
            None => package.to_owned(),
        });
        match (package, self.file.map(shown_path)) {
            (Some(package), Some(file)) => format!("{package} in {file}"),
            (Some(package), None) => package,
            (None, Some(file)) => file,
            (None, None) => format!("{}:{}", self.declared_at.file(), self.declared_at.line()),
        }
    }
}

// Not public API. Used by `entry_points!`. A package that the author set by hand stays.
#[doc(hidden)]
#[must_use]
pub const fn with_origin<P: ?Sized>(mut point: EntryPoint<P>, origin: Origin) -> EntryPoint<P> {
    let stated = point.origin;
    point.origin = origin;
    if stated.package.is_some() {
        point.origin.package = stated.package;
        point.origin.version = stated.version;
    }
    point
}

// Not public API. Used by `device-registry`, for an entry point in a shared library, whose options the
// program has checked.
#[doc(hidden)]
pub fn load_with<'a, P: ?Sized + 'static>(
    point: &EntryPoint<P>,
    settings: impl IntoIterator<Item = (&'a str, &'a str, OptionOrigin)>,
) -> Result<Box<P>, LoadFailure> {
    let settings = settings.into_iter();
    let values: Vec<_> = settings
        .map(|(name, value, origin)| OptionValue { name: name.into(), value: value.into(), origin })
        .collect();
    if let Some(unknown) = values.iter().find(|value| !point.declares(value.name())) {
        return Err(LoadFailure::new(format_args!("there is no option `{}`", shown(unknown.name()))));
    }
    point.call(&Options::declared(point.options(), &values))
}

impl<P: ?Sized> fmt::Debug for EntryPoint<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryPoint")
            .field("name", &self.name)
            .field("group", &self.group())
            .field("package", &self.package())
            .field("version", &self.version())
            .field("value", &self.value())
            .field("options", &self.options)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

const fn has_duplicates(options: &[OptionSpec]) -> bool {
    let mut i = 0;
    while i < options.len() {
        let mut j = i + 1;
        while j < options.len() {
            if equal(options[i].name().as_bytes(), options[j].name().as_bytes()) {
                return true;
            }
            j += 1;
        }
        i += 1;
    }
    false
}

/// `==` is not `const`.
const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Result<Box<u8>, LoadFailure> {
        Ok(Box::new(0))
    }

    #[test]
    fn two_options_with_one_name_are_refused_wherever_they_stand() {
        const ABC: [OptionSpec; 3] =
            [OptionSpec::new("a", ""), OptionSpec::new("ab", ""), OptionSpec::new("b", "")];
        assert!(!has_duplicates(&[]) && !has_duplicates(&ABC));
        assert!(has_duplicates(&[ABC[1], ABC[0], ABC[1]]) && has_duplicates(&[ABC[0], ABC[2], ABC[2]]));
    }

    #[test]
    fn an_entry_point_without_a_package_shows_its_place() {
        let point = EntryPoint::new("x", load);
        assert!(point.provider().contains("entry_point.rs:"), "{}", point.provider());
        assert_eq!(
            (point.package(), point.version(), point.value(), point.group()),
            (None, None, None, None)
        );
    }

    #[test]
    fn a_package_set_by_hand_stays_when_the_block_adds_the_rest() {
        let origin = Origin::new(|| "a.group", Some("from-cargo"), Some("1.0.0"), Some(""), "krate::load");
        let stated = with_origin(EntryPoint::new("x", load).in_package("by-hand", "2.0.0"), origin);
        assert_eq!(stated.provider(), "by-hand 2.0.0");
        let unstated = with_origin(EntryPoint::new("x", load), origin);
        assert_eq!(unstated.provider(), "from-cargo 1.0.0");
        assert_eq!((unstated.group(), unstated.value()), (Some("a.group"), Some("krate::load")));
        assert_eq!(unstated.repository(), None, "Cargo sets an empty text for a package without one");
    }
}
