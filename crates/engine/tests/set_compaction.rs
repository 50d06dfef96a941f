//! Room of sets that is given back while they are used: every record stays, and the backup is as short as they allow.

use crate::ground::backups as ground;
use crate::ground::compacting::{self, ClientsBeside, Records as Model, delete, put, until_cut};
use crate::ground::restoring;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::set::Logging;
use entresol_engine::{
    BackupSettings, Database, Error, PartitionSpec, RestoreSource, RestoreTarget, Result, Settings, Transaction,
};
use executor::Executor;
use ground::{on, restored};
use restoring::{backup, plain, set, to};
use std::cell::{Cell, RefCell};
use virtual_driver::Media;

const SEGMENT: u64 = 16 << 10;

fn settings(strategy: Strategy) -> Settings {
    let sweep = SweepSettings { strategy, ..SweepSettings::default() };
    Settings { sweep, ..restoring::settings() }
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = if random.chance(0.02) { random.below(3_000) } else { 20 + random.below(150) };
    vec![random.below(256) as u8; length as usize]
}

/// Adds records, or gives those that are there another value.
async fn add(
    database: &Database,
    id: PartitionId,
    keys: impl IntoIterator<Item = u64>,
    (model, random): (&mut Model, &mut Random),
) -> Result<()> {
    let records: Vec<_> = keys.into_iter().map(|key| (key.to_be_bytes().to_vec(), value(random))).collect();
    for records in records.chunks(20) {
        put(database, id, records).await?;
    }
    model.extend(records);
    Ok(())
}

/// Deletes all records but one of `every`.
async fn thin_out(database: &Database, id: PartitionId, every: usize, model: &mut Model) -> Result<()> {
    let gone: Vec<_> = model.keys().enumerate().filter(|(n, _)| n % every != 0).map(|(_, key)| key.clone()).collect();
    delete(database, id, &gone, 20, model).await
}

async fn contents(database: &Database, id: PartitionId) -> Result<Model> {
    let mut found = Model::new();
    let snapshot = &mut database.snapshot().await?;
    let look = |key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        true
    };
    snapshot.scan_set(id, look).await?;
    Ok(found)
}

async fn check(database: &Database, id: PartitionId, model: &Model) -> Result<()> {
    compacting::check(database, contents(database, id).await?, model).await
}

/// Every strategy with each log that it suits.
fn all_settings() -> Vec<Settings> {
    let pairs = Strategy::ALL.into_iter().flat_map(|strategy| Logging::ALL.map(|logging| (strategy, logging)));
    let suitable = pairs.filter(|(strategy, logging)| strategy.check(*logging).is_ok());
    suitable.map(|(strategy, logging)| Settings { logging, ..settings(strategy) }).collect()
}

/// A thinned out set, whose backup is much longer than its records.
async fn thinned(executor: &Executor, settings: Settings, seed: u64) -> Result<(Database, PartitionId, Model)> {
    let database = Database::create(executor, settings).await?;
    let id = database.create_partition(set("rows")).await?;
    let (mut model, mut random) = (Model::new(), Random::stream(seed, "compaction of sets"));
    add(&database, id, 0..2_000, (&mut model, &mut random)).await?;
    for _ in 0..2 {
        // Each copy has all.
        database.checkpoint().await?;
        add(&database, id, 0..10, (&mut model, &mut random)).await?;
    }
    thin_out(&database, id, 8, &mut model).await?;
    Ok((database, id, model))
}

/// The length of both copies of the backup.
fn length(media: &Media) -> u64 {
    [0, 1].into_iter().map(|copy| media.length("disk", &format!("rows.backup-{copy}")).expect("it is there")).sum()
}

