//! Cursors of a transaction that changes what they go over.

use crate::ground::machine::run;
use base::{PartitionId, Random};
use entresol_engine::{
    Cursor, Database, Direction, Error, Isolation, PartitionSpec, Result, Settings, Transaction, buffer,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::task::Poll;
use virtual_driver::Media;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        ..Settings::default()
    }
}

fn all(tx: &Transaction, tree: PartitionId, direction: Direction) -> Cursor {
    tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, direction)
}

fn with_tree(work: impl AsyncFn(&Database, PartitionId, Isolation) -> Result<()>) {
    for isolation in Isolation::ALL {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let load = async |tx: &mut Transaction| {
                for key in [2, 4, 6, 8] {
                    tx.put(tree, &[key], &[key; 3]).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(load).await?;
            work(&database, tree, isolation).await
        })
        .expect("nothing fails");
    }
}

fn record(key: u8) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((vec![key], vec![key; 3]))
}

#[test]
fn a_cursor_shows_what_its_transaction_has_made_of_the_records_before_it() {
    with_tree(async |database, tree, isolation| {
        let mut tx = database.begin_at(isolation).await?;
        let mut cursor = all(&tx, tree, Direction::Forward);
        assert_eq!(tx.next(&mut cursor).await?, record(2));
        assert!(tx.delete(tree, &[4]).await?);
        tx.put(tree, &[6], b"changed").await?;
        tx.insert(tree, &[7], &[7; 3]).await?;
        // What lies behind it is not shown.
        tx.insert(tree, &[1], &[1; 3]).await?;
        assert_eq!(tx.next(&mut cursor).await?, Some((vec![6], b"changed".to_vec())), "{isolation:?}");
        tx.modify(tree, &[8], |bytes| bytes[0] = 9).await?;
        assert_eq!(tx.next(&mut cursor).await?, record(7));
        assert_eq!(tx.next(&mut cursor).await?, Some((vec![8], vec![9, 8, 8])));
        tx.insert(tree, &[9], &[9; 3]).await?;
        assert_eq!(tx.next(&mut cursor).await?, record(9));
        assert_eq!(tx.next(&mut cursor).await?, None);

        let mut cursor = all(&tx, tree, Direction::Backward);
        assert_eq!(tx.next(&mut cursor).await?, record(9));
        assert!(tx.delete(tree, &[8]).await? && tx.delete(tree, &[1]).await?);
        assert_eq!(tx.next(&mut cursor).await?, record(7));
        tx.insert(tree, &[3], &[3; 3]).await?;
        assert_eq!(tx.next(&mut cursor).await?, Some((vec![6], b"changed".to_vec())));
        assert_eq!(tx.next(&mut cursor).await?, record(3));
        assert_eq!(tx.next(&mut cursor).await?, record(2));
        assert_eq!(tx.next(&mut cursor).await?, None);
        tx.rollback().await
    });
}

#[test]
fn a_cursor_shows_what_a_rollback_to_a_savepoint_has_put_back() {
    with_tree(async |database, tree, isolation| {
        let mut tx = database.begin_at(isolation).await?;
        let savepoint = tx.savepoint();
        tx.put(tree, &[5], &[5; 3_000]).await?;
        tx.delete(tree, &[6]).await?;
        let mut cursor = all(&tx, tree, Direction::Forward);
        assert_eq!(tx.next(&mut cursor).await?, record(2));
        tx.rollback_to(savepoint).await?;
        // As many changes as were taken back.
        tx.put(tree, &[1], &[1; 3]).await?;
        tx.put(tree, &[1], &[2; 3]).await?;
        for key in [4, 6, 8] {
            assert_eq!(tx.next(&mut cursor).await?, record(key), "{isolation:?}");
        }
        assert_eq!(tx.next(&mut cursor).await?, None);
        tx.rollback().await
    });
}

#[test]
fn a_cursor_goes_with_its_own_transaction_alone() {
    with_tree(async |database, tree, isolation| {
        let mut other = database.begin_at(isolation).await?;
        let mut tx = database.begin_at(isolation).await?;
        let mut cursor = all(&tx, tree, Direction::Forward);
        assert_eq!(tx.next(&mut cursor).await?, record(2));
        tx.commit().await?;
        let shown = other.next(&mut cursor).await;
        assert!(matches!(shown, Err(Error::Argument(_))), "{shown:?}");
        other.rollback().await
    });
}

