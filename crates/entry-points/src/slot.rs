//! A name's place in its group: the claims to the name, and the loaded plugin.

use std::path::Path;
use std::sync::Arc;

use crate::claim::{Candidate, Claim};
use crate::declaration::Declaration;
use crate::defaults::Effect;
use crate::entry_point::EntryPoint;
use crate::error::{EntryName, LoadError, OptionError, Provider, RegisterError, UnknownOption};
use crate::failure::LoadFailure;
use crate::index::Named;
use crate::message::{and, shown_path};
use crate::nearest::nearest;
use crate::once_load::{Interrupted, OnceLoad, Remember, Stage};
use crate::options::{self, OptionOrigin, OptionValue, Options};
use crate::report::Row;
use crate::state::State;
use crate::switches::Settings;
use crate::sync::{AtomicBool, Mutex, Ordering, Orphaned};
use crate::verdict::{self, Standing, Verdict};
use crate::versions::Versions;

/// A broken plugin stays broken until the program retries. A missing driver or hardware may turn up later.
fn remember(error: &LoadError) -> Remember {
    match error {
        LoadError::Unavailable { .. } => Remember::For(LoadFailure::UNAVAILABLE_FOR),
        _ => Remember::UntilRetry,
    }
}

/// A name's place in its group. It is leaked, so that an [`Entry`](crate::Entry) is a plain reference.
pub(crate) struct Slot<P: ?Sized + 'static> {
    pub(crate) name: &'static str,
    pub(crate) group: &'static Declaration,
    plugin: OnceLoad<&'static P, LoadError>,
    /// Whether a candidate has the name: a copy that look-ups read with one atomic load, since `claims` is a
    /// list.
    usable: AtomicBool,
    claims: Versions<Claims<P>>,
    /// The options in force, declared or not. Locked while one is set, and briefly by loads and reports.
    options: Mutex<Vec<OptionValue>>,
    /// The environment's options, which are in force at first.
    options_at_first: Vec<OptionValue>,
}

/// The claims to a name, and the decision on them.
pub(crate) struct Claims<P: ?Sized + 'static> {
    /// Never empty.
    pub(crate) candidates: Vec<Candidate<P>>,
    /// One verdict for each candidate.
    verdicts: Vec<Verdict>,
    pub(crate) standing: Standing,
    /// Whether the name was used. From then on the entry point that has the name stays the same.
    in_use: bool,
}

