//! Changes that are kept only for the snapshots that are there, because none has begun for many commits: here after each.

use super::*;

#[test]
fn records_added_behind_a_fence_are_hidden_from_those_who_were_there_and_shown_to_others() {
    on_a_machine(async |executor| {
        let (database, _) = spilling(executor, 1 << 30).await?;
        let log = database.create_partition(PartitionSpec::append("log")).await?;
        let add = async |count: u8| {
            for number in 0..count {
                database.transaction(async |tx| tx.append(log, &[number; 100]).await.map(|_| ())).await?;
            }
            Ok::<_, Error>(())
        };
        let seen = async |snapshot: &mut Snapshot| {
            let mut count = 0;
            let look = |_, _: &[u8]| {
                count += 1;
                true
            };
            snapshot.scan_appended(log, look).await?;
            Ok::<_, Error>(count)
        };
        add(10).await?;
        let mut first = database.snapshot().await?;
        add(200).await?;
        let heads = || database.0.engine.versions.versions.borrow().heads.count();
        assert!((1..100).contains(&heads()), "{} records are told one by one", heads());
        let mut writer = database.begin_at(Isolation::Snapshot).await?;
        let mut open = database.begin().await?;
        open.append(log, &[1; 100]).await?;
        writer.append(log, &[2; 100]).await?;
        let mut second = database.snapshot().await?;
        add(200).await?;
        open.commit().await?;
        add(100).await?;
        let mut own = 0;
        let look = |_, _: &[u8]| {
            own += 1;
            true
        };
        writer.scan_appended(log, look).await?;
        assert_eq!((seen(&mut first).await?, seen(&mut second).await?, own), (10, 210, 211));
        writer.commit().await?;
        assert_eq!(seen(&mut database.snapshot().await?).await?, 512);
        drop(first);
        add(1).await?;
        assert_eq!(seen(&mut second).await?, 210);
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_reader_that_begins_finds_again_what_was_left_out_and_nothing_else() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let kept = || database.0.engine.versions.versions.borrow().own.versions();
        let mut tx = database.begin().await?;
        for key in 0..20_u8 {
            tx.modify(notes, &[key], |bytes| bytes[0] = 200).await?;
        }
        assert_eq!(kept(), 0, "there are no readers");
        let mut snapshots = vec![database.snapshot().await?];
        assert_eq!(kept(), 20, "the first finds them in the undo list");
        for key in 50..60_u8 {
            // After the first commit a change is kept only for the snapshots that exist.
            database.transaction(async |tx| tx.put(notes, &[key], &[9; 200]).await).await?;
        }
        tx.modify(notes, &[20], |bytes| bytes[0] = 200).await?;
        for _ in 0..5 {
            snapshots.push(database.snapshot().await?);
            assert_eq!(kept(), 21);
            database.transaction(async |tx| tx.put(notes, &[50], &[9; 200]).await).await?;
        }
        // No existing snapshot can see the state before the last commit of it.
        database.transaction(async |tx| tx.put(notes, &[50], &[10; 200]).await).await?;
        let mut lazy = database.begin().await?;
        lazy.modify(notes, &[50], |bytes| bytes[0] = 11).await?;
        assert_eq!(kept(), 21);
        let mut last = database.snapshot().await?;
        assert_eq!(kept(), 22);
        assert_eq!(last.get(notes, &[50]).await?, Some(vec![10; 200]));
        for snapshot in &mut snapshots {
            assert_eq!(snapshot.get(notes, &[20]).await?, Some(vec![20; 200]));
        }
        lazy.rollback().await?;
        tx.rollback().await
    })
    .expect("nothing fails");
}

