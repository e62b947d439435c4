//! What a manifest says about a backend in a file.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use device_registry::backend::{LoadFailure, Options};
use device_registry::backends;
use device_registry::registry::Installed;
use entry_points::message::{nearest, shown};
use serde_json::Value;

use crate::abi::{MAJOR, MINOR};
use crate::file::digest;
use crate::file::fields::{EachOnce, Fields};

/// The version of manifests that this crate reads.
const VERSION: u32 = 1;

/// The fields of a manifest of that version.
const FIELDS: &[&str] = &[
    "manifest", "group", "name", "entry", "package", "version", "library", "abi", "requires", "options",
    "sha256",
];

/// The longest manifest, in bytes.
const LIMIT: u64 = 64 << 10;

/// The groups, besides backends, whose entries a program takes from files.
pub(crate) struct Groups {
    pub(crate) names: fn() -> Vec<&'static str>,
    /// Why a group that is linked and on is not among them: it does not load.
    pub(crate) failure_of: fn(&str) -> Option<String>,
}

/// A manifest: what a file `NAME.plugin.json` says of one backend in a library, or of one entry of [another
/// group](crate::group).
///
/// [`InstallReport::installed`](crate::InstallReport::installed) lists those that were installed. Listing
/// does not look at the library, which may be missing or not be what the manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    file: PathBuf,
    group: String,
    name: String,
    entry: String,
    package: String,
    version: String,
    library: PathBuf,
    minor: u32,
    options: Vec<(String, String)>,
    sha256: Option<[u8; 32]>,
}

impl Manifest {
    /// The group of the entry: `device.backends` for a backend.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The name of the backend, which device strings begin with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the library itself calls the backend. It is the name, unless the manifest renames the backend.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The package that the backend comes from.
    #[must_use]
    pub fn package(&self) -> &str {
        &self.package
    }

    /// The version of the package.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The library, as an absolute path that may contain links and `..`.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The options of the backend, each with its description.
    pub fn options(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.options.iter().map(|(name, description)| (&**name, &**description))
    }

    /// An entry point for the group, with the name, the library, the package and the options of the manifest.
    /// `load` opens the library.
    #[track_caller]
    pub fn installed<P: ?Sized>(
        &self,
        load: impl Fn(&Options) -> Result<Box<P>, LoadFailure> + Send + Sync + 'static,
    ) -> Installed<P> {
        let installed = Installed::new(&self.name, &self.library, load).package(&self.package, &self.version);
        self.options().fold(installed, |installed, (name, description)| installed.option(name, description))
    }

    /// The manifest itself, as an absolute path without links.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The minor version of the interface that the library was built with.
    pub(crate) fn minor(&self) -> u32 {
        self.minor
    }

    pub(crate) fn sha256(&self) -> Option<&[u8; 32]> {
        self.sha256.as_ref()
    }

    /// Parses the text of the manifest `file`. It is `None` if it is for a group that is neither among
    /// `groups` nor `another`: several frameworks may have their plugins in one folder.
    pub(crate) fn parse(
        text: &[u8],
        file: &Path,
        groups: &Groups,
        another: Option<&str>,
    ) -> Result<Option<Self>, String> {
        if text.starts_with(b"\xff\xfe") {
            return Err(
                "it is UTF-16, as `>` writes in Windows PowerShell; expected JSON in UTF-8: write it by \
                        `| Out-File -Encoding utf8`"
                    .to_owned(),
            );
        }
        let text = str::from_utf8(text)
            .map_err(|error| format!("byte {} is not UTF-8; expected JSON in UTF-8", error.valid_up_to()))?;
        // Some editors put a byte order mark in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let json: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let fields = Fields::of(&json, String::new())?;

        // First what no version changes: it decides whether the rest can be read.
        let ours = backends().name();
        let known = || std::iter::once(ours).chain(std::iter::once_with(groups.names).flatten());
        let group = fields.text("group", &format!("a text such as `{ours}`"), |_| true)?;
        if another != Some(group) && !known().any(|known| known == group) {
            if let Some(failure) = (groups.failure_of)(group) {
                return Err(format!("its group does not load: {failure}"));
            }
            return match nearest(group, known()) {
                Some(near) => Err(format!("`group` is `{}`; expected `{near}`", shown(group))),
                None => Ok(None),
            };
        }
        let _: EachOnce = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let version = fields.number("manifest")?;
        if version != VERSION {
            return Err(format!(
                "it is a manifest of version {version}; expected version {VERSION}, the one that this program reads"
            ));
        }
        let abi = fields.object("abi")?;
        let major = abi.number("major")?;
        let minor = abi.number("minor")?;
        if major != MAJOR {
            return Err(format!(
                "the library is built for version {major} of the interface (`abi.major`); expected {MAJOR}, that of \
                 this program"
            ));
        }
        fields.none_misspelt(FIELDS)?;
        let requires = fields.get("requires").map_or(Ok(0), |_| fields.number("requires"))?;
        if requires > MINOR {
            return Err(format!(
                "the library requires version {MAJOR}.{requires} of the interface (`requires`); this program has \
                 {MAJOR}.{MINOR}, so it has to be built with a later `device-plugin`"
            ));
        }
        Self::fill(&fields, group, file, minor).map(Some)
    }

