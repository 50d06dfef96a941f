//! A database on the calling thread, on this machine's files.

#![allow(clippy::disallowed_methods, reason = "the tests look at and damage the files below")]

use engine::Internals;
use entresol::configuration::Configuration;
use entresol::{Database, Direction, Error, FieldValue, OpenError, Opening, PartitionSpec, Store, Transaction};
use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use tempfile::TempDir;

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &Path, backend: &str) -> Opening {
    let text = format!("[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\nbackend = \"{backend}\"\n");
    Opening::new(directory, Configuration::parse(&text).expect("right"))
}

/// Opens with this backend, or with any where the kernel has no io_uring.
fn open(directory: &Path, backend: &str) -> Store {
    let opened = opening(directory, backend).open();
    match opened {
        Err(OpenError::Machine(fault)) if backend == "io-uring" => {
            println!("instead of io_uring: {fault}");
            opening(directory, "automatic").open().expect("opens")
        }
        opened => opened.expect("opens"),
    }
}

async fn put(database: &Database, key: u64, value: &[u8]) -> entresol::Result<()> {
    let notes = database.partition("notes")?;
    database.transaction(async |tx| tx.put(notes, &key.to_be_bytes(), value).await).await
}

async fn keys(database: &Database) -> entresol::Result<Vec<u64>> {
    let notes = database.partition("notes")?;
    let read = database.transaction(async |tx| {
        let mut cursor = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, _)) = tx.next(&mut cursor).await? {
            found.push(u64::from_be_bytes(key[..].try_into().expect("eight bytes")));
        }
        Ok(found)
    });
    read.await
}

#[test]
fn what_was_committed_is_there_after_closing_and_after_not_closing() {
    for backend in ["io-uring", "thread-pool"] {
        let directory = scratch();
        let mut expected = Vec::new();
        for opening in 0..4_u64 {
            let store = open(directory.path(), backend);
            if opening == 0 {
                let made = store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await);
                made.expect("creates");
            }
            assert_eq!(store.run(keys).expect("reads"), expected, "opening {opening} on {backend}");
            for number in opening * 40..opening * 40 + 30 {
                store.run(async |database| put(database, number, &[7; 900]).await).expect("writes");
                expected.push(number);
            }
            // What is under way when the store goes was not committed: one transaction in a task, one in the hand.
            let database = store.database().clone();
            store.executor().spawn(async move {
                let notes = database.partition("notes").expect("exists");
                let mut tx = database.begin().await.expect("begins");
                tx.put(notes, &(1_000 + opening).to_be_bytes(), b"half").await.expect("writes");
                std::future::pending::<()>().await;
            });
            let held = store.run(async |database| {
                let notes = database.partition("notes")?;
                let mut tx = database.begin().await?;
                tx.put(notes, &(2_000 + opening).to_be_bytes(), b"half").await?;
                Ok(tx)
            });
            let held = held.expect("begins");
            if opening % 2 == 0 {
                drop(store);
                drop(held);
            } else {
                drop(held);
                store.close().expect("closes");
            }
        }
    }
}

#[test]
fn a_failed_transaction_leaves_nothing_and_a_refused_call_says_why() {
    let directory = scratch();
    let store = open(directory.path(), "automatic");
    let outcome = store.run(async |database| {
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let refused = database
            .transaction(async |tx| {
                tx.put(notes, b"key", b"value").await?;
                Err::<(), _>(Error::RolledBack("enough".into()))
            })
            .await;
        assert_eq!(refused, Err(Error::RolledBack("enough".into())));
        let twice = database.create_partition(PartitionSpec::b_tree("notes")).await;
        assert!(matches!(&twice, Err(Error::PartitionExists(name)) if name == "notes"), "{twice:?}");
        let nowhere = database.partition("letters");
        assert_eq!(nowhere, Err(Error::NoPartition("letters".into())));
        let long = database.transaction(async |tx| tx.put(notes, &[1; 60_000], b"").await).await;
        assert!(matches!(long, Err(Error::TooLarge { .. })), "{long:?}");
        database.transaction(async |tx| tx.get(notes, b"key").await).await
    });
    assert_eq!(outcome.expect("goes on"), None);
}

