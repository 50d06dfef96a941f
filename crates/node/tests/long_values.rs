//! Long values at nodes: their pages come from the partition and go back to it; what is given up halfway is given up as a whole.

use crate::things::ServedThings;
use engine::organization::allocator;
use engine::{Direction, Error};
use entresol_node::page_client::PageClient;
use futures_util::TryStreamExt;
use std::ops::Bound;

const LENGTH: usize = 9_000;

/// How many pages of the notes are in use.
async fn used(client: &PageClient) -> engine::Result<u32> {
    let notes = client.partition("notes").await?.id();
    let mut tx = client.begin().await;
    let (state, _) = tx.read(base::PageId::new(notes, 0), allocator::read).await?;
    tx.commit().await?;
    Ok(state.page_count - state.free_count)
}

#[test]
fn pages_of_values_that_are_replaced_or_deleted_are_free_again() {
    let mut served = ServedThings::new(1, 2, None);
    let done = served.run(async |client| {
        let notes = client.partition("notes").await?.id();
        let empty = used(&client).await?;
        let mut tx = client.begin().await;
        tx.put(notes, b"long", &[1; LENGTH]).await?;
        tx.insert(notes, b"longer", &[2; 2 * LENGTH]).await?;
        assert_eq!(tx.insert(notes, b"long", &[3; LENGTH]).await, Err(Error::Duplicate("notes".into())));
        tx.commit().await?;
        assert_eq!(used(&client).await?, empty + 10 + 19);
        let mut tx = client.begin().await;
        tx.put(notes, b"longer", &[4; LENGTH]).await?;
        tx.put(notes, b"short", b"value").await?;
        tx.put(notes, b"short", &[5; LENGTH]).await?;
        tx.put(notes, b"short", b"short again").await?;
        tx.commit().await?;
        assert_eq!(used(&client).await?, empty + 10 + 10);
        let mut tx = client.begin().await;
        let found = tx.scan_range(notes, .., Direction::Backward).take(9).await?;
        let streamed: Vec<_> = tx.scan_range(notes, .., Direction::Backward).into_stream().try_collect().await?;
        assert!(streamed == found);
        let found: Vec<_> = found.iter().map(|(key, value)| (&key[..], value.len(), value[0])).collect();
        assert_eq!(found, [(&b"short"[..], 11, b's'), (b"longer", LENGTH, 4), (b"long", LENGTH, 1)]);
        assert!(tx.delete(notes, b"long").await? && tx.delete(notes, b"longer").await?);
        assert!(!tx.delete(notes, b"longer").await?);
        tx.commit().await?;
        assert_eq!(used(&client).await?, empty);
        // One that is rolled back leaves nothing.
        let mut tx = client.begin().await;
        tx.put(notes, b"long", &[6; LENGTH]).await?;
        drop(tx);
        assert_eq!(used(&client).await?, empty);
        Ok::<_, Error>(())
    });
    assert_eq!(done, Ok(()));
    served.open(async |database| {
        let notes = database.partition("notes")?;
        let left = database.transaction(async |tx| tx.scan(notes, .., Direction::Forward).take(9).await).await?;
        assert_eq!(left, [(b"short".to_vec(), b"short again".to_vec())]);
        Ok(())
    });
}

