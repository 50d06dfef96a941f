//! Reading an archive for a restore.

use super::super::manifest::BLOCK;
use super::super::target::{BackupPlace, PlaceFile};
use super::segment::{HeadFlaw, PageSums, SEGMENT_FORMAT, SegmentHead, parse_name, segment_name};
use crate::error::BackupError;
use crate::log::first_damaged;
use crate::{Error, Result};
use base::Lsn;
use driver::Frame;

/// The segments of one history, from the one on that a restore begins with, without a gap.
pub(in super::super) struct ArchiveReader {
    place: BackupPlace,
    page_size: usize,
    segments: Vec<SegmentHead>,
    /// The archive has the log up to here.
    pub end: Lsn,
    /// Why no further, if it has more.
    pub stop: Option<Error>,
    /// The segment that is open.
    open: Option<(usize, PlaceFile)>,
    /// The checksums of its pages, as far as they were read from its first one on.
    sums: (Lsn, PageSums),
}

impl ArchiveReader {
    /// Looks which segments there are of a history that go on from this position.
    ///
    /// # Errors
    /// [`BackupError::ForeignArchive`], [`Error::NewerFormat`], or the driver's.
    pub async fn find(place: BackupPlace, backup: &str, (history, from): (u64, Lsn), page_size: usize) -> Result<Self> {
        let names = place.names().await?;
        let all: Vec<(u64, Lsn)> = names.iter().filter_map(|name| parse_name(name)).collect();
        let mut own: Vec<Lsn> = all.iter().filter(|(of, _)| *of == history).map(|(_, first)| *first).collect();
        own.sort_unstable();
        if own.is_empty() {
            let detail = if all.is_empty() { "it holds no segment" } else { "its segments are of another log" };
            let (archive, place) = (place.name.clone(), backup.to_owned());
            return Err(BackupError::ForeignArchive { archive, place, detail: detail.to_owned() }.into());
        }
        let (segments, open, sums) = (Vec::new(), None, (Lsn::MAX, PageSums::default()));
        let mut reader = ArchiveReader { place, page_size, segments, end: from, stop: None, open, sums };
        let mut at = own.partition_point(|first| *first <= from).checked_sub(1);
        while let Some(number) = at {
            let first = own[number];
            match reader.read_head(history, first).await? {
                Ok(head) => {
                    reader.end = reader.end.max(head.end);
                    reader.segments.push(head);
                    at = own.binary_search(&head.end).ok();
                }
                // It was not written to its end, and the database has not gone on since.
                Err(None) if number + 1 == own.len() => return Ok(reader),
                Err(flaw) => {
                    let detail = flaw.unwrap_or_else(|| "it was not written to its end".to_owned());
                    reader.stop = Some(reader.damaged((history, first), (0, reader.end), &detail));
                    return Ok(reader);
                }
            }
        }
        let goes_on = own.last().is_some_and(|last| *last > reader.end);
        let begins = reader.segments.last().is_some_and(|last| last.end >= from);
        if goes_on || !begins {
            let (archive, file) = (reader.place.name.clone(), segment_name(history, reader.end));
            reader.stop = Some(BackupError::ArchiveGap { archive, file, position: reader.end }.into());
        }
        Ok(reader)
    }

