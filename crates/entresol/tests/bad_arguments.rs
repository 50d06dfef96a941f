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
    assert_eq!(device, "there is no device 'flash'; describe it in a section [device.flash], or correct the name");
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

#[test]
fn a_backup_that_fails_leaves_no_directory_that_it_has_created() {
    let directory = scratch();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("creates");
    let thread = start(&data);
    let back_up = |to: &Path, base: Option<&Path>| {
        let name = |path: &Path| path.display().to_string();
        let settings = BackupSettings { target: name(to), base: base.map(name), bytes_per_second: None };
        thread.handle().backup(settings, |_| {}).wait()
    };
    let (strange, kept) = (directory.path().join("strange"), directory.path().join("kept"));
    std::fs::create_dir(&strange).expect("creates");
    std::fs::create_dir(&kept).expect("creates");
    let to = directory.path().join("backups/monday");
    let refused = words(back_up(&to, Some(&strange)));
    assert!(refused.contains("strange"), "{refused}");
    assert!(!directory.path().join("backups").exists(), "neither it nor what is above it");
    back_up(&kept, Some(&strange)).expect_err("it has no base");
    assert!(kept.is_dir(), "this one was there before");
    // Once more, after it was taken away, and one that is given up.
    back_up(&to, Some(&strange)).expect_err("it has no base");
    let settings = BackupSettings { bytes_per_second: Some(1), ..BackupSettings::to(to.display().to_string()) };
    thread.handle().backup(settings, |_| {}).cancel();
    back_up(&kept, None).expect("copies");
    thread.close().expect("closes");
    assert!(!directory.path().join("backups").exists(), "that was removed, too");
    assert!(kept.join("data").is_file(), "what was copied is there");
}

#[test]
fn a_time_too_long_ago_is_told_with_the_earliest_one() {
    let directory = scratch();
    let text = "[log]\nsize = \"1 MiB\"\n[undo]\nretention = \"1 h\"";
    std::fs::write(directory.path().join("entresol.toml"), text).expect("writes");
    let thread = entresol::start(directory.path()).expect("opens");
    let handle = thread.handle();
    let tree = handle.create_partition(PartitionSpec::b_tree("tree")).wait().expect("creates");
    handle.put(tree, b"key", b"value").wait().expect("writes");
    let year = handle.with_database(async |database| Ok(database.executor().unix_ns())).wait().expect("looks");
    let (year, read) = (&base::calendar::format_unix_ns(year)[..4], async |_: &mut entresol::Snapshot| Ok(()));
    let advice = "; read a later one, or have more of the past kept by [undo] retention and size";
    let by_calendar = words(handle.as_of_unix_ns(1_000_000_000_000_000_000, read).wait());
    let begins = "2001-09-09 01:46:40.000 UTC is too long ago, the earliest that can be read is ";
    assert!(by_calendar.starts_with(&format!("{begins}{year}-")) && by_calendar.ends_with(advice), "{by_calendar}");
    let by_age = words(handle.as_of_age(std::time::Duration::from_secs(7_200), read).wait());
    let begins = "7,200.00 s ago is too long ago, the earliest that can be read is ";
    assert!(by_age.starts_with(begins) && by_age.ends_with(advice) && by_age.contains(" ago, at "), "{by_age}");
    let beginning = words(handle.as_of_age(std::time::Duration::MAX, read).wait());
    assert!(beginning.contains(" is too long ago, the earliest that can be read is "), "{beginning}");
    let by_clock = words(handle.as_of_time(entresol::Instant::START, read).wait());
    let begins = format!("{} is too long ago, the earliest that can be read is ", entresol::Instant::START);
    assert!(by_clock.starts_with(&begins) && by_clock.ends_with(advice), "{by_clock}");
    thread.close().expect("closes");

    // Without a retention nothing of the past can be read that no snapshot has.
    let text = "[log]\nsize = \"1 MiB\"";
    std::fs::write(directory.path().join("entresol.toml"), text).expect("writes");
    let thread = entresol::start(directory.path()).expect("opens");
    let handle = thread.handle();
    let before = handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait().expect("looks");
    handle.put(tree, b"key", b"other").wait().expect("writes");
    let present = handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait().expect("looks");
    let by_position = words(handle.as_of(before, read).wait());
    let begins = format!("{before} is too long ago, the earliest that can be read is {present}");
    assert!(by_position.starts_with(&begins) && by_position.ends_with(advice), "{by_position}");
    thread.close().expect("closes");
}

#[test]
fn a_device_that_is_not_described_is_told_by_what_is_on_it() {
    let directory = scratch();
    let open = |text: &str| {
        std::fs::write(directory.path().join("entresol.toml"), text).expect("writes");
        entresol::open(directory.path()).map(|store| {
            let spec = PartitionSpec { device: "other".to_owned(), ..PartitionSpec::b_tree("tree") };
            if text.contains("partition") {
                store.run(async |database| database.ensure_partition(spec).await).expect("creates");
            }
            store.close().expect("closes");
        })
    };
    let described = "[device.other]\npath = \"other\"\n";
    let advice = "; describe it in a section [device.other]";
    let cases = [
        ("log", "[log]\nsize = \"1 MiB\"\ndevice = \"other\"\n", "[log] device"),
        ("tree", "[log]\nsize = \"1 MiB\"\n[partition.tree]\ndevice = \"other\"", "[partition.tree] device"),
    ];
    for (what, text, key) in cases {
        open(&format!("{text}\n{described}")).expect(what);
        let refused = open("[log]\nsize = \"1 MiB\"").expect_err(what).to_string();
        assert!(refused.contains(key) && refused.contains("device 'other'"), "{what}: {refused}");
        assert!(refused.contains(advice), "{what}: {refused}");
        std::fs::remove_dir_all(directory.path()).expect("removes");
        std::fs::create_dir(directory.path()).expect("creates");
    }
    // A configuration that no file has.
    for key in ["log", "undo", "temp", "cache", "write_buffer"] {
        let mut configuration = Configuration::parse("[log]\nsize = \"1 MiB\"").expect("right");
        let tiers =
            "[cache]\ndevice = \"disk\"\nsize = \"1 MiB\"\n[write_buffer]\ndevice = \"disk\"\nsize = \"64 pages\"";
        let with_tiers = Configuration::parse(tiers).expect("right");
        let name = "other".to_owned();
        match key {
            "log" => configuration.log.device = name,
            "undo" => configuration.undo.device = name,
            "temp" => configuration.temp.device = name,
            "cache" => {
                configuration.cache =
                    with_tiers.cache.map(|cache| entresol::configuration::Cache { device: name, ..cache })
            }
            _ => {
                configuration.write_buffer = with_tiers
                    .write_buffer
                    .map(|buffer| entresol::configuration::WriteBuffer { device: name, ..buffer })
            }
        }
        let home = directory.path().join(key);
        let refused = Opening::new(&home, configuration).open().err().expect("there is no such device").to_string();
        assert!(refused.contains(&format!("[{key}] device")) && refused.contains(advice), "{refused}");
        assert!(!home.exists());
    }
}