/// A superblock file of which each copy is filled with one byte.
fn superblock_file(copies: [u8; 2]) -> Vec<u8> {
    copies.iter().flat_map(|byte| [*byte; 64 << 10]).collect()
}

#[test]
fn a_creation_that_was_cut_off_begins_again_and_nothing_else_does() {
    // The second copy is written first.
    for begun in [Vec::new(), vec![0; 4096], superblock_file([0, 0]), superblock_file([0, 7])] {
        let directory = scratch();
        for name in ["entresol.lock", "log", "double-write", "cache.tier"] {
            std::fs::write(directory.path().join(name), [0; 4096]).expect("writes");
        }
        let file = directory.path().join("entresol.home");
        std::fs::write(&file, &begun).expect("writes");
        let refused = opening(directory.path(), "automatic").open_existing().err().expect("there is nothing to check");
        assert!(matches!(&refused, OpenError::Engine(Error::Unfinished { .. })), "{refused}");
        assert_eq!(std::fs::read(&file).expect("reads"), begun);
        std::fs::write(directory.path().join("notes.pages"), [0; 4096]).expect("writes");
        let refused =
            opening(directory.path(), "automatic").open().err().expect("a partition is more than a beginning");
        assert!(matches!(&refused, OpenError::Engine(Error::Unfinished { .. })), "{refused}");
        assert_eq!(std::fs::read(&file).expect("reads"), begun);
        std::fs::remove_file(directory.path().join("notes.pages")).expect("removes");
        let store = open(directory.path(), "automatic");
        store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await).expect("creates");
        store.run(async |database| put(database, 5, b"five").await).expect("writes");
        drop(store);
        assert_eq!(open(directory.path(), "automatic").run(keys).expect("reads"), [5]);
    }
    for damaged in [superblock_file([7, 0]), superblock_file([7, 7]), vec![7; 4096]] {
        let directory = scratch();
        let file = directory.path().join("entresol.home");
        std::fs::write(&file, &damaged).expect("writes");
        let refused = opening(directory.path(), "automatic").open().err().expect("refused");
        assert!(matches!(&refused, OpenError::Engine(Error::NotADatabase { .. })), "{refused}");
        assert_eq!(std::fs::read(&file).expect("reads"), damaged);
    }
}

#[test]
fn a_directory_has_one_store_at_a_time() {
    let directory = scratch();
    let store = open(directory.path(), "automatic");
    let second = opening(directory.path(), "automatic").open().err().expect("refused");
    assert!(matches!(&second, OpenError::Machine(fault) if fault.kind == driver::FaultKind::Busy), "{second}");
    assert!(second.to_string().contains("open already"), "{second}");
    drop(store);
    open(directory.path(), "automatic").close().expect("closes");
    let absent = directory.path().join("absent");
    let missing = opening(&absent, "automatic").open_existing().err().expect("refused");
    assert!(matches!(missing, OpenError::Engine(Error::NotADatabase { .. })) && !absent.exists());
}

#[test]
fn who_wants_a_database_that_is_there_is_not_sent_to_an_empty_directory() {
    let directory = scratch();
    let none = opening(directory.path(), "automatic").open_existing().err().expect("refused").to_string();
    assert!(none.ends_with("it holds no file 'entresol.home'; name the directory of a database"), "{none}");
    std::fs::write(directory.path().join("letter.txt"), "dear reader").expect("writes");
    let foreign = opening(directory.path(), "automatic").open().err().expect("refused").to_string();
    assert!(foreign.ends_with("name an empty directory or a database"), "{foreign}");
}

