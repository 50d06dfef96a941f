//! Opening the tiers. A cache that goes on as it was and whose table is sound is taken over by that, unread; of the others, what
//! they hold that is newer than on the pages' own devices goes there first.

mod answer_limit;
mod not_opened;
mod scan;
mod torn;

use not_opened::check_names_answered;
pub use not_opened::{CacheNotOpened, is_of_device, unless_bad};
pub use torn::TornPages;

use crate::buffer::Buffer;
use crate::io::device;
use crate::second_level::{CacheSettings, Settings, Tiers};
use crate::tier_file::table::{BLOCK_BYTES, HeldVersion, SlotTable, Statement, TablePosition, TableReader, blocks_for};
use crate::tier_file::{Kind, TierFile, TierMark, TierRecord, open_file, read_header};
use crate::{Error, Result};
use answer_limit::AnswerLimit;
use base::{Lsn, PageId};
use driver::{DeviceId, FileId, Op};
use executor::Executor;
use scan::{HomeState, Scanned, SlotCopy, bring_home, scan};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};

/// How many pages are compared at once.
const AT_ONCE: usize = 32;

/// How many blocks of a table are read at once as long as redo gains from them.
const AHEAD_OF_REDO: u64 = 16;
/// That is so if more than one statement in this number is of a version that redo comes by.
const REDONE_SHARE: usize = 8;

/// A tier that an earlier opening left.
struct EarlierTier {
    record: TierRecord,
    device: DeviceId,
    file: FileId,
    limit: AnswerLimit,
}

impl EarlierTier {
    /// Whether this is a cache that does not go on, and pages' own devices have all that it has.
    fn is_useless(&self, executor: &Executor, settings: &Settings) -> bool {
        let [cache, _] = wanted(executor, settings);
        let goes_on = cache.is_some_and(|cache| cache.suits(&self.record));
        self.record.kind == Kind::Cache && !self.record.in_use && !goes_on
    }
}

/// The table of a cache, and what was read of it.
struct OpenedTable {
    table: SlotTable,
    statements: Vec<Statement>,
    /// What is left to read.
    rest: TableReader,
    /// Whether slots may have what pages' own devices lack.
    is_in_use: bool,
}

/// What the superblock says of the tiers of an earlier opening.
#[derive(Clone, Copy)]
pub struct StatedTiers<'a> {
    /// The tiers.
    pub records: &'a [TierRecord],
    /// The cache's table.
    pub table: Option<TablePosition>,
    /// Log records from before this are not needed.
    pub redo_start: Lsn,
    /// What this opening marks its files with: tells what it states from what others have stated.
    pub opening: TierMark,
}

/// What the tiers of an earlier opening held is on the pages' own devices, or is taken over by the table.
pub struct Reconciled {
    found: Rc<Vec<EarlierTier>>,
    /// The copies that are the same there.
    current: Vec<(PageId, SlotCopy)>,
    /// The table of the cache that goes on as it was.
    table: Option<OpenedTable>,
    torn: TornPages,
    /// A cache that is not there, or may have the only whole copies of pages. It may have what redo will miss: until redo has ended the
    /// next opening has to look for it, and nothing may take its place.
    needed: Option<TierRecord>,
    redo_start: Lsn,
    /// The end of the latest change that a tier in use has by its slots, and that tier.
    latest: Option<(Lsn, TierRecord)>,
}

/// The tiers that were opened.
pub struct OpenedTiers {
    /// They, if there are any.
    pub tiers: Option<Rc<Tiers>>,
    /// What the superblock file is to say of them before they are used.
    pub records: Vec<TierRecord>,
    /// And of the cache's table.
    pub table: Option<TablePosition>,
    /// Where redo finds what a power cut has torn.
    pub torn: Rc<TornPages>,
    /// A cache that is not among them, because its device is bad.
    pub not_opened: Option<CacheNotOpened>,
    latest: Option<(Lsn, TierRecord)>,
}

