//! The arguments of the command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use entry_points::message::shown;

use crate::file::manifest::is_name;

/// What `--help` prints.
pub(super) const USAGE: &str = "\
usage: devices plugin check [--trust-any-owner] [--time-limit SECONDS] FILE...
       devices plugin manifest [--name NAME] [--group GROUP] [--entry ENTRY] [--sha256]
                              [--trust-any-owner] [--time-limit SECONDS] FILE

check     says what is in libraries with backends, and what is wrong with them and their manifests.
          FILE is a library, a manifest, or a folder with manifests.
manifest  prints the manifest of a library.

  --name NAME           what device strings call the backend; by default, what the library calls it
  --group GROUP         what the manifest is for, such as device.kernels; by default, a backend
  --entry ENTRY         the backend of a library that has several
  --sha256              put the digest of the library into the manifest
  --trust-any-owner     also open files that other users can change
  --time-limit SECONDS  how long a library may take; 30 by default

Libraries are opened in a process of their own, with all rights of this one.
The exit code is 0 if all is well, 1 if there are problems, and 2 if the arguments are wrong.
";

/// The first argument of the process that opens a library. It is not for users.
pub const CHILD: &str = "--open-library";

/// What to do.
#[derive(Debug)]
pub(super) enum Command {
    Help,
    Version,
    Check(Check),
    Manifest(Manifest),
    /// This process opens a library.
    Child {
        file: PathBuf,
        how: How,
    },
}

/// How far a library is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It is opened, and its entries are read.
    Open,
    /// Its backends are loaded too, and their devices counted.
    Load,
}

/// `devices plugin check`
#[derive(Debug)]
pub(super) struct Check {
    pub(super) files: Vec<PathBuf>,
    pub(super) opening: Opening,
}

/// `devices plugin manifest`
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) file: PathBuf,
    pub(super) name: Option<String>,
    pub(super) group: Option<String>,
    pub(super) entry: Option<String>,
    pub(super) sha256: bool,
    pub(super) opening: Opening,
}

/// Which libraries are opened, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) any_owner: bool,
    pub(super) limit: Duration,
}

/// Parses the arguments behind the name of the program.
///
/// # Errors
///
/// What is wrong with them.
pub(super) fn parse(arguments: Vec<OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter();
    let Some(command) = arguments.next() else { return Err("expected `check` or `manifest`".to_owned()) };
    let given = match command.to_str() {
        Some("-h" | "--help" | "help") => return Ok(Command::Help),
        Some("-V" | "--version") => return Ok(Command::Version),
        Some(CHILD) => return child(arguments),
        Some("check") => Given::read(arguments, false)?,
        Some("manifest") => Given::read(arguments, true)?,
        _ => {
            let command = shown(&command.to_string_lossy());
            return Err(format!("expected `check` or `manifest`, found `{command}`"));
        }
    };
    let Given { mut files, name, group, entry, sha256, opening, help } = given;
    if help {
        return Ok(Command::Help);
    }
    if command == "check" {
        if files.is_empty() {
            return Err("`check` needs a library, a manifest or a folder".to_owned());
        }
        return Ok(Command::Check(Check { files, opening }));
    }
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(Command::Manifest(Manifest { file, name, group, entry, sha256, opening })),
        (None, _) => Err("`manifest` needs a library".to_owned()),
        (Some(_), more) => Err(format!("`manifest` takes one library, found {}", more + 1)),
    }
}

fn child(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let how = match arguments.next() {
        Some(how) if how == How::Open.name() => How::Open,
        _ => How::Load,
    };
    let file = arguments.next().ok_or_else(|| format!("`{CHILD}` needs a library"))?;
    Ok(Command::Child { file: file.into(), how })
}

impl How {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Load => "load",
        }
    }
}

/// The arguments behind the command.
struct Given {
    files: Vec<PathBuf>,
    name: Option<String>,
    group: Option<String>,
    entry: Option<String>,
    sha256: bool,
    opening: Opening,
    help: bool,
}

