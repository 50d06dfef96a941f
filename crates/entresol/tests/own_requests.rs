//! Requests of handles that are awaited on the engine's own thread, by the task that is in their way.

#![allow(clippy::disallowed_methods, reason = "the tests are the other threads")]

use entresol::configuration::Configuration;
use entresol::{
    Database, DatabaseThread, Error, Handle, Opening, PartitionId, PartitionSpec, Pending, Procedures, Transaction,
};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How long a wait for oneself takes at most, to which an error must come: far less than `[locks] wait_at_most`, 60 s.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    procedures.register("drink", async |tx, words| {
        let notes = tx.partition("notes")?;
        tx.put(notes, b"milk", words).await?;
        Ok(Vec::new())
    });
    procedures
}

fn start_as(directory: &Path, text: &str) -> (DatabaseThread, Handle, PartitionId) {
    let text = format!("{text}[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n");
    let opening = Opening::new(directory, Configuration::parse(&text).expect("right")).procedures(procedures);
    let server = DatabaseThread::start(opening).expect("starts");
    let handle = server.handle();
    let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait().expect("is created");
    handle.put(notes, b"milk", &[1]).wait().expect("is stored");
    (server, handle, notes)
}

fn start(directory: &Path) -> (DatabaseThread, Handle, PartitionId) {
    start_as(directory, "")
}

/// What a request comes to, which must be told soon.
#[track_caller]
fn soon<T, E: From<Error>>(pending: Pending<T, E>) -> Result<T, E> {
    pending.wait_at_most(TOLD_WITHIN).unwrap_or_else(|_| panic!("no answer within {TOLD_WITHIN:?}"))
}

/// Runs a transaction that puts milk, then does `work` and commits.
fn having_milk<T: Send + 'static>(
    handle: &Handle,
    notes: PartitionId,
    mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, Error> + Send + 'static,
) -> Pending<T> {
    handle.transaction(async move |tx| {
        tx.put(notes, b"milk", &[2]).await?;
        work(tx).await
    })
}

fn is_own_lock<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::OwnLock { resource, holders }) if resource.ends_with("of 'notes'") && !holders.is_empty())
}

/// Both, each polled whenever the task is.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other, mut done) = (pin!(one), pin!(other), (None, None));
    poll_fn(|context| {
        if done.0.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(context)
        {
            done.0 = Some(value);
        }
        if done.1.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(context)
        {
            done.1 = Some(value);
        }
        if done.0.is_some() && done.1.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (done.0.expect("it is done"), done.1.expect("it is done"))
}

/// Runs a handle's calls, each awaited in a transaction that has milk.
#[test]
fn a_transaction_that_awaits_a_call_for_what_it_holds_is_told() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    type Call = fn(Handle, PartitionId) -> Pending<()>;
    let calls: [(&str, Call); 6] = [
        ("put", |handle, notes| handle.put(notes, b"milk", &[3])),
        ("get", |handle, notes| handle.transaction(async move |tx| tx.get(notes, b"milk").await.map(|_| ()))),
        ("delete", |handle, notes| handle.transaction(async move |tx| tx.delete(notes, b"milk").await.map(|_| ()))),
        ("modify", |handle, notes| {
            handle.transaction(async move |tx| tx.modify(notes, b"milk", |value| value[0] += 1).await)
        }),
        ("scan", |handle, notes| {
            let scan = async move |tx: &mut Transaction| {
                tx.scan(notes, .., entresol::Direction::Forward).take(9).await.map(|_| ())
            };
            handle.transaction(scan)
        }),
        ("with_database", |handle, notes| {
            handle.with_database(async move |database| {
                database.transaction(async |tx| tx.put(notes, b"milk", &[3]).await).await
            })
        }),
    ];
    for (name, call) in calls {
        let inner = handle.clone();
        let told = having_milk(&handle, notes, async move |_| Ok(call(inner.clone(), notes).await));
        let told = soon(told).expect("the transaction itself is sound");
        assert!(is_own_lock(&told), "{name}: {told:?}");
        assert_eq!(handle.get(notes, b"milk").wait(), Ok(Some(vec![2])), "{name}");
    }
    // Pages are read without locks, and other records are free.
    let inner = handle.clone();
    let free = having_milk(&handle, notes, async move |_| {
        let page = inner.page(notes, .., entresol::Direction::Forward, 9).await?;
        inner.put(notes, b"bread", &[1]).await?;
        Ok(page.len())
    });
    assert_eq!(soon(free), Ok(1));
    server.close().expect("closes");
}

