//! The text of a device list: a pure function from text to items and exclusions.

use std::fmt;

use entry_points::message::shown;

use crate::backend::{DeviceKind, DeviceProperties};
use crate::device::Device;
use crate::device::grammar::{DeviceString, Place, SyntaxError, SyntaxErrorKind, Which, check_name};

/// The word of a list that stands for the default selection.
pub(crate) const AUTO: &str = "auto";

/// The variable of the [default selection](crate::default_selection).
pub(crate) const DEFAULT_VARIABLE: &str = "DEVICE_DEFAULT";

/// The most exclusions in a list, since each is compared with each device.
pub(crate) const MOST_EXCLUSIONS: usize = 256;

/// The words for kinds of devices, each with the kinds that it matches.
static KINDS: [(&str, &[DeviceKind]); 7] = [
    ("cpu", &[DeviceKind::Cpu]),
    ("gpu", &[DeviceKind::Gpu, DeviceKind::IntegratedGpu]),
    ("discrete_gpu", &[DeviceKind::Gpu]),
    ("integrated_gpu", &[DeviceKind::IntegratedGpu]),
    ("accelerator", &[DeviceKind::Accelerator]),
    ("simulated", &[DeviceKind::Simulated]),
    ("other", &[DeviceKind::Other]),
];

/// The words for orders.
static ORDERS: [(&str, Order); 2] = [("free", Order::FreeMemory), ("memory", Order::TotalMemory)];

/// A list that is well formed. What it names need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) items: Vec<Item>,
    pub(crate) exclusions: Vec<Exclusion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) text: String,
    pub(crate) form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One device: the text is a device string.
    Device,
    /// The default selection.
    Auto,
    /// The devices that match.
    Pattern(Pattern),
}

/// `opencl:gpu(free)`, `*:gpu`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The backend; `None` for all.
    pub(crate) backend: Option<String>,
    /// `None` for any.
    kinds: Option<&'static [DeviceKind]>,
    pub(crate) order: Option<Order>,
}

/// In which order the devices of an item are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The device with the most free memory first.
    FreeMemory,
    /// The device with the most memory first.
    TotalMemory,
}

/// An item that begins with `!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    /// What follows the `!`.
    pub(crate) text: String,
    /// `None` for a device string.
    pattern: Option<Pattern>,
}

impl List {
    pub(crate) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut list = Self { items: Vec::new(), exclusions: Vec::new() };
        let mut at = 1;
        let place = |at| text.contains(',').then(|| Place { list: shown(text), at });
        for item in text.split(',') {
            let fail = |kind| SyntaxError { text: shown(item), kind, place: place(at) };
            match item.strip_prefix('!') {
                Some(_) if list.exclusions.len() == MOST_EXCLUSIONS => {
                    return Err(fail(SyntaxErrorKind::TooManyExclusions));
                }
                Some(excluded) => {
                    list.exclusions.push(Exclusion::parse(excluded).map_err(fail)?);
                }
                None => {
                    let form = Form::parse(item).map_err(fail)?;
                    list.items.push(Item { text: item.to_owned(), form });
                }
            }
            at += item.chars().count() + 1;
        }
        if list.items.is_empty() {
            return Err(SyntaxError {
                text: shown(text),
                kind: SyntaxErrorKind::OnlyExclusions,
                place: None,
            });
        }
        Ok(list)
    }
}

impl Form {
    fn parse(item: &str) -> Result<Self, SyntaxErrorKind> {
        if item == AUTO {
            return Ok(Self::Auto);
        }
        let (body, order) = match item.split_once('(') {
            None => (item, None),
            Some((body, rest)) => {
                let word = rest.strip_suffix(')');
                match ORDERS.iter().find(|(known, _)| Some(*known) == word) {
                    Some((_, order)) => (body, Some(*order)),
                    // A text with a parenthesis, as in `opencl@platform=Intel(R)`.
                    None if body.contains('@') => (item, None),
                    None => return Err(SyntaxErrorKind::Order),
                }
            }
        };
        match Pattern::parse(body)? {
            Some(pattern) => Ok(Self::Pattern(Pattern { order, ..pattern })),
            None => match (DeviceString::parse(body).map_err(|error| error.kind())?, order) {
                (_, None) => Ok(Self::Device),
                (DeviceString { name, which: Which::Current }, order) => {
                    Ok(Self::Pattern(Pattern { backend: Some(name.to_owned()), kinds: None, order }))
                }
                // One device has no order.
                _ => Err(SyntaxErrorKind::Order),
            },
        }
    }
}

