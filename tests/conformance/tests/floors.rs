//! The floors of the engine: each of its rooms uses only rooms on floors below its own, and there is one room on each.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The engine's rooms, from the ground up.
const FLOORS: &[&str] = &[
    "error",
    "statistics",
    "io",
    "page_store",
    "tier_file",
    "log",
    "second_level",
    "buffer",
    "catalog",
    "superblock",
    "backup",
    "temp",
    "version",
    "locks",
    "engine",
    "mvcc",
    "transaction",
    "checkpoint",
    "online_backup",
    "procedure",
    "recovery",
    "check",
    "database",
    "server",
];

/// What a glob at the root of the crate names: the top room with all others.
const EVERYTHING: &str = "server";

/// One use of another room: from which room and file, and to which room.
type Use = (String, PathBuf, String);

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tests/conformance is in the house")
        .join("crates/engine/src")
}

/// The engine's files by their paths, without tests and comments.
fn files() -> BTreeMap<PathBuf, String> {
    fn visit(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if stem == "tests" {
                continue;
            }
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                let product = text.split("#[cfg(test)]\nmod tests {").next().expect("a first part");
                let code: Vec<&str> = product.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                found.insert(path.strip_prefix(source()).expect("in the engine").to_owned(), code.join("\n"));
            }
        }
    }
    let mut found = BTreeMap::new();
    visit(&source(), &mut found);
    found
}

