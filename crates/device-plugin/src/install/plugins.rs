//! Where a program's plugins lie, and installing them.

use std::collections::BTreeMap;
use std::env::consts::DLL_EXTENSION;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use device_registry::backend::{Backend, LoadFailure, Options};
use device_registry::backends;
use device_registry::registry::{Row, State, isolate};
use entry_points::message::shown_path;

use crate::file::checked::open_checked;
use crate::file::files::{canonical, open_regular};
use crate::file::manifest::{self, Manifest};
use crate::file::rights::Rights;
use crate::file::trust::Trust;
use crate::group::{self, FileEntry, FileGroup};
use crate::install::error::InstallError;
use crate::install::places::{Place, Surroundings, leave_out};
use crate::install::report::{InstallReport, Searched};
use crate::load;

/// How a manifest's file name ends, behind a name of at least one character.
const SUFFIX: &[u8] = b".plugin.json";

/// How many reasons of skipped manifests go into the notes of the group. The report has all.
const NOTES: usize = 8;

/// The folders in which a program's plugins may lie.
///
/// Only the program names them: there is no default folder, the current directory is never searched, and this
/// crate has no variable of its own. A library leaves this to its program.
///
/// ```
/// use device_plugin::Plugins;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let report = Plugins::new()
///     .beside_program("backends") // the folder `backends` beside the executable
///     .folder(if cfg!(windows) { r"C:\Program Files\MyApp\backends" } else { "/usr/lib/myapp/backends" })
///     .variable("MYAPP_BACKENDS") // folders that the user adds
///     .install()?;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "`install` reads the folders"]
pub struct Plugins {
    places: Vec<Place>,
    any_owner: bool,
}

impl Plugins {
    /// No folders.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder, relative to the one that has the executable, such as `backends` or `../lib/myapp`. If
    /// the program was started through a link, it is the folder that the link leads to.
    pub fn beside_program(self, folder: impl Into<PathBuf>) -> Self {
        self.and(Place::BesideProgram(folder.into()))
    }

    /// Adds a folder, as an absolute path.
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        self.and(Place::Folder(folder.into()))
    }

    /// Adds the folders that the user lists in a variable of the environment, separated as in `PATH`.
    /// Relative folders in it are skipped.
    ///
    /// The variable is ignored where the process has more rights than the user that started it, as that user
    /// could run any code with those rights: in set-user-ID and set-group-ID programs and those with file
    /// capabilities on Linux, macOS and BSD, and in a process with the rights of an administrator on Windows.
    /// The report says so.
    pub fn variable(self, name: impl Into<String>) -> Self {
        self.and(Place::Variable(name.into()))
    }

    /// Turns off the check that other users cannot change the plugins. It is for containers, whose files may
    /// belong to users that do not exist there, and for folders that every member of a group may change.
    ///
    /// By default, manifests, libraries, and all folders above them have to belong to root or to the user of
    /// this process, and others must not be able to write to them. A sticky folder above, such as `/tmp`, is
    /// safe. Windows has no such check.
    pub fn trust_any_owner(self) -> Self {
        Self { any_owner: true, ..self }
    }

    // Not public API. `device-config` holds its file to the rule of manifests.
    /// Checks that no other user can change a file, unless [any owner](Self::trust_any_owner) is trusted.
    /// `file` is canonical.
    #[doc(hidden)]
    pub fn check_owner(&self, file: &Path) -> Result<(), String> {
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let check = Trust::new(self.any_owner, Rights::of_process()).check_file(file, &metadata);
        check.map_err(|error| error.to_string())
    }

    fn and(mut self, place: Place) -> Self {
        self.places.push(place);
        self
    }

    /// Reads the manifests in the folders, and installs their backends in
    /// [`backends()`](device_registry::backends), and the entries of [other groups](crate::group) in theirs.
    /// Opens no library: the first use of a name does.
    ///
    /// Folders are read in the order in which they were added, and manifests in the order of their file
    /// names. Of several backends with one name the first is used; a backend that is linked into the program
    /// takes precedence over all of them. A call blocks while it reads the files. A later call adds what is
    /// new; nothing is ever removed.
    ///
    /// A folder that does not exist is no error. Other mistakes in folders and manifests harm nothing else:
    /// the report lists them, and so do `backends().report()` and the error for an unknown backend. They are
    /// logged as warnings too.
    ///
    /// # Errors
    ///
    /// [`InstallError`] is a mistake in the program, and nothing is read.
    #[track_caller]
    pub fn install(&self) -> Result<InstallReport, InstallError> {
        let mut report = self.read(&Surroundings::of_process())?;
        for manifest in std::mem::take(&mut report.installed) {
            let any_owner = self.any_owner;
            let outcome = match group::named(manifest.group()) {
                Some(group) => group.install(FileEntry::new(manifest.clone(), any_owner)),
                None => {
                    let loaded = manifest.clone();
                    backends().install(
                        manifest.installed(move |options: &_| load_checked(&loaded, any_owner, options)),
                    )
                }
            };
            match outcome {
                Ok(()) => report.installed.push(manifest),
                Err(error) => report.skip(shown_path(manifest.file()), error.to_string()),
            }
        }
        if !report.installed.is_empty() {
            report.states = states(&report.installed);
        }
        announce(&report);
        Ok(report)
    }

    /// Reads all manifests, without installing any.
    fn read(&self, surroundings: &Surroundings) -> Result<InstallReport, InstallError> {
        self.places.iter().try_for_each(Place::check)?;
        let mut report = InstallReport::default();
        let mut trust = Trust::new(self.any_owner, surroundings.rights);
        surroundings.each_folder(&self.places, &mut report, |folder, report| {
            read_folder(folder, &mut trust, report);
        });
        Ok(report)
    }
}

