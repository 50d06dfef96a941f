//! A server whose place another one takes while its nodes have leases: it is of another database.

use crate::things::{self, ServedThings};
use base::time::MILLISECOND_NS;
use driver::{Fault, FaultKind};
use engine::{Database, Error, PartitionSpec};
use executor::Executor;

const KEY: &[u8] = b"key";

/// Keeps a note, many times if the log is to be long.
async fn note(database: &Database, value: &[u8], times: u32) -> engine::Result<()> {
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
    served.server.stop();
    let (executor, address) = (served.machines.client(0), served.machines.address(0));
    served.cluster.replace(0, executor.clone());
    let serving = executor.clone().spawn(async move {
        let database = make(&executor).await;
        things::serve_database(&database, address, 1, None).await
    });
    served.page_server = served.cluster.run(serving).expect("it starts");
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
