//! What was before the opening, made readable again for as long as `[undo] retention` says and as far as the log's files have it: the log is
//! read once more, after redo and before anything is logged, and each undo record in it becomes a version (`version/rebuild.rs`).
//!
//! A transaction that began before the first record that is read is known in part only. The log says from which position on it has all
//! records of those who commit from here on ([`Body::Time`]): the first time that this is one that is read, the horizon is found, and no
//! moment before it is readable. So any place is one to begin with, and what is overwritten, or damaged, only brings the horizon nearer.
//!
//! Nothing here can have an opening fail. Where the log cannot be read, moments begin with the opening.

use crate::engine::Engine;
use crate::log::record::{Body, Record, parts};
use crate::log::{LogScan, PastLog};
use crate::statistics::RecoveryReport;
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, Result};
use base::{Instant, Lsn, PartitionId, TransactionId};
use driver::Work;
use executor::Executor;
use std::collections::BTreeMap;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::Owner;
use structures::undo::{Undo, UndoList, decode_undo};

/// Others get their turn after this number of records, or of bytes.
const TURN: u64 = 1_024;
const TURN_BYTES: usize = 1 << 20;
/// How often it is begun anew behind a page that cannot be read.
const ATTEMPTS: usize = 16;
/// Links tell this number of transactions apart.
const OWNERS_MAX: u32 = 1 << 20;

/// What of the log is to be read once more.
pub(crate) struct Past {
    log: PastLog,
    /// No moment before this, at which no transaction was under way, is looked for.
    since: Lsn,
}

/// Finds out what of the log is to be read once more; nothing if moments are kept no longer than they are looked at, or have not been kept up to
/// now. To be called at the log's end.
pub(crate) async fn find_past(
    executor: &Executor,
    scan: &LogScan,
    superblock: &Superblock,
    retention_ns: u64,
) -> Option<Past> {
    let since = Lsn(superblock.moments_since.filter(|_| retention_ns > 0)?);
    let log = scan.past(since, executor.unix_ns().saturating_sub(retention_ns)).await.ok()?;
    (since <= log.end()).then_some(Past { log, since })
}

/// What an opening has made readable.
#[derive(Default)]
pub(crate) struct Rebuilt {
    log_bytes: u64,
    ns: u64,
    horizon: Option<Lsn>,
    /// Partitions whose load has ended, by what the log says, while its end is not there.
    loaded: Vec<PartitionId>,
}

impl Rebuilt {
    /// Partitions whose load was under way, or had just ended, when the log ended: they may be full since.
    pub fn loaded(&self) -> &[PartitionId] {
        &self.loaded
    }

    /// Adds it to the rest.
    pub fn report(&self, report: RecoveryReport) -> RecoveryReport {
        let Rebuilt { log_bytes, ns, horizon, .. } = *self;
        RecoveryReport { moments_log_bytes: log_bytes, moments_ns: ns, oldest_moment: horizon, ..report }
    }
}

/// Makes moments readable, and has the superblock say from its next write on since when the log has what that takes.
pub(crate) async fn rebuild_moments(engine: &Rc<Engine>, past: Option<Past>) -> Rebuilt {
    let began = engine.core.executor.now();
    let opened = engine.versions.present();
    let mut rebuilt = Rebuilt::default();
    let mut since = opened;
    if let Some(past) = past {
        engine.versions.begin_rebuild();
        rebuilt.horizon = rebuild(engine, &past, &mut rebuilt).await;
        match rebuilt.horizon {
            Some(_) => {
                since = past.since;
                forget_unsaid(engine, (rebuilt.horizon, opened));
                engine.versions.end_rebuild();
                rebuilt.horizon = Some(engine.versions.oldest_moment());
            }
            None => engine.versions.abandon_rebuild(),
        }
        rebuilt.ns = engine.core.executor.now().since_ns(began);
    }
    let keeps_moments = engine.versions.keeps_moments();
    engine.catalog.superblock.borrow_mut().moments_since = keeps_moments.then_some(since.0);
    rebuilt
}

/// Goes through the log from a page on from which that is possible up to its end. Returns the horizon, if there is one.
async fn rebuild(engine: &Rc<Engine>, past: &Past, rebuilt: &mut Rebuilt) -> Option<Lsn> {
    let mut from = past.log.from;
    for _ in 0..ATTEMPTS {
        let mut rebuilding = Rebuilding::new(engine, past.since, from);
        let mut scan = past.log.scan(from);
        let read = rebuilding.read(&mut scan).await;
        rebuilt.log_bytes += scan.end().0.saturating_sub(from.0);
        let hole = match &read {
            Ok(()) => scan.tail()?,
            Err(Error::DamagedLog { lsn, .. }) => *lsn,
            Err(_) => return None,
        };
        if read.is_ok() && hole >= past.log.end() {
            rebuilt.loaded = std::mem::take(&mut rebuilding.loaded);
            return rebuilding.end();
        }
        // It was overwritten, or cannot be read.
        engine.versions.abandon_rebuild();
        from = past.log.page_behind(hole.max(from));
        if from >= past.log.end() {
            return None;
        }
    }
    None
}