impl Pattern {
    /// A pattern without an order; `None` if the text has the form of a device string.
    fn parse(text: &str) -> Result<Option<Self>, SyntaxErrorKind> {
        let (name, word) = match text.split_once(':') {
            // An address or an index begins with a digit.
            Some((name, word)) if name == "*" || (!name.contains('@') && is_word(word)) => (name, word),
            None if text == "*" => (text, "*"),
            _ => return Ok(None),
        };
        let backend = match name {
            "*" => None,
            name => {
                check_name(name)?;
                Some(name.to_owned())
            }
        };
        Ok(Some(Self { backend, kinds: kinds(word)?, order: None }))
    }

    /// Whether the pattern matches a device with these properties, of a backend that it names.
    pub(crate) fn matches(&self, properties: &DeviceProperties) -> bool {
        self.kinds.is_none_or(|kinds| kinds.contains(&properties.kind))
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c == '*' || c == '_' || c.is_ascii_alphabetic())
        && text.chars().all(|c| c == '*' || c == '_' || c.is_ascii_alphanumeric())
}

/// The kinds that a word matches; `None` for `*`, which is any.
fn kinds(word: &str) -> Result<Option<&'static [DeviceKind]>, SyntaxErrorKind> {
    match KINDS.iter().find(|(known, _)| *known == word) {
        _ if word == "*" => Ok(None),
        Some((_, kinds)) => Ok(Some(kinds)),
        None => Err(SyntaxErrorKind::UnknownKind),
    }
}

/// Whether the text is a word for a kind. A device string with such a word was meant as an item of a list.
pub(crate) fn is_kind(word: &str) -> bool {
    kinds(word).is_ok()
}

/// Writes what is wrong with the word after the colon, and the words that exist.
pub(crate) fn fmt_unknown_kind(item: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let word = item.split_once(':').map_or("", |(_, word)| word);
    let known: Vec<_> = KINDS.iter().map(|(known, _)| *known).collect();
    write!(f, "unknown kind `{word}` of device; the kinds are `{}`, and `*` for any", known.join("`, `"))
}

pub(crate) const ORDER_FORM: &str = "an order stands in parentheses after a pattern: `(free)` for the most free memory first, \
                                     or `(memory)` for the most memory";

impl Exclusion {
    fn parse(text: &str) -> Result<Self, SyntaxErrorKind> {
        let pattern = Pattern::parse(text)?;
        if pattern.is_none() {
            DeviceString::parse(text).map_err(|error| error.kind())?;
        }
        Ok(Self { text: text.to_owned(), pattern })
    }

    /// Whether it excludes every device of a backend, so that the backend need not be loaded.
    pub(crate) fn excludes_backend(&self, name: &str) -> bool {
        match &self.pattern {
            Some(pattern) => {
                pattern.kinds.is_none() && pattern.backend.as_deref().is_none_or(|backend| backend == name)
            }
            None => self.text == name,
        }
    }