/// The modules that a file is in, from the root of the crate on.
fn modules(path: &Path) -> Vec<String> {
    path.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The first names of the paths in a list of them, or of the one path, that stand at the front of `text`; [`EVERYTHING`] for a
/// glob.
fn heads(text: &str) -> Vec<String> {
    let name = |text: &str| match text.trim_start() {
        glob if glob.starts_with('*') => EVERYTHING.to_owned(),
        path => path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect(),
    };
    let Some(list) = text.strip_prefix('{') else { return vec![name(text)] };
    let (mut heads, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                heads.push(name(&list[begin..at]));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// What a file names at the root of the crate.
fn named(path: &Path, text: &str) -> Vec<String> {
    let mut found: Vec<String> =
        text.match_indices("crate::").flat_map(|(at, word)| heads(&text[at + word.len()..])).collect();
    let depth = modules(path).len();
    let root = "super::".repeat(depth);
    // One more than the way to the root does not compile, and one less stays in the room.
    let ways = text.match_indices(&root).filter(|(at, _)| !text[..*at].ends_with("super::"));
    found.extend(ways.flat_map(|(at, word)| heads(&text[at + word.len()..])));
    found
}

/// What `lib.rs` gives a second name at the root of the crate: the name, and the room that it comes from.
fn exports(library: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in library.split(';').filter_map(|item| item.trim().strip_prefix("pub use ")) {
        let (room, names) = line.split_once("::").expect("a path");
        let names = names.trim_start_matches('{').trim_end_matches('}');
        found.extend(names.split(',').map(|name| (name.trim().to_owned(), room.to_owned())));
    }
    found
}

fn uses(files: &BTreeMap<PathBuf, String>) -> Vec<Use> {
    let library = files.get(Path::new("lib.rs")).expect("the crate has a root");
    let rooms: BTreeSet<String> = files.keys().map(|path| modules(path)[0].clone()).collect();
    let exports = exports(library);
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| *path != Path::new("lib.rs")) {
        let from = modules(path)[0].clone();
        for name in named(path, text) {
            let to = exports.get(&name).unwrap_or(&name).clone();
            if to != from && rooms.contains(&to) {
                found.push((from.clone(), path.clone(), to));
            }
        }
    }
    found
}

fn floor(room: &str) -> usize {
    let found = FLOORS.iter().position(|found| *found == room);
    found.unwrap_or_else(|| panic!("room '{room}' is on no floor"))
}

/// The uses that do not go down.
fn upward(files: &BTreeMap<PathBuf, String>) -> Vec<Use> {
    let mut found = uses(files);
    found.retain(|(from, _, to)| floor(from) < floor(to));
    found
}

#[test]
fn rooms_use_only_rooms_below_them() {
    let found = upward(&files());
    assert!(found.is_empty(), "upward: {found:#?}");
}

#[test]
fn every_room_is_on_one_floor() {
    let files = files();
    let rooms: BTreeSet<String> =
        files.keys().map(|path| modules(path)[0].clone()).filter(|room| room != "lib").collect();
    let listed: BTreeSet<String> = FLOORS.iter().map(|room| (*room).to_owned()).collect();
    assert_eq!(listed, rooms);
    assert_eq!(FLOORS.len(), rooms.len(), "a room is listed twice");
}

/// The name behind a keyword at the front of a line, whatever may see it.
fn defined(line: &str) -> Option<String> {
    let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = line.strip_prefix("struct ").or(line.strip_prefix("enum "))?;
    Some(rest.chars().take_while(|c| c.is_alphanumeric()).collect())
}

/// The name of the type that an inherent implementation is of, whose head this line is.
fn implemented(line: &str) -> Option<String> {
    let head = line.strip_prefix("impl").filter(|head| !head.contains(" for "))?;
    let path = if head.starts_with('<') { head.split_once("> ")?.1 } else { head.trim_start() };
    let path = path.split(['<', ' ']).next()?;
    path.rsplit("::").next().map(str::to_owned)
}

/// Methods that a room adds to a type of another one: a room below could call them, past the plan.
fn additions(files: &BTreeMap<PathBuf, String>) -> Vec<(PathBuf, String)> {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        for name in text.lines().filter_map(defined) {
            rooms.entry(name).or_default().insert(modules(path)[0].clone());
        }
    }
    let mut found = Vec::new();
    for (path, text) in files {
        let is_added = |name: &String| rooms.get(name).is_some_and(|rooms| !rooms.contains(&modules(path)[0]));
        found.extend(text.lines().filter_map(implemented).filter(is_added).map(|name| (path.clone(), name)));
    }
    found
}

#[test]
fn a_type_gets_its_methods_in_its_own_room() {
    let mut files = files();
    assert_eq!(additions(&files), []);
    let planted = files.get_mut(Path::new("mvcc/read.rs")).expect("it is there");
    planted.push_str("\nimpl crate::engine::Engine {\n    fn planted(&self) {}\n}\n");
    assert_eq!(additions(&files), [(PathBuf::from("mvcc/read.rs"), "Engine".to_owned())]);
}

#[test]
fn a_planted_upward_use_is_found() {
    for (path, line) in [
        ("log.rs", "use crate::buffer::Buffer;"),
        ("log/record.rs", "use crate::{Error, buffer::{self, Pool}, io};"),
        ("buffer/pool.rs", "fn planted(database: &crate::Database) {}"),
        ("io.rs", "use super::{error, tier_file};"),
        ("log.rs", "use crate::*;"),
        ("buffer/pool.rs", "use crate::{io::*, *};"),
        ("buffer/pool.rs", "use super::super::temp::Space;"),
        ("transaction/commit.rs", "use crate::checkpoint::give_up_log;"),
        ("mvcc/read.rs", "fn planted(transaction: &crate::Transaction) {}"),
    ] {
        let mut files = files();
        files.get_mut(Path::new(path)).expect("it is there").push_str(&format!("\n{line}\n"));
        assert_eq!(upward(&files).len(), 1, "{line} in {path}");
    }
}

/// The rooms in which the steps of a walk in ARCHITECTURE.md are made, in their order: those of the engine's files that it names.
fn steps(document: &str, heading: &str) -> Vec<String> {
    let walk = document.split(heading).nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the walk is there");
    let files = walk.split('`').skip(1).step_by(2).filter(|span| span.ends_with(".rs") && !span.starts_with("crates/"));
    files.map(|file| modules(Path::new(file))[0].clone()).collect()
}

/// The first step that is neither made in the room of an earlier one that was not left, nor in a room that such a room uses.
fn astray(steps: &[String], uses: &BTreeSet<(String, String)>) -> Option<String> {
    let mut way: Vec<&String> = Vec::new();
    for step in steps {
        let leads = |room: &&String| *room == step || uses.contains(&((*room).clone(), step.clone()));
        while way.last().is_some_and(|room| !leads(room)) {
            way.pop();
            if way.is_empty() {
                return Some(step.clone());
            }
        }
        if way.last() != Some(&step) {
            way.push(step);
        }
    }
    None
}

#[test]
fn walks_go_down_and_come_back_the_same_way() {
    let document = std::fs::read_to_string(source().ancestors().nth(3).expect("the root").join("ARCHITECTURE.md"));
    let document = document.expect("text");
    let uses: BTreeSet<(String, String)> = uses(&files()).into_iter().map(|(from, _, to)| (from, to)).collect();
    let [get, commit] = ["## A page id from `Transaction::get`", "## A commit from `Transaction::commit`"];
    for (heading, top, bottom) in [(get, "transaction", "page_store"), (commit, "server", "log")] {
        let mut steps = steps(&document, heading);
        assert_eq!(steps.first().map(String::as_str), Some(top), "{heading}");
        assert!(steps.iter().any(|step| step == bottom), "{heading} comes to {bottom}");
        assert_eq!(astray(&steps, &uses), None, "{heading}");
        // A step into a room that none on the way uses.
        steps.insert(1, "check".to_owned());
        assert_eq!(astray(&steps, &uses), Some("check".to_owned()), "{heading}");
    }
}
