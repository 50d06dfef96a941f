//! Changes of a few bytes of long records.

use super::*;

/// Changes one byte of each of a hundred records.
async fn change(database: &Database, notes: PartitionId, place: usize, byte: u8) -> Result<()> {
    for key in 0..100_u8 {
        database.transaction(async |tx| tx.modify(notes, &[key], |value| value[place] = byte).await).await?;
    }
    Ok(())
}

#[test]
fn a_change_of_a_few_bytes_keeps_these_alone() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut long = database.snapshot().await?;
        for round in 0..20 {
            change(&database, notes, 40, 100 + round).await?;
            let kept = database.versions();
            assert_eq!((kept.versions, kept.bytes / 100 < 64), (100, true), "{kept:?}");
        }
        assert_eq!(long.get(notes, &[7]).await?, Some(vec![7; 200]));
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn changes_here_and_there_leave_no_long_chains() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut readers = Vec::new();
        for (count, places) in [[40, 160], [8, 190], [100, 40]].into_iter().enumerate() {
            readers
                .push((database.transaction(async |tx| tx.get(notes, &[7]).await).await?, database.snapshot().await?));
            for round in 0..10 {
                change(&database, notes, places[round % 2], round as u8 + 120).await?;
            }
            let kept = database.versions().versions;
            assert!(kept <= 200 * (count as u64 + 1), "{kept} versions beside {} readers", count + 1);
        }
        for (seen, reader) in &mut readers {
            assert_eq!(reader.get(notes, &[7]).await?, *seen);
        }
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_transaction_that_changes_a_record_in_several_places_is_taken_back_in_all() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut before = database.snapshot().await?;
        let mut tx = database.begin().await?;
        for place in [0, 1, 90, 2, 199, 90] {
            tx.modify(notes, &[7], |value| value[place] = 255).await?;
            assert_eq!(before.get(notes, &[7]).await?, Some(vec![7; 200]), "it has not ended");
        }
        let savepoint = tx.savepoint();
        tx.modify(notes, &[7], |value| value[150] = 255).await?;
        tx.rollback_to(savepoint).await?;
        assert_eq!(before.get(notes, &[7]).await?, Some(vec![7; 200]), "a part of it is rolled back");
        tx.commit().await?;
        assert_eq!(before.get(notes, &[7]).await?, Some(vec![7; 200]), "it is committed");
        let after = database.snapshot().await?.get(notes, &[7]).await?.expect("it is there");
        let changed: Vec<usize> = (0..200).filter(|place| after[*place] == 255).collect();
        assert_eq!(changed, [0, 1, 2, 90, 199]);
        Ok(())
    })
    .expect("nothing fails");
}
