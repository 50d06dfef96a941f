//! The second-level cache while the database runs: its design and size, off and on, and which partitions may enter.

use super::Database;
use crate::checkpoint::state_tiers;
use crate::engine::new_stamp;
use crate::io::device;
use crate::recovery::{CacheNotOpened, NewCache, are_same_slots, create_cache, unless_bad};
use crate::second_level::{self, CacheSettings, Spending, Tiers};
use crate::tier_file::table::SlotTable;
use crate::tier_file::{Kind, TierMark, TierRecord};
use crate::{Error, Result};
use base::units::format_duration_ns;
use base::{Instant, PartitionId};
use driver::{Fault, FaultKind};
use executor::{JoinHandle, Turn, Unanswered, WholeExecutor};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Changes of the cache while the database runs.
#[derive(Default)]
pub struct CacheChanges {
    /// The change that is under way.
    pub turn: Turn,
    /// Devices on which the creation of a cache's files has not ended. A driver cannot take it back, and its end may remove
    /// or replace files of that name.
    creating: Rc<RefCell<BTreeSet<String>>>,
    /// Those that the opening has asked for caches in vain, and until when.
    bad: RefCell<BTreeMap<String, Instant>>,
    /// What was left of the budget of writes when the cache was turned off.
    spending: RefCell<Option<Spending>>,
}

impl Database {
    /// The cache as it is, be it that it was changed since the database was opened; `None` if there is none.
    pub fn cache(&self) -> Option<CacheSettings> {
        self.0.cache.borrow().clone()
    }

    /// Changes the cache while the database runs: another design, size or device, other parameters or another budget of writes;
    /// `None` turns it off. That holds until the next change or opening: the configuration is as it was.
    ///
    /// Pages go past the cache meanwhile, and what only it has is written to the pages' own devices. A cache of another design
    /// keeps its contents; one of another size or on another device begins empty, and is a new file. The change goes on to its end
    /// even if the caller is given up.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::second_level::{CacheSettings, Design};
    /// # with_database(async |database| {
    ///
    /// let lazy = Design::named("lazy-cleaning").expect("it has this name");
    /// database.set_cache(Some(CacheSettings { design: lazy, ..CacheSettings::new("disk", 200) })).await?;
    /// assert_eq!(database.cache().map(|cache| cache.pages), Some(200));
    /// database.set_cache(None).await?;
    /// assert!(database.tiers().is_empty());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`] or [`Error::NoDevice`] if there cannot be such a cache; the driver's, [`Error::DamagedPage`] or
    /// [`Error::CacheBusy`] if what only the cache has cannot be written to the pages' own devices: then the cache is as it was;
    /// [`Error::Closed`]. The driver's if a file of the new size cannot be had or the superblock cannot be written: then no cache is in use.
    pub async fn set_cache(&self, cache: Option<CacheSettings>) -> Result<()> {
        if let Some(cache) = &cache {
            device(self.executor().whole(), &cache.device)?;
            cache.check(self.settings().buffer.page_size)?;
        }
        let this = self.clone();
        let executor = self.0.engine.core.executor.clone();
        executor.spawn(async move { this.change_cache(cache).await }).join().await
    }

    /// Whether pages of a partition may enter the cache from now on. Those that are there stay until they leave by themselves.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::WrongOrganization`] if it is kept in main memory as a whole.
    pub fn admit_to_cache(&self, partition: PartitionId, is_admitted: bool) -> Result<()> {
        let described = self.describe(partition)?;
        if described.set_settings().is_some() {
            return Err(described.wrong_organization("a set is in main memory as a whole"));
        }
        self.buffer().find_space(partition)?.admit(is_admitted);
        Ok(())
    }

    /// The cache that an earlier opening has left is not there, and redo has missed nothing: openings need not look for it any more,
    /// and the one that the settings ask for takes its place, unless its device is bad.
    pub(super) async fn replace_missing_cache(&self) -> Result<Option<CacheNotOpened>> {
        let wanted = self.0.cache.take();
        self.set_cache(None).await?;
        let Some(cache) = wanted else { return Ok(None) };
        // Only this asks nothing of other devices.
        match unless_bad(self.create_cache(Kind::Cache, &cache).await, (Kind::Cache, &cache.device))? {
            Ok(new) => {
                let this = self.clone();
                self.executor().spawn(async move { this.take_into_use(cache, new).await }).join().await.map(|()| None)
            }
            Err(bad) => Ok(Some(bad)),
        }
    }

