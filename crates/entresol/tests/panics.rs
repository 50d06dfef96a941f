//! Panics of tasks that requests have spawned: these end alone, and the database goes on for the others.

#![allow(clippy::disallowed_methods, reason = "the tests are the other threads")]

use entresol::configuration::Configuration;
use entresol::{Database, DatabaseThread, Error, Executor, Handle, NodeThreads, Opening, PartitionId, PartitionSpec};
use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

const CONFIGURATION: &str = "[nodes]\nbuffer = \"1 MiB\"\n[buffer]\nsize = \"4 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\n\
                             backend = \"thread-pool\"";
/// How long an answer takes at most that depends on nothing but the engine.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &TempDir) -> Opening {
    Opening::new(directory.path(), Configuration::parse(CONFIGURATION).expect("it is right"))
}

fn start(directory: &TempDir) -> (DatabaseThread, Handle, PartitionId) {
    let thread = DatabaseThread::start(opening(directory)).expect("it starts");
    let handle = thread.handle();
    let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait().expect("is created");
    handle.put(notes, b"milk", b"old").wait().expect("is stored");
    (thread, handle, notes)
}

/// A task that changes milk in a transaction of its own and then panics.
fn spill(database: &Database, notes: PartitionId) -> entresol::JoinHandle<()> {
    let own = database.clone();
    database.executor().spawn(async move {
        let spilt = own.transaction(async |tx| {
            tx.put(notes, b"milk", b"spilt").await?;
            assert_ne!(tx.get(notes, b"milk").await?.as_deref(), Some(&b"spilt"[..]), "the milk is spilt");
            Ok::<_, Error>(())
        });
        spilt.await.expect("it does not get here");
    })
}

/// A transaction under way, which has changed bread and waits for a word before it commits.
fn having_bread(handle: &Handle, notes: PartitionId) -> (mpsc::Sender<()>, entresol::Pending<()>) {
    let (tell, told) = mpsc::channel();
    let (began, begins) = mpsc::channel();
    let under_way = handle.transaction(async move |tx| {
        tx.put(notes, b"bread", b"new").await?;
        began.send(()).expect("it is waited for");
        while told.try_recv().is_err() {
            tx.executor().sleep_ns(1_000_000).await;
        }
        Ok(())
    });
    begins.recv_timeout(TOLD_WITHIN).expect("it begins");
    (tell, under_way)
}

fn is_sound(handle: &Handle, notes: PartitionId) {
    assert_eq!(handle.get(notes, b"milk").wait(), Ok(Some(b"old".to_vec())), "nothing of the task's is left");
    let put = handle.put(notes, b"milk", b"old").wait_at_most(TOLD_WITHIN);
    assert_eq!(put.unwrap_or_else(|_| panic!("its lock is not free")), Ok(()));
}

#[test]
fn a_request_that_joins_it_fails_and_no_other_does() {
    let directory = scratch();
    let (thread, handle, notes) = start(&directory);
    let (tell, under_way) = having_bread(&handle, notes);
    let told: Result<(), Error> = handle
        .with_database(async move |database| {
            spill(database, notes).join().await;
            Ok(())
        })
        .wait();
    let Err(Error::Panicked { message, .. }) = &told else { panic!("{told:?}") };
    assert!(message.contains("the milk is spilt"), "{message}");
    is_sound(&handle, notes);
    tell.send(()).expect("it waits");
    assert_eq!(under_way.wait(), Ok(()));
    assert_eq!(handle.get(notes, b"bread").wait(), Ok(Some(b"new".to_vec())));
    let check = handle.with_database(async |database| database.check(|_| ()).await).wait();
    assert!(check.expect("it can be checked").findings.is_empty());
    thread.close().expect("it closes");
}

#[test]
fn a_task_that_none_joins_ends_alone() {
    let directory = scratch();
    let (thread, handle, notes) = start(&directory);
    let (tell, under_way) = having_bread(&handle, notes);
    let answered: Result<u8, Error> = handle
        .with_database(async move |database| {
            drop(spill(database, notes));
            Ok(7)
        })
        .wait();
    assert_eq!(answered, Ok(7));
    is_sound(&handle, notes);
    tell.send(()).expect("it waits");
    assert_eq!(under_way.wait(), Ok(()));
    thread.close().expect("it closes");
}

