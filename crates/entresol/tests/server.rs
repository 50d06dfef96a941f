//! A database on a thread of its own, and many threads that use it.

#![allow(clippy::disallowed_methods, reason = "the tests are the other threads")]

use entresol::configuration::Configuration;
use entresol::{
    Error, Handle, Isolation, OpenError, Opening, PartitionSpec, Procedures, Server, Snapshot, Transaction,
};
use std::path::Path;
use std::sync::mpsc;
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

fn start(directory: &Path) -> Server {
    let server = Server::start(opening(directory), procedures).expect("starts");
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
    made.expect("is filled");
    server
}

fn total(handle: &Handle) -> i64 {
    let add_up = async |tx: &mut Transaction| {
        let mut total = 0;
        for account in 0..ACCOUNTS {
            total += balance(tx, account).await?;
        }
        Ok(total)
    };
    handle.transaction(add_up).expect("adds up")
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
                        handle.transaction(async move |tx| transfer(tx, from, to, 7).await)
                    } else {
                        handle.call("transfer", &[from as u8, to as u8, 7]).map(|amount| assert_eq!(amount, [7]))
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
    assert!(deadlocks.expect("counts") > 0, "the transfers clash");
    server.close().expect("closes");
    assert_eq!(total(&start(directory.path()).handle()), ACCOUNTS as i64 * OPENING_BALANCE);
}

#[test]
fn procedures_answer_or_say_what_is_wrong() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    let unknown = handle.call("transfers", &[]).expect_err("unknown");
    assert!(unknown.to_string().contains("registered are: break, transfer"), "{unknown}");
    assert_eq!(handle.call("transfer", &[1]), Err(Error::Argument("three bytes".into())));
    let poor = handle.call("transfer", &[0, 1, 250]);
    assert_eq!(poor, Ok(vec![250]));
    let pending: Vec<_> = (0..5).map(|_| handle.submit("transfer", &[0, 1, 250])).collect();
    let outcomes: Vec<_> = pending.into_iter().map(|pending| pending.wait().is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|done| **done).count(), 3, "then the account is empty: {outcomes:?}");
    assert_eq!(total(&handle), ACCOUNTS as i64 * OPENING_BALANCE);
}

#[test]
fn an_answer_that_is_not_waited_for_is_no_reason_to_stop() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    for _ in 0..3 {
        drop(handle.submit("transfer", &[0, 1, 100]));
    }
    drop(handle);
    drop(server);
    let server = start(directory.path());
    let left = server.handle().transaction(async |tx| balance(tx, 0).await);
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
                    match handle.call("transfer", &[2, 3, 1]) {
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
    assert_eq!(handle.call("transfer", &[0, 1, 1]), Err(Error::Closed));
    let server = start(directory.path());
    let left = server.handle().transaction(async |tx| balance(tx, 2).await);
    assert_eq!(left, Ok(OPENING_BALANCE - acknowledged), "exactly what was acknowledged was done");
}

#[test]
fn a_panic_in_a_procedure_reaches_every_client_and_loses_nothing() {
    let directory = scratch();
    let server = start(directory.path());
    let handle = server.handle();
    handle.call("transfer", &[4, 5, 9]).expect("transfers");
    let other = server.handle();
    let waiting = thread::spawn(move || while other.call("transfer", &[4, 5, 0]).is_ok() {});
    let broken = within_reason({
        let handle = handle.clone();
        move || handle.call("break", &[])
    });
    assert_eq!(broken, Err(Error::Closed));
    within_reason(|| waiting.join().expect("no panic"));
    drop(server);
    let server = start(directory.path());
    let left = server.handle().transaction(async |tx| balance(tx, 4).await);
    assert_eq!(left, Ok(OPENING_BALANCE - 9));
}

#[test]
fn a_server_that_cannot_open_says_so() {
    let directory = scratch();
    let server = start(directory.path());
    let second = Server::start(opening(directory.path()), Procedures::new).err().expect("refused");
    assert!(matches!(&second, OpenError::Machine(_)) && second.to_string().contains("open already"), "{second}");
    server.close().expect("closes");
    std::fs::write(directory.path().join("entresol.home"), "nonsense").expect("writes");
    let broken = Server::start(opening(directory.path()), Procedures::new).err().expect("refused");
    assert!(matches!(broken, OpenError::Engine(Error::NotADatabase { .. })), "{broken}");
}

#[test]
fn calls_go_through_the_transaction_server_where_one_is_described() {
    let directory = scratch();
    let text = "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[server]\nstandbys = 2\nqueue = 3\nretry_interval = \"1 ms\"";
    let configuration = Configuration::parse(text).expect("right");
    let server = Server::start(Opening::new(directory.path(), configuration), procedures).expect("starts");
    server
        .handle()
        .with_database(async |database| {
            database.create_partition(PartitionSpec::b_tree("accounts")).await?;
            for account in 0..ACCOUNTS {
                database.transaction(async |tx| set(tx, account, OPENING_BALANCE).await).await?;
            }
            Ok(())
        })
        .expect("is filled");
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let handle = server.handle();
            thread::spawn(move || {
                let words = |call: u8| [(thread + call) % 6, (thread + call + 1 + call % 5) % 6, 1];
                // More are under way than the queue holds.
                let pending: Vec<_> = (0..100).map(|call| handle.submit("transfer", &words(call))).collect();
                let answers = pending.into_iter().map(|call| call.wait()).filter(|answer| *answer == Ok(vec![1]));
                assert!(handle.call("transfer", &[0]).unwrap_err().to_string().contains("three bytes"));
                answers.count()
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
    assert_eq!(done, 400, "every call is answered");
    let unknown = server.handle().call("transfr", &[]).unwrap_err().to_string();
    assert!(unknown.contains("there is no procedure 'transfr'; registered are: break, transfer"), "{unknown}");
    assert_eq!(total(&server.handle()), ACCOUNTS as i64 * OPENING_BALANCE);
    let late = server.handle();
    server.close().expect("closes");
    assert_eq!(late.call("transfer", &[0, 1, 1]), Err(Error::Closed));
}

#[test]
fn snapshots_beside_threads_that_write_are_of_moments_between_transactions() {
    let directory = scratch();
    let server = start(directory.path());
    let before = server.handle().snapshot(async |now| Ok(now.moment())).expect("reads");
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
                    done.expect("a transaction that overwrites what its snapshot lacks is run again");
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
            Ok((now.moment(), total))
        };
        let accounts = handle.with_database(async |database| database.partition("accounts")).expect("it is there");
        let (moment, total) = handle.snapshot(async move |now| read(now, accounts).await).expect("reads");
        assert_eq!(total, ACCOUNTS as i64 * OPENING_BALANCE);
        moments.push(moment);
    }
    assert!(moments.is_sorted());
    for writer in writers {
        writer.join().expect("no panic");
    }
    let early = handle.as_of(before, async |_| Ok(()));
    assert!(matches!(early, Err(Error::SnapshotTooOld { .. })), "nothing is kept for it: {early:?}");
    let present = handle.snapshot(async |now| Ok(now.moment())).expect("reads");
    assert_eq!(handle.as_of(present, async |then| Ok(then.moment())), Ok(present));
    server.close().expect("closes");
}
