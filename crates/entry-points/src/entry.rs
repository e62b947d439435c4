//! A name in a group: what is behind it, and what has become of it.

use std::cmp::Ordering as Order;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{EntryName, and};
use crate::index::Named;
use crate::once_load::{Interrupted, OnceLoad, Stage};
use crate::switches::Settings;
use crate::sync::{AtomicBool, Ordering, Orphaned};
use crate::verdict::{self, Candidate, Claim, Standing, Verdict};
use crate::versions::Versions;
use crate::{EntryPoint, Group, LoadError, RegisterError};

/// A name in a [`Group`].
///
/// `Copy`, as large as a pointer, compared by group and name. It stays valid for the life of the program,
/// whatever is registered later.
pub struct Entry<P: ?Sized + 'static>(pub(crate) &'static Slot<P>);

impl<P: ?Sized + Send + Sync + 'static> Entry<P> {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The group.
    #[must_use]
    pub fn group(self) -> &'static Group<P> {
        self.0.group
    }

    /// The entry point behind the name: the one in use, or else the first of those that there are.
    #[must_use]
    pub fn entry_point(self) -> &'static EntryPoint<P> {
        self.0.claims().representative()
    }

    /// The package it comes from, if known.
    #[must_use]
    pub fn package(self) -> Option<&'static str> {
        self.entry_point().package()
    }

    /// The version of that package, if known.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        self.entry_point().version()
    }

    /// The Rust path of its `load` function, if known.
    #[must_use]
    pub fn value(self) -> Option<&'static str> {
        self.entry_point().value()
    }

    /// What has become of it. Runs no code of the plugin's and never waits for it.
    #[must_use]
    pub fn state(self) -> State {
        let claims = self.0.claims();
        match &claims.standing {
            Standing::On(at) | Standing::Off(at) => self.0.state_of(claims, *at),
            Standing::Duplicate(rivals) => State::Duplicate { of: claims.whences(rivals) },
        }
    }

    /// Whether it may be used: it is not disabled and its name is its own. Runs no code of the plugin's and takes no
    /// lock. If it may not be used, the error of [`load`](Self::load) says why.
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.0.usable()
    }

    /// The plugin; loads it at the first call.
    ///
    /// Once loaded, this is one atomic load: no lock, no allocation. Before, it runs the entry point's `load` on
    /// this thread, or blocks while another thread does. Any number of threads may call it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says why there is no plugin. A failure is remembered: every later call returns the same
    /// error, until [`retry`](Self::retry). One that only came from a cycle which goes through entry points further
    /// out is forgotten: the next call tries again.
    #[inline]
    pub fn load(self) -> Result<&'static P, LoadError> {
        self.0.load(false)
    }

    /// The plugin, if it has been loaded.
    #[must_use]
    pub fn loaded(self) -> Option<&'static P> {
        self.0.loaded()
    }

    /// Like [`load`](Self::load), but tries again if loading failed before.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn retry(self) -> Result<&'static P, LoadError> {
        self.0.load(true)
    }
}

impl<P: ?Sized> Clone for Entry<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Entry<P> {}

impl<P: ?Sized> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<P: ?Sized> Eq for Entry<P> {}

// A plugin is only ever lent, and a panic leaves whole what the group knows of it.
impl<P: ?Sized> UnwindSafe for Entry<P> {}
impl<P: ?Sized> RefUnwindSafe for Entry<P> {}

impl<P: ?Sized + Send + Sync> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl<P: ?Sized + Send + Sync> Ord for Entry<P> {
    /// By name; entries of different groups by the group's name first.
    fn cmp(&self, other: &Self) -> Order {
        let key = |entry: &Self| (entry.0.group.name(), entry.0.name, std::ptr::from_ref(entry.0).addr());
        if self == other { Order::Equal } else { key(self).cmp(&key(other)) }
    }
}

impl<P: ?Sized> Hash for Entry<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl<P: ?Sized + Send + Sync> fmt::Debug for Entry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name()).field(&self.state()).finish()
    }
}