impl<P: ?Sized + Send + Sync + 'static> Slot<P> {
    pub(crate) fn new(
        name: &'static str,
        group: &'static Declaration,
        candidates: Vec<Candidate<P>>,
        settings: &Settings,
        options: Vec<OptionValue>,
    ) -> Self {
        let claims = Claims::judged(candidates, group.reserves(name), settings);
        Self {
            name,
            group,
            plugin: OnceLoad::remembering(remember),
            usable: AtomicBool::new(claims.is_usable()),
            claims: Versions::new(claims),
            options: Mutex::new(options.clone()),
            options_at_first: options,
        }
    }

    /// The claims to the name. Takes no lock.
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
        let load = || match point.call(&self.options_for(point)?) {
            // Leaked on purpose: nothing is unloaded, so that `&'static P` is sound.
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
        let name = (self.group.name.name, self.name);
        let plugin = if retry {
            self.plugin.retry(name, load, interrupted)
        } else {
            self.plugin.get_or_load(name, load, interrupted)
        };
        plugin.copied()
    }

    /// The entry point that has the name. It keeps the name from now on.
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

    /// The options in force, for an attempt to load `point`, which has begun.
    ///
    /// `set_option` looks whether an attempt has begun and adds its option, both under the lock. So an option
    /// that it has accepted is in this list, or a later attempt reads it.
    fn options_for(&self, point: &EntryPoint<P>) -> Result<Options, LoadError> {
        let entry = || self.entry_name(point);
        let Ok(options) = self.options.lock() else { return Err(LoadError::Forked { entry: entry() }) };
        let values = options.clone();
        drop(options);
        match values.iter().find(|value| !point.declares(value.name())) {
            Some(value) => {
                let unknown = unknown_option(point, value.name(), Some(value.origin().clone()));
                Err(LoadError::Failed { entry: entry(), failure: LoadFailure::from(unknown) })
            }
            None => Ok(Options::declared(point.options(), &values)),
        }
    }

    /// The options in force that one of the candidates declares, for reports.
    pub(crate) fn options_of(&self, point: &EntryPoint<P>) -> Vec<OptionValue> {
        Options::declared(point.options(), &self.options_in_force()).into_values()
    }

    /// The options in force, for reports. They are the environment's if another thread of the parent process
    /// was setting one at the time of the fork: a report never fails.
    fn options_in_force(&self) -> Vec<OptionValue> {
        self.options.lock().map_or_else(|Orphaned| self.options_at_first.clone(), |options| options.clone())
    }

    /// Sets an option that the entry point with this name declares, for the next attempt to load it.
    pub(crate) fn set_option(&self, option: &str, value: String) -> Result<(), OptionError> {
        let claims = self.claims();
        let point = claims.declarer(option).unwrap_or(claims.representative());
        let entry = self.entry_name(point);
        let Some(spec) = point.options().iter().find(|spec| spec.name() == option) else {
            return Err(OptionError::UnknownOption {
                entry,
                option: Arc::new(unknown_option(point, option, None)),
            });
        };
        let Ok(mut options) = self.options.lock() else { return Err(OptionError::Forked { entry }) };
        match self.plugin.stage() {
            Stage::NotLoaded | Stage::Failed(_) => {
                let origin = OptionOrigin::Program;
                options::set(&mut options, OptionValue { name: option.into(), value: value.into(), origin });
                Ok(())
            }
            Stage::Loading { .. } => Err(OptionError::Loading { entry, option: spec.name() }),
            Stage::Loaded { .. } => Err(OptionError::Loaded { entry, option: spec.name() }),
        }
    }

    /// What has become of the default of an option.
    pub(crate) fn effect_of_option(&self, option: &str) -> Effect {
        let claims = self.claims();
        if claims.declarer(option).is_none() {
            return Effect::UnknownOption(unknown_option(claims.representative(), option, None));
        }
        match self.options_in_force().into_iter().find(|value| value.name() == option) {
            Some(value) if !matches!(value.origin(), OptionOrigin::Defaults(_)) => {
                Effect::Replaced { by: value.origin().to_string() }
            }
            _ => Effect::InForce,
        }
    }

    /// The options in force that no entry point with this name has, as notes for reports.
    pub(crate) fn unknown_options(&self) -> impl Iterator<Item = String> {
        let claims = self.claims();
        let unknown =
            self.options_in_force().into_iter().filter(|value| claims.declarer(value.name()).is_none());
        unknown.map(|value| {
            let point = claims.representative();
            let entry = &self.group.name.entry(self.name);
            let unknown = unknown_option(point, value.name(), Some(value.origin().clone()));
            format!("{entry}: {}", unknown.to_string().lines().next().unwrap_or_default())
        })
    }

    /// A row of a report for each candidate.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let claims = self.claims();
        let row = |(at, candidate): (usize, &Candidate<P>)| {
            let point = candidate.point;
            let place = candidate.point.declared_at();
            Row {
                name: point.name(),
                package: point.package(),
                version: point.version(),
                value: point.value(),
                declared_at: format!("{}:{}", place.file(), place.line()),
                file: point.file(),
                built_in: candidate.claim == Claim::BuiltIn,
                state: self.state_of(claims, at),
                options: self.options_of(point),
            }
        };
        claims.candidates.iter().enumerate().map(row).collect()
    }

    /// The state of one of the candidates.
    pub(crate) fn state_of(&self, claims: &Claims<P>, candidate: usize) -> State {
        match &claims.verdicts[candidate] {
            Verdict::Off { by } => State::Disabled { by: Arc::clone(by) },
            Verdict::Duplicate { of } => State::Duplicate { of: Arc::clone(of) },
            Verdict::On => match self.plugin.stage() {
                Stage::NotLoaded if claims.candidates[candidate].point.file().is_some() => State::Installed,
                Stage::NotLoaded => State::Linked,
                Stage::Loading { elapsed } => State::Loading { elapsed },
                Stage::Loaded { took } => State::Loaded { took },
                Stage::Failed(error) => match &*error {
                    LoadError::Unavailable { .. } => State::Unavailable { cause: error.in_words() },
                    _ => State::Failed { cause: error.in_words() },
                },
            },
        }
    }

    /// Adds a claim of `point` to the name. An entry point in use keeps the name; a refused claim is only
    /// listed.
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
            // It is already listed, and a refused claim must not replace the earlier one.
            Some(_) if result.is_err() => return Ok(result),
            // It moves to the end of the list, since the last override has the name.
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

    /// Whether the file is installed under this name.
    pub(crate) fn has_file(&self, file: &Path) -> bool {
        self.claims().candidates.iter().any(|candidate| candidate.point.file() == Some(file))
    }

    fn refusal(&self, claims: &Claims<P>, point: &EntryPoint<P>, claim: Claim) -> Option<RegisterError> {
        let by = point.provider();
        let others: Vec<_> =
            claims.candidates.iter().filter(|candidate| !std::ptr::eq(candidate.point, point)).collect();
        if self.group.reserves(self.name) || others.iter().any(|other| other.claim == Claim::BuiltIn) {
            return Some(self.group.belongs_to_group(point));
        }
        let holders = || and(&others.iter().map(|other| other.point.provider()).collect::<Vec<_>>());
        let entry = || EntryName {
            name: self.name,
            group: &self.group.name,
            provider: Arc::new(Provider { name: holders(), remedy: String::new() }),
        };
        // Listed only: an entry point in use takes precedence.
        if claim == Claim::Installed {
            return None;
        }
        if claims.in_use {
            return Some(RegisterError::InUse { entry: entry(), by });
        }
        // An override keeps the name even if a switch disables it.
        let holds = |at: usize| {
            let candidate = &claims.candidates[at];
            let is_off = matches!(claims.verdicts[at], Verdict::Off { .. });
            // A registered entry point takes precedence over an installed one.
            let gives_way = candidate.claim == Claim::Installed;
            !std::ptr::eq(candidate.point, point)
                && !gives_way
                && (!is_off || candidate.claim == Claim::Override)
        };
        let taken = (0..claims.candidates.len()).any(holds);
        (claim == Claim::Registered && taken).then(|| RegisterError::Taken { entry: entry(), by })
    }

    /// The entry point that has the name, or the error that says why none has it.
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
                    offered_by: claims.providers(rivals),
                    remedy,
                })
            }
        }
    }

    pub(crate) fn entry_name(&self, point: &EntryPoint<P>) -> EntryName {
        let mut remedy = self.group.remedy_for_failure(point);
        if let Some(other) = self.hidden_file(point) {
            let between = if remedy.is_empty() { "" } else { "; " };
            let other = shown_path(other);
            remedy += &format!(
                "{between}`{other}` offers it too, and has the name where this file is not installed"
            );
        }
        let provider = Arc::new(Provider { name: point.provider(), remedy });
        EntryName { name: self.name, group: &self.group.name, provider }
    }

    /// The file that would have the name without the file of `point`.
    fn hidden_file(&self, point: &EntryPoint<P>) -> Option<&'static Path> {
        let claims = self.claims();
        let hides = |candidate: &Candidate<P>| std::ptr::eq(candidate.point, point) && point.file().is_some();
        if !claims.candidates.iter().any(hides) {
            return None;
        }
        let verdicts = claims.candidates.iter().zip(&claims.verdicts);
        let mut hidden = verdicts.filter(|(candidate, verdict)| {
            candidate.claim == Claim::Installed && matches!(verdict, Verdict::Duplicate { .. })
        });
        hidden.find_map(|(candidate, _)| candidate.point.file())
    }
}

