//! What is restored from a backup and the archive of the log behind it: what was committed up to the target, and nothing else.

use crate::ground::backups as ground;
use crate::ground::restoring::{backup, plain, set, settings, to};
use base::time::MILLISECOND_NS;
use base::{Lsn, Random};
use driver::OpKind;
use entresol_engine::{
    Asked, BackupError, BackupSettings, Database, Error, Internals, PartitionSpec, RestoreSource, RestoreTarget,
    Result, Settings,
};
use executor::{Executor, WholeExecutor};
use ground::{lose, names, on, on_hardware, restored, under};
use std::collections::BTreeMap;
use virtual_driver::{ErrorAt, FaultPlan, Media};

const KEYS: u64 = 30;
const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];

/// Partitions by name, with their records.
type Model = BTreeMap<String, BTreeMap<u64, Value>>;

/// The value of a record.
#[derive(Clone, PartialEq, Eq)]
struct Value(Vec<u8>);

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} times {}", self.0.len(), self.0[0])
    }
}

/// What was there after a commit.
struct Moment {
    position: Lsn,
    unix_ns: u64,
    model: Model,
}

/// A database, and what must be in it.
struct Modelled {
    database: Database,
    model: Model,
    random: Random,
    moments: Vec<Moment>,
}

impl Modelled {
    async fn create(executor: &Executor, seed: u64) -> Result<Modelled> {
        let database = Database::create(executor, settings()).await?;
        let mut created =
            Modelled { database, model: Model::new(), random: Random::stream(seed, "restores"), moments: Vec::new() };
        created.create_partition("first").await?;
        created.create_partition("second").await?;
        Ok(created)
    }

    async fn create_partition(&mut self, name: &str) -> Result<()> {
        let spec = if self.random.below(2) == 0 { set(name) } else { PartitionSpec::b_tree(name) };
        self.database.create_partition(spec).await?;
        self.model.insert(name.to_owned(), BTreeMap::new());
        Ok(())
    }

    /// Changes records of several partitions in one transaction, which is rolled back now and then.
    async fn change_records(&mut self) -> Result<()> {
        let mut model = self.model.clone();
        let mut tx = self.database.begin().await?;
        for _ in 0..1 + self.random.below(6) {
            let names: Vec<&String> = self.model.keys().collect();
            if names.is_empty() {
                break;
            }
            let name = names[self.random.below(names.len() as u64) as usize].clone();
            let id = self.database.partition(&name)?;
            let (key, records) = (self.random.below(KEYS), model.get_mut(&name).expect("it is there"));
            if self.random.below(4) == 0 {
                tx.delete(id, &key.to_be_bytes()).await?;
                records.remove(&key);
            } else {
                let value = Value(vec![self.random.below(256) as u8; 1 + self.random.below(200) as usize]);
                tx.put(id, &key.to_be_bytes(), &value.0).await?;
                records.insert(key, value);
            }
        }
        if self.random.below(5) == 0 {
            return tx.rollback().await;
        }
        tx.commit().await?;
        self.model = model;
        Ok(())
    }

    /// Does something else.
    async fn change_otherwise(&mut self) -> Result<()> {
        let name = NAMES[self.random.below(4) as usize];
        let is_there = self.model.contains_key(name);
        match self.random.below(6) {
            0 => self.database.checkpoint().await,
            1 if is_there => {
                self.database.drop_partition(self.database.partition(name)?).await?;
                self.model.remove(name);
                Ok(())
            }
            2 if is_there => {
                self.database.truncate_partition(self.database.partition(name)?).await?;
                self.model.insert(name.to_owned(), BTreeMap::new());
                Ok(())
            }
            3 if is_there => {
                let other = NAMES[self.random.below(4) as usize];
                if !self.model.contains_key(other) {
                    self.database.rename_partition(self.database.partition(name)?, other).await?;
                    let records = self.model.remove(name).expect("it is there");
                    self.model.insert(other.to_owned(), records);
                }
                Ok(())
            }
            4 => {
                let executor = self.database.executor().whole().clone();
                self.database.clone().close().await?;
                self.database = Database::open(&executor, settings(), "again").await?;
                Ok(())
            }
            _ if !is_there => self.create_partition(name).await,
            _ => Ok(()),
        }
    }

    /// Takes this number of steps, and notes what is there after each.
    async fn run(&mut self, steps: u64) -> Result<()> {
        for _ in 0..steps {
            match self.random.below(8) {
                0 => self.change_otherwise().await?,
                _ => self.change_records().await?,
            }
            let executor = self.database.executor().whole().clone();
            let (position, unix_ns) = (self.database.log().end(), executor.unix_ns());
            self.moments.push(Moment { position, unix_ns, model: self.model.clone() });
            executor.sleep_ns(2 * MILLISECOND_NS).await;
        }
        Ok(())
    }
}

