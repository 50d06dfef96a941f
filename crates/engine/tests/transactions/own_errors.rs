//! Errors of the caller's own: what is rolled back and what is run again follows from what happened to the transaction.

use crate::ground::machine::run;
use base::PartitionId;
use entresol_engine::{Database, Error, Internals, Isolation, PartitionSpec, Result, Settings, Transaction};
use std::cell::Cell;
use virtual_driver::Media;

/// What a caller makes of an engine's error: its text is gone.
#[derive(Debug, PartialEq)]
enum ShopError {
    SoldOut,
    Storage(String),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> ShopError {
        ShopError::Storage(error.to_string())
    }
}

fn with_notes(work: impl AsyncFn(&Database, PartitionId) -> Result<()>) {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        database.transaction(async |tx| tx.put(notes, b"milk", &[1]).await).await?;
        work(&database, notes).await
    })
    .expect("nothing else fails");
}

async fn found(database: &Database, notes: PartitionId) -> Option<Vec<u8>> {
    database.transaction(async |tx| tx.get(notes, b"milk").await).await.expect("reads")
}

#[test]
fn an_error_of_the_callers_own_rolls_back_and_comes_out() {
    with_notes(async |database, notes| {
        let tries = Cell::new(0);
        let sold: Result<(), ShopError> = database
            .transaction(async |tx| {
                tries.set(tries.get() + 1);
                tx.put(notes, b"milk", &[2]).await?;
                Err(ShopError::SoldOut)
            })
            .await;
        assert_eq!((sold, tries.get()), (Err(ShopError::SoldOut), 1));
        assert_eq!(found(database, notes).await, Some(vec![1]));
        let missing: Result<(), ShopError> =
            database.transaction(async |tx| Ok(tx.modify(notes, b"bread", |_| ()).await?)).await;
        assert_eq!(missing, Err(ShopError::from(Error::NoRecord("notes".into()))));
        Ok(())
    });
}

#[test]
fn a_refused_transaction_is_run_again_whatever_its_work_makes_of_the_error() {
    with_notes(async |database, notes| {
        let tries = Cell::new(0);
        let work = async |tx: &mut Transaction| {
            tries.set(tries.get() + 1);
            if tries.get() == 1 {
                database.transaction(async |tx| tx.put(notes, b"milk", &[7]).await).await?;
                let refused = tx.put(notes, b"milk", &[3]).await;
                assert_eq!(refused, Err(Error::WriteConflict("notes".into())));
                return Err(ShopError::SoldOut);
            }
            Ok(tx.put(notes, b"milk", &[3]).await?)
        };
        assert_eq!(database.transaction_at(Isolation::Snapshot, work).await, Ok(()));
        assert_eq!((tries.get(), found(database, notes).await), (2, Some(vec![3])));
        Ok(())
    });
}

#[test]
fn the_text_of_a_conflict_does_not_run_a_sound_transaction_again() {
    with_notes(async |database, notes| {
        let tries = Cell::new(0);
        let work = async |tx: &mut Transaction| {
            tries.set(tries.get() + 1);
            assert_eq!(tries.get(), 1, "it is run again though nothing was refused to it");
            tx.put(notes, b"milk", &[4]).await?;
            Err::<(), _>(Error::Deadlock)
        };
        assert_eq!(database.transaction(work).await, Err(Error::Deadlock));
        assert_eq!(found(database, notes).await, Some(vec![1]));
        Ok(())
    });
}

#[test]
fn a_transaction_that_is_dropped_while_it_waits_leaves_no_lock_and_no_change() {
    with_notes(async |database, notes| {
        let mut holder = database.begin().await?;
        holder.put(notes, b"milk", &[5]).await?;
        let work = async |tx: &mut Transaction| {
            tx.put(notes, b"bread", &[6]).await?;
            tx.put(notes, b"milk", &[6]).await
        };
        let given_up = database.executor().within(1_000_000, database.transaction(work)).await;
        assert_eq!(given_up, None);
        holder.commit().await?;
        assert_eq!(found(database, notes).await, Some(vec![5]));
        let bread = database.transaction(async |tx| tx.get(notes, b"bread").await).await?;
        assert_eq!((bread, database.active_transactions()), (None, 0));
        assert_eq!(database.locks().check(), Ok(()));
        Ok(())
    });
}