    /// The opening does without a cache. What it has begun to create may still be under way, so none is created there until that has ended.
    pub(super) fn go_on_without(&self, bad: CacheNotOpened) {
        match bad.kind {
            Kind::UpperCache => self.0.upper_cache.replace(None),
            _ => self.0.cache.replace(None),
        };
        self.0.changes.bad.borrow_mut().insert(bad.device, self.executor().now());
    }

    /// A cache that is turned on behind an opening begins with nothing of its budget of writes, as the one of the opening does.
    pub(super) fn begin_spent(&self) {
        self.0.changes.spending.replace(Some(Spending::spent(self.executor().now())));
    }

    async fn change_cache(&self, cache: Option<CacheSettings>) -> Result<()> {
        let engine = &self.0.engine;
        let _change = self.0.changes.turn.take(self.executor().whole()).await;
        engine.core.check_open()?;
        // The slots stay as they are until then.
        engine.core.buffer.redo_rest().await?;
        let before = engine.core.buffer.tiers();
        // A first time beside checkpoints, so that the log has room while much is written.
        close(before.as_ref()).await?;
        let paging = engine.checkpointer.paging.take(self.executor().whole()).await;
        close(before.as_ref()).await?;
        if let (Some(tiers), Some(cache)) = (&before, &cache)
            && self.cache().is_some_and(|present| are_same_slots(self.executor().whole(), &present, cache))
            && !tiers.is_lost()
        {
            tiers.redesign(cache, self.settings().force);
            tiers.reopen();
            self.0.cache.replace(Some(cache.clone()));
            return Ok(());
        }
        self.turn_off(before.as_deref()).await?;
        drop(paging);
        match cache {
            Some(cache) => self.turn_on(cache).await,
            None => Ok(()),
        }
    }

    /// Goes on without the cache, which is at rest. From then on an opening does not look for it. The caller has the turn to
    /// take a checkpoint.
    async fn turn_off(&self, before: Option<&Tiers>) -> Result<()> {
        let engine = &self.0.engine;
        let _turn = engine.checkpointer.turn.take(self.executor().whole()).await;
        let records = self.records_without_cache();
        let before_change = engine.catalog.superblock.borrow().tiers.clone();
        self.0.cache.replace(None);
        // Also where the superblock says so already: a write of it that failed may have said something else.
        if let Err(error) = state_tiers(engine, (records, None)).await {
            // An opening may find either.
            engine.catalog.superblock.borrow_mut().tiers = before_change;
            before.into_iter().for_each(Tiers::give_up_cache);
            return Err(error);
        }
        let without = second_level::Settings { cache: None, ..self.settings().hierarchy.clone() };
        if let Some(spending) = before.and_then(Tiers::end_spending) {
            self.0.changes.spending.replace(Some(spending));
        }
        self.buffer().set_tiers(before.and_then(|tiers| tiers.successor((&without, self.settings().force), None)));
        Ok(())
    }

    /// Creates a cache where there is none, and has pages enter it. If that fails there is none.
    async fn turn_on(&self, cache: CacheSettings) -> Result<()> {
        // No turn is held meanwhile: a large file takes long.
        let new = self.create_cache(Kind::Cache, &cache).await?;
        self.take_into_use(cache, new).await
    }

    /// Has pages enter a cache that was created.
    async fn take_into_use(&self, cache: CacheSettings, new: NewCache) -> Result<()> {
        let (engine, NewCache { file, record, table }) = (&self.0.engine, new);
        let present = self.buffer().tiers();
        close(present.as_ref()).await?;
        let _paging = engine.checkpointer.paging.take(self.executor().whole()).await;
        close(present.as_ref()).await?;
        let with = second_level::Settings { cache: Some(cache.clone()), ..self.settings().hierarchy.clone() };
        let wanted = (&with, self.settings().force);
        let tiers = match &present {
            Some(present) => present.successor(wanted, Some(file)),
            None => Some(self.buffer().new_tiers(wanted, file)),
        };
        let position = table.as_ref().map(SlotTable::position);
        let tiers = tiers.inspect(|tiers| {
            table.into_iter().for_each(|table| tiers.set_table(table));
            tiers.go_on_spending(self.0.changes.spending.take());
        });
        let _turn = engine.checkpointer.turn.take(self.executor().whole()).await;
        let without = self.records_without_cache();
        // What a cache is about to hold must be looked for by the next opening.
        let records = without.iter().cloned().chain(record).collect();
        if let Err(error) = state_tiers(engine, (records, position)).await {
            engine.catalog.superblock.borrow_mut().tiers = without;
            self.0.changes.spending.replace(tiers.as_ref().and_then(|tiers| tiers.end_spending()));
            present.iter().for_each(|present| present.reopen());
            return Err(error);
        }
        self.buffer().set_tiers(tiers);
        self.0.cache.replace(Some(cache));
        Ok(())
    }