#[test]
fn a_call_that_is_given_up_takes_no_record_along() {
    with_tree(async |database, tree, isolation| {
        let load = async |tx: &mut Transaction| {
            for key in 0..4 {
                tx.put(tree, &[key], &[key; 30_000]).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(load).await?;
        let mut tx = database.begin_at(isolation).await?;
        let mut cursor = all(&tx, tree, Direction::Forward);
        let mut keys = Vec::new();
        for polls in (0..40).cycle() {
            let mut next = std::pin::pin!(tx.next(&mut cursor));
            let mut left = polls;
            let given_up = std::future::poll_fn(|context| match next.as_mut().poll(context) {
                Poll::Ready(shown) => Poll::Ready(Some(shown)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await;
            match given_up {
                Some(Ok(Some((key, value)))) => {
                    assert!(value.len() == 3 || value == vec![key[0]; 30_000], "{isolation:?}, {key:?}");
                    keys.push(key[0]);
                }
                Some(done) => {
                    assert!(done?.is_none());
                    break;
                }
                None => {}
            }
        }
        assert_eq!(keys, [0, 1, 2, 3, 4, 6, 8], "{isolation:?}");
        tx.rollback().await
    });
}

/// What a cursor that sees everything should show next.
fn expected(
    model: &BTreeMap<u8, Vec<u8>>,
    direction: Direction,
    shown: Option<u8>,
    (first, last): (u8, u8),
) -> Option<(Vec<u8>, Vec<u8>)> {
    let is_ahead = |key: u8| match (shown, direction) {
        (None, _) => true,
        (Some(shown), Direction::Forward) => key > shown,
        (Some(shown), Direction::Backward) => key < shown,
    };
    let mut ahead = model.iter().filter(|(key, _)| is_ahead(**key) && (first..=last).contains(*key));
    let next = match direction {
        Direction::Forward => ahead.next(),
        Direction::Backward => ahead.next_back(),
    };
    next.map(|(key, value)| (vec![*key], value.clone()))
}

#[test]
fn cursors_and_changes_in_any_order_agree_with_a_map() {
    for seed in 0..60 {
        let mut random = Random::stream(seed, "cursors and changes");
        let isolation = *random.choose(&Isolation::ALL).expect("there are three");
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let mut model = BTreeMap::new();
            let mut tx = database.begin().await?;
            for key in (0..200).filter(|_| random.chance(0.5)).collect::<Vec<u8>>() {
                tx.put(tree, &[key], &[key; 20]).await?;
                model.insert(key, vec![key; 20]);
            }
            tx.commit().await?;
            // A snapshot of this moment is open, so that versions and ghosts are kept.
            let _old = database.snapshot().await?;
            let mut tx = database.begin_at(isolation).await?;
            let mut saved = (tx.savepoint(), model.clone());
            for _ in 0..6 {
                let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
                let span = (random.below(100) as u8, random.between(100, 256) as u8);
                let bounds = [[span.0], [span.1]];
                let (lower, upper) = (Bound::Included(&bounds[0][..]), Bound::Included(&bounds[1][..]));
                let mut cursor = tx.cursor(tree, lower, upper, direction);
                let mut shown: Option<u8> = None;
                loop {
                    for _ in 0..random.below(3) {
                        let near = shown.unwrap_or(100).saturating_add(random.below(20) as u8).saturating_sub(10);
                        let key = if random.chance(0.7) { near } else { random.below(200) as u8 };
                        match random.below(12) {
                            0..4 => {
                                let length = if random.chance(0.1) { 2_000 } else { random.below(60) };
                                let value = vec![random.below(256) as u8; length as usize];
                                tx.put(tree, &[key], &value).await?;
                                model.insert(key, value);
                            }
                            4..9 => assert_eq!(tx.delete(tree, &[key]).await?, model.remove(&key).is_some()),
                            9 => {
                                if let Some(value) = model.get_mut(&key).filter(|value| value.len() < 200) {
                                    tx.modify(tree, &[key], |bytes| bytes.fill(1)).await?;
                                    value.fill(1);
                                }
                            }
                            10 => saved = (tx.savepoint(), model.clone()),
                            _ => {
                                tx.rollback_to(saved.0).await?;
                                model = saved.1.clone();
                            }
                        }
                    }
                    let next = tx.next(&mut cursor).await?;
                    let context = format!("seed {seed}, {isolation:?}, {direction:?}, behind {shown:?}");
                    assert_eq!(next, expected(&model, direction, shown, span), "{context}");
                    match next {
                        Some((key, _)) => shown = Some(key[0]),
                        None => break,
                    }
                }
            }
            tx.commit().await
        })
        .expect("nothing fails");
    }
}
