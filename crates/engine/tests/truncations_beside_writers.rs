//! Truncations and renamings of a partition to which others write, until the power goes.

use crate::ground::kinds::{cut, prepared, run, spec, strangers, tiered, whole};
use base::{PartitionId, Random};
use entresol_engine::{Database, Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use virtual_driver::FaultPlan;

/// What a writer, and one who truncates and renames, have done.
#[derive(Default)]
struct Deeds {
    /// Each key with the number of the partition that it was written to, and whether that was acknowledged.
    writes: RefCell<Vec<(u64, PartitionId, bool)>>,
    /// The partitions that acknowledged truncations have emptied.
    emptied: RefCell<Vec<PartitionId>>,
    /// The names that the partition may have.
    names: RefCell<Vec<&'static str>>,
}

impl Deeds {
    fn find(&self, database: &Database) -> Option<PartitionId> {
        ["hot", "cold"].into_iter().find_map(|name| database.partition(name).ok())
    }

    async fn write_on(&self, database: &Database) -> Result<()> {
        for key in 0.. {
            let Some(id) = self.find(database) else {
                database.executor().sleep_ns(100_000).await;
                continue;
            };
            let place = self.writes.borrow().len();
            self.writes.borrow_mut().push((key, id, false));
            let written = database.transaction(async |tx| {
                tx.put(id, &key.to_be_bytes(), &[7; 100]).await?;
                tx.executor().clone().sleep_ns(50_000).await;
                Ok::<_, Error>(())
            });
            match written.await {
                Ok(()) => self.writes.borrow_mut()[place].2 = true,
                Err(Error::NoPartition(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn change_on(&self, database: &Database, mut random: Random) -> Result<()> {
        loop {
            database.executor().sleep_ns(random.below(2_000_000)).await;
            let id = self.find(database).expect("no other takes it away");
            match random.below(3) {
                0 => database.checkpoint().await?,
                1 => {
                    let other = if database.partition("hot").is_ok() { "cold" } else { "hot" };
                    self.names.borrow_mut().push(other);
                    database.rename_partition(id, other).await?;
                    self.names.replace(vec![other]);
                }
                _ => {
                    database.truncate_partition(id).await?;
                    self.emptied.borrow_mut().push(id);
                }
            }
        }
    }
}

#[test]
fn what_was_written_beside_truncations_and_renamings_is_there_if_it_came_later() {
    let (mut emptied, mut renamed) = (0, 0);
    for (seed, kind) in (0..60).map(|seed| (seed, if seed % 2 == 0 { 0 } else { 3 })) {
        let media = prepared();
        let (deeds, mut random) = (Rc::new(Deeds::default()), Random::stream(seed, "deeds"));
        deeds.names.replace(vec!["hot"]);
        let faults = FaultPlan { power_cut_at: Some(random.between(150, 1_500)), ..FaultPlan::default() };
        let ended = run(&media, faults, async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            database.create_partition(spec(kind, "hot")).await?;
            for _ in 0..3 {
                let (database, deeds) = (database.clone(), Rc::clone(&deeds));
                executor.spawn(async move { deeds.write_on(&database).await });
            }
            deeds.change_on(&database, random).await
        });
        assert!(ended.is_err(), "{seed}: {ended:?}");
        cut(&media, seed);
        whole(&media, async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            assert_eq!(strangers(&media, &database), [""; 0], "{seed}");
            let names = deeds.names.take();
            let found: Vec<&str> =
                ["hot", "cold"].into_iter().filter(|name| database.partition(name).is_ok()).collect();
            if found.is_empty() && deeds.writes.borrow().is_empty() {
                return Ok(());
            }
            assert!(found.len() == 1 && names.contains(&found[0]), "{seed}: {found:?} of {names:?}");
            renamed += u32::from(found[0] == "cold");
            let id = database.partition(found[0])?;
            assert!(!deeds.emptied.borrow().contains(&id), "{seed}: it was emptied");
            emptied += u32::from(!deeds.emptied.borrow().is_empty());
            let writes = deeds.writes.take();
            let mut shown = Vec::new();
            for key in 0..writes.len() as u64 {
                if database.transaction(async |tx| tx.get(id, &key.to_be_bytes()).await).await?.is_some() {
                    shown.push(key);
                }
            }
            for key in &shown {
                assert!(
                    writes.iter().any(|(of, at, _)| of == key && *at == id),
                    "{seed}: {key} was never written here"
                );
            }
            for (key, ..) in writes.iter().filter(|(_, at, acknowledged)| *acknowledged && *at == id) {
                assert!(shown.contains(key), "{seed}: {key} was acknowledged");
            }
            assert!(database.check(|_| {}).await?.is_clean(), "{seed}");
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
    assert!(emptied > 40 && renamed > 15, "{emptied} {renamed}");
}
