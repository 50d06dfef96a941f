//! A database on a thread of its own, and many threads that use it.

#![allow(clippy::disallowed_methods, reason = "the tests are the other threads")]

use entresol::configuration::Configuration;
use entresol::{
    Database, DatabaseThread, Error, Handle, Isolation, OpenError, Opening, PartitionSpec, Pending, Procedures,
    Snapshot, Transaction,
};
use executor::WholeExecutor;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &Path) -> Opening {
    let text = "mpl = 16\n[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n";
    Opening::new(directory, Configuration::parse(text).expect("right"))
}

const ACCOUNTS: u64 = 6;
const OPENING_BALANCE: i64 = 1_000;

async fn balance(tx: &mut Transaction, account: u64) -> entresol::Result<i64> {
    let accounts = tx.partition("accounts")?;
    let bytes = tx.get(accounts, &account.to_be_bytes()).await?.expect("it was made");
    Ok(i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

async fn set(tx: &mut Transaction, account: u64, balance: i64) -> entresol::Result<()> {
    let accounts = tx.partition("accounts")?;
    tx.put(accounts, &account.to_be_bytes(), &balance.to_le_bytes()).await
}

/// Moves the amount from the first account to the second; each is read before either is written and others have their
/// turn in between, so that two transfers clash easily.
async fn transfer(tx: &mut Transaction, from: u64, to: u64, amount: i64) -> entresol::Result<()> {
    let (rich, poor) = (balance(tx, from).await?, balance(tx, to).await?);
    if rich < amount {
        return Err(Error::RolledBack(format!("account {from} has {rich}")));
    }
    tx.executor().clone().yield_now().await;
    set(tx, from, rich - amount).await?;
    set(tx, to, poor + amount).await
}

fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    procedures.register("transfer", async |tx, words| {
        let [from, to, amount] = words else { return Err(Error::Argument("three bytes".into())) };
        transfer(tx, u64::from(*from), u64::from(*to), i64::from(*amount)).await?;
        Ok(vec![*amount])
    });
    procedures.register("break", async |_, _| panic!("a procedure's own mistake"));
    procedures
}

fn start(directory: &Path) -> DatabaseThread {
    let server = DatabaseThread::start(opening(directory).procedures(procedures)).expect("starts");
    let made = server.handle().with_database(async |database| {
        if database.partition("accounts").is_ok() {
            return Ok(());
        }
        database.create_partition(PartitionSpec::b_tree("accounts")).await?;
        let fill = async |tx: &mut Transaction| {
            for account in 0..ACCOUNTS {
                set(tx, account, OPENING_BALANCE).await?;
            }
            Ok(())
        };
        database.transaction(fill).await
    });
    made.wait().expect("is filled");
    server
}

fn total(handle: &Handle) -> i64 {
    let add_up = async |tx: &mut Transaction| {
        let mut total = 0;
        for account in 0..ACCOUNTS {
            total += balance(tx, account).await?;
        }
        Ok::<_, Error>(total)
    };
    handle.transaction(add_up).wait().expect("adds up")
}

/// Runs something on a thread and fails if it does not end.
fn within_reason<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(what()));
    ended.recv_timeout(Duration::from_secs(60)).expect("it ends")
}