/// What a database has.
async fn contents(database: &Database) -> Result<Model> {
    let mut found = Model::new();
    for name in NAMES {
        let Ok(id) = database.partition(name) else { continue };
        let records = found.entry(name.to_owned()).or_default();
        let mut tx = database.begin().await?;
        for key in 0..KEYS {
            if let Some(value) = tx.get(id, &key.to_be_bytes()).await? {
                records.insert(key, Value(value));
            }
        }
        tx.commit().await?;
    }
    Ok(found)
}

/// What is restored up to a target.
async fn restored_to(executor: &Executor, target: RestoreTarget) -> Result<Model> {
    let (database, _) = restored(executor, &plain(), &to(target)).await?;
    let found = contents(&database).await?;
    database.close().await?;
    Ok(found)
}

#[test]
fn what_is_restored_is_what_a_model_had_at_that_moment() {
    for seed in 0..12 {
        on(&Media::new(), async |executor| {
            let mut modelled = Modelled::create(executor, seed).await?;
            modelled.run(40).await?;
            // One that goes on beside the backup, and one that never ends.
            let (id, mut open) = (
                modelled.database.create_partition(PartitionSpec::b_tree("open")).await?,
                modelled.database.begin().await?,
            );
            open.put(id, b"not", b"committed").await?;
            let taken = modelled.database.clone();
            let taken = executor.spawn(async move { taken.backup(&backup(), |_| {}).await });
            for _ in 0..10 {
                modelled.change_records().await?;
            }
            let end = taken.join().await?.end;
            open.rollback().await?;
            let began = modelled.moments.len();
            modelled.run(120).await?;
            let moments = modelled.moments.split_off(began);
            let mut random = modelled.random;
            modelled.database.close().await?;
            for _ in 0..6 {
                let Moment { position, unix_ns, model } = &moments[random.below(moments.len() as u64 - 5) as usize];
                assert!(*position >= end);
                let found = restored_to(executor, RestoreTarget::Position(*position)).await?;
                assert_eq!(found, *model, "seed {seed}, {position}");
                let found = restored_to(executor, RestoreTarget::Time { unix_ns: *unix_ns }).await?;
                assert_eq!(found, *model, "seed {seed}, time {unix_ns}");
            }
            let last = &moments.last().expect("there are some").model;
            assert_eq!(restored_to(executor, RestoreTarget::End).await?, *last, "seed {seed}");
            Ok::<(), Error>(())
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A database with a backup, 30 more steps and an archive, which is closed; what was there after each of them.
async fn archived(executor: &Executor, seed: u64) -> Result<Vec<Moment>> {
    let mut modelled = Modelled::create(executor, seed).await?;
    modelled.run(10).await?;
    modelled.database.backup(&backup(), |_| {}).await?;
    let began = modelled.moments.len();
    for _ in 0..30 {
        modelled.change_records().await?;
        let (position, unix_ns) = (modelled.database.log().end(), executor.unix_ns());
        modelled.moments.push(Moment { position, unix_ns, model: modelled.model.clone() });
        executor.sleep_ns(2 * MILLISECOND_NS).await;
    }
    modelled.database.close().await?;
    Ok(modelled.moments.split_off(began))
}

#[test]
fn a_target_outside_of_what_there_is_of_the_log_is_refused() {
    on(&Media::new(), async |executor| {
        let moments = archived(executor, 1).await.expect("works");
        let refused =
            async |target| restored_to(executor, target).await.expect_err("there is no such target").to_string();
        for target in [RestoreTarget::Position(Lsn(5_000)), RestoreTarget::Time { unix_ns: 5 }] {
            let refused = refused(target).await;
            assert!(refused.contains("use an earlier backup"), "{refused}");
        }
        let last = moments.last().expect("there are some");
        for target in [
            RestoreTarget::Position(Lsn(last.position.0 + (1 << 20))),
            RestoreTarget::Time { unix_ns: last.unix_ns + 60_000 * MILLISECOND_NS },
        ] {
            let refused = refused(target).await;
            assert!(
                refused.contains("the archive 'archive' has the log up to") && refused.contains("1970-01-01"),
                "{refused}"
            );
        }
        assert_eq!(restored_to(executor, RestoreTarget::End).await.as_ref(), Ok(&last.model));
    });
}

#[test]
fn a_segment_that_is_missing_or_damaged_is_named_and_what_is_before_it_can_be_restored() {
    let media = Media::new();
    let moments = on(&media, async |executor| {
        let mut modelled = Modelled::create(executor, 2).await?;
        modelled.database.backup(&backup(), |_| {}).await?;
        let began = modelled.moments.len();
        modelled.run(300).await?;
        modelled.database.close().await?;
        Ok::<_, Error>(modelled.moments.split_off(began))
    })
    .expect("works");
    let segments: Vec<String> = media.names("archive").into_iter().filter(|name| name.ends_with(".log")).collect();
    assert!(segments.len() > 4, "{segments:?}");
    let victim = &segments[segments.len() / 2];
    let begin = victim
        .split_once('-')
        .and_then(|(_, rest)| rest.strip_suffix(".log")?.parse().ok())
        .map(Lsn)
        .expect("a position");
    let before = moments.iter().rfind(|moment| moment.position < begin).expect("some are before it");
    let named = |media: &Media| {
        on(media, async |executor| {
            let refused = restored_to(executor, RestoreTarget::End).await.expect_err("it is not whole");
            let found = restored_to(executor, RestoreTarget::Position(before.position)).await;
            assert_eq!(found.as_ref(), Ok(&before.model), "{refused}");
            refused
        })
    };
    let without = media.copy();
    on(&without, async |executor| {
        let device = executor.device("archive").expect("it is there");
        executor.perform(driver::Op::Remove { device, name: victim.clone() }).await.result.expect("removes");
    });
    let refused = named(&without);
    assert!(matches!(&refused, Error::Backup(BackupError::ArchiveGap { file, .. }) if file == victim), "{refused}");
    let length = media.length("archive", victim).expect("it is there");
    for offset in [0, 9, 20, 25, 33, 41, 45, 4096, 4200, length - 1] {
        let damaged = media.copy();
        damaged.flip_bit("archive", victim, offset, 6).expect("it is there");
        let refused = named(&damaged);
        let is_named = matches!(&refused, Error::Backup(BackupError::DamagedSegment { file, .. }) if file == victim)
            || matches!(&refused, Error::NewerFormat { path, .. } if path.ends_with(&**victim));
        assert!(is_named, "{offset}: {refused}");
    }
}

#[test]
fn an_archive_of_another_database_is_refused() {
    let media = Media::new();
    on(&media, async |executor| {
        archived(executor, 3).await.expect("works");
        lose(executor, &["disk", "archive"]).await;
        let empty = restored_to(executor, RestoreTarget::End).await.expect_err("it is empty").to_string();
        assert!(empty.contains("it holds no segment"), "{empty}");
        lose(executor, &["disk"]).await;
        let other = Database::create(executor, settings()).await.expect("creates");
        other.checkpoint().await.expect("works");
        other.create_partition(PartitionSpec::b_tree("first")).await.expect("creates");
        other.close().await.expect("closes");
        let foreign = restored_to(executor, RestoreTarget::End).await.expect_err("it is foreign").to_string();
        assert!(foreign.contains("its segments are of another log"), "{foreign}");
        lose(executor, &["disk", "archive", "backup"]).await;
        let unarchived = Database::create(executor, plain()).await.expect("creates");
        unarchived.backup(&backup(), |_| {}).await.expect("backs up");
        unarchived.close().await.expect("closes");
        let refused = restored_to(executor, RestoreTarget::End).await.expect_err("it was not archived");
        assert!(matches!(refused, Error::Backup(BackupError::NotArchived { .. })), "{refused}");
    });
}

/// Loads a partition behind a backup, and returns what a restore of all says, and one of what was before.
fn loaded_behind_a_backup(
    spec: PartitionSpec,
    then: impl AsyncFn(&Database) -> Result<()>,
) -> (Result<Model>, Result<Model>) {
    let is_set = spec.name == "second";
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let id = database.create_partition(spec).await.expect("creates");
        database.backup(&backup(), |_| {}).await.expect("backs up");
        let other = database.create_partition(PartitionSpec::b_tree("first")).await.expect("creates");
        database.transaction(async |tx| tx.put(other, &1_u64.to_be_bytes(), b"before").await).await.expect("commits");
        let before = database.log().end();
        let records = (0..20_u64).map(|key| (key.to_be_bytes(), [7; 50]));
        let loaded = match is_set {
            true => database.load_set(id, records, |_| {}).await,
            false => database.load_b_tree(id, records, |_| {}).await,
        };
        loaded.expect("loads");
        database.transaction(async |tx| tx.put(id, &21_u64.to_be_bytes(), b"after").await).await.expect("commits");
        then(&database).await.expect("works");
        database.close().await.expect("closes");
        let all = restored_to(executor, RestoreTarget::End).await;
        (all, restored_to(executor, RestoreTarget::Position(before)).await)
    })
}

#[test]
fn a_bulk_load_behind_the_backup_is_named_unless_it_is_of_no_account() {
    let first = || BTreeMap::from([(1, Value(b"before".to_vec()))]);
    for spec in [set("second"), PartitionSpec::b_tree("third")] {
        let name = spec.name.clone();
        let nothing = async |_: &Database| Ok(());
        let (all, before) = loaded_behind_a_backup(spec.clone(), nothing);
        let refused = all.expect_err("the log does not have it");
        let is_named =
            matches!(&refused, Error::Backup(BackupError::LoadNotLogged { partition, .. }) if *partition == name);
        assert!(is_named && refused.to_string().contains("take a backup after the load"), "{refused}");
        let expected = Model::from([("first".to_owned(), first()), (name.clone(), BTreeMap::new())]);
        assert_eq!(before, Ok(expected));
        let dropped = async |database: &Database| database.drop_partition(database.partition(&name)?).await;
        assert_eq!(loaded_behind_a_backup(spec.clone(), dropped).0, Ok(Model::from([("first".to_owned(), first())])));
        let again = async |database: &Database| {
            ground::lose(database.executor().whole(), &["backup"]).await;
            database.backup(&backup(), |_| {}).await?;
            let id = database.partition(&name)?;
            database.transaction(async |tx| tx.put(id, &22_u64.to_be_bytes(), b"later").await).await
        };
        let found = loaded_behind_a_backup(spec, again).0.expect("the backup has it");
        assert_eq!(found[&name].len(), 22);
    }
}

#[test]
fn a_log_that_was_cut_off_and_moved_is_restored_as_it_went_on() {
    let media = Media::new();
    let mut modelled_model = Model::new();
    for opening in 0..4_u64 {
        // Each machine but for the last one loses its power.
        let asked = Asked { log_size: [None, None, Some(1 << 20), None][opening as usize], ..Asked::default() };
        let settings = Settings { asked, ..settings() };
        modelled_model = on(&media, async |executor| {
            let opened = match opening {
                0 => Modelled::create(executor, 5).await?,
                _ => {
                    let database = Database::open(executor, settings, "again").await?;
                    let (model, random) = (contents(&database).await?, Random::stream(opening, "restores"));
                    assert_eq!(model, modelled_model, "{opening}");
                    Modelled { database, model, random, moments: Vec::new() }
                }
            };
            let mut modelled = opened;
            for _ in 0..60 {
                modelled.change_records().await?;
            }
            if opening == 0 {
                modelled.database.backup(&backup(), |_| {}).await?;
            }
            if opening == 3 {
                modelled.database.close().await?;
            }
            Ok::<_, Error>(modelled.model)
        })
        .unwrap_or_else(|error| panic!("{opening}: {error}"));
    }
    let found = on(&media, async |executor| restored_to(executor, RestoreTarget::End).await);
    assert_eq!(found, Ok(modelled_model));
}

#[test]
fn a_restored_database_is_archived_beside_the_one_that_it_comes_from() {
    on(&Media::new(), async |executor| {
        let moments = archived(executor, 6).await?;
        let at = &moments[10];
        let (database, report) = restored(executor, &settings(), &to(RestoreTarget::Position(at.position))).await?;
        assert!(report.end <= at.position && report.committed_unix_ns.is_some_and(|ns| ns <= at.unix_ns));
        let first = database.partition("first").or(database.partition("second"))?;
        lose(executor, &["next"]).await;
        let again = BackupSettings { target: "next".into(), ..backup() };
        database.backup(&again, |_| {}).await?;
        database.transaction(async |tx| tx.put(first, &3_u64.to_be_bytes(), b"another history").await).await?;
        let expected = contents(&database).await?;
        database.close().await?;
        // The first history goes on as it did.
        assert_eq!(restored_to(executor, RestoreTarget::End).await?, moments.last().expect("some").model);
        let source = RestoreSource { backup: "next".into(), ..to(RestoreTarget::End) };
        let (database, _) = restored(executor, &plain(), &source).await?;
        assert_eq!(contents(&database).await?, expected);
        database.close().await
    })
    .expect("works");
}

#[test]
fn an_increment_goes_on_with_the_archive_as_its_base_does() {
    on(&Media::new(), async |executor| {
        let mut modelled = Modelled::create(executor, 7).await?;
        modelled.run(30).await?;
        modelled.database.backup(&BackupSettings { target: "next".into(), ..backup() }, |_| {}).await?;
        modelled.run(30).await?;
        modelled.database.backup(&BackupSettings { base: Some("next".into()), ..backup() }, |_| {}).await?;
        modelled.run(60).await?;
        modelled.database.close().await?;
        let last = &modelled.moments.last().expect("some").model;
        for source in ["next", "backup"] {
            let source = RestoreSource { backup: source.into(), ..to(RestoreTarget::End) };
            let (database, _) = restored(executor, &plain(), &source).await?;
            assert_eq!(contents(&database).await?, *last);
            database.close().await?;
        }
        Ok::<(), Error>(())
    })
    .expect("works");
}

#[test]
fn a_restore_with_an_archive_that_fails_anywhere_can_be_begun_again() {
    let media = Media::new();
    let moments = on(&media, async |executor| archived(executor, 8).await).expect("works");
    on(&media, async |executor| lose(executor, &["disk", "flash"]).await);
    let restore = async |executor: &_| Database::restore(executor, &plain(), &to(RestoreTarget::End), |_| {}).await;
    for (kind, device) in [
        (OpKind::Write, "disk"),
        (OpKind::Resize, "disk"),
        (OpKind::Sync, "disk"),
        (OpKind::Read, "archive"),
        (OpKind::List, "archive"),
        (OpKind::Open, "archive"),
    ] {
        for nth in 1..30 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind, device: Some(device.into()), nth }];
            let first = under(FaultPlan { errors, ..FaultPlan::default() }, &media, restore);
            let found = on(&media, async |executor| {
                let database = match Database::open(executor, plain(), "disk").await {
                    Ok(database) => database,
                    Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) => {
                        restore(executor).await?;
                        Database::open(executor, plain(), "disk").await?
                    }
                    Err(error) => return Err(error),
                };
                let found = contents(&database).await?;
                database.close().await?;
                Ok(found)
            });
            assert_eq!(found.as_ref(), Ok(&moments.last().expect("some").model), "{kind:?} {nth}, {first:?}");
        }
    }
}