    /// What a segment says of itself; what is wrong with it, nothing if it says nothing.
    async fn read_head(&self, history: u64, first: Lsn) -> Result<Result<SegmentHead, Option<String>>> {
        let name = segment_name(history, first);
        let Some((file, length)) = self.place.find(&name).await? else {
            return Ok(Err(Some("it was removed meanwhile".to_owned())));
        };
        if length < BLOCK as u64 {
            return Ok(Err(None));
        }
        let block = self.place.read(&file, (0, BLOCK)).await?;
        drop(file);
        if block[..BLOCK].iter().all(|byte| *byte == 0) {
            return Ok(Err(None));
        }
        match SegmentHead::decode(&block[..BLOCK]) {
            Ok(head) if (head.history, head.first) != (history, first) => {
                Ok(Err(Some("it is another segment, under this name".to_owned())))
            }
            Ok(head) if head.page_size as usize != self.page_size => Ok(Err(Some(format!(
                "its pages have {} bytes, those of the backup {}",
                head.page_size, self.page_size
            )))),
            Ok(head) if head.length() > length => Ok(Err(Some(format!("it ends at byte {length}")))),
            Ok(head) => Ok(Ok(head)),
            Err(HeadFlaw::Newer(found)) => {
                let path = format!("{}/{name}", self.place.name);
                Err(Error::NewerFormat { path, found, supported: SEGMENT_FORMAT })
            }
            Err(HeadFlaw::Words(detail)) => Ok(Err(Some(detail))),
        }
    }

    /// Reads pages from this position on, at most `length_max` bytes, and verifies them. Returns how many bytes they are.
    ///
    /// # Errors
    /// [`BackupError::DamagedSegment`], or the driver's.
    pub async fn read(&mut self, at: Lsn, length_max: usize) -> Result<(Frame, usize)> {
        let number = self.segments.partition_point(|segment| segment.first <= at) - 1;
        let head = self.segments[number];
        let name = (head.history, head.first);
        let file = match self.open.take() {
            Some((open, file)) if open == number => file,
            _ => {
                let found = self.place.find(&segment_name(head.history, head.first)).await?;
                let missing = || self.damaged(name, (0, head.first), "it was removed meanwhile");
                found.ok_or_else(missing)?.0
            }
        };
        let length = (head.end.0 - at.0).min(length_max as u64) as usize;
        let offset = BLOCK as u64 + at.0 - head.first.0;
        let frame = self.place.read(&file, (offset, length)).await?;
        self.open = Some((number, file));
        let page_size = self.page_size;
        let verify = move || {
            let damaged = first_damaged(&frame[..length], at, page_size);
            (frame, damaged)
        };
        let (frame, damaged) = self.place.executor.compute(length as u64, verify).await?;
        if let Some(lsn) = damaged {
            return Err(self.damaged(name, (BLOCK as u64 + lsn.0 - head.first.0, lsn), "it is no page of this log"));
        }
        self.check_sum(&head, at, &frame[..length])?;
        Ok((frame, length))
    }

    /// Compares the checksum over a segment's pages, if they are read from its first to its last.
    fn check_sum(&mut self, head: &SegmentHead, at: Lsn, pages: &[u8]) -> Result<()> {
        if at == head.first {
            self.sums = (at, PageSums::default());
        }
        if self.sums.0 != at {
            return Ok(());
        }
        self.sums.1.add(pages, self.page_size);
        self.sums.0 = Lsn(at.0 + pages.len() as u64);
        if self.sums.0 == head.end && self.sums.1.sum() != head.pages {
            return Err(self.damaged(
                (head.history, head.first),
                (0, head.first),
                "its pages are not those that it had",
            ));
        }
        Ok(())
    }

    /// Something is wrong with a segment: from this byte, and this position of the log on.
    pub fn damaged(&self, (history, first): (u64, Lsn), (offset, position): (u64, Lsn), detail: &str) -> Error {
        let (archive, file) = (self.place.name.clone(), segment_name(history, first));
        BackupError::DamagedSegment { archive, file, offset, position, detail: detail.to_owned() }.into()
    }

    /// The same of the segment that has this position.
    pub fn damaged_at(&self, position: Lsn, detail: &str) -> Error {
        let number = self.segments.partition_point(|segment| segment.first <= position).saturating_sub(1);
        let found = self.segments.get(number).map_or((0, Lsn::ZERO), |head| (head.history, head.first));
        self.damaged(found, (BLOCK as u64 + position.0.saturating_sub(found.1.0), position), detail)
    }

    /// The archive's name.
    pub fn name(&self) -> &str {
        &self.place.name
    }
}