#[test]
fn threads_that_clash_are_retried_and_no_money_is_lost() {
    let directory = scratch();
    let server = start(directory.path());
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let handle = server.handle();
            thread::spawn(move || {
                let mut done = 0;
                for round in 0..60 {
                    let (from, to) = ((thread + round) % ACCOUNTS, (thread * 5 + round * 3 + 1) % ACCOUNTS);
                    if from == to {
                        continue;
                    }
                    let result = if round % 2 == 0 {
                        handle.transaction(async move |tx| transfer(tx, from, to, 7).await).wait()
                    } else {
                        handle.call("transfer", &[from as u8, to as u8, 7]).wait().map(|amount| assert_eq!(amount, [7]))
                    };
                    match result {
                        Ok(()) => done += 1,
                        Err(Error::RolledBack(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                done
            })
        })
        .collect();
    let done: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert!(done > 200, "{done} transfers");
    let handle = server.handle();
    assert_eq!(total(&handle), ACCOUNTS as i64 * OPENING_BALANCE);
    let deadlocks = handle.with_database(async |database| Ok(database.statistics().deadlocks.get()));
    assert!(deadlocks.wait().expect("counts") > 0, "the transfers clash");
    server.close().expect("closes");
    assert_eq!(total(&start(directory.path()).handle()), ACCOUNTS as i64 * OPENING_BALANCE);
}

#[test]
fn procedures_answer_or_say_what_is_wrong() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let unknown = handle.call("transfers", &[]).wait().expect_err("unknown");
    assert!(unknown.to_string().contains("registered are: break, transfer"), "{unknown}");
    assert_eq!(handle.call("transfer", &[1]).wait(), Err(Error::Argument("three bytes".into())));
    let poor = handle.call("transfer", &[0, 1, 250]).wait();
    assert_eq!(poor, Ok(vec![250]));
    let pending: Vec<_> = (0..5).map(|_| handle.call("transfer", &[0, 1, 250])).collect();
    let outcomes: Vec<_> = pending.into_iter().map(|pending| pending.wait().is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|done| **done).count(), 3, "then the account is empty: {outcomes:?}");
    assert_eq!(total(&handle), ACCOUNTS as i64 * OPENING_BALANCE);
}

/// More than there are tasks that stay for later ones.
#[test]
fn many_calls_at_once_are_all_answered_and_so_are_those_behind_them() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    for _ in 0..3 {
        let pending: Vec<_> = (0..600).map(|_| handle.call("transfer", &[0, 1, 0])).collect();
        assert!(pending.into_iter().all(|pending| pending.wait() == Ok(vec![0])));
        assert!(handle.call("break", &[]).wait().is_err());
    }
    server.close().expect("closes");
}

/// Has the engine's thread look for nothing for a while, and runs `meanwhile`: what this sends is taken up at once. Then the engine
/// goes on with `work`.
fn all_at_once<T>(handle: &Handle, work: impl FnOnce(&Database) + Send + 'static, meanwhile: impl FnOnce() -> T) -> T {
    let (begun, is_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let busy = handle.with_database(async move |database| {
        begun.send(()).expect("it is waited for");
        goes_on.recv().expect("it is told");
        work(database);
        Ok(())
    });
    is_begun.recv().expect("it begins");
    let done = meanwhile();
    go_on.send(()).expect("it waits");
    drop(busy);
    done
}

#[test]
fn many_calls_that_wait_for_nothing_leave_the_driver_its_turns() {
    let directory = scratch();
    let looks = || {
        let mut procedures = Procedures::new();
        // Tasks that run before the driver is asked again are told the same time.
        procedures.register("look", async |tx, _| Ok(tx.executor().whole().round_now().ns().to_le_bytes().to_vec()));
        procedures
    };
    let server = DatabaseThread::start(opening(directory.path()).procedures(looks)).expect("starts");
    let handle = server.handle();
    let calls = || (0..600).map(|_| handle.call("look", &[])).collect::<Vec<_>>();
    let mut seen: Vec<Vec<u8>> =
        all_at_once(&handle, |_| (), calls).into_iter().map(|call| call.wait().expect("runs")).collect();
    seen.dedup();
    assert!(seen.len() > 20, "600 calls ran in {} rounds", seen.len());
    server.close().expect("closes");
}

#[test]
fn calls_are_refused_that_wait_when_the_engines_thread_panics() {
    for turns in 0..6 {
        let directory = scratch();
        let server = start(directory.path());
        let handle = server.handle();
        let panic_later = move |database: &Database| {
            // As a task of the engine's own would.
            let executor = database.executor().whole().of_library();
            executor.clone().spawn(async move {
                for _ in 0..turns {
                    executor.yield_now().await;
                }
                panic!("for the test");
            });
        };
        let calls = all_at_once(&handle, panic_later, || {
            (0..40).map(|_| handle.call("transfer", &[0, 1, 0])).collect::<Vec<_>>()
        });
        for call in calls {
            let answer = call.wait_at_most(Duration::from_secs(10)).expect("it is answered");
            assert!(answer == Err(Error::Closed) || answer == Ok(vec![0]), "{turns} turns: {answer:?}");
        }
        let closed = server.close();
        assert!(matches!(&closed, Err(OpenError::Panicked { message }) if message == "for the test"), "{closed:?}");
    }
}

#[test]
fn an_answer_that_is_not_waited_for_is_no_reason_to_stop() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    for _ in 0..3 {
        drop(handle.call("transfer", &[0, 1, 100]));
    }
    drop(handle);
    drop(server);
    let server = start(directory.path());
    let left = server.handle().transaction(async |tx| balance(tx, 0).await).wait();
    assert_eq!(left, Ok(OPENING_BALANCE - 300), "what was sent before the end was done");
}

