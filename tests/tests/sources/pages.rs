//! What the pages of this repository say that can be checked: links, paths, the names that decisions find in
//! files, the crates of the first page, macros.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_registry_tests::{files, workspace};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The macros that pages may name by their path. Each is imported below, so that a wrong path does not
/// compile.
const MACROS: [&str; 6] = [
    "device_registry::autoload!",
    "device_registry::backend::entry_points!",
    "device_plugin::export!",
    "entry_points::autoload!",
    "entry_points::entry_points!",
    "entry_points::group!",
];

mod imported {
    #[expect(unused_imports, reason = "that they exist is the test")]
    use {
        device_plugin::export as _, device_registry::autoload as _,
        device_registry::backend::entry_points as _, entry_points::autoload as _,
        entry_points::entry_points as _, entry_points::group as _,
    };
}

/// The folders whose paths are written from the root of this repository. Those of `tests/` are often below a
/// crate.
const FOLDERS: [&str; 7] =
    ["crates/", "kernels/", "docs/", "tests/tests/", "examples/", "integrations/", "benches/"];

fn pages() -> Vec<(PathBuf, String)> {
    files("md")
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut heading) = (BTreeSet::new(), None::<String>);
    for event in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let heading = heading.take().unwrap_or_default().to_lowercase();
                let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
                anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            _ => {}
        }
    }
    anchors
}

/// What is wrong with the links of a page: those that lead to no file, or to no heading of it.
fn broken_links(page: &Path, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for event in parse(text) {
        let Event::Start(Tag::Link { dest_url: link, .. } | Tag::Image { dest_url: link, .. }) = event else {
            continue;
        };
        // Those of rustdoc lead to items, and its own check finds the broken ones.
        let is_item = link.contains("::") || link.chars().all(|c| c.is_alphanumeric() || c == '_');
        if is_item || link.contains("://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = page.with_file_name("").join(file);
        let leads = if file.is_empty() {
            anchors(text).contains(anchor)
        } else if file.ends_with(".md") && !anchor.is_empty() {
            fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
        } else {
            target.exists()
        };
        if !leads {
            broken.push(format!("{}: `{link}` leads nowhere", page.display()));
        }
    }
    broken
}

/// The paths in code spans of a page that do not exist.
fn missing_paths(page: &Path, text: &str) -> Vec<String> {
    let is_path = |code: &str| {
        FOLDERS.iter().any(|folder| code.starts_with(folder))
            && code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            && !code.contains("NAME")
            // burn's own.
            && !code.starts_with("crates/burn-")
    };
    let codes = parse(text).filter_map(|event| match event {
        Event::Code(code) if is_path(&code) => Some(code),
        _ => None,
    });
    let missing = codes.filter(|code| !workspace().join(&**code).exists());
    missing.map(|code| format!("{}: `{code}` does not exist", page.display())).collect()
}

/// The macros that a text names by their path and that do not exist.
fn missing_macros(page: &Path, text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:!".contains(c)));
    let macros = words.filter(|word| {
        word.ends_with('!')
            && ["device_registry::", "device_plugin::", "entry_points::"]
                .iter()
                .any(|of| word.starts_with(of))
    });
    let missing = macros.filter(|word| !MACROS.contains(word));
    missing.map(|word| format!("{}: there is no macro `{word}`", page.display())).collect()
}

/// The longest line of prose, which is rustfmt's `max_width`.
const WIDTH: usize = 110;

/// The numbers of the lines of prose that are too long and could be broken. Tables, code and headings cannot.
fn long_lines<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<usize> {
    let (mut long, mut is_code) = (Vec::new(), false);
    for (number, line) in lines {
        let text = line.trim_start_matches([' ', '/', '!']);
        is_code ^= text.starts_with("```");
        let is_fixed = is_code || text.starts_with(['|', '#', '<']) || text.starts_with("```");
        let is_fixed = is_fixed || is_link_definition(text);
        if is_fixed || line.chars().count() <= WIDTH {
            continue;
        }
        // A place outside of code spans, behind the first word.
        let first_word = line.chars().count() - text.chars().count() + text.find(' ').unwrap_or(WIDTH);
        let mut in_code_span = false;
        let can_break = line.chars().take(WIDTH + 1).enumerate().any(|(place, c)| {
            in_code_span ^= c == '`';
            c == ' ' && !in_code_span && place > first_word
        });
        if can_break {
            long.push(number);
        }
    }
    long
}

/// `[text]: target`, with which a link that is named elsewhere leads somewhere.
fn is_link_definition(text: &str) -> bool {
    let definition = text.strip_prefix('[').and_then(|text| text.split_once("]: "));
    definition.is_some_and(|(_, target)| !target.trim().contains(' '))
}

/// Those of a page, or of the comments of a source file.
fn long_prose(path: &Path, text: &str) -> Vec<String> {
    let is_source = path.extension().is_some_and(|of| of == "rs");
    let lines =
        text.lines().enumerate().filter(|(_, line)| !is_source || line.trim_start().starts_with("//"));
    let long = long_lines(lines.map(|(index, line)| (index + 1, line)));
    let shown = |number| format!("{}:{number}: more than {WIDTH} characters", path.display());
    long.into_iter().map(shown).collect()
}

/// The heading of a decision's section that names files, and what is in them.
const WHERE: &str = "Where in the code";

/// What is wrong in that section of a page. A file is found from the root, beside the file or in the folder
/// before it, or in one of the folders around that. A name in backticks stands for something in a file if the
/// file and a colon are before it in its clause, or the word `in` and the file behind it; each of its words
/// has to be there. Clauses end with a semicolon.
fn wrong_places(page: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut heading, mut is_heading, mut is_in_section) = (String::new(), false, false);
    let mut is_there = false;
    let (mut last, mut colon, mut is_in, mut waiting) = (None::<PathBuf>, false, false, Vec::new());
    for event in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => (is_heading, heading) = (true, String::new()),
            Event::End(TagEnd::Heading(_)) => {
                (is_heading, is_in_section) = (false, heading == WHERE);
                is_there |= is_in_section;
            }
            Event::Text(text) if is_heading => heading.push_str(&text),
            Event::Start(Tag::Item) => (colon, waiting) = (false, Vec::new()),
            Event::Text(text) if is_in_section => {
                if text.contains(';') {
                    (colon, waiting) = (false, Vec::new());
                }
                colon |= text.starts_with(':') || text.starts_with(" beside it:");
                is_in = text.trim() == "in";
                if !is_in && !matches!(text.trim(), "," | "and" | ", and") {
                    waiting.clear();
                }
            }
            Event::Code(code) if is_in_section && is_file(&code) => {
                match find_place(last.as_deref(), &code) {
                    None => wrong.push(format!("{}: `{code}` does not exist", page.display())),
                    Some(place) => {
                        let names = waiting.drain(..).filter(|_| is_in);
                        let missing = names.filter(|name: &String| !has_name(&place, name));
                        wrong.extend(
                            missing.map(|name| format!("{}: `{name}` is not in `{code}`", page.display())),
                        );
                        last = Some(place);
                    }
                }
                colon = false;
            }
            Event::Code(name) if is_in_section && is_name(&name) => match &last {
                Some(place) if colon => {
                    if !has_name(place, &name) {
                        let place = place.strip_prefix(workspace()).unwrap_or(place).display();
                        wrong.push(format!("{}: `{name}` is not in `{place}`", page.display()));
                    }
                }
                _ => waiting.push(name.into_string()),
            },
            _ => {}
        }
    }
    if !is_there {
        wrong.push(format!("{}: there is no section `{WHERE}`", page.display()));
    }
    wrong
}

