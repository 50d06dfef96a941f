//! Looking for damage in a whole database: every checksum, every structure, every page accounted for.
//!
//! The files are read from front to back, whatever stands in the buffer; then structures are followed through the buffer.
//! No byte is trusted: whatever is found is listed, nothing is changed but what a checkpoint writes.

mod found;
mod index;
mod medium;
mod tree;

use crate::buffer::Presence;
use crate::catalog::{Organization, Partition};
use crate::engine::{Engine, Visit, set_returned};
use crate::{Error, Result};
use base::PageId;
use found::ListedFindings;
use std::fmt;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::{allocator, direct};
use structures::page::{PageKind, Pages, header};

/// How often a b-tree is looked at that changes meanwhile.
const ROUNDS_MAX: u32 = 5;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The partition's name.
    pub partition: String,
    /// The page's number in the partition.
    pub page: u32,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition '{}', page {}: {}", self.partition, self.page, self.what)
    }
}

/// What a check has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// Pages read from the files.
    pub pages: u64,
    /// What is wrong, in the order of discovery; the first [`CheckReport::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub omitted: u64,
    /// Why it was not looked for pages that are neither in use nor free, in b-trees where it was not, nor whether their pages
    /// fit each other where they changed all the time: what transactions have left is not done yet
    /// ([`Database::check_ended`](crate::Database::check_ended)). Each reason once. A later check can.
    pub unsearched: Vec<Error>,
}

impl CheckReport {
    /// How many findings are listed.
    pub const FINDINGS_MAX: usize = 10_000;

    /// Whether everything was looked at, and nothing found to be wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.unsearched.is_empty()
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages read from the files so far.
    pub done: u64,
    /// Pages that the files have.
    pub total: u64,
}

/// Looks for damage in every partition of an engine that has just been checkpointed.
///
/// # Errors
/// Why the cache was switched off, if only it has what is to be looked at: a restart makes that anew.
pub(crate) async fn check(engine: &Rc<Engine>, mut progress: impl FnMut(Progress)) -> Result<CheckReport> {
    let _visit = Visit::new(engine);
    let partitions: Vec<Rc<Partition>> = engine.catalog.partitions.borrow().iter().cloned().collect();
    let paged = partitions.iter().filter(|partition| partition.set_settings().is_none());
    let total = paged.map(|partition| u64::from(medium::page_count(&engine.core.buffer, partition.id()))).sum();
    let mut report = CheckReport::default();
    for partition in &partitions {
        let first = report.findings.len();
        let found = ListedFindings { first, likenesses: Vec::new() };
        let mut examiner = Examiner { engine, partition, report: &mut report, found, out_of_reach: None };
        examiner.check(&mut |done| progress(Progress { done, total })).await;
        if let Some(error) = examiner.out_of_reach {
            return Err(error);
        }
    }
    Ok(report)
}

/// Checks one partition.
struct Examiner<'a> {
    engine: &'a Rc<Engine>,
    partition: &'a Partition,
    report: &'a mut CheckReport,
    found: ListedFindings,
    /// Why a page cannot be looked at that is not known to be damaged.
    out_of_reach: Option<Error>,
}

