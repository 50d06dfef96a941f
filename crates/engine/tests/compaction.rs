//! Room that is given back while a partition is used: every record stays, and the file is as short as they allow.

use crate::ground::backups as ground;
use crate::ground::compacting::{self, ClientsBeside, Records as Model, delete, put, until_cut};
use crate::ground::restoring;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{
    BackupSettings, Compaction, Database, Error, PartitionSpec, RestoreSource, RestoreTarget, Result, Settings,
    Transaction, buffer,
};
use executor::{Executor, Order};
use ground::{on, restored};
use restoring::{backup, behind_increment, to};
use std::cell::{Cell, RefCell};
use virtual_driver::{Media, Options, PowerCut, VirtualDriver};

/// With files that grow in small steps.
fn settings() -> Settings {
    let archived = restoring::settings();
    Settings { buffer: buffer::Settings { growth_step: 16 << 10, ..archived.buffer }, ..archived }
}

fn plain() -> Settings {
    Settings { log: restoring::plain().log, ..settings() }
}

/// Some value: a few have pages of their own.
fn value(random: &mut Random) -> Vec<u8> {
    let length = if random.chance(0.03) { 1_000 + random.below(4_000) } else { 20 + random.below(150) };
    vec![random.below(256) as u8; length as usize]
}

fn key(random: &mut Random) -> Vec<u8> {
    random.below(4_000).to_be_bytes().to_vec()
}

/// Adds `count` records or so.
async fn add(
    database: &Database,
    id: PartitionId,
    count: usize,
    (model, random): (&mut Model, &mut Random),
) -> Result<()> {
    for _ in 0..count / 10 {
        let records: Vec<_> = (0..10).map(|_| (key(random), value(random))).collect();
        put(database, id, &records).await?;
        model.extend(records);
    }
    Ok(())
}

/// Deletes all records but a few here and there.
async fn thin_out(database: &Database, id: PartitionId, model: &mut Model) -> Result<()> {
    let gone: Vec<_> =
        model.keys().enumerate().filter(|(n, _)| n % 8 != 0 && n % 300 > 20).map(|(_, key)| key.clone()).collect();
    delete(database, id, &gone, 10, model).await
}

async fn contents(database: &Database, id: PartitionId) -> Result<Model> {
    let mut found = Model::new();
    let mut tx = database.begin().await?;
    let mut cursor = tx.scan(id, .., entresol_engine::Direction::Forward);
    cursor
        .look(|key, value| {
            found.insert(key.to_vec(), value.to_vec());
            true
        })
        .await?;
    tx.commit().await?;
    Ok(found)
}

async fn check(database: &Database, id: PartitionId, model: &Model) -> Result<()> {
    compacting::check(database, contents(database, id).await?, model).await
}

/// A thinned out tree, whose file has much more pages than it uses.
async fn thinned(executor: &Executor, settings: Settings, seed: u64) -> Result<(Database, PartitionId, Model)> {
    let database = Database::create(executor, settings).await?;
    let id = database.create_partition(PartitionSpec::b_tree("rows")).await?;
    let (mut model, mut random) = (Model::new(), Random::stream(seed, "compaction"));
    add(&database, id, 1_500, (&mut model, &mut random)).await?;
    database.checkpoint().await?;
    thin_out(&database, id, &mut model).await?;
    Ok((database, id, model))
}

#[test]
fn the_file_is_as_short_as_the_records_allow_and_grows_again() {
    for seed in 0..3 {
        let media = Media::new();
        let model = on(&media, async |executor| {
            let (database, id, mut model) = thinned(executor, settings(), seed).await?;
            let before = database.size(id).await?;
            let done = database.compact_partition(id).await?;
            let after = database.size(id).await?;
            assert!(done.moved > 10 && done.rewritten > 0, "{done:?}");
            assert_eq!(after.file, before.file - done.given_back);
            assert!(after.file < before.file / 2, "{before:?} {after:?}");
            assert!(after.free <= after.file / 10, "{after:?}");
            assert_eq!(media.length("disk", "rows.pages"), Some(after.file));
            check(&database, id, &model).await?;
            assert_eq!(database.compact_partition(id).await?.moved, 0);
            let mut random = Random::stream(seed, "more");
            add(&database, id, 500, (&mut model, &mut random)).await?;
            check(&database, id, &model).await?;
            Ok::<_, Error>(model)
        });
        let model = model.expect("works");
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "again").await?;
            check(&database, database.partition("rows")?, &model).await?;
            database.close().await
        })
        .expect("opens");
    }
}

/// Changes records until the compaction has ended.
async fn change_beside(database: &Database, id: PartitionId, model: &RefCell<Model>, is_over: &Cell<bool>, seed: u64) {
    let mut random = Random::stream(seed, "beside");
    while !is_over.get() {
        let (number, is_deletion) = (key(&mut random), random.chance(0.5));
        // Each has keys of its own.
        let number = [&number[..], &[seed as u8]].concat();
        let value = value(&mut random);
        let change = async |tx: &mut Transaction| match is_deletion {
            true => tx.delete(id, &number).await.map(|_| ()),
            false => tx.put(id, &number, &value).await,
        };
        match database.transaction(change).await {
            Ok(()) if is_deletion => drop(model.borrow_mut().remove(&number)),
            Ok(()) => drop(model.borrow_mut().insert(number, value)),
            Err(error) => panic!("{error}"),
        }
        database.executor().sleep_ns(random.below(MILLISECOND_NS)).await;
    }
}