impl Given {
    fn read(mut arguments: impl Iterator<Item = OsString>, is_manifest: bool) -> Result<Self, String> {
        let opening = Opening { any_owner: false, limit: Duration::from_secs(30) };
        let mut given = Self {
            files: Vec::new(),
            name: None,
            group: None,
            entry: None,
            sha256: false,
            opening,
            help: false,
        };
        let mut options = true;
        while let Some(argument) = arguments.next() {
            let Some(option) = argument.to_str().filter(|text| options && text.starts_with('-')) else {
                given.files.push(argument.into());
                continue;
            };
            match option {
                "--" => options = false,
                "-h" | "--help" => given.help = true,
                "--trust-any-owner" => given.opening.any_owner = true,
                "--time-limit" => given.opening.limit = seconds(&value(option, &mut arguments)?)?,
                "--name" if is_manifest => given.name = Some(name(option, &mut arguments)?),
                "--group" if is_manifest => given.group = Some(value(option, &mut arguments)?),
                "--entry" if is_manifest => given.entry = Some(value(option, &mut arguments)?),
                "--sha256" if is_manifest => given.sha256 = true,
                _ => return Err(format!("unknown option `{}`", shown(option))),
            }
        }
        Ok(given)
    }
}

fn value(option: &str, arguments: &mut impl Iterator<Item = OsString>) -> Result<String, String> {
    let value = arguments.next().ok_or_else(|| format!("`{option}` needs a value"))?;
    value.into_string().map_err(|_| format!("the value of `{option}` is not UTF-8"))
}

fn name(option: &str, arguments: &mut impl Iterator<Item = OsString>) -> Result<String, String> {
    let name = value(option, arguments)?;
    if is_name(&name) {
        return Ok(name);
    }
    Err(format!(
        "the value of `{option}` is `{}`; expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start",
        shown(&name)
    ))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| {
        format!("the value of `--time-limit` is `{}`; expected seconds, such as 30", shown(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Command, String> {
        parse(words.split_whitespace().map(Into::into).collect())
    }

    #[test]
    fn options_and_files_may_come_in_any_order() {
        let Ok(Command::Manifest(manifest)) =
            parse_words("manifest --sha256 lib.so --name acme --time-limit 0.5 --entry x")
        else {
            panic!()
        };
        assert_eq!((manifest.name.as_deref(), manifest.entry.as_deref()), (Some("acme"), Some("x")));
        assert!(manifest.sha256 && !manifest.opening.any_owner);
        assert_eq!(manifest.opening.limit, Duration::from_millis(500));
        let Ok(Command::Check(check)) = parse_words("check a --trust-any-owner -- --b") else { panic!() };
        assert_eq!(check.files, [PathBuf::from("a"), "--b".into()]);
        assert!(check.opening.any_owner);
    }

    #[test]
    fn wrong_arguments_are_named_with_what_is_expected() {
        for (words, message) in [
            ("", "expected `check` or `manifest`"),
            ("chek a", "expected `check` or `manifest`, found `chek`"),
            ("check", "`check` needs a library, a manifest or a folder"),
            ("manifest", "`manifest` needs a library"),
            ("manifest a b", "`manifest` takes one library, found 2"),
            ("check --name x a", "unknown option `--name`"),
            ("manifest a --name", "`--name` needs a value"),
            (
                "manifest a --name A",
                "the value of `--name` is `A`; expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start",
            ),
            ("check a --time-limit 0", "the value of `--time-limit` is `0`; expected seconds, such as 30"),
            (
                "check a --time-limit 1e99",
                "the value of `--time-limit` is `1e99`; expected seconds, such as 30",
            ),
        ] {
            assert_eq!(parse_words(words).unwrap_err(), message, "{words}");
        }
    }

    #[test]
    fn help_is_for_every_command() {
        for words in ["--help", "help", "check --help", "manifest -h a b"] {
            assert!(matches!(parse_words(words), Ok(Command::Help)), "{words}");
        }
    }
}
