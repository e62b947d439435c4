//! A named set of entry points for one interface.

use std::fmt;
use std::sync::Arc;

use crate::assignments::Assignments;
use crate::claim::{Candidate, Claim};
use crate::collect::diagnosis::Findings;
use crate::collect::element::{AnyGroup, SliceId};
use crate::collect::{self, Source};
use crate::declaration::Declaration;
use crate::defaults::{Defaults, Effect};
use crate::entry::Entry;
use crate::entry_point::EntryPoint;
use crate::error::{ConfigureError, DefaultsError, LoadError, OptionError, RegisterError, UnknownName};
use crate::group_name::GroupName;
use crate::index::Index;
use crate::installed::Installed;
use crate::isolation::isolate;
use crate::message::{did_you_mean, shown};
use crate::nearest::nearest;
use crate::pattern::Pattern;
use crate::report::Report;
use crate::slot::Slot;
use crate::state::State;
use crate::switches::{self, Settings, Switches};
use crate::sync::{AtomicBool, OnceLock, Ordering, Orphaned};
use crate::used_groups;
use crate::versions::Versions;

/// A named set of entry points for the interface `P`, such as `codec.decoders` for `dyn Decoder`.
///
/// A framework declares its groups with [`group!`](crate::group), which also declares the distributed slice
/// in which plugin crates register. The group finds entry points by name, loads them, and holds their states.
/// It is always a `static` (or leaked), since entries and plugins borrow from it.
///
/// - **Listing is free.** [`names`](Self::names), [`iter`](Self::iter), [`get`](Self::get) and
///   [`report`](Self::report) run no plugin's code.
/// - **Loading is lazy.** A plugin's `load` runs at the first use of its name: once, on the thread that uses
///   it, with no lock held. Different names load in parallel. A loaded plugin is never unloaded.
/// - **A broken plugin stays broken; a missing driver may turn up later.** A failure is remembered until
///   [`retry`](Self::retry). A use looks for a missing driver or hardware again, after
///   [`UNAVAILABLE_FOR`](crate::LoadFailure::UNAVAILABLE_FOR).
/// - **A bad plugin harms only itself.** Its error or panic becomes its [`State`](crate::State). With
///   `panic = "abort"` a panic cannot be caught and ends the process. The panic hook runs as usual, so a
///   caught panic still prints.
/// - **The order is by name**, in whatever order the linker placed the entry points.
/// - **A child of `fork` never hangs.** It finds the plugins that the parent had loaded. Look-ups, lists and
///   reports take no lock that a thread of the parent could have held. If another thread of the parent was
///   loading or registering, `load` returns [`LoadError::Forked`] and `register` returns
///   [`RegisterError::Forked`].
///
/// The first call that needs the entry points builds the table and reads the switches, which takes some
/// microseconds. After that, look-ups of loaded names take no lock and allocate nothing, also while other
/// threads register.
///
/// ```rust,standalone_crate
/// use entry_points::{EntryPoint, Group};
///
/// entry_points::group! {
///     /// Commands of this program: name, then function.
///     pub static COMMANDS: [EntryPoint<fn() -> i32>];
///     /// Finds commands by name.
///     pub fn commands() -> Group<fn() -> i32> {
///         Group::new("example.commands")
///     }
/// }
/// # mod plugin {
/// # use super::*;
/// # use entry_points::LoadFailure;
/// fn answer() -> i32 {
///     42
/// }
/// # pub(super)
/// static ANSWER: EntryPoint<fn() -> i32> = EntryPoint::new("answer", || Ok(Box::new(answer as fn() -> i32)));
/// # }
/// # use plugin::ANSWER;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// commands().register(&ANSWER)?;
/// let command = commands().load("answer")?;
/// assert_eq!(command(), 42);
///
/// let error = commands().load("anwser").unwrap_err();
/// assert!(error.to_string().contains("did you mean `answer`?"));
/// # Ok(())
/// # }
/// ```
pub struct Group<P: ?Sized + 'static> {
    declaration: Declaration,
    built_in: &'static [EntryPoint<P>],
    autoload_line: &'static str,
    source: Option<Source<P>>,
    /// What the program has set. Locked while the table is built.
    configured: Versions<Configured>,
    /// What `add_note` has added, a version each.
    notes: Versions<Option<String>>,
    table: OnceLock<Table<P>>,
    /// The table of a child of `fork`, if a thread of the parent was building its own.
    table_after_fork: OnceLock<Box<Table<P>>>,
}

