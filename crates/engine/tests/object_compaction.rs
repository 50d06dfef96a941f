//! The blank end of a direct partition's file, which is cut off while its objects are used.

use crate::ground::backups as ground;
use crate::ground::compacting::{self, ClientsBeside, until_cut};
use crate::ground::restoring;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PartitionId, Random};
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, Design, Parameters};
use entresol_engine::{
    BackupSettings, Compaction, Database, Error, PartitionSpec, RestoreSource, RestoreTarget, Result, Settings, buffer,
    second_level,
};
use executor::Executor;
use ground::{on, restored};
use restoring::{backup, behind_increment, to};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use virtual_driver::{FaultPlan, Media, Slow};

const PAGE: u64 = 1024;
const PER_PAGE: u64 = 4;
const PAGES: u64 = 400;
const OBJECTS: u64 = PAGES * PER_PAGE;

/// What objects begin with that were changed.
type Model = BTreeMap<u64, u8>;

fn settings(is_cached: bool) -> Settings {
    let archived = restoring::settings();
    let buffer = buffer::Settings { growth_step: 16 << 10, ..archived.buffer };
    let design = Design::named("lazy-cleaning").expect("it has this name");
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    let cache = CacheSettings { design, parameters, ..CacheSettings::new("flash", 40) };
    let hierarchy = match is_cached {
        true => second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        false => second_level::Settings::default(),
    };
    Settings { buffer, hierarchy, ..archived }
}

fn plain() -> Settings {
    Settings { log: restoring::plain().log, ..settings(false) }
}

async fn created(executor: &Executor, settings: Settings) -> Result<(Database, PartitionId)> {
    let database = Database::create(executor, settings).await?;
    let objects = Organization::Direct { objects: OBJECTS, blocking_factor: PER_PAGE as u32, record_size: 200 };
    let id = database.create_partition(PartitionSpec::new("rows", objects, Locking::Record)).await?;
    Ok((database, id))
}

/// Changes objects, a few in each transaction.
async fn change(
    database: &Database,
    id: PartitionId,
    numbers: impl IntoIterator<Item = u64>,
    (model, random): (&mut Model, &mut Random),
) -> Result<()> {
    for number in numbers {
        let byte = random.between(1, 255) as u8;
        database.transaction(async |tx| tx.modify_object(id, number, |bytes| bytes[0] = byte).await).await?;
        model.insert(number, byte);
    }
    Ok(())
}

async fn contents(database: &Database, id: PartitionId) -> Result<Model> {
    let mut found = Model::new();
    let mut tx = database.begin().await?;
    let look = |number, bytes: &[u8]| {
        assert!(bytes[1..].iter().all(|byte| *byte == 0));
        if bytes[0] != 0 {
            found.insert(number, bytes[0]);
        }
    };
    tx.scan_objects(id, 0..OBJECTS, look).await?;
    tx.commit().await?;
    Ok(found)
}

async fn check(database: &Database, id: PartitionId, model: &Model) -> Result<()> {
    compacting::check(database, contents(database, id).await?, model).await
}

/// The length of the file in pages.
fn pages(media: &Media) -> u64 {
    media.length("disk", "rows.pages").expect("it is there") / PAGE
}

#[test]
fn the_file_ends_with_the_last_page_that_was_changed_and_grows_again() {
    for is_cached in [false, true] {
        let media = Media::new();
        let (mut model, random) = (Model::new(), &mut Random::stream(1, "objects"));
        on(&media, async |executor| {
            let (database, id) = created(executor, settings(is_cached)).await?;
            let last = 90 * PER_PAGE + 2;
            let numbers: Vec<_> = (0..150).map(|_| random.below(last)).chain([last]).collect();
            change(&database, id, numbers, (&mut model, random)).await?;
            let done = database.compact_partition(id).await?;
            assert_eq!(done, Compaction { given_back: (PAGES - 91) * PAGE, ..Compaction::default() });
            assert_eq!((pages(&media), database.size(id).await?.file), (91, 91 * PAGE));
            check(&database, id, &model).await?;
            assert_eq!(database.compact_partition(id).await?, Compaction::default(), "all is given back");
            change(&database, id, [95 * PER_PAGE], (&mut model, random)).await?;
            assert!((96..PAGES / 2).contains(&pages(&media)), "{} pages", pages(&media));
            check(&database, id, &model).await?;
            database.compact_partition(id).await?;
            assert_eq!(pages(&media), 96);
            database.close().await
        })
        .expect("works");
        on(&media, async |executor| {
            let database = Database::open(executor, settings(is_cached), "again").await?;
            let id = database.partition("rows")?;
            check(&database, id, &model).await?;
            change(&database, id, [OBJECTS - 1, 300 * PER_PAGE], (&mut model, random)).await?;
            assert_eq!(pages(&media), PAGES, "it has all pages, and no more");
            check(&database, id, &model).await?;
            assert_eq!(database.compact_partition(id).await?.given_back, 0);
            Ok::<(), Error>(())
        })
        .expect("opens");
        on(&media, async |executor| {
            let database = Database::open(executor, settings(is_cached), "once more").await?;
            check(&database, database.partition("rows")?, &model).await
        })
        .expect("opens");
    }
}