#[test]
fn transactions_go_on_beside_a_compaction() {
    for seed in 0..6 {
        on(&Media::new(), async |executor| {
            let (database, id, model) = thinned(executor, settings(), seed).await?;
            let clients = ClientsBeside::begin(executor, model, seed, |model, is_over, client| {
                let database = database.clone();
                async move { change_beside(&database, id, &model, &is_over, client).await }
            });
            let mut done = Compaction::default();
            for _ in 0..3 {
                executor.sleep_ns(20 * MILLISECOND_NS).await;
                let more = database.compact_partition(id).await?;
                done.given_back += more.given_back;
            }
            assert!(done.given_back > 0);
            let model = clients.end().await;
            check(&database, id, &model).await?;
            database.close().await
        })
        .expect("works");
    }
}

/// Cuts the power at this event of a compaction, and looks at what there is. Returns whether it came so far, and whether the file was
/// shorter by then.
fn cut_at(event: u64, prepared: &Media, model: &Model) -> (bool, bool) {
    let media = prepared.copy();
    let acknowledged = RefCell::new(model.clone());
    let is_cut = until_cut(&media, event, async |executor| {
        let database = Database::open(executor, settings(), "cut").await?;
        let (id, mut random) = (database.partition("rows")?, Random::stream(event, "cut off"));
        // Pages that are there by now change before they move.
        let halves: Vec<_> = model.keys().step_by(2).cloned().collect();
        for key in halves {
            database.transaction(async |tx| tx.delete(id, &key).await).await?;
            acknowledged.borrow_mut().remove(&key);
        }
        database.compact_partition(id).await?;
        // It makes the file durable.
        database.checkpoint().await?;
        for _ in 0..120 {
            let (key, value) = (key(&mut random), value(&mut random));
            database.transaction(async |tx| tx.put(id, &key, &value).await).await?;
            acknowledged.borrow_mut().insert(key, value);
        }
        Ok(())
    });
    let length = |media: &Media| media.length("disk", "rows.pages").expect("it is there");
    let is_shorter = length(&media) < length(prepared);
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "again").await?;
        let id = database.partition("rows")?;
        let (found, expected) = (contents(&database, id).await?, acknowledged.borrow().clone());
        // The commit that was under way may be there or not.
        let differing = found.iter().filter(|(key, value)| expected.get(*key) != Some(value)).count()
            + expected.keys().filter(|key| !found.contains_key(*key)).count();
        assert!(differing <= 1, "{differing} records differ");
        check(&database, id, &found).await?;
        database.compact_partition(id).await?;
        let (mut model, mut random) = (found, Random::stream(event, "again"));
        add(&database, id, 100, (&mut model, &mut random)).await?;
        check(&database, id, &model).await?;
        database.close().await
    })
    .unwrap_or_else(|error| panic!("cut at {event}: {error}"));
    (is_cut, is_shorter)
}

#[test]
fn whenever_the_power_goes_every_record_is_there() {
    let prepared = Media::new();
    let model = on(&prepared, async |executor| {
        let (database, _, model) = thinned(executor, settings(), 7).await?;
        database.close().await?;
        Ok::<_, Error>(model)
    })
    .expect("works");
    let (mut cut_off, mut event) = (0, 50);
    while cut_at(event, &prepared, &model).0 {
        cut_off += 1;
        event += event / 5;
    }
    // The file becomes shorter near the end.
    let late: Vec<_> = (event * 3 / 4..event).step_by((event / 80) as usize).collect();
    let found: Vec<_> = late.into_iter().map(|event| cut_at(event, &prepared, &model)).collect();
    let shortened = found.iter().filter(|(is_cut, is_shorter)| *is_cut && *is_shorter).count();
    assert!(cut_off > 20 && shortened > 0, "{cut_off} were cut off, {shortened} of them with a shorter file");
}

/// What was written is there, and the file is shorter; what only memory has is redone.
#[test]
fn a_restart_right_after_a_compaction_looks_for_nothing_behind_the_end() {
    for seed in 0..3 {
        let media = Media::new();
        let mut model = on(&media, async |executor| {
            let (database, _, model) = thinned(executor, settings(), seed).await?;
            database.close().await?;
            Ok::<_, Error>(model)
        })
        .expect("works");
        let driver = VirtualDriver::new(ground::hardware(), Options::default(), media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let compacted = executor.run(async {
            let database = Database::open(&executor, settings(), "test").await?;
            let id = database.partition("rows")?;
            for key in model.keys().step_by(2).cloned().collect::<Vec<_>>() {
                database.transaction(async |tx| tx.delete(id, &key).await).await?;
                model.remove(&key);
            }
            assert!(database.compact_partition(id).await?.given_back > 0);
            Ok::<_, Error>(())
        });
        executor.stop();
        compacted.expect("the power stays").expect("works");
        media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut { lost: 0.0, torn: 0.0 });
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "again").await?;
            check(&database, database.partition("rows")?, &model).await
        })
        .unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

