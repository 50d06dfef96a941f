//! The rules of the house: which crates may use which, where `unsafe` and the outside world may appear, how large a room may
//! be.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crates of the house a crate may use: those below it.
const BELOW: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("driver", &["base"]),
    ("executor", &["driver", "base"]),
    ("devices", &["base"]),
    ("real", &["driver", "devices", "base"]),
    ("virtual", &["driver", "devices", "base"]),
    ("structures", &["driver", "base"]),
    ("engine", &["structures", "executor", "driver", "base"]),
    ("node", &["engine", "structures", "executor", "driver", "base"]),
    ("tls", &["node", "engine", "structures", "executor", "driver", "base"]),
    ("workload", &["node", "engine", "structures", "executor", "driver", "base"]),
    ("torture", &["workload", "node", "engine", "structures", "virtual", "devices", "executor", "driver", "base"]),
    ("entresol", &["node", "engine", "structures", "virtual", "real", "devices", "executor", "driver", "base"]),
    (
        "papers",
        &[
            "entresol",
            "workload",
            "node",
            "engine",
            "structures",
            "virtual",
            "real",
            "devices",
            "executor",
            "driver",
            "base",
        ],
    ),
    (
        "plan",
        &[
            "papers",
            "entresol",
            "workload",
            "node",
            "engine",
            "structures",
            "virtual",
            "real",
            "devices",
            "executor",
            "driver",
            "base",
        ],
    ),
    (
        "cli",
        &[
            "plan",
            "papers",
            "torture",
            "entresol",
            "workload",
            "tls",
            "node",
            "engine",
            "structures",
            "virtual",
            "real",
            "devices",
            "executor",
            "driver",
            "base",
        ],
    ),
    ("conformance", &["driver", "base"]),
    (
        "filesystem",
        &[
            "torture",
            "entresol",
            "workload",
            "node",
            "engine",
            "structures",
            "virtual",
            "real",
            "devices",
            "executor",
            "driver",
            "base",
        ],
    ),
];

/// Crates that never name the world outside.
const INSIDE: &[&str] = &[
    "base",
    "driver",
    "executor",
    "devices",
    "virtual",
    "structures",
    "engine",
    "node",
    "workload",
    "torture",
    "papers",
    "plan",
];

/// The engine and everything that it is built from, including foreign crates.
const ENGINE_CRATES_MAX: usize = 35;

const LINES_MAX: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/conformance is in the house")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).current_dir(root()).args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// A crate's name in the house.
fn short(package: &str) -> &str {
    package.strip_prefix("entresol-").unwrap_or(package)
}

/// The packages of the workspace by their short names, as cargo describes them.
fn packages() -> BTreeMap<String, Value> {
    let text = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo writes JSON");
    let list = metadata["packages"].as_array().expect("a list of packages");
    list.iter().map(|package| (short(package["name"].as_str().expect("a name")).to_owned(), package.clone())).collect()
}

/// Every file with this extension under these directories of the house, with its text.
fn files(directories: &[&str], extension: &str) -> Vec<(PathBuf, String)> {
    fn visit(directory: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                visit(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = std::fs::read_to_string(&path).expect("text");
                found.push((path.strip_prefix(root()).expect("in the house").to_owned(), text));
            }
        }
    }
    let mut found = Vec::new();
    for directory in directories {
        visit(&root().join(directory), extension, &mut found);
    }
    assert!(!found.is_empty(), "no .{extension} in {directories:?}");
    found.sort();
    found
}

/// Whether a file belongs to the one crate that deals with the world, or is the frame's memory.
fn may_be_unsafe(path: &Path) -> bool {
    path.starts_with("crates/real") || path == Path::new("crates/driver/src/frame.rs")
}

#[test]
fn crates_use_only_what_is_below_them() {
    let packages = packages();
    let rows: BTreeMap<&str, &[&str]> = BELOW.iter().copied().collect();
    for (name, package) in &packages {
        let below = rows.get(name.as_str()).unwrap_or_else(|| panic!("the house has no place for '{name}'"));
        for dependency in package["dependencies"].as_array().expect("a list") {
            let used = short(dependency["name"].as_str().expect("a name"));
            if dependency["kind"].is_null() && packages.contains_key(used) {
                assert!(below.contains(&used), "'{name}' uses '{used}', which is not below it");
            }
        }
    }
    assert_eq!(packages.keys().map(String::as_str).collect::<BTreeSet<_>>(), rows.keys().copied().collect());
}

#[test]
fn the_table_itself_has_no_circle() {
    let rows: BTreeMap<&str, &[&str]> = BELOW.iter().copied().collect();
    for (name, below) in &rows {
        for lower in *below {
            let reached = rows[lower];
            assert!(!reached.contains(name), "'{name}' and '{lower}' use each other");
            let missing = reached.iter().find(|lowest| !below.contains(lowest));
            assert_eq!(missing, None, "'{name}' may use '{lower}', hence what that uses");
        }
    }
}