#[test]
fn devices_share_no_directory_with_another_database() {
    let (log, one, two) = (scratch(), scratch(), scratch());
    let with_log = |home: &TempDir| {
        let text = format!(
            "[device.flash]\npath = \"{}\"\n[log]\ndevice = \"flash\"\nsize = \"1 MiB\"\n",
            log.path().display()
        );
        Opening::new(home.path(), Configuration::parse(&text).expect("right"))
    };
    let store = with_log(&one).open().expect("opens");
    store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await).expect("creates");
    store.run(async |database| put(database, 5, b"five").await).expect("writes");
    drop(store);
    let refused = with_log(&two).open().err().expect("refused");
    assert!(refused.to_string().contains("device 'flash'"), "{refused}");
    let store = with_log(&one).open().expect("opens");
    assert_eq!(store.run(keys).expect("reads"), [5]);
}

/// A creation that was cut off before the superblock file was there has left a blank log on another device.
#[test]
fn a_creation_on_two_devices_that_was_cut_off_begins_again() {
    let (home, log) = (scratch(), scratch());
    let opening = || {
        let path = log.path().display();
        let text = format!("[device.flash]\npath = \"{path}\"\n[log]\ndevice = \"flash\"\nsize = \"1 MiB\"\n");
        Opening::new(home.path(), Configuration::parse(&text).expect("right"))
    };
    for begun in [0, 64 << 10, 1 << 20] {
        std::fs::write(log.path().join("log"), vec![0; begun]).expect("writes");
        let refused = opening().open().err().expect("without the lock's file it belongs to another database");
        assert!(refused.to_string().contains("holds the file 'log'"), "{refused}");
        std::fs::write(log.path().join("entresol.lock"), "").expect("writes");
        std::fs::write(log.path().join("letter"), "to a friend").expect("writes");
        let refused = opening().open().err().expect("it is not empty");
        assert!(refused.to_string().contains("holds the file 'letter'"), "{refused}");
        std::fs::remove_file(log.path().join("letter")).expect("removes");
        let store = opening().open().unwrap_or_else(|error| panic!("{begun}: {error}"));
        store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await).expect("creates");
        store.run(async |database| put(database, 5, b"five").await).expect("writes");
        drop(store);
        assert_eq!(opening().open().expect("opens").run(keys).expect("reads"), [5]);
        // The home is lost: the log says of itself that it was used.
        let before = std::fs::read(log.path().join("log")).expect("reads");
        for entry in home.path().read_dir().expect("lists") {
            std::fs::remove_file(entry.expect("lists").path()).expect("removes");
        }
        let refused = opening().open().err().expect("it is a database's log");
        assert!(refused.to_string().contains("holds the file 'log'"), "{refused}");
        assert!(before == std::fs::read(log.path().join("log")).expect("reads"));
        for entry in log.path().read_dir().expect("lists") {
            std::fs::remove_file(entry.expect("lists").path()).expect("removes");
        }
    }
}

#[test]
fn a_damaged_page_fails_operations_that_need_it_and_no_others() {
    let directory = scratch();
    let store = open(directory.path(), "automatic");
    store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await).expect("creates");
    for number in 0..200 {
        store.run(async |database| put(database, number, &[1; 1_000]).await).expect("writes");
    }
    store.close().expect("closes");
    let (file, page) = (directory.path().join("notes.pages"), 9);
    let mut bytes = std::fs::read(&file).expect("a file");
    bytes[page * 8192 + 4_000] ^= 1;
    std::fs::write(&file, &bytes).expect("writes");
    let store = open(directory.path(), "automatic");
    let (mut failed, mut served) = (0, 0);
    for number in 0..200 {
        match store.run(async |database| put(database, number, &[2; 1_000]).await) {
            Ok(()) => served += 1,
            Err(OpenError::Engine(Error::DamagedPage { page: found, file, .. })) => {
                assert_eq!((found.number as usize, file.as_str()), (page, "notes.pages"));
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(failed > 0 && served > 150, "{failed} failed, {served} served");
    store.close().expect("closes");
    let after = std::fs::read(&file).expect("a file");
    assert!(after[page * 8192..(page + 1) * 8192] == bytes[page * 8192..(page + 1) * 8192]);
}

/// Fills a small memory disk with several clients at once, so that some transactions are under way when it is full.
#[test]
fn a_full_disk_loses_no_acknowledged_transaction() {
    let directory = scratch();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"]).arg(directory.path()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: this process may not mount");
        return;
    }
    let _mount = Mount(directory.path());
    let store = open(directory.path(), "automatic");
    store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await).expect("creates");
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let (database, acknowledged) = (store.database().clone(), Rc::new(Cell::new(0)));
            let count = Rc::clone(&acknowledged);
            let handle = store.executor().spawn(async move {
                loop {
                    let number = count.get() * 6 + client;
                    match put(&database, number, &vec![3; 300 + (number % 7) as usize * 2_000]).await {
                        Ok(()) => count.set(count.get() + 1),
                        Err(error) => return error,
                    }
                }
            });
            (client, acknowledged, handle)
        })
        .collect();
    let mut expected = Vec::new();
    for (client, acknowledged, handle) in clients {
        let error = store.run(async |_| Ok(handle.join().await)).expect("ends");
        assert!(error.to_string().contains("No space left"), "{error}");
        expected.extend((0..acknowledged.get()).map(|count| count * 6 + client));
    }
    expected.sort_unstable();
    assert!(expected.len() > 100, "{} transactions fill the disk", expected.len());
    assert_eq!(store.run(keys).expect("still reads"), expected);
    drop(store);
    let store = open(directory.path(), "automatic");
    assert_eq!(store.run(keys).expect("reads"), expected);
    let first = expected[0];
    store.run(async |database| put(database, first, b"smaller").await).expect("what needs no room is done");
    store.close().expect("closes");
}

struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Whether it succeeds shows when the directory below is removed.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// A black/white sweep refuses transactions that touch segments of both colours, and a load touches all.
#[test]
fn a_set_is_loaded_while_others_are_swept() {
    let directory = scratch();
    let text = "[buffer]\nsize = \"1 MiB\"\n[checkpoint]\nsets = \"tcbw\"\nsweep_interval = \"0 s\"\n";
    let opening = Opening::new(directory.path(), Configuration::parse(text).expect("right"));
    let store = opening.open().expect("opens");
    let loaded = store.run(async |database| {
        let small = database.create_partition(PartitionSpec::set("small")).await?;
        database.transaction(async |tx| tx.put(small, b"k", b"v").await).await?;
        let large = database.create_partition(PartitionSpec::set("large")).await?;
        let records = (0..60_000_u64).map(|number| (number.to_be_bytes(), [7; 200]));
        database.load_set(large, records, |_| {}).await?;
        Ok(database.set_records(large))
    });
    assert_eq!(loaded.expect("no transaction is refused"), Some(60_000));
    store.close().expect("closes");
}

#[test]
fn every_replacement_policy_serves_a_database_larger_than_memory() {
    let value = |key: u64, round: u8| [vec![round; 700], key.to_be_bytes().to_vec()].concat();
    for policy in engine::replacement::POLICIES.iter().map(|policy| policy.name()) {
        let directory = scratch();
        let text = format!("[buffer]\nsize = \"1 MiB\"\nreplacement = \"{policy}\"\n[log]\nsize = \"4 MiB\"\n");
        let open =
            || Opening::new(directory.path(), Configuration::parse(&text).expect("right")).open().expect("opens");
        let store = open();
        let made = store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await);
        made.expect("creates");
        for round in 0..2 {
            for first in (0..4_000_u64).step_by(100) {
                let write = store.run(async |database| {
                    let notes = database.partition("notes")?;
                    let batch = async |tx: &mut Transaction| {
                        for key in first..first + 100 {
                            tx.put(notes, &key.to_be_bytes(), &value(key, round)).await?;
                        }
                        Ok(())
                    };
                    database.transaction(batch).await
                });
                write.expect("writes");
            }
        }
        drop(store);
        let read = open().run(async |database| {
            let notes = database.partition("notes")?;
            let mut wrong = Vec::new();
            for key in 0..4_000_u64 {
                let found = database.transaction(async |tx| tx.get(notes, &key.to_be_bytes()).await).await?;
                if found != Some(value(key, 1)) {
                    wrong.push(key);
                }
            }
            Ok::<_, Error>(wrong)
        });
        assert_eq!(read.expect("reads"), [0_u64; 0], "{policy}");
    }
}

