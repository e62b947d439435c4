//! Choosing one of several devices: by a list, or by the program's own rule.

pub(crate) mod auto;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::str::FromStr;
use std::sync::Arc;

use crate::available::enabled_backends;
use crate::backend::{DeviceKind, DeviceProperties, backends};
use crate::device::Device;
use crate::device::grammar::{SyntaxError, SyntaxErrorKind};
use crate::device::list::{DEFAULT_VARIABLE, Exclusion, Form, Item, List, Order, Pattern};
use crate::error::{DeviceError, NoMatch, NoneAvailable};
use crate::runtime::isolation::log_isolated;
use crate::runtime::{listing, probe};

/// A list of devices to choose from, such as `cuda,opencl:gpu,cpu`: the first available one is chosen.
///
/// ```text
/// list      = part { "," part }
/// part      = item | "!" exclusion
/// item      = device | "auto" | pattern [ "(" order ")" ] | name "(" order ")"
/// pattern   = ( name | "*" ) ":" kind | "*"
/// kind      = "cpu" | "gpu" | "discrete_gpu" | "integrated_gpu" | "accelerator" | "simulated" | "other" | "*"
/// order     = "free" | "memory"
/// exclusion = device | pattern
/// ```
///
/// `device` and `name` are as in [a device string](Device#device-strings). At least one part is an item, and
/// at most 256 are exclusions. Spaces are invalid.
///
/// | part | what it names |
/// |---|---|
/// | `cuda:1`, `cuda@pci=3b:00.0` | this device |
/// | `cuda` | the current device of the backend |
/// | `cuda:*` | each device of the backend, in its order |
/// | `opencl:gpu` | each one that is a graphics processor; its [kind](crate::DeviceKind) is `Gpu` or `IntegratedGpu` |
/// | `*:discrete_gpu` | the same for all backends, in the order of their names; here only GPUs with their own
/// memory |
/// | `*` | every device of every backend, `cpu` too |
/// | `*:gpu(free)` | the devices with the most [free memory](Device::memory_info) first; a device that does
/// not know it comes last. **It opens each of them**, and they stay open. |
/// | `*:gpu(memory)` | the devices with the most memory first, by their properties |
/// | `!wgpu`, `!*:cpu`, `!cuda:0` | excluded, wherever the part stands in the list: the backend, which is not loaded; devices of the kind; this device |
/// | `auto` | the devices of the [default selection](crate::default_selection) |
///
/// Only with a list does the registry choose between devices, and only among the devices that the list names.
/// Backends are loaded as the list is read, up to the chosen device.
///
/// ```
/// use device_registry::{Device, Selection};
///
/// let selection = Selection::parse("*:gpu,!wgpu,cpu")?;
/// # let selection = Selection::parse("no_such_backend,cpu:*")?;
/// let chosen = selection.first_available()?;
/// # assert_eq!(chosen.device, Device::cpu());
/// println!("{}", chosen.device);
/// for (text, cause) in &chosen.passed_over {
///     println!("not {text}: {cause}");
/// }
///
/// let error = Selection::parse("cuda,opencl:gqu").unwrap_err().to_string();
/// assert!(error.starts_with(
///     "invalid item `opencl:gqu`, at character 6 of `cuda,opencl:gqu`: unknown kind `gqu` of device; the kinds are "
/// ));
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Selection {
    text: String,
    list: List,
}

/// The device that was chosen, and what was passed over for it. It is used as the device.
///
/// ```
/// use device_registry::first_available;
///
/// let buffer = first_available("no_such_backend:1,cpu")?.allocate(4)?;
/// assert_eq!(buffer.len(), 4);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// Each device, backend and item that was tried before it, with the reason why it cannot be used.
    pub passed_over: Vec<(String, DeviceError)>,
}

impl Deref for Chosen {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl From<Chosen> for Device {
    fn from(chosen: Chosen) -> Self {
        chosen.device
    }
}

/// A device that a program may choose: see [`choose`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The device, with its index. It is present.
    pub device: Device,
    /// Its properties.
    pub properties: DeviceProperties,
}