/// Whether code in a page is the path of a file or of a folder.
fn is_file(code: &str) -> bool {
    let is_path = code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_path && !code.starts_with('/') && (code.contains('/') || Path::new(code).extension().is_some())
}

/// Whether code in a page is the name of something in a file, such as `Device::close` or `autoload!`.
fn is_name(code: &str) -> bool {
    code.chars().all(|c| c.is_ascii_alphanumeric() || "_:!".contains(c))
}

/// The file or folder that a page means behind another one, or at its beginning.
fn find_place(before: Option<&Path>, path: &str) -> Option<PathBuf> {
    let around = before.into_iter().flat_map(Path::ancestors).take_while(|folder| *folder != workspace());
    around.chain([workspace()]).map(|folder| folder.join(path)).find(|place| place.exists())
}

/// Whether each word of a name is in a file, or in one of a folder.
fn has_name(place: &Path, name: &str) -> bool {
    if place.is_dir() {
        let files = fs::read_dir(place).expect("it is a folder").map(|entry| entry.expect("it can be read"));
        return files.into_iter().any(|entry| has_name(&entry.path(), name));
    }
    let text = fs::read_to_string(place).unwrap_or_default();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let has = |word: &str| text.split(|c| !is_word(c)).any(|other| other == word);
    name.split(|c| !is_word(c)).filter(|word| !word.is_empty()).all(has)
}

#[track_caller]
fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings() {
    let wrong: Vec<_> = pages().iter().flat_map(|(page, text)| broken_links(page, text)).collect();
    expect_none(&wrong);
}

#[test]
fn paths_in_pages_exist() {
    let wrong: Vec<_> = pages().iter().flat_map(|(page, text)| missing_paths(page, text)).collect();
    expect_none(&wrong);
}

