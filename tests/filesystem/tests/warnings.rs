//! What is said of a database on a file system whose locks other machines may not know of.

#![allow(clippy::disallowed_methods, reason = "directories are made")]

use entresol::Opening;
use entresol::configuration::Configuration;
use filesystem::Mounted;
use std::path::Path;

const CONFIGURATION: &str = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"";

fn warnings(directory: &Path) -> Vec<String> {
    let configuration = Configuration::parse(CONFIGURATION).expect("text");
    let store = Opening::new(directory, configuration).open().expect("opens");
    let warnings = store.warnings();
    store.close().expect("closes");
    warnings
}

#[test]
fn a_database_where_a_lock_may_be_known_to_one_machine_alone_is_opened_with_a_warning() {
    let here = tempfile::tempdir().expect("a directory for this test");
    assert_eq!(warnings(&here.path().join("database")), [""; 0], "this machine's own locks hold");
    let volume = match Mounted::new(1) {
        Ok(volume) => volume,
        Err(error) => return println!("skipped: no file system in user space can be mounted: {error}"),
    };
    let database = volume.path().join("database");
    let found = warnings(&database);
    let name = database.display().to_string();
    assert!(
        found.len() == 1
            && found[0].contains(&name)
            && found[0].contains("is on FUSE")
            && found[0].contains("known to this machine alone"),
        "{found:?}"
    );
    assert_eq!(warnings(&database).len(), 1, "at every opening");
}