#[test]
fn a_server_ends_though_handles_are_left_and_refuses_them() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let handle = server.handle();
            thread::spawn(move || {
                let mut done = 0_i64;
                loop {
                    match handle.call("transfer", &[2, 3, 1]).wait() {
                        Ok(_) => done += 1,
                        Err(Error::Closed) => return done,
                        Err(Error::RolledBack(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(50));
    within_reason(move || server.close()).expect("closes");
    let mut acknowledged = 0;
    for thread in busy {
        acknowledged += within_reason(|| thread.join().expect("no panic"));
    }
    assert_eq!(handle.call("transfer", &[0, 1, 1]).wait(), Err(Error::Closed));
    let server = start(directory.path());
    let left = server.handle().transaction(async |tx| balance(tx, 2).await).wait();
    assert_eq!(left, Ok(OPENING_BALANCE - acknowledged), "exactly what was acknowledged was done");
}

#[test]
fn a_request_that_panics_fails_alone() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    handle.call("transfer", &[4, 5, 9]).wait().expect("transfers");
    let other = server.handle();
    let beside = thread::spawn(move || (0..200).all(|_| other.call("transfer", &[4, 5, 0]).wait().is_ok()));
    for _ in 0..20 {
        let broken = handle.call("break", &[]).wait();
        assert!(matches!(&broken, Err(Error::Panicked { message, .. }) if message == "a procedure's own mistake"));
        let broken = handle.transaction(async |tx| {
            set(tx, 4, 0).await?;
            Ok::<u8, Error>([1, 2][usize::from(tx.id().0 > 0) * 2])
        });
        let Err(Error::Panicked { what, message }) = within_reason(|| broken.wait()) else { panic!("it panics") };
        assert!(what.contains("a_request_that_panics_fails_alone") && message.contains("out of bounds"), "{what}");
    }
    assert!(within_reason(|| beside.join().expect("no panic")), "others go on");
    assert_eq!(handle.transaction(async |tx| balance(tx, 4).await).wait(), Ok(OPENING_BALANCE - 9));
    server.close().expect("closes");
}

/// Whether the waker of its task was used.
struct Flag(std::sync::Mutex<bool>, std::sync::Condvar);

impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.lock().expect("sound") = true;
        self.1.notify_all();
    }
}

/// Another runtime: it polls when it was woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let flag = std::sync::Arc::new(Flag(std::sync::Mutex::new(true), std::sync::Condvar::new()));
    let waker = std::task::Waker::from(std::sync::Arc::clone(&flag));
    let mut future = std::pin::pin!(future);
    loop {
        let woken = flag.1.wait_while(flag.0.lock().expect("sound"), |woken| !*woken).expect("sound");
        drop(woken);
        *flag.0.lock().expect("sound") = false;
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return value;
        }
    }
}

