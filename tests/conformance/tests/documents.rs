//! What ARCHITECTURE.md and the other documents point to exists, and ARCHITECTURE.md stays short.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

use std::path::{Path, PathBuf};

/// A map that is read in ten minutes.
const MAP_BYTES_MAX: usize = 8192;

/// Where the paths begin that the documents name in code spans.
const TOP: &[&str] = &["crates", "tests", "docs", "peers", "fuzz", ".ci"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/conformance is in the house")
}

/// The documents at the root and in `docs/`, by their paths from the root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["", "docs"] {
        for entry in std::fs::read_dir(root().join(directory)).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root()).expect("in the house").to_owned());
            }
        }
    }
    found
}

/// A text without its fenced blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Targets of links that are no addresses, from the directory of the document on.
fn links(prose: &str) -> impl Iterator<Item = &str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or_default())
}

/// Code spans that are paths: from the root on, or source files of the engine.
fn paths(prose: &str) -> impl Iterator<Item = &str> {
    let spans = prose.split('`').skip(1).step_by(2).filter(|span| !span.contains(' '));
    let plain = spans.map(|span| span.split("::").next().unwrap_or_default());
    plain.filter(|span| is_from_root(span) || span.ends_with(".rs"))
}

fn is_from_root(path: &str) -> bool {
    path.split_once('/').is_some_and(|(first, _)| TOP.contains(&first))
}

/// What a document in this directory names and the tree does not have.
fn missing(directory: &Path, text: &str) -> Vec<String> {
    let prose = prose(text);
    let exists = |path: PathBuf| root().join(path).exists();
    let is_there =
        |span: &str| exists(span.into()) || (!is_from_root(span) && exists(Path::new("crates/engine/src").join(span)));
    let links = links(&prose).filter(|target| !target.is_empty() && !exists(directory.join(target)));
    links.chain(paths(&prose).filter(|span| !is_there(span))).map(str::to_owned).collect()
}

#[test]
fn documents_name_what_exists() {
    for path in documents() {
        let text = std::fs::read_to_string(root().join(&path)).expect("text");
        let missing = missing(path.parent().expect("a directory"), &text);
        assert_eq!(missing, Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let text = "[a](docs/house.svg) [b](docs/home.svg) `crates/base` `crates/basis` `log/page.rs` `log/pages.rs`\n```\n`docs/x`\n```\n";
    assert_eq!(missing(Path::new(""), text), ["docs/home.svg", "crates/basis", "log/pages.rs"]);
}

#[test]
fn the_map_is_read_in_ten_minutes() {
    let length = std::fs::metadata(root().join("ARCHITECTURE.md")).expect("a file").len();
    assert!(length <= MAP_BYTES_MAX as u64, "ARCHITECTURE.md has {length} bytes");
}
