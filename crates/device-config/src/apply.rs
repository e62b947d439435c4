//! Setting what a file says.

use std::env;
use std::path::Path;

use device_registry::registry::{Defaults, DefaultsError};
use device_registry::{DeviceError, Selection, default_selection, set_default_selection};
use entry_points::by_name;
use entry_points::message::{did_you_mean, shown, shown_path};

use crate::document::{Document, GroupTable};
use crate::error::Error;
use crate::report::{ConfigValue, Effect};
use crate::source::{At, Located, Mistake};

/// Looks for every mistake that can be found before anything is set, and returns the default selection.
pub(crate) fn check(file: &Path, document: &Document) -> Result<Option<Selection>, Error> {
    for group in &document.groups {
        by_name::accepts_defaults(group.name).map_err(|error| refused(file, group.at, &error))?;
    }
    let Some(default) = &document.default else { return Ok(None) };
    let selection = Selection::parse(&default.value).map_err(|error| wrong_default(file, default, &error))?;
    // The program's own is known only where no variable hides it.
    if variable().is_none() && matches!(default_selection(), Ok(Some(_))) {
        let message =
            "the program has set the devices of `auto` in code, by `set_default_selection`".to_owned();
        return Err(Error::too_late(file, Mistake { at: default.at, message }));
    }
    Ok(Some(selection))
}

/// Sets everything but the folders of plugins.
pub(crate) fn apply(file: &Path, document: &Document, selection: Option<Selection>) -> Result<(), Error> {
    if let (Some(default), Some(selection)) = (&document.default, selection) {
        set_default_selection(selection).map_err(|error| wrong_default(file, default, &error))?;
    }
    for group in &document.groups {
        let defaults = group.defaults(file);
        by_name::set_defaults(group.name, &defaults).map_err(|error| refused(file, group.at, &error))?;
    }
    Ok(())
}

/// The values of the file and what has become of each, once all entries are known.
pub(crate) fn values(file: &Path, document: &Document) -> Result<Vec<ConfigValue>, Error> {
    let mut values = Vec::new();
    if let Some(Located { value, at }) = &document.default {
        let effect = variable().map_or(Effect::InForce, |by| Effect::Replaced { by });
        values.push(ConfigValue {
            line: at.line,
            key: "default".to_owned(),
            value: format!("{value:?}"),
            effect,
        });
    }
    if let Some(Located { value, at }) = &document.plugins {
        let missing: Vec<_> =
            value.iter().filter(|folder| !folder_of(file, folder).is_dir()).cloned().collect();
        let effect = match &missing[..] {
            // The report of the plugins has each folder, so that one that is there is enough here.
            some if some.len() < value.len() || some.is_empty() => Effect::InForce,
            some => Effect::Idle { reason: format!("there is no folder {}", some.join(", ")) },
        };
        values.push(ConfigValue {
            line: at.line,
            key: "plugins".to_owned(),
            value: format!("{value:?}"),
            effect,
        });
    }
    for group in &document.groups {
        group.values(file, &mut values)?;
    }
    values.sort_by_key(|value| value.line);
    Ok(values)
}

/// A folder of plugins. A relative one is relative to the file.
pub(crate) fn folder_of(file: &Path, folder: &str) -> std::path::PathBuf {
    file.parent().unwrap_or(file).join(folder)
}

/// The variable of the default selection with its value, if it is in force.
fn variable() -> Option<String> {
    let value = env::var_os(Selection::DEFAULT_VARIABLE).filter(|value| !value.is_empty())?;
    Some(format!("{}={}", Selection::DEFAULT_VARIABLE, shown(&value.to_string_lossy())))
}

fn wrong_default(file: &Path, default: &Located<String>, error: &DeviceError) -> Error {
    let message = match error {
        // Its own message names the program as the place.
        DeviceError::DefaultSelection { error, .. } => format!("`default`: {error}"),
        other => format!("`default`: {other}"),
    };
    Error::invalid(file, Mistake { at: default.at, message })
}

fn refused(file: &Path, at: At, error: &DefaultsError) -> Error {
    let help = match error {
        DefaultsError::InUse { group, .. } => {
            format!("{group} is already in use; load the file first in `main`, before any look-up or listing")
        }
        DefaultsError::Configured { .. } => {
            format!("{error}; leave them to the file, or take the group out of it")
        }
        other => format!("{other}; a process loads one file, once"),
    };
    Error::too_late(file, Mistake { at, message: help })
}

impl GroupTable {
    fn defaults(&self, file: &Path) -> Defaults {
        let origin = |at: &At| format!("{}:{}", shown_path(file), at.line);
        let mut defaults = Defaults::new();
        if let Some(Located { value, at }) = &self.autoload {
            defaults = defaults.autoload(*value, &origin(at));
        }
        if let Some(Located { value, at }) = &self.installed {
            defaults = defaults.installed(*value, &origin(at));
        }
        if let Some(Located { value, at }) = &self.disable {
            defaults = defaults.disable(value, &origin(at));
        }
        if let Some(Located { value, at }) = &self.select {
            defaults = defaults.select(value, &origin(at));
        }
        for one in &self.options {
            let Located { value, at } = &one.value;
            defaults = defaults.option(&one.name, &one.option, value, &origin(at));
        }
        defaults
    }

    fn values(&self, file: &Path, values: &mut Vec<ConfigValue>) -> Result<(), Error> {
        let mut switch = |name: &str, at: At, value: String| {
            let effect = match by_name::effect_of_switch(self.name, name) {
                by_name::Effect::Replaced { by } => Effect::Replaced { by },
                _ => Effect::InForce,
            };
            values.push(ConfigValue { line: at.line, key: format!("{}.{name}", self.name), value, effect });
        };
        for (name, flag) in [("autoload", &self.autoload), ("installed", &self.installed)] {
            if let Some(Located { value, at }) = flag {
                switch(name, *at, value.to_string());
            }
        }
        for (name, list) in [("disable", &self.disable), ("select", &self.select)] {
            if let Some(Located { value, at }) = list {
                switch(name, *at, format!("{value:?}"));
            }
        }
        for one in &self.options {
            let name = &one.name;
            let option = &one.option;
            let at = one.value.at;
            let effect = match by_name::effect_of_option(self.name, name, option) {
                by_name::Effect::InForce => Effect::InForce,
                by_name::Effect::Replaced { by } => Effect::Replaced { by },
                by_name::Effect::UnknownName { noun, nearest } => {
                    let similar = did_you_mean(nearest);
                    Effect::Idle { reason: format!("no {noun} is called `{}`{similar}", shown(name)) }
                }
                by_name::Effect::UnknownOption(unknown) => {
                    let message = format!("`{}` of {}: {unknown}", shown(name), self.name);
                    return Err(Error::invalid(file, Mistake { at, message }));
                }
            };
            let key = format!("{}.options.{}.{}", self.name, shown(name), shown(option));
            let value = format!("{:?}", one.value.value);
            values.push(ConfigValue { line: at.line, key, value, effect });
        }
        Ok(())
    }
}
