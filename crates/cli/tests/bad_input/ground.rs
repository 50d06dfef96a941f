//! The program, a database to be ill-treated, and what is expected of a refusal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A small database that is quickly opened: little log is laid out.
const CONFIGURATION: &str = "\
[buffer]
size = \"8 MiB\"
[log]
size = \"8 MiB\"
[checkpoint]
interval = \"off\"
log_bytes = \"4 MiB\"
[driver]
backend = \"thread-pool\"
";

/// The size of its pages, in bytes.
pub const PAGE_SIZE: usize = 8 << 10;

pub fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The arguments that run `count` transactions on the database in `directory`, by the configuration that lies in it.
pub fn bench(directory: &Path, count: &str) -> Vec<String> {
    let (data, config) = (text(directory), directory.join("entresol.toml"));
    let words = ["bench", "debit-credit", "--scale", "1", "--clients", "8", "--transactions", count, "--data", data];
    let mut arguments: Vec<String> = words.map(str::to_owned).into();
    if config.exists() {
        arguments.extend(["--config".to_owned(), text(&config).to_owned()]);
    }
    arguments
}

pub fn check(directory: &Path) -> Vec<String> {
    vec!["check".to_owned(), text(directory).to_owned()]
}

pub fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(arguments);
    command
}

pub fn run(arguments: &[String]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the program says when it refuses.
pub fn refusal(output: &Output) -> String {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().any(|line| line.starts_with("error: ")), "{said}");
    for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
        assert!(!said.contains(word), "{said}");
    }
    said
}

pub fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", errors(output));
}

/// Every file below a directory with its contents.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(path, Vec::new());
        } else {
            let bytes = fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}

pub fn assert_unaltered(directory: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let after = contents(directory);
    assert!(before.keys().eq(after.keys()), "{:?} became {:?}", before.keys(), after.keys());
    let altered = before.iter().find(|(path, bytes)| after[*path] != **bytes);
    assert_eq!(altered.map(|(path, _)| path), None);
}

/// A database that was closed in good order, copied for each test.
pub fn database() -> (TempDir, PathBuf) {
    static MASTER: OnceLock<TempDir> = OnceLock::new();
    let master = MASTER.get_or_init(|| {
        let directory = scratch();
        fs::write(directory.path().join("entresol.toml"), CONFIGURATION).expect("writes");
        succeeds(&run(&bench(directory.path(), "300")));
        directory
    });
    let copy = scratch();
    let data = copy.path().join("data");
    copy_to(master.path(), &data);
    (copy, data)
}

/// Copies a database's files into a new directory.
pub fn copy_to(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        // A process that was killed leaves a socket.
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copies");
        }
    }
}

/// Changes bytes of a file.
pub fn damage(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).expect("a file");
    change(&mut bytes);
    fs::write(file, bytes).expect("writes");
}
