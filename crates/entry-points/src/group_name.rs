//! The words for a group and its entries in messages.

use std::fmt;

/// The name of a group, and its noun: the word for one of its entries, if it has one.
#[derive(PartialEq, Eq)]
pub(crate) struct GroupName {
    pub(crate) name: &'static str,
    pub(crate) noun: Option<&'static str>,
}

impl GroupName {
    /// An entry: ``decoder `vorbis` ``, or `` `vorbis` of codec.decoders`` if the group has no noun.
    pub(crate) fn entry(&self, name: &str) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.noun {
            Some(noun) => write!(f, "{noun} `{name}`"),
            None => write!(f, "`{name}` of {}", self.name),
        })
    }

    /// Any entry: `decoder`, or `entry point of codec.decoders`.
    pub(crate) fn any_entry(&self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.noun {
            Some(noun) => f.write_str(noun),
            None => write!(f, "entry point of {}", self.name),
        })
    }

    /// The number of entries, after the group's name: `codec.decoders: 2 decoders`.
    pub(crate) fn count(&self, count: usize) -> impl fmt::Display {
        let plural = if count == 1 { "" } else { "s" };
        fmt::from_fn(move |f| {
            write!(f, "{}: {count} {}{plural}", self.name, self.noun.unwrap_or("entry point"))
        })
    }
}

impl fmt::Debug for GroupName {
    /// Compares only the name, since the noun does not identify a group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_use_the_noun_of_a_group() {
        let group = GroupName { name: "codec.decoders", noun: Some("decoder") };
        assert_eq!(group.entry("vorbis").to_string(), "decoder `vorbis`");
        assert_eq!(group.any_entry().to_string(), "decoder");
        assert_eq!(format!("{group:?}"), "\"codec.decoders\"");
        assert_eq!(group.count(2).to_string(), "codec.decoders: 2 decoders");
    }

    #[test]
    fn messages_use_the_name_of_a_group_without_a_noun() {
        let group = GroupName { name: "codec.decoders", noun: None };
        assert_eq!(group.entry("vorbis").to_string(), "`vorbis` of codec.decoders");
        assert_eq!(group.any_entry().to_string(), "entry point of codec.decoders");
        assert_eq!(group.count(1).to_string(), "codec.decoders: 1 entry point");
    }
}