fn unknown_option<P: ?Sized>(
    point: &EntryPoint<P>,
    asked: &str,
    set_by: Option<OptionOrigin>,
) -> UnknownOption {
    let known = point.options();
    let nearest = nearest(asked, known.iter().map(|spec| spec.name()));
    UnknownOption { asked: asked.to_owned(), set_by, nearest, known }
}

impl<P: ?Sized> Named for Slot<P> {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl<P: ?Sized> Claims<P> {
    /// Decides which candidate has the name.
    fn judged(candidates: Vec<Candidate<P>>, reserved: bool, settings: &Settings) -> Self {
        let verdicts = verdict::judge(&candidates, reserved, settings);
        let standing = verdict::standing(&candidates, &verdicts);
        Self { candidates, verdicts, standing, in_use: false }
    }

    fn is_usable(&self) -> bool {
        matches!(self.standing, Standing::On(_))
    }

    pub(crate) fn representative(&self) -> &'static EntryPoint<P> {
        let at = match &self.standing {
            Standing::On(at) | Standing::Off(at) => *at,
            Standing::Duplicate(rivals) => rivals[0],
        };
        self.candidates[at].point
    }

    /// The entry point that has the name and declares the option. If several claim the name and none has it,
    /// one of them that declares it.
    fn declarer(&self, option: &str) -> Option<&'static EntryPoint<P>> {
        let points = match &self.standing {
            Standing::On(at) | Standing::Off(at) => std::slice::from_ref(at),
            Standing::Duplicate(rivals) => rivals,
        };
        points.iter().map(|&at| self.candidates[at].point).find(|point| point.declares(option))
    }

    /// The packages of some candidates. If two come from one package, their places in the source distinguish
    /// them.
    pub(crate) fn providers(&self, candidates: &[usize]) -> Arc<[String]> {
        let points = || candidates.iter().map(|&at| self.candidates[at].point);
        let alike = |provider: &str| points().filter(|point| point.provider() == provider).count() > 1;
        let provider = |point: &EntryPoint<P>| match point.provider() {
            provider if alike(&provider) && point.package().is_some() => {
                format!("{provider} ({}:{})", point.declared_at().file(), point.declared_at().line())
            }
            provider => provider,
        };
        points().map(provider).collect()
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

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;
    use crate::options::OptionSpec;
    use crate::switches::Switches;
    use crate::sync::model::in_every_order;

    static GROUP: Declaration = Declaration::new("model");
    static POINT: EntryPoint<bool> = EntryPoint::with_options(
        "x",
        |options| Ok(Box::new(options.get("y").is_some())),
        &[OptionSpec::new("y", "anything")],
    );

    #[test]
    fn an_option_that_was_accepted_is_used_by_the_load_that_races_with_it() {
        in_every_order(|| {
            let candidates = vec![Candidate { point: &POINT, claim: Claim::Registered }];
            let settings = Settings::from_code(&Switches::default());
            let slot = Slot::new("x", &GROUP, candidates, &settings, Vec::new());
            // This thread makes the loom objects of the slot.
            assert!(slot.loaded().is_none() && slot.claims().is_usable());
            assert_eq!(slot.options_of(&POINT), []);
            let slot = Arc::new(slot);
            let sets = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.set_option("y", "1".to_owned()))
            };
            let used = *slot.load(false).unwrap();
            match sets.join().unwrap() {
                Ok(()) => assert!(used, "the option was accepted and ignored"),
                Err(OptionError::Loading { .. } | OptionError::Loaded { .. }) => assert!(!used),
                Err(other) => panic!("{other}"),
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::group::Group;
    use crate::sync::pass;

    #[test]
    fn only_an_unavailable_plugin_is_looked_at_again_by_itself() {
        static GROUP: Group<u8> = Group::new("test.again");
        static LOADS: AtomicUsize = AtomicUsize::new(0);
        fn counted<T>(value: T) -> T {
            LOADS.fetch_add(1, Ordering::Relaxed);
            value
        }
        static ABSENT: EntryPoint<u8> =
            EntryPoint::new("absent", || counted(Err(LoadFailure::unavailable("no driver"))));
        static BROKEN: EntryPoint<u8> =
            EntryPoint::new("broken", || counted(Err(LoadFailure::new("a defect"))));
        static PANICS: EntryPoint<u8> = EntryPoint::new("panics", || panic!("{}", counted("on purpose")));
        for (point, again) in [(&ABSENT, 1), (&BROKEN, 0), (&PANICS, 0)] {
            GROUP.register(point).unwrap();
            let loads = |time| {
                pass(time);
                let before = LOADS.load(Ordering::Relaxed);
                assert!(GROUP.load(point.name()).is_err());
                LOADS.load(Ordering::Relaxed) - before
            };
            assert_eq!(loads(Duration::ZERO), 1, "{point:?}");
            assert_eq!(loads(LoadFailure::UNAVAILABLE_FOR - Duration::from_nanos(1)), 0, "{point:?}");
            assert_eq!(loads(Duration::from_nanos(1)), again, "{point:?}");
            assert_eq!(loads(Duration::ZERO), 0, "{point:?}");
        }
    }
}