#[test]
fn a_procedure_that_joins_it_fails_alone() {
    let directory = scratch();
    let registered = || {
        let mut procedures = entresol::Procedures::new();
        procedures.register("spill", async |tx, _| {
            let task = tx.executor().spawn(async { assert!(std::hint::black_box(false), "the milk is spilt") });
            task.join().await;
            Ok(Vec::new())
        });
        procedures
    };
    let thread = DatabaseThread::start(opening(&directory).procedures(registered)).expect("it starts");
    let handle = thread.handle();
    let told = handle.call("spill", &[]).wait();
    let Err(Error::Panicked { what, message }) = &told else { panic!("{told:?}") };
    assert_eq!((what.as_str(), message.as_str()), ("spill", "the milk is spilt"));
    let computes: Result<u8, Error> = handle
        .with_database(async |database| {
            let parse = || "milk".parse::<u8>().expect("it is a number");
            Ok(database.executor().compute(1, parse).await.expect("it is not given up"))
        })
        .wait();
    assert!(
        matches!(&computes, Err(Error::Panicked { message, .. }) if message.starts_with("it is a number")),
        "{computes:?}"
    );
    assert_eq!(handle.partitions().wait(), Ok(Vec::new()), "others go on");
    thread.close().expect("it closes");
}

#[test]
fn a_node_goes_on_as_well() {
    let directory = scratch();
    let threads = NodeThreads::start(opening(&directory).nodes(2)).expect("they start");
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    handle.put(notes, b"milk", b"old").wait().expect("it commits");
    let fails =
        |executor: &Executor| executor.spawn(async { assert!(std::hint::black_box(false), "the milk is spilt") });
    let joins: Result<(), Error> = handle
        .transaction_at(1, async move |tx| {
            tx.put(notes, b"milk", b"spilt").await?;
            fails(tx.executor()).join().await;
            pending().await
        })
        .wait();
    assert!(matches!(&joins, Err(Error::Panicked { message, .. }) if message == "the milk is spilt"), "{joins:?}");
    let detached = handle.transaction_at(1, async move |tx| {
        drop(fails(tx.executor()));
        tx.executor().sleep_ns(1_000_000).await;
        tx.get(notes, b"milk").await
    });
    assert_eq!(detached.wait(), Ok(Some(b"old".to_vec())));
    threads.close().expect("they close");
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::hint::black_box(false), "the milk is spilt");
    }
}

/// A request that has changed milk and waits for ever with what panics when it is dropped.
fn armed(handle: &Handle, notes: PartitionId) -> entresol::Pending<()> {
    let (began, begins) = mpsc::channel();
    let armed = handle.transaction(async move |tx| {
        let _bomb = Bomb;
        tx.put(notes, b"milk", b"spilt").await?;
        began.send(()).expect("it is waited for");
        pending().await
    });
    begins.recv_timeout(TOLD_WITHIN).expect("it begins");
    armed
}

#[test]
fn a_request_that_is_cancelled_ends_alone_though_its_destructors_panic() {
    let directory = scratch();
    let (thread, handle, notes) = start(&directory);
    let (tell, under_way) = having_bread(&handle, notes);
    armed(&handle, notes).cancel();
    is_sound(&handle, notes);
    tell.send(()).expect("it waits");
    assert_eq!(under_way.wait(), Ok(()));
    let late = armed(&handle, notes);
    thread.close_within(Duration::from_millis(20)).expect("it closes");
    assert_eq!(late.wait(), Err(Error::Closed));
}

#[test]
fn a_call_that_is_ended_ends_alone_though_its_destructors_panic() {
    let directory = scratch();
    let (began, begins) = mpsc::channel();
    let registered = move || {
        let (mut procedures, began) = (entresol::Procedures::new(), began.clone());
        procedures.register("arm", async move |_, _| {
            let _bomb = Bomb;
            began.send(()).expect("it is waited for");
            pending().await
        });
        procedures
    };
    let thread = DatabaseThread::start(opening(&directory).procedures(registered)).expect("it starts");
    let handle = thread.handle();
    let armed = handle.call("arm", &[]);
    begins.recv_timeout(TOLD_WITHIN).expect("it begins");
    armed.cancel();
    assert_eq!(handle.partitions().wait(), Ok(Vec::new()), "others go on");
    let late = handle.call("arm", &[]);
    begins.recv_timeout(TOLD_WITHIN).expect("it begins");
    thread.close_within(Duration::from_millis(20)).expect("it closes");
    assert_eq!(late.wait(), Err(Error::Closed));
}

/// What a task of a caller runs is dropped outside of it when it has ended.
#[test]
fn a_task_whose_future_panics_as_it_is_dropped_ends_alone() {
    let directory = scratch();
    let (thread, handle, notes) = start(&directory);
    let answered: Result<u8, Error> = handle
        .with_database(async move |database| {
            let bomb = Bomb;
            let ready = std::future::poll_fn(move |_| {
                let _own = &bomb;
                std::task::Poll::Ready(())
            });
            drop(database.executor().spawn(ready));
            Ok(7)
        })
        .wait();
    assert_eq!(answered, Ok(7));
    is_sound(&handle, notes);
    thread.close().expect("it closes");
}
