//! One program with three groups, one of them for commands like Python's `console_scripts`. All entry points
//! come from a collector; the program does not call `register`.

#![allow(missing_docs)]

use std::process::ExitCode;

use entry_points::{EntryPoint, Group, LoadFailure, State, groups};

entry_points::autoload!();

/// The content of a framework crate.
mod framework {
    use std::process::ExitCode;

    use entry_points::{EntryPoint, Group};

    pub(crate) type Command = fn(&[String]) -> ExitCode;

    pub trait Shape: Send + Sync {
        fn corners(&self) -> u32;
    }

    entry_points::group! {
        /// Commands.
        pub static COMMANDS: [EntryPoint<Command>];
        /// Their group.
        pub fn commands() -> Group<Command> {
            Group::new("test.commands")
        }
    }

    entry_points::group! {
        /// Shapes.
        pub static SHAPES: [EntryPoint<dyn Shape>];
        /// Their group.
        pub fn shapes() -> Group<dyn Shape> {
            Group::new("test.shapes").switches("TEST_SHAPE")
        }
    }

    entry_points::group! {
        /// Plain data.
        pub static LIMITS: [EntryPoint<u64>];
        /// Their group.
        pub fn limits() -> Group<u64> {
            Group::new("test.limits").built_in(&BUILT_IN)
        }
    }

    static BUILT_IN: [EntryPoint<u64>; 1] =
        [EntryPoint::new("byte", || Ok(Box::new(255))).in_package("framework", "1.0.0")];
}

/// A group whose declaration has paths with `super` and `self`.
mod nested {
    entry_points::group! {
        /// Shapes again.
        pub static MORE_SHAPES: [entry_points::EntryPoint<dyn super::framework::Shape>];
        pub fn more_shapes() -> Group<dyn super::framework::Shape> {
            entry_points::Group::new(self::NAME)
        }
    }

    const NAME: &str = "test.more_shapes";
}

use framework::{COMMANDS, Command, LIMITS, SHAPES, Shape, commands, limits, shapes};

struct Square;

impl Shape for Square {
    fn corners(&self) -> u32 {
        4
    }
}

mod curves {
    use super::*;

    pub(crate) fn load_circle() -> Result<Box<dyn Shape>, LoadFailure> {
        Err(LoadFailure::unavailable("no compasses"))
    }
}

entry_points::entry_points! {
    /// A shape, with documentation.
    #[distributed_slice(SHAPES)]
    pub static SQUARE: EntryPoint<dyn Shape> = EntryPoint::new("square", || Ok(Box::new(Square)));

    #[distributed_slice(SHAPES)]
    static CIRCLE: EntryPoint<dyn Shape> = EntryPoint::new("circle", curves::load_circle);

    #[cfg(any())]
    #[distributed_slice(SHAPES)]
    static NEVER: EntryPoint<dyn Shape> = EntryPoint::new("never", compiled_out);

    #[distributed_slice(crate::framework::COMMANDS)]
    static GREET: EntryPoint<Command> = EntryPoint::new("greet", || Ok(Box::new(greet)));

    #[distributed_slice(LIMITS)]
    static WORD: EntryPoint<u64> = EntryPoint::new("word", || Ok(Box::new(if 1 < 2 { 65_535 } else { 0 })));
}

fn greet(arguments: &[String]) -> ExitCode {
    ExitCode::from(u8::try_from(arguments.len()).unwrap())
}

#[test]
fn each_group_has_its_own_entry_points_sorted_by_name() {
    assert_eq!(shapes().names().collect::<Vec<_>>(), ["circle", "square"]);
    assert_eq!(commands().names().collect::<Vec<_>>(), ["greet"]);
    assert_eq!(limits().names().collect::<Vec<_>>(), ["byte", "word"]);
    assert_eq!((shapes().len(), commands().len(), limits().len()), (2, 1, 2));
    assert!(!shapes().is_empty());
    // The slices themselves hold only the entry points that linkme collected.
    assert_eq!((SHAPES.len(), COMMANDS.len(), LIMITS.len()), (2, 1, 1));
}

#[test]
fn a_command_is_found_by_name_and_run() {
    let command = commands().load("greet").unwrap();
    let code = command(&["a".to_owned(), "b".to_owned()]);
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)));
}

#[test]
fn an_entry_point_knows_its_group_package_and_path() {
    let circle = shapes().get("circle").unwrap();
    assert_eq!(circle.group(), "test.shapes");
    assert_eq!(circle.package(), Some("entry-points"));
    assert_eq!(circle.version(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(circle.value(), Some("three_groups::curves::load_circle"));
    assert_eq!(CIRCLE.group(), Some("test.shapes"));
    // `load` is a closure here: the static stands for it.
    assert_eq!(shapes().get("square").unwrap().value(), Some("three_groups::SQUARE"));
}

#[test]
fn plugins_load_by_name_and_the_unavailable_one_says_why() {
    assert_eq!(shapes().load("square").unwrap().corners(), 4);
    assert_eq!((*limits().load("byte").unwrap(), *limits().load("word").unwrap()), (255, 65_535));
    let error = shapes().load("circle").err().unwrap();
    assert!(error.to_string().ends_with("is unavailable: no compasses"), "{error}");
    assert!(matches!(shapes().get("circle").unwrap().state(), State::Unavailable { .. }));
}

#[test]
fn entries_are_selected_by_name_glob_or_by_package() {
    let names = |pattern: &str| shapes().select(pattern).map(|entry| entry.name()).collect::<Vec<_>>();
    assert_eq!(names("s*"), ["square"]);
    assert_eq!(names("*r*"), ["circle", "square"]);
    assert_eq!(names("entry-points/*"), ["circle", "square"]);
    assert_eq!(names("other/*"), [""; 0]);
}

#[test]
fn a_group_may_be_declared_in_any_module() {
    assert_eq!(nested::more_shapes().name(), "test.more_shapes");
    assert_eq!((nested::more_shapes().len(), nested::MORE_SHAPES.len()), (0, 0));
}

#[test]
fn every_group_of_the_process_is_listed_once_with_its_interface_whether_or_not_it_was_used() {
    static PRIVATE: Group<u8> = Group::new("test.private");
    static UNUSED: Group<u8> = Group::new("test.private_and_unused");
    assert!(PRIVATE.is_empty() && UNUSED.name() == "test.private_and_unused");
    let groups = groups();
    let names: Vec<_> = groups.reports().iter().map(|report| report.group()).collect();
    assert_eq!(names, ["test.commands", "test.limits", "test.more_shapes", "test.private", "test.shapes"]);
    let shapes = groups.get("test.shapes").unwrap();
    assert_eq!(shapes.interface(), "dyn three_groups::framework::Shape");
    assert_eq!(shapes.rows().iter().map(|row| row.name).collect::<Vec<_>>(), ["circle", "square"]);
    assert!(groups.get("test.unused").is_none());
    let printed = groups.to_string();
    assert!(printed.starts_with("test.commands: 1 entry point\n  name "), "{printed}");
    assert!(
        printed.contains("\n\ntest.private: 0 entry points\n\ntest.shapes: 2 entry points\n"),
        "{printed}"
    );
}

#[test]
fn autoload_leaves_one_list_for_the_whole_crate() {
    assert_eq!(__ENTRY_POINTS.len(), 4);
    assert_eq!(shapes().report().notes(), [""; 0]);
}