/// What the program has set before the first use.
enum Configured {
    Nothing,
    /// The switches that `configure` set, in place of the environment's.
    Switches(Switches),
    /// What `set_defaults` set, below the environment.
    Defaults(Defaults),
}

/// The data of a group from its first use on.
struct Table<P: ?Sized + 'static> {
    settings: Settings,
    /// The options that the environment and the defaults set.
    assignments: Assignments,
    findings: Findings,
    index: Index<Slot<P>>,
    warned: AtomicBool,
}

impl<P: ?Sized + Send + Sync + 'static> Table<P> {
    /// The notes of a report: probable mistakes.
    fn notes(&self, group: &GroupName) -> Vec<String> {
        let mut points = Vec::new();
        for slot in self.index.sorted() {
            let candidates = &slot.claims().candidates;
            let built_in = candidates.iter().any(|candidate| candidate.claim == Claim::BuiltIn);
            points.extend(candidates.iter().map(|candidate| (candidate.point, built_in)));
        }
        let mut notes = self.settings.complaints.clone();
        notes.extend(self.settings.idle_patterns(&points));
        notes.extend(self.assignments.complaints.iter().cloned());
        notes.extend(self.idle_assignments(group));
        notes.extend(self.index.sorted().into_iter().flat_map(Slot::unknown_options));
        notes.extend(self.findings.problems());
        notes
    }

    /// Complaints about options of names that the group does not have.
    fn idle_assignments(&self, group: &GroupName) -> impl Iterator<Item = String> {
        let idle = self.assignments.iter().filter(|one| self.index.find(&one.name).is_none());
        idle.map(move |one| {
            let names = self.index.sorted().into_iter().map(|slot| slot.name);
            let hint = did_you_mean(nearest(&one.name, names));
            let name = shown(&one.name);
            let option = shown(one.value.name());
            let origin = one.value.origin();
            let any = group.any_entry();
            format!("`{name}.{option}` in {origin} has no effect: no {any} is called `{name}`{hint}")
        })
    }
}

