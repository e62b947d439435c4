//! The default selection: the list that `auto` stands for.

use std::ffi::OsString;
use std::sync::{PoisonError, RwLock};

use crate::device::grammar::SyntaxErrorKind;
use crate::device::list::{DEFAULT_VARIABLE, Form};
use crate::error::DeviceError;
use crate::selection::Selection;

static SET_BY_THE_PROGRAM: RwLock<Option<Selection>> = RwLock::new(None);

/// The devices that `auto` stands for: the list in the variable `DEVICE_DEFAULT`, or else the one that the
/// program [has set](set_default_selection). `None` if there is neither; an empty variable counts as none.
///
/// Nothing uses it unless a device string or a list says `auto`. In particular, the [default
/// device](crate::default_device) of a thread is independent of it: cpu, until the program sets it.
///
/// ```no_run
/// // DEVICE_DEFAULT='*:gpu(free),cpu'
/// let device = device_registry::device("auto")?;
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::DefaultSelection`] if the variable is not a list of devices, or has `auto` in it.
pub fn default_selection() -> Result<Option<Selection>, DeviceError> {
    if let Some(selection) = of_variable(std::env::var_os(DEFAULT_VARIABLE))? {
        return Ok(Some(selection));
    }
    Ok(SET_BY_THE_PROGRAM.read().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Sets the devices that `auto` stands for if the variable `DEVICE_DEFAULT` is not set: a program passes on
/// what its own configuration says.
///
/// ```
/// use device_registry::{Device, Selection, device, set_default_selection};
///
/// set_default_selection(Selection::parse("no_such_backend,cpu")?)?;
/// assert_eq!(device("auto")?, Device::cpu());
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::DefaultSelection`] if the list has `auto` in it: what was set before stays.
pub fn set_default_selection(selection: Selection) -> Result<(), DeviceError> {
    let selection = without_auto(selection).map_err(|error| fail("the program", error))?;
    *SET_BY_THE_PROGRAM.write().unwrap_or_else(PoisonError::into_inner) = Some(selection);
    Ok(())
}

/// The default selection, for an `auto` that needs it.
pub(super) fn needed() -> Result<Selection, DeviceError> {
    default_selection()?.ok_or(DeviceError::NoDefaultSelection)
}

fn of_variable(value: Option<OsString>) -> Result<Option<Selection>, DeviceError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    // Where it is not UTF-8, the replacement character is an invalid one.
    let selection = Selection::parse(&value.to_string_lossy()).and_then(without_auto);
    selection.map(Some).map_err(|error| fail(DEFAULT_VARIABLE, error))
}

fn without_auto(selection: Selection) -> Result<Selection, DeviceError> {
    match selection.list.items.iter().any(|item| item.form == Form::Auto) {
        true => Err(selection.syntax_error(SyntaxErrorKind::Recursive)),
        false => Ok(selection),
    }
}

fn fail(origin: &'static str, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Syntax(error) => DeviceError::DefaultSelection { origin, error },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unset_or_empty_variable_is_no_selection() {
        assert_eq!(of_variable(None).unwrap(), None);
        assert_eq!(of_variable(Some("".into())).unwrap(), None);
        assert_eq!(of_variable(Some("cpu".into())).unwrap().unwrap().to_string(), "cpu");
    }

    #[test]
    fn the_error_names_the_variable() {
        let message = |value: &str| of_variable(Some(value.into())).unwrap_err().to_string();
        assert!(
            message("cuda:gqu").starts_with("DEVICE_DEFAULT: invalid device string `cuda:gqu`: unknown kind")
        );
        assert_eq!(
            message("cuda,auto"),
            "DEVICE_DEFAULT: invalid device string `cuda,auto`: `auto` stands for this list, and cannot be in it"
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_variable_that_is_not_utf_8_is_an_error() {
        use std::os::unix::ffi::OsStringExt;
        let error = of_variable(Some(OsString::from_vec(vec![b'c', 0xff]))).unwrap_err().to_string();
        assert!(error.starts_with("DEVICE_DEFAULT: invalid device string"), "{error}");
    }

    #[test]
    fn the_program_cannot_set_auto_to_itself() {
        let error = set_default_selection(Selection::parse("auto").unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("the program: invalid device string `auto`: `auto` stands for"), "{error}");
    }
}