impl OpenedTiers {
    /// A tier that has what the log does not know of, which ends there.
    ///
    /// # Errors
    /// [`Error::TierMissing`](crate::Error::TierMissing) if there is one: everything else was put back from an earlier time.
    pub fn check_time(&self, end: Lsn) -> Result<()> {
        let stated = self.tiers.as_ref().map_or(Lsn::ZERO, |tiers| tiers.latest_change());
        let cache = self.records.iter().find(|record| record.kind == Kind::Cache).filter(|_| stated > end);
        let scanned = self.latest.as_ref().filter(|(latest, _)| *latest > end).map(|(_, record)| record);
        let Some(record) = cache.or(scanned) else { return Ok(()) };
        Err(record.missing(&format!(
            "its file '{}' is of a later time than the log, which ends at {end}: put the right one in its place, or take this one away",
            record.kind.file_name()
        )))
    }
}

/// Brings up to date what stands on the pages' own devices, as far as the table of a cache does not serve instead.
///
/// # Errors
/// [`Error::TierMissing`](crate::Error::TierMissing) for a write buffer, [`Error::ForeignTier`](crate::Error::ForeignTier), or the
/// driver's.
pub async fn reconcile(
    executor: &Executor,
    buffer: &Rc<Buffer>,
    settings: &Settings,
    stated: StatedTiers<'_>,
) -> Result<Reconciled> {
    let page_size = buffer.settings().page_size;
    let (mut found, mut missing) = (Vec::new(), None);
    for record in stated.records.iter().filter(|record| record.kind != Kind::LogBuffer) {
        let limit = AnswerLimit::of(record.kind, settings);
        let tier = limit.answered(executor, find(executor, record, (page_size, limit, stated.opening.database))).await;
        let tier = match tier.unwrap_or_else(|| Ok(Err(limit.exceeded()))) {
            Err(error) if record.kind == Kind::Cache && is_of_device(&error) => Err(error.to_string()),
            tier => tier?,
        };
        match tier {
            Ok(tier) => found.push(tier),
            Err(_) if !record.in_use => {}
            // The log has what only the cache had, unless the power cut has torn a page.
            Err(detail) if record.kind == Kind::Cache => missing = Some((record.clone(), detail)),
            Err(detail) => return Err(record.missing(&detail)),
        }
    }
    let found = Rc::new(found);
    let table = open_table(executor, &found, settings, stated).await?;
    let is_tabled = |old: &EarlierTier| table.is_some() && old.record.kind == Kind::Cache;
    let mut newest: BTreeMap<PageId, SlotCopy> = BTreeMap::new();
    let (mut torn, mut is_in_part) = (TornPages::none(executor), false);
    for (tier, old) in found.iter().enumerate() {
        if is_tabled(old) {
            torn = TornPages::in_slots(executor, Rc::clone(&found), tier, stated.redo_start);
            continue;
        }
        if old.is_useless(executor, settings) {
            continue;
        }
        match scan(executor, buffer, old, tier, &mut newest).await? {
            Scanned::Whole => {}
            Scanned::InPart => is_in_part |= old.record.kind == Kind::Cache,
            Scanned::Silent => {
                newest.retain(|_, copy| copy.tier != tier);
                missing = Some((old.record.clone(), old.limit.exceeded()));
            }
        }
    }
    if let Some((record, detail)) = &missing {
        torn = TornPages::missing(executor, record.clone(), detail.clone());
    }
    let is_in_use = |copy: &&SlotCopy| found[copy.tier].record.in_use;
    let latest = newest.values().filter(is_in_use).max_by_key(|copy| copy.version.lsn);
    let latest = latest.map(|copy| (copy.version.lsn, found[copy.tier].record.clone()));
    let Compared { current, damaged } = bring_all_home(executor, buffer, &found, newest, stated.redo_start).await?;
    let mut needed = missing.map(|(record, _)| record);
    if needed.is_none()
        && let Some((tier, copies)) = kept_for_redo(&found, (damaged, is_in_part))
    {
        torn = TornPages::with_copies(executor, Rc::clone(&found), tier, (stated.redo_start, copies));
        needed = Some(found[tier].record.clone());
    }
    let needed = needed.filter(|_| !canary::is_planted(Canary::ForgottenCache));
    Ok(Reconciled { found, current, table, torn, needed, redo_start: stated.redo_start, latest })
}

/// Which tier is the cache, and its copies of pages that are damaged in their own places, as far as redo may go on from them. `None` if it
/// has none, and not of slots that could not be read: the next opening may be able to.
fn kept_for_redo(
    found: &[EarlierTier],
    (mut damaged, is_in_part): (BTreeMap<PageId, SlotCopy>, bool),
) -> Option<(usize, BTreeMap<PageId, SlotCopy>)> {
    let tier = found.iter().position(|old| old.record.kind == Kind::Cache && old.record.in_use)?;
    damaged.retain(|_, copy| copy.tier == tier);
    (is_in_part || !damaged.is_empty()).then_some((tier, damaged))
}

