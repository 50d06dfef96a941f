//! The walks of operations: how often they descend, and how often they look their partition up.

use super::{Chains, free_after_restart};
use crate::engine::{Chain, TransactionState};
use crate::version::tests::on_a_machine;
use crate::{Database, Isolation, PartitionSpec, Result, Settings, Transaction, buffer, log};
use base::{PageId, PartitionId, TransactionId};
use std::rc::Rc;
use structures::reuse::KEPT_BYTES_MAX;
use structures::set::{FieldType, FieldValue, RecordType};
use structures::undo::{Undo, UndoList};

/// A database with small pages and a b-tree of two levels, whose keys are even numbers up to 38.
async fn rows(executor: &executor::Executor) -> Result<(Database, PartitionId)> {
    let buffer = buffer::Settings { page_size: 1024, ..buffer::Settings::default() };
    let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
    let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
    let load = async |tx: &mut Transaction| {
        for number in 0..20_u32 {
            tx.insert(rows, &(2 * number).to_be_bytes(), &[7; 100]).await?;
        }
        Ok::<_, crate::Error>(())
    };
    database.transaction(load).await?;
    Ok((database, rows))
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[test]
fn an_insert_and_a_delete_descend_once() {
    let done = on_a_machine(async |executor| {
        let (database, rows) = rows(executor).await?;
        database.transaction(async |tx| tx.delete(rows, &key(2)).await).await?;
        let mut tx = database.begin().await?;
        let references = || database.buffer().pool().borrow().references();
        let before = references();
        tx.get(rows, &key(3)).await?;
        let descent = references() - before;
        assert!(descent > 1, "the tree has a root and leaves");
        let before = references();
        tx.insert(rows, &key(3), &[7; 100]).await?;
        assert_eq!(references() - before, descent, "who has read around it is no matter of pages");
        let before = references();
        tx.delete(rows, &key(3)).await?;
        assert_eq!(references() - before, descent, "and there is nothing to merge");
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn an_operation_looks_its_partition_up_once() {
    let done = on_a_machine(async |executor| {
        let (database, rows) = rows(executor).await?;
        let plain = database.create_partition(PartitionSpec::set("plain")).await?;
        let record = RecordType::new([("id", FieldType::U64), ("amount", FieldType::U64)]).expect("different names");
        let typed = PartitionSpec::set("typed").record(record).secondary("by_id", &["id"]);
        let typed = database.create_partition(typed).await?;
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted, Isolation::Snapshot] {
            let mut tx = database.begin_at(isolation).await?;
            let found = || database.0.engine.catalog.partitions.borrow().found.get();
            for partition in [rows, plain, typed] {
                let mut before = found();
                let mut check = |what: &str| {
                    assert_eq!(found() - before, 1, "{what}, {isolation:?}, partition {}", partition.0);
                    before = found();
                };
                let key = &key(41);
                tx.insert(partition, key, &[1; 16]).await?;
                check("insert");
                tx.put(partition, key, &[2; 16]).await?;
                check("put");
                tx.get(partition, key).await?;
                check("get");
                tx.get_with(partition, key, |_| ()).await?;
                check("get_with");
                tx.get_for_update(partition, key).await?;
                check("get_for_update");
                tx.modify(partition, key, |value| value[0] = 3).await?;
                check("modify");
                tx.add(partition, key, 8..16, 1).await?;
                check("add");
                if partition == typed {
                    tx.add_to_field(partition, key, 1, 1).await?;
                    check("add_to_field");
                    tx.set_field(partition, key, 0, FieldValue::U64(5)).await?;
                    check("set_field");
                    tx.get_field(partition, key, 0, &mut Vec::new()).await?;
                    check("get_field");
                    tx.insert_record(partition, &[9], &[FieldValue::U64(1), FieldValue::U64(2)]).await?;
                    check("insert_record");
                    tx.delete(partition, &[9]).await?;
                    check("delete");
                }
                assert!(tx.delete(partition, key).await?);
                check("delete");
            }
            tx.commit().await?;
        }
        Ok(())
    });
    assert_eq!(done, Ok(()));
}

/// What a transaction was to free goes with the change that it comes from, also where the partition is gone.
#[test]
fn a_rollback_past_a_partition_that_is_gone_frees_nothing_of_it() {
    let done = on_a_machine(async |executor| {
        let (database, _) = rows(executor).await?;
        let gone = PartitionId(999);
        let mut list = UndoList::default();
        list.push(&Undo::Remove { partition: gone, key: &key(1) });
        let mut state = TransactionState::unfinished(TransactionId(1_000_000), list);
        let chain = || Chain { undo: 0, first: PageId { partition: gone, number: 7 } };
        (state.chains, state.loose) = (vec![chain()], Some(chain()));
        super::undo(&database.0.engine.core, &mut state, 0).await?;
        assert_eq!(state.updates(), 0);
        assert!(state.chains.is_empty() && state.loose.is_none());
        Ok(())
    });
    assert_eq!(done, Ok(()));
}

/// The number that a transaction has among those at the same time is given to others: what it takes up must not stay with it.
#[test]
fn the_memory_of_large_transactions_is_given_back() {
    const AT_ONCE: u32 = 4;
    const LARGE: usize = 2 << 20;
    let done = on_a_machine(async |executor| {
        let log = log::Settings { capacity: 1 << 30, ..log::Settings::default() };
        let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
        let set = database.create_partition(PartitionSpec::set("set")).await?;
        let value = [7; 600];
        let load = async |tx: &mut Transaction| {
            for number in 0..AT_ONCE {
                tx.put(rows, &key(number), &value).await?;
                tx.put(set, &key(number), &value).await?;
            }
            Ok::<_, crate::Error>(())
        };
        database.transaction(load).await?;
        let engine = &database.0.engine;
        let taken = || {
            let of_sets = engine.sets.sets.borrow().memory_of_changes();
            engine.transactions.registry.borrow().memory_of_undo() + of_sets
        };
        for commits in [true, false] {
            let mut together = Vec::new();
            for number in 0..AT_ONCE {
                let mut tx = database.begin().await?;
                for round in 0..LARGE / value.len() {
                    let value = [round as u8; 600];
                    tx.put(rows, &key(number), &value).await?;
                    tx.put(set, &key(number), &value).await?;
                }
                together.push(tx);
            }
            assert!(taken() > 2 * AT_ONCE as usize * LARGE, "they have changed that");
            for tx in together {
                if commits { tx.commit().await? } else { tx.rollback().await? }
            }
            assert!(taken() <= AT_ONCE as usize * KEPT_BYTES_MAX, "{} bytes are kept", taken());
        }
        Ok(())
    });
    assert_eq!(done, Ok(()));
}

/// Of what several have left to be freed the log that states it is needed from the first one on, whichever begins.
#[test]
fn an_opening_keeps_the_log_of_all_that_it_goes_on_freeing_for() {
    let done = on_a_machine(async |executor| {
        let buffer = buffer::Settings { page_size: 1024, frames: 64, ..buffer::Settings::default() };
        let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
        let texts = database.create_partition(PartitionSpec::b_tree("texts")).await?;
        let engine = &database.0.engine;
        let (mut ends, mut chains) = (Vec::new(), Vec::new());
        for number in 0..20 {
            database.transaction(async |tx| tx.put(texts, &key(number), &[7; 20_000]).await).await?;
            ends.push(engine.core.log.end());
        }
        for number in 0..3 {
            let mut tx = database.begin().await?;
            tx.delete(texts, &key(number)).await?;
            chains.extend(tx.state.chains.iter().map(|chain| chain.first));
            tx.rollback().await?;
        }
        // They were committed in the reverse order of their numbers.
        let left = (1_000..).map(TransactionId).zip(ends[..3].iter().rev()).zip(&chains);
        let left: Vec<_> = left.map(|((id, stated), first)| (id, *stated, Chains::of([*first]))).collect();
        assert_eq!(left.len(), 3);
        let first_lsn = || engine.transactions.registry.borrow().first_lsn();
        let freeing = executor.spawn({
            let engine = Rc::clone(engine);
            async move { free_after_restart(&engine, left).await }
        });
        let mut looks = 0;
        executor.yield_now().await;
        while !freeing.is_finished() {
            looks += 1;
            assert_eq!(first_lsn(), Some(ends[0]), "the last one begins there");
            executor.sleep_ns(1).await;
        }
        assert!(looks > 3, "{looks}");
        assert_eq!(first_lsn(), None);
        freeing.join().await
    });
    assert_eq!(done, Ok(()));
}