    fn fill(fields: &Fields<'_>, group: &str, file: &Path, minor: u32) -> Result<Self, String> {
        const NAME: &str = "1 to 32 bytes of a-z, 0-9 and _, without a digit at the start";
        const WORD: &str = "1 to 64 bytes of a-z, A-Z, 0-9 and . _ + -";
        const DIGEST: &str = "the SHA-256 of the library, as 64 hexadecimal digits";
        let name = fields.text("name", NAME, is_name)?;
        let entry = fields.get("entry").map_or(Ok(name), |_| fields.text("entry", NAME, is_name))?;
        let package = fields.text("package", WORD, is_word)?;
        let version = fields.text("version", WORD, is_word)?;
        let library = fields.text("library", "the path of a library", |text| {
            // Nothing that Windows completes with a current folder or drive, such as `C:x.dll` and `\x.dll`.
            let path = Path::new(text);
            let is_complete = path.is_absolute() || !path.has_root() && !has_drive(text);
            !text.is_empty() && !text.contains(char::is_control) && is_complete
        })?;
        let sha256 = match fields.get("sha256") {
            None => None,
            Some(digits) => {
                let digest = digits.as_str().and_then(digest::parse);
                Some(digest.ok_or_else(|| fields.wrong("sha256", DIGEST))?)
            }
        };
        let folder = file.parent().unwrap_or(file);
        Ok(Self {
            file: file.to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
            entry: entry.to_owned(),
            package: package.to_owned(),
            version: version.to_owned(),
            // Never a bare name, which the system would look for in other folders.
            library: folder.join(library).components().collect(),
            minor,
            options: options(fields, NAME)?,
            sha256,
        })
    }
}

fn options(fields: &Fields<'_>, expected: &str) -> Result<Vec<(String, String)>, String> {
    const LINE: &str = "one line of at most 256 characters";
    let mut options: Vec<(String, String)> = Vec::new();
    for option in fields.objects("options")? {
        let name = option.text("name", expected, is_name)?;
        let description = option.text("description", LINE, |text| {
            !text.contains(char::is_control) && text.chars().nth(256).is_none()
        })?;
        if options.iter().any(|(known, _)| known == name) {
            return Err(format!("`options` has `{name}` twice; expected each option once"));
        }
        options.push((name.to_owned(), description.to_owned()));
    }
    Ok(options)
}

/// Reads at most the bytes that a manifest may have: a file can grow while it is read.
pub(crate) fn read(file: &mut File, metadata: &Metadata) -> Result<Vec<u8>, String> {
    let too_large = |len| Err(format!("it has {len} bytes; expected a manifest of at most {LIMIT}"));
    if metadata.len() > LIMIT {
        return too_large(metadata.len().to_string());
    }
    let mut text = Vec::with_capacity(metadata.len() as usize + 1);
    let read: io::Result<_> = file.take(LIMIT + 1).read_to_end(&mut text);
    match read {
        Err(error) => Err(format!("cannot read it: {error}")),
        Ok(len) if len as u64 > LIMIT => too_large(format!("more than {LIMIT}")),
        Ok(_) => Ok(text),
    }
}

/// The names that groups accept.
pub(crate) fn is_name(text: &str) -> bool {
    let is_valid = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    (1..=32).contains(&text.len()) && text.bytes().all(is_valid) && !text.as_bytes()[0].is_ascii_digit()
}

/// What stays readable in a table, and can be part of a pattern `package/name`.
fn is_word(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_valid)
}

