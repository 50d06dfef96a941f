//! Reading the log from some position to its end, and telling the end that a crash leaves from damage.

use super::circle::Circle;
use super::kept::ScanSource;
use super::page::{self, Flaw, HEADER_SIZE, Header};
use super::read_ahead::{Chunk, ReadAhead, Sources};
use super::record::{Record, is_own_change};
use super::start::{LogFile, Start};
use super::{Log, Settings};
use crate::{Error, Result};
use base::Lsn;
use driver::DeviceId;
use executor::Executor;
use std::ops::Range;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How many bytes beyond a missing page are searched for later pages, counted anew from each page that is found. More than
/// any number of writes in flight leaves incomplete.
const GAP_MAX: u64 = 16 << 20;

/// The files that hold the log as an opening finds them.
#[derive(Default)]
pub(crate) struct Copies {
    /// They hold the log, and go on to.
    pub kept: Vec<LogFile>,
    /// They hold the log, and will not.
    pub retired: Vec<LogFile>,
    /// They will hold the log, and are blank.
    pub fresh: Vec<LogFile>,
    /// Whether every page that was acknowledged is on each of them: then one that cannot be read is no loss.
    pub tolerant: bool,
}

impl Copies {
    fn sources(&self) -> Sources {
        let mut read: Vec<_> = self.kept.iter().chain(&self.retired).map(|file| file.file).collect();
        if canary::is_planted(Canary::OneCopyRead) && read.len() == 2 {
            read.remove(0);
            return Sources { read, repair: Vec::new(), tolerant: false };
        }
        let repair = match (&self.kept[..], &self.fresh[..]) {
            // This log alone, without a retired or second device.
            ([_], []) if self.retired.is_empty() => Vec::new(),
            _ => {
                let kept = self.kept.iter().enumerate().map(|(index, file)| (file.file, Some(index)));
                kept.chain(self.fresh.iter().map(|file| (file.file, None))).collect()
            }
        };
        Sources { read, repair, tolerant: self.tolerant }
    }
}

/// A record as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// Where it begins.
    pub start: Lsn,
    /// Its LSN: where it ends.
    pub end: Lsn,
    /// The whole record, for [`Record::decode`].
    pub bytes: &'a [u8],
}

/// Reads the log forward. At its end the log can be taken up again with [`LogScan::finish`].
pub struct LogScan {
    executor: Executor,
    settings: Settings,
    /// The file that is read, or the first of two that are.
    name: String,
    /// Where the log will go on.
    files: Vec<LogFile>,
    circle: Circle,
    from: Lsn,
    known_durable: Lsn,
    /// The page that `from` lies in; the file holds nothing older that counts.
    oldest: u64,
    reads: ScanSource,
    chunk: Option<Chunk>,
    /// The position of the page after the present one.
    next_page: u64,
    /// The latest opening of which a page was met, or is known to have been.
    epoch: u32,
    /// Up to where the database has changed something by itself, as far as that is known: what the log says is.
    changed_alone: Option<Lsn>,
    /// Whether a page was met.
    begun: bool,
    /// The unread rest of the present page, as offsets in the chunk.
    at: usize,
    used: usize,
    page_is_full: bool,
    /// Whether a record boundary has been met: before that, bytes belong to a record that began earlier.
    aligned: bool,
    /// A record that began in an earlier page, as far as it was read.
    partial: Vec<u8>,
    partial_start: u64,
    /// Whether `partial` was complete and has been given out.
    partial_done: bool,
    /// The end of the last whole record.
    end: Lsn,
    /// The position of the first page that the log lacks, once it was met.
    pub(super) tail: Option<u64>,
}

/// What the present page gives next.
enum ScanStep {
    /// A record in one piece: where it begins and its place in the chunk.
    Whole(Lsn, Range<usize>),
    /// A record put together in `partial`, which ends where the page is read next.
    Assembled,
    /// Nothing more.
    PageEnd,
}

