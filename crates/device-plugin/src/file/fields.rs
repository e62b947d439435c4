//! Reads the fields of a JSON object, with errors that say which field is wrong and what is expected.

use std::collections::BTreeSet;
use std::fmt;

use entry_points::message::{nearest, shown};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Proof that a JSON object has each field once: `serde_json` keeps the last of several.
pub(super) struct EachOnce;

impl<'de> Deserialize<'de> for EachOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for EachOnce {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some((field, IgnoredAny)) = fields.next_entry::<String, _>()? {
            if seen.contains(&field) {
                let field = shown(&field);
                return Err(A::Error::custom(format_args!(
                    "`{field}` is there twice; expected each field once"
                )));
            }
            seen.insert(field);
        }
        Ok(self)
    }
}

/// The fields of an object. Fields that nothing reads are ignored: a later version may define them.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The fields around this object, each followed by a dot, as messages name them.
    path: String,
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value, path: String) -> Result<Self, String> {
        match value {
            Value::Object(object) if path.is_empty() => Ok(Self { object, path }),
            Value::Object(object) => Ok(Self { object, path: path + "." }),
            other if path.is_empty() => Err(format!("the manifest is {}; expected an object", show(other))),
            other => Err(format!("`{path}` is {}; expected an object", show(other))),
        }
    }

    /// Refuses a field that is almost one of `known` that is missing: `sha265` would check nothing.
    pub(super) fn none_misspelt(&self, known: &[&'static str]) -> Result<(), String> {
        let missing = || known.iter().copied().filter(|known| !self.object.contains_key(*known));
        let mut unknown = self.object.keys().filter(|field| !known.contains(&field.as_str()));
        match unknown.find_map(|field| Some((field, nearest(field, missing())?))) {
            Some((field, meant)) => Err(format!("`{}` is no field; expected `{meant}`", shown(field))),
            None => Ok(()),
        }
    }

    /// The value of a field, unless it is missing.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field)
    }

    /// The error for a field with an unexpected value.
    pub(super) fn wrong(&self, field: &str, expected: &str) -> String {
        let path = &self.path;
        match self.get(field) {
            Some(found) => format!("`{path}{field}` is {}; expected {expected}", show(found)),
            None => format!("`{path}{field}` is missing; expected {expected}"),
        }
    }

    /// A text that `is_valid`.
    pub(super) fn text(
        &self,
        field: &str,
        expected: &str,
        is_valid: impl Fn(&str) -> bool,
    ) -> Result<&'a str, String> {
        let text = self.get(field).and_then(Value::as_str).filter(|text| is_valid(text));
        text.ok_or_else(|| self.wrong(field, expected))
    }

    pub(super) fn number(&self, field: &str) -> Result<u32, String> {
        let number = self.get(field).and_then(Value::as_u64).and_then(|number| number.try_into().ok());
        number.ok_or_else(|| self.wrong(field, "a whole number"))
    }

    pub(super) fn object(&self, field: &str) -> Result<Fields<'a>, String> {
        let value = self.get(field).ok_or_else(|| self.wrong(field, "an object"))?;
        Self::of(value, format!("{}{field}", self.path))
    }

    /// The objects of a list, which is empty if the field is missing.
    pub(super) fn objects(&self, field: &str) -> Result<Vec<Fields<'a>>, String> {
        let items = match self.get(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.wrong(field, "a list of objects")),
        };
        let object = |(at, item)| Self::of(item, format!("{}{field}[{at}]", self.path));
        items.iter().enumerate().map(object).collect()
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("`\"{}\"`", shown(text)),
        other => format!("`{other}`"),
    }
}
