//! Savepoints that a transaction does not have.

use crate::ground::machine::run;
use crate::ground::things::{ALL, check, keys, spec, stored, thing, with_things};
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings};
use virtual_driver::Media;

fn assert_refused(done: &Result<()>) {
    assert!(matches!(done, Err(Error::Argument(detail)) if detail.contains("no such savepoint")), "{done:?}");
}

#[test]
fn a_savepoint_that_was_taken_back_takes_no_half_of_a_change_back() {
    with_things(async |database, things, index| {
        let mut tx = database.begin().await.expect("begins");
        let nothing = tx.savepoint();
        tx.put(things, b"one", &stored(&thing(1, 1, "one"))).await.expect("puts");
        let one = tx.savepoint();
        tx.rollback_to(nothing).await.expect("goes back");
        // An entry of the index comes before its record.
        tx.put(things, b"two", &stored(&thing(2, 2, "two"))).await.expect("puts");
        assert_refused(&tx.rollback_to(one).await);
        let two = tx.savepoint();
        tx.put(things, b"three", &stored(&thing(3, 3, "three"))).await.expect("puts");
        tx.rollback_to(two).await.expect("goes back");
        tx.rollback_to(two).await.expect("goes back to where it is");
        tx.commit().await.expect("commits");
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(keys(&mut tx, (things, index), ALL, Direction::Forward).await, Ok(vec![b"two".to_vec()]));
        tx.commit().await.expect("commits");
        check(database).await;
    });
}

#[test]
fn a_savepoint_of_another_transaction_is_refused() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        for spec in [spec("things"), PartitionSpec::set("stock")] {
            let value = stored(&thing(1, 1, "one"));
            let partition = database.create_partition(spec).await.expect("creates");
            let mut other = database.begin().await.expect("begins");
            other.put(partition, b"one", &value).await.expect("puts");
            let of_other = other.savepoint();
            other.rollback().await.expect("rolls back");
            let mut tx = database.begin().await.expect("begins");
            assert_refused(&tx.rollback_to(of_other).await);
            tx.put(partition, b"two", &value).await.expect("puts");
            assert_refused(&tx.rollback_to(of_other).await);
            tx.commit().await.expect("commits");
        }
        check(&database).await;
    });
}