    /// Whether it excludes the device. Calls `properties` only where they decide.
    ///
    /// # Errors
    ///
    /// The error of `properties`.
    pub(crate) fn excludes<E>(
        &self,
        device: Device,
        properties: impl FnOnce() -> Result<DeviceProperties, E>,
    ) -> Result<bool, E> {
        if let Some(pattern) = &self.pattern {
            return match (&pattern.backend, pattern.kinds) {
                (Some(name), _) if name != device.name() => Ok(false),
                (_, None) => Ok(true),
                _ => Ok(pattern.matches(&properties()?)),
            };
        }
        // The list was parsed, so this is a device string.
        match DeviceString::parse(&self.text) {
            Ok(excluded) if excluded.name == device.name() => match excluded.which {
                Which::Current => Ok(true),
                Which::Index(index) => Ok(device.resolve().index().unwrap_or_default() == index),
                Which::Selected(selector) => Ok(selector.matches(&properties()?)),
            },
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(backend: Option<&str>, kind: Option<&str>, order: Option<Order>) -> Form {
        let kinds = kind.and_then(|kind| kinds(kind).unwrap());
        Form::Pattern(Pattern { backend: backend.map(str::to_owned), kinds, order })
    }

    #[test]
    fn each_form_of_an_item_is_read() {
        for (text, form) in [
            ("cuda", Form::Device),
            ("cuda:1", Form::Device),
            ("cuda@uuid=ab", Form::Device),
            ("cuda@pci=ab:00.0", Form::Device),
            ("cuda@name=RTX 4090", Form::Device),
            ("auto", Form::Auto),
            ("opencl:gpu", pattern(Some("opencl"), Some("gpu"), None)),
            ("opencl:*", pattern(Some("opencl"), None, None)),
            ("*", pattern(None, None, None)),
            ("*:*", pattern(None, None, None)),
            ("*:discrete_gpu", pattern(None, Some("discrete_gpu"), None)),
            ("*:gpu(free)", pattern(None, Some("gpu"), Some(Order::FreeMemory))),
            ("*(memory)", pattern(None, None, Some(Order::TotalMemory))),
            ("cuda(free)", pattern(Some("cuda"), None, Some(Order::FreeMemory))),
        ] {
            let list = List::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(list.items, [Item { text: text.to_owned(), form }]);
            assert_eq!(list.exclusions, []);
        }
    }

    #[test]
    fn exclusions_stand_anywhere() {
        let list = List::parse("!wgpu,*:gpu,!cuda:1,!*:cpu,!opencl@uuid=0,cpu").unwrap();
        let texts: Vec<_> = list.items.iter().map(|item| &*item.text).collect();
        assert_eq!(texts, ["*:gpu", "cpu"]);
        let excluded: Vec<_> = list.exclusions.iter().map(|exclusion| &*exclusion.text).collect();
        assert_eq!(excluded, ["wgpu", "cuda:1", "*:cpu", "opencl@uuid=0"]);
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        use SyntaxErrorKind::*;
        for (text, kind) in [
            ("", Empty),
            ("cpu,", Empty),
            (",cpu", Empty),
            ("!", Empty),
            ("!wgpu", OnlyExclusions),
            ("cuda,opencl:gqu,cpu", UnknownKind),
            ("*:", UnknownKind),
            ("*:0", UnknownKind),
            ("*@uuid=0", InvalidCharacter('*')),
            ("cu*:gpu", InvalidCharacter('*')),
            ("CUDA:gpu", UpperCase),
            ("cuda:GPU", UnknownKind),
            ("cuda:gpu:0", InvalidIndex),
            ("cuda:0x1", InvalidIndex),
            ("cuda:0(free)", Order),
            ("cuda@uuid=0(free)", Order),
            ("cuda@platform=Intel(free)", Order),
            ("cuda@platform=Intel(R)", SelectorCharacter('(')),
            ("cuda@platform=Intel(R) OpenCL", SelectorCharacter('(')),
            ("cuda(fre)", Order),
            ("cuda(free", Order),
            ("cuda(free)x", Order),
            ("cuda()", Order),
            ("(free)", Empty),
            ("auto(free)", Reserved),
            ("auto:gpu", Reserved),
            ("!auto", Reserved),
            ("!cuda(free)", InvalidCharacter('(')),
            ("!!cuda", InvalidCharacter('!')),
            ("cpu, cuda", InvalidCharacter(' ')),
            (&format!("cpu,{}!b", "!a,".repeat(MOST_EXCLUSIONS)), TooManyExclusions),
        ] {
            let error = List::parse(text).expect_err(text);
            assert_eq!(error.kind(), kind, "{text:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_error_shows_the_place_in_the_list() {
        let message = |text| List::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("cuda,opencl:gqu,cpu"),
            "invalid item `opencl:gqu`, at character 6 of `cuda,opencl:gqu,cpu`: unknown kind `gqu` of device; \
             the kinds are `cpu`, `gpu`, `discrete_gpu`, `integrated_gpu`, `accelerator`, `simulated`, `other`, and `*` for any"
        );
        for (text, start) in [
            ("cpu,", "invalid item ``, at character 5 of `cpu,`: it is empty"),
            ("cpu, cuda", "invalid item ` cuda`, at character 5 of `cpu, cuda`: invalid character ' '"),
            (
                "cuda(fre)",
                "invalid device string `cuda(fre)`: an order stands in parentheses after a pattern",
            ),
            (
                "!wgpu",
                "invalid device string `!wgpu`: it only excludes devices, and names none to choose from",
            ),
        ] {
            assert!(message(text).starts_with(start), "{}", message(text));
        }
    }
}
