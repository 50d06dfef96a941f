//! Archiving the log before its space is given up, and reading the archive.
//!
//! The archive is a directory of segments: pages of the log as they are in its file, each segment named by the history that it is of and
//! the position of its first page. It is made so that a cut at any write leaves every segment whole or recognizable:
//!
//! 1. The log is held firmly from where the archive ends, over openings: the superblock file says how far that is at least, and an
//!    opening keeps again what the log's file still has behind it.
//! 2. The pages of a segment are written and synced, then its first block, which says what it has: a file without that is half
//!    written, and the next attempt goes over it. No whole segment is written again.
//! 3. Then the log may be given up, up to the segment's end.
//!
//! What fails is tried again until it succeeds. Meanwhile the log fills up, and transactions that find no room in it learn why.
//!
//! A *history* is a number that the superblock file has for as long as the log is archived. It begins anew where an opening did without the
//! archive, or where the log lacks pages that the archive has, because commits did not wait for their durability, or has others in their
//! places by now: what follows is another log then, at the same positions.

mod reader;
mod segment;
mod survey;
mod writer;

pub(super) use reader::ArchiveReader;
pub use survey::RestoreTarget;
pub(super) use survey::{CatalogSaid, LogSurvey, SurveyFlaw};
pub(crate) use writer::{Archiver, begin_archive, keep_unarchived, start_archiving};
