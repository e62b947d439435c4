//! Facts about a device that only its backend knows, by name.

use std::fmt;

/// Further facts about a device by name, in the order in which the backend gave them.
///
/// A fact that every kind of device could have is a field of
/// [`DeviceProperties`](crate::DeviceProperties); the README of a backend lists its attributes. A number is
/// in the unit that ends its name, such as `_bytes` or `_mhz`, or counts something. A backend leaves out what
/// it does not know: 0 does not mean *unknown*.
///
/// ```
/// use device_registry::{AttributeValue, DeviceProperties};
///
/// let properties = DeviceProperties::new("Example 9000")
///     .with_attribute("compute_units", 32)
///     .with_attribute("subgroups", true);
/// assert_eq!(properties.attributes.get("compute_units"), Some(&AttributeValue::Integer(32)));
/// let all: Vec<_> = properties.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
/// assert_eq!(all, ["compute_units=32", "subgroups=true"]);
/// ```
///
/// # Limits
///
/// There are at most [`MAX`](Self::MAX) attributes. A name is 1 to [`MAX_NAME`](Self::MAX_NAME) bytes of
/// `a`–`z`, `0`–`9` and `_`, and does not start with a digit. A text is at most [`MAX_TEXT`](Self::MAX_TEXT)
/// bytes. An attribute outside of these limits is left out, and [counted](Self::left_out), so that a broken
/// backend cannot flood a list.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    all: Vec<(String, AttributeValue)>,
    left_out: usize,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttributeValue {
    /// A yes or no.
    Bool(bool),
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
}

impl Attributes {
    /// The most attributes.
    pub const MAX: usize = 64;
    /// The longest name, in bytes.
    pub const MAX_NAME: usize = 48;
    /// The longest text, in bytes.
    pub const MAX_TEXT: usize = 256;

    /// No attributes.
    #[must_use]
    pub const fn new() -> Self {
        Self { all: Vec::new(), left_out: 0 }
    }

    /// Sets an attribute, and replaces any value of this name.
    ///
    /// Returns whether it was set: one outside of the [limits](Self#limits) is left out.
    pub fn set(&mut self, name: &str, value: impl Into<AttributeValue>) -> bool {
        let value = value.into();
        let fits =
            is_name(name) && !matches!(&value, AttributeValue::Text(text) if text.len() > Self::MAX_TEXT);
        match self.all.iter().position(|(known, _)| known == name) {
            Some(place) if fits => self.all[place].1 = value,
            None if fits && self.all.len() < Self::MAX => self.all.push((name.to_owned(), value)),
            _ => {
                self.left_out = self.left_out.saturating_add(1);
                return false;
            }
        }
        true
    }

    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.all.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// All attributes, in the order in which the backend gave them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &AttributeValue)> {
        self.all.iter().map(|(name, value)| (&**name, value))
    }

    /// The number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many attributes were left out, because they were outside of the [limits](Self#limits).
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= Attributes::MAX_NAME
        && bytes.next().is_some_and(|first| matches!(first, b'a'..=b'z' | b'_'))
        && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// Prints a map, with the number of attributes that were left out, if any.
impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.iter());
        if self.left_out > 0 {
            map.entry(&"left out", &self.left_out);
        }
        map.finish()
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for AttributeValue {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u32> for AttributeValue {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i64> for AttributeValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

/// A number above `i64::MAX` becomes `i64::MAX`: drivers use the largest `u64` for *no limit*.
impl From<u64> for AttributeValue {
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&str> for AttributeValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_outside_of_the_limits_are_left_out_and_counted() {
        let mut attributes = Attributes::new();
        let long = "x".repeat(Attributes::MAX_NAME + 1);
        for bad in ["", "1st", "Units", "a-b", "a b", "ü", "a\n", long.as_str()] {
            assert!(!attributes.set(bad, 1), "{bad:?}");
        }
        assert!(!attributes.set("text", "x".repeat(Attributes::MAX_TEXT + 1)));
        assert_eq!((attributes.len(), attributes.left_out()), (0, 9));
        assert!(attributes.set("text", "x".repeat(Attributes::MAX_TEXT)));
        assert!(attributes.set(&long[1..], 1));
        for number in 0..10_000 {
            attributes.set(&format!("flood_{number}"), number);
        }
        assert_eq!((attributes.len(), attributes.left_out()), (Attributes::MAX, 9 + 10_000 - 62));
        assert_eq!(attributes.get("flood_62"), None);
    }

    #[test]
    fn a_second_value_replaces_the_first_at_its_place_even_where_the_list_is_full() {
        let mut attributes = Attributes::new();
        for number in 0..64 {
            attributes.set(&format!("a{number}"), number);
        }
        assert!(attributes.set("a0", true));
        assert_eq!(attributes.iter().next(), Some(("a0", &AttributeValue::Bool(true))));
        assert!(!attributes.set("a1", "x".repeat(1000)));
        assert_eq!(attributes.get("a1"), Some(&AttributeValue::Integer(1)));
        assert_eq!((attributes.len(), attributes.left_out()), (64, 1));
    }

    #[test]
    fn a_number_that_stands_for_no_limit_is_the_largest() {
        assert_eq!(AttributeValue::from(u64::MAX), AttributeValue::Integer(i64::MAX));
        assert_eq!(AttributeValue::from(7_u64), AttributeValue::Integer(7));
    }
}