/// Of what partitions were at moments before now the log says nothing of those that have taken the place of others.
fn forget_unsaid(engine: &Engine, (horizon, opened): (Option<Lsn>, Lsn)) {
    let superblock_file = engine.catalog.superblock_file.borrow();
    let since = |id| superblock_file.as_ref().map_or(opened, |file: &SuperblockFile| file.since(id));
    for partition in engine.catalog.partitions.borrow().iter() {
        let since = since(partition.id);
        if horizon.is_none_or(|horizon| since > horizon) {
            engine.versions.forget_partition(partition.id(), since);
        }
    }
}

/// A transaction whose end has not been met.
struct Unended {
    owner: Owner,
    /// Its updates that are not taken back.
    updates: usize,
    /// Where the version is looked for that its next long value belongs to.
    next_long: usize,
}

/// Versions on their way from the log.
struct Rebuilding<'a> {
    engine: &'a Rc<Engine>,
    /// What is read begins there.
    from: Lsn,
    unended: BTreeMap<TransactionId, Unended>,
    spare: Vec<Owner>,
    owners: u32,
    /// The first moment that can be read, once it is known, and whether it was said when it was.
    horizon: Option<Lsn>,
    is_timed: bool,
    /// The time by the calendar, as far as the log has said it, in nanoseconds since 1970: never beyond the present, and never back.
    unix_ns: u64,
    present_ns: u64,
    /// What records of sets were before the transaction whose commit is the next record but for long values. It may have been lost.
    sets_before: Option<(TransactionId, Vec<u8>)>,
    /// Partitions whose load is about to end.
    loaded: Vec<PartitionId>,
}

