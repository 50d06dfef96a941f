//! Who may read or write records may do so with their entries in indexes, and no one else may.

use crate::ill_clients::Script;
use crate::things::{ServedThings, stored};
use base::{Lsn, PageId, PartitionId, TransactionId};
use driver::FaultKind;
use engine::log::record::{self, Body};
use engine::page::{Change, Edit, PageKind, header};
use engine::set::FieldValue;
use engine::{Direction, Error};
use entresol_node::grants::Grants;
use entresol_node::message::{Answer, Image, Request, Transaction};
use entresol_node::page_server::PageServer;
use std::ops::Bound;

/// What nodes may do that have proven no name.
fn grants(table: &str) -> Option<Grants> {
    Some(serde_json::from_str(&format!(r#"{{"node": {{"": {table}}}}}"#)).expect("a table"))
}

#[test]
fn a_grant_for_records_is_one_for_their_indexes() {
    let mut served = ServedThings::new(1, 1, grants(r#"{"write": ["things"]}"#));
    let done = served.run(async |client| {
        let (things, notes) = (client.partition("things").await?.id(), client.partition("notes").await?.id());
        let mut tx = client.begin().await;
        tx.put(things, b"key", &stored(1, 2, "name")).await?;
        tx.set_field(things, b"key", 2, FieldValue::Text("other")).await?;
        tx.commit().await?;
        let denied = client.begin().await.get(notes, b"key").await;
        assert!(matches!(denied, Err(Error::Input(fault)) if fault.kind == FaultKind::Denied));
        Ok::<_, Error>(())
    });
    assert_eq!(done, Ok(()));
    served.open(async |_| Ok(()));
}

#[test]
fn who_may_read_records_reads_them_by_indexes_and_writes_none() {
    let mut served = ServedThings::new(2, 1, grants(r#"{"read": ["things"]}"#));
    let done = served.run(async |client| {
        let things = client.partition("things").await?.id();
        let mut tx = client.begin().await;
        let by_name = tx.secondary(things, "by_name").await?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        tx.range(things, by_name, all, Direction::Forward, |_, _| panic!("nothing is there")).await?;
        let denied = tx.put(things, b"key", &stored(1, 2, "name")).await;
        assert!(matches!(denied, Err(Error::Input(fault)) if fault.kind == FaultKind::Denied));
        Ok::<_, Error>(())
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn no_grant_names_an_index() {
    let served = ServedThings::new(3, 1, None);
    let named = grants(r#"{"write": ["things.by_name"]}"#).expect("a table");
    assert!(matches!(PageServer::grant(&served.page_server, named), Err(Error::NoPartition(_))));
}

/// A page as it would be with another kind, or other bytes where an allocator has the numbers of pages, and the record of that.
fn forged(page: PageId, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let change = if page.number == 0 {
        Change::Patch { offset: 32, bytes: &[1; 12] }
    } else {
        Change::Format { kind: PageKind::Free, level: 0, count: 0, image: &[0; 4] }
    };
    let (mut forged, mut records) = (bytes.to_vec(), Vec::new());
    let sequence = header::sequence(bytes) + 1;
    record::encode(TransactionId::SYSTEM, &Body::System, [(sequence, &Edit { page, change })], &mut records);
    change.apply(&mut forged, Lsn::ZERO);
    header::set_sequence(&mut forged, sequence);
    header::seal(&mut forged);
    (records, forged)
}

/// A client that may only read things says that it has changed their pages, those of their indexes, and those that allocate for these.
#[test]
fn who_has_no_grant_for_records_changes_no_page_of_their_indexes() {
    let mut served = ServedThings::new(4, 1, grants(r#"{"read": ["*"], "write": ["notes"]}"#));
    let partitions = served.run(async |client| client.partitions().await).expect("they are told");
    let is_of_things = |name: &str| name.starts_with("things");
    let of_things: Vec<PartitionId> =
        partitions.iter().filter(|found| is_of_things(&found.name)).map(|found| found.id()).collect();
    assert_eq!(of_things.len(), 3, "the records and two indexes");
    let (executor, at, own) = (served.nodes[0].clone(), served.machines.address(0), served.machines.address(1));
    for (partition, number) in of_things.into_iter().flat_map(|partition| [0, 1].map(|number| (partition, number))) {
        let executor = executor.clone();
        let lying = executor.clone().spawn(async move {
            let mut script = Script::join(&executor, at, own).await;
            let copy = script.copy(partition, number);
            let bytes = script.read(copy).await;
            let transaction = Transaction(1);
            let denied = script.ask(Request::Write { copy, transaction }).await;
            assert!(matches!(denied, Answer::Denied { .. }), "{denied:?}");
            let (records, bytes) = forged(copy.page, &bytes);
            let pages = vec![Image { page: copy.page, bytes }];
            let (others, redone) = (Vec::new(), Vec::new());
            script
                .say(Request::Commit { transaction, others, keeps: false, records, pages, redone, sets: Vec::new() })
                .await;
            script.incoming.next::<Answer>().await
        });
        let heard = served.cluster.run(lying).expect("they go on");
        assert!(!matches!(heard, Ok(Some(_))), "it is heard no more: {heard:?}");
    }
    served.open(async |database| {
        let things = database.partition("things")?;
        database.transaction(async |tx| tx.put(things, b"key", &stored(1, 2, "name")).await).await
    });
}