#[test]
fn the_engine_builds_without_a_driver_and_from_little() {
    let tree = cargo(&["tree", "--offline", "-p", "entresol-engine", "-e", "normal", "--prefix", "none"]);
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("entresol-executor"), "{tree}");
    for driver in ["entresol-real", "entresol-virtual", "entresol-devices", "io-uring", "libc"] {
        assert!(!crates.contains(driver), "the engine is built from '{driver}'");
    }
    assert!(crates.len() <= ENGINE_CRATES_MAX, "{} crates: {crates:?}", crates.len());
}

#[test]
fn structures_cannot_wait() {
    for (path, text) in files(&["crates/structures/src"], "rs") {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            assert!(!line.contains("async ") && !line.contains(".await"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn only_the_real_driver_and_the_frame_are_unsafe() {
    let lint = concat!("unsafe", "_code");
    let keyword = concat!("unsafe", " ");
    for (path, text) in files(&["crates", "tests"], "rs") {
        if may_be_unsafe(&path) {
            continue;
        }
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let opens = ["{", "fn ", "impl ", "extern ", "trait "];
            let marked = opens.iter().any(|what| line.contains(&format!("{keyword}{what}")));
            assert!(!marked && !line.contains(lint), "{}: {line}", path.display());
        }
    }
    for (path, text) in files(&["crates", "tests"], "toml") {
        if path.file_name().is_some_and(|name| name == "Cargo.toml") {
            assert!(text.contains("[lints]\nworkspace = true"), "{} leaves the fence", path.display());
        }
    }
}

#[test]
fn only_the_real_driver_reaches_the_world() {
    let outside = ["fs", "os", "process", "env", "thread", "net::*"].map(|module| format!("std::{module}"));
    // Addresses are plain values; what opens sockets or asks for names is not.
    let sockets = ["TcpListener", "TcpStream", "UdpSocket", "ToSocketAddrs"].map(str::to_owned);
    let clocks = ["SystemTime", "time::Instant::now", "libc::", "io_uring"].map(str::to_owned);
    for name in INSIDE {
        for (path, text) in files(&[&format!("crates/{name}/src")], "rs") {
            if path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs") {
                continue;
            }
            let product = text.split("#[cfg(test)]\nmod tests {").next().expect("a first part");
            let code: Vec<&str> = product.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let mut words = outside.iter().chain(&sockets).chain(&clocks);
            let used = words.find(|word| code.iter().any(|line| line.contains(word.as_str())));
            assert_eq!(used, None, "{}", path.display());
        }
    }
}

#[test]
fn every_gate_in_the_fence_says_why() {
    let lint = concat!("clippy::", "disallowed");
    for (path, text) in files(&["crates", "tests"], "rs") {
        if path.starts_with("crates/real") {
            continue;
        }
        for (at, _) in text.match_indices(lint) {
            let end = text[at..].find(']').map_or(text.len(), |length| at + length);
            assert!(text[at..end].contains("reason = \""), "{}: {}", path.display(), &text[at..end]);
        }
    }
}

#[test]
fn rooms_are_small_and_have_one_concern() {
    for (path, text) in files(&["crates", "tests"], "rs") {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
        for part in path.components() {
            let name = part.as_os_str().to_string_lossy();
            let stem = name.strip_suffix(".rs").unwrap_or(&name);
            let lumber = ["util", "utils", "helper", "helpers", "common", "misc"];
            assert!(!lumber.contains(&stem), "{} names no concern", path.display());
        }
    }
}

/// The packages of a lock file, each with the names of what it depends on.
fn locked(path: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join(path)).expect("a lock file");
    let quoted =
        |line: &str| line.split(['"', ' ']).find(|word| word.starts_with(char::is_alphabetic)).map(str::to_owned);
    let package = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("name = ").and_then(quoted))?;
        Some((name, block.lines().filter(|line| line.starts_with(" \"")).filter_map(quoted).collect()))
    };
    text.split("[[package]]").filter_map(package).collect()
}

/// What a package needs when another is built from it.
fn needed(package: &Value) -> BTreeSet<String> {
    let list = package["dependencies"].as_array().expect("a list");
    let built = list.iter().filter(|dependency| dependency["kind"] != "dev" && dependency["optional"] == false);
    built.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_workspaces_beside_this_one_have_locked_what_its_crates_need() {
    let packages = packages();
    for path in ["fuzz/Cargo.lock", "peers/Cargo.lock"] {
        let locked = locked(path);
        let ours = locked.iter().filter_map(|(name, listed)| Some((name, listed, packages.get(short(name))?)));
        let ours: Vec<_> = ours.filter(|(name, _, package)| package["name"] == name.as_str()).collect();
        assert!(ours.iter().any(|(name, ..)| *name == "entresol-engine"), "{path} lacks the engine");
        for (name, listed, package) in ours {
            assert_eq!(
                *listed,
                needed(package),
                "{path} is stale for '{name}': run `cargo update --workspace` beside it"
            );
        }
    }
}