/// The table of a cache that goes on as it was. What was stated behind the block that the superblock names is read, before it as much
/// as the settings say, and more as long as redo comes by what that says, whose pages it would read from their own devices. `None`
/// if that is not to be had.
async fn open_table(
    executor: &Executor,
    found: &[EarlierTier],
    settings: &Settings,
    stated: StatedTiers<'_>,
) -> Result<Option<OpenedTable>> {
    let suits = |old: &&EarlierTier| {
        let [cache, _] = wanted(executor, settings);
        old.record.kind == Kind::Cache && cache.is_some_and(|cache| cache.table && cache.suits(&old.record))
    };
    let (Some(position), Some(old)) = (stated.table, found.iter().find(suits)) else { return Ok(None) };
    // Copies that a program which was killed has left may not be durable, and redo goes on from them while their pages' own places are written.
    if !canary::is_planted(Canary::UnsyncedSlots) {
        let synced = old.limit.answered(executor, executor.perform(Op::Sync { file: old.file })).await;
        if synced.is_none_or(|completion| completion.result.is_err()) {
            return Ok(None);
        }
    }
    let opened = SlotTable::open(executor, old.device, (old.record.capacity as u32, stated.opening.stamp), position);
    let is_bad = |error: &Error| is_of_device(error);
    let Some(opened) = old.limit.answered(executor, opened).await else { return Ok(None) };
    if opened.as_ref().is_err_and(is_bad) {
        return Ok(None);
    }
    let Ok((table, mut rest)) = opened? else { return Ok(None) };
    let ahead = settings.cache.as_ref().map_or(0, |cache| cache.table_ahead / BLOCK_BYTES as u64);
    let down_to = position.number.saturating_sub(ahead);
    let mut statements = Vec::new();
    let mut redo_gains = false;
    while rest.next_number() > down_to || redo_gains {
        let blocks_max = match rest.next_number().saturating_sub(down_to) {
            0 => AHEAD_OF_REDO,
            left => left,
        };
        let read = old.limit.answered(executor, rest.read(executor, blocks_max)).await;
        if read.as_ref().is_some_and(|read| read.as_ref().is_err_and(is_bad)) {
            return Ok(None);
        }
        match read.transpose()? {
            Some(Ok(Some(read))) => {
                let is_redone = |(_, held): &&Statement| held.is_some_and(|held| held.version.lsn > stated.redo_start);
                redo_gains = REDONE_SHARE * read.iter().filter(is_redone).count() > read.len();
                statements.extend(read);
            }
            Some(Ok(None)) => break,
            // What was read suffices; loading comes by the same.
            Some(Err(_)) if rest.next_number() <= down_to => break,
            Some(Err(_)) | None => return Ok(None),
        }
    }
    Ok(Some(OpenedTable { table, statements, rest, is_in_use: old.record.in_use }))
}

/// How the pages' own places compare with the copies in slots.
#[derive(Default)]
struct Compared {
    /// The copies that are the same there.
    current: Vec<(PageId, SlotCopy)>,
    /// Those that redo may go on from, of pages that are damaged there.
    damaged: BTreeMap<PageId, SlotCopy>,
}

/// Writes copies to the pages' own places that are newer there.
async fn bring_all_home(
    executor: &Executor,
    buffer: &Rc<Buffer>,
    found: &Rc<Vec<EarlierTier>>,
    newest: BTreeMap<PageId, SlotCopy>,
    redo_start: Lsn,
) -> Result<Compared> {
    let pages: Vec<(PageId, SlotCopy)> = newest.into_iter().collect();
    let mut compared = Compared::default();
    for batch in pages.chunks(AT_ONCE) {
        let tasks: Vec<_> = batch
            .iter()
            .map(|&(page, copy)| {
                let (executor, found) = (executor.clone(), Rc::clone(found));
                let space = buffer.space(page.partition);
                executor
                    .clone()
                    .spawn(async move { bring_home(&executor, &found, &space, page, copy, redo_start).await })
            })
            .collect();
        for (task, (page, copy)) in tasks.into_iter().zip(batch) {
            match task.join().await? {
                HomeState::Same => compared.current.push((*page, *copy)),
                HomeState::Damaged => _ = compared.damaged.insert(*page, *copy),
                HomeState::Other => {}
            }
        }
    }
    Ok(compared)
}