#[test]
fn the_backup_is_as_short_as_the_records_allow_and_grows_again() {
    for (seed, settings) in (0..).zip(all_settings()) {
        let media = Media::new();
        let model = on(&media, async |executor| {
            let (database, id, mut model) = thinned(executor, settings.clone(), seed).await?;
            let (before, memory) = (database.size(id).await?, database.segment_bytes());
            let done = database.compact_partition(id).await?;
            let after = database.size(id).await?;
            assert!(done.moved > 0 && done.memory > 0, "{done:?}");
            assert_eq!((after.file, database.segment_bytes()), (before.file - done.given_back, memory - done.memory));
            assert!(after.file < before.file / 4, "{before:?} {after:?}");
            // A tenth of each segment is reserved for records that grow, and the last one is not full.
            assert!(after.free < after.used / 4 + 2 * SEGMENT, "{after:?}");
            assert_eq!(length(&media), after.file);
            assert!(after.used.abs_diff(before.used) < before.used / 50, "{before:?} {after:?}");
            check(&database, id, &model).await?;
            let again = database.compact_partition(id).await?;
            assert_eq!((again.memory, again.given_back), (0, 0), "{again:?}");
            let mut random = Random::stream(seed, "more");
            add(&database, id, 1_000..3_000, (&mut model, &mut random)).await?;
            check(&database, id, &model).await?;
            thin_out(&database, id, 5, &mut model).await?;
            Ok::<_, Error>(model)
        });
        let mut model = model.unwrap_or_else(|error| panic!("{:?}: {error}", settings.sweep.strategy));
        on(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "again").await?;
            let id = database.partition("rows")?;
            check(&database, id, &model).await?;
            thin_out(&database, id, usize::MAX, &mut model).await?;
            database.compact_partition(id).await?;
            assert_eq!(database.size(id).await?.file, 2 * SEGMENT, "one record is left");
            check(&database, id, &model).await?;
            database.close().await
        })
        .expect("opens");
    }
}

/// Changes records until the compaction has ended: of one client, those with its own remainder.
async fn change_beside(
    database: &Database,
    id: PartitionId,
    model: &RefCell<Model>,
    is_over: &Cell<bool>,
    client: u64,
) {
    let mut random = Random::stream(client, "beside");
    while !is_over.get() {
        let mut changes = Vec::new();
        for _ in 0..random.between(1, 12) {
            let key = (3 * random.below(700) + client % 3).to_be_bytes().to_vec();
            changes.push((key, random.chance(0.4).then(|| value(&mut random))));
        }
        let is_kept = random.chance(0.7);
        let pause_ns = random.below(MILLISECOND_NS);
        let work = async |tx: &mut Transaction| {
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(id, key, value).await?,
                    None => drop(tx.delete(id, key).await?),
                }
                tx.executor().sleep_ns(pause_ns / 8).await;
            }
            if is_kept { Ok(()) } else { Err(Error::Setting("rolled back".to_owned())) }
        };
        let done = database.transaction(work).await;
        assert_eq!(done.is_ok(), is_kept, "{done:?}");
        if is_kept {
            let mut model = model.borrow_mut();
            for (key, value) in changes {
                match value {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
            }
        }
        database.executor().sleep_ns(pause_ns).await;
    }
}

#[test]
fn transactions_go_on_beside_a_compaction() {
    for (seed, settings) in (0..).zip(all_settings()) {
        let media = Media::new();
        let checkpoint = Policy { log_bytes: Some(16 << 10), interval_ns: None };
        let settings = Settings { checkpoint, ..settings };
        let model = on(&media, async |executor| {
            let (database, id, model) = thinned(executor, settings.clone(), seed).await?;
            let before = contents(&database, id).await?;
            let mut old = database.snapshot().await?;
            let clients = ClientsBeside::begin(executor, model, seed, |model, is_over, client| {
                let database = database.clone();
                async move { change_beside(&database, id, &model, &is_over, client).await }
            });
            let mut given_back = 0;
            for _ in 0..6 {
                executor.sleep_ns(20 * MILLISECOND_NS).await;
                given_back += database.compact_partition(id).await?.given_back;
            }
            assert!(given_back > 0);
            let model = clients.end().await;
            let mut seen = Model::new();
            let look = |key: &[u8], value: &[u8]| {
                seen.insert(key.to_vec(), value.to_vec());
                true
            };
            old.scan_set(id, look).await?;
            assert!(seen == before, "a snapshot has moved with the records");
            drop(old);
            check(&database, id, &model).await?;
            Ok::<_, Error>(model)
        });
        let model = model.unwrap_or_else(|error| panic!("{:?}: {error}", settings.sweep.strategy));
        on(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "again").await?;
            check(&database, database.partition("rows")?, &model).await
        })
        .expect("opens");
    }
}