#[test]
fn what_a_handle_starts_is_awaited_in_any_runtime_and_waited_for_with_a_limit() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let moved = within_reason({
        let handle = handle.clone();
        move || {
            block_on(async {
                for _ in 0..50 {
                    handle.call("transfer", &[0, 1, 1]).await?;
                    handle.transaction(async |tx| transfer(tx, 1, 0, 1).await).await?;
                }
                handle.call("transfer", &[0, 1, 9]).await
            })
        }
    });
    assert_eq!(moved, Ok(vec![9]));
    // Held up by another, it is given back, goes on, and is there in the end; or is cancelled.
    let (release, held) = mpsc::channel::<()>();
    let holder = handle.transaction(async move |tx| {
        set(tx, 2, 7).await?;
        while held.try_recv().is_err() {
            tx.executor().clone().sleep_ns(1_000_000).await;
        }
        Ok::<_, Error>(())
    });
    let wait = |pending: entresol::Pending<i64>| pending.wait_at_most(Duration::from_millis(30));
    let waits = handle.transaction(async |tx| balance(tx, 2).await);
    let cancelled = handle.transaction(async |tx| set(tx, 2, 8).await.map(|()| 0));
    let (waits, cancelled) = (wait(waits).expect_err("it is held"), wait(cancelled).expect_err("it is held"));
    cancelled.cancel();
    release.send(()).expect("it is waited for");
    assert_eq!(within_reason(|| holder.wait()), Ok(()));
    assert_eq!(within_reason(|| waits.wait()), Ok(7));
    assert_eq!(handle.transaction(async |tx| balance(tx, 2).await).wait(), Ok(7), "the other was cancelled");
    server.close().expect("closes");
}

#[test]
fn the_engines_own_thread_does_not_wait_for_itself() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let inner = handle.clone();
    let done = handle.with_database(async move |_| {
        let blocked = inner.transaction(async |tx| balance(tx, 0).await).wait();
        assert_eq!(blocked, Err(Error::OwnThread));
        inner.transaction(async |tx| balance(tx, 0).await).await
    });
    assert_eq!(within_reason(|| done.wait()), Ok(OPENING_BALANCE), "awaited, it is well");
    server.close().expect("closes");
}

#[test]
fn closing_ends_what_does_not_end_by_itself() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let endless: Vec<_> = (0..3_u64)
        .map(|account| {
            handle.transaction(async move |tx| {
                set(tx, account, 0).await?;
                std::future::pending::<entresol::Result<()>>().await
            })
        })
        .collect();
    let waits = handle.transaction(async |tx| balance(tx, 1).await);
    within_reason(move || server.close_within(Duration::from_millis(50))).expect("closes");
    for request in endless {
        assert_eq!(request.wait(), Err(Error::Closed));
    }
    assert_eq!(waits.wait(), Err(Error::Closed));
    let server = start(directory.path());
    assert_eq!(total(&server.handle()), ACCOUNTS as i64 * OPENING_BALANCE, "and they were rolled back");
}

/// The queue is full of what never ends: neither closing nor other requests wait for room in it.
#[test]
fn closing_ends_calls_that_a_full_queue_keeps() {
    let directory = scratch();
    std::fs::write(
        directory.path().join("entresol.toml"),
        "[log]\nsize = \"4 MiB\"\n[server]\nqueue = 1\nstandbys = 1",
    )
    .expect("writes");
    let procedures = || {
        let mut procedures = Procedures::new();
        procedures.register("endless", async |tx, _| {
            let notes = tx.partition("notes")?;
            tx.put(notes, b"milk", b"two litres").await?;
            std::future::pending::<entresol::Result<Vec<u8>>>().await
        });
        procedures
    };
    let opening = || Opening::in_directory(directory.path()).expect("sound").procedures(procedures);
    let server = DatabaseThread::start(opening()).expect("opens");
    let handle = server.handle();
    let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait().expect("creates");
    let endless: Vec<_> = (0..8).map(|_| handle.call("endless", b"")).collect();
    assert_eq!(handle.get(notes, b"bread").wait(), Ok(None), "others have their turn");
    let (mut endless, last) = (endless.into_iter(), handle.call("endless", b""));
    last.cancel();
    within_reason(move || server.close_within(Duration::from_millis(50))).expect("closes");
    assert!(endless.all(|call| call.wait() == Err(Error::Closed)));
    let server = DatabaseThread::start(opening()).expect("opens");
    assert_eq!(server.handle().get(notes, b"milk").wait(), Ok(None), "and they were rolled back");
    server.close().expect("closes");
}

