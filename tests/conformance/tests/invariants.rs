//! Every file, test, planted bug and command that `docs/invariants.md` names as a guard exists.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

use std::path::{Path, PathBuf};

const DOCUMENT: &str = "docs/invariants.md";
const CANARIES: &str = "crates/base/src/canary.rs";
const COMMANDS: &str = "crates/cli/src/main.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/conformance is in the house")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of every Rust file below these directories, those of this test left out.
fn sources(directory: PathBuf, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with(file!()) {
            found.push(std::fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The words between single backquotes.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The last column of each row of the document's tables, without their heads.
fn guards(document: &str) -> Vec<&str> {
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_end_matches(" |").rsplit(" | ").next().expect("a last column"));
    cells.filter(|cell| !cell.starts_with("---") && *cell != "guarded by").collect()
}

/// Whether a text defines a function of this name.
fn defines(text: &str, name: &str) -> bool {
    let head = format!("fn {name}");
    let ends = |end: usize| !text[end..].starts_with(|next: char| next.is_alphanumeric() || next == '_');
    text.match_indices(&head).any(|(at, _)| ends(at + head.len()))
}

struct Tree {
    /// Every Rust file.
    sources: Vec<String>,
    canaries: String,
    commands: String,
}

impl Tree {
    fn read() -> Tree {
        let mut found = Vec::new();
        for directory in ["crates", "tests"] {
            sources(root().join(directory), &mut found);
        }
        Tree { sources: found, canaries: text(CANARIES), commands: text(COMMANDS).to_lowercase() }
    }

    /// Whether a bug has this name and a test plants it: names it elsewhere than where the bug itself stands.
    fn is_planted(&self, name: &str) -> bool {
        let (named, asked) = (format!("Canary::{name}"), format!("is_planted(Canary::{name})"));
        let plants = |text: &String| {
            let code = text.replace(&asked, "");
            code.match_indices(&named).any(|(at, _)| !code[at + named.len()..].starts_with(char::is_alphanumeric))
        };
        self.canaries.contains(&format!("    {name},")) && self.sources.iter().any(plants)
    }

    /// What is wrong with a reference, if anything.
    fn flaw(&self, reference: &str) -> Option<&'static str> {
        if let Some(name) = reference.strip_prefix("Canary::") {
            return (!self.is_planted(name)).then_some("no test plants such a bug");
        }
        if let Some(command) = reference.strip_prefix("entresol ") {
            let word = command.split(' ').next().unwrap_or_default();
            return (!self.commands.contains(&format!("    {word}("))).then_some("no such command");
        }
        let (path, name) = reference.split_once("::").map_or((reference, None), |(path, name)| (path, Some(name)));
        if !path.contains('/') || !root().join(path).exists() {
            return Some("no such path, counted from the root");
        }
        let name = name?;
        (!path.ends_with(".rs") || !defines(&text(path), name)).then_some("no such function in that file")
    }

    fn flaws(&self, document: &str) -> Vec<String> {
        let references = guards(document).into_iter().flat_map(spans);
        references.filter_map(|one| self.flaw(one).map(|flaw| format!("`{one}`: {flaw}"))).collect()
    }
}

#[test]
fn every_guard_of_an_invariant_exists() {
    let document = text(DOCUMENT);
    let guards = guards(&document);
    assert!(guards.len() > 100, "only {} rows were understood", guards.len());
    let rows_without = guards.iter().filter(|guard| spans(guard).next().is_none() && !guard.contains("torture"));
    assert_eq!(rows_without.collect::<Vec<_>>(), Vec::<&&str>::new(), "these rows name no guard");
    let flaws = Tree::read().flaws(&document);
    assert!(flaws.is_empty(), "{DOCUMENT} names what does not exist:\n{}", flaws.join("\n"));
}

#[test]
fn every_planted_bug_belongs_to_an_invariant() {
    let (document, canaries) = (text(DOCUMENT), text(CANARIES));
    let variants = canaries.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(','));
    let variants: Vec<&str> = variants.filter(|name| name.chars().all(char::is_alphanumeric)).collect();
    assert!(variants.len() > 30, "only {variants:?} were understood");
    let missing = variants.iter().find(|name| !document.contains(&format!("`Canary::{name}`")));
    assert_eq!(missing, None, "no row of {DOCUMENT} names it");
}

#[test]
fn a_wrong_name_is_found() {
    let tree = Tree::read();
    let right = "tests/conformance/tests/invariants.rs::a_wrong_name_is_found";
    assert_eq!(tree.flaw(right), None);
    for wrong in [
        "tests/conformance/tests/invariants.rs::a_wrong_name_is",
        "tests/conformance/tests/invariant.rs",
        "invariants.rs",
        "docs/invariants.md::guards",
        "Canary::NoSuchBug",
        "Canary::CommitBeforeSyn",
        "entresol tortur",
        "a_wrong_name_is_found",
    ] {
        let row = format!("| invariant | guarded by |\n| --- | --- |\n| a thing | `{right}`; `{wrong}` |\n");
        let flaws = tree.flaws(&row);
        assert!(flaws.len() == 1 && flaws[0].contains(wrong), "{wrong}: {flaws:?}");
    }
}