#[test]
fn a_transaction_that_goes_on_keeps_no_room_and_can_be_rolled_back() {
    on(&Media::new(), async |executor| {
        let (database, id, mut model) = thinned(executor, settings(Strategy::Fuzzy), 5).await?;
        let (mut undone, mut kept) = (database.begin().await?, database.begin().await?);
        for (number, key) in model.keys().cloned().collect::<Vec<_>>().iter().enumerate() {
            let tx = if number % 2 == 0 { &mut undone } else { &mut kept };
            match number % 8 / 2 {
                0 => drop(tx.delete(id, key).await?),
                1 => tx.modify(id, key, |value| value.fill(1)).await?,
                2 => tx.put(id, key, &[2; 700]).await?,
                _ => tx.put(id, key, b"").await?,
            }
        }
        let before = database.size(id).await?;
        let done = database.compact_partition(id).await?;
        assert!(done.given_back > before.file / 2, "{before:?} {done:?}");
        undone.rollback().await?;
        kept.commit().await?;
        for (number, key) in
            model.keys().cloned().collect::<Vec<_>>().into_iter().enumerate().filter(|(n, _)| n % 2 == 1)
        {
            match number % 8 / 2 {
                0 => drop(model.remove(&key)),
                1 => model.get_mut(&key).expect("it is there").fill(1),
                2 => drop(model.insert(key, vec![2; 700])),
                _ => drop(model.insert(key, Vec::new())),
            }
        }
        check(&database, id, &model).await
    })
    .expect("works");
}

/// Cuts the power at this event of a compaction beside changes, and looks at what there is. Whether it came so far, and whether the files
/// were shorter by then.
fn cut_at(event: u64, settings: &Settings, (prepared, model): (&Media, &Model)) -> (bool, bool) {
    let media = prepared.copy();
    let acknowledged = RefCell::new(model.clone());
    let is_cut = until_cut(&media, event, async |executor| {
        let database = Database::open(executor, settings.clone(), "cut").await?;
        let (id, mut random) = (database.partition("rows")?, Random::stream(event, "cut off"));
        let compacting = {
            let database = database.clone();
            executor.spawn(async move { database.compact_partition(id).await })
        };
        let mut left = 20;
        while left > 0 || !compacting.is_finished() {
            left = i32::max(left - 1, 0);
            let (key, value) = (random.below(300).to_be_bytes().to_vec(), value(&mut random));
            database.transaction(async |tx| tx.put(id, &key, &value).await).await?;
            acknowledged.borrow_mut().insert(key, value);
        }
        assert!(compacting.join().await?.given_back > 0);
        Ok(())
    });
    let is_shorter = length(&media) < length(prepared);
    on(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "again").await?;
        let id = database.partition("rows")?;
        let (found, expected) = (contents(&database, id).await?, acknowledged.borrow().clone());
        // The commit that was under way may be there or not.
        let differing = found.iter().filter(|(key, value)| expected.get(*key) != Some(value)).count()
            + expected.keys().filter(|key| !found.contains_key(*key)).count();
        assert!(differing <= 1, "{differing} records differ");
        check(&database, id, &found).await?;
        database.compact_partition(id).await?;
        assert!(length(&media) < length(prepared) / 2, "another compaction goes on");
        check(&database, id, &found).await?;
        database.close().await
    })
    .unwrap_or_else(|error| panic!("cut at {event}: {error}"));
    (is_cut, is_shorter)
}

