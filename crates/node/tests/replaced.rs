//! A server whose place another one takes while its nodes have leases: it is of another database, or of the same one, which was changed
//! meanwhile or was not.

use crate::machines::Machines;
use crate::things::{self, ServedThings};
use base::time::MILLISECOND_NS;
use driver::{Fault, FaultKind};
use engine::{Database, Error, PartitionSpec, Settings, log};
use entresol_node::lease::LEASE_NS;
use entresol_node::page_client::NodeInternals;
use entresol_node::page_server::ServerInternals;
use executor::Executor;

const KEY: &[u8] = b"key";

/// Keeps a note, many times if the log is to be long.
pub async fn note(database: &Database, value: &[u8], times: u32) -> engine::Result<()> {
    let notes = database.partition("notes")?;
    for _ in 0..times {
        database.transaction(async |tx| tx.put(notes, KEY, value).await).await?;
    }
    Ok(())
}

/// A server with a node, which has a copy of the note.
fn served() -> ServedThings {
    let mut served = ServedThings::new(1, 1, None);
    served.run(async |client| {
        let noted = client.transaction(async |tx| {
            let notes = tx.partition("notes").await?.id();
            tx.put(notes, KEY, b"of the first").await
        });
        noted.await.expect("it is written");
    });
    assert_eq!(read(&mut served), Ok(b"of the first".to_vec()));
    served
}

/// What the node reads once it has found its server again.
fn read(served: &mut ServedThings) -> Result<Vec<u8>, Fault> {
    let executor = served.nodes[0].clone();
    served.run(async move |client| {
        loop {
            let found = client.transaction(async |tx| {
                let notes = tx.partition("notes").await?.id();
                tx.get(notes, KEY).await
            });
            match found.await {
                Ok(found) => return Ok(found.expect("it is there")),
                Err(Error::Input(fault)) if fault.kind == FaultKind::Denied => return Err(fault),
                Err(_) => executor.sleep_ns(10 * MILLISECOND_NS).await,
            }
        }
    })
}

/// The server ends, and one of a database that this makes takes its place.
fn replace(served: &mut ServedThings, make: impl AsyncFnOnce(&Executor) -> Database + 'static) {
    put_in_place(served, |machines| machines.client(0), make);
}

/// The server ends, without a word, and another one of its database goes on, which this opens.
pub fn go_on(served: &mut ServedThings, open: impl AsyncFnOnce(&Executor) -> Database + 'static) -> Database {
    put_in_place(served, Machines::server, open)
}

fn put_in_place(
    served: &mut ServedThings,
    start: impl FnOnce(&Machines) -> Executor,
    make: impl AsyncFnOnce(&Executor) -> Database + 'static,
) -> Database {
    served.server.stop();
    let executor = start(&served.machines);
    served.server = executor.clone();
    let address = served.machines.address(0);
    served.cluster.replace(0, executor.clone());
    let serving = executor.clone().spawn(async move {
        let database = make(&executor).await;
        let server = things::serve_database(&database, address, 1, None).await;
        (database, server)
    });
    let (database, server) = served.cluster.run(serving).expect("it starts");
    served.page_server = server;
    database
}

pub async fn open(executor: &Executor) -> Database {
    Database::open(executor, things::settings(), "things").await.expect("it opens")
}

/// Has the database that was served do something by itself once it is served no more.
fn alone(
    served: &mut ServedThings,
    database: &Database,
    work: impl AsyncFnOnce(Database) -> engine::Result<()> + 'static,
) {
    served.page_server.close();
    let database = database.clone();
    let working = served.server.spawn(async move { work(database).await });
    served.cluster.run(working).expect("it goes on").expect("nothing is in its way");
}

/// What the node reads that has joined the server once more, and how many pages that has sent it then.
fn read_anew(served: &mut ServedThings) -> (Vec<u8>, u64) {
    while served.page_server.protocol().clients().next().is_none() {
        let soon = served.cluster.now().plus_ns(MILLISECOND_NS);
        served.cluster.run_until(soon).expect("they go on");
    }
    let found = read(served).expect("it is the same database");
    (found, served.page_server.counts().reads)
}

#[test]
fn copies_from_a_server_of_another_database_are_not_believed_though_its_log_is_longer() {
    let mut served = served();
    let before = served.clients[0].session();
    replace(&mut served, async |executor| {
        let database = things::create(executor).await;
        note(&database, b"of the second", 100).await.expect("there is room");
        database
    });
    assert_eq!(read(&mut served), Ok(b"of the second".to_vec()));
    let session = served.clients[0].session();
    assert!(session.epoch > before.epoch && served.clients[0].has_lease(), "{session:?} behind {before:?}");
}

#[test]
fn a_node_whose_server_has_other_partitions_than_before_has_to_join_anew() {
    let mut served = served();
    replace(&mut served, async |executor| {
        let database = Database::create(executor, things::settings()).await.expect("the medium is empty");
        database.create_partition(PartitionSpec::b_tree("notes")).await.expect("there is room");
        note(&database, b"of the second", 1).await.expect("there is room");
        database
    });
    for _ in 0..2 {
        let refused = read(&mut served).expect_err("it is another database");
        assert!(refused.to_string().contains("serves another database than before: join it anew"), "{refused}");
    }
}

#[test]
fn a_node_whose_server_goes_on_keeps_its_copies() {
    let mut served = served();
    for _ in 0..3 {
        let _database = go_on(&mut served, async |executor| open(executor).await);
        assert_eq!(read_anew(&mut served), (b"of the first".to_vec(), 0));
    }
}