/// Declaring a group: in the body of [`group!`](crate::group), or in a `static` for a private group, which
/// holds only the entry points that the program registers.
impl<P: ?Sized + Send + Sync + 'static> Group<P> {
    /// A group called `name`. By convention this is the framework, a dot, and the kind of plugin:
    /// `codec.decoders`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            declaration: Declaration::new(name),
            built_in: &[],
            autoload_line: "entry_points::autoload!();",
            source: None,
            configured: Versions::new(Configured::Nothing),
            notes: Versions::new(None),
            table: OnceLock::new(),
            table_after_fork: OnceLock::new(),
        }
    }

    /// The word for an entry point of this group in messages, such as `decoder`. Its plural adds an `s`.
    #[must_use]
    pub const fn noun(mut self, noun: &'static str) -> Self {
        self.declaration.name.noun = Some(noun);
        self
    }

    /// Reads [`Switches`] from `PREFIX_AUTOLOAD`, `PREFIX_INSTALLED`, `PREFIX_DISABLE` and `PREFIX_SELECT`,
    /// and the options of entry points from `PREFIX_OPTIONS`: see [`set_option`](Self::set_option).
    #[must_use]
    pub const fn switches(mut self, prefix: &'static str) -> Self {
        self.declaration.switches = Some(prefix);
        self
    }

    /// Names further variables that the framework reads. The report notes a variable in the environment that
    /// is almost one of them, as it does for a misspelt switch. `PREFIX_*` stands for the variables of
    /// another group with the [switches](Self::switches) `PREFIX`.
    #[must_use]
    pub const fn variables(mut self, names: &'static [&'static str]) -> Self {
        self.declaration.variables = names;
        self
    }

    /// Names variables that entry points of a package read, each with the package. Where one has a value and
    /// no such package is linked, the report and the log say so.
    #[must_use]
    pub const fn read_by(mut self, variables: &'static [(&'static str, &'static str)]) -> Self {
        self.declaration.read_by = variables;
        self
    }

    /// Adds entry points that belong to the group itself. Their names cannot be taken, overridden or
    /// disabled.
    #[must_use]
    pub const fn built_in(mut self, points: &'static [EntryPoint<P>]) -> Self {
        self.built_in = points;
        self
    }

    /// Reserves names: no entry point can have them.
    #[must_use]
    pub const fn reserved(mut self, names: &'static [&'static str]) -> Self {
        self.declaration.reserved = names;
        self
    }

    /// The line that errors advise users to write, for a framework that re-exports
    /// [`autoload!`](crate::autoload).
    #[must_use]
    pub const fn autoload_line(mut self, line: &'static str) -> Self {
        self.autoload_line = line;
        self
    }

    // Not public API. Used by `group!`.
    #[doc(hidden)]
    #[must_use]
    pub const fn collected(
        mut self,
        elements: fn() -> &'static [EntryPoint<P>],
        slice: fn() -> SliceId,
    ) -> Self {
        self.source = Some(Source { elements, slice });
        self
    }
}