#[test]
fn whenever_the_power_goes_every_record_is_there() {
    for settings in all_settings() {
        let prepared = Media::new();
        let model = on(&prepared, async |executor| {
            let (database, _, model) = thinned(executor, settings.clone(), 7).await?;
            database.close().await?;
            Ok::<_, Error>(model)
        })
        .expect("works");
        let (mut cut_off, mut shorter, mut event) = (0, 0, 40);
        loop {
            let (is_cut, is_shorter) = cut_at(event, &settings, (&prepared, &model));
            shorter += u32::from(is_cut && is_shorter);
            if !is_cut {
                break;
            }
            (cut_off, event) = (cut_off + 1, event + event / 12);
        }
        assert!(cut_off > 10 && shorter > 0, "{cut_off} were cut off, {shorter} of them with shorter files");
    }
}

#[test]
fn a_backup_beside_a_compaction_is_whole() {
    for is_slow in [false, true] {
        on(&Media::new(), async |executor| {
            let (database, id, model) = thinned(executor, settings(Strategy::Fuzzy), 3).await?;
            let backing = {
                let database = database.clone();
                let bytes_per_second = Some(if is_slow { 20 << 10 } else { 4 << 20 });
                let slow = BackupSettings { bytes_per_second, ..backup() };
                executor.spawn(async move { database.backup(&slow, |_| {}).await })
            };
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            let (before, began) = (database.size(id).await?, executor.now());
            let compacted = database.compact_partition(id).await;
            if is_slow {
                assert_eq!(compacted, Err(Error::PartitionInUse("rows".to_owned())));
                assert!(executor.now().since_ns(began) < 12 * SECOND_NS && !backing.is_finished());
            } else {
                assert!(compacted?.given_back > 0);
            }
            check(&database, id, &model).await?;
            backing.join().await?;
            database.compact_partition(id).await?;
            assert!(database.size(id).await?.file < before.file / 4, "another one goes on");
            database.close().await?;
            let source = RestoreSource { archive: None, ..to(RestoreTarget::End) };
            let (database, _) = restored(executor, &plain(), &source).await?;
            check(&database, database.partition("rows")?, &model).await
        })
        .expect("works");
    }
}

#[test]
fn arrivals_and_sets_without_records_are_compacted() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings(Strategy::Fuzzy)).await?;
        let id = database.create_partition(set("empty")).await?;
        assert_eq!(database.compact_partition(id).await?, Default::default(), "there is nothing to give back");
        let organization = Organization::Set { arrivals: true, segment_size: SEGMENT as u32, reserve_percent: 0 };
        let id = database.create_partition(PartitionSpec::new("arrivals", organization, Locking::Record)).await?;
        // Numbers of records that were rolled back are not given again, and their segments are empty.
        let mut undone = database.begin().await?;
        for _ in 0..500 {
            undone.append(id, &[5; 200]).await?;
        }
        database.transaction(async |tx| tx.append(id, &[6; 200]).await).await?;
        database.checkpoint().await?;
        undone.rollback().await?;
        let done = database.compact_partition(id).await?;
        assert!(done.given_back > 0 && done.moved == 1 && database.size(id).await?.file == 2 * SEGMENT, "{done:?}");
        database.transaction(async |tx| tx.append(id, &[7; 200]).await).await?;
        let found = contents(&database, id).await?;
        let expected = [(500_u64, 6), (501, 7)].map(|(number, byte)| (number.to_be_bytes().to_vec(), vec![byte; 200]));
        assert_eq!(found, Model::from(expected));
        let checked = database.check(|_| {}).await?;
        assert!(checked.is_clean(), "{:?}", checked.findings);
        Ok::<(), Error>(())
    })
    .expect("works");
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn segments_that_no_sweep_writes_after_a_move_are_found() {
        is_found(Canary::UnmarkedMove, whenever_the_power_goes_every_record_is_there);
    }

    #[test]
    fn a_backup_that_becomes_shorter_too_early_is_found() {
        is_found(Canary::CutBackup, whenever_the_power_goes_every_record_is_there);
    }
}
