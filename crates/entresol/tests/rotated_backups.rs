//! Backups of a database that stays open, in directories that are moved away, made again or removed between them.

#![allow(clippy::disallowed_methods, reason = "the tests move and remove directories below")]

use entresol::configuration::Configuration;
use entresol::{BackupSettings, OpenError, Opening, PartitionSpec, RestoreSource, Store};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const BACKENDS: [&str; 2] = ["automatic", "thread-pool"];

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &Path, backend: &str) -> Opening {
    let text = format!("[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\nbackend = \"{backend}\"\n");
    Opening::new(directory, Configuration::parse(&text).expect("right"))
}

fn put(store: &Store, value: &[u8]) -> Result<(), OpenError> {
    store.run(async |database| {
        let notes = match database.partition("notes") {
            Ok(notes) => notes,
            Err(_) => database.create_partition(PartitionSpec::b_tree("notes")).await?,
        };
        database.transaction(async |tx| tx.put(notes, b"day", value).await).await
    })
}

fn back_up(store: &Store, to: &Path, base: Option<&Path>) -> Result<(), OpenError> {
    let name = |path: &Path| path.to_str().expect("plain letters").to_owned();
    let settings = BackupSettings { target: name(to), base: base.map(name), bytes_per_second: None };
    store.run(async |database| database.backup(&settings, |_| {}).await.map(|_| ()))
}

/// What a database says that is made from a backup.
fn restored(backup: &Path, backend: &str) -> Result<Option<Vec<u8>>, OpenError> {
    let directory = scratch();
    let source = RestoreSource { backup: backup.to_str().expect("plain letters").to_owned(), archive: None };
    opening(directory.path(), backend).restore(&source, |_| {})?;
    let store = opening(directory.path(), backend).open()?;
    store.run(async |database| {
        let notes = database.partition("notes")?;
        database.transaction(async |tx| tx.get(notes, b"day").await).await
    })
}

/// How many files this process has open below a directory.
fn open_below(directory: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the process has descriptors");
    let paths = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(directory) && !path.ends_with("entresol.lock")).count()
}

#[test]
fn backups_to_one_directory_that_is_moved_away_are_each_what_they_were() {
    for backend in BACKENDS {
        let (home, places) = (scratch(), scratch());
        let store = opening(home.path(), backend).open().expect("creates");
        let place = places.path().join("latest");
        let of_day = |day: u8| places.path().join(format!("day-{day}"));
        for day in 0..5 {
            put(&store, &[day]).expect("puts");
            // What is not there is made.
            if day % 2 > 0 {
                std::fs::create_dir(&place).expect("creates");
            }
            back_up(&store, &place, None).unwrap_or_else(|error| panic!("day {day}, {backend}: {error}"));
            std::fs::rename(&place, of_day(day)).expect("moves");
        }
        for day in 0..5 {
            let found = restored(&of_day(day), backend).unwrap_or_else(|error| panic!("day {day}, {backend}: {error}"));
            assert_eq!(found, Some(vec![day]), "{backend}");
        }
    }
}

#[test]
fn a_backup_that_has_ended_or_failed_keeps_no_file_open() {
    for backend in BACKENDS {
        let (home, places) = (scratch(), scratch());
        let store = opening(home.path(), backend).open().expect("creates");
        let of_day = |day: u8| places.path().join(format!("day-{day}"));
        for day in 0..4_u8 {
            put(&store, &[day]).expect("puts");
            let base = day.checked_sub(1).map(of_day);
            back_up(&store, &of_day(day), base.as_deref()).expect("backs up");
            back_up(&store, &of_day(day), None).expect_err("there is one");
        }
        let patience = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            open_below(places.path()) == 0
        });
        assert!(patience, "{} files are open, {backend}", open_below(places.path()));
        assert_eq!(restored(&of_day(3), backend).expect("restores"), Some(vec![3]), "{backend}");
    }
}
