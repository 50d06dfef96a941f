//! What is refused says what it is about and what to do next.

#![allow(clippy::disallowed_methods, reason = "the tests write configurations and files")]

use entresol::configuration::Configuration;
use entresol::{BackupSettings, DatabaseThread, Error, FaultKind, Opening, PartitionSpec};
use std::path::Path;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("there is a scratch directory")
}

fn start(directory: &Path) -> DatabaseThread {
    std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"1 MiB\"").expect("writes");
    DatabaseThread::start(Opening::in_directory(directory).expect("reads")).expect("opens")
}

fn words<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn records_that_do_not_fit_are_told_by_what_is_too_long() {
    let directory = scratch();
    let thread = start(directory.path());
    let handle = thread.handle();
    let tree = handle.create_partition(PartitionSpec::b_tree("tree")).wait().expect("creates");
    let set = handle.create_partition(PartitionSpec::set("set")).wait().expect("creates");
    let key = words(handle.put(set, &vec![7; 65_536], b"").wait());
    assert_eq!(key, "a key of 65536 bytes is over the limit of 65535 bytes in partition 'set'");
    let record = words(handle.put(set, b"key", &vec![7; 300 << 10]).wait());
    assert_eq!(record, "a record of a set of 307203 bytes is over the limit of 262064 bytes in partition 'set'");
    handle.put(set, b"key", &[7; 10]).wait().expect("it fits");
    let part = words(handle.transaction(async move |tx| tx.add(set, b"key", 8..12, 1).await).wait());
    assert_eq!(part, "the end of a part of a value of 12 bytes is over the limit of 10 bytes in partition 'set'");
    handle.put(tree, b"key", &[7; 1_900]).wait().expect("it fits");
    let modified = words(handle.transaction(async move |tx| tx.modify(tree, b"key", |_| ()).await).wait());
    assert!(modified.starts_with("for a change in place, a value of 1900 bytes is over the limit of 1"), "{modified}");
    let large = words(handle.put(tree, b"key", &vec![7; 4 << 20]).wait());
    assert!(large.ends_with("commit more often, or give [log] a larger size and open the database again"), "{large}");
    thread.close().expect("closes");
}

#[test]
fn names_and_keys_that_are_there_or_not_are_told_with_what_to_do() {
    let directory = scratch();
    let thread = start(directory.path());
    let handle = thread.handle();
    let tree = handle.create_partition(PartitionSpec::b_tree("tree")).wait().expect("creates");
    let again = words(handle.create_partition(PartitionSpec::b_tree("tree")).wait());
    assert_eq!(again, "there is a partition 'tree' already; use another name, or ensure it where it may be there");
    handle.put(tree, b"key", b"value").wait().expect("it fits");
    let twice = words(handle.transaction(async move |tx| tx.insert(tree, b"key", b"").await).wait());
    assert_eq!(twice, "partition 'tree' already holds a record with this key; put takes its place, or use another key");
    let none = words(handle.transaction(async move |tx| tx.modify(tree, b"none", |_| ()).await).wait());
    assert_eq!(none, "partition 'tree' holds no record with this key; insert it, or correct the key");
    thread.close().expect("closes");
}

#[test]
fn a_place_that_is_no_directory_is_told_as_such() {
    let directory = scratch();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("creates");
    let thread = start(&data);
    let relative = words(thread.handle().backup(BackupSettings::to("backups/monday"), |_| {}).wait());
    assert_eq!(relative, "'backups/monday' is no device, and a directory is named by its absolute path, from '/' on");
    let device = words(thread.handle().backup(BackupSettings::to("flash"), |_| {}).wait());
    assert_eq!(device, "there is no device 'flash'; describe it or correct the name");
    thread.close().expect("closes");
    let file = directory.path().join("letter.txt");
    std::fs::write(&file, "dear reader").expect("writes");
    let refused = entresol::start(&file).err().expect("it is a file");
    let entresol::OpenError::Machine(fault) = &refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind, FaultKind::Exists);
    assert!(refused.to_string().ends_with("letter.txt': it is a file; name a directory"), "{refused}");
}

#[test]
fn an_opening_that_fails_leaves_no_directory_that_it_has_created() {
    let directory = tempfile::tempdir().expect("creates");
    let file = directory.path().join("file");
    std::fs::File::create(&file).expect("creates");
    let text = format!("[device.other]\npath = {file:?}\n");
    let configuration = Configuration::parse(&text).expect("it is one");
    let home = directory.path().join("a/b");
    let refused = Opening::new(&home, configuration).open().err().expect("a file is no directory");
    assert!(refused.to_string().contains("it is a file"), "{refused}");
    assert!(!directory.path().join("a").exists(), "neither it nor what is above it");
    let kept = directory.path().join("kept");
    std::fs::create_dir(&kept).expect("creates");
    let configuration = Configuration::parse(&text).expect("it is one");
    assert!(Opening::new(&kept, configuration).open().is_err());
    assert!(kept.is_dir(), "this one was there before");
}
