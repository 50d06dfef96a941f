//! Extents of versions: their numbers and their lengths.

use super::*;

/// A link tells thirty bits of an extent's number.
const NUMBERS: u64 = 1 << 30;

/// Has extents be numbered from here on.
fn number_from(database: &Database, first: u64) {
    database.0.engine.versions.versions.borrow_mut().history.number_from(first);
}

#[test]
fn more_extents_than_links_can_tell_apart_confuse_no_reader() {
    on_a_machine(async |executor| {
        for memory in [0, 1 << 20] {
            let undo = super::super::UndoSettings { cluster_size: 512, memory, ..Default::default() };
            let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
            overwrite(&database, notes, 1).await?;
            // Each round takes several extents, so the numbers in links begin anew while the readers are there.
            for first in [NUMBERS - 1, NUMBERS - 3, 2 * NUMBERS - 8] {
                number_from(&database, first);
                let mut readers = Vec::new();
                for round in 1..4_u8 {
                    readers.push((round - 1, database.snapshot().await?));
                    for key in 0..100_u8 {
                        database.transaction(async |tx| tx.put(notes, &[key], &[round; 200]).await).await?;
                    }
                    executor.sleep_ns(SECOND_NS).await;
                }
                assert_eq!(database.versions().versions, 300);
                while !readers.is_empty() {
                    for (round, reader) in &mut readers {
                        for key in 0..100_u8 {
                            assert_eq!(reader.get(notes, &[key]).await?, Some(vec![*round; 200]), "{first}, {key}");
                        }
                    }
                    database.0.engine.versions.versions.borrow().verify();
                    readers.remove(0);
                }
                assert_eq!(database.versions().versions, 0);
                overwrite(&database, notes, 1).await?;
            }
            database.close().await?;
        }
        Ok(())
    })
    .expect("nothing fails");
}

/// What leads to an extent that is gone, and seems to lead to one that has its number's thirty bits now.
#[test]
fn a_link_to_what_is_gone_is_followed_by_no_reader() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut open = database.begin().await?;
        let first = database.snapshot().await?;
        overwrite(&database, notes, 1).await?;
        let mut second = database.snapshot().await?;
        // Its versions lead to extents that are gone soon.
        for key in [0, 50, 99] {
            open.modify(notes, &[key], |value| value[0] = 77).await?;
        }
        drop(first);
        assert_eq!(database.versions().versions, 0);
        assert!(database.0.engine.versions.versions.borrow().heads.count() > 90, "they are not swept yet");
        number_from(&database, NUMBERS);
        for round in 1..3 {
            for key in (0..100_u8).rev().filter(|key| ![0, 50, 99].contains(key)) {
                database.transaction(async |tx| tx.put(notes, &[key], &[round; 200]).await).await?;
            }
            executor.sleep_ns(SECOND_NS).await;
            for key in 0..100_u8 {
                assert_eq!(second.get(notes, &[key]).await?, Some(vec![0; 200]), "{key}");
            }
        }
        let mut third = database.snapshot().await?;
        open.commit().await?;
        for key in 0..100_u8 {
            let seen = if [0, 50, 99].contains(&key) { 0 } else { 2 };
            assert_eq!(third.get(notes, &[key]).await?, Some(vec![seen; 200]), "{key}");
            assert_eq!(second.get(notes, &[key]).await?, Some(vec![0; 200]), "{key}");
        }
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn large_clusters_make_no_extents_that_links_cannot_lead_into() {
    on_a_machine(async |executor| {
        let undo = super::super::UndoSettings { cluster_size: 4 << 20, ..Default::default() };
        let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let value = |byte: u8, key: u16| [&[byte][..], &key.to_be_bytes().repeat(500)].concat();
        let write = async |byte: u8| {
            for first in (0..18_000).step_by(100) {
                let put = async |tx: &mut Transaction| {
                    for key in first..first + 100_u16 {
                        tx.put(notes, &key.to_be_bytes(), &value(byte, key)).await?;
                    }
                    Ok::<_, Error>(())
                };
                database.transaction(put).await?;
            }
            Ok::<_, Error>(())
        };
        write(1).await?;
        let mut old = database.snapshot().await?;
        write(2).await?;
        assert!(database.versions().bytes > 17 << 20, "{:?}", database.versions());
        for key in 0..18_000_u16 {
            assert!(old.get(notes, &key.to_be_bytes()).await? == Some(value(1, key)), "{key}");
        }
        Ok(())
    })
    .expect("nothing fails");
}
