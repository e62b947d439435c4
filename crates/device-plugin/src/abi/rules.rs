//! Compares the rules for drivers in `include/device_plugin.h` with the rules for drivers in Rust, from which
//! they are translated.
//!
//! With the variable `DEVICE_PLUGIN_WRITE_RULES` set, the test writes them into the header.

use std::path::Path;
use std::{env, fs};

/// The rules of drivers in Rust.
const RULES: &str = include_str!("../../../device-registry/src/backend/rules.md");

/// Where the rules begin and end in the header.
const BEGIN: &str = " * RULES OF DRIVERS\n";
const END: &str = " */\n#ifndef DEVICE_PLUGIN_H";

/// The words in Rust and in C. A name such as `StreamDriver::flush` that is not here loses its type.
const WORDS: &[(&str, &str)] = &[
    ("`BackendError::lost`", "DP_LOST"),
    ("`BackendError::unsupported`", "DP_UNSUPPORTED"),
    ("`BackendError::invalid`", "DP_INVALID"),
    ("`LossReporter`", "dp_loss"),
    ("`MemoryReuse::Divided`", "DP_REUSE_DIVIDED"),
    ("`FaultInjector::clear`", "`clear_faults`"),
    ("`StreamDriver::wait_event`", "`wait`"),
    (
        "it drops the completion",
        "it finishes the read with DP_DROPPED and releases the destination, in any order",
    ),
    ("The drop of a stream", "`destroy` of a stream"),
    ("The drop waits", "`destroy` waits"),
    ("The core drops a stream", "The program destroys a stream"),
    (
        "The core drops the stream first, and then the memory and the events",
        "The program destroys the stream first, and then frees the memory and destroys the events",
    ),
    ("With its drop the stream ends", "In `destroy` of the stream the library ends"),
    ("only drops come", "only `destroy`, `free` and `release` come"),
    ("`clear_faults` and the drops", "`clear_faults`, `destroy`, `free` and `release`"),
    ("after the drop", "after `destroy`"),
    ("or of a library below the driver", "or of a library below this one"),
    ("the driver", "the library"),
    ("The driver", "The library"),
    ("a driver", "a library"),
    ("A driver", "A library"),
    ("the core", "the program"),
    ("The core", "The program"),
];

/// The rules as they must stand in the header.
fn translated() -> String {
    let mut block =
        format!("{BEGIN} *\n * One text with the rules of drivers in Rust. A test compares the two.\n");
    let sections = RULES.split("\n## ").skip(1);
    for section in sections {
        let (title, rules) = section.split_once('\n').expect("a section has a title");
        block += &format!(" *\n * {title}\n *\n");
        for rule in rules.trim().split("\n- ") {
            let rule = rule.trim_start_matches("- ").split_whitespace().collect::<Vec<_>>().join(" ");
            let (number, text) = rule.split_once(". ").expect("a rule has a number");
            let number = number.strip_prefix("**").expect("a rule begins with its number");
            append(&mut block, number, &in_c(text));
        }
    }
    block
}

/// The text of a rule in the words of C.
fn in_c(text: &str) -> String {
    let mut text = text.replace("**", "").replace("[`", "`").replace("`]", "`");
    for (rust, c) in WORDS {
        text = text.replace(rust, c);
    }
    let quoted = text.split('`').enumerate().map(|(at, part)| match part.rsplit_once("::") {
        Some((_, function)) if at % 2 == 1 => function,
        _ => part,
    });
    let text = quoted.collect::<Vec<_>>().join("`");
    for name in text.split('`').skip(1).step_by(2) {
        assert!(name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "no word of C: `{name}`");
    }
    text
}

/// Appends a rule, wrapped into lines.
fn append(block: &mut String, number: &str, text: &str) {
    const WIDTH: usize = 118;
    let mut line = format!(" * {number:>3}.");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            *block += &format!("{line}\n");
            line = " *     ".to_owned();
        }
        line += " ";
        line += word;
    }
    *block += &format!("{line}\n");
}

#[test]
fn the_header_has_the_rules_of_drivers_in_the_words_of_c() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/device_plugin.h");
    let header = fs::read_to_string(&path).unwrap();
    let begin = header.find(BEGIN).expect("the header has the rules");
    let end = header.find(END).expect("the rules end with the comment");
    let expected = translated();
    let found = &header[begin..end];
    if env::var_os("DEVICE_PLUGIN_WRITE_RULES").is_some() && expected != found {
        fs::write(path, [&header[..begin], &expected, &header[end..]].concat()).unwrap();
        return;
    }
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(
        expected == found,
        "the rules differ: write them by DEVICE_PLUGIN_WRITE_RULES=1, and read what changed: {differs:?}"
    );
}

#[test]
fn each_function_in_the_rules_is_declared() {
    let header =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/device_plugin.h")).unwrap();
    let (_, declared) = header.split_once(END).unwrap();
    let rules = translated();
    for name in rules.split('`').skip(1).step_by(2).filter(|&name| name != "fork") {
        let declares = [format!("(*{name})("), format!(" {name};")];
        assert!(declares.iter().any(|text| declared.contains(text)), "`{name}` is not declared");
    }
}

#[test]
fn rules_are_numbered_in_their_order() {
    let numbers = RULES.lines().filter_map(|line| line.strip_prefix("- **D")?.split_once('.'));
    let numbers: Vec<usize> = numbers.map(|(number, _)| number.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
}