#[test]
fn a_call_of_a_procedure_is_no_exception() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    let inner = handle.clone();
    let told = having_milk(&handle, notes, async move |_| Ok(inner.call("drink", &[3]).await));
    let told = soon(told).expect("the transaction itself is sound");
    assert!(is_own_lock(&told), "{told:?}");
    server.close().expect("closes");
}

#[test]
fn a_transaction_that_was_begun_by_hand_is_told_too() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    let inner = handle.clone();
    let told = handle.with_database(async move |database: &Database| {
        let mut tx = database.begin().await?;
        tx.put(notes, b"milk", &[2]).await?;
        let told = inner.put(notes, b"milk", &[3]).await;
        tx.commit().await?;
        Ok(told)
    });
    let told = soon(told).expect("the transaction itself is sound");
    assert!(is_own_lock(&told), "{told:?}");
    server.close().expect("closes");
}

#[test]
fn a_chain_of_calls_ends_where_it_closes() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    // The first holds milk and awaits the second, which holds bread and awaits the third, which wants milk.
    let (second, third) = (handle.clone(), handle.clone());
    let chain = having_milk(&handle, notes, async move |_| {
        let third = third.clone();
        let bread = second.transaction(async move |tx| {
            tx.put(notes, b"bread", &[2]).await?;
            Ok::<_, Error>(third.put(notes, b"milk", &[3]).await)
        });
        bread.await
    });
    let told = soon(chain).expect("the second is sound");
    assert!(is_own_lock(&told), "{told:?}");
    // The first awaits the second, which wants bread. That has another one, which comes to want milk.
    let (release, held) = mpsc::channel::<()>();
    let other = handle.transaction(async move |tx| {
        tx.put(notes, b"bread", &[3]).await?;
        while held.try_recv().is_err() {
            tx.executor().clone().sleep_ns(1_000_000).await;
        }
        tx.put(notes, b"milk", &[3]).await
    });
    let inner = handle.clone();
    let told = having_milk(&handle, notes, async move |_| Ok(inner.put(notes, b"bread", &[4]).await));
    thread::sleep(Duration::from_millis(50));
    release.send(()).expect("it is waited for");
    let told = soon(told).expect("the transaction itself is sound");
    assert!(is_own_lock(&told), "{told:?}");
    assert_eq!(soon(other), Ok(()), "calls of other threads are not told");
    assert_eq!(handle.get(notes, b"milk").wait(), Ok(Some(vec![3])));
    server.close().expect("closes");
}

#[test]
fn calls_that_are_awaited_together_are_told_when_nothing_else_is_left() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    let inner = handle.clone();
    let told = having_milk(&handle, notes, async move |tx| {
        tx.put(notes, b"bread", &[2]).await?;
        Ok(both(inner.put(notes, b"milk", &[3]), inner.put(notes, b"bread", &[3])).await)
    });
    let (milk, bread) = soon(told).expect("the transaction itself is sound");
    assert!(is_own_lock(&milk) && is_own_lock(&bread), "{milk:?} {bread:?}");
    // One of them ends by itself.
    let inner = handle.clone();
    let told = having_milk(&handle, notes, async move |_| {
        Ok(both(inner.put(notes, b"milk", &[3]), inner.put(notes, b"bread", &[3])).await)
    });
    let (milk, bread) = soon(told).expect("the transaction itself is sound");
    assert!(is_own_lock(&milk) && bread.is_ok(), "{milk:?} {bread:?}");
    server.close().expect("closes");
}