#[test]
fn macros_in_pages_have_their_path() {
    let wrong: Vec<_> = pages().iter().flat_map(|(page, text)| missing_macros(page, text)).collect();
    expect_none(&wrong);
}

#[test]
fn decisions_name_what_is_in_their_files() {
    let decisions = workspace().join("docs/decisions");
    let pages = pages().into_iter().filter(|(page, _)| page.starts_with(&decisions));
    let pages: Vec<_> = pages.filter(|(page, _)| !page.ends_with("README.md")).collect();
    assert!(pages.len() > 30, "{} pages", pages.len());
    let wrong: Vec<_> = pages.iter().flat_map(|(page, text)| wrong_places(page, text)).collect();
    expect_none(&wrong);
}

#[test]
fn a_name_that_is_not_in_its_file_is_found() {
    let page = workspace().join("docs/decisions/a.md");
    let wrong = |section: &str| wrong_places(&page, &format!("# A\n`None`\n## {WHERE}\n\n{section}"));
    assert_eq!(
        wrong("- `tests/src/tree.rs`: `files`, `walk`; `lib.rs`: `Hardware`; `tree.rs` beside it: `walk`"),
        [""; 0]
    );
    assert_eq!(
        wrong("- `files` and `walk` in `tests/src/tree.rs`, `Project` in `project.rs`, by `Any::thing`"),
        [""; 0]
    );
    for section in [
        "- `tests/src/tree.rs`: `filess`",
        "- `tests/src/tree.rs`: `files`, `Walk`",
        "- `tests/src/tree.rs`: which makes\n  `files::none`",
        "- `tests/src/tree.rs`: `files`; `lib.rs`: `walk`",
        "- `tests/src/tree.rs`: `files`; `lib.rs` beside it: `walk`",
        "- `tests/src`: `no_such_function_there`",
        "- `walk` in `tests/src/lib.rs`",
        "- `Project`, `walk` in `tests/src/lib.rs`",
        "- `tests/src/none.rs`",
        "- `tests/src/tree.rs`\n- `none.rs`",
    ] {
        assert_eq!(wrong(section).len(), 1, "{section}: {:?}", wrong(section));
    }
    assert_eq!(wrong_places(&page, "# A\n`None`").len(), 1);
}

/// Those that are no chapters of the book: what GitHub shows, before which `docs/README.md` stands in the
/// book, and templates, whose placeholders nothing has filled in.
fn is_no_chapter(page: &str) -> bool {
    let is_template = page.starts_with("templates/") && page != "templates/README.md";
    page == "README.md" || page == "docs/SUMMARY.md" || page.starts_with(".github/") || is_template
}

#[test]
fn the_book_has_every_page_once() {
    let summary = fs::read_to_string(workspace().join("docs/SUMMARY.md")).expect("it is there");
    let pages = pages().into_iter().map(|(path, _)| {
        let page = path.strip_prefix(workspace()).expect("it is in this repository");
        page.display().to_string().replace('\\', "/")
    });
    let (mut chapters, mut wrong) = (0, Vec::new());
    for page in pages {
        let link = page.strip_prefix("docs/").map_or_else(|| format!("../{page}"), str::to_owned);
        let count = summary.matches(&format!("]({link})")).count();
        chapters += count;
        if count != usize::from(!is_no_chapter(&page)) {
            wrong.push(format!("docs/SUMMARY.md has {link} {count} times"));
        }
    }
    expect_none(&wrong);
    assert!(chapters > 100, "{chapters} chapters");
}

/// The sidebar folds what is below its first level. This many lines are one screen.
#[test]
fn the_sidebar_of_the_book_fits_on_a_screen() {
    let summary = fs::read_to_string(workspace().join("docs/SUMMARY.md")).expect("it is there");
    let lines = summary.lines().skip(1).filter(|line| line.starts_with(['[', '-', '#'])).count();
    assert!((10..=28).contains(&lines), "{lines} lines");
}

#[test]
fn the_book_has_the_decisions_in_the_groups_of_their_page() {
    let read = |page: &str| fs::read_to_string(workspace().join("docs").join(page)).expect("it is there");
    let (page, summary) = (read("decisions/README.md"), read("SUMMARY.md"));
    let target = |line: &str| Some(line.split_once("](")?.1.split_once(')')?.0.to_owned());
    let of_page: Vec<_> = page
        .lines()
        .filter_map(|line| match line.strip_prefix("## ") {
            Some(group) => Some(group.to_owned()),
            None => target(line.strip_prefix("| ")?),
        })
        .collect();
    let of_book: Vec<_> = summary
        .lines()
        .filter_map(|line| match line.strip_prefix("  - [").and_then(|line| line.strip_suffix("]()")) {
            Some(group) => Some(group.to_owned()),
            None => target(line)?.strip_prefix("decisions/").map(str::to_owned),
        })
        .filter(|page| page != "README.md")
        .collect();
    assert!(of_page.len() > 50, "{of_page:?}");
    assert_eq!(of_page, of_book);
}