impl Reconciled {
    /// The tiers among those of before that go on as they are. The superblock file has to forget all others before new ones take
    /// their places.
    pub fn kept(&self, executor: &Executor, settings: &Settings) -> Vec<TierRecord> {
        let suits =
            |old: &&EarlierTier| wanted(executor, settings).iter().flatten().any(|wanted| wanted.suits(&old.record));
        let kept = self.found.iter().filter(suits).map(|old| TierRecord { in_use: true, ..old.record.clone() });
        kept.chain(self.needed.clone()).collect()
    }

    /// The settings by which tiers are opened before redo; others if there is a cache among `settings` that has to wait for its end.
    pub fn opened_first(&self, settings: &Settings) -> Option<Settings> {
        self.needed.as_ref().map(|_| Settings { cache: None, ..settings.clone() })
    }

    /// The table that serves on.
    pub fn kept_table(&self) -> Option<TablePosition> {
        self.table.as_ref().map(|opened| opened.table.position())
    }

    /// Opens the tiers that `settings` ask for: those kept, and new ones with this stamp. A cache whose device is bad is not among them.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting), or the driver's.
    pub async fn open(
        self,
        buffer: &Rc<Buffer>,
        executor: &Executor,
        (settings, force, mark): (&Settings, bool, TierMark),
    ) -> Result<OpenedTiers> {
        if let Some(buffer) = &settings.write_buffer {
            buffer.check(executor.traits(device(executor, &buffer.device)?).durable)?;
        }
        let page_size = buffer.settings().page_size;
        let (mut records, mut files) = (Vec::new(), [None, None]);
        let known: Vec<u64> = self.found.iter().map(|old| old.record.stamp).collect();
        let (mut adopted, mut not_opened) = (None, None);
        for (place, wanted) in files.iter_mut().zip(wanted(executor, settings)) {
            let Some(WantedTier { kind, device: name, capacity, volatile, .. }) = &wanted else { continue };
            let device = device(executor, name)?;
            let old = self.found.iter().position(|old| wanted.as_ref().is_some_and(|wanted| wanted.suits(&old.record)));
            let (kind, capacity, volatile) = (*kind, *capacity, *volatile);
            let (record, file) = match old {
                Some(number) => {
                    let old = &self.found[number];
                    let record = TierRecord { in_use: true, ..old.record.clone() };
                    adopted = adopted.or((kind == Kind::Cache).then_some(number));
                    let file = TierFile::adopt(executor, old.device, &record, old.file, page_size, volatile);
                    (record, file)
                }
                None => {
                    let record =
                        TierRecord { kind, device: (*name).clone(), stamp: mark.stamp, capacity, in_use: true };
                    let making = async {
                        let cache = settings.cache.as_ref().filter(|_| kind == Kind::Cache);
                        cache.map_or(Ok(()), |cache| check_names_answered(executor, cache))?;
                        TierFile::create(executor, device, (&record, mark, &known), page_size, volatile).await
                    };
                    let limit =
                        AnswerLimit::of_creation(executor, (kind, device), settings, capacity * page_size as u64);
                    let made = limit.made(executor, name, making).await;
                    match made {
                        Err(error) if kind == Kind::Cache && is_of_device(&error) => {
                            not_opened = Some(CacheNotOpened { kind, device: (*name).clone(), error });
                            continue;
                        }
                        made => (record, made?),
                    }
                }
            };
            *place = Some(file);
            records.extend((!volatile).then_some(record));
        }
        let made = match &not_opened {
            None => make_table(executor, settings, (self.table.is_some(), mark.stamp)).await?,
            Some(_) => Ok(None),
        };
        let made = made.unwrap_or_else(|bad| {
            // What it had is on the pages' own devices.
            files[0] = None;
            records.retain(|record| record.kind != Kind::Cache);
            not_opened = Some(bad);
            None
        });
        records.extend(self.needed.clone());
        let without = Settings { cache: None, ..settings.clone() };
        let settings = if not_opened.is_some() { &without } else { settings };
        if files.iter().all(Option::is_none) {
            return Ok(OpenedTiers {
                tiers: None,
                records,
                table: None,
                torn: Rc::new(self.torn),
                not_opened,
                latest: self.latest,
            });
        }
        let host: Weak<Buffer> = Rc::downgrade(buffer);
        let tiers = Rc::new(Tiers::new(executor, (settings, force), files, host));
        let Reconciled { table, current, torn, redo_start, latest, .. } = self;
        if let Some(cache) = adopted.filter(|_| table.is_none() && not_opened.is_none()) {
            adopt(buffer, &tiers, cache, current);
        }
        let table = begin_table(&tiers, settings, (table, redo_start), made).await;
        Ok(OpenedTiers { tiers: Some(tiers), records, table, torn: Rc::new(torn), not_opened, latest })
    }
}

