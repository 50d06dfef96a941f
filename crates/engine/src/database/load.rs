//! Bulk loading an empty b-tree: pages are written in the order of the file, past the buffer and the log; only the root and
//! the allocator page, last, are logged. A load that is cut off leaves an empty tree.

use super::Database;
use super::log_room::{LOADED_SIZE, complete_logged, length_of};
use crate::buffer::{LOADED, PageSpace};
use crate::catalog::{Organization, Partition};
use crate::checkpoint::state_cache_table;
use crate::engine::{Core, Visit};
use crate::mvcc::LoadInProgress;
use crate::second_level::design::Pattern;
use crate::{Error, Need, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{Frame, Op};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::allocator;
use structures::organization::b_tree::{self, BulkLoader, ROOT, stored};
use structures::page::{Edit, HEADER_SIZE, OwnedEdit, Pages, header, slotted};

/// The size of a load's writes in bytes.
const WRITE_SIZE: usize = 1 << 20;
/// How full loaded pages are: room for some growth in place.
const FILL: f64 = 0.95;
/// How often it is looked whether pages that are about to be overwritten are out of use, in nanoseconds.
const MAKE_WAY_NS: u64 = 100 * base::time::MICROSECOND_NS;

/// Pages on their way to the file: `first` is the number of the first page in the frame.
struct LoadRun {
    frame: Option<Frame>,
    first: u32,
    count: usize,
    /// The LSN that all of them get.
    lsn: Lsn,
}

impl Database {
    /// Fills an empty b-tree with records in ascending order of their keys. No other transaction may use it meanwhile, except
    /// for readers of earlier moments, for which it stays empty. `progress` is called with the number of records loaded. Values
    /// must be short enough for a leaf. What the opening has left to be undone is waited for as long as that gets on.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if the tree is not empty, or has not stayed so meanwhile; [`Error::PartitionInUse`] if it is being loaded
    /// already; [`Error::Setting`] while nodes use the database; [`Error::WrongOrganization`] if it is no b-tree, or has secondary indexes; [`Error::Field`] if a value is not of the type of its records; [`Error::Argument`] if a key is not above
    /// the one before it;
    /// [`Error::TooLarge`] if a key or value exceeds the limits of a leaf; [`Error::LogCrowded`] if for ten seconds
    /// transactions, one of the caller's own among them perhaps, keep the room in the log that its end needs;
    /// [`Error::StillUndoing`] if what the opening has left does not get on;
    /// [`Error::LogNotRelieved`], [`Error::RollbackStalled`], [`Error::LogFailed`]; or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let squares = database.create_partition(PartitionSpec::b_tree("squares")).await?;
    /// let records = (0..10_000_u64).map(|number| (number.to_be_bytes(), (number * number).to_le_bytes()));
    /// database.load_b_tree(squares, records, |_| {}).await?;
    /// let found = database.transaction(async |tx| tx.get(squares, &9_999_u64.to_be_bytes()).await).await?;
    /// assert_eq!(found, Some(99_980_001_u64.to_le_bytes().to_vec()));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn load_b_tree<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        records: impl IntoIterator<Item = (K, V)>,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let found = self.0.engine.catalog.describe(partition)?;
        if found.organization != Organization::BTree {
            return Err(found.wrong_organization("only a b-tree is loaded page by page"));
        }
        if found.index_of.is_some() || found.index_trees().next().is_some() {
            return Err(found.wrong_organization("load it before it has secondary indexes, then create these"));
        }
        // It takes no locks, and would be met by what is undone.
        self.await_undone().await?;
        self.await_leases().await?;
        let _visit = Visit::new(&self.0.engine);
        self.0.engine.core.complete(|| self.check_empty_tree(partition)).await?;
        self.check_unserved(&found, "is not loaded")?;
        let mut loading = LoadInProgress::new(&self.0.engine, partition)?;
        // What a compaction cuts off may be where this is about to write.
        self.0.engine.catalog.await_shrinking(&self.0.engine.core, Some(partition)).await?;
        let page_size = self.0.settings.buffer.page_size;
        let space = self.0.engine.core.buffer.space(partition);
        let mut loader = BulkLoader::new(partition, page_size, FILL);
        let lsn = self.lsn_of_load(&space).await?;
        let mut run = LoadRun { frame: None, first: ROOT + 1, count: 0, lsn };
        let (mut done, mut stored, mut last, mut loaded) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (key, value) in records {
            let key = key.as_ref();
            if let Some(schema) = &found.schema {
                schema.record.verify(value.as_ref()).map_err(|error| found.field_error(error))?;
            }
            stored::store_here(value.as_ref(), &mut stored);
            self.check_record(partition, key, stored.len())?;
            if loaded > 0 && *last >= *key {
                return Err(self.unordered(partition, loaded + 1));
            }
            last.clear();
            last.extend_from_slice(key);
            loader.push(key, &stored, &mut done);
            loaded += 1;
            for edit in done.drain(..) {
                self.add_loaded(&space, &mut run, &edit).await?;
            }
            if loaded % 8192 == 0 {
                progress(loaded);
            }
        }
        loader.finish(&mut done);
        let top = done.split_off(done.len().saturating_sub(2));
        for edit in done {
            self.add_loaded(&space, &mut run, &edit).await?;
        }
        self.write_loaded(&space, &mut run).await?;
        self.sync_loaded(&found, &space).await?;
        state_cache_table(&self.0.engine).await?;
        let top: Vec<Edit<'_>> = top.iter().map(OwnedEdit::as_edit).collect();
        let log = || {
            self.check_empty_tree(partition)?;
            // The change has to follow what is said of it: a restart takes what is said last of all for a load that was cut off.
            self.0.engine.core.permit(&top)?;
            self.0.engine.note_load(partition);
            self.0.engine.core.change(&top)?;
            self.0.engine.catalog.note_load(partition);
            Ok(())
        };
        complete_logged(&self.0.engine, length_of(&top) + LOADED_SIZE, log).await?;
        let end = loading.end();
        drop(loading);
        self.0.engine.core.log.flush(end).await
    }

    /// Makes sure that a record fits into a leaf.
    fn check_record(&self, partition: PartitionId, key: &[u8], stored_len: usize) -> Result<()> {
        let page_size = self.0.settings.buffer.page_size;
        let key_max = b_tree::key_len_max(page_size);
        if key.len() <= key_max && stored_len <= b_tree::value_len_max(page_size, key.len()) {
            return Ok(());
        }
        let (what, found, limit) = match key.len() <= key_max {
            true => ("a loaded value", stored_len, b_tree::value_len_max(page_size, key.len())),
            false => ("a key", key.len(), key_max),
        };
        let partition = self.0.engine.catalog.describe(partition)?.name.clone();
        Err(Error::TooLarge { what, found, limit, partition })
    }

    #[cold]
    fn unordered(&self, partition: PartitionId, number: u64) -> Error {
        let name = match self.0.engine.catalog.describe(partition) {
            Ok(found) => found.name.clone(),
            Err(error) => return error,
        };
        Error::Argument(format!(
            "record {number} for partition '{name}' is not above the one before it; load in key order"
        ))
    }

    /// Makes sure that a tree has no records, and no pages but the first two.
    fn check_empty_tree(&self, partition: PartitionId) -> Result<(), Need> {
        let pool = self.0.engine.core.buffer.pool().borrow();
        let first = pool.page(PageId::new(partition, 0))?;
        // Where a compaction has cut pages off there are copies of them with higher sequence numbers than loaded pages have.
        let is_new = allocator::read(first).page_count <= ROOT + 1 && allocator::floor(first) == 0;
        if is_new && slotted::count(pool.page(PageId::new(partition, ROOT))?) == 0 {
            return Ok(());
        }
        let name = self.0.engine.catalog.describe(partition)?.name.clone();
        Err(Error::NotEmpty(name).into())
    }

    /// Makes a load's pages durable. If that fails, the file is not used any more.
    async fn sync_loaded(&self, found: &Partition, space: &PageSpace) -> Result<()> {
        let Core { executor, buffer, .. } = &self.0.engine.core;
        match executor.device(&found.device) {
            Some(device) if canary::is_planted(Canary::ForgivenLoad) => {
                let (file, _) = executor.open(device, &found.file_name(), false).await?;
                Ok(executor.perform(Op::Sync { file }).await.result.map(drop)?)
            }
            _ => buffer.sync_space(space).await,
        }
    }

    /// The LSN of a load's pages. No other load of the partition has it, in this opening or another: by it a restart tells them from
    /// copies that a cache has kept of what an earlier load had left in their places.
    async fn lsn_of_load(&self, space: &PageSpace) -> Result<Lsn> {
        let core = &self.0.engine.core;
        if space.written() > ROOT + 1 {
            let log = || core.change(&[]);
            complete_logged(&self.0.engine, length_of(&[]), log).await?;
        }
        let lsn = core.log.end();
        // What is not durable may come a second time.
        core.log.flush(lsn).await?;
        Ok(lsn)
    }

    /// Adds a finished page to the run of pages that is written next.
    async fn add_loaded(&self, space: &Rc<PageSpace>, run: &mut LoadRun, edit: &OwnedEdit) -> Result<()> {
        let page_size = self.0.settings.buffer.page_size;
        assert_eq!(edit.page.number, run.first + run.count as u32, "loaded pages come in the order of the file");
        if run.frame.is_none() {
            run.frame = self.0.engine.core.executor.frames(1, WRITE_SIZE)?.pop();
        }
        let frame = run.frame.as_mut().expect("just made");
        let page = &mut frame[run.count * page_size..(run.count + 1) * page_size];
        space.format(page, edit.page);
        debug_assert!(page[HEADER_SIZE..].iter().all(|byte| *byte == 0));
        edit.change.as_change().apply(page, run.lsn);
        debug_assert_eq!(header::sequence(page), LOADED);
        header::seal(page);
        run.count += 1;
        if (run.count + 1) * page_size > WRITE_SIZE {
            self.write_loaded(space, run).await?;
        }
        Ok(())
    }

    async fn write_loaded(&self, space: &Rc<PageSpace>, run: &mut LoadRun) -> Result<()> {
        if run.count == 0 {
            return Ok(());
        }
        let page_size = self.0.settings.buffer.page_size;
        let last = PageId { number: run.first + run.count as u32 - 1, ..PageId::new(space.partition(), 0) };
        self.0.engine.core.check_open()?;
        let buffer = &self.0.engine.core.buffer;
        while Pages::capacity(&*buffer.pool().borrow(), space.partition()) <= last.number {
            buffer.grow(space.partition()).await?;
        }
        let numbers = run.first..last.number + 1;
        loop {
            // These pages stay unused until another transaction puts records into the tree.
            self.0.engine.core.complete(|| self.check_empty_tree(space.partition())).await?;
            if self.0.engine.core.buffer.make_way(space.partition(), numbers.clone()) {
                break;
            }
            // Something is reading or writing one of them: that ends.
            self.0.engine.core.executor.sleep_ns(MAKE_WAY_NS).await;
            self.0.engine.core.check_open()?;
        }
        let buffer = run.frame.take().expect("a run with pages has its frame");
        let source = (buffer, run.count * page_size);
        let completion = self.0.engine.core.buffer.overwrite(space, numbers, source).await;
        run.frame = completion.buffer;
        completion.result?;
        run.first += run.count as u32;
        run.count = 0;
        Ok(())
    }

    /// Reads a partition's pages into the buffer, as many as have room, in the order of the file; a set is in memory as it is. Where all pages count as written
    /// ([`PartitionSpec::assumed`](crate::PartitionSpec)), those that it uses.
    ///
    /// # Errors
    /// The driver's.
    pub async fn warm(&self, partition: PartitionId, mut progress: impl FnMut(u64)) -> Result<()> {
        let engine = &self.0.engine;
        let _visit = Visit::new(engine);
        let core = &engine.core;
        let described = engine.catalog.describe(partition)?;
        if described.set_settings().is_some() {
            return Ok(());
        }
        let mut pages = core.buffer.space(partition).written();
        if described.assumed && matches!(described.organization, Organization::BTree | Organization::Append { .. }) {
            pages = pages.min(core.complete(|| core.page_count(partition)).await?);
        }
        let pages = pages.min(core.buffer.pool().borrow().free_count() as u32);
        for first in (0..pages).step_by(256) {
            let numbers = first..pages.min(first + 256);
            let pages = numbers.map(|number| PageId::new(partition, number));
            core.buffer.prefetch(pages, Pattern::Sequential).await?;
            progress(u64::from(first));
        }
        Ok(())
    }
}