#[test]
fn a_value_that_is_in_a_node_alone_is_read_by_another_one() {
    let mut served = ServedThings::new(2, 2, None);
    let value: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    let expected = value.clone();
    let written = served.run(async move |client| {
        let notes = client.partition("notes").await?.id();
        let mut tx = client.begin().await;
        tx.put(notes, b"long", &value).await?;
        tx.commit().await
    });
    assert_eq!(written, Ok(()));
    let (other, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let reading = executor.spawn(async move {
        let notes = other.partition("notes").await?.id();
        let mut tx = other.begin().await;
        let (mut found, first) = (Vec::new(), Bound::Unbounded);
        tx.scan(notes, first, |_, value| {
            found.extend_from_slice(value);
            true
        })
        .await?;
        assert_eq!(tx.get(notes, b"long").await?.as_ref(), Some(&found));
        tx.commit().await?;
        Ok::<_, Error>(found)
    });
    assert_eq!(served.cluster.run(reading).expect("they go on"), Ok(expected));
}

/// Writes a long value, and waits so long for that. Returns whether it was given up and its transaction with it, and how long it took.
fn write_for(served: &mut ServedThings, patience_ns: u64) -> (bool, u64) {
    let executor = served.nodes[0].clone();
    let done = served.run(async move |client| {
        let notes = client.partition("notes").await?.id();
        let mut tx = client.begin().await;
        tx.put(notes, b"before", b"value").await?;
        let begin = executor.now();
        let put = executor.within(patience_ns, tx.put(notes, b"long", &[1; LENGTH])).await;
        let took_ns = executor.now().since_ns(begin);
        match (put, tx.commit().await) {
            (Some(put), Ok(())) => put.map(|()| (false, took_ns)),
            (None, Err(Error::Abandoned)) => Ok((true, took_ns)),
            // Nothing was begun.
            (None, Ok(())) => Ok((false, took_ns)),
            other => panic!("{other:?}"),
        }
    });
    done.expect("nothing fails")
}

/// A write that is not waited for any longer takes its transaction along: a part of it is not committed.
#[test]
fn a_value_that_is_given_up_halfway_is_not_committed() {
    let (_, whole_ns) = write_for(&mut ServedThings::new(3, 1, None), u64::MAX >> 2);
    let mut given_up = 0;
    for part in 0..12 {
        let mut served = ServedThings::new(3, 1, None);
        given_up += u32::from(write_for(&mut served, whole_ns * part / 12).0);
        served.open(async |_| Ok(()));
    }
    assert!(given_up > 5, "{given_up}");
}

/// What fails halfway, however often it is tried, takes its transaction along, too, and is not said to be worth another try.
#[test]
fn a_value_that_fails_halfway_is_not_committed() {
    let mut served = ServedThings::new(4, 1, None);
    let done = served.run(async |client| {
        let notes = client.partition("notes").await?.id();
        let mut tx = client.begin().await;
        tx.put(notes, b"before", b"value").await?;
        // More pages than the node has frames.
        let failed = tx.put(notes, b"long", &[1; 400_000]).await;
        assert!(matches!(failed, Err(Error::BufferExhausted { .. })), "{failed:?}");
        assert!(!tx.is_victim());
        assert_eq!(tx.get(notes, b"before").await, Err(Error::Abandoned));
        assert_eq!(tx.commit().await, Err(Error::Abandoned));
        let mut tx = client.begin().await;
        assert_eq!(tx.get(notes, b"before").await?, None);
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
    served.open(async |_| Ok(()));
}

/// A record that is not waited for is the next one still.
#[test]
fn a_scan_that_is_not_waited_for_skips_nothing() {
    const RECORDS: u8 = 6;
    let mut served = ServedThings::new(5, 2, None);
    let written = served.run(async |client| {
        let notes = client.partition("notes").await?.id();
        let mut tx = client.begin().await;
        for number in 0..RECORDS {
            tx.put(notes, &[number], &[number; LENGTH]).await?;
        }
        tx.commit().await
    });
    assert_eq!(written, Ok(()));
    let (other, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let reading = executor.clone().spawn(async move {
        let notes = other.partition("notes").await?.id();
        let mut tx = other.begin().await;
        let mut scan = tx.scan_range(notes, .., Direction::Forward);
        let (mut found, mut given_up, mut patience_ns) = (Vec::new(), 0, 1_000);
        loop {
            match executor.within(patience_ns, scan.next()).await {
                None => (given_up, patience_ns) = (given_up + 1, 2 * patience_ns),
                Some(next) => match next? {
                    Some((key, value)) => {
                        found.push((key[0], value.len()));
                        patience_ns = 1_000;
                    }
                    None => break,
                },
            }
        }
        tx.commit().await?;
        Ok::<_, Error>((found, given_up))
    });
    let (found, given_up) = served.cluster.run(reading).expect("they go on").expect("nothing fails");
    assert_eq!(found, (0..RECORDS).map(|number| (number, LENGTH)).collect::<Vec<_>>());
    assert!(given_up > u32::from(RECORDS), "{given_up}");
}
