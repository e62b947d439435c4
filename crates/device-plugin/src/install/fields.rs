//! Reading the fields of a JSON object, with errors that say which field is wrong and what is expected.

use entry_points::message::shown;
use serde_json::{Map, Value};

/// The fields of an object. Fields that nothing reads are ignored: a later version may define them.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The fields around this object, each with a dot behind it, as messages name them.
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

    /// The value of a field, unless it is missing.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field)
    }

    /// The error for a field that is not what is expected.
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