#[test]
fn what_the_task_itself_will_release_is_waited_for() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    const REST_NS: u64 = 300_000_000;
    // The call is awaited beside what ends the transaction.
    let inner = handle.clone();
    let beside = handle.with_database(async move |database: &Database| {
        let mut tx = database.begin().await?;
        tx.put(notes, b"milk", &[2]).await?;
        let end = async {
            database.executor().sleep_ns(REST_NS).await;
            tx.commit().await
        };
        Ok(both(inner.put(notes, b"milk", &[3]), end).await)
    });
    assert_eq!(soon(beside), Ok((Ok(()), Ok(()))));
    // It is awaited behind the end of the transaction, and was looked at before.
    let inner = handle.clone();
    let behind = handle.with_database(async move |database: &Database| {
        let mut tx = database.begin().await?;
        tx.put(notes, b"milk", &[4]).await?;
        let mut put = pin!(inner.put(notes, b"milk", &[5]));
        let first = poll_fn(|context| Poll::Ready(put.as_mut().poll(context))).await;
        assert!(first.is_pending());
        database.executor().sleep_ns(REST_NS).await;
        tx.commit().await?;
        put.await
    });
    assert_eq!(soon(behind), Ok(()));
    assert_eq!(handle.get(notes, b"milk").wait(), Ok(Some(vec![5])));
    // It has its own limit, and another call's transaction is in its way.
    let (release, held) = mpsc::channel::<()>();
    let other = having_milk(&handle, notes, async move |tx| {
        while held.try_recv().is_err() {
            tx.executor().clone().sleep_ns(1_000_000).await;
        }
        Ok(())
    });
    let inner = handle.clone();
    let waits = handle.transaction(async move |tx| {
        tx.put(notes, b"bread", &[2]).await?;
        inner.put(notes, b"milk", &[6]).await
    });
    let waits = waits.wait_at_most(Duration::from_millis(400)).expect_err("another one holds it");
    release.send(()).expect("it is waited for");
    assert_eq!((soon(other), soon(waits)), (Ok(()), Ok(())));
    server.close().expect("closes");
}

#[test]
fn a_call_of_another_thread_waits_however_the_engines_own_do() {
    let directory = scratch();
    let (server, handle, notes) = start(directory.path());
    let (inner, (release, held)) = (handle.clone(), mpsc::channel::<()>());
    let holder = having_milk(&handle, notes, async move |tx| {
        let told = inner.put(notes, b"milk", &[3]).await;
        while held.try_recv().is_err() {
            tx.executor().clone().sleep_ns(1_000_000).await;
        }
        Ok(told)
    });
    let others = [4, 5].map(|number| handle.put(notes, b"milk", &[number]));
    thread::sleep(Duration::from_millis(200));
    release.send(()).expect("it is waited for");
    assert!(is_own_lock(&soon(holder).expect("the transaction itself is sound")));
    assert_eq!(others.map(soon), [Ok(()), Ok(())]);
    server.close().expect("closes");
}

#[test]
fn a_call_beyond_the_level_of_multiprogramming_is_told() {
    let directory = scratch();
    let (server, handle, notes) = start_as(directory.path(), "mpl = 2\n");
    let inner = handle.clone();
    // Two transactions have both places, and each awaits a call that is to begin a third one.
    let places: Vec<_> = [b"milk", b"figs"]
        .map(|name| {
            let inner = inner.clone();
            handle.transaction(async move |tx| {
                tx.put(notes, name, &[2]).await?;
                tx.executor().clone().sleep_ns(20_000_000).await;
                Ok::<_, Error>(inner.put(notes, b"bread", &[3]).await)
            })
        })
        .into();
    let told: Vec<_> = places.into_iter().map(|place| soon(place).expect("it is sound")).collect();
    let refused = told.iter().filter(|told| matches!(told, Err(Error::TooManyTransactions { .. }))).count();
    assert!(
        refused > 0 && told.iter().all(|told| told.is_ok() || matches!(told, Err(Error::TooManyTransactions { .. })))
    );
    assert_eq!(soon(handle.put(notes, b"bread", &[4])), Ok(()));
    server.close().expect("closes");
}

#[test]
fn a_request_gives_its_answer_once() {
    let directory = scratch();
    let (server, handle, _) = start(directory.path());
    let mut balance = handle.figures();
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut balance).poll(&mut context).is_pending() {
        thread::yield_now();
    }
    let again = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut balance).poll(&mut context).is_ready()));
    let words = again.expect_err("it has given its answer");
    assert!(words.downcast_ref::<&str>().is_some_and(|words| words.contains("after it has given it")));
    server.close().expect("closes");
}