/// What has become of an entry point.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// It is part of the program and not loaded: nobody has asked for it, or its failure was forgotten.
    Linked,
    /// A switch turned it off.
    Disabled {
        /// The variable and its value, such as `CODEC_DECODER_DISABLE=vorb*`, or the program.
        by: Arc<str>,
    },
    /// Its `load` is running, or was running in the parent when this process was forked.
    Loading {
        /// For how long.
        elapsed: Duration,
    },
    /// It is in use.
    Loaded {
        /// How long its `load` took.
        took: Duration,
    },
    /// It has nothing to work with on this machine.
    Unavailable {
        /// What it said.
        cause: LoadError,
    },
    /// Its `load` returned an error or panicked.
    Failed {
        /// The error that everybody gets who asks for it.
        cause: LoadError,
    },
    /// Its name is taken, or offered more than once.
    Duplicate {
        /// What else claims the name.
        of: Arc<[String]>,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linked => f.write_str("linked"),
            Self::Disabled { by } => write!(f, "disabled by {by}"),
            Self::Loading { elapsed } => write!(f, "loading for {elapsed:.1?}"),
            Self::Loaded { took } => write!(f, "loaded in {took:.1?}"),
            Self::Unavailable { cause } => write!(f, "unavailable: {}", Told(cause)),
            Self::Failed { cause } => write!(f, "failed: {}", Told(cause)),
            Self::Duplicate { of } => write!(f, "duplicate of {}", and(of)),
        }
    }
}

/// An error as a state tells it: the name stands beside it already, and there is room for the whole chain.
///
/// Of each message it is the first line, and of that a part: a message may quote a whole report, this one's
/// predecessor included, and what quotes all of what quotes all of it soon fills the memory.
struct Told<'a>(&'a LoadError);

/// The beginning of a message.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 200;
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut beginning: String = first.chars().take(LONGEST).collect();
    if beginning.len() < first.len() || lines.next().is_some() {
        beginning.push('…');
    }
    beginning
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0.failure()) {
            (_, Some(failure)) => {
                let messages: Vec<_> = failure.messages().iter().map(|message| beginning(message)).collect();
                f.write_str(&messages.join(": "))
            }
            (LoadError::Panicked { message, .. }, _) => write!(f, "panicked: {}", beginning(message)),
            (LoadError::Cycle { path, .. }, _) => write!(f, "needs itself: {}", path.join(" -> ")),
            (other, None) => other.fmt(f),
        }
    }
}

/// A name's place in its group. It is leaked, so that anything can hold it as a plain reference.
pub(crate) struct Slot<P: ?Sized + 'static> {
    name: &'static str,
    group: &'static Group<P>,
    plugin: OnceLoad<&'static P, LoadError>,
    /// Whether a candidate is chosen, in one load: look-ups are many, and versions are a list.
    usable: AtomicBool,
    claims: Versions<Claims<P>>,
}

/// What claims a name, and what comes of that.
pub(crate) struct Claims<P: ?Sized + 'static> {
    /// At least one.
    pub(crate) candidates: Vec<Candidate<P>>,
    /// One for each candidate.
    verdicts: Vec<Verdict>,
    standing: Standing,
    /// Whether it was asked for the plugin, so that what is behind the name stays.
    in_use: bool,
}

