//! Reports in any format of serde: the feature `serde`. The fields are part of the public interface.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::options::{OptionOrigin, OptionValue};
use crate::report::{Report, Row};
use crate::state::State;

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Report", 5)?;
        fields.serialize_field("group", self.group())?;
        fields.serialize_field("interface", self.interface())?;
        fields.serialize_field("entries", self.rows())?;
        fields.serialize_field("notes", self.notes())?;
        fields.serialize_field("advice", &self.advice())?;
        fields.end()
    }
}

/// All fields, in the order of their declaration; an unknown one is null. A path that is not UTF-8 is shown
/// lossily.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Row", 9)?;
        fields.serialize_field("name", self.name)?;
        fields.serialize_field("package", &self.package)?;
        fields.serialize_field("version", &self.version)?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("declared_at", &self.declared_at)?;
        fields.serialize_field("file", &self.file.map(|file| file.to_string_lossy()))?;
        fields.serialize_field("built_in", &self.built_in)?;
        fields.serialize_field("state", &self.state)?;
        fields.serialize_field("options", &self.options)?;
        fields.end()
    }
}

/// A map with the `kind` and what belongs to it. Times are in seconds. `errors` has the whole message of each
/// error; each one was caused by the next.
impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Linked => map.serialize_entry("kind", "linked")?,
            Self::Installed => map.serialize_entry("kind", "installed")?,
            Self::Disabled { by } => {
                map.serialize_entry("kind", "disabled")?;
                map.serialize_entry("by", &**by)?;
            }
            Self::Loading { elapsed } => {
                map.serialize_entry("kind", "loading")?;
                map.serialize_entry("elapsed", &elapsed.as_secs_f64())?;
            }
            Self::Loaded { took } => {
                map.serialize_entry("kind", "loaded")?;
                map.serialize_entry("took", &took.as_secs_f64())?;
            }
            Self::Unavailable { cause } => {
                map.serialize_entry("kind", "unavailable")?;
                map.serialize_entry("errors", cause.messages())?;
            }
            Self::Failed { cause } => {
                map.serialize_entry("kind", "failed")?;
                map.serialize_entry("errors", cause.messages())?;
            }
            Self::Duplicate { of } => {
                map.serialize_entry("kind", "duplicate")?;
                map.serialize_entry("of", &**of)?;
            }
        }
        map.end()
    }
}

/// The name, the value, and in `set_by` the variable or the place in a file; null if the program set it.
impl Serialize for OptionValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let set_by = match self.origin() {
            OptionOrigin::Program => None,
            OptionOrigin::Variable(name) | OptionOrigin::Defaults(name) => Some(&**name),
        };
        let mut fields = serializer.serialize_struct("OptionValue", 3)?;
        fields.serialize_field("name", self.name())?;
        fields.serialize_field("value", self.as_str())?;
        fields.serialize_field("set_by", &set_by)?;
        fields.end()
    }
}