#[test]
fn what_is_said_of_partitions_that_exist_is_followed_or_refused_by_its_key() {
    let directory = scratch();
    std::fs::create_dir(directory.path().join("elsewhere")).expect("a directory");
    let open = |partitions: &str| {
        let text = format!("[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n{partitions}");
        Opening::new(directory.path(), Configuration::parse(&text).expect("right")).open()
    };
    let created = "[partition.stock]\norganization = \"set\"\nrecord = { count = \"u32\", name = \"text\" }\n\
                   [partition.bins]\norganization = \"direct\"\nobjects = 100\nrecord_size = \"8 B\"\nblocking_factor = 10\n";
    let store = open(created).expect("opens");
    let specs = ["stock", "bins", "notes"].map(|name| store.configuration().partition_spec(name, &Default::default()));
    store
        .run(async |database| {
            for spec in specs {
                database.create_partition(spec?).await?;
            }
            let stock = database.partition("stock")?;
            let pens = [FieldValue::U32(7), FieldValue::Text("pens")];
            database.transaction(async |tx| tx.insert_record(stock, b"1", &pens).await).await
        })
        .expect("creates");
    store.close().expect("closes");
    for (changed, key) in [
        (
            "[partition.notes]\norganization = \"append\"",
            "organization: the partition exists, and is organized as b-tree",
        ),
        ("[partition.notes]\nlocks = \"none\"", "locks: the partition exists, and its transactions lock by record"),
        (
            "[partition.notes]\ndevice = \"other\"\n[device.other]\npath = \"elsewhere\"",
            "device: the partition exists, and is on device 'disk'",
        ),
        ("[partition.notes]\npage_size = \"4 KiB\"", "page_size: the partition exists, and has 8192"),
        ("[partition.bins]\norganization = \"direct\"\nobjects = 200", "objects: the partition exists, and has 100"),
        (
            "[partition.bins]\norganization = \"direct\"\nrecord_size = \"16 B\"",
            "record_size: the partition exists, and has 8",
        ),
        (
            "[partition.bins]\norganization = \"direct\"\nblocking_factor = 5",
            "blocking_factor: the partition exists, and has 10",
        ),
        (
            "[partition.stock]\norganization = \"arrivals\"",
            "organization: the partition exists, and is organized as set",
        ),
        (
            "[partition.stock]\norganization = \"set\"\nsegment_size = \"64 KiB\"",
            "segment_size: the partition exists, and has 262144",
        ),
        (
            "[partition.stock]\norganization = \"set\"\nreserve_percent = 20",
            "reserve_percent: the partition exists, and has 10",
        ),
        (
            "[partition.stock]\norganization = \"set\"\nrecord = { count = \"u32\" }",
            "record: the partition exists, and its records are of another type",
        ),
    ] {
        let changed = changed.replace("elsewhere", &directory.path().join("elsewhere").display().to_string());
        let error = open(&changed).map(|_| ()).expect_err(key).to_string();
        assert!(error.contains(key) && error.contains("[partition."), "{changed}: {error}");
    }
    // What they are may be said, and an index is built that was not there.
    let indexed = created.replace("\"text\" }", "\"text\" }\nsecondary = { by_count = \"count\" }\ncache = false");
    let store = open(&indexed).expect("opens");
    let found = store.run(async |database| {
        let stock = database.partition("stock")?;
        let (index, mut found) = (database.secondary(stock, "by_count")?, Vec::new());
        let look = |key: &[u8], _: &[u8]| {
            found.push(key.to_vec());
            true
        };
        let all = (Bound::Unbounded, Bound::Unbounded);
        database.begin().await?.range(stock, index, all, Direction::Forward, look).await?;
        Ok(found)
    });
    assert_eq!(found.expect("it is built"), [b"1".to_vec()]);
    store.close().expect("closes");
    let other = indexed.replace("by_count = \"count\"", "by_count = \"name\"");
    let error = open(&other).map(|_| ()).expect_err("over another field").to_string();
    assert!(
        error.contains("[partition.stock] secondary: the partition exists, and its index 'by_count' is over other"),
        "{error}"
    );
}