/// READMEs are shown where the paths of rustdoc lead nowhere, and docs.rs has no page of this project's yet.
#[test]
fn readmes_have_no_links_that_only_rustdoc_has() {
    let packages: Vec<String> = files("toml")
        .iter()
        .filter_map(|(_, text)| Some(text.split_once("\nname = \"")?.1.split_once('"')?.0.to_owned()))
        .collect();
    assert!(packages.len() > 50, "{packages:?}");
    let mut wrong = Vec::new();
    for (path, text) in pages().iter().filter(|(path, _)| path.ends_with("README.md")) {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let page = target.strip_prefix("https://docs.rs/").and_then(|rest| rest.split('/').next());
            let is_own = page.is_some_and(|page| packages.iter().any(|package| package == page));
            let is_name = target.chars().all(|c| c.is_alphanumeric() || c == '_');
            let is_item = is_name && !path.with_file_name(target).exists();
            if is_own || is_item || (target.contains("::") && !target.contains("//")) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    expect_none(&wrong);
}

/// The messages that a page has as its headings: parts between dots, each of which a source prints.
#[test]
fn troubleshooting_has_messages_that_are_printed() {
    let page = fs::read_to_string(workspace().join("docs/troubleshooting.md")).expect("it is there");
    // A text of several lines continues behind a backslash.
    let join = |(_, text): &(_, String)| {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default().to_owned();
        lines.fold(first, |text, line| match text.strip_suffix('\\') {
            Some(text) => format!("{text}{}", line.trim_start()),
            None => format!("{text}\n{line}"),
        })
    };
    let sources: Vec<String> = files("rs").iter().map(join).collect();
    let headings: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    assert!(headings.len() >= 8, "{headings:?}");
    // Mesa prints it.
    let ours = headings.iter().filter(|heading| !heading.contains("XDG_RUNTIME_DIR"));
    let parts = ours.flat_map(|heading| heading.split('…')).map(str::trim).filter(|part| !part.is_empty());
    let is_printed = |part: &&str| sources.iter().any(|text| text.contains(*part));
    let wrong: Vec<String> = parts.filter(|part| !is_printed(part)).map(str::to_owned).collect();
    expect_none(&wrong);
}

#[test]
fn prose_ends_where_code_does() {
    let files = [files("md"), files("rs")].concat();
    // In a template a placeholder is longer than the name that takes its place.
    let files = files.iter().filter(|(path, _)| !path.starts_with(workspace().join("templates")));
    let wrong: Vec<_> = files.flat_map(|(path, text)| long_prose(path, text)).collect();
    expect_none(&wrong);
}

#[test]
fn a_long_line_is_found_if_it_could_be_broken() {
    let (words, word) = ("some words ".repeat(12), "x".repeat(120));
    let page = format!(
        "{words}\n| {words} |\n```\n{words}\n```\n- {word}\n- `{words}` b\n- {words}\n\
        [link]: {word}\n[link]({word}) {words}\n[link] {words}\n[link]: a {words}\n"
    );
    assert_eq!(long_lines((1..).zip(page.lines())), [1, 8, 11, 12]);
    let source = format!("//! {words}\nlet x = \"{words}\";\n    /// {words}\n// {word}\n");
    assert_eq!(long_prose(Path::new("a.rs"), &source).len(), 2);
}

#[test]
fn what_is_wrong_in_a_page_is_found() {
    let page = workspace().join("README.md");
    let text = "# A title, `coded`\n[a](#a-title-coded) [b](#no-title) [c](docs/none.md) `crates/none` `entry_points::none!`\n\
        [d](docs/architecture.md#none) [e](docs/architecture.md#the-crates) `crates` `docs/architecture.md`";
    assert_eq!(broken_links(&page, text).len(), 3);
    assert_eq!(missing_paths(&page, text).len(), 1);
    assert_eq!(missing_macros(&page, text).len(), 1);
}

#[test]
fn the_first_page_is_short_and_names_each_crate() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("it is text");
    assert!(text.lines().count() <= 90, "{} lines", text.lines().count());
    for folder in ["crates", "kernels"] {
        for entry in fs::read_dir(workspace().join(folder)).expect("it is a folder") {
            let name = entry.expect("it can be read").file_name().into_string().expect("it is text");
            let link = format!("]({folder}/{name})");
            // No page for users speaks of a crate whose macros another one exports.
            let is_library = workspace().join(folder).join(&name).join("README.md").exists();
            if is_library && name != "entry-points-macros" {
                assert!(text.contains(&link), "README.md has no link {link}");
            }
        }
    }
}
