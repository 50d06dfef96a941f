//! An archive of the log, read as the document says.

use super::compare::Outcome;
use super::document::{Document, same};
use super::files::{Files, LOG_PAGE};
use super::log::log_page;
use super::postcard::{Found, Reader};
use structures::checksum::checksum;

pub fn compare(document: &Document, files: &Files) -> Outcome {
    let superblock = document.view("superblock", files.get("disk", "entresol.home (archived)"))?;
    let contents = &superblock.bytes("contents")?[..superblock.number("length")? as usize];
    let (mut found, mut reader) = (Found::new(), Reader { document, rest: contents });
    reader.structure("superblock", "", &mut found)?;
    let number = |name: &str| found[name].parse::<u64>().map_err(|_| format!("{name} is no number"));
    let (history, mut end) = (number("archive.history")?, 0);
    for (name, file) in files.segments() {
        let view = document.view("log-segment", file)?;
        same("log-segment.format", view.number("format")?, document.constant("segment_format"))?;
        let covered = &file[view.offset("format")..view.offset("zeros")];
        same("log-segment.checksum", view.number("checksum")?, u64::from(checksum(covered)))?;
        same("log-segment.history", view.number("history")?, history)?;
        same("log-segment.page_size", view.number("page_size")?, LOG_PAGE as u64)?;
        view.bytes("zeros")?;
        let first = view.number("first")?;
        same("the name of a segment", name, format!("{history:016x}-{first:020}.log").as_str())?;
        same("the segment behind another", end == 0 || first == end, true)?;
        end = view.number("end")?;
        let pages = view.bytes("log_pages")?;
        same("log-segment.end", first + pages.len() as u64, end)?;
        let mut sums = Vec::new();
        for (page, position) in pages.chunks_exact(LOG_PAGE).zip((first..).step_by(LOG_PAGE)) {
            same("the position of a page", log_page(document, page)?.number("position")?, position)?;
            sums.extend_from_slice(&page[..4]);
        }
        same("log-segment.pages", view.number("pages")?, u64::from(checksum(&sums)))?;
    }
    same("archive.end", end, number("archive.end")?)
}
