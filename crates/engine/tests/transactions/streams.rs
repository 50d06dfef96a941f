//! Scans and sorts as streams, beside the traits that programs import with them.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::SECOND_NS;
use entresol_engine::temp::{RecordStream, Rows};
use entresol_engine::{Database, Direction, Error, Isolation, PartitionSpec, Result, Settings, Transaction, buffer};
use executor::WholeExecutor;
use futures_util::stream::FusedStream;
#[expect(unused_imports, reason = "none of their names is in the way of a scan's own")]
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use virtual_driver::Media;

type KeyValue = (Vec<u8>, Vec<u8>);

const RECORDS: u32 = 1_000;

/// A tree that does not fit the buffer; each hundredth value is a long one.
fn with_tree(work: impl AsyncFn(&Database, PartitionId) -> Result<()>) {
    let buffer = buffer::Settings { frames: 40, page_size: 1024, ..buffer::Settings::default() };
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        for portion in 0..10 {
            let load = async |tx: &mut Transaction| {
                for number in (portion..RECORDS).step_by(10) {
                    tx.put(tree, &number.to_be_bytes(), &value(number)).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(load).await?;
        }
        work(&database, tree).await
    })
    .expect("nothing fails");
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(100) { 3_000 } else { 60 }]
}

fn records(numbers: impl Iterator<Item = u32>) -> Vec<KeyValue> {
    numbers.map(|number| (number.to_be_bytes().to_vec(), value(number))).collect()
}

#[test]
fn a_stream_has_the_records_of_its_scan_and_what_its_transaction_has_made_of_them() {
    with_tree(async |database, tree| {
        for isolation in Isolation::ALL {
            let mut tx = database.begin_at(isolation).await?;
            let all: Vec<_> = tx.scan(tree, .., Direction::Forward).into_stream().try_collect().await?;
            assert!(all == records(0..RECORDS), "{isolation:?}");
            tx.delete(tree, &7_u32.to_be_bytes()).await?;
            tx.put(tree, &9_u32.to_be_bytes(), b"nine").await?;
            let few = tx.scan(tree, &5_u32.to_be_bytes()[..].., Direction::Forward).into_stream();
            let few: Vec<_> = few.take(4).map_ok(|(_, value)| value.len()).try_collect().await?;
            assert_eq!(few, [60, 60, 60, 4], "5, 6, 8 and 9, {isolation:?}");
            // A scan's own calls are what they were, and go before.
            let mut scan = tx.scan(tree, .., Direction::Backward);
            assert_eq!(scan.take(2).await?, records((RECORDS - 2..RECORDS).rev()));
            assert_eq!(scan.next().await?, records(RECORDS - 3..RECORDS - 2).pop());
            let rest: Vec<_> = scan.into_stream().take(1).try_collect().await?;
            assert_eq!(rest, records(RECORDS - 4..RECORDS - 3), "it goes on where the scan was");
            tx.rollback().await?;
        }
        Ok(())
    });
}

#[test]
fn a_stream_of_a_snapshot_shows_its_moment() {
    with_tree(async |database, tree| {
        let mut before = database.snapshot().await?;
        let mut stream = before.scan(tree, .., Direction::Backward).into_stream();
        assert_eq!(stream.try_next().await?, records(RECORDS - 1..RECORDS).pop());
        database.transaction(async |tx| tx.delete(tree, &8_u32.to_be_bytes()).await).await?;
        let rest: Vec<_> = stream.try_collect().await?;
        assert!(rest == records((0..RECORDS - 1).rev()));
        let sorted = database.sort(before.scan(tree, .., Direction::Backward), 8 << 20).await?;
        let sorted: Vec<_> = sorted.into_stream().try_collect().await?;
        assert!(sorted == records(0..RECORDS));
        Ok(())
    });
}

#[test]
fn a_stream_waits_where_its_scan_would_and_may_be_given_up_there() {
    with_tree(async |database, tree| {
        let executor = database.executor().whole().clone();
        let mut holder = database.begin().await?;
        holder.put(tree, &500_u32.to_be_bytes(), b"held").await?;
        executor.spawn(async move {
            holder.executor().clone().sleep_ns(5 * SECOND_NS).await;
            holder.commit().await
        });
        let mut tx = database.begin().await?;
        let mut stream = tx.scan(tree, .., Direction::Forward).into_stream();
        let before: Vec<_> = stream.by_ref().take(400).try_collect().await?;
        assert!(before == records(0..400));
        for _ in 0..2 {
            let go_on = async { while stream.try_next().await.is_ok_and(|record| record.is_some()) {} };
            assert!(executor.within(SECOND_NS, go_on).await.is_none(), "another one holds it");
            assert_eq!(database.waits().len(), 1, "a poll that is not repeated leaves the wait as it is");
        }
        drop(stream);
        assert!(database.waits().is_empty());
        let mut again = tx.scan(tree, .., Direction::Forward).into_stream().skip(500);
        assert_eq!(again.try_next().await?, Some((500_u32.to_be_bytes().to_vec(), b"held".to_vec())));
        assert_eq!(again.count().await, RECORDS as usize - 501);
        tx.commit().await
    });
}

#[test]
fn a_stream_ends_behind_its_last_record_or_the_first_error() {
    with_tree(async |database, tree| {
        let mut tx = database.begin().await?;
        let mut stream = tx.scan(tree, ..&2_u32.to_be_bytes()[..], Direction::Forward).into_stream();
        for number in 0..2 {
            assert_eq!(
                (stream.next().await, stream.is_terminated()),
                (records(number..number + 1).pop().map(Ok), false)
            );
        }
        for _ in 0..2 {
            assert_eq!((stream.next().await, stream.is_terminated()), (None, true));
        }
        drop(stream);
        let mut stream = tx.scan(PartitionId(99), .., Direction::Forward).into_stream();
        assert!(matches!(stream.next().await, Some(Err(Error::NoPartition(_)))));
        assert_eq!((stream.next().await, stream.is_terminated()), (None, true));
        drop(stream);
        tx.commit().await?;
        // Whatever gives records.
        let mut left = 3_u8;
        let countdown = RecordStream::new(async move || {
            left -= 1;
            if left == 0 { Err(Error::Closed) } else { Ok(Some((vec![left], Vec::new()))) }
        });
        assert_eq!(countdown.map_ok(|(key, _)| key[0]).collect::<Vec<_>>().await, [Ok(2), Ok(1), Err(Error::Closed)]);
        Ok(())
    });
}