#[test]
fn what_the_file_has_lost_before_its_end_is_missed_by_name() {
    let media = Media::new();
    let (mut model, random) = (Model::new(), &mut Random::stream(2, "objects"));
    on(&media, async |executor| {
        let (database, id) = created(executor, settings(false)).await?;
        change(&database, id, 0..40 * PER_PAGE, (&mut model, random)).await?;
        database.compact_partition(id).await?;
        change(&database, id, [42 * PER_PAGE], (&mut model, random)).await?;
        database.close().await?;
        let device = executor.device("disk").expect("it exists");
        let (file, _) = executor.open(device, "rows.pages", false).await?;
        executor.perform(Op::Resize { file, length: 30 * PAGE, prewrite: false }).await.result?;
        Ok::<(), Error>(())
    })
    .expect("works");
    on(&media, async |executor| {
        let database = Database::open(executor, settings(false), "here").await?;
        let id = database.partition("rows")?;
        let read =
            async |number| database.transaction(async |tx| tx.read_object(id, number, |bytes| bytes[0]).await).await;
        assert_eq!(read(29 * PER_PAGE).await, Ok(model[&(29 * PER_PAGE)]));
        for lost in [30, 39, 42] {
            let found = read(lost * PER_PAGE).await;
            assert!(
                matches!(&found, Err(Error::DamagedPage { file, .. }) if file == "rows.pages"),
                "{lost}: {found:?}"
            );
        }
        assert_eq!(read(OBJECTS - 1).await, Ok(0), "nothing was ever there");
        let write = async |number| {
            database.transaction(async |tx| tx.modify_object(id, number, |bytes| bytes[0] = 1).await).await
        };
        for behind in [OBJECTS - 1, 60 * PER_PAGE] {
            let found = write(behind).await;
            assert!(matches!(&found, Err(Error::DamagedPage { page, .. }) if page.number == 30), "{behind}: {found:?}");
        }
        let found = database.compact_partition(id).await;
        assert!(matches!(&found, Err(Error::DamagedPage { page, .. }) if page.number == 30), "{found:?}");
        assert!(read(39 * PER_PAGE).await.is_err() && pages(&media) == 30, "what is lost stays so");
        Ok::<(), Error>(())
    })
    .expect("opens");
}

/// The change behind the loss is in the log, of a partition whose file was cut before and of one whose file never was.
#[test]
fn a_restart_makes_no_file_longer_that_has_lost_pages() {
    for is_compacted in [false, true] {
        let media = Media::new();
        let (mut model, random) = (Model::new(), &mut Random::stream(5, "objects"));
        on(&media, async |executor| {
            let (database, id) = created(executor, settings(false)).await?;
            change(&database, id, 0..40 * PER_PAGE, (&mut model, random)).await?;
            if is_compacted {
                database.compact_partition(id).await?;
            }
            database.close().await
        })
        .expect("works");
        on(&media, async |executor| {
            let database = Database::open(executor, settings(false), "here").await?;
            change(&database, database.partition("rows")?, [60 * PER_PAGE], (&mut model, random)).await?;
            let device = executor.device("disk").expect("it exists");
            let (file, _) = executor.open(device, "rows.pages", false).await?;
            executor.perform(Op::Resize { file, length: 30 * PAGE, prewrite: false }).await.result?;
            Ok::<(), Error>(())
        })
        .expect("works");
        for again in ["again", "once more"] {
            let opened = on(&media, async |executor| Database::open(executor, settings(false), again).await.map(drop));
            let is_named = matches!(&opened, Err(Error::DamagedPage { page, .. }) if page.number == 30);
            assert!(is_named, "{is_compacted}: {opened:?}");
        }
        assert_eq!(pages(&media), 30);
    }
}

