//! The log, read as the document says.

use super::compare::Outcome;
use super::document::{Document, View, same};
use super::files::{Files, LOG_PAGE};
use super::records::{self, Met};
use engine::log::page::HEADER_SIZE as HEADER;
use std::collections::BTreeMap;
use structures::checksum::checksum;

/// The pages that the log says were edited: the last sequence number of each, and the end of that record.
pub type Edits = BTreeMap<u64, (u64, u64)>;

/// The last edits of a log on two devices.
pub fn log_of(document: &Document, files: &Files, stock: u16) -> Outcome<Edits> {
    let (file, second) = (files.get("disk", "log"), files.get("flash", "log-2"));
    same("the second log", file == second, true)?;
    let mut pages = Vec::new();
    for (index, page) in file.chunks_exact(LOG_PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0))
    {
        let view = log_page(document, page)?;
        same("log-page.position", view.number("position")? % file.len() as u64, (index * LOG_PAGE) as u64)?;
        pages.push((view.number("position")?, view));
    }
    pages.sort_by_key(|(position, _)| *position);
    same("the first page of the log", pages.first().map(|(position, _)| *position), Some(LOG_PAGE as u64))?;
    let (mut stream, mut begins) = (Vec::new(), Vec::new());
    for (position, view) in &pages {
        same("durable before the page", view.number("durable")? <= *position, true)?;
        same("the epoch of one opening", view.number("epoch")?, pages[0].1.number("epoch")?)?;
        let (head, used) = (view.offset("records"), view.number("used")? as usize);
        let (records, zeros) =
            view.bytes("records")?.split_at_checked(used - head).ok_or("more is used than there is")?;
        same("what is behind the records", zeros.iter().all(|byte| *byte == 0), true)?;
        begins.push((stream.len(), stream.len() + records.len(), view.number("first")? as usize, *position));
        stream.extend_from_slice(records);
    }
    let (mut at, mut met, mut starts, mut edits) = (0, Met::new(), Vec::new(), Edits::new());
    while at < stream.len() {
        let length = document.view("log-record", &stream[at..])?.number("length")? as usize;
        let bytes = stream.get(at..at + length).ok_or("the log ends within a record")?;
        let record = records::record(document, bytes, &mut met)?;
        starts.push(at);
        at += length;
        let page = begins.iter().find(|(from, to, ..)| (from + 1..=*to).contains(&at)).ok_or("a record has no page")?;
        let lsn = page.3 + (HEADER + at - page.0) as u64;
        edits.extend(record.edits.iter().map(|(page, sequence)| (*page, (*sequence, lsn))));
        let own = record.sets.iter().all(|partition| (u64::from(stock)..=u64::from(stock) + 1).contains(partition));
        same("the partitions of changes of sets", own, true)?;
    }
    for (from, to, first, _) in begins {
        let begin = starts.iter().find(|start| (from..to).contains(start));
        same("log-page.first", first, begin.map_or(0, |start| start - from + HEADER))?;
    }
    for name in ["insert", "replace", "patch", "delete", "add"] {
        same("changes of sets in the log", met.contains(&format!("set-change.{name}")), true)?;
    }
    for name in ["update", "system", "compensation", "commit", "chain_step", "rolled_back", "set_commit"] {
        same("records in the log", met.contains(&format!("log-record-kind.{name}")), true)?;
    }
    Ok(edits)
}

/// A sound log page.
pub fn log_page<'a>(document: &'a Document, page: &'a [u8]) -> Outcome<View<'a>> {
    let view = document.view("log-page", page)?;
    same("log-page.checksum", view.number("checksum")?, u64::from(checksum(&page[view.offset("magic")..])))?;
    same("log-page.version", view.number("version")?, document.constant("log_page_version"))?;
    same("log-page.size", view.number("size")?, LOG_PAGE as u64)?;
    same("log_page_header_size", view.offset("records") as u64, document.constant("log_page_header_size"))?;
    Ok(view)
}