#[test]
fn it_keeps_them_too_where_the_database_was_changed_by_itself_before_it_was_served() {
    let mut served = served();
    let _database = go_on(&mut served, async |executor| {
        let database = open(executor).await;
        note(&database, b"of the opening", 1).await.expect("there is room");
        database
    });
    assert_eq!(read_anew(&mut served).0, b"of the opening".to_vec());
    let _database = go_on(&mut served, async |executor| open(executor).await);
    assert_eq!(read_anew(&mut served), (b"of the opening".to_vec(), 0));
}

#[test]
fn copies_of_before_are_not_believed_if_the_database_was_changed_in_an_opening_without_a_server() {
    let mut served = served();
    let last = served.cluster.now();
    let database = go_on(&mut served, async |executor| {
        let database = open(executor).await;
        note(&database, b"by itself", 1).await.expect("there is room");
        database.close().await.expect("nothing is in its way");
        open(executor).await
    });
    assert_eq!(database.recovery().records, 0, "it was closed");
    let found = read_anew(&mut served);
    assert!(found.0 == b"by itself" && served.cluster.now().since_ns(last) < LEASE_NS, "{found:?}");
}

#[test]
fn they_are_not_if_it_was_changed_when_its_server_was_closed_and_is_served_again() {
    let mut served = served();
    let database = go_on(&mut served, async |executor| open(executor).await);
    assert_eq!(read(&mut served), Ok(b"of the first".to_vec()));
    alone(&mut served, &database, async |database| note(&database, b"by itself", 1).await);
    let address = served.machines.address(0);
    let serving = served.server.spawn(async move { things::serve_database(&database, address, 1, None).await });
    served.page_server = served.cluster.run(serving).expect("it starts");
    let found = read_anew(&mut served);
    assert_eq!(found.0, b"by itself", "its change has waited for the leases of the closed server");
}

#[test]
fn they_are_not_if_it_was_changed_when_its_server_was_closed_and_another_opening_goes_on() {
    for is_closed in [true, false] {
        let mut served = served();
        let database = go_on(&mut served, async |executor| open(executor).await);
        assert_eq!(read(&mut served), Ok(b"of the first".to_vec()));
        alone(&mut served, &database, async move |database| {
            note(&database, b"by itself", 1).await?;
            if is_closed { database.close().await } else { Ok(()) }
        });
        drop(database);
        let _database = go_on(&mut served, async |executor| open(executor).await);
        let found = read_anew(&mut served);
        assert_eq!(found.0, b"by itself", "{is_closed}");
    }
}

#[test]
fn a_partition_that_is_renamed_between_two_servings_is_used_by_its_new_name() {
    let mut served = served();
    let database = go_on(&mut served, async |executor| open(executor).await);
    assert_eq!(read(&mut served), Ok(b"of the first".to_vec()));
    alone(&mut served, &database, async |database| {
        database.rename_partition(database.partition("notes")?, "other").await?;
        database.rename_partition(database.partition("stock")?, "notes").await
    });
    let address = served.machines.address(0);
    let serving = served.server.spawn(async move { things::serve_database(&database, address, 1, None).await });
    served.page_server = served.cluster.run(serving).expect("it starts");
    let executor = served.nodes[0].clone();
    let found = served.run(async move |client| {
        loop {
            let found = client.transaction(async |tx| {
                let other = tx.partition("other").await?.id();
                let stock = tx.partition("notes").await?.id();
                Ok((tx.get(other, KEY).await?, tx.get(stock, KEY).await?))
            });
            match found.await {
                Err(Error::Input(fault)) if fault.kind == FaultKind::Reset => {
                    executor.sleep_ns(10 * MILLISECOND_NS).await;
                }
                found => return found,
            }
        }
    });
    assert_eq!(found, Ok((Some(b"of the first".to_vec()), None)));
}

/// What was committed at a server whose log is not durable may be gone when it is.
#[test]
fn copies_from_a_server_whose_log_was_not_durable_are_not_believed_by_one_whose_log_is() {
    for openings in [1, 2] {
        let mut served = served();
        let lazily = || {
            let settings = things::settings();
            Settings { log: log::Settings { durable: false, ..settings.log }, ..settings }
        };
        drop(go_on(&mut served, async move |executor| {
            Database::open(executor, lazily(), "things").await.expect("it opens")
        }));
        let noted = served.run(async |client| {
            loop {
                let noted = client.transaction(async |tx| {
                    let notes = tx.partition("notes").await?.id();
                    tx.put(notes, KEY, b"of the lazy one").await
                });
                match noted.await {
                    Err(Error::Input(fault)) if fault.kind == FaultKind::Denied => return Err(fault),
                    Err(_) => client.executor().sleep_ns(MILLISECOND_NS).await,
                    Ok(()) => return Ok(()),
                }
            }
        });
        assert_eq!(noted, Ok(()), "it is told that this is committed");
        let last = served.cluster.now();
        let _database = go_on(&mut served, async move |executor| {
            for _ in 1..openings {
                open(executor).await.close().await.expect("nothing is in its way");
            }
            open(executor).await
        });
        let found = read_anew(&mut served);
        assert!(found.0 == b"of the first" && served.cluster.now().since_ns(last) < LEASE_NS, "{openings}: {found:?}");
    }
}