#[test]
fn what_is_being_written_when_a_cut_begins_stays() {
    for length in 1..100 {
        // The last write that begins in this time ends while the compaction reads.
        let (from, length_ns) = (Instant::from_ns(SECOND_NS), length * MILLISECOND_NS / 10);
        let slow = Slow { device: "disk".to_owned(), from, until: from.plus_ns(length_ns), factor: 50.0 };
        let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
        ground::under(faults, &Media::new(), async |executor| {
            let (database, id) = created(executor, settings(false)).await?;
            let mut model = Model::new();
            change(&database, id, [350 * PER_PAGE], (&mut model, &mut Random::stream(6, "objects"))).await?;
            executor.sleep_ns(from.since_ns(executor.now())).await;
            let writing = {
                let database = database.clone();
                executor.spawn(async move { database.checkpoint().await })
            };
            executor.sleep_ns(length_ns).await;
            database.compact_partition(id).await?;
            writing.join().await?;
            check(&database, id, &model).await
        })
        .unwrap_or_else(|error| panic!("{length}: {error}"));
    }
}

/// Changes objects until the compaction has ended: of one client, those with its own remainder, most of them in the front.
async fn change_beside(
    database: &Database,
    id: PartitionId,
    model: &RefCell<Model>,
    is_over: &Cell<bool>,
    client: u64,
) {
    let mut random = Random::stream(client, "beside");
    while !is_over.get() {
        let range = [20, 60, 120, PAGES][random.below(4) as usize] * PER_PAGE;
        let (number, byte) = (3 * random.below(range / 3) + client % 3, random.between(1, 255) as u8);
        let is_kept = random.chance(0.7);
        let change = async |tx: &mut entresol_engine::Transaction| {
            tx.modify_object(id, number, |bytes| bytes[0] = byte).await?;
            if is_kept { Ok(()) } else { Err(Error::Setting("rolled back".to_owned())) }
        };
        assert_eq!(database.transaction(change).await.is_ok(), is_kept);
        if is_kept {
            model.borrow_mut().insert(number, byte);
        }
        database.executor().sleep_ns(random.below(3 * MILLISECOND_NS)).await;
    }
}