#[test]
fn a_part_of_a_value_is_put_back_into_the_value_that_it_was_part_of() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut early = database.begin().await?;
        early.modify(notes, &[7], |bytes| bytes[0] = 200).await?;
        let mut long = database.snapshot().await?;
        early.commit().await?;
        // No snapshot has begun since that commit, but the long reader goes back over both.
        database.transaction(async |tx| tx.put(notes, &[7], &[9; 50]).await).await?;
        assert_eq!(long.get(notes, &[7]).await?, Some(vec![7; 200]));
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_record_changed_and_deleted_since_is_found_by_scans_of_the_past() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut old = database.snapshot().await?;
        database.transaction(async |tx| tx.put(notes, &[7], &[70; 200]).await).await?;
        database.transaction(async |tx| tx.put(notes, &[8], &[80; 200]).await).await?;
        database.transaction(async |tx| tx.delete(notes, &[7]).await).await?;
        let mut cursor = old.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, value)) = old.next(&mut cursor).await? {
            assert_eq!(value, vec![key[0]; 200]);
            found.push(key[0]);
        }
        assert!(found.iter().copied().eq(0..100), "{found:?}");
        Ok(())
    })
    .expect("nothing fails");
}

/// What covers a change that was left out may not be a version that was kept after it.
#[test]
fn a_change_that_was_left_out_is_found_again_below_a_later_one_of_all_of_its_record() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut old = database.snapshot().await?;
        for commits in [false, true] {
            let first = if commits { 10 } else { 20 };
            let keys = [first, first + 1, first + 2];
            for key in keys {
                database.transaction(async |tx| tx.modify(notes, &[key], |bytes| bytes[0] = 1).await).await?;
            }
            let mut tx = database.begin().await?;
            for key in keys {
                tx.modify(notes, &[key], |bytes| bytes[0] = 2).await?;
            }
            tx.put(notes, &[keys[0]], &[3; 200]).await?;
            tx.delete(notes, &[keys[1]]).await?;
            tx.modify(notes, &[keys[2]], |bytes| bytes[100] = 3).await?;
            let mut new = database.snapshot().await?;
            let committed = |key: u8| [&[1][..], &[key; 199]].concat();
            for key in keys {
                assert_eq!(new.get(notes, &[key]).await?, Some(committed(key)), "{key}");
            }
            if commits {
                tx.commit().await?;
            } else {
                tx.rollback().await?;
            }
            for key in keys {
                assert_eq!(new.get(notes, &[key]).await?, Some(committed(key)), "{key}, commits: {commits}");
                assert_eq!(old.get(notes, &[key]).await?, Some(vec![key; 200]), "{key}, commits: {commits}");
            }
            database.0.engine.versions.versions.borrow().verify();
        }
        Ok(())
    })
    .expect("nothing fails");
}

/// The same of sets, where what covered the change has been discarded since.
#[test]
fn a_change_of_a_set_is_found_again_below_a_later_one_though_what_covered_it_is_gone() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 2 << 10).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        database.transaction(async |tx| tx.put(stock, b"a", &[1; 8]).await).await?;
        let old = database.snapshot().await?;
        database.transaction(async |tx| tx.put(stock, b"a", &[2; 8]).await).await?;
        let mut tx = database.begin().await?;
        tx.put(stock, b"a", &[3; 8]).await?;
        overwrite(&database, notes, 3).await?;
        tx.put(stock, b"a", &[4; 8]).await?;
        let mut new = database.snapshot().await?;
        assert_eq!(new.get(stock, b"a").await?, Some(vec![2; 8]), "it is not committed");
        tx.rollback().await?;
        assert_eq!(new.get(stock, b"a").await?, Some(vec![2; 8]));
        drop(old);
        database.0.engine.versions.versions.borrow().verify();
        Ok(())
    })
    .expect("nothing fails");
}

#[cfg(feature = "canary")]
#[test]
fn a_change_that_is_taken_for_covered_by_a_later_one_is_found() {
    structures::canary::plant(Some(structures::canary::Canary::LateCover));
    let check = a_change_that_was_left_out_is_found_again_below_a_later_one_of_all_of_its_record;
    let found = std::panic::catch_unwind(check);
    structures::canary::plant(None);
    assert!(found.is_err(), "nothing notices it");
}
