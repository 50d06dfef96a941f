//! What comes past the log, or reaches it in part, at moments that are read after an opening: bulk loads, and commits of sets that were cut off.

use crate::ground::cut_machine::run_up_to;
use crate::ground::kept::{HOUR_NS, on, open, put, settings};
use base::time::SECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings, Snapshot, Transaction};
use executor::Executor;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Bound;
use virtual_driver::{Hardware, Media, PowerCut};

/// Keys of records that are loaded.
const LOADED: u64 = 3_000;

/// What a snapshot shows of partitions that are loaded whole: how many records each has.
async fn counts(past: &mut Snapshot, ids: [PartitionId; 3]) -> Result<[usize; 3]> {
    let mut found = [0; 3];
    for (count, id) in found.iter_mut().zip(ids) {
        *count = match past.scan_set(id, |_, _| true).await {
            Err(Error::WrongOrganization { .. }) => {
                let mut cursor = past.cursor(id, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                let mut count = 0;
                while past.next(&mut cursor).await?.is_some() {
                    count += 1;
                }
                count
            }
            scanned => {
                scanned?;
                let mut count = 0;
                past.scan_set(id, |_, _| {
                    count += 1;
                    true
                })
                .await?;
                count
            }
        };
    }
    Ok(found)
}

/// A tree is loaded while the sweep of a set's load goes on, and others commit beside it.
#[test]
fn what_was_loaded_is_there_from_the_end_of_its_load_on() {
    for seed in 0..6 {
        let (media, settings) = (Media::new(), settings(HOUR_NS, 8 << 20));
        let moments = on(&media, 100 * SECOND_NS, async |executor| {
            let database = Database::create(executor, settings.clone()).await?;
            let [set, tree, other] =
                [PartitionSpec::set("set"), PartitionSpec::b_tree("tree"), PartitionSpec::b_tree("other")];
            let set = database.create_partition(set).await?;
            let (tree, other) = (database.create_partition(tree).await?, database.create_partition(other).await?);
            let mut random = Random::stream(seed, "moments of loads");
            let records = || (0..LOADED).map(|number| (number.to_be_bytes(), [7; 100]));
            let this = database.clone();
            let loading = executor.spawn(async move { this.load_set(set, records(), |_| {}).await });
            let (this, pause) = (database.clone(), random.below(3) * SECOND_NS / 1000);
            let own = executor.clone();
            let loading_tree = executor.spawn(async move {
                own.sleep_ns(pause).await;
                this.load_b_tree(tree, records(), |_| {}).await
            });
            let mut moments = Vec::new();
            for number in 0_u64.. {
                let is_over = loading.is_finished() && loading_tree.is_finished();
                put(&database, other, number as u8, &[1]).await?;
                let mut now = database.snapshot().await?;
                moments.push((now.moment(), counts(&mut now, [set, tree, other]).await?));
                executor.sleep_ns(random.below(SECOND_NS / 2000)).await;
                if is_over {
                    break;
                }
            }
            loading.join().await?;
            loading_tree.join().await?;
            Ok(moments)
        });
        for which in 0..2 {
            let states: BTreeSet<usize> = moments.iter().map(|(_, counts)| counts[which]).collect();
            assert_eq!(states, BTreeSet::from([0, LOADED as usize]), "seed {seed}");
        }
        for opening in 2..4 {
            on(&media, opening * 100 * SECOND_NS, async |executor| {
                let database = open(executor, &settings).await?;
                let ids = ["set", "tree", "other"].map(|name| database.partition(name).expect("it is there"));
                for (moment, expected) in &moments {
                    let mut past = database.as_of(*moment).await?;
                    assert_eq!(counts(&mut past, ids).await?, *expected, "seed {seed} as of {moment}");
                }
                Ok(())
            });
        }
    }
}

/// How many records the commit changes that is cut off.
const CHANGED: u8 = 40;

/// What such a commit says of records before is short and may be in the log without it. The same records are changed later.
#[test]
fn a_commit_that_was_cut_off_hides_no_moment() {
    let change = async |tx: &mut Transaction, set: PartitionId, value: u8| {
        for key in 0..CHANGED {
            tx.put(set, &[key], &[value; 1_000]).await?;
        }
        Ok::<(), Error>(())
    };
    let mut settings = settings(HOUR_NS, 8 << 20);
    // A page survives or not.
    settings.log.page_size = 512;
    for (event, cut) in (1..).flat_map(|event| (0..20).map(move |cut| (event, cut))) {
        let (media, before) = (Media::new(), Cell::new(None));
        let ended = run_up_to(&media, Hardware::ideal(), Some(event), async |executor| {
            let database = open_or_create(executor, &settings, true).await?;
            let set = database.partition("set")?;
            before.set(Some(put(&database, set, CHANGED, &[1]).await?));
            database.transaction(async |tx| change(tx, set, 1).await).await
        });
        media.power_cut(&mut Random::stream(cut, "cut"), &PowerCut::default());
        let Some(before) = before.get() else { continue };
        let mut moments = vec![(before, None)];
        for opening in 2..5_u8 {
            on(&media, u64::from(opening) * 100 * SECOND_NS, async |executor| {
                let database = open_or_create(executor, &settings, false).await?;
                let set = database.partition("set")?;
                for (moment, value) in &moments {
                    let mut past = database.as_of(*moment).await?;
                    for key in 0..CHANGED {
                        let expected = value.map(|value: u8| vec![value; 1_000]);
                        assert_eq!(past.get(set, &[key]).await?, expected, "cut at {event}, {cut}: {moment}");
                    }
                }
                database.transaction(async |tx| change(tx, set, opening).await).await?;
                moments.push((put(&database, set, CHANGED, &[1]).await?, Some(opening)));
                Ok(())
            });
        }
        if ended.is_ok() {
            break;
        }
    }
}

async fn open_or_create(executor: &Executor, settings: &Settings, is_new: bool) -> Result<Database> {
    if !is_new {
        return open(executor, settings).await;
    }
    let database = Database::create(executor, settings.clone()).await?;
    database.create_partition(PartitionSpec::set("set")).await?;
    Ok(database)
}

#[cfg(feature = "canary")]
#[test]
fn what_is_loaded_at_moments_before_its_load_is_found() {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;
    is_found(Canary::PresentForPast, what_was_loaded_is_there_from_the_end_of_its_load_on);
}