#[test]
fn transactions_go_on_beside_a_compaction() {
    let mut given_back = 0;
    for seed in 0..12 {
        let (media, is_cached) = (Media::new(), seed % 2 == 1);
        let model = on(&media, async |executor| {
            let (database, id) = created(executor, settings(is_cached)).await?;
            let mut old = database.snapshot().await?;
            let clients = ClientsBeside::begin(executor, Model::new(), seed, |model, is_over, client| {
                let database = database.clone();
                async move { change_beside(&database, id, &model, &is_over, client).await }
            });
            for _ in 0..8 {
                executor.sleep_ns(2 * MILLISECOND_NS).await;
                given_back += database.compact_partition(id).await?.given_back;
            }
            let model = clients.end().await;
            for number in (0..OBJECTS).step_by(5) {
                assert_eq!(
                    old.read_object(id, number, |bytes| bytes[0]).await?,
                    0,
                    "a snapshot from before all changes"
                );
            }
            drop(old);
            check(&database, id, &model).await?;
            database.compact_partition(id).await?;
            check(&database, id, &model).await?;
            Ok::<_, Error>(model)
        });
        let model = model.unwrap_or_else(|error| panic!("{seed}: {error}"));
        on(&media, async |executor| {
            let database = Database::open(executor, settings(is_cached), "again").await?;
            check(&database, database.partition("rows")?, &model).await
        })
        .unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
    assert!(given_back > 0);
}

#[test]
fn whenever_the_power_goes_every_object_is_there() {
    for is_cached in [false, true] {
        let prepared = Media::new();
        let (mut model, random) = (Model::new(), &mut Random::stream(3, "objects"));
        on(&prepared, async |executor| {
            let (database, id) = created(executor, settings(is_cached)).await?;
            change(&database, id, (0..40 * PER_PAGE).step_by(7), (&mut model, random)).await?;
            database.close().await
        })
        .expect("works");
        let (mut event, mut shorter, mut is_cut) = (30, 0, true);
        while is_cut {
            let (media, acknowledged) = (prepared.copy(), RefCell::new(model.clone()));
            is_cut = until_cut(&media, event, async |executor| {
                let database = Database::open(executor, settings(is_cached), "cut").await?;
                let (id, mut random) = (database.partition("rows")?, Random::stream(event, "cut off"));
                for _ in 0..3 {
                    let changing = {
                        let numbers: Vec<_> = (0..25).map(|_| random.below(70 * PER_PAGE)).collect();
                        let (database, acknowledged) = (&database, &acknowledged);
                        async move {
                            for number in numbers {
                                let change = async |tx: &mut entresol_engine::Transaction| {
                                    tx.modify_object(id, number, |bytes| bytes[0] = 99).await
                                };
                                database.transaction(change).await?;
                                acknowledged.borrow_mut().insert(number, 99);
                            }
                            Ok::<_, Error>(())
                        }
                    };
                    changing.await?;
                    assert!(database.compact_partition(id).await?.given_back > 0 || pages(&media) < PAGES);
                }
                Ok(())
            });
            shorter += u32::from(is_cut && pages(&media) < PAGES);
            on(&media, async |executor| {
                let database = Database::open(executor, settings(is_cached), "again").await?;
                let id = database.partition("rows")?;
                let (mut found, expected) = (contents(&database, id).await?, acknowledged.borrow().clone());
                // The commit that was under way may be there or not.
                let differing = found.iter().filter(|(number, byte)| expected.get(*number) != Some(*byte)).count();
                assert!(differing <= 1 && expected.keys().all(|number| found.contains_key(number)), "{differing}");
                check(&database, id, &found).await?;
                database.compact_partition(id).await?;
                assert!(pages(&media) <= 71);
                change(&database, id, [OBJECTS / 2], (&mut found, &mut Random::stream(event, "again"))).await?;
                check(&database, id, &found).await
            })
            .unwrap_or_else(|error| panic!("cut at {event}: {error}"));
            event += 1 + event / 8;
        }
        assert!(shorter > 3, "{shorter} were cut off with a shorter file");
    }
}

#[test]
fn what_is_backed_up_before_and_after_a_cut_is_restored() {
    on(&Media::new(), async |executor| {
        let (database, id) = created(executor, settings(false)).await?;
        let (mut model, random) = (Model::new(), &mut Random::stream(4, "objects"));
        change(&database, id, (0..20 * PER_PAGE).step_by(3), (&mut model, random)).await?;
        database.backup(&BackupSettings { target: "next".into(), ..backup() }, |_| {}).await?;
        database.compact_partition(id).await?;
        database.backup(&BackupSettings { base: Some("next".into()), ..backup() }, |_| {}).await?;
        let at_increment = model.clone();
        change(&database, id, [200 * PER_PAGE, 21 * PER_PAGE], (&mut model, random)).await?;
        database.close().await?;
        for (source, expected) in behind_increment().into_iter().zip([&model, &model, &at_increment]) {
            let (database, _) = restored(executor, &plain(), &source).await?;
            let id = database.partition("rows")?;
            check(&database, id, expected).await?;
            let mut more = expected.clone();
            change(&database, id, [OBJECTS - 1, 100], (&mut more, random)).await?;
            check(&database, id, &more).await?;
            database.close().await?;
        }
        Ok::<(), Error>(())
    })
    .expect("works");
}

#[test]
fn a_cut_waits_for_a_backup() {
    on(&Media::new(), async |executor| {
        let (database, id) = created(executor, settings(false)).await?;
        let (mut model, random) = (Model::new(), &mut Random::stream(5, "objects"));
        change(&database, id, 0..30, (&mut model, random)).await?;
        let others = Organization::Direct { objects: OBJECTS, blocking_factor: 1, record_size: 8 };
        let others = database.create_partition(PartitionSpec::new("others", others, Locking::Record)).await?;
        change(&database, others, [0], (&mut Model::new(), random)).await?;
        let backing = {
            let database = database.clone();
            let slow = BackupSettings { bytes_per_second: Some(500), ..backup() };
            executor.spawn(async move { database.backup(&slow, |_| {}).await })
        };
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        let began = executor.now();
        assert_eq!(database.compact_partition(id).await, Err(Error::PartitionInUse("rows".to_owned())));
        assert!(executor.now().since_ns(began) < 12 * SECOND_NS && !backing.is_finished());
        backing.join().await?;
        assert!(database.compact_partition(id).await?.given_back > 0, "another one goes on");
        check(&database, id, &model).await?;
        database.close().await?;
        let source = RestoreSource { archive: None, ..to(RestoreTarget::End) };
        let (database, _) = restored(executor, &plain(), &source).await?;
        check(&database, database.partition("rows")?, &model).await
    })
    .expect("works");
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn changes_that_are_cut_off_are_found() {
        is_found(Canary::CutChanges, what_is_being_written_when_a_cut_begins_stays);
    }
}