impl LogScan {
    /// Opens the log on `device` for reading from `from`, which is the LSN of a record or [`Lsn::ZERO`] for a log that was
    /// never truncated. Records that begin at `from` or later are given. `known_durable` is a position that the caller knows
    /// to have been durable ([`Lsn::ZERO`] if it knows none): a log that ends before it is damaged.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::DamagedLog`] if the file is not one that the log was created with, or the driver's
    /// [`Error::Input`].
    pub async fn open(
        executor: &Executor,
        device: DeviceId,
        settings: &Settings,
        from: Lsn,
        known_durable: Lsn,
    ) -> Result<LogScan> {
        let file = LogFile::open(executor, (device, ""), (settings, 0), None).await?;
        let circle = Circle::from_zero(settings.capacity.max(file.length));
        settings.check_capacity(circle.size.min(file.length))?;
        let copies = Copies { kept: vec![file], retired: Vec::new(), fresh: Vec::new(), tolerant: false };
        Ok(LogScan::over(executor, copies, settings, circle, (from, known_durable)))
    }

    /// The same with the files that hold the log, as far as they are there. Where there are several, each is given what it
    /// lacks as the scan goes on.
    pub(crate) fn over(
        executor: &Executor,
        copies: Copies,
        settings: &Settings,
        circle: Circle,
        (from, known_durable): (Lsn, Lsn),
    ) -> LogScan {
        let page_size = settings.page_size as u64;
        let oldest = (from.0 - from.0 % page_size).max(circle.first(page_size));
        // No page was ever written behind the end of the shorter one.
        let extent = copies.kept.iter().chain(&copies.retired).map(|file| file.length).min().unwrap_or(0);
        let limit = circle.end_of(extent).map_or(oldest + circle.size, |end| end.0.max(oldest));
        let sources = copies.sources();
        let name = settings.file_of(copies.kept.iter().map(|file| file.index).min().unwrap_or(0));
        let mut files: Vec<LogFile> = copies.kept.into_iter().chain(copies.fresh).collect();
        files.sort_by_key(|file| file.index);
        let reads = ScanSource::Files(ReadAhead::new(executor, sources, settings.page_size, circle, (oldest, limit)));
        LogScan::with((executor, settings), (name, files), circle, (from, known_durable, oldest), reads)
    }

    fn with(
        (executor, settings): (&Executor, &Settings),
        (name, files): (String, Vec<LogFile>),
        circle: Circle,
        (from, known_durable, oldest): (Lsn, Lsn, u64),
        reads: ScanSource,
    ) -> LogScan {
        LogScan {
            executor: executor.clone(),
            settings: settings.clone(),
            name,
            files,
            circle,
            from,
            known_durable,
            oldest,
            reads,
            chunk: None,
            next_page: oldest,
            epoch: 0,
            changed_alone: None,
            begun: false,
            at: 0,
            used: 0,
            page_is_full: false,
            aligned: false,
            partial: Vec::new(),
            partial_start: 0,
            partial_done: false,
            end: from,
            tail: None,
        }
    }

