//! What a group and its entries are called in messages.

use std::fmt;

/// The name of a group, and the word for one of its entries if it has one.
#[derive(PartialEq, Eq)]
pub(crate) struct GroupName {
    pub(crate) name: &'static str,
    pub(crate) noun: Option<&'static str>,
}

impl GroupName {
    /// An entry: ``decoder `vorbis` ``, or `` `vorbis` of codec.decoders`` if there is no word for it.
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

    /// So many of them, after the group's name: `codec.decoders: 2 decoders`.
    pub(crate) fn count(&self, count: usize) -> impl fmt::Display {
        let plural = if count == 1 { "" } else { "s" };
        fmt::from_fn(move |f| {
            write!(f, "{}: {count} {}{plural}", self.name, self.noun.unwrap_or("entry point"))
        })
    }
}

impl fmt::Debug for GroupName {
    /// The name alone: the word says nothing more to those who look for a mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_noun_is_spoken_of_by_it() {
        let group = GroupName { name: "codec.decoders", noun: Some("decoder") };
        assert_eq!(group.entry("vorbis").to_string(), "decoder `vorbis`");
        assert_eq!(group.any_entry().to_string(), "decoder");
        assert_eq!(format!("{group:?}"), "\"codec.decoders\"");
        assert_eq!(group.count(2).to_string(), "codec.decoders: 2 decoders");
    }

    #[test]
    fn a_group_without_one_is_spoken_of_by_its_name() {
        let group = GroupName { name: "codec.decoders", noun: None };
        assert_eq!(group.entry("vorbis").to_string(), "`vorbis` of codec.decoders");
        assert_eq!(group.any_entry().to_string(), "entry point of codec.decoders");
        assert_eq!(group.count(1).to_string(), "codec.decoders: 1 entry point");
    }
}