#[test]
fn a_server_that_cannot_open_says_so() {
    let directory = scratch();
    let server = start(directory.path());
    let second = DatabaseThread::start(opening(directory.path())).err().expect("refused");
    assert!(matches!(&second, OpenError::Machine(_)) && second.to_string().contains("open already"), "{second}");
    server.close().expect("closes");
    std::fs::write(directory.path().join("entresol.home"), "nonsense").expect("writes");
    let broken = DatabaseThread::start(opening(directory.path())).err().expect("refused");
    assert!(matches!(broken, OpenError::Engine(Error::NotADatabase { .. })), "{broken}");
}

#[test]
fn calls_go_through_the_transaction_server_where_one_is_described() {
    let directory = scratch();
    let text = "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[server]\nstandbys = 2\nqueue = 3\nretry_interval = \"1 ms\"";
    let configuration = Configuration::parse(text).expect("right");
    let server =
        DatabaseThread::start(Opening::new(directory.path(), configuration).procedures(procedures)).expect("starts");
    server
        .handle()
        .with_database(async |database| {
            database.create_partition(PartitionSpec::b_tree("accounts")).await?;
            for account in 0..ACCOUNTS {
                database.transaction(async |tx| set(tx, account, OPENING_BALANCE).await).await?;
            }
            Ok(())
        })
        .wait()
        .expect("is filled");
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let handle = server.handle();
            thread::spawn(move || {
                let words = |call: u8| [(thread + call) % 6, (thread + call + 1 + call % 5) % 6, 1];
                // More are under way than the queue holds.
                let pending: Vec<_> = (0..100).map(|call| handle.call("transfer", &words(call))).collect();
                let answers = pending.into_iter().map(|call| call.wait()).filter(|answer| *answer == Ok(vec![1]));
                assert!(handle.call("transfer", &[0]).wait().unwrap_err().to_string().contains("three bytes"));
                answers.count()
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
    assert_eq!(done, 400, "every call is answered");
    let unknown = server.handle().call("transfr", &[]).wait().unwrap_err().to_string();
    assert!(unknown.contains("there is no procedure 'transfr'; registered are: break, transfer"), "{unknown}");
    assert_eq!(total(&server.handle()), ACCOUNTS as i64 * OPENING_BALANCE);
    let late = server.handle();
    server.close().expect("closes");
    assert_eq!(late.call("transfer", &[0, 1, 1]).wait(), Err(Error::Closed));
}

#[test]
fn snapshots_beside_threads_that_write_are_of_moments_between_transactions() {
    let directory = scratch();
    let server = start(directory.path());
    let before = server.handle().snapshot(async |now| Ok::<_, Error>(now.moment())).wait().expect("reads");
    let writers: Vec<_> = (0..4_u64)
        .map(|thread| {
            let handle = server.handle();
            thread::spawn(move || {
                for round in 0..50 {
                    let (from, to) = ((thread + round) % ACCOUNTS, (thread * 5 + round * 3 + 1) % ACCOUNTS);
                    let isolation = Isolation::ALL[1 + (round % 2) as usize];
                    let done = handle.transaction_at(isolation, async move |tx| match from == to {
                        true => Ok(()),
                        false => transfer(tx, from, to, 1).await,
                    });
                    done.wait().expect("a transaction that overwrites what its snapshot lacks is run again");
                }
            })
        })
        .collect();
    let handle = server.handle();
    let mut moments = Vec::new();
    while moments.len() < 20 || writers.iter().any(|writer| !writer.is_finished()) {
        let read = async |now: &mut Snapshot, accounts| {
            let mut total = 0;
            for account in 0..ACCOUNTS {
                let bytes = now.get(accounts, &account.to_be_bytes()).await?.expect("it was made");
                total += i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            Ok::<_, Error>((now.moment(), total))
        };
        let accounts =
            handle.with_database(async |database| database.partition("accounts")).wait().expect("it is there");
        let (moment, total) = handle.snapshot(async move |now| read(now, accounts).await).wait().expect("reads");
        assert_eq!(total, ACCOUNTS as i64 * OPENING_BALANCE);
        moments.push(moment);
    }
    assert!(moments.is_sorted());
    for writer in writers {
        writer.join().expect("no panic");
    }
    let early = handle.as_of(before, async |_| Ok::<_, Error>(())).wait();
    assert!(matches!(early, Err(Error::SnapshotTooOld { .. })), "nothing is kept for it: {early:?}");
    let present = handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait().expect("reads");
    assert_eq!(handle.as_of(present, async |then| Ok::<_, Error>(then.moment())).wait(), Ok(present));
    server.close().expect("closes");
}

#[test]
fn a_call_that_waits_for_room_in_the_queue_can_be_cancelled() {
    let directory = scratch();
    let text = "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[server]\nstandbys = 1\nqueue = 1\n";
    let (runs, is_free) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, is_released) = (Arc::clone(&runs), Arc::clone(&is_free));
    let opening = Opening::new(directory.path(), Configuration::parse(text).expect("right")).procedures(move || {
        let (count, is_released) = (Arc::clone(&count), Arc::clone(&is_released));
        let mut procedures = Procedures::new();
        procedures.register("block", async move |tx, _| {
            count.fetch_add(1, Ordering::Relaxed);
            while !is_released.load(Ordering::Relaxed) {
                tx.executor().clone().sleep_ns(1_000_000).await;
            }
            Ok(Vec::new())
        });
        procedures
    });
    let server = DatabaseThread::start(opening).expect("starts");
    let calls: Vec<_> = (0..12).map(|_| server.handle().call("block", &[])).collect();
    thread::sleep(Duration::from_millis(300));
    let begun = runs.load(Ordering::Relaxed);
    assert!((1..8).contains(&begun), "{begun}");
    calls.into_iter().for_each(Pending::cancel);
    is_free.store(true, Ordering::Relaxed);
    server.close().expect("closes");
    assert_eq!(runs.load(Ordering::Relaxed), begun + 1, "the queue had one");
}

#[test]
fn each_request_of_a_thread_is_a_step_that_a_described_machine_would_pay_for() {
    let directory = scratch();
    let thread = DatabaseThread::start(opening(directory.path())).expect("opens");
    let handle = thread.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there");
    let requests = || {
        let counts = async |database: &Database| Ok::<_, Error>(database.executor().whole().work_counts());
        handle.with_database(counts).wait().expect("it goes on")[driver::Work::Request as usize]
    };
    let before = requests();
    for key in 0..20_u64 {
        handle.put(notes, &key.to_be_bytes(), b"two litres").wait().expect("puts");
    }
    assert_eq!(requests() - before, 21, "each once, however often it waits, and the question itself");
    thread.close().expect("closes");
}

/// Its time would pass only while it has something to do, and so none of its threads' requests would end.
#[test]
fn a_described_database_has_no_thread() {
    let described = Configuration::parse("hardware = \"nvme-2026\"").expect("right");
    let started = within_reason(|| DatabaseThread::start(Opening::new("described", described)).map(drop));
    assert!(matches!(started, Err(OpenError::Engine(Error::Setting(_)))), "{started:?}");
}