#[test]
fn a_restore_from_before_a_compaction_has_what_came_after_it() {
    for seed in 0..4 {
        on(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            let id = database.create_partition(PartitionSpec::b_tree("rows")).await?;
            let (mut model, mut random) = (Model::new(), Random::stream(seed, "compaction"));
            add(&database, id, 1_000, (&mut model, &mut random)).await?;
            database.backup(&BackupSettings { target: "next".into(), ..backup() }, |_| {}).await?;
            thin_out(&database, id, &mut model).await?;
            assert!(database.compact_partition(id).await?.given_back > 0);
            if seed % 2 == 1 {
                add(&database, id, 200, (&mut model, &mut random)).await?;
            }
            database.backup(&BackupSettings { base: Some("next".into()), ..backup() }, |_| {}).await?;
            let at_increment = model.clone();
            add(&database, id, 600, (&mut model, &mut random)).await?;
            database.close().await?;
            for (source, expected) in behind_increment().into_iter().zip([&model, &model, &at_increment]) {
                let (database, _) = restored(executor, &plain(), &source).await?;
                let id = database.partition("rows")?;
                check(&database, id, expected).await?;
                let mut more = expected.clone();
                add(&database, id, 300, (&mut more, &mut random)).await?;
                check(&database, id, &more).await?;
                database.close().await?;
            }
            Ok::<(), Error>(())
        })
        .unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

#[test]
fn a_backup_beside_a_compaction_is_whole() {
    on(&Media::new(), async |executor| {
        let (database, id, model) = thinned(executor, settings(), 3).await?;
        let backing = {
            let database = database.clone();
            let slow = BackupSettings { bytes_per_second: Some(1 << 20), ..backup() };
            executor.spawn(async move { database.backup(&slow, |_| {}).await })
        };
        executor.sleep_ns(MILLISECOND_NS).await;
        let done = database.compact_partition(id).await?;
        assert!(backing.is_finished() && done.given_back > 0, "room is given back when the backup has ended");
        backing.join().await?;
        database.close().await?;
        let (database, _) =
            restored(executor, &plain(), &RestoreSource { archive: None, ..to(RestoreTarget::End) }).await?;
        check(&database, database.partition("rows")?, &model).await
    })
    .expect("works");
}

#[test]
fn a_transaction_from_before_keeps_the_file_as_long_as_it_goes_on() {
    on(&Media::new(), async |executor| {
        let (database, id, model) = thinned(executor, settings(), 4).await?;
        let other = database.create_partition(PartitionSpec::b_tree("other")).await?;
        let mut old = database.begin().await?;
        old.put(other, b"held", b"until the end").await?;
        let length = database.size(id).await?.file;
        let began = executor.now();
        let refused = database.compact_partition(id).await;
        assert_eq!(refused, Err(Error::PartitionInUse("rows".to_owned())));
        assert!(executor.now().since_ns(began) < 12 * SECOND_NS);
        assert_eq!(database.size(id).await?.file, length);
        old.commit().await?;
        assert!(database.compact_partition(id).await?.given_back > 0, "another one goes on");
        check(&database, id, &model).await
    })
    .expect("works");
}

#[test]
fn an_append_partition_ends_behind_its_last_page() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        let append = PartitionSpec::new("events", Organization::Append { blocking_factor: 0 }, Locking::Page);
        let events = database.create_partition(append).await?;
        for _ in 0..100 {
            database.transaction(async |tx| tx.append(events, &[5; 90]).await).await?;
        }
        let before = database.size(events).await?;
        let done = database.compact_partition(events).await?;
        let after = database.size(events).await?;
        assert_eq!((after.free, after.file), (0, before.file - done.given_back));
        assert!(done.given_back > 0);
        for _ in 0..100 {
            database.transaction(async |tx| tx.append(events, &[5; 90]).await).await?;
        }
        let checked = database.check(|_| {}).await?;
        assert!(checked.is_clean(), "{:?}", checked.findings);
        assert!(matches!(database.compact_partition(PartitionId(99)).await, Err(Error::NoPartition(_))));
        Ok::<(), Error>(())
    })
    .expect("works");
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn a_file_that_becomes_shorter_too_early_is_found() {
        plant(Some(Canary::EarlyShortening));
        let found = std::panic::catch_unwind(a_restart_right_after_a_compaction_looks_for_nothing_behind_the_end);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }

    #[test]
    fn pages_that_begin_anew_from_their_first_number_are_found() {
        plant(Some(Canary::ForgottenFloor));
        let found = std::panic::catch_unwind(a_restore_from_before_a_compaction_has_what_came_after_it);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}
