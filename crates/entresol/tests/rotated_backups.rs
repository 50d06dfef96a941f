//! Backups of a database that stays open, in directories that are moved away, made again or removed between them.

#![allow(clippy::disallowed_methods, reason = "the tests move and remove directories below")]

use entresol::configuration::Configuration;
use entresol::{BackupError, BackupSettings, Error, OpenError, Opening, PartitionSpec, RestoreSource, Store};
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
    back_up_and(store, (to, base), || {})
}

/// Does something else when the first pages are copied.
fn back_up_and(
    store: &Store,
    (to, base): (&Path, Option<&Path>),
    meanwhile: impl FnOnce() + 'static,
) -> Result<(), OpenError> {
    let name = |path: &Path| path.to_str().expect("plain letters").to_owned();
    let settings = BackupSettings { target: name(to), base: base.map(name), bytes_per_second: None };
    let mut meanwhile = Some(meanwhile);
    let said = move |_| meanwhile.take().into_iter().for_each(|act| act());
    store.run(async |database| database.backup(&settings, said).await.map(|_| ()))
}

/// The files of a directory and what they hold.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let named = |entry: std::fs::DirEntry| entry.file_name().into_string().expect("plain letters");
    let mut found: Vec<_> = entries.map(|entry| (std::fs::read(entry.path()).expect("reads"), named(entry))).collect();
    found.sort_by(|one, other| one.1.cmp(&other.1));
    found.into_iter().map(|(bytes, name)| (name, bytes)).collect()
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

/// What there may be in place of a directory that was moved away.
const REPLACEMENTS: [&str; 3] = ["an empty directory", "an earlier backup", "nothing"];

#[test]
fn a_backup_whose_directory_is_moved_away_meanwhile_is_refused_and_leaves_what_took_its_place() {
    for (backend, replacement) in BACKENDS.iter().flat_map(|backend| REPLACEMENTS.map(|other| (*backend, other))) {
        let (home, places) = (scratch(), scratch());
        let store = opening(home.path(), backend).open().expect("creates");
        let (place, moved, earlier) =
            (places.path().join("latest"), places.path().join("moved"), places.path().join("1"));
        put(&store, b"first").expect("puts");
        back_up(&store, &earlier, None).expect("backs up");
        put(&store, b"second").expect("puts");
        let (from, to, other, before) = (place.clone(), moved.clone(), earlier.clone(), contents(&earlier));
        let move_away = move || {
            std::fs::rename(&from, &to).expect("moves");
            match replacement {
                "nothing" => {}
                "an empty directory" => std::fs::create_dir(&from).expect("creates"),
                _ => std::fs::rename(&other, &from).expect("moves"),
            }
        };
        let result = back_up_and(&store, (&place, None), move_away);
        let name = place.to_str().expect("plain letters");
        let is_named = |error: &OpenError| matches!(error, OpenError::Engine(Error::Backup(BackupError::Displaced { place, .. })) if place == name);
        assert!(result.as_ref().is_err_and(is_named), "{backend}, {replacement}: {result:?}");
        match replacement {
            "nothing" => assert!(!place.exists(), "{backend}"),
            "an empty directory" => assert_eq!(contents(&place), [], "{backend}"),
            _ => assert_eq!(contents(&place), before, "{backend}"),
        }
        restored(&moved, backend).expect_err("it has not ended");
        // The next one is whole, wherever it goes.
        if replacement == "an earlier backup" {
            assert_eq!(restored(&place, backend).expect("restores"), Some(b"first".to_vec()), "{backend}");
            std::fs::rename(&place, places.path().join("2")).expect("moves");
        }
        back_up(&store, &place, None).expect("backs up");
        assert_eq!(restored(&place, backend).expect("restores"), Some(b"second".to_vec()), "{backend}");
    }
}

#[test]
fn a_backup_whose_files_are_taken_away_meanwhile_is_refused() {
    for (backend, file) in BACKENDS.iter().flat_map(|backend| ["data", "log"].map(|file| (*backend, file))) {
        let (home, places) = (scratch(), scratch());
        let store = opening(home.path(), backend).open().expect("creates");
        put(&store, b"first").expect("puts");
        let place = places.path().join("latest");
        let taken = place.join(file);
        let result = back_up_and(&store, (&place, None), move || std::fs::remove_file(taken).expect("removes"));
        assert!(result.as_ref().is_err_and(|error| error.to_string().contains("latest")), "{backend}: {result:?}");
        restored(&place, backend).expect_err("it has not ended");
    }
}

#[test]
fn a_restore_that_is_refused_leaves_nothing() {
    for backend in BACKENDS {
        let (backup, place) = (scratch(), scratch());
        let source = RestoreSource { backup: backup.path().to_str().expect("plain letters").to_owned(), archive: None };
        let refused = opening(place.path(), backend).restore(&source, |_| {});
        let is_told =
            |error: &OpenError| matches!(error, OpenError::Engine(Error::Backup(BackupError::NotABackup { .. })));
        assert!(refused.as_ref().is_err_and(is_told), "{backend}: {refused:?}");
        assert_eq!(contents(place.path()), [], "{backend}");
        assert_eq!(contents(backup.path()), [], "{backend}");
        opening(&place.path().join("of this year/again"), backend).restore(&source, |_| {}).expect_err("the same");
        assert_eq!(contents(place.path()), [], "{backend}: the directories are gone");
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