impl<'a> Rebuilding<'a> {
    fn new(engine: &'a Rc<Engine>, since: Lsn, from: Lsn) -> Rebuilding<'a> {
        // All that came after it is read.
        let horizon = (from <= since).then_some(since);
        horizon.into_iter().for_each(|horizon| engine.versions.set_horizon(horizon));
        Rebuilding {
            engine,
            from,
            unended: BTreeMap::new(),
            spare: Vec::new(),
            owners: 0,
            horizon,
            is_timed: false,
            unix_ns: 0,
            present_ns: engine.versions.unix_ns(),
            sets_before: None,
            loaded: Vec::new(),
        }
    }

    /// Goes through the log.
    async fn read(&mut self, scan: &mut LogScan) -> Result<()> {
        let (executor, versions) = (&self.engine.core.executor, &self.engine.versions);
        let (mut records, mut bytes) = (0_u64, 0);
        while let Some(entry) = scan.next().await? {
            let damaged =
                |detail: &str| Error::DamagedLog { lsn: entry.start, file: "log".into(), detail: detail.into() };
            for part in parts(entry.bytes) {
                let record = Record::decode_body(part).ok_or_else(|| damaged("it holds no record"))?;
                if !self.note(entry.end, &record) {
                    return Err(damaged("it contradicts what was before it"));
                }
                (records, bytes) = (records + 1, bytes + part.len());
                if records == TURN || bytes >= TURN_BYTES {
                    executor.charge_times(Work::LogRecord, records);
                    executor.pay_debt().await;
                    versions.wait_for_room().await;
                    (records, bytes) = (0, 0);
                }
            }
        }
        Ok(())
    }

    /// Notes what a record says; false if it contradicts what is known.
    fn note(&mut self, end: Lsn, record: &Record<'_>) -> bool {
        let id = record.transaction;
        match record.body {
            Body::Update(stored) => return self.note_update(id, &UndoList::decode(stored)),
            Body::Compensation { remaining } => {
                let left = remaining as usize;
                if let Some(unended) = self.unended.get_mut(&id).filter(|unended| unended.updates > left) {
                    unended.updates = left;
                    self.engine.versions.rebuild_undone(unended.owner, left);
                }
            }
            Body::SetsBefore { undos } => self.sets_before = Some((id, undos.to_vec())),
            Body::LongValue { update, value } => self.note_long_value(id, update as usize, value),
            Body::RolledBack => self.forget(id),
            Body::Commit { .. } | Body::SweptCommit { .. } | Body::Call { .. } => return self.commit(id, end),
            Body::Time { unix_ns, oldest: Some(oldest) } => self.note_time(end, unix_ns, oldest),
            Body::Loaded { partition } => self.loaded.push(partition),
            Body::LoadEnded { partition } => self.end_load(partition, end),
            Body::LoadUndone { partition, .. } => self.loaded.retain(|loaded| *loaded != partition),
            Body::System
            | Body::ChainStep { .. }
            | Body::Time { .. }
            | Body::Catalog { .. }
            | Body::Shipment { .. } => {}
        }
        true
    }

    /// A transaction that goes on; none if there are too many.
    fn unended(&mut self, id: TransactionId) -> Option<&mut Unended> {
        let (owners, spare) = (&mut self.owners, &mut self.spare);
        let unended = self.unended.entry(id).or_insert_with(|| {
            let owner = spare.pop().unwrap_or_else(|| {
                *owners += 1;
                Owner(*owners - 1)
            });
            Unended { owner, updates: 0, next_long: 0 }
        });
        (self.owners < OWNERS_MAX).then_some(unended)
    }

    fn note_update(&mut self, id: TransactionId, undo: &Undo<'_>) -> bool {
        let engine = self.engine;
        let Some(unended) = self.unended(id) else { return false };
        let number = unended.updates;
        unended.updates += 1;
        let is_there = engine.catalog.partitions.borrow().get_or_hidden(undo.partition()).is_some();
        let (versions, update) = (&engine.versions, (unended.owner, number));
        !is_there || versions.keep_recorded(engine.records(), update, undo, versions.present())
    }

    /// Makes versions of what records of sets were before a transaction.
    fn note_sets(&mut self, id: TransactionId, mut undos: &[u8]) -> bool {
        let engine = self.engine;
        let Some(&mut Unended { owner, .. }) = self.unended(id) else { return false };
        let mut number = 0;
        while let Some(undo) = decode_undo(&mut undos) {
            if !canary::is_planted(Canary::PresentForPast)
                && !engine.versions.rebuild_set_change(engine.records(), (owner, number), &undo)
            {
                return false;
            }
            number += 1;
        }
        undos.is_empty()
    }

    fn note_long_value(&mut self, id: TransactionId, update: usize, value: &[u8]) {
        if let Some(unended) = self.unended.get_mut(&id) {
            let from = (unended.owner, unended.next_long);
            unended.next_long = self.engine.versions.make_whole(from, update, value);
        }
    }

    /// What was loaded was not there before that.
    fn end_load(&mut self, partition: PartitionId, end: Lsn) {
        self.loaded.retain(|loaded| *loaded != partition);
        let is_there = self.engine.catalog.partitions.borrow().get_or_hidden(partition).is_some();
        if is_there && self.horizon.is_some() && !canary::is_planted(Canary::PresentForPast) {
            self.engine.versions.rebuild_load(partition, end, Instant::from_ns(self.unix_ns));
        }
    }

    fn note_time(&mut self, end: Lsn, unix_ns: u64, oldest: Lsn) {
        self.unix_ns = unix_ns.clamp(self.unix_ns, self.present_ns.max(self.unix_ns));
        if self.horizon.is_none() && oldest >= self.from {
            self.horizon = Some(end);
            self.engine.versions.set_horizon(end);
        }
        if let Some(horizon) = self.horizon
            && !std::mem::replace(&mut self.is_timed, true)
        {
            self.engine.versions.rebuild_moment(horizon, self.unix_ns);
        }
    }

    fn commit(&mut self, id: TransactionId, end: Lsn) -> bool {
        let sets_before = self.sets_before.take().filter(|(of, _)| *of == id);
        if self.horizon.is_none() {
            self.forget(id);
            return true;
        }
        if sets_before.is_some_and(|(_, undos)| !self.note_sets(id, &undos)) {
            return false;
        }
        let engine = self.engine;
        match self.unended.remove(&id) {
            Some(Unended { owner, .. }) => {
                engine.versions.rebuild_commit(engine.records(), owner, end, self.unix_ns);
                self.spare.push(owner);
            }
            None => engine.versions.rebuild_moment(end, self.unix_ns),
        }
        true
    }

    /// A transaction has left nothing, or what it has left is of no moment that can be read.
    fn forget(&mut self, id: TransactionId) {
        if let Some(Unended { owner, .. }) = self.unended.remove(&id) {
            self.engine.versions.forget(owner, 0, 0);
            self.spare.push(owner);
        }
    }

    /// The end of the log: who has not ended is rolled back.
    fn end(mut self) -> Option<Lsn> {
        for id in self.unended.keys().copied().collect::<Vec<_>>() {
            self.forget(id);
        }
        self.horizon
    }
}
