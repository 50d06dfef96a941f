//! Noting which pages are in memory, so that another opening, or a copy under the virtual clock, begins with them.
//!
//! The note is of no importance for what the database holds: one that is absent, older or damaged costs reads that come later in any case.

use super::Database;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::io::device;
use crate::second_level::design::Pattern;
use base::{PageId, varint};
use driver::{Access, DeviceId, FileId, Op};
use std::rc::Rc;
use structures::checksum::checksum;

/// The file, on the device of the home.
pub const RESIDENCE_FILE: &str = "resident.pages";
/// The first bytes of it.
const MAGIC: [u8; 8] = *b"entres 1";
/// The magic, the length of the runs in bytes, their checksum.
const HEAD: usize = 16;
/// How much is written or read at a time, and the multiple of it that the file has, in bytes.
const PIECE: usize = 256 << 10;
const MULTIPLE: usize = 4 << 10;
/// A longer note is not written, and not believed: that are tens of millions of pages all over the files.
const RUNS_MAX: usize = 64 << 20;
/// Page ids end here, packed.
const PAGE_IDS: u64 = 1 << 48;
/// How many frames are looked at, and how many pages read, before others have their turn.
const FRAMES_AT_ONCE: usize = 16 << 10;
const READS_AT_ONCE: usize = 256;

/// The note that was written last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    file: FileId,
    sum: u32,
}

impl Database {
    /// Notes which pages are in memory, for [`Database::warm_as_noted`] of a later opening, unless the note says so already. It takes a few
    /// bytes for each run of pages that follow each other.
    ///
    /// # Errors
    /// The driver's. The database is as it was.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// database.note_residence().await?;
    /// assert_eq!(database.warm_as_noted().await?, 0, "all that was noted is in memory");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn note_residence(&self) -> Result<()> {
        let core = &self.0.engine.core;
        let pages = resident(&core.buffer, core).await;
        let count = pages.len() as u64;
        let runs = core.executor.compute(count * 20, move || encode(pages)).await?;
        let sum = checksum(&runs);
        let noted = self.0.noted.get();
        if runs.len() > RUNS_MAX || noted.is_some_and(|noted| noted.sum == sum) {
            return Ok(());
        }
        let home = device(&core.executor, &self.0.settings.home_device)?;
        let file = match noted {
            Some(Noted { file, .. }) => file,
            None => core.executor.open(home, RESIDENCE_FILE, true).await?.0,
        };
        self.write_note(file, (&runs, sum)).await?;
        self.0.noted.set(Some(Noted { file, sum }));
        Ok(())
    }

    async fn write_note(&self, file: FileId, (runs, sum): (&[u8], u32)) -> Result<()> {
        let executor = &self.0.engine.core.executor;
        let bytes = [&MAGIC[..], &(runs.len() as u32).to_le_bytes(), &sum.to_le_bytes(), runs].concat();
        let mut frame = executor.frame(bytes.len().next_multiple_of(MULTIPLE).min(PIECE))?;
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            let length = piece.len().next_multiple_of(MULTIPLE);
            frame[..piece.len()].copy_from_slice(piece);
            frame[piece.len()..length].fill(0);
            let (offset, access) = ((number * PIECE) as u64, Access::Asynchronous);
            let op = Op::Write { file, offset, length: length as u32, buffer: frame, durable: false, access };
            let completion = executor.perform(op).await;
            completion.result?;
            frame = completion.buffer.expect("a write gives its buffer back");
        }
        Ok(())
    }

    /// Reads into the buffer what [`Database::note_residence`] has noted, in the order of the files, as long as frames are free. Returns
    /// how many pages it has asked for: none without a note that can be read.
    ///
    /// # Errors
    /// The driver's, but for those of reading the note.
    pub async fn warm_as_noted(&self) -> Result<u64> {
        let core = &self.0.engine.core;
        let home = device(&core.executor, &self.0.settings.home_device)?;
        let Some(runs) = self.read_note(home).await else { return Ok(0) };
        let mut asked = 0;
        let mut pages = Runs::of(&runs).flatten().filter(|page| self.may_be_read(*page)).peekable();
        while pages.peek().is_some() && !core.closing.get() {
            let room = core.buffer.pool().borrow().free_count().min(READS_AT_ONCE);
            if room == 0 {
                break;
            }
            let some: Vec<PageId> = pages.by_ref().take(room).collect();
            let is_absent = |page: &&PageId| core.buffer.pool().borrow().frame_of(**page).is_none();
            asked += some.iter().filter(is_absent).count() as u64;
            core.buffer.prefetch(some, Pattern::Random).await?;
        }
        Ok(asked)
    }

    /// Whether it is a page of a partition that is there, which was written.
    fn may_be_read(&self, page: PageId) -> bool {
        let core = &self.0.engine.core;
        let in_pages = self.describe(page.partition).is_ok_and(|partition| partition.set_settings().is_none());
        in_pages && core.buffer.is_attached(page.partition) && page.number < core.buffer.space(page.partition).written()
    }

    /// The runs that the note has, if it is whole.
    async fn read_note(&self, home: DeviceId) -> Option<Vec<u8>> {
        let executor = &self.0.engine.core.executor;
        let (file, length) = executor.open(home, RESIDENCE_FILE, false).await.ok()?;
        let length = usize::try_from(length).ok().filter(|length| (HEAD..=HEAD + RUNS_MAX + PIECE).contains(length))?;
        let (mut bytes, mut frame) = (Vec::with_capacity(length), executor.frame(PIECE).ok()?);
        while bytes.len() < length / MULTIPLE * MULTIPLE {
            let piece = (length / MULTIPLE * MULTIPLE - bytes.len()).min(PIECE);
            let (offset, access) = (bytes.len() as u64, Access::Asynchronous);
            let completion =
                executor.perform(Op::Read { file, offset, length: piece as u32, buffer: frame, access }).await;
            completion.result.ok()?;
            frame = completion.buffer?;
            bytes.extend_from_slice(&frame[..piece]);
        }
        let (head, runs) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| head[at..at + 4].first_chunk().map(|word| u32::from_le_bytes(*word));
        let runs = runs.get(..word(8)? as usize)?;
        (head.starts_with(&MAGIC) && word(12)? == checksum(runs)).then(|| runs.to_vec())
    }
}