impl<P: ?Sized + Send + Sync + 'static> Slot<P> {
    pub(crate) fn new(
        name: &'static str,
        group: &'static Group<P>,
        candidates: Vec<Candidate<P>>,
        settings: &Settings,
    ) -> Self {
        let claims = Claims::judged(candidates, group.reserves(name), settings);
        Self {
            name,
            group,
            plugin: OnceLoad::new(),
            usable: AtomicBool::new(claims.is_usable()),
            claims: Versions::new(claims),
        }
    }

    /// What claims the name. Takes no lock.
    pub(crate) fn claims(&self) -> &Claims<P> {
        self.claims.newest()
    }

    pub(crate) fn usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    pub(crate) fn loaded(&self) -> Option<&'static P> {
        self.plugin.get().copied()
    }

    #[inline]
    pub(crate) fn load(&self, retry: bool) -> Result<&'static P, LoadError> {
        match self.loaded() {
            Some(plugin) => Ok(plugin),
            None => self.load_now(retry),
        }
    }

    #[cold]
    fn load_now(&self, retry: bool) -> Result<&'static P, LoadError> {
        let point = self.use_chosen()?;
        let entry = || self.entry_name(point);
        let load = || match point.call() {
            // Never unloaded: `&'static P` is sound, and a driver is not pulled from under its users.
            Ok(plugin) => Ok(&*Box::leak(plugin)),
            Err(failure) if failure.is_unavailable() => {
                Err(LoadError::Unavailable { entry: entry(), failure })
            }
            Err(failure) => Err(LoadError::Failed { entry: entry(), failure }),
        };
        let interrupted = |cause| match cause {
            Interrupted::Cycle(path) => LoadError::Cycle { entry: entry(), path },
            Interrupted::Panicked(message) => LoadError::Panicked { entry: entry(), message },
            Interrupted::Forked => LoadError::Forked { entry: entry() },
        };
        let name = (self.group.name(), self.name);
        let plugin = match retry {
            false => self.plugin.get_or_load(name, load, interrupted),
            true => self.plugin.retry(name, load, interrupted),
        };
        plugin.copied()
    }

    /// The entry point behind the name, which stays there from now on.
    fn use_chosen(&self) -> Result<&'static EntryPoint<P>, LoadError> {
        let claims = self.claims();
        if claims.in_use {
            return self.chosen(claims);
        }
        let Ok(writer) = self.claims.writer() else {
            return Err(LoadError::Forked { entry: self.entry_name(claims.representative()) });
        };
        let claims = writer.newest();
        let point = self.chosen(claims)?;
        if !claims.in_use {
            writer.add(Claims { in_use: true, ..claims.clone() });
        }
        Ok(point)
    }

    /// What has become of one of the candidates.
    pub(crate) fn state_of(&self, claims: &Claims<P>, candidate: usize) -> State {
        match &claims.verdicts[candidate] {
            Verdict::Off { by } => State::Disabled { by: Arc::clone(by) },
            Verdict::Duplicate { of } => State::Duplicate { of: Arc::clone(of) },
            Verdict::On => match self.plugin.stage() {
                Stage::NotLoaded => State::Linked,
                Stage::Loading { elapsed } => State::Loading { elapsed },
                Stage::Loaded { took } => State::Loaded { took },
                Stage::Failed(cause) => match LoadError::clone(&cause) {
                    cause @ LoadError::Unavailable { .. } => State::Unavailable { cause },
                    cause => State::Failed { cause },
                },
            },
        }
    }

    /// Lets `point` claim the name. Whatever is in use, or is refused for, stays as it is.
    pub(crate) fn claim(
        &self,
        point: &'static EntryPoint<P>,
        claim: Claim,
        settings: &Settings,
    ) -> Result<Result<(), RegisterError>, Orphaned> {
        let writer = self.claims.writer()?;
        let claims = writer.newest();
        let known = claims.candidates.iter().position(|candidate| std::ptr::eq(candidate.point, point));
        if known.is_some_and(|at| claims.standing == Standing::On(at)) {
            return Ok(Ok(()));
        }
        let result = self.refusal(claims, point, claim).map_or(Ok(()), Err);
        let mut candidates = claims.candidates.clone();
        match known {
            // It is listed already, by the better right of being linked.
            Some(_) if result.is_err() => return Ok(result),
            // To the end of the list: the last override counts.
            Some(at) => drop(candidates.remove(at)),
            None => {}
        }
        let claim = if result.is_ok() { claim } else { Claim::Refused };
        candidates.push(Candidate { point, claim });
        let judged = Claims::judged(candidates, self.group.reserves(self.name), settings);
        let claims = writer.add(Claims { in_use: claims.in_use, ..judged });
        self.usable.store(claims.is_usable(), Ordering::Release);
        Ok(result)
    }

    fn refusal(&self, claims: &Claims<P>, point: &EntryPoint<P>, claim: Claim) -> Option<RegisterError> {
        let by = point.whence();
        let others: Vec<_> =
            claims.candidates.iter().filter(|candidate| !std::ptr::eq(candidate.point, point)).collect();
        if self.group.reserves(self.name) || others.iter().any(|other| other.claim == Claim::BuiltIn) {
            return Some(self.group.belongs_to_group(point));
        }
        let holders = || and(&others.iter().map(|other| other.point.whence()).collect::<Vec<_>>());
        let entry =
            || EntryName { name: self.name, group: self.group.group_name(), whence: holders().into() };
        if claims.in_use {
            return Some(RegisterError::InUse { entry: entry(), by });
        }
        // An override holds the name also when it is switched off.
        let holds = |at: usize| {
            let candidate = &claims.candidates[at];
            let is_off = matches!(claims.verdicts[at], Verdict::Off { .. });
            !std::ptr::eq(candidate.point, point) && (!is_off || candidate.claim == Claim::Override)
        };
        let taken = (0..claims.candidates.len()).any(holds);
        (claim == Claim::Registered && taken).then(|| RegisterError::Taken { entry: entry(), by })
    }

    /// The entry point behind the name, or why there is none.
    pub(crate) fn chosen(&self, claims: &Claims<P>) -> Result<&'static EntryPoint<P>, LoadError> {
        let entry = |at: usize| self.entry_name(claims.candidates[at].point);
        match &claims.standing {
            Standing::On(at) => Ok(claims.candidates[*at].point),
            Standing::Off(at) => match &claims.verdicts[*at] {
                Verdict::Off { by } => Err(LoadError::Disabled { entry: entry(*at), by: Arc::clone(by) }),
                other => unreachable!("the verdict on what is off is {other:?}"),
            },
            Standing::Duplicate(rivals) => {
                let points: Vec<_> = rivals.iter().map(|&at| claims.candidates[at].point).collect();
                let remedy = self.group.remedy_for_duplicates(self.name, &points).into();
                Err(LoadError::Duplicate {
                    entry: entry(rivals[0]),
                    offered_by: claims.whences(rivals),
                    remedy,
                })
            }
        }
    }

    pub(crate) fn entry_name(&self, point: &EntryPoint<P>) -> EntryName {
        EntryName { name: self.name, group: self.group.group_name(), whence: point.whence().into() }
    }
}

