//! Records of the log that are read once more, by where they are.

use crate::log::KeptLog;
use crate::log::record::{Record, parts};
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

/// Which records are to be read, and for which pages.
#[derive(Default)]
pub(super) struct KeptRecords {
    pages: BTreeSet<PageId>,
    places: BTreeSet<(Lsn, Lsn)>,
}

/// Records that are read together.
struct Piece {
    places: Vec<(Lsn, Lsn)>,
}

impl KeptRecords {
    /// These records change this page.
    pub(super) fn add(&mut self, page: PageId, places: Vec<(Lsn, Lsn)>) {
        self.pages.insert(page);
        self.places.extend(places);
    }

    /// Reads what they have for the pages, for each in the order of the log.
    ///
    /// # Errors
    /// The driver's, or [`Error::DamagedLog`] if one of them is not there.
    pub(super) async fn read(self, executor: &Executor, log: &Rc<KeptLog>) -> Result<ReadChanges> {
        let (pages, mut changes) = (Rc::new(self.pages), ReadChanges::new());
        let places: Vec<_> = self.places.into_iter().collect();
        let pieces: Vec<_> = places.chunk_by(|one, next| next.0.0.saturating_sub(one.1.0) < GAP).collect();
        for pieces in pieces.chunks(AT_ONCE) {
            let begin = |piece: &&[(Lsn, Lsn)]| {
                let (piece, log, pages) = (Piece { places: piece.to_vec() }, Rc::clone(log), Rc::clone(&pages));
                executor.spawn(async move { piece.read(&log, &pages).await })
            };
            for reading in pieces.iter().map(begin).collect::<Vec<_>>() {
                for (page, mut read) in reading.join().await? {
                    changes.entry(page).or_default().append(&mut read);
                }
            }
        }
        Ok(changes)
    }
}

impl Piece {
    async fn read(self, log: &KeptLog, pages: &BTreeSet<PageId>) -> Result<ReadChanges> {
        let mut changes = ReadChanges::new();
        let (Some((from, _)), Some((_, to))) = (self.places.first(), self.places.last()) else { return Ok(changes) };
        let mut scan = log.scan((*from, *to));
        let mut wanted = self.places.iter().peekable();
        while let Some((start, _)) = wanted.peek() {
            let missing = || {
                let detail = "a record that redo has left is not there any more".to_owned();
                Error::DamagedLog { lsn: *start, file: "log".into(), detail }
            };
            let entry = scan.next().await?.filter(|entry| entry.start <= *start).ok_or_else(missing)?;
            if entry.start < *start {
                continue;
            }
            wanted.next();
            for part in parts(entry.bytes) {
                let record = Record::decode(part).ok_or_else(missing)?;
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