    /// Creates the files of a cache, unless its device does not answer.
    pub(super) async fn create_cache(&self, kind: Kind, cache: &CacheSettings) -> Result<NewCache> {
        let executor = self.executor().whole();
        let page_size = self.settings().buffer.page_size;
        let database = self.0.engine.catalog.superblock.borrow().identity.unwrap_or_default();
        let mark = TierMark { stamp: new_stamp(&self.0.engine), database, is_new: false };
        let is_memory = executor.traits(device(executor, &cache.device)?).synchronous;
        let limit_ns = cache.creation_ns_max(u64::from(cache.pages) * page_size as u64, is_memory);
        if limit_ns == 0 {
            return create_cache(executor, (kind, cache), (page_size, mark)).await;
        }
        let created = self.begin_creation((kind, cache), (page_size, mark))?;
        executor.within(limit_ns, created.join()).await.unwrap_or_else(|| {
            let limit = format_duration_ns(limit_ns as f64);
            Err(silent(kind, &cache.device, &format!("was not created within {limit}")))
        })
    }

    /// Begins to create the files of a cache, unless that has begun on the same device before and has not ended.
    fn begin_creation(
        &self,
        (kind, cache): (Kind, &CacheSettings),
        wanted: (usize, TierMark),
    ) -> Result<JoinHandle<Result<NewCache>>> {
        let creating = Rc::clone(&self.0.changes.creating);
        let asked_until = self.0.changes.bad.borrow().get(&cache.device).copied();
        // What another cache on the device asks for since then is none of the opening's.
        let is_of_opening = |request: &Unanswered| {
            request.device == cache.device && asked_until.is_some_and(|until| request.since <= until)
        };
        if self.executor().whole().unanswered(0).iter().any(is_of_opening) {
            return Err(silent(kind, &cache.device, "was being created by the opening, which has not been answered"));
        }
        if !creating.borrow_mut().insert(cache.device.clone()) {
            return Err(silent(kind, &cache.device, "is still being created by an earlier change"));
        }
        let (executor, cache) = (self.0.engine.core.executor.clone(), cache.clone());
        let engine = Rc::downgrade(&self.0.engine);
        Ok(executor.clone().spawn(async move {
            let created = {
                let mut creation = pin!(create_cache(&executor, (kind, &cache), wanted));
                // The next opening may make files of these names: what was begun cannot be taken back, but nothing follows it.
                let goes_on = || engine.upgrade().is_some_and(|engine| !engine.core.closing.get());
                poll_fn(|context| match goes_on() {
                    true => creation.as_mut().poll(context),
                    false => Poll::Ready(Err(Error::Closed)),
                })
                .await
            };
            creating.borrow_mut().remove(&cache.device);
            created
        }))
    }

    /// What the superblock says of the other tiers.
    fn records_without_cache(&self) -> Vec<TierRecord> {
        let stated = &self.0.engine.catalog.superblock.borrow().tiers;
        stated.iter().filter(|record| record.kind != Kind::Cache).cloned().collect()
    }
}

/// That a device does not answer while the file of a cache is created.
fn silent(kind: Kind, device: &str, what: &str) -> Error {
    let cache = if kind == Kind::UpperCache { "upper cache" } else { "cache" };
    Error::Input(Fault::new(FaultKind::Device, format!("the file of the {cache} {what}: device '{device}' may hang")))
}

/// Closes the tiers, if there are any; they are drained and at rest then.
pub(super) async fn close(tiers: Option<&Rc<Tiers>>) -> Result<()> {
    match tiers {
        Some(tiers) => tiers.close().await,
        None => Ok(()),
    }
}