impl<P: ?Sized> Named for Slot<P> {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl<P: ?Sized> Claims<P> {
    /// Decides which candidate is behind the name.
    fn judged(candidates: Vec<Candidate<P>>, reserved: bool, settings: &Settings) -> Self {
        let verdicts = verdict::judge(&candidates, reserved, settings);
        let standing = verdict::standing(&candidates, &verdicts);
        Self { candidates, verdicts, standing, in_use: false }
    }

    fn is_usable(&self) -> bool {
        matches!(self.standing, Standing::On(_))
    }

    fn representative(&self) -> &'static EntryPoint<P> {
        let at = match &self.standing {
            Standing::On(at) | Standing::Off(at) => *at,
            Standing::Duplicate(rivals) => rivals[0],
        };
        self.candidates[at].point
    }

    /// Where some candidates come from. Those that come from one package are told apart by their places.
    fn whences(&self, candidates: &[usize]) -> Arc<[String]> {
        let points = || candidates.iter().map(|&at| self.candidates[at].point);
        let alike = |whence: &str| points().filter(|point| point.whence() == whence).count() > 1;
        let whence = |point: &EntryPoint<P>| match point.whence() {
            whence if alike(&whence) && point.package().is_some() => {
                format!("{whence} ({}:{})", point.declared_at().file(), point.declared_at().line())
            }
            whence => whence,
        };
        points().map(whence).collect()
    }
}

impl<P: ?Sized> Clone for Claims<P> {
    fn clone(&self) -> Self {
        Self {
            candidates: self.candidates.clone(),
            verdicts: self.verdicts.clone(),
            standing: self.standing.clone(),
            in_use: self.in_use,
        }
    }
}