/// The pages in memory. Others have their turn between many of them.
async fn resident(buffer: &Rc<Buffer>, core: &crate::engine::Core) -> Vec<PageId> {
    let mut pages = Vec::new();
    let count = buffer.pool().borrow().len();
    for first in (0..count).step_by(FRAMES_AT_ONCE) {
        if first > 0 {
            core.executor.yield_now().await;
        }
        let pool = buffer.pool().borrow();
        let frames = first as u32..(first + FRAMES_AT_ONCE).min(count) as u32;
        let page = |frame| Some(pool.page_of(frame)).filter(|page| pool.frame_of(*page) == Some(frame));
        pages.extend(frames.filter_map(page));
    }
    pages
}

/// Runs of pages that follow each other: how far the first is behind the end of the run before, and how many they are.
fn encode(mut pages: Vec<PageId>) -> Vec<u8> {
    pages.sort_unstable();
    let (mut bytes, mut end) = (Vec::new(), 0);
    for run in pages.chunk_by(|one, next| one.packed() + 1 == next.packed()) {
        let first = run[0].packed();
        varint::put(first - end, &mut bytes);
        varint::put(run.len() as u64, &mut bytes);
        end = first + run.len() as u64;
    }
    bytes
}

/// The same, read. It ends where something else stands.
struct Runs<'a> {
    bytes: &'a [u8],
    end: u64,
}

impl Runs<'_> {
    fn of(bytes: &[u8]) -> Runs<'_> {
        Runs { bytes, end: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Box<dyn Iterator<Item = PageId>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (gap, count) = (varint::take(&mut self.bytes)?, varint::take(&mut self.bytes)?);
        let first = self.end.checked_add(gap)?;
        self.end = first.checked_add(count).filter(|end| *end <= PAGE_IDS)?;
        Some(Box::new((first..self.end).map(PageId::unpacked)))
    }
}