/// Takes over the copies in the cache that are the same on their pages' own devices.
fn adopt(buffer: &Buffer, tiers: &Tiers, cache: usize, mut current: Vec<(PageId, SlotCopy)>) {
    current.retain(|(page, copy)| copy.tier == cache && buffer.space(page.partition).placement().cache);
    current.sort_by_key(|(_, copy)| copy.version.lsn);
    tiers.adopt(current.into_iter().map(|(page, copy)| (copy.slot, HeldVersion { page, version: copy.version })));
}

/// A cache that was created while its database runs; nothing is in it.
pub struct NewCache {
    /// Its slots.
    pub file: TierFile,
    /// What the superblock is to say of it before it is used, if it survives power cuts.
    pub record: Option<TierRecord>,
    /// The table that says what the slots hold, if it has one.
    pub table: Option<SlotTable>,
}

/// Creates the files of a cache, in place of any of these names that are the same database's.
///
/// # Errors
/// [`Error::NoDevice`](crate::Error::NoDevice), or the driver's.
pub async fn create_cache(
    executor: &Executor,
    (kind, cache): (Kind, &CacheSettings),
    (page_size, mark): (usize, TierMark),
) -> Result<NewCache> {
    let WantedTier { device: name, capacity, volatile, table, .. } = wanted_cache(executor, cache);
    let device = device(executor, name)?;
    check_names_answered(executor, cache)?;
    let record = TierRecord { kind, device: name.clone(), stamp: mark.stamp, capacity, in_use: true };
    let file = TierFile::create(executor, device, (&record, mark, &[]), page_size, volatile).await?;
    let table = match table {
        true => SlotTable::create(executor, device, capacity as u32, mark.stamp).await.map(Some),
        false => Ok(None),
    };
    if table.is_err() {
        // The slots are not to fill a device without room for both.
        let _tried = executor.perform(Op::Remove { device, name: kind.file_name().to_owned() }).await;
    }
    let table = table?;
    Ok(NewCache { file, record: (!volatile).then_some(record), table })
}

/// The upper cache that the settings ask for, if they do: a new one with this stamp.
///
/// # Errors
/// [`Error::NoDevice`](crate::Error::NoDevice), or the driver's, that of a device that does not answer among them.
pub async fn open_upper_cache(
    executor: &Executor,
    buffer: &Rc<Buffer>,
    (settings, force, mark): (&Settings, bool, TierMark),
) -> Result<Option<Rc<Tiers>>> {
    let Some(upper) = settings.upper_cache.clone().map(CacheSettings::upper) else { return Ok(None) };
    let is_memory = executor.traits(device(executor, &upper.device)?).synchronous;
    let page_size = buffer.settings().page_size;
    let limit = AnswerLimit::of_cache(&upper, u64::from(upper.pages) * page_size as u64, is_memory);
    let making = create_cache(executor, (Kind::UpperCache, &upper), (page_size, mark));
    let NewCache { file, .. } = limit.made(executor, &upper.device, making).await?;
    Ok(Some(begin_upper_cache(buffer, &upper, force, file)))
}

/// An upper cache in this file, which is new. What earlier ones have spent of a budget of writes is not known.
pub fn begin_upper_cache(buffer: &Rc<Buffer>, upper: &CacheSettings, force: bool, file: TierFile) -> Rc<Tiers> {
    let settings = Settings { cache: Some(upper.clone()), ..Settings::default() };
    let tiers = buffer.new_tiers((&settings, force), file);
    tiers.begin_spent();
    tiers
}