impl Examiner<'_> {
    async fn check(&mut self, progress: &mut dyn FnMut(u64)) {
        match self.partition.organization {
            Organization::Direct { objects, blocking_factor, .. } => {
                let mut pages = u32::try_from(objects.div_ceil(u64::from(blocking_factor))).unwrap_or(u32::MAX);
                let capacity = self.engine.core.buffer.space(self.partition.id()).capacity();
                if pages > capacity {
                    let Some(first) = self.page(0).await else { return };
                    pages = pages.min(direct::stated_end(&first).unwrap_or(pages).max(capacity));
                }
                self.check_medium(pages, PageKind::Direct, progress).await;
            }
            Organization::Append { .. } => {
                let Some(state) = self.allocator().await else { return };
                self.check_medium(state.page_count, PageKind::Append, progress).await;
            }
            Organization::Set { .. } => self.check_set().await,
            Organization::BTree => {
                let Some(state) = self.allocator().await else { return };
                self.check_medium(state.page_count, PageKind::Node, progress).await;
                self.check_structure().await;
            }
        }
    }

    /// Compares a b-tree's pages with each other and with its indexes. Beside a rollback, or the freeing of a long value, what is found
    /// may be a difference between two moments: then it is looked for again. In the end what two rounds have found alike is damage, and so is
    /// what differs at one moment.
    async fn check_structure(&mut self) {
        let (listed, omitted, before) = (self.report.findings.len(), self.report.omitted, self.findings());
        let mut earlier = Vec::new();
        for round in 1.. {
            let begin = self.engine.core.log.end();
            let Some(state) = self.allocator().await else { return };
            let mut unsearched = self.check_tree(state).await;
            if self.findings() == before {
                let contested = self.check_indexes().await;
                unsearched = unsearched.or(contested);
            }
            let is_found = self.findings() > before;
            let is_of_one_moment =
                !is_found || self.engine.core.log.end() == begin || canary::is_planted(Canary::HastyCheck);
            if is_of_one_moment || round == ROUNDS_MAX {
                if !is_of_one_moment {
                    let found = self.forget((listed, omitted)).into_iter();
                    found.filter(|found| earlier.iter().any(|earlier| found.is_like(earlier))).for_each(|found| {
                        self.list(found);
                    });
                    unsearched = unsearched.or_else(|| Some(self.restless()));
                }
                if let Some(why) = unsearched {
                    self.check_free_count().await;
                    self.note_unsearched(why);
                }
                return;
            }
            earlier = self.forget((listed, omitted));
        }
    }

    fn note_unsearched(&mut self, why: Error) {
        if !self.report.unsearched.contains(&why) {
            self.report.unsearched.push(why);
        }
    }

    /// Why it is not known whether the pages fit each other.
    fn restless(&self) -> Error {
        let name = &self.partition.name;
        let what = "changed all the time, and what did not fit was never the same twice";
        Error::Setting(format!("partition '{name}' {what}; check it again while less is written"))
    }

    /// A set's segments and search structures, as they are in memory.
    async fn check_set(&mut self) {
        let engine = self.engine.clone();
        set_returned(&engine, self.partition.id()).await;
        let sets = engine.sets.sets.borrow();
        if let Err(what) = sets.check() {
            self.report(0, what);
        }
        // Whether the records are of the type that an index gives them shows when it is built.
        let Some(schema) = self.partition.schema.clone().filter(|_| !self.partition.has_unready_index()) else {
            return;
        };
        for (key, value) in sets.iterate(self.partition.id()) {
            if let Err(error) = schema.record.verify(value) {
                self.report(0, format!("the record with key {key:02x?}: {error}"));
            }
        }
    }

    /// What page 0 says, if it can be believed.
    async fn allocator(&mut self) -> Option<allocator::State> {
        let page = self.page(0).await?;
        if header::kind(&page) != Some(PageKind::Allocator) {
            self.report(0, "it is not the page that allocates");
            return None;
        }
        let state = allocator::read(&page);
        let file = self.engine.core.buffer.space(self.partition.id());
        if state.page_count == 0 || state.page_count > file.capacity() {
            let (count, capacity) = (state.page_count, file.capacity());
            self.report(0, format!("it counts {count} pages in a file with room for {capacity}"));
            return None;
        }
        Some(state)
    }

    /// A copy of a page as transactions see it; a finding if it cannot be read.
    async fn page(&mut self, number: u32) -> Option<Vec<u8>> {
        let id = self.id(number);
        let buffer = &self.engine.core.buffer;
        match self.copy(number).await {
            Ok(page) => Some(page),
            Err(error) => {
                let levels = buffer.levels();
                let only_there = levels.from_top().find(|tiers| tiers.is_pending(id));
                match only_there.and_then(|tiers| tiers.lost_cache()) {
                    Some(loss) => _ = self.out_of_reach.get_or_insert(loss),
                    None => self.report(number, format!("it cannot be read: {error}")),
                }
                None
            }
        }
    }

    /// The same; an error if it cannot be read.
    async fn copy(&self, number: u32) -> Result<Vec<u8>> {
        let (id, core) = (self.id(number), &self.engine.core);
        core.complete(|| Ok(core.buffer.pool().borrow().page(id)?.to_vec())).await
    }

    fn id(&self, number: u32) -> PageId {
        PageId::new(self.partition.id(), number)
    }

    /// Whether the buffer, or a tier below it, holds a newer version of the page than the file, or redo of it is left.
    fn is_dirty(&self, number: u32) -> bool {
        let buffer = &self.engine.core.buffer;
        let id = self.id(number);
        if buffer.is_left(id) || buffer.levels().is_pending(id) {
            return true;
        }
        let pool = buffer.pool().borrow();
        match pool.presence(id) {
            Presence::Resident(frame) => pool.is_dirty(frame) || pool.is_writing(frame),
            _ => false,
        }
    }
}