/// Checks the library of a manifest, and opens its backend.
fn load_checked(
    manifest: &Manifest,
    any_owner: bool,
    options: &Options,
) -> Result<Box<dyn Backend>, LoadFailure> {
    open_checked(manifest, any_owner, |checked| {
        // SAFETY: a file in a folder that the program names is code that the program trusts, like the code
        // that is linked into it, and by its symbol it promises to keep the rules of the interface. The
        // checks rule out files of other users.
        unsafe { load::open(&checked, options) }
    })
}

/// The states of what was installed.
fn states(manifests: &[Manifest]) -> Vec<State> {
    let mut reports = BTreeMap::new();
    let mut state = |manifest: &Manifest| {
        let new = || group::named(manifest.group()).map_or_else(|| backends().report(), FileGroup::report);
        let report = reports.entry(manifest.group().to_owned()).or_insert_with(new);
        let its = |row: &&Row| row.name == manifest.name() && row.file == Some(manifest.library());
        report.rows().iter().find(its).map_or(State::Installed, |row| row.state.clone())
    };
    manifests.iter().map(&mut state).collect()
}

/// Reads the manifests of a folder. Its path is canonical.
fn read_folder(folder: &Path, trust: &mut Trust, report: &mut InstallReport) {
    let names = match manifests(folder) {
        Ok(names) => names,
        Err(error) => return leave_out(folder, &error, report),
    };
    let library = if names.is_empty() { library_in(folder) } else { None };
    report.searched.push(Searched::Folder { path: folder.into(), manifests: names.len(), library });
    if names.is_empty() {
        return;
    }
    if let Err(error) = trust.check_folder(folder) {
        return report.skip(shown_path(folder), error.to_string());
    }
    for (name, is_link) in names {
        let file = folder.join(name);
        match read_manifest(&file, is_link, None, trust) {
            Ok(Some(manifest)) => report.installed.push(manifest),
            Ok(None) => {}
            Err(reason) => report.skip(shown_path(&file), reason),
        }
    }
}

/// The names of the manifests in a folder, sorted, each with whether it is a link.
pub(super) fn manifests(folder: &Path) -> io::Result<Vec<(std::ffi::OsString, bool)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_manifest(&name) {
            let is_link = entry.file_type().is_ok_and(|of| of.is_symlink());
            names.push((name, is_link));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The name of the first library in a folder.
fn library_in(folder: &Path) -> Option<String> {
    let files = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let is_library = |name: &String| {
        let extension = Path::new(name).extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case(DLL_EXTENSION))
            && !name.starts_with('.')
    };
    files.filter(is_library).min()
}

/// Files with a dot in front are hidden: editors and file systems keep their own data in them.
pub(super) fn is_manifest(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() > SUFFIX.len() && name.ends_with(SUFFIX) && !name.starts_with(b".")
}