/// A new table for the cache, if there is to be one and none goes on.
async fn make_table(
    executor: &Executor,
    settings: &Settings,
    (goes_on, stamp): (bool, u64),
) -> Result<Result<Option<SlotTable>, CacheNotOpened>> {
    let [Some(WantedTier { device: name, table: true, capacity, kind, .. }), _] = wanted(executor, settings) else {
        return Ok(Ok(None));
    };
    if goes_on {
        return Ok(Ok(None));
    }
    let device = device(executor, name)?;
    let bytes = blocks_for(capacity as u32) * BLOCK_BYTES as u64;
    let limit = AnswerLimit::of_creation(executor, (kind, device), settings, bytes);
    let making = async {
        settings.cache.as_ref().map_or(Ok(()), |cache| check_names_answered(executor, cache))?;
        SlotTable::create(executor, device, capacity as u32, stamp).await
    };
    let made = limit.made(executor, name, making).await;
    unless_bad(made.map(Some), (kind, name))
}

/// Goes on with the cache's table, or begins with a new one. Returns what the superblock is to say of it.
async fn begin_table(
    tiers: &Rc<Tiers>,
    settings: &Settings,
    (old, redo_start): (Option<OpenedTable>, Lsn),
    made: Option<SlotTable>,
) -> Option<TablePosition> {
    if let Some(OpenedTable { table, statements, rest, is_in_use }) = old {
        let position = table.position();
        tiers.begin_with_table(table, statements, (redo_start, is_in_use));
        let ahead = settings.cache.as_ref().map_or(0, |cache| cache.table_ahead);
        tiers.go_on_loading(rest, ahead);
        return Some(position);
    }
    tiers.set_table(made?);
    tiers.state_table().await
}

/// A tier that the settings ask for.
#[derive(PartialEq)]
struct WantedTier<'a> {
    kind: Kind,
    device: &'a String,
    capacity: u64,
    volatile: bool,
    /// Whether a table is to say what its slots hold.
    table: bool,
}

impl WantedTier<'_> {
    /// Whether one of an earlier opening is the same.
    fn suits(&self, old: &TierRecord) -> bool {
        !self.volatile && (old.kind, &old.device, old.capacity) == (self.kind, self.device, self.capacity)
    }
}

/// Whether caches by these settings use the same slots.
pub fn are_same_slots(executor: &Executor, one: &CacheSettings, other: &CacheSettings) -> bool {
    wanted_cache(executor, one) == wanted_cache(executor, other)
}

fn wanted_cache<'a>(executor: &Executor, cache: &'a CacheSettings) -> WantedTier<'a> {
    let traits = executor.device(&cache.device).map(|device| executor.traits(device));
    let is_memory = traits.is_some_and(|traits| traits.synchronous);
    let volatile = cache.volatile.unwrap_or(!traits.is_some_and(|traits| traits.durable));
    let table = !volatile && cache.table.unwrap_or(!is_memory);
    WantedTier { kind: Kind::Cache, device: &cache.device, capacity: u64::from(cache.pages), volatile, table }
}

/// The cache and the write buffer that the settings ask for.
fn wanted<'a>(executor: &Executor, settings: &'a Settings) -> [Option<WantedTier<'a>>; 2] {
    let cache = settings.cache.as_ref().map(|cache| wanted_cache(executor, cache));
    let write_buffer = settings.write_buffer.as_ref().filter(|buffer| buffer.pages > 0).map(|buffer| WantedTier {
        kind: Kind::WriteBuffer,
        device: &buffer.device,
        capacity: u64::from(buffer.pages),
        volatile: false,
        table: false,
    });
    [cache, write_buffer]
}

/// The file of a tier that the superblock file knows, or words for why it is not there.
async fn find(
    executor: &Executor,
    record: &TierRecord,
    (page_size, limit, database): (usize, AnswerLimit, u64),
) -> Result<std::result::Result<EarlierTier, String>> {
    let Some(device) = executor.device(&record.device) else { return Ok(Err(crate::io::undescribed(&record.device))) };
    let Some((file, length)) = open_file(executor, device, record.kind, false).await? else {
        return Ok(Err(format!("it holds no file '{}'", record.kind.file_name())));
    };
    let slots = record.capacity.saturating_mul(page_size as u64);
    let header = read_header(executor, (file, length), record, (page_size, slots, Some(database))).await?;
    Ok(header.map(|()| EarlierTier { record: record.clone(), device, file, limit }))
}
