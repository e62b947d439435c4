//! Where a program's plugins may lie: from what the program says to folders.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use device_registry::backend::ElevatedProcess;
use entry_points::message::shown_path;

use crate::file::files::canonical;
use crate::file::rights::Rights;
use crate::install::error::InstallError;
use crate::install::report::{InstallReport, Searched};

/// A place that the program names.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Relative to the folder of the executable.
    BesideProgram(PathBuf),
    Folder(PathBuf),
    /// A variable with folders.
    Variable(String),
}

impl Place {
    pub(super) fn check(&self) -> Result<(), InstallError> {
        let is_relative = |path: &Path| {
            !path.components().any(|part| matches!(part, Component::Prefix(_) | Component::RootDir))
        };
        match self {
            Self::Folder(path) if !path.is_absolute() => Err(InstallError::RelativeFolder(path.clone())),
            Self::BesideProgram(path) if !is_relative(path) => {
                Err(InstallError::NotBesideProgram(path.clone()))
            }
            Self::Variable(name) if name.is_empty() || name.contains(['=', '\0']) => {
                Err(InstallError::VariableName(name.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// What the folders depend on in addition to the places.
pub(super) struct Surroundings {
    pub(super) rights: Rights,
    pub(super) program: fn() -> io::Result<PathBuf>,
    pub(super) variable: fn(&str) -> Option<OsString>,
}

impl Surroundings {
    pub(super) fn of_process() -> Self {
        Self { rights: Rights::of_process(), program: env::current_exe, variable: |name| env::var_os(name) }
    }

    /// The folders of a place, as the program or the user spelled them.
    fn folders(&self, place: &Place, report: &mut InstallReport) -> Vec<PathBuf> {
        match place {
            Place::Folder(path) => vec![path.clone()],
            Place::BesideProgram(path) => match (self.program)() {
                Ok(program) => {
                    // A link to the program may lie elsewhere than the files that are installed with the
                    // program.
                    let program = canonical(&program).unwrap_or(program);
                    vec![program.parent().unwrap_or(&program).join(path)]
                }
                Err(error) => {
                    report.skip(
                        format!("`{}` beside the program", shown_path(path)),
                        format!("cannot find the program: {error}"),
                    );
                    Vec::new()
                }
            },
            Place::Variable(name) => self.folders_of_variable(name, report),
        }
    }

    fn folders_of_variable(&self, name: &str, report: &mut InstallReport) -> Vec<PathBuf> {
        let Some(value) = (self.variable)(name).filter(|value| !value.is_empty()) else {
            report.searched.push(Searched::Nothing { place: name.to_owned(), reason: "not set" });
            return Vec::new();
        };
        if self.rights.is_elevated() {
            report.skip(name, ElevatedProcess.to_string());
            report.searched.push(Searched::Nothing { place: name.to_owned(), reason: "ignored" });
            return Vec::new();
        }
        let mut folders = Vec::new();
        for folder in env::split_paths(&value) {
            // Where a variable of this kind has an empty part, other programs take the current directory.
            if folder.as_os_str().is_empty() {
                continue;
            }
            if folder.is_absolute() {
                folders.push(folder);
            } else {
                let reason = "it is relative; expected an absolute path";
                report.skip(format!("`{}` in {name}", shown_path(&folder)), reason);
            }
        }
        folders
    }

    /// Calls `read` with each folder of the places that exists: without links, each once, in the order of the
    /// places.
    pub(super) fn each_folder(
        &self,
        places: &[Place],
        report: &mut InstallReport,
        mut read: impl FnMut(&Path, &mut InstallReport),
    ) {
        let mut seen = HashSet::new();
        for place in places {
            for folder in self.folders(place, report) {
                match canonical(&folder) {
                    Ok(real) if !seen.contains(&real) => {
                        read(&real, report);
                        seen.insert(real);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        if seen.insert(folder.clone()) {
                            leave_out(&folder, &error, report);
                        }
                    }
                }
            }
        }
    }
}

/// Reports a folder that cannot be read. A program without plugins has none, which is no mistake.
pub(super) fn leave_out(folder: &Path, error: &io::Error, report: &mut InstallReport) {
    let place = shown_path(folder);
    if error.kind() == io::ErrorKind::NotFound {
        report.searched.push(Searched::Nothing { place, reason: "does not exist" });
    } else {
        report.skip(place.clone(), format!("cannot read the folder: {error}"));
        report.searched.push(Searched::Nothing { place, reason: "not readable" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::testing::Folder;

    impl Surroundings {
        fn search(&self, places: &[Place], report: &mut InstallReport) -> Vec<PathBuf> {
            let mut found = Vec::new();
            self.each_folder(places, report, |folder, _| found.push(folder.to_owned()));
            found
        }
    }

    fn surroundings(variable: fn(&str) -> Option<OsString>) -> Surroundings {
        Surroundings { variable, ..Surroundings::of_process() }
    }

    #[test]
    fn a_program_that_names_a_place_that_cannot_be_right_gets_an_error() {
        let absolute = if cfg!(windows) { r"C:\x" } else { "/x" };
        let cases = [
            (Place::Folder("backends".into()), "the folder `backends` of plugins is relative"),
            (Place::Folder("".into()), "the folder `` of plugins is relative"),
            (Place::BesideProgram(absolute.into()), "is not relative; expected a path such as `backends`"),
            (Place::Variable("A=B".into()), "`variable(\"A=B\")` is not the name of a variable"),
            (Place::Variable(String::new()), "is not the name of a variable"),
        ];
        for (place, part) in cases {
            let error = place.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for place in [
            Place::Folder(absolute.into()),
            Place::BesideProgram("../lib/x".into()),
            Place::BesideProgram("".into()),
            Place::Variable("X".into()),
        ] {
            place.check().unwrap();
        }
    }

    #[test]
    fn folders_keep_the_order_of_their_places_and_come_once() {
        let folder = Folder::new();
        let [b, a] = ["b", "a"].map(|name| folder.create_folder(name));
        let places = [&b, &a, &folder.path.join("a/../b"), &a].map(|path| Place::Folder(path.clone()));
        let mut report = InstallReport::default();
        assert_eq!(surroundings(|_| None).search(&places, &mut report), [b, a]);
        assert!(report.skipped().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_is_the_folder_and_a_loop_is_skipped() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new();
        let real = folder.create_folder("real");
        symlink(&real, folder.path.join("link")).unwrap();
        symlink("loop", folder.path.join("loop")).unwrap();
        let places = ["link", "real", "loop"].map(|name| Place::Folder(folder.path.join(name)));
        let mut report = InstallReport::default();
        assert_eq!(surroundings(|_| None).search(&places, &mut report), [real]);
        let reason = report.skipped()[0].to_string();
        assert!(reason.contains("/loop is skipped: cannot read the folder: "), "{reason}");
    }

    #[test]
    fn a_folder_beside_the_program_is_found_from_the_real_program() {
        let program = env::current_exe().unwrap().canonicalize().unwrap();
        let parent = program.parent().unwrap();
        let mut report = InstallReport::default();
        let places = ["", "../"].map(|path| Place::BesideProgram(path.into()));
        let found = surroundings(|_| None).search(&places, &mut report);
        assert_eq!(found, [parent, parent.parent().unwrap()].map(|path| canonical(path).unwrap()));
    }

    #[test]
    fn a_program_that_cannot_be_found_has_nothing_beside_it() {
        let program = || Err(io::Error::other("no /proc"));
        let surroundings = Surroundings { program, ..Surroundings::of_process() };
        let mut report = InstallReport::default();
        assert!(surroundings.search(&[Place::BesideProgram("backends".into())], &mut report).is_empty());
        let expected = "`backends` beside the program is skipped: cannot find the program: no /proc";
        assert_eq!(report.skipped()[0].to_string(), expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_has_absolute_folders_and_empty_parts_are_not_the_current_directory() {
        let surroundings = surroundings(|name| (name == "X").then(|| ":relative:/:./here::/no_such".into()));
        let mut report = InstallReport::default();
        let found = surroundings.search(&[Place::Variable("X".into())], &mut report);
        assert_eq!(found, [Path::new("/")]);
        let skipped: Vec<_> = report.skipped().iter().map(ToString::to_string).collect();
        let reason = "is skipped: it is relative; expected an absolute path";
        assert_eq!(skipped, [format!("`relative` in X {reason}"), format!("`./here` in X {reason}")]);
        assert_eq!(report.searched(), "searched for backends in files: /no_such (does not exist)");
    }

    #[cfg(windows)]
    #[test]
    fn a_variable_has_folders_with_drives_between_semicolons() {
        let value = |_: &str| Some(r#"C:\;relative;;\x;C:x;"C:\no;such""#.into());
        let surroundings = Surroundings { rights: Rights::new(false), ..surroundings(value) };
        let mut report = InstallReport::default();
        assert_eq!(surroundings.search(&[Place::Variable("X".into())], &mut report), [Path::new(r"C:\")]);
        let skipped: Vec<_> = report.skipped().iter().map(ToString::to_string).collect();
        let expected = ["relative", r"\x", "C:x"]
            .map(|folder| format!("`{folder}` in X is skipped: it is relative; expected an absolute path"));
        assert_eq!(skipped, expected);
        assert_eq!(report.searched(), r"searched for backends in files: C:\no;such (does not exist)");
    }

    #[test]
    fn a_process_with_more_rights_than_its_user_ignores_the_variable() {
        #[cfg(unix)]
        let rights = Rights::new(true, 1000, 0);
        #[cfg(not(unix))]
        let rights = Rights::new(true);
        let surroundings = Surroundings { rights, ..surroundings(|_| Some("/".into())) };
        let mut report = InstallReport::default();
        assert!(surroundings.search(&[Place::Variable("X".into())], &mut report).is_empty());
        let reason =
            "X is skipped: this process has more rights than its user, whose environment must not name files";
        assert_eq!(report.to_string(), format!("searched for backends in files: X (ignored)\n{reason}"));
    }

    #[test]
    fn a_variable_that_is_not_set_or_empty_is_no_mistake() {
        for variable in [(|_: &str| None) as fn(&str) -> _, |_| Some("".into())] {
            let mut report = InstallReport::default();
            assert!(surroundings(variable).search(&[Place::Variable("X".into())], &mut report).is_empty());
            assert_eq!(report.to_string(), "searched for backends in files: X (not set)");
        }
    }
}