/// Finding and loading.
impl<P: ?Sized + Send + Sync + 'static> Group<P> {
    /// The group's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.declaration.name.name
    }

    /// The entry called `name`, in any state. Runs no plugin's code.
    #[must_use]
    pub fn get(&'static self, name: &str) -> Option<Entry<P>> {
        self.table().index.find(name).map(Entry)
    }

    /// The entry called `name`, if it may be used: it is neither disabled nor a duplicate. Runs no plugin's
    /// code and takes no lock. Allocates nothing unless it fails.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Unknown`], [`Disabled`](LoadError::Disabled) or
    /// [`Duplicate`](LoadError::Duplicate).
    pub fn usable(&'static self, name: &str) -> Result<Entry<P>, LoadError> {
        match self.table().index.find(name) {
            Some(slot) if slot.usable() => Ok(Entry(slot)),
            // Another thread may have made it usable meanwhile.
            Some(slot) => slot.chosen(slot.claims()).map(|_| Entry(slot)),
            None => Err(LoadError::Unknown(self.unknown_name(name))),
        }
    }

    /// Returns the plugin called `name`, and loads it at the first call. See [`Entry::load`].
    ///
    /// # Errors
    ///
    /// [`LoadError`] says why there is no plugin. [`Entry::load`] has a table of how long each error is
    /// remembered.
    pub fn load(&'static self, name: &str) -> Result<&'static P, LoadError> {
        self.usable(name)?.load()
    }

    /// Like [`load`](Self::load), but tries again at once if loading failed before, whatever the failure. An
    /// unavailable plugin needs no retry: `load` looks for it again after
    /// [`UNAVAILABLE_FOR`](crate::LoadFailure::UNAVAILABLE_FOR).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](Self::load).
    pub fn retry(&'static self, name: &str) -> Result<&'static P, LoadError> {
        self.usable(name)?.retry()
    }

    /// Loads every entry that is not disabled, one after the other, and returns each with its outcome: for a
    /// program that wants to fail early. Blocks until the last one is loaded.
    pub fn load_all(&'static self) -> Vec<(Entry<P>, Result<&'static P, LoadError>)> {
        let usable = self.iter().filter(|entry| !matches!(entry.state(), State::Disabled { .. }));
        usable.map(|entry| (entry, entry.load())).collect()
    }

    /// All entries, sorted by name, in any state.
    pub fn iter(&'static self) -> impl ExactSizeIterator<Item = Entry<P>> + DoubleEndedIterator {
        self.table().index.sorted().into_iter().map(Entry)
    }

    /// All names, sorted.
    pub fn names(&'static self) -> impl ExactSizeIterator<Item = &'static str> + DoubleEndedIterator {
        self.iter().map(Entry::name)
    }

    /// The number of names.
    #[must_use]
    pub fn len(&'static self) -> usize {
        self.iter().len()
    }

    /// Whether the group has no names.
    #[must_use]
    pub fn is_empty(&'static self) -> bool {
        self.len() == 0
    }

    /// The entries that match a pattern: a name such as `vorb*`, or `package/name` such as `codec-vorbis/*`.
    /// [`Switches`] describes the patterns.
    pub fn select(&'static self, pattern: &str) -> impl Iterator<Item = Entry<P>> + use<P> {
        let pattern = Pattern::new(pattern);
        self.iter().filter(move |entry| {
            entry.0.claims().candidates.iter().any(|candidate| pattern.matches(candidate.point))
        })
    }

    /// Every entry point with its state, notes on probable mistakes, and the reason why some may be missing.
    /// Runs no plugin's code.
    #[must_use]
    pub fn report(&'static self) -> Report {
        let table = self.table();
        let rows = table.index.sorted().into_iter().flat_map(Slot::rows).collect();
        let mut notes = table.notes(&self.declaration.name);
        notes.extend(self.notes.iter().flatten().cloned());
        // Code that searches for files adds a note of where.
        let searches = self.notes.iter().flatten().next().is_some();
        // A private group collects nothing, so no `autoload!` line would add a name.
        let advice = self.source.and_then(|_| table.findings.advice(self.autoload_line, searches));
        let interface = std::any::type_name::<P>();
        let without_block = self.source.map_or_else(Vec::new, |_| table.findings.without_block());
        Report { group: &self.declaration.name, interface, rows, notes, advice, without_block }
    }
}

/// Registering and configuring.
impl<P: ?Sized + Send + Sync + 'static> Group<P> {
    /// Adds an entry point, even if autoloading is off, like an explicit `import` of a plugin in Python.
    ///
    /// If the entry point is linked already, `…_AUTOLOAD=0` no longer disables it, but `…_DISABLE` still
    /// does. Registering it again changes nothing. Any thread may call this at any time.
    ///
    /// # Errors
    ///
    /// Returns [`RegisterError`] if another entry point has the name. That entry point keeps it, and the
    /// report lists this one as a duplicate.
    pub fn register(&'static self, point: &'static EntryPoint<P>) -> Result<(), RegisterError> {
        self.claim(point, Claim::Registered)
    }

    /// Adds an entry point that replaces any other with its name. Possible until the first use of the name.
    ///
    /// # Errors
    ///
    /// Returns [`RegisterError::InUse`] after the first use of the name, and [`RegisterError::BuiltIn`] if
    /// the name is built in or reserved.
    pub fn register_override(&'static self, point: &'static EntryPoint<P>) -> Result<(), RegisterError> {
        self.claim(point, Claim::Override)
    }

    /// Adds an entry point that is in a file, which is opened at the first use of the name.
    ///
    /// A file that appears in a folder must not break a working program. So an entry point that is linked or
    /// registered with this name, and is on, takes precedence. If several are installed, the first has the
    /// name. The report lists the others as duplicates, with their files. `…_INSTALLED=0` disables all
    /// installed ones, and the other [`Switches`] apply to them too.
    ///
    /// Installing one file again under its name changes nothing. Any thread may call this at any time. The
    /// entry point stays for the life of the program.
    ///
    /// # Errors
    ///
    /// [`RegisterError::InvalidName`]; [`RegisterError::BuiltIn`] if the name is built in or reserved; and
    /// [`RegisterError::Forked`].
    pub fn install(&'static self, installed: Installed<P>) -> Result<(), RegisterError> {
        if self.get(installed.name()).is_some_and(|entry| entry.0.has_file(installed.file())) {
            return Ok(());
        }
        let point = installed.into_entry_point(self.name())?;
        self.claim(Box::leak(Box::new(point)), Claim::Installed)
    }

    /// Adds a note to reports and to the error for an unknown name: why a file was not installed, or which
    /// folders were searched. A note is added only once.
    pub fn add_note(&'static self, note: impl Into<String>) {
        let note = note.into();
        // In a fork, another thread of the parent may have been adding one. A note is not worth an error.
        let Ok(notes) = self.notes.writer() else { return };
        if !self.notes.iter().flatten().any(|other| *other == note) {
            notes.add(Some(note));
        }
    }

    /// Sets the switches in code. The group then does not read them from the environment.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigureError`] if the group was used before, or has [defaults](Self::set_defaults). Every
    /// look-up, listing and registration is a use.
    pub fn configure(&'static self, switches: Switches) -> Result<(), ConfigureError> {
        let error = |defaults| ConfigureError { group: self.name(), defaults };
        match self.configured.writer() {
            Ok(configured) if self.table.get().is_none() => {
                if let Configured::Defaults(defaults) = configured.newest() {
                    return Err(error(defaults.any_origin()));
                }
                configured.add(Configured::Switches(switches));
                Ok(())
            }
            // `Orphaned`: at the time of a fork, the parent process was building the table, which is a use.
            Ok(_) | Err(Orphaned) => Err(error(None)),
        }
    }

    /// Sets switches and options that apply where the environment sets none, for example from a configuration
    /// file, each with its origin for messages. An empty variable counts as unset: `…_DISABLE=,` is a list
    /// without patterns, which takes the place of a default. [`set_option`](Self::set_option) takes
    /// precedence over both.
    ///
    /// ```
    /// # use entry_points::{Defaults, Group};
    /// static GROUP: Group<u8> = Group::new("example.defaults");
    /// GROUP.set_defaults(Defaults::new().autoload(false, "app.toml:3"))?;
    /// # Ok::<(), entry_points::DefaultsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DefaultsError`] if the group was used or configured before, or has defaults. They are set only once,
    /// since with two files the user would have to guess.
    pub fn set_defaults(&'static self, defaults: Defaults) -> Result<(), DefaultsError> {
        let Ok(configured) = self.configured.writer() else {
            return Err(DefaultsError::InUse { group: self.name() });
        };
        self.accepts_defaults()?;
        configured.add(Configured::Defaults(defaults));
        Ok(())
    }

    fn accepts_defaults(&self) -> Result<(), DefaultsError> {
        let group = self.declaration.name.name;
        match self.configured.newest() {
            _ if self.table.get().is_some() || self.table_after_fork.get().is_some() => {
                Err(DefaultsError::InUse { group })
            }
            Configured::Nothing => Ok(()),
            Configured::Switches(_) => Err(DefaultsError::Configured { group }),
            Configured::Defaults(defaults) => {
                let by = defaults.any_origin().unwrap_or_else(|| "the program".into());
                Err(DefaultsError::AlreadySet { group, by })
            }
        }
    }

    /// Sets an option of the entry called `name`, for its next load. It takes precedence over the
    /// environment.
    ///
    /// Users set options in the variable `PREFIX_OPTIONS` of a group with [`switches`](Self::switches). `;`
    /// separates them, and a value goes up to the next `;`. Space around a name, an option and a value does
    /// not matter:
    ///
    /// ```text
    /// CODEC_DECODER_OPTIONS='vorbis.quality=7; net.servers=10.0.0.1:1,10.0.0.2:1'
    /// ```
    ///
    /// The variable is read once, at the first use of the group, whether or not
    /// [`configure`](Self::configure) was called. An option in it that the entry point does not have makes
    /// loading that entry fail. [`report`](Self::report) has a note for an option whose name the group
    /// does not have, and for a piece that is not valid. It shows the options in force and where they were
    /// set.
    ///
    /// The values are text, and the plugin parses them when it loads: see
    /// [`EntryPoint::with_options`](crate::EntryPoint::with_options). After a failed load the option can be
    /// set again, and [`retry`](Self::retry) uses it.
    ///
    /// # Errors
    ///
    /// [`OptionError`] says why the option is not set: the group does not have the name, the entry point does
    /// not have the option, or it is already loaded.
    pub fn set_option(
        &'static self,
        name: &str,
        option: &str,
        value: impl Into<String>,
    ) -> Result<(), OptionError> {
        match self.table().index.find(name) {
            Some(slot) => slot.set_option(option, value.into()),
            None => Err(OptionError::Unknown(self.unknown_name(name))),
        }
    }

    fn claim(&'static self, point: &'static EntryPoint<P>, claim: Claim) -> Result<(), RegisterError> {
        let table = self.table();
        let forked = |Orphaned| RegisterError::Forked { name: point.name(), group: self.name() };
        // Held to the end: otherwise two threads could add the same name.
        let mut index = table.index.writer().map_err(forked)?;
        if let Some(slot) = table.index.find(point.name()) {
            return slot.claim(point, claim, &table.settings).map_err(forked)?;
        }
        let claim = if self.declaration.reserves(point.name()) { Claim::Refused } else { claim };
        let candidates = vec![Candidate { point, claim }];
        index.insert(self.new_slot(point.name(), candidates, &table.settings, &table.assignments));
        match claim {
            Claim::Refused => Err(self.declaration.belongs_to_group(point)),
            _ => Ok(()),
        }
    }
}

/// For the other modules of this crate.
impl<P: ?Sized + Send + Sync + 'static> Group<P> {
    fn unknown_name(&'static self, asked: &str) -> Arc<UnknownName> {
        let nearest = nearest(asked, self.names());
        let asked = asked.to_owned();
        let report = self.report();
        let autoloaded = !self.table().findings.autoloads.is_empty();
        Arc::new(UnknownName { asked, nearest, autoloaded, report })
    }

    fn table(&'static self) -> &'static Table<P> {
        match self.table.get() {
            Some(table) => table,
            None => self.build_table(),
        }
    }

    #[cold]
    fn build_table(&'static self) -> &'static Table<P> {
        let table = match self.configured.writer() {
            // While this thread holds the lock, no other thread of this process or of its parent is building
            // the table.
            Ok(_configured) => self.table.get_or_init(|| self.new_table()),
            Err(Orphaned) => self.table_after_fork.get_or_init(|| Box::new(self.new_table())),
        };
        // Done outside the lock, since a logger may look up a name of this group.
        if !table.warned.swap(true, Ordering::Relaxed) {
            used_groups::add(self);
            for note in table.notes(&self.declaration.name) {
                // A logger is the program's code, and its panic is not the caller's.
                let _ = isolate(|| log::warn!(target: "entry_points", "{}: {note}", self.name()));
            }
        }
        table
    }

    fn new_table(&'static self) -> Table<P> {
        let (switches, defaults) = match self.configured.newest() {
            Configured::Nothing => (None, &Defaults::new()),
            Configured::Switches(switches) => (Some(switches), &Defaults::new()),
            Configured::Defaults(defaults) => (None, defaults),
        };
        let mut settings = match (switches, self.declaration.switches) {
            (Some(switches), _) => Settings::from_code(switches),
            (None, Some(prefix)) => {
                Settings::from_env(prefix, defaults, |variable| std::env::var_os(variable))
            }
            (None, None) => Settings::from_env("", defaults, |_| None),
        };
        // Where there is no environment, as on wasm32-unknown-unknown, `vars_os` panics.
        if cfg!(any(unix, windows, target_os = "wasi")) {
            let variables = || std::env::vars_os().map(|(variable, _)| variable);
            if let Some(prefix) = self.declaration.switches {
                settings.complaints.extend(switches::misspelt(prefix, variables(), switches.is_some()));
            }
            settings.complaints.extend(switches::misspelt_others(
                self.declaration.variables,
                self.declaration.switches,
                variables(),
            ));
        }
        let assignments = self
            .declaration
            .switches
            .map(|prefix| Assignments::from_env(prefix, |name| std::env::var_os(name)));
        let mut assignments = assignments.unwrap_or_default();
        assignments.add_defaults(defaults);
        let (linked, findings) = collect::gather(self.source);
        for &(variable, package) in self.declaration.read_by {
            let is_linked = linked.iter().any(|point| point.package() == Some(package));
            if !is_linked && std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
                settings.complaints.push(format!(
                    "{variable} is set, and has no effect: this program does not link `{package}`, which reads it"
                ));
            }
        }
        let index = Index::new(&self.slots(linked, &settings, &assignments));
        Table { settings, assignments, findings, index, warned: AtomicBool::new(false) }
    }

    /// One slot for each name, with all claims to it.
    fn slots(
        &'static self,
        linked: Vec<&'static EntryPoint<P>>,
        settings: &Settings,
        assignments: &Assignments,
    ) -> Vec<&'static Slot<P>> {
        let built_in = self.built_in.iter().map(|point| Candidate { point, claim: Claim::BuiltIn });
        let linked = linked.into_iter().map(|point| Candidate { point, claim: Claim::Linked });
        let mut candidates: Vec<_> = built_in.chain(linked).collect();
        candidates.sort_by_key(|candidate| {
            let point = candidate.point;
            let place = candidate.point.declared_at();
            (point.name(), point.package(), point.version(), place.file(), place.line(), place.column())
        });
        let names = candidates.chunk_by(|a, b| a.point.name() == b.point.name());
        let slot = |claimants: &[Candidate<P>]| {
            self.new_slot(claimants[0].point.name(), claimants.to_vec(), settings, assignments)
        };
        names.map(slot).collect()
    }

    fn new_slot(
        &'static self,
        name: &'static str,
        candidates: Vec<Candidate<P>>,
        settings: &Settings,
        assignments: &Assignments,
    ) -> &'static Slot<P> {
        let options = assignments.of(name).cloned().collect();
        Box::leak(Box::new(Slot::new(name, &self.declaration, candidates, settings, options)))
    }
}

impl<P: ?Sized + Send + Sync + 'static> AnyGroup for Group<P> {
    fn name(&self) -> &'static str {
        self.declaration.name.name
    }

    fn report(&'static self) -> Report {
        self.report()
    }

    fn accepts_defaults(&self) -> Result<(), DefaultsError> {
        self.accepts_defaults()
    }

    fn set_defaults(&'static self, defaults: Defaults) -> Result<(), DefaultsError> {
        self.set_defaults(defaults)
    }

    fn effect_of_switch(&'static self, switch: &str) -> Effect {
        match self.table().settings.variable_of(switch) {
            Some(variable) => Effect::Replaced { by: variable.to_owned() },
            None => Effect::InForce,
        }
    }

    fn effect_of_option(&'static self, name: &str, option: &str) -> Effect {
        match self.table().index.find(name) {
            Some(slot) => slot.effect_of_option(option),
            None => Effect::UnknownName {
                noun: self.declaration.name.noun.unwrap_or("entry point"),
                nearest: nearest(name, self.names()),
            },
        }
    }
}

impl<P: ?Sized + Send + Sync + 'static> fmt::Debug for Group<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("name", &self.declaration.name).finish_non_exhaustive()
    }
}