fn pages_in_memory(database: &Database) -> usize {
    let pool = database.buffer().pool().borrow();
    pool.len() - pool.free_count()
}

/// How many pages memory has a while after an opening that reads nothing itself.
fn pages_after_opening(directory: &Path, warm: bool) -> usize {
    let text = format!("[buffer]\nsize = \"1 MiB\"\nwarm = {warm}\n[log]\nsize = \"4 MiB\"\n");
    let store = Opening::new(directory, Configuration::parse(&text).expect("right")).open().expect("opens");
    let found = store.run(async |database| {
        let mut most = 0;
        for _ in 0..60 {
            database.executor().sleep_ns(5_000_000).await;
            most = most.max(pages_in_memory(database));
        }
        Ok(most)
    });
    // Without a close, so that what was noted stays.
    found.expect("runs")
}

#[test]
fn what_was_in_memory_is_noted_at_the_end_and_read_again_if_that_is_asked_for() {
    let directory = scratch();
    let store = open(directory.path(), "automatic");
    let filled = store.run(async |database| {
        database.create_partition(PartitionSpec::b_tree("notes")).await?;
        for key in 0..600 {
            put(database, key, &[7; 4_000]).await?;
        }
        Ok(pages_in_memory(database))
    });
    let filled = filled.expect("runs");
    assert!(filled > 100, "the buffer's 128 frames are full: {filled}");
    let other = store.run(async |database| {
        database.note_residence().await?;
        database.warm_as_noted().await
    });
    assert_eq!(other.expect("runs"), 0, "all of it is there");
    store.close().expect("closes");
    let file = directory.path().join("resident.pages");
    let noted = std::fs::read(&file).expect("it was written");
    assert!(noted.starts_with(b"entres 1") && noted.len() == 4_096, "{} bytes", noted.len());
    assert!(pages_after_opening(directory.path(), false) < 20);
    let warm = pages_after_opening(directory.path(), true);
    assert!(warm > filled - 20, "{warm} of {filled}");
    // An opening that ends before all of it was read leaves the note as it is.
    let text = "[buffer]\nsize = \"1 MiB\"\nwarm = true\n[log]\nsize = \"4 MiB\"\n";
    let short = Opening::new(directory.path(), Configuration::parse(text).expect("right")).open().expect("opens");
    short.close().expect("closes");
    assert!(std::fs::read(&file).expect("it is there") == noted);
    // One that is damaged, cut off or gone is none.
    for damage in [0, 9, 13, 16] {
        let mut damaged = noted.clone();
        damaged[damage] ^= 0x40;
        std::fs::write(&file, damaged).expect("it can be written");
        assert!(pages_after_opening(directory.path(), true) < 20, "byte {damage}");
    }
    std::fs::write(&file, &noted[..10]).expect("it can be written");
    assert!(pages_after_opening(directory.path(), true) < 20);
    std::fs::remove_file(&file).expect("it is there");
    assert!(pages_after_opening(directory.path(), true) < 20);
}

/// What is made in place of a file system that is not mounted would be on another one.
#[test]
fn a_directory_that_is_missing_of_a_database_that_is_there_is_not_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let flash = directory.path().join("flash");
    let open = || {
        let text = format!(
            "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[cache]\ndevice = \"flash\"\nsize = \"1 MiB\"\n\
             [device.flash]\npath = \"{}\"\n",
            flash.display()
        );
        Opening::new(directory.path().join("data"), Configuration::parse(&text).expect("right")).open()
    };
    open().expect("it is created, with the directory").close().expect("closes");
    std::fs::rename(&flash, directory.path().join("away")).expect("renames");
    let refused = open().err().expect("it is refused").to_string();
    assert!(refused.contains("[device.flash] path") && refused.contains("mount its file system"), "{refused}");
    assert!(!flash.exists(), "it is not made");
    std::fs::rename(directory.path().join("away"), &flash).expect("renames");
    open().expect("it is there again").close().expect("closes");
}
