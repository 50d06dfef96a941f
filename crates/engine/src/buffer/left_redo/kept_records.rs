//! Records of the log that are read once more, by where they are.

use crate::log::record::{Record, parts};
use crate::log::{KeptLog, Log, LogEntry, LogScan};
use crate::{Error, Result};
use base::{Lsn, PageId};
use executor::Executor;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Records that lie no further from each other, in bytes, are read together with what is between them.
const GAP: u64 = 64 << 10;
/// How many pieces of the log are read at once.
const AT_ONCE: usize = 16;

/// Changes of each page: where their record begins and ends, and they as the log has them.
pub(super) type ReadChanges = BTreeMap<PageId, Vec<((Lsn, Lsn), Vec<u8>)>>;

/// Which records, or stretches of records, are to be read, and for which pages.
#[derive(Default)]
pub(super) struct KeptRecords {
    pages: BTreeSet<PageId>,
    places: BTreeSet<(Lsn, Lsn)>,
}

/// What is read together: places in the order of their beginnings, and where the last of them ends.
struct Piece {
    places: Vec<(Lsn, Lsn)>,
    to: Lsn,
}

impl KeptRecords {
    /// Records at these places change this page.
    pub(super) fn add(&mut self, page: PageId, places: Vec<(Lsn, Lsn)>) {
        self.pages.insert(page);
        self.places.extend(places);
    }

    /// Reads what they have for the pages, for each in the order of the log. A change may come more than once.
    ///
    /// # Errors
    /// The driver's, or [`Error::DamagedLog`] if one of them is not there.
    pub(super) async fn read(self, executor: &Executor, (kept, log): (&KeptLog, &Rc<Log>)) -> Result<ReadChanges> {
        let mut pieces: Vec<Piece> = Vec::new();
        for place in self.places {
            match pieces.last_mut().filter(|piece| place.0.0.saturating_sub(piece.to.0) < GAP) {
                Some(piece) => {
                    piece.to = piece.to.max(place.1);
                    piece.places.push(place);
                }
                None => pieces.push(Piece { places: vec![place], to: place.1 }),
            }
        }
        let (pages, mut changes, mut pieces) = (Rc::new(self.pages), ReadChanges::new(), pieces.into_iter());
        while pieces.len() > 0 {
            let begin = |piece: Piece| {
                let (scan, pages) = (kept.scan(log, (piece.places[0].0, piece.to)), Rc::clone(&pages));
                executor.spawn(async move { piece.read(scan, &pages).await })
            };
            for reading in pieces.by_ref().take(AT_ONCE).map(begin).collect::<Vec<_>>() {
                for (page, mut read) in reading.join().await? {
                    changes.entry(page).or_default().append(&mut read);
                }
            }
        }
        Ok(changes)
    }
}

impl Piece {
    async fn read(self, mut scan: LogScan, pages: &BTreeSet<PageId>) -> Result<ReadChanges> {
        let mut changes = ReadChanges::new();
        let (mut places, mut read_to, mut wanted_to) = (self.places.into_iter().peekable(), Lsn::ZERO, Lsn::ZERO);
        while read_to < self.to {
            let missing = |at: Lsn| {
                let detail = "a record that redo has left is not there any more".to_owned();
                Error::DamagedLog { lsn: at, file: "log".into(), detail }
            };
            let next = places.peek().map(|place| place.0);
            let is_next = |entry: &LogEntry<'_>| next.is_none_or(|next| entry.start <= next);
            let entry = scan.next().await?.filter(is_next).ok_or_else(|| missing(next.unwrap_or(read_to)))?;
            read_to = entry.end;
            while let Some((_, end)) = places.next_if(|place| place.0 == entry.start) {
                wanted_to = wanted_to.max(end);
            }
            if entry.end > wanted_to {
                continue;
            }
            for part in parts(entry.bytes) {
                let record = Record::decode(part).ok_or_else(|| missing(entry.start))?;
                let mut edits = record.edits();
                while let Some((_, edit, encoded)) = edits.next_encoded() {
                    if pages.contains(&edit.page) {
                        let place = (entry.start, entry.end);
                        changes.entry(edit.page).or_default().push((place, encoded.to_vec()));
                    }
                }
            }
        }
        Ok(changes)
    }
}
