//! Crates lock with `parking_lot`, but for those that `CONTRIBUTING.md` names.

use std::path::Path;

use device_registry_tests::{files, workspace};

/// The folders that may use std's locks. Files of each do.
const FOLDERS: [&str; 4] =
    ["crates/device-registry/src", "crates/entry-points/src/sync", "examples/custom-backend", "templates"];

/// What std has for locks, in `std::sync`. Its glob brings them all.
const NAMES: [&str; 9] = [
    "Mutex",
    "MutexGuard",
    "RwLock",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "Condvar",
    "PoisonError",
    "TryLockError",
    "*",
];

/// The names that a path or an import has after `sync::`: one, or all between braces.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = text.find(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && !(c.is_alphanumeric() || "_*}".contains(c))
    });
    let words = text[..end.unwrap_or(text.len())].split(|c: char| !(c.is_alphanumeric() || "_*".contains(c)));
    words.filter(|word| !word.is_empty())
}

/// The locks of std that the code of a file names.
fn locks_of_std(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, module) in text.match_indices("sync::") {
        let (before, after) = (&text[..at], &text[at + module.len()..]);
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        if text[line..].trim_start().starts_with("//") {
            continue;
        }
        // In an import with braces the path begins before them.
        let statement = before.rfind(';').map_or(before, |end| &before[end..]);
        let is_of_std = match before.chars().next_back() {
            Some(':') => before.ends_with("std::"),
            Some(c) if c.is_alphanumeric() || c == '_' => false,
            _ => statement.contains("use std::{"),
        };
        if is_of_std {
            found.extend(names(after).filter(|name| NAMES.contains(name)));
        }
    }
    found
}

fn is_source(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "src")
}

#[test]
fn crates_lock_with_parking_lot() {
    let (mut wrong, mut users) = (Vec::new(), [0; FOLDERS.len()]);
    for (path, text) in files("rs") {
        let path = path.strip_prefix(workspace()).expect("it is in this repository");
        let locks = locks_of_std(&text);
        if locks.is_empty() || !is_source(path) {
            continue;
        }
        match FOLDERS.iter().position(|folder| path.starts_with(folder)) {
            Some(folder) => users[folder] += 1,
            None => wrong.push(format!("{} uses {} of std::sync", path.display(), locks.join(", "))),
        }
    }
    assert!(wrong.is_empty(), "expected `parking_lot`, see CONTRIBUTING.md:\n{}", wrong.join("\n"));
    for (folder, users) in FOLDERS.iter().zip(users) {
        assert!(users > 0, "no file in {folder} uses std's locks: CONTRIBUTING.md and this list name it");
    }
}

#[test]
fn locks_of_std_are_found_in_imports_and_paths() {
    for (code, expected) in [
        ("use std::sync::Mutex;", &["Mutex"][..]),
        ("use std::sync::{Arc, Condvar, mpsc::{self, Sender}, RwLock};", &["Condvar", "RwLock"]),
        ("use std::sync::{\n    Arc, MutexGuard,\n    PoisonError,\n};", &["MutexGuard", "PoisonError"]),
        ("use std::fs;\nuse std::{io, sync::{Arc, Mutex}};", &["Mutex"]),
        ("    lock.unwrap_or_else(std::sync::PoisonError::into_inner)", &["PoisonError"]),
        ("static A: ::std::sync::Mutex<u8> = std::sync::Mutex::new(0);", &["Mutex", "Mutex"]),
        ("use std::sync::*;", &["*"]),
        ("use std::sync::atomic::{AtomicBool, Ordering};\nuse parking_lot::Mutex;", &[]),
        ("use std::sync::Arc;\nuse tokio::sync::{Mutex, oneshot};\nuse tokio::{net, sync::Mutex};", &[]),
        ("/// Like std::sync::Mutex.\nuse crate::sync::Mutex;\nuse std::sync::{Arc, OnceLock};", &[]),
    ] {
        assert_eq!(locks_of_std(code), expected, "{code}");
    }
}
