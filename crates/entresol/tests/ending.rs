//! What is under way when a database goes: its locks stay until the last of it has ended.

#![allow(clippy::disallowed_methods, reason = "the tests look at and damage the files below")]

use driver::{Access, Op};
use engine::canary::{Canary, plant};
use entresol::configuration::Configuration;
use entresol::{DatabaseThread, OpenError, Opening, PartitionSpec, Store};
use executor::WholeExecutor;
use real_driver::DirectoryLock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const BACKENDS: [&str; 2] = ["automatic", "thread-pool"];
/// Writing this takes a disk tens of milliseconds at least.
const LENGTH: u32 = 64 << 20;

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &Path, backend: &str) -> Opening {
    let text = format!("[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\nbackend = \"{backend}\"\n");
    Opening::new(directory, Configuration::parse(&text).expect("right"))
}

/// Has a long write under way, of which the driver knows.
fn begin_long_write(store: &Store) {
    let executor = store.executor().whole().clone();
    let begun = store.run(async |_| {
        let device = executor.device("disk").expect("the default device");
        let (file, _) = executor.open(device, "late", true).await?;
        executor.perform(Op::Resize { file, length: u64::from(LENGTH), prewrite: false }).await.result?;
        let mut buffer = executor.frame(LENGTH as usize)?;
        buffer.fill(7);
        let access = Access::Asynchronous;
        executor.submit(Op::Write { file, offset: 0, length: LENGTH, buffer, durable: true, access }, |_| ());
        executor.sleep_ns(1_000_000).await;
        Ok(())
    });
    begun.expect("begins");
}

/// The directory can be had at once, and nothing of an earlier opening changes it any more.
fn assert_quiet(directory: &Path, what: &str) {
    let lock = DirectoryLock::acquire(directory).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let written = || {
        std::fs::read(directory.join("late")).map(|bytes| bytes.iter().step_by(512).filter(|byte| **byte == 7).count())
    };
    let before = written().expect("it was created");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(written().expect("it is there"), before, "{what}: written after the unlock");
    drop(lock);
}

#[test]
fn a_dropped_store_writes_nothing_after_its_lock_is_gone() {
    for backend in BACKENDS {
        let directory = scratch();
        let store = opening(directory.path(), backend).open().expect("creates");
        begin_long_write(&store);
        // A clone of the database keeps its executor, and with that the driver.
        let database = store.database().clone();
        drop(store);
        assert_quiet(directory.path(), backend);
        drop(database);
    }
}

#[test]
fn a_machine_that_goes_on_is_found() {
    let planted = catch_unwind(|| {
        plant(Some(Canary::RunningMachine));
        a_dropped_store_writes_nothing_after_its_lock_is_gone();
    });
    plant(None);
    assert!(planted.is_err());
}

#[test]
fn a_panic_in_the_callers_work_ends_the_same_way() {
    for backend in BACKENDS {
        let directory = scratch();
        let store = opening(directory.path(), backend).open().expect("creates");
        begin_long_write(&store);
        let database = store.database().clone();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _: Result<(), OpenError> = store.run(async |_| panic!("for the test"));
        }));
        assert!(panicked.is_err());
        assert_quiet(directory.path(), backend);
        drop(database);
    }
}

/// How many descriptors of this process are files below `directory`.
fn descriptors(directory: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(directory))).count()
}

#[test]
fn openings_that_fail_and_servers_that_end_leave_no_file_open() {
    let directory = scratch();
    let path = directory.path().canonicalize().expect("there");
    let store = opening(&path, "automatic").open().expect("creates");
    let made = store.run(async |database| {
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let filled = database.transaction(async |tx| {
            for number in 0..200_u32 {
                tx.put(notes, &number.to_be_bytes(), &[7; 500]).await?;
            }
            Ok(())
        });
        filled.await
    });
    made.expect("writes");
    drop(store);
    assert_eq!(descriptors(&path), 0);
    // An opening meets the partition's file after the log and the superblock file.
    let [pages, away] = ["notes.pages", "away"].map(|name| path.join(name));
    std::fs::rename(&pages, &away).expect("renames");
    assert!(opening(&path, "automatic").open().is_err(), "the partition's file is missing");
    assert_eq!(descriptors(&path), 0, "an opening failed");
    std::fs::rename(&away, &pages).expect("renames");
    let server = DatabaseThread::start(opening(&path, "automatic")).expect("opens");
    let handle = server.handle();
    let answer = handle.with_database(async |database| {
        let database = database.clone();
        // It is under way for good, and has the database.
        database.executor().clone().spawn(async move {
            std::future::pending::<()>().await;
            drop(database);
        });
        Ok(())
    });
    answer.wait().expect("spawns");
    let broken = handle.with_database(async |database| {
        database.executor().whole().of_library().spawn(async { panic!("for the test") }).join().await;
        Ok(())
    });
    assert_eq!(broken.wait(), Err(entresol::Error::Closed), "a task of the engine's own ends the thread");
    let closed = server.close();
    assert!(matches!(&closed, Err(OpenError::Panicked { message }) if message == "for the test"), "{closed:?}");
    assert_eq!(descriptors(&path), 0, "the engine's thread panicked");
    assert!(DirectoryLock::acquire(&path).is_ok());
}