pub(super) fn read_manifest(
    file: &Path,
    is_link: bool,
    another: Option<&str>,
    trust: &mut Trust,
) -> Result<Option<Manifest>, String> {
    // The library lies beside the manifest itself, and not beside a link to it.
    let real = if is_link {
        &*canonical(file).map_err(|error| format!("cannot follow the link: {error}"))?
    } else {
        file
    };
    let (mut opened, metadata) = open_regular(real).map_err(|error| error.to_string())?;
    trust.check_file(real, &metadata).map_err(|error| error.to_string())?;
    Manifest::parse(&manifest::read(&mut opened, &metadata)?, real, &group::IN_FILES, another)
}

/// Passes what happened on to the group, whose reports and errors show it, and to the log.
fn announce(report: &InstallReport) {
    // A logger is the program's code, and its panic would end the installing.
    let _ = isolate(|| log::debug!("{}", report.searched()));
    backends().add_note(report.searched());
    for (at, skipped) in report.skipped().iter().enumerate() {
        let _ = isolate(|| log::warn!("{skipped}"));
        if at < NOTES {
            backends().add_note(skipped.to_string());
        }
    }
    if let Some(more @ 1..) = report.skipped().len().checked_sub(NOTES) {
        backends().add_note(format!("{more} more are skipped, which the report of `Plugins::install` lists"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::file::testing::{Folder, manifest};

    fn read(folders: &[&Path]) -> InstallReport {
        let plugins = folders.iter().fold(Plugins::new(), |plugins, folder| plugins.folder(*folder));
        plugins.read(&Surroundings::of_process()).unwrap()
    }

    fn names(report: &InstallReport) -> Vec<&str> {
        report.installed().iter().map(Manifest::name).collect()
    }

    /// The one reason in the report, which is of the file `name`.
    fn reason<'a>(report: &'a InstallReport, name: &str) -> &'a str {
        let [skipped] = report.skipped() else { panic!("{report}") };
        assert!(skipped.what().ends_with(name), "{skipped}");
        skipped.reason()
    }

    #[test]
    fn manifests_come_in_the_order_of_folders_and_file_names() {
        let one = Folder::new();
        let two = Folder::new();
        for (folder, file, name) in
            [(&one, "b", "x"), (&one, "a", "y"), (&one, "Z", "z"), (&two, "a", "x"), (&two, "0", "w")]
        {
            folder.write(&format!("{file}.plugin.json"), manifest(json!({"name": name})));
        }
        assert_eq!(names(&read(&[&one.path, &two.path])), ["z", "y", "x", "w", "x"]);
        assert_eq!(names(&read(&[&two.path, &one.path, &two.path])), ["w", "x", "z", "y", "x"]);
    }

    #[test]
    fn other_and_hidden_files_are_not_manifests() {
        let folder = Folder::new();
        for name in [".plugin.json", ".x.plugin.json", "x.json", "x.plugin.json.bak", "x.plugin.jso"] {
            folder.write(name, "not JSON");
        }
        let report = read(&[&folder.path]);
        let expected = format!("searched for backends in files: {} (no manifests)", folder.path.display());
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn a_library_without_a_manifest_is_named() {
        let folder = Folder::new();
        for name in ["libz", "liby", ".libx"] {
            folder.write(&format!("{name}.{DLL_EXTENSION}"), "");
        }
        folder.write("liba.txt", "");
        let path = folder.path.display();
        let expected = format!(
            "searched for backends in files: {path} (no manifests; if `liby.{DLL_EXTENSION}` is a backend, \
             `devices plugin manifest` prints one)"
        );
        assert_eq!(read(&[&folder.path]).to_string(), expected);
        folder.write("x.plugin.json", manifest(json!({"group": "codec.decoders"})));
        assert_eq!(
            read(&[&folder.path]).to_string(),
            format!("searched for backends in files: {path} (1 manifest)")
        );
    }

    #[test]
    fn a_manifest_for_another_group_is_skipped_in_silence() {
        let folder = Folder::new();
        folder.write("x.plugin.json", manifest(json!({"group": "codec.decoders"})));
        let report = read(&[&folder.path]);
        assert!(report.installed().is_empty() && report.skipped().is_empty());
    }

    #[test]
    fn a_manifest_that_is_too_large_is_skipped() {
        let folder = Folder::new();
        let padded = |len: usize| manifest(json!({"x": "y".repeat(len - manifest(json!({"x": ""})).len())}));
        folder.write("fits.plugin.json", padded(64 << 10));
        folder.write("large.plugin.json", padded((64 << 10) + 1));
        let report = read(&[&folder.path]);
        assert_eq!(names(&report), ["acme"]);
        let expected = "it has 65537 bytes; expected a manifest of at most 65536";
        assert_eq!(reason(&report, "large.plugin.json"), expected);
    }

    #[test]
    fn a_folder_called_like_a_manifest_is_skipped() {
        let folder = Folder::new();
        folder.create_folder("x.plugin.json");
        assert_eq!(
            reason(&read(&[&folder.path]), "x.plugin.json"),
            "expected a regular file, found a folder"
        );
    }

    #[test]
    fn a_file_in_place_of_a_folder_is_skipped() {
        let folder = Folder::new();
        let file = folder.write("x", "");
        let report = read(&[&file]);
        assert!(reason(&report, "x").starts_with("cannot read the folder: "), "{report}");
        assert!(
            report
                .to_string()
                .starts_with(&format!("searched for backends in files: {} (not readable)\n", file.display()))
        );
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;

        use super::*;
        use crate::file::testing::set_mode;
        use crate::install::report::Skipped;

        #[test]
        fn a_pipe_a_socket_and_a_device_are_skipped_without_a_wait() {
            let folder = Folder::new();
            let pipe = folder.path.join("pipe.plugin.json");
            let path = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
            // SAFETY: `path` is a text that ends in a zero byte.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o644) }, 0);
            let _socket = UnixListener::bind(folder.path.join("socket.plugin.json")).unwrap();
            symlink("/dev/zero", folder.path.join("device.plugin.json")).unwrap();
            let report = read(&[&folder.path]);
            let reasons: Vec<_> = report.skipped().iter().map(Skipped::reason).collect();
            let expected = ["a device file", "a pipe", "a socket"];
            assert_eq!(reasons, expected.map(|kind| format!("expected a regular file, found {kind}")));
        }

        #[test]
        fn a_link_leads_to_the_manifest_and_to_the_library_beside_it() {
            let folder = Folder::new();
            let store = folder.create_folder("store");
            let links = folder.create_folder("links");
            folder.write("store/x.plugin.json", manifest(json!({})));
            symlink("../store/x.plugin.json", links.join("y.plugin.json")).unwrap();
            symlink("z.plugin.json", links.join("z.plugin.json")).unwrap();
            let report = read(&[&links]);
            assert_eq!(report.installed()[0].library(), store.join("libacme.so"));
            assert!(reason(&report, "z.plugin.json").starts_with("cannot follow the link: "), "{report}");
        }

        #[test]
        fn a_manifest_that_others_can_write_to_is_skipped_and_a_folder_with_all_in_it() {
            let folder = Folder::new();
            let inner = folder.create_folder("inner");
            let file = folder.write("inner/x.plugin.json", manifest(json!({})));
            folder.write("inner/y.plugin.json", manifest(json!({})));
            set_mode(&file, 0o666);
            let report = read(&[&inner]);
            assert_eq!(names(&report), ["acme"]);
            assert!(reason(&report, "x.plugin.json").contains("can be written to by others (mode 666)"));
            set_mode(&inner, 0o777);
            let report = read(&[&inner]);
            assert!(report.installed().is_empty());
            assert!(reason(&report, "inner").contains("can be written to by others (mode 777)"));
            let trusting = Plugins::new().folder(&inner).trust_any_owner();
            assert_eq!(names(&trusting.read(&Surroundings::of_process()).unwrap()).len(), 2);
        }

        #[test]
        fn a_link_into_a_folder_of_others_is_skipped() {
            let folder = Folder::new();
            let links = folder.create_folder("links");
            let others = folder.create_folder("others");
            folder.write("others/x.plugin.json", manifest(json!({})));
            symlink("../others/x.plugin.json", links.join("x.plugin.json")).unwrap();
            set_mode(&others, 0o777);
            assert!(
                reason(&read(&[&links]), "x.plugin.json").starts_with(&format!("`{}` can", others.display()))
            );
        }

        #[test]
        fn an_unreadable_manifest_or_folder_is_skipped() {
            let folder = Folder::new();
            let file = folder.write("x.plugin.json", manifest(json!({})));
            set_mode(&file, 0);
            let closed = folder.create_folder("closed");
            set_mode(&closed, 0);
            if std::fs::File::open(&file).is_ok() {
                eprintln!("skipped: root can read every file");
                return;
            }
            let report = read(&[&folder.path, &closed]);
            let [file, closed] = report.skipped() else { panic!("{report}") };
            assert!(file.reason().starts_with("cannot read it: "), "{report}");
            assert!(closed.reason().starts_with("cannot read the folder: "), "{report}");
        }
    }
}
