//! Partitions that have all the pages that they can have say so, and what was there before stays.

use super::{Database, PartitionSpec};
use crate::catalog::{Locking, Organization};
use crate::version::tests::on_a_machine;
use crate::{Error, Result, Settings, buffer};
use base::{PageId, PartitionId};
use structures::organization::{allocator, append};
use structures::page::{Change, Edit, HEADER_SIZE, OwnedEdit, Pages};

/// A partition in which all pages but the last few are in use, as page 0 says.
async fn nearly_full(database: &Database, spec: PartitionSpec) -> Result<PartitionId> {
    let organization = spec.organization;
    let id = database.create_partition(spec).await?;
    let engine = &database.0.engine;
    engine.core.buffer.space(id).reserve(&engine.core.executor, u32::MAX).await?;
    engine.core.buffer.pool().borrow_mut().set_capacity(id, u32::MAX);
    let page = PageId::new(id, 0);
    database
        .0
        .engine
        .core
        .complete(|| {
            engine.core.buffer.pool().borrow().page(page)?;
            let count = (u32::MAX - 6).to_le_bytes();
            database
                .0
                .engine
                .core
                .change(&[Edit { page, change: Change::Patch { offset: HEADER_SIZE as u16, bytes: &count } }])
        })
        .await?;
    if matches!(organization, Organization::Append { .. }) {
        database
            .0
            .engine
            .core
            .complete(|| {
                let edits = append::new_tail(&*engine.core.buffer.pool().borrow(), id)?;
                database.0.engine.core.change(&edits.iter().map(OwnedEdit::as_edit).collect::<Vec<_>>())
            })
            .await?;
    }
    Ok(id)
}

#[test]
fn a_partition_that_has_reached_its_last_page_says_so() {
    let append =
        |blocking_factor| PartitionSpec::new("full", Organization::Append { blocking_factor }, Locking::Record);
    for (spec, length) in [
        (append(0), 200),
        (append(3), 200),
        (PartitionSpec::b_tree("full"), 200),
        (PartitionSpec::b_tree("full"), 5_000),
    ] {
        let done = on_a_machine(async |executor| {
            let buffer = buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() };
            let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
            let is_tree = spec.organization == Organization::BTree;
            let id = nearly_full(&database, spec).await?;
            let (mut number, mut positions) = (0_u32, Vec::new());
            let error = loop {
                let value = vec![number as u8; length];
                let add = async |tx: &mut crate::Transaction| match is_tree {
                    true => tx.put(id, &number.to_be_bytes(), &value).await,
                    false => tx.append(id, &value).await.map(|position| positions.push(position)),
                };
                match database.transaction(add).await {
                    Ok(()) => number += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::PartitionFull { .. }), "{error:?}");
            assert!(error.to_string().contains("'full.pages'") && error.to_string().contains("4294967295"), "{error}");
            assert!(number > 0 || length > 1_000, "{number} records");
            // The others are there, the transaction has taken itself back, and others go on.
            let mut found = 0;
            let mut tx = database.begin().await?;
            if is_tree {
                for key in 0..=number {
                    found += u32::from(tx.get(id, &key.to_be_bytes()).await?.is_some());
                }
            } else {
                // A scan would visit four thousand million pages.
                positions.dedup();
                found = positions.len() as u32;
            }
            tx.commit().await?;
            assert_eq!(found, number);
            let state = {
                let pool = database.0.engine.core.buffer.pool().borrow();
                allocator::read(pool.page(PageId::new(id, 0)).expect("it is here"))
            };
            assert!(state.page_count == u32::MAX || length > 1_000, "{state:?}");
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }
}