fn has_drive(path: &str) -> bool {
    cfg!(windows) && path.as_bytes().get(1) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::abi::BACKENDS;
    use crate::file::testing::manifest;
    use crate::group::IN_FILES;
    use crate::install::examine::manifests;

    const FILE: &str = if cfg!(windows) { r"C:\app\acme.plugin.json" } else { "/app/acme.plugin.json" };

    fn parse(text: impl AsRef<[u8]>) -> Result<Option<Manifest>, String> {
        Manifest::parse(text.as_ref(), Path::new(FILE), &IN_FILES, None)
    }

    fn sound(changes: Value) -> Manifest {
        parse(manifest(changes)).unwrap().unwrap()
    }

    #[test]
    fn all_fields_are_read_and_unknown_ones_ignored() {
        let manifest = sound(json!({
            "entry": "openreg",
            "requires": MINOR,
            "options": [{"name": "devices", "description": "how many", "since": 3}],
            "sha256": "0F".repeat(32),
            "license": {"of": ["a", "later", "version"]},
        }));
        let read = (manifest.name(), manifest.entry(), manifest.package(), manifest.version());
        assert_eq!(read, ("acme", "openreg", "device-acme", "1.2.0"));
        assert_eq!(manifest.library(), Path::new(FILE).with_file_name("libacme.so"));
        assert_eq!(manifest.file(), Path::new(FILE));
        assert_eq!(manifest.options().collect::<Vec<_>>(), [("devices", "how many")]);
        assert_eq!(manifest.sha256(), Some(&[15; 32]));
    }

    #[test]
    fn the_example_of_the_documentation_is_a_manifest() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugins/manifests.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, example) = page.split_once("```json\n").unwrap();
        let manifest = parse(example.split("```").next().unwrap()).unwrap().unwrap();
        assert_eq!(manifest.options().len(), 1);
        for field in FIELDS {
            assert!(page.contains(&format!("\n| `{field}` |")), "{field}");
        }
    }

    #[test]
    fn the_entry_is_the_name_unless_the_manifest_says_otherwise() {
        assert_eq!(sound(json!({})).entry(), "acme");
    }

    #[test]
    fn a_library_is_relative_to_the_manifest_or_absolute() {
        let folder = Path::new(FILE).parent().unwrap();
        for library in ["x.so", "./x.so"] {
            assert_eq!(sound(json!({"library": library})).library(), folder.join("x.so"));
        }
        assert_eq!(sound(json!({"library": "../lib/x.so"})).library(), folder.join("../lib/x.so"));
        let absolute = if cfg!(windows) { r"C:\lib\x.dll" } else { "/lib/x.so" };
        assert_eq!(sound(json!({"library": absolute})).library(), Path::new(absolute));
    }

    #[test]
    fn the_manifests_of_the_templates_are_valid_and_of_this_version() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-backend");
        let files = ["c", "device-mycpu-file"].map(|folder| manifests(&templates.join(folder)).unwrap());
        assert_eq!(files.each_ref().map(Vec::len), [4, 1]);
        for file in files.iter().flatten() {
            let text = std::fs::read(file).unwrap();
            let fields: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(fields["abi"], json!({"major": MAJOR, "minor": MINOR}), "{}", file.display());
            // No linked crate takes kernels from files here.
            let is_backend = fields["group"] == BACKENDS;
            assert_eq!(
                Manifest::parse(&text, file, &IN_FILES, None).unwrap().is_some(),
                is_backend,
                "{}",
                file.display()
            );
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_library_that_windows_completes_with_a_current_folder_or_drive_is_refused() {
        for library in [r"C:x.dll", r"\x.dll", "/x.dll"] {
            let error = parse(manifest(json!({"library": library}))).unwrap_err();
            assert!(error.ends_with("; expected the path of a library"), "{error}");
        }
    }

    #[test]
    fn a_manifest_for_another_group_is_no_mistake_whatever_else_is_in_it() {
        for text in
            [manifest(json!({"group": "device.kernels"})), r#"{"group": "x", "manifest": "two"}"#.into()]
        {
            assert_eq!(parse(text), Ok(None));
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_manifest() {
        assert!(parse(format!("\u{feff}{}", manifest(json!({})))).unwrap().is_some());
    }

    /// A change to a sound manifest, and a part of the reason why it is refused.
    const WRONG: &[(&str, &str, &str)] = &[
        ("group", "null", "`group` is missing; expected a text such as `device.backends`"),
        ("group", "7", "`group` is `7`; expected a text such as"),
        ("group", "\"device.backend\"", "`group` is `device.backend`; expected `device.backends`"),
        ("group", "\"Device.Backends\"", "`group` is `Device.Backends`; expected `device.backends`"),
        ("manifest", "null", "`manifest` is missing; expected a whole number"),
        (
            "manifest",
            "2",
            "it is a manifest of version 2; expected version 1, the one that this program reads",
        ),
        ("manifest", "1.5", "`manifest` is `1.5`; expected a whole number"),
        ("manifest", "-1", "`manifest` is `-1`; expected a whole number"),
        ("manifest", "99999999999", "`manifest` is `99999999999`; expected a whole number"),
        (
            "name",
            "null",
            "`name` is missing; expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start",
        ),
        ("name", r#""Acme""#, r#"`name` is `"Acme"`; expected 1 to 32 bytes of a-z"#),
        ("name", r#""""#, r#"`name` is `""`; expected 1 to 32"#),
        ("name", r#""1a""#, r#"`name` is `"1a"`; expected"#),
        ("name", r#""a\nb""#, r#"`name` is `"a\nb"`; expected"#),
        ("name", r#""a23456789012345678901234567890123""#, "expected 1 to 32 bytes"),
        ("entry", r#""a b""#, r#"`entry` is `"a b"`; expected 1 to 32"#),
        ("package", "null", "`package` is missing; expected 1 to 64 bytes of a-z, A-Z, 0-9 and . _ + -"),
        ("package", r#""a/b""#, r#"`package` is `"a/b"`; expected 1 to 64"#),
        ("version", "1", "`version` is `1`; expected 1 to 64"),
        ("library", "null", "`library` is missing; expected the path of a library"),
        ("library", r#""""#, r#"`library` is `""`; expected the path"#),
        ("library", r#""a\u0000b""#, r#"`library` is `"a\0b"`; expected the path"#),
        ("library", "[]", "`library` is a list; expected the path"),
        ("abi", "null", "`abi` is missing; expected an object"),
        ("abi", "[0, 1]", "`abi` is a list; expected an object"),
        ("abi", r#"{"major": 0}"#, "`abi.minor` is missing; expected a whole number"),
        ("abi", r#"{"major": "0", "minor": 1}"#, r#"`abi.major` is `"0"`; expected a whole number"#),
        (
            "abi",
            r#"{"major": 7, "minor": 1}"#,
            "built for version 7 of the interface (`abi.major`); expected 0, that of this program",
        ),
        (
            "requires",
            "99",
            "requires version 0.99 of the interface (`requires`); this program has 0.3, so it has to be",
        ),
        ("requires", "true", "`requires` is `true`; expected a whole number"),
        ("options", "{}", "`options` is an object; expected a list of objects"),
        ("options", "[7]", "`options[0]` is `7`; expected an object"),
        ("options", r#"[{"name": "a"}]"#, "`options[0].description` is missing; expected one line"),
        (
            "options",
            r#"[{"name": "a", "description": ""}, {"name": "a", "description": ""}]"#,
            "`options` has `a` twice; expected each option once",
        ),
        (
            "options",
            r#"[{"name": "a-b", "description": ""}]"#,
            r#"`options[0].name` is `"a-b"`; expected 1 to 32"#,
        ),
        ("options", r#"[{"name": "a", "description": "b\nc"}]"#, "`options[0].description` is"),
        (
            "sha256",
            r#""12""#,
            r#"`sha256` is `"12"`; expected the SHA-256 of the library, as 64 hexadecimal digits"#,
        ),
        ("sha256", "0", "`sha256` is `0`; expected"),
    ];

    #[test]
    fn a_wrong_field_is_named_with_what_is_expected() {
        for (field, value, part) in WRONG {
            let value: Value = serde_json::from_str(value).unwrap();
            let error = parse(manifest(json!({*field: value}))).unwrap_err();
            assert!(error.contains(part), "{field}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_misspelt_field_is_refused_and_another_unknown_one_is_not() {
        let error = parse(manifest(json!({"sha265": "00".repeat(32)}))).unwrap_err();
        assert_eq!(error, "`sha265` is no field; expected `sha256`");
        let error = parse(manifest(json!({"name": null, "nmae": "acme"}))).unwrap_err();
        assert_eq!(error, "`nmae` is no field; expected `name`");
        sound(json!({"sha265": 0, "sha256": "0F".repeat(32), "names": [], "license": "MIT"}));
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused() {
        let text = manifest(json!({})).replacen('{', "{\"name\": \"cpu\", ", 1);
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("`name` is there twice; expected each field once at line 1"), "{error}");
    }

    #[test]
    fn a_text_that_is_no_object_is_refused() {
        let deep = "[".repeat(10_000);
        for (text, part) in [
            ("", "it is not JSON: EOF while parsing a value at line 1 column 0"),
            ("{\"manifest\": 1,}", "it is not JSON: trailing comma at line 1 column 16"),
            ("{} {}", "it is not JSON: trailing characters at line 1 column 4"),
            (&deep, "it is not JSON: recursion limit exceeded"),
            ("[]", "the manifest is a list; expected an object"),
            ("null", "the manifest is `null`; expected an object"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(parse(b"{\"a\xff\"}").unwrap_err(), "byte 3 is not UTF-8; expected JSON in UTF-8");
        let utf_16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(parse(utf_16).unwrap_err().starts_with("it is UTF-16, as `>` writes in Windows PowerShell;"));
    }

    #[test]
    fn no_input_makes_the_parser_panic() {
        let text =
            manifest(json!({"options": [{"name": "a", "description": "b"}], "sha256": "00".repeat(32)}));
        for at in 0..text.len() {
            for byte in [0, b'"', b'}', b'9', 0xff] {
                let mut changed = text.clone().into_bytes();
                changed[at] = byte;
                let _ = parse(&changed);
                let _ = parse(&changed[..at]);
            }
        }
    }
}