/// The first available device of a list such as `cuda:1,opencl:gpu,cpu`, and what was passed over for it. A
/// short form of [`Selection::first_available`].
///
/// ```
/// use device_registry::{Device, first_available};
///
/// let chosen = first_available("no_such_backend:1,cpu")?;
/// assert_eq!(chosen.device, Device::cpu());
/// for (text, cause) in &chosen.passed_over {
///     eprintln!("{text} is not used: {cause}");
/// }
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::Syntax`] if any part of the list is not well formed, even one after an available device.
/// Otherwise the errors of [`Selection::first_available`].
pub fn first_available(list: &str) -> Result<Chosen, DeviceError> {
    Selection::parse(list)?.first_available()
}

/// The device that `choice` returns, from all available devices of a [list](Selection), in its order: `*` for
/// the devices of all backends.
///
/// It loads every backend that the list names. It opens no device, unless the list has the order `(free)`, or
/// `choice` does.
///
/// ```
/// use device_registry::{DeviceKind, choose};
///
/// // The device that can make the largest allocation, and no simulated one.
/// let chosen = choose("*,!*:simulated", |devices| {
///     devices.iter().max_by_key(|candidate| candidate.properties.largest_allocation)
/// })?;
/// assert_ne!(chosen.device.properties()?.kind, DeviceKind::Simulated);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::Syntax`] if the list is not well formed, [`DeviceError::DefaultSelection`] if it says
/// `auto` and the default selection is not. [`DeviceError::NoneAvailable`] if no device is available, or
/// `choice` returns `None`.
pub fn choose(
    list: &str,
    choice: impl for<'a> FnOnce(&'a [Candidate]) -> Option<&'a Candidate>,
) -> Result<Chosen, DeviceError> {
    let mut search = Search::default();
    let mut candidates = Vec::new();
    #[expect(clippy::mutable_key_type, reason = "what hashes and compares devices never changes")]
    let mut seen = HashSet::new();
    let _: ControlFlow<()> = search.walk(&Selection::parse(list)?, &[], &mut |search, device| {
        let device = device.resolve();
        if seen.insert(device) {
            match listing::properties_of_counted(device) {
                Ok(properties) => candidates.push(Candidate { device, properties }),
                Err(cause) => search.pass_over(device, cause),
            }
        }
        ControlFlow::Continue(())
    })?;
    match choice(&candidates) {
        Some(chosen) => Ok(Chosen { device: chosen.device, passed_over: search.passed_over }),
        None => {
            let declined = candidates.into_iter().map(|candidate| candidate.device).collect();
            Err(search.into_error(declined))
        }
    }
}

impl Selection {
    /// The variable of the [default selection](crate::default_selection): `DEVICE_DEFAULT`.
    pub const DEFAULT_VARIABLE: &str = DEFAULT_VARIABLE;

    /// Reads a list. Runs no backend code, and what the list names need not exist.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Syntax`], with the place in the list.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let list = List::parse(text).map_err(DeviceError::Syntax)?;
        Ok(Self { text: text.to_owned(), list })
    }

    /// The first device of the list that is available, and what was passed over for it.
    ///
    /// It passes over a device whose backend is not linked, is disabled or fails to load, and a device that
    /// does not exist, is excluded, absent or lost. The result and the log (level *info*) have the cause for
    /// each. It does not load the backends after the first available device, and opens nothing, except for
    /// the order `(free)`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoneAvailable`], with the cause for each device, if none is available.
    /// [`DeviceError::DefaultSelection`] if the list says `auto` and the default selection is not well
    /// formed.
    pub fn first_available(&self) -> Result<Chosen, DeviceError> {
        let mut search = Search::default();
        match search.walk(self, &[], &mut |_, device| ControlFlow::Break(device))? {
            ControlFlow::Break(device) => Ok(Chosen { device, passed_over: search.passed_over }),
            ControlFlow::Continue(()) => Err(search.into_error(Vec::new())),
        }
    }

    fn syntax_error(&self, kind: SyntaxErrorKind) -> DeviceError {
        DeviceError::Syntax(SyntaxError::new(&self.text, kind))
    }
}