#[test]
fn nothing_is_made_of_a_restore_that_is_refused() {
    on_hardware(ground::hardware(), FaultPlan::default(), &Media::new(), async |executor| {
        archived(executor, 9).await.expect("works");
        lose(executor, &["disk"]).await;
        let target = to(RestoreTarget::Position(Lsn(1 << 40)));
        Database::restore(executor, &plain(), &target, |_| {}).await.expect_err("there is no such target");
        assert_eq!(names(executor, "disk").await, Vec::<String>::new());
    });
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn a_restore_that_goes_on_past_a_load_is_found() {
        plant(Some(Canary::UnnoticedLoad));
        let found = std::panic::catch_unwind(a_bulk_load_behind_the_backup_is_named_unless_it_is_of_no_account);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}

/// Its pages are written before the backup, and what says that it is there stands in the log behind it.
#[test]
fn a_truncation_that_waits_while_a_backup_is_taken_is_restored() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let first = database.create_partition(PartitionSpec::b_tree("first")).await.expect("creates");
        let reader = database.begin().await.expect("begins");
        let truncating = {
            let database = database.clone();
            executor.spawn(async move { database.truncate_partition(first).await })
        };
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        database.backup(&backup(), |_| {}).await.expect("backs up");
        reader.rollback().await.expect("ends");
        let first = truncating.join().await.expect("truncates");
        let put = database.transaction(async |tx| tx.put(first, &1_u64.to_be_bytes(), b"later").await).await;
        put.expect("commits");
        database.close().await.expect("closes");
        let records = BTreeMap::from([(1, Value(b"later".to_vec()))]);
        assert_eq!(restored_to(executor, RestoreTarget::End).await, Ok(Model::from([("first".to_owned(), records)])));
    });
}

#[test]
fn a_database_is_the_same_in_each_opening_and_another_one_once_it_is_restored() {
    let media = Media::new();
    let (created, restored) = on(&media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let created = database.identity();
        database.backup(&backup(), |_| {}).await?;
        database.close().await?;
        let database = Database::open(executor, settings(), "again").await?;
        assert_eq!(database.identity(), created);
        database.close().await?;
        let (database, _) = restored(executor, &plain(), &to(RestoreTarget::End)).await?;
        let restored = database.identity();
        database.checkpoint().await?;
        Ok::<_, Error>((created, restored))
    })
    .expect("works");
    assert_ne!(restored, created);
    let found = on(&media, async |executor| Ok::<_, Error>(Database::open(executor, plain(), "on").await?.identity()));
    assert_eq!(found, Ok(restored), "also when the power has gone");
}