    /// The next record; `None` at the end of the log.
    ///
    /// # Errors
    /// [`Error::DamagedLog`] if the log goes on behind a page that is missing but was durable, [`Error::NewerFormat`], or the
    /// driver's [`Error::Input`].
    pub async fn next(&mut self) -> Result<Option<LogEntry<'_>>> {
        let (start, place) = loop {
            let (start, place) = match self.step()? {
                ScanStep::Whole(start, place) => (start, Some(place)),
                ScanStep::Assembled => (Lsn(self.partial_start), None),
                ScanStep::PageEnd if self.enter_next_page().await? => continue,
                ScanStep::PageEnd => return Ok(None),
            };
            if start >= self.from {
                break (start, place);
            }
        };
        let chunk = self.chunk.as_ref().expect("records end in the present chunk");
        self.end = Lsn(chunk.position + self.at as u64);
        let bytes = place.map_or(&self.partial[..], |place| &chunk.frame[place]);
        if is_own_change(bytes) {
            self.changed_alone = self.changed_alone.map(|at| at.max(self.end));
        }
        Ok(Some(LogEntry { start, end: self.end, bytes }))
    }

    /// States that the position from which this reads was given up to by opening `epoch` of the log: pages of earlier
    /// openings there are what a crash left beyond the end of its time. To be called before the first record is read.
    pub fn since_opening(mut self, epoch: u32) -> LogScan {
        self.epoch = epoch;
        self
    }

    /// States up to where the database had changed something by itself before what this reads, if that is known. To be called before the
    /// first record is read.
    pub(crate) fn changed_alone_before(mut self, at: Option<Lsn>) -> LogScan {
        self.changed_alone = at;
        self
    }

    /// The LSN of the last whole record met, or where reading began if there was none.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Keeps again what was given up from `from` on, as far as a file still has it, and gives each file what it lacks of that: the file
    /// that has it may be lost next. To be called at the log's end.
    ///
    /// # Errors
    /// [`Error::DamagedLog`] if a page cannot be read, or two copies contradict each other; or the driver's.
    pub(crate) async fn keep_since(&mut self, from: Lsn) -> Result<()> {
        let given_up = (self.first_left(from, self.reads.sources()).await?, self.oldest);
        self.oldest = given_up.0;
        self.repair_copies(given_up).await
    }

    /// The position of the first page from `from` on that one of these files still has of what was given up. To be called at the log's end.
    pub(super) async fn first_left(&self, from: Lsn, files: &Sources) -> Result<u64> {
        let page_size = self.settings.page_size as u64;
        let end = self.tail.expect("the log was read to its end");
        let fits = end.saturating_sub(self.circle.size).next_multiple_of(page_size);
        let first = from.0 - from.0 % page_size;
        // It was overwritten from its front on.
        let (mut low, mut high) = (first.max(fits).max(self.circle.first(page_size)), self.oldest);
        while low < high {
            let middle = (low / page_size).midpoint(high / page_size) * page_size;
            if self.has_page(middle, files).await? {
                high = middle;
            } else {
                low = middle + page_size;
            }
        }
        Ok(high)
    }

    /// Writes to each file what it lacks between two positions.
    async fn repair_copies(&self, span: (u64, u64)) -> Result<()> {
        let sources = self.reads.sources();
        if sources.repair.is_empty() {
            return Ok(());
        }
        let mut reads = self.read_again(sources.clone(), span);
        while let Some(chunk) = reads.next().await? {
            reads.recycle(chunk);
        }
        Ok(())
    }

    /// Whether a file has the page at this position.
    async fn has_page(&self, position: u64, files: &Sources) -> Result<bool> {
        let sources = Sources { repair: Vec::new(), ..files.clone() };
        let span = (position, position + self.settings.page_size as u64);
        let chunk = self.read_again(sources, span).next().await?.expect("one page");
        match chunk.page(position) {
            Err(Flaw::Unreadable) => {
                let why =
                    "the device cannot read it, and the archive lacks it; an opening without the archive gives it up";
                Err(self.damaged(position, why))
            }
            page => Ok(page.is_ok()),
        }
    }

    /// The files in which the log will go on, and which it therefore keeps.
    pub(super) fn lasting(&self) -> Sources {
        Sources { read: self.files.iter().map(|file| file.file).collect(), repair: Vec::new(), tolerant: false }
    }

    /// Another scan of these files, over pages between two positions; it ends with the first one that is not there.
    pub(super) fn again(&self, files: &Sources, (from, to): (Lsn, Lsn)) -> LogScan {
        self.again_by(ScanSource::Files(self.read_again(files.clone(), (from.0, to.0))), from)
    }

    /// The same from where these reads begin.
    pub(super) fn again_by(&self, reads: ScanSource, from: Lsn) -> LogScan {
        let place = (self.name.clone(), Vec::new());
        LogScan::with((&self.executor, &self.settings), place, self.circle, (from, Lsn::ZERO, from.0), reads)
    }

    /// The front of the first page that the log lacks, once it was met.
    pub(crate) fn tail(&self) -> Option<Lsn> {
        self.tail.map(Lsn)
    }

    /// The position of the first page that is kept.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The size of a log page in bytes.
    pub(super) fn page_size(&self) -> u64 {
        self.settings.page_size as u64
    }

    fn read_again(&self, sources: Sources, span: (u64, u64)) -> ReadAhead {
        // One copy may lack there what was acknowledged, and the other fail to read it once.
        let sources = Sources { tolerant: false, ..sources };
        ReadAhead::new(&self.executor, sources, self.settings.page_size, self.circle, span)
    }

    /// Takes the log up behind its end, on a fresh page. Nothing is written before there is something to log.
    ///
    /// # Panics
    /// If [`LogScan::next`] has not yet returned `None`.
    pub fn finish(self) -> Rc<Log> {
        let position = self.tail.expect("the log is taken up at its end");
        // Nothing of what a crash has taken was changed.
        let changed_alone = self.changed_alone.map_or(Lsn(position), |at| at.min(self.end));
        let LogScan { files, circle, oldest, .. } = self;
        let start = Start { files, circle, position, oldest, epoch: self.epoch + 1, changed_alone };
        Log::start(&self.executor, &self.settings, &start)
    }

    /// A log for components that append nothing while this one is read.
    pub fn idle_log(&self) -> Rc<Log> {
        let (files, circle, changed_alone) = (self.files[..1].to_vec(), self.circle, Lsn::ZERO);
        let start = Start { files, circle, position: 0, oldest: 0, epoch: 0, changed_alone };
        Log::assemble(&self.executor, &self.settings, &start)
    }

    /// How many pages were written so far to a copy that lacked them.
    pub fn repaired(&self) -> u64 {
        self.reads.repaired()
    }

    fn step(&mut self) -> Result<ScanStep> {
        if std::mem::take(&mut self.partial_done) {
            self.partial.clear();
        }
        let Some(chunk) = &self.chunk else { return Ok(ScanStep::PageEnd) };
        let rest = &chunk.frame[self.at..self.used];
        if !self.partial.is_empty() {
            return self.step_partial();
        }
        let position = chunk.position + self.at as u64;
        if let Some(length) = rest.first_chunk() {
            let length = self.record_length(*length, position)?;
            if length <= rest.len() {
                let from = self.at;
                self.at += length;
                return Ok(ScanStep::Whole(Lsn(position), from..self.at));
            }
        }
        self.partial.extend_from_slice(rest);
        self.partial_start = position;
        self.end_page(position)
    }

    /// Adds to a record that began earlier: first until its length is known, then until it is whole.
    fn step_partial(&mut self) -> Result<ScanStep> {
        loop {
            let length = match self.partial.first_chunk() {
                Some(length) => self.record_length(*length, self.partial_start)?,
                None => 4,
            };
            let chunk = self.chunk.as_ref().expect("a record goes on in the present chunk");
            let take = (length - self.partial.len()).min(self.used - self.at);
            self.partial.extend_from_slice(&chunk.frame[self.at..self.at + take]);
            self.at += take;
            if self.partial.len() < length {
                return self.end_page(self.partial_start);
            }
            if length > 4 {
                self.partial_done = true;
                return Ok(ScanStep::Assembled);
            }
        }
    }

    /// The page is used up. A record that is not whole goes on in the next page, so it fills this one.
    fn end_page(&mut self, position: u64) -> Result<ScanStep> {
        self.at = self.used;
        if !self.partial.is_empty() && !self.page_is_full {
            return Err(self.damaged(position, "a record ends before its length says"));
        }
        Ok(ScanStep::PageEnd)
    }

    fn record_length(&self, bytes: [u8; 4], position: u64) -> Result<usize> {
        let length = u32::from_le_bytes(bytes);
        if (length as usize) < Record::FIXED_SIZE || u64::from(length) > self.circle.size {
            return Err(self.damaged(position, &format!("a record claims to be {length} bytes long")));
        }
        Ok(length as usize)
    }

    fn damaged(&self, position: u64, detail: &str) -> Error {
        let (file, detail) = (self.name.clone(), detail.to_owned());
        Error::DamagedLog { lsn: Lsn(position), file, detail }
    }

    /// The page that the log goes on with, if it does, cannot be read.
    fn end_unknown(&self, position: u64) -> Error {
        let (offset, size) = (self.circle.offset(position), self.settings.page_size);
        let detail = format!(
            "the read of {size} bytes at {offset} failed, and nothing tells whether commits were acknowledged there; if none \
             were, write zeros to these bytes"
        );
        self.damaged(position, &detail)
    }

    /// Goes on to the next page; false at the end of the log.
    async fn enter_next_page(&mut self) -> Result<bool> {
        if self.tail.is_some() {
            return Ok(false);
        }
        let position = self.next_page;
        match self.load_page(position).await? {
            Some(Ok(header)) if header.epoch >= self.epoch => {
                self.enter(header)?;
                Ok(true)
            }
            Some(Err(Flaw::Newer(found))) => Err(Error::NewerFormat {
                path: self.name.clone(),
                found: found.into(),
                supported: page::VERSION.into(),
            }),
            Some(Err(Flaw::Size(size))) => Err(Error::Setting(format!(
                "file '{}' has log pages of {size} bytes, the settings say {}",
                self.name, self.settings.page_size
            ))),
            missing => {
                let is_unreadable = matches!(missing, Some(Err(Flaw::Unreadable)));
                if position < self.known_durable.0 {
                    let flaw = if is_unreadable { "the device cannot read it, and " } else { "" };
                    let known = format!("{flaw}the log is known to have been durable up to {}", self.known_durable);
                    return Err(self.damaged(position, &known));
                }
                if missing.is_some() {
                    self.search_beyond(position).await?;
                }
                if is_unreadable {
                    return Err(self.end_unknown(position));
                }
                self.tail = Some(position);
                Ok(false)
            }
        }
    }

    /// Reads the page at `position` and makes its chunk the present one. `None` where the log would run into its own front.
    async fn load_page(&mut self, position: u64) -> Result<Option<Result<Header, Flaw>>> {
        let behind = |chunk: &Chunk| position >= chunk.position + chunk.length as u64;
        if self.chunk.as_ref().is_none_or(behind) {
            if let Some(chunk) = self.chunk.take() {
                self.reads.recycle(chunk);
            }
            self.chunk = self.reads.next(&self.executor).await?;
        }
        Ok(self.chunk.as_ref().map(|chunk| chunk.page(position)))
    }

    fn enter(&mut self, header: Header) -> Result<()> {
        if header.epoch > self.epoch {
            // A record that a crash cut off is abandoned; an opening begins with a fresh record.
            self.partial.clear();
            self.aligned |= self.begun;
        }
        (self.epoch, self.begun) = (header.epoch, true);
        self.next_page = header.position + self.settings.page_size as u64;
        self.page_is_full = header.used == self.settings.page_size;
        let chunk = self.chunk.as_ref().expect("the page was just read");
        let page_at = (header.position - chunk.position) as usize;
        self.used = page_at + header.used;
        self.at = page_at + HEADER_SIZE;
        if !self.aligned {
            self.at = if header.first == 0 { self.used } else { page_at + header.first };
            self.aligned = header.first != 0 || !self.page_is_full;
        } else if self.partial.is_empty() && header.used > HEADER_SIZE && header.first != HEADER_SIZE {
            return Err(self.damaged(header.position, "a page goes on with a record that never began"));
        }
        Ok(())
    }

    /// Decides whether the missing page at `hole` is where a crash ended the log. It is not if a later page says that the log
    /// was durable beyond it. Pages that an earlier opening left there may speak too: what was durable then is not gone now.
    async fn search_beyond(&mut self, hole: u64) -> Result<()> {
        let page_size = self.settings.page_size as u64;
        let in_flight = (self.settings.write_size_max * self.settings.in_flight_max()) as u64;
        let gap_max = GAP_MAX.max(2 * in_flight);
        (self.at, self.used) = (0, 0);
        let mut last_found = hole;
        let mut position = hole + page_size;
        while position - last_found <= gap_max {
            match self.load_page(position).await? {
                None => break,
                Some(Ok(header)) if header.durable.0 > hole => {
                    let detail = format!(
                        "the page at position {position} says that the log was durable up to {}",
                        header.durable
                    );
                    return Err(self.damaged(hole, &detail));
                }
                Some(Ok(_)) => last_found = position,
                Some(Err(_)) => {}
            }
            position += page_size;
        }
        Ok(())
    }
}
