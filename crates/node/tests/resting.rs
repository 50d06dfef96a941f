//! Transactions that rest at a node while its server goes away: they keep no other one waiting for longer than the server is sought, and the
//! node from coming back.

use crate::replaced::{go_on, note, open};
use crate::things::ServedThings;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::FaultKind;
use engine::Error;
use entresol_node::page_client::{ClientSettings, PageTransaction};
use entresol_node::page_server::ServerInternals;

const KEY: &[u8] = b"key";

/// Far longer than a server is sought here.
const LIMIT_NS: u64 = 10 * SECOND_NS;

fn served(patience_ns: u64) -> ServedThings {
    ServedThings::suited(1, 1, None, |settings| ClientSettings { patience_ns, ..settings })
}

/// A transaction that has written a note, and goes on when its program says.
fn rest(served: &mut ServedThings) -> (PageTransaction, PartitionId) {
    served.run(async |client| {
        let mut tx = client.begin().await;
        let notes = tx.partition("notes").await.expect("it is there").id();
        tx.put(notes, KEY, b"of one that rests").await.expect("it is alone");
        (tx, notes)
    })
}

#[test]
fn who_begins_beside_one_that_rests_waits_for_a_lost_server_no_longer_than_it_is_sought() {
    for wants_snapshot in [false, true] {
        let mut served = served(SECOND_NS);
        let (tx, notes) = rest(&mut served);
        served.page_server.close();
        served.cluster.run_until(served.cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
        let executor = served.nodes[0].clone();
        let refused = served.run(async move |client| {
            executor
                .within(LIMIT_NS, async {
                    if wants_snapshot {
                        return client.snapshot().await.map(drop);
                    }
                    client.begin().await.get(notes, KEY).await.map(drop)
                })
                .await
        });
        let refused = refused.unwrap_or_else(|| panic!("snapshot {wants_snapshot}: it waits on"));
        assert!(matches!(&refused, Err(Error::Input(fault)) if fault.kind == FaultKind::Reset), "{refused:?}");
        assert!(served.clients[0].failure().is_some());
        drop(tx);
    }
}

#[test]
fn a_node_comes_back_to_its_server_though_a_transaction_rests_which_is_rolled_back() {
    for wants_snapshot in [false, true] {
        let mut served = served(60 * SECOND_NS);
        let (mut tx, notes) = rest(&mut served);
        let database = go_on(&mut served, async |executor| {
            let database = open(executor).await;
            note(&database, b"of the opening", 1).await.expect("there is room");
            database
        });
        let executor = served.nodes[0].clone();
        let found = served.run(async move |client| {
            executor
                .within(LIMIT_NS, async {
                    if wants_snapshot {
                        return client.snapshot().await?.get(notes, KEY).await;
                    }
                    let mut own = client.begin().await;
                    let found = own.get(notes, KEY).await?;
                    own.put(notes, KEY, b"of the next one").await?;
                    own.commit().await.map(|()| found)
                })
                .await
        });
        let found = found.unwrap_or_else(|| panic!("snapshot {wants_snapshot}: it waits on"));
        assert_eq!(found.expect("the server is there"), Some(b"of the opening".to_vec()));
        let refused = served.run(async move |_| {
            let found = tx.get(notes, KEY).await;
            let written = tx.put(notes, KEY, b"once more").await;
            let savepoint = tx.savepoint();
            let taken_back = tx.rollback_to(savepoint).await;
            [found.map(drop), written, taken_back, tx.commit().await]
        });
        for refused in refused {
            assert!(matches!(&refused, Err(Error::Input(fault)) if fault.kind == FaultKind::Reset), "{refused:?}");
        }
        served.page_server.protocol().check().expect("the directory is right");
        let expected: &[u8] = if wants_snapshot { b"of the opening" } else { b"of the next one" };
        let last = served.run(async move |client| client.begin().await.get(notes, KEY).await);
        assert_eq!(last, Ok(Some(expected.to_vec())));
        drop(database);
        served.open(async |_| Ok(()));
    }
}