/// Writes the list as it was read.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selection").field(&self.text).finish()
    }
}

impl FromStr for Selection {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        Self::parse(text)
    }
}

/// The device of the string `auto`.
pub(crate) fn auto_device() -> Result<Device, DeviceError> {
    Ok(auto::needed()?.first_available()?.device)
}

/// What to do with an available device.
type Visit<'a, B> = dyn FnMut(&mut Search, Device) -> ControlFlow<B> + 'a;

/// A walk over the devices of a list, with what it has passed over.
#[derive(Default)]
struct Search {
    passed_over: Vec<(String, DeviceError)>,
}

impl Search {
    /// Visits the available devices in their order, until `visit` breaks.
    fn walk<B>(
        &mut self,
        selection: &Selection,
        outer: &[&Exclusion],
        visit: &mut Visit<'_, B>,
    ) -> Result<ControlFlow<B>, DeviceError> {
        let exclusions: Vec<_> = outer.iter().copied().chain(&selection.list.exclusions).collect();
        for item in &selection.list.items {
            let flow = match &item.form {
                Form::Device => self.device(item, &exclusions, visit),
                Form::Pattern(pattern) => self.pattern(item, pattern, &exclusions, visit),
                Form::Auto => match auto::needed() {
                    Ok(default) => self.walk(&default, &exclusions, visit)?,
                    Err(cause @ DeviceError::NoDefaultSelection) => {
                        self.pass_over(&item.text, cause);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn device<B>(
        &mut self,
        item: &Item,
        exclusions: &[&Exclusion],
        visit: &mut Visit<'_, B>,
    ) -> ControlFlow<B> {
        let name = item.text.split([':', '@']).next().unwrap_or_default();
        let found = check_backend_included(name, exclusions).and_then(|()| {
            let device = Device::parse(&item.text)?;
            listing::check_present(device)?;
            check_included(device, exclusions)?;
            Ok(device)
        });
        match found {
            Ok(device) => visit(self, device),
            Err(cause) => {
                self.pass_over(&item.text, cause);
                ControlFlow::Continue(())
            }
        }
    }

    fn pattern<B>(
        &mut self,
        item: &Item,
        pattern: &Pattern,
        exclusions: &[&Exclusion],
        visit: &mut Visit<'_, B>,
    ) -> ControlFlow<B> {
        let names = match &pattern.backend {
            Some(name) => vec![name.as_str()],
            None => enabled_backends().map(|backend| backend.name()).collect(),
        };
        let before = self.passed_over.len();
        let mut others = Vec::new();
        let mut ordered = Vec::new();
        let mut matches = false;
        for name in names {
            let devices = check_backend_included(name, exclusions)
                .and_then(|()| probe::devices_of(backends().usable(name)?));
            let devices = match devices {
                Ok(devices) => devices,
                Err(cause) => {
                    self.pass_over(if pattern.backend.is_some() { &item.text } else { name }, cause);
                    continue;
                }
            };
            for device in devices {
                match matching(device, pattern, exclusions) {
                    Ok(Match::Usable(properties)) => {
                        matches = true;
                        if pattern.order.is_some() {
                            ordered.push((device, properties));
                        } else {
                            visit(self, device)?;
                        }
                    }
                    Ok(Match::Unusable(cause)) => {
                        matches = true;
                        self.pass_over(device, cause);
                    }
                    Ok(Match::OtherKind(kind)) => others.push((device, kind)),
                    Err(cause) => self.pass_over(device, cause),
                }
            }
        }
        if let Some(order) = pattern.order {
            for device in self.sorted(order, ordered) {
                visit(self, device)?;
            }
        }
        // Otherwise the devices passed over say why none is used.
        if !matches && (!others.is_empty() || self.passed_over.len() == before) {
            let cause = NoMatch { pattern: item.text.clone(), others };
            self.pass_over(&item.text, DeviceError::NoMatch(Arc::new(cause)));
        }
        ControlFlow::Continue(())
    }

    fn sorted(&mut self, order: Order, devices: Vec<(Device, DeviceProperties)>) -> Vec<Device> {
        let mut keyed = Vec::new();
        for (device, properties) in devices {
            match order {
                Order::TotalMemory => keyed.push((properties.total_memory, device)),
                Order::FreeMemory => match device.memory_info() {
                    Ok(info) => keyed.push((info.free, device)),
                    Err(cause) => self.pass_over(device, cause),
                },
            }
        }
        // The sort is stable: equals stay in the order of the list. An unknown number is the smallest.
        keyed.sort_by_key(|(bytes, _)| Reverse(*bytes));
        keyed.into_iter().map(|(_, device)| device).collect()
    }

    fn pass_over(&mut self, what: impl fmt::Display, cause: DeviceError) {
        log_isolated(|| log::info!("`{what}` is passed over: {cause}"));
        self.passed_over.push((what.to_string(), cause));
    }

    fn into_error(self, declined: Vec<Device>) -> DeviceError {
        DeviceError::NoneAvailable(Arc::new(NoneAvailable { causes: self.passed_over, declined }))
    }
}

/// Whether a device matches a pattern.
enum Match {
    /// It does, with these properties.
    Usable(DeviceProperties),
    /// It does, and it is absent or excluded.
    Unusable(DeviceError),
    /// It does not.
    OtherKind(DeviceKind),
}

/// Compares a device with a pattern.
///
/// # Errors
///
/// If the device has no properties to compare, the reason.
fn matching(device: Device, pattern: &Pattern, exclusions: &[&Exclusion]) -> Result<Match, DeviceError> {
    // An absent device may have no properties, and its presence has the better reason.
    let presence = listing::check_present_of_counted(device);
    let properties = match listing::properties_of_counted(device) {
        Ok(properties) => properties,
        Err(error) => return Err(presence.err().unwrap_or(error)),
    };
    if !pattern.matches(&properties) {
        return Ok(Match::OtherKind(properties.kind));
    }
    Ok(match check_included(device, exclusions).and(presence) {
        Ok(()) => Match::Usable(properties),
        Err(cause) => Match::Unusable(cause),
    })
}

/// Checks that no part excludes all of a backend, which is then not loaded.
fn check_backend_included(name: &str, exclusions: &[&Exclusion]) -> Result<(), DeviceError> {
    match exclusions.iter().find(|exclusion| exclusion.excludes_backend(name)) {
        Some(exclusion) => Err(excluded(name, exclusion)),
        None => Ok(()),
    }
}

fn check_included(device: Device, exclusions: &[&Exclusion]) -> Result<(), DeviceError> {
    for exclusion in exclusions {
        if exclusion.excludes(device, || listing::properties_of_counted(device))? {
            return Err(excluded(device, exclusion));
        }
    }
    Ok(())
}

fn excluded(what: impl fmt::Display, exclusion: &Exclusion) -> DeviceError {
    DeviceError::Excluded { what: what.to_string().into(), exclusion: format!("!{}", exclusion.text).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_available;
    use crate::testing::{device_of, fake};

    /// The names of the device that is chosen and of what is passed over.
    fn chosen(list: &str) -> (String, Vec<String>) {
        device_of("has_kinds");
        let chosen = first_available(list).unwrap_or_else(|error| panic!("{list}: {error}"));
        (chosen.device.to_string(), chosen.passed_over.into_iter().map(|(text, _)| text).collect())
    }

    fn refused(list: &str) -> Arc<NoneAvailable> {
        device_of("has_kinds");
        match first_available(list) {
            Err(DeviceError::NoneAvailable(none)) => none,
            other => panic!("{list}: {other:?}"),
        }
    }

    #[test]
    fn a_kind_stands_where_an_index_may() {
        for (list, device) in [
            ("has_kinds:cpu", 0),
            ("has_kinds:gpu", 1),
            ("has_kinds:integrated_gpu", 1),
            ("has_kinds:discrete_gpu", 3),
            ("has_kinds:*", 0),
            ("has_kinds:accelerator,has_kinds:gpu", 1),
        ] {
            assert_eq!(chosen(list).0, format!("has_kinds:{device}"), "{list}");
        }
        // The first discrete one is absent.
        assert_eq!(chosen("has_kinds:discrete_gpu").1, ["has_kinds:2"]);
    }

    #[test]
    fn a_star_is_every_backend_in_the_order_of_their_names_and_a_broken_one_is_passed_over() {
        device_of("has_kinds");
        device_of("fails_to_load");
        fake(None);
        assert_eq!(chosen("*:cpu,!cpu").0, "has_kinds:0");
        assert_eq!(chosen("*:cpu").0, "cpu");
        let (device, passed_over) = chosen("*:gpu");
        assert_eq!(device, "has_kinds:1");
        assert!(passed_over.contains(&"fails_to_load".to_owned()), "{passed_over:?}");
    }

    #[test]
    fn an_order_sorts_the_devices_that_match_and_an_unknown_number_comes_last() {
        for (list, device) in [
            ("has_kinds:gpu(memory)", 3),
            ("has_kinds:gpu(free)", 1),
            ("has_kinds(free)", 1),
            ("has_kinds(memory)", 3),
            // Only the first does not know it.
            ("has_kinds(free),!has_kinds:1,!has_kinds:3", 0),
        ] {
            assert_eq!(chosen(list).0, format!("has_kinds:{device}"), "{list}");
        }
    }

    #[test]
    fn an_exclusion_holds_for_every_item_wherever_it_stands() {
        for (list, device) in [
            ("!has_kinds:1,has_kinds:gpu", "has_kinds:3"),
            ("has_kinds:gpu,!has_kinds:1", "has_kinds:3"),
            ("has_kinds:gpu,!has_kinds:integrated_gpu", "has_kinds:3"),
            ("has_kinds:gpu,!*:gpu,cpu", "cpu"),
            ("has_kinds:1,!has_kinds,cpu", "cpu"),
            ("has_kinds,!has_kinds:0,cpu", "cpu"),
            ("has_kinds:gpu,!has_kinds@uuid=0d7c8f22,cpu", "has_kinds:3"),
            ("cpu,!no_such_backend", "cpu"),
            ("cpu,!has_kinds@uuid=0d7c8f22", "cpu"),
        ] {
            assert_eq!(chosen(list).0, device, "{list}");
        }
        let none = refused("has_kinds:1,!has_kinds:gpu");
        assert_eq!(none.causes()[0].1.to_string(), "`has_kinds:1` is excluded by `!has_kinds:gpu`");
        let none = refused("has_kinds:gpu(free),!has_kinds:*");
        assert_eq!(
            none.to_string(),
            "none of these devices can be used:\n  has_kinds:gpu(free): `has_kinds` is excluded by `!has_kinds:*`"
        );
        // A device that matches and is excluded is not reported as one that does not match.
        let none = refused("has_kinds:integrated_gpu,!has_kinds:1");
        assert_eq!(none.causes().len(), 1, "{none}");
    }

    #[test]
    fn a_backend_that_is_excluded_is_not_loaded() {
        let backend = device_of("excluded_only").backend();
        for list in [
            "*,!excluded_only",
            "excluded_only,!excluded_only,cpu",
            "excluded_only@uuid=0,!excluded_only,cpu",
        ] {
            let _ = first_available(list);
            assert!(matches!(backend.state(), entry_points::State::Linked), "{list}");
        }
        assert_eq!(chosen("excluded_only:*").0, "excluded_only:0");
        assert!(matches!(backend.state(), entry_points::State::Loaded { .. }));
    }

    #[test]
    fn a_candidate_has_its_index_and_is_there_once() {
        let mut seen = Vec::new();
        device_of("has_kinds");
        let _ = choose("has_kinds,has_kinds:*", |devices| {
            seen.extend(devices.iter().map(|candidate| candidate.device.to_string()));
            None
        });
        assert_eq!(seen, ["has_kinds:0", "has_kinds:1", "has_kinds:3"]);
    }

    #[test]
    fn a_device_without_properties_is_passed_over_where_they_decide() {
        device_of("first_has_no_properties");
        assert_eq!(chosen("first_has_no_properties:*").0, "first_has_no_properties:1");
        assert_eq!(chosen("first_has_no_properties:0,cpu").0, "first_has_no_properties:0");
        let (device, passed_over) = chosen("first_has_no_properties:0,!*:gpu,cpu");
        assert_eq!((&*device, &*passed_over), ("cpu", &["first_has_no_properties:0".to_owned()][..]));
    }

    #[test]
    fn the_error_of_an_item_says_what_it_was_compared_with() {
        let none = refused("has_kinds:accelerator,has_no_such:gpu,!cpu");
        let message = none.to_string();
        let (first, rest) =
            message.split_once("\n  has_no_such:gpu: no backend called `has_no_such` ").unwrap();
        assert_eq!(
            first,
            "none of these devices can be used:\n  has_kinds:accelerator: `has_kinds:accelerator` matches no device: \
             `has_kinds:0` is of kind cpu, `has_kinds:1` is of kind integrated gpu, `has_kinds:2` is of kind gpu and \
             `has_kinds:3` is of kind gpu"
        );
        assert!(rest.contains("device.backends: "), "{message}");
        device_of("has_no_devices");
        assert_eq!(
            refused("has_no_devices:*").causes()[0].1.to_string(),
            "`has_no_devices:*` matches no device: there is none"
        );
    }

    #[test]
    fn nothing_is_opened_without_an_order_by_free_memory() {
        let device = device_of("selected_only");
        assert_eq!(chosen("selected_only:other").0, "selected_only:0");
        assert_eq!(chosen("selected_only(memory)").0, "selected_only:0");
        assert!(crate::runtime::table::find(device.resolve()).unwrap().is_none());
        assert_eq!(chosen("selected_only(free)").0, "selected_only:0");
        assert!(crate::runtime::table::find(device.resolve()).unwrap().is_some());
    }

    #[test]
    fn a_program_chooses_among_what_is_available() {
        device_of("has_kinds");
        let mut seen = Vec::new();
        let chosen = choose("has_kinds:gpu,cpu,cpu", |devices| {
            seen.extend(devices.iter().map(|candidate| candidate.device.to_string()));
            devices.last()
        });
        assert_eq!(seen, ["has_kinds:1", "has_kinds:3", "cpu"]);
        let chosen = chosen.unwrap();
        assert_eq!(chosen.device, Device::cpu());
        assert_eq!(chosen.passed_over[0].0, "has_kinds:2");

        let error = choose("cpu,has_kinds:0", |_| None).unwrap_err();
        assert_eq!(error.to_string(), "the program chose none of `cpu` and `has_kinds:0`");
        let DeviceError::NoneAvailable(none) = error else { panic!() };
        assert_eq!(none.declined().len(), 2);
        let error = choose("has_kinds:2", |devices| devices.first()).unwrap_err().to_string();
        assert!(error.starts_with("none of these devices can be used:\n  has_kinds:2: "), "{error}");
    }

    #[test]
    fn auto_is_an_error_that_names_the_variable_unless_something_sets_it() {
        let message = "`auto` is the list of devices in the variable DEVICE_DEFAULT, which is not set; set it, as in \
                       DEVICE_DEFAULT=cuda,opencl:gpu,cpu, or name a device";
        assert_eq!(crate::device("auto").unwrap_err().to_string(), message);
        assert!(!is_available("auto"));
        let (device, passed_over) = chosen("auto,cpu");
        assert_eq!((&*device, &*passed_over), ("cpu", &["auto".to_owned()][..]));
        assert_eq!(refused("auto").causes()[0].1.to_string(), message);
    }
}
