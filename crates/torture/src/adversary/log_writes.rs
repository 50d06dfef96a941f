//! What devices have answered of the log's writes in a run: what is written outlives the process, and what is synced a power cut, whatever the
//! engine counts.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where a log page says where it stands in the log (`docs/format.md`), and what all of them begin with behind their checksum.
const POSITION: Range<usize> = 8..16;
const MAGIC: (Range<usize>, [u8; 2]) = (4..6, 0x4c45_u16.to_le_bytes());

/// The log's pages that a write brings, by their places in the log. None if they are not such.
pub fn pages_of(bytes: &[u8]) -> Option<Range<u64>> {
    let is_page = bytes.get(MAGIC.0)? == MAGIC.1;
    let position = u64::from_le_bytes(bytes.get(POSITION)?.try_into().ok()?);
    // Others' bytes may begin so by chance.
    let end = position.checked_add(bytes.len() as u64)?;
    is_page.then_some(position..end)
}

/// The writes of the log's files, by their names.
#[derive(Debug, Default)]
pub struct LogWrites {
    files: BTreeMap<String, FileWrites>,
    /// How many were answered.
    answered: u64,
    /// Whether a sync has failed: what was written before it may be gone.
    has_failed: bool,
}

#[derive(Debug, Default)]
struct FileWrites {
    /// Those that no sync has followed, each with how many were answered before it.
    written: Vec<(u64, Range<u64>)>,
    synced: Vec<Range<u64>>,
}

impl LogWrites {
    /// A write was answered.
    pub fn note_write(&mut self, file: &str, pages: Range<u64>, is_durable: bool) {
        let writes = self.files.entry(file.to_owned()).or_default();
        match is_durable {
            true => writes.synced.push(pages),
            false => writes.written.push((self.answered, pages)),
        }
        self.answered += 1;
    }

    /// How many writes were answered: those that a sync which begins now has to make durable.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// A sync has ended that began when this number was answered.
    pub fn note_sync(&mut self, file: &str, answered: u64) {
        let Some(writes) = self.files.get_mut(file) else { return };
        let written = std::mem::take(&mut writes.written).into_iter();
        let (synced, written): (Vec<_>, Vec<_>) = written.partition(|(at, _)| *at < answered);
        writes.written = written;
        writes.synced.extend(synced.into_iter().map(|(_, pages)| pages));
    }

    /// A sync has failed.
    pub fn note_failure(&mut self) {
        self.has_failed = true;
    }

    /// Up to where each of these files has the log that was taken up at `from`, written and synced. None if one of them has nothing of it.
    pub fn ends(&self, files: &[&str], from: u64) -> [Option<u64>; 2] {
        let end_in = |file: &&str, with_written: bool| {
            let writes = self.files.get(*file)?;
            let written = writes.written.iter().map(|(_, pages)| pages).filter(|_| with_written && !self.has_failed);
            let mut pages: Vec<&Range<u64>> = writes.synced.iter().chain(written).collect();
            pages.sort_by_key(|pages| pages.start);
            let end = pages.iter().fold(from, |end, pages| if pages.start <= end { end.max(pages.end) } else { end });
            (end > from).then_some(end)
        };
        [true, false].map(|with_written| {
            let ends: Option<Vec<u64>> = files.iter().map(|file| end_in(file, with_written)).collect();
            ends.and_then(|ends| ends.into_iter().min())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_for_certain_ends_before_the_first_gap() {
        let mut writes = LogWrites::default();
        writes.note_write("log", 100..200, false);
        let answered = writes.answered();
        writes.note_write("log", 200..300, false);
        writes.note_sync("log", answered);
        writes.note_write("log", 400..500, true);
        assert_eq!(writes.ends(&["log"], 100), [Some(300), Some(200)]);
        assert_eq!(writes.ends(&["log", "log-2"], 100), [None, None], "the other has nothing");
        writes.note_write("log", 300..400, false);
        assert_eq!(writes.ends(&["log"], 100), [Some(500), Some(200)]);
        writes.note_failure();
        assert_eq!(writes.ends(&["log"], 100), [Some(200), Some(200)]);
    }

    #[test]
    fn only_pages_of_the_log_say_where_they_stand() {
        let mut page = [0; 512];
        assert_eq!(pages_of(&page), None);
        page[4..6].copy_from_slice(&[0x45, 0x4c]);
        page[8..16].copy_from_slice(&1_024_u64.to_le_bytes());
        assert_eq!(pages_of(&page), Some(1_024..1_536));
    }
}
