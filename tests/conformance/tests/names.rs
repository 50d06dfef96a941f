//! Names and words: a type's name is given once in a crate, and nothing is called by a word that the house has a better one for.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Names that several modules of a crate give, each to its own of a kind, and that are used with the module's name in front.
const OF_A_KIND: &[(&str, &[&str])] = &[
    // Of the log, the buffer, the second level, servers and the database.
    ("engine", &["Settings"]),
    // Of a command.
    ("cli", &["Arguments"]),
    // Of a benchmark or a synthetic model.
    ("workload", &["Input", "Kind", "Parameters", "Partition", "Scale", "Tables", "Totals"]),
    // Of a kind of data.
    ("torture", &["Client"]),
];

/// Words that the field has a better one for, and words that leave a sentence without a subject.
const AVOIDED: &[&str] = &[
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "lest",
    "so many",
    "who waits",
    "Obstacle",
    "Passage",
    "Painting",
    "Standing",
    "Viewing",
    "Stretch",
    "Rooms",
    "overcome",
    "strayed",
    "foresee",
    "foreseen",
    "haunt",
    "welcome",
    "strand",
    "doom",
    "fates",
    "stint",
    "settle",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/conformance is in the house")
}

/// The house's files with one of these extensions, with their paths from the root.
fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> =
        ["crates", "tests", "peers", "fuzz", "docs"].iter().map(|name| root().join(name)).collect();
    let documents = std::fs::read_dir(root()).expect("a directory").map(|entry| entry.expect("an entry").path());
    let is_wanted =
        |path: &Path| path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted));
    let mut add = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("text");
        found.push((path.strip_prefix(root()).expect("in the house").to_owned(), text));
    };
    documents.filter(|path| path.is_file() && is_wanted(path)).for_each(|path| add(&path));
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.ends_with("corpus") {
                    left.push(path);
                }
            } else if is_wanted(&path) {
                add(&path);
            }
        }
    }
    found
}

/// The name of the type that a line defines at a module's top.
fn defined(line: &str) -> Option<&str> {
    let line =
        ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line);
    let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
    Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().expect("a name"))
}

/// The crate that a file is the product of; nothing of tests, models and examples.
fn product(path: &Path) -> Option<&str> {
    let mut parts = path.iter().map(|part| part.to_str().expect("a name"));
    let (Some("crates"), Some(name), Some("src")) = (parts.next(), parts.next(), parts.next()) else { return None };
    let is_test = path.iter().any(|part| ["tests", "tests.rs", "model.rs"].iter().any(|test| part == *test));
    (!is_test || path.ends_with("cache/model.rs")).then_some(name)
}

/// Types of one name in several files of a crate.
fn shared_names(files: &[(PathBuf, String)]) -> Vec<(String, String)> {
    let mut found: BTreeMap<(&str, &str), BTreeSet<&Path>> = BTreeMap::new();
    for (path, text) in files {
        let Some(name) = product(path) else { continue };
        let text = text.split("#[cfg(test)]\nmod tests {").next().expect("a first part");
        for kind in text.lines().filter_map(defined) {
            found.entry((name, kind)).or_default().insert(path);
        }
    }
    let is_of_a_kind =
        |of: &str, name: &str| OF_A_KIND.iter().any(|(house, kinds)| *house == of && kinds.contains(&name));
    let shared = found.into_iter().filter(|((of, name), paths)| paths.len() > 1 && !is_of_a_kind(of, name));
    shared.map(|((of, name), _)| (of.to_owned(), name.to_owned())).collect()
}

/// Whether a text has this word by itself, or between underscores.
fn has_word(text: &str, word: &str) -> bool {
    let is_inner = |c: char| c.is_alphanumeric();
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(is_inner) && !behind.is_some_and(is_inner)
    })
}

/// Where a file has an avoided word: one with a capital letter as a name in code, any other in whatever letters.
fn avoided(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.ends_with("names.rs")) {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let code = if path.extension().is_some_and(|found| found == "rs") { line } else { "" };
            let code = code.split("//").next().expect("a first part");
            let is_there = |word: &&str| match word.starts_with(char::is_uppercase) {
                true => has_word(code, word),
                false => has_word(&lower, word),
            };
            let words = AVOIDED.iter().filter(|word| is_there(word));
            found.extend(words.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    found
}

#[test]
fn a_type_has_its_name_alone_in_its_crate() {
    let mut files = files(&["rs"]);
    assert_eq!(shared_names(&files), []);
    let planted = files.iter_mut().find(|(path, _)| path.ends_with("engine/src/buffer/pins.rs")).expect("it is there");
    planted.1.push_str("\npub(super) struct Tiers;\n");
    assert_eq!(shared_names(&files), [("engine".to_owned(), "Tiers".to_owned())]);
}

#[test]
fn every_name_of_a_kind_is_one_of_several() {
    let files = files(&["rs"]);
    for (of, names) in OF_A_KIND {
        for name in *names {
            let gives = |(path, text): &&(PathBuf, String)| {
                product(path) == Some(of) && text.lines().filter_map(defined).any(|found| found == *name)
            };
            assert!(files.iter().filter(gives).count() > 1, "{of} has one {name}");
        }
    }
}

#[test]
fn things_have_the_fields_names_and_sentences_a_subject() {
    let mut files = files(&["rs", "md", "toml"]);
    let found = avoided(&files);
    assert!(found.is_empty(), "{found:#?}");
    let planted = files.iter_mut().find(|(path, _)| path.ends_with("engine/src/log.rs")).expect("it is there");
    planted.1.push_str("\n// Whoever commits waits.\nfn wait_for_nobody() {}\nenum Obstacle {}\n");
    assert_eq!(avoided(&files).len(), 3);
}
