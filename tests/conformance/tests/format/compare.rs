//! Each statement of the document against constants and files.

use super::document::{Document, View, same};
use super::files::{self, Files, LOG_PAGE, PAGE};
use super::log::{Edits, log_of, log_page};
use super::postcard::{Found, Reader};
use super::records::{self, Input, Met};
use base::{Lsn, PageId, PartitionId, TransactionId};
use engine::log::record::{Body, encode};
use engine::page::{Change, Edit, HEADER_SIZE, PageKind, header};
use engine::undo::Undo;
use engine::{log, set};
use std::collections::BTreeMap;
use structures::checksum::checksum;

pub type Outcome<T = ()> = Result<T, String>;
/// Pages by their numbers: each with its kind and its bytes.
type Pages<'a> = BTreeMap<u32, (View<'a>, &'a str, &'a [u8])>;

pub fn all(document: &Document, files: &Files) -> Outcome {
    constants(document)?;
    encodings(document)?;
    let partitions = superblock(document, files)?;
    let edits = log_of(document, files, partitions["stock"])?;
    let pages = |name: &str| pages(document, files.get("disk", &format!("{name}.pages")), partitions[name], &edits);
    tree(document, &pages("tree")?)?;
    direct(&pages("objects")?)?;
    append(document, &pages("history")?)?;
    staging(document, files.get("disk", "double-write"))?;
    log_buffer(document, files.get("nvem", "log-buffer.tier (buffered)"))?;
    sets(document, files, &partitions)?;
    temporary(document, files.get("disk", "temp.space (open)"))?;
    versions(document, files.get("disk", "undo.space (open)"))?;
    super::archive::compare(document, files)?;
    super::trace::compare(document)
}

fn constants(document: &Document) -> Outcome {
    let stated = [
        ("page_size_min", header::PAGE_SIZE_MIN as u64),
        ("page_size_max", header::PAGE_SIZE_MAX as u64),
        ("page_header_size", HEADER_SIZE as u64),
        ("log_page_version", log::page::VERSION.into()),
        ("log_page_size_min", log::page::PAGE_SIZE_MIN as u64),
        ("log_page_size_max", log::page::PAGE_SIZE_MAX as u64),
        ("log_page_header_size", log::page::HEADER_SIZE as u64),
        ("log_record_head_size", log::record::Record::FIXED_SIZE as u64),
        ("superblock_format", engine::FORMAT.into()),
        ("tier_header_size", engine::tier_file::HEADER_BYTES),
        ("table_block", engine::tier_file::table::BLOCK_BYTES as u64),
        ("segment_size_min", *set::SEGMENT_SIZES.start() as u64),
        ("segment_size_max", *set::SEGMENT_SIZES.end() as u64),
        ("segment_size_usual", set::SEGMENT_SIZE as u64),
    ];
    stated.into_iter().try_for_each(|(name, value)| same(name, value, document.constant(name)))
}

/// What public functions encode, every variant.
fn encodings(document: &Document) -> Outcome {
    use engine::organization::append::{ERASED, LIVE};
    let kinds = [
        (PageKind::Empty, "empty"),
        (PageKind::Allocator, "allocator"),
        (PageKind::Free, "free"),
        (PageKind::Direct, "direct"),
        (PageKind::Append, "append"),
        (PageKind::Node, "node"),
        (PageKind::Overflow, "overflow"),
    ];
    for (kind, name) in kinds {
        same(name, document.number("page-kind", name)?, kind as u64)?;
    }
    same("erased", document.number("append-record", "erased")?, u64::from(ERASED))?;
    same("live", document.number("append-record", "live")?, u64::from(LIVE))?;
    let (partition, page) = (PartitionId(4), PageId::new(PartitionId(4), 9));
    let undos = [
        ("remove", Undo::Remove { partition, key: b"k" }),
        ("insert", Undo::Insert { partition, key: b"k", value: b"v" }),
        ("replace", Undo::Replace { partition, key: b"k", value: b"vv" }),
        ("patch_value", Undo::PatchValue { partition, key: b"k", offset: 3, bytes: b"old" }),
        ("patch_page", Undo::PatchPage { page, offset: 40, bytes: b"x" }),
        ("erase_appended", Undo::EraseAppended { page, slot: 2 }),
        ("free_page", Undo::FreePage { page }),
    ];
    for (name, undo) in undos {
        let (stored, mut met) = (undo.stored(), Met::new());
        let mut input = Input(&stored);
        records::undo(document, &mut input, &mut met)?;
        same(name, (met, input.0.len()), (Met::from([format!("undo.{name}")]), 0))?;
    }
    let kind = PageKind::Node;
    let changes = [
        ("format", Change::Format { kind, level: 2, count: 3, image: b"image" }),
        ("format_ends", Change::FormatEnds { kind, level: 0, count: 3, front: b"slots", back: b"heap" }),
        ("patch", Change::Patch { offset: 32, bytes: b"p" }),
        ("insert_slot", Change::InsertSlot { slot: 1, key: b"key", value: b"value" }),
        ("remove_slot", Change::RemoveSlot { slot: 8 }),
        ("replace_value", Change::ReplaceValue { slot: 2, value: b"new" }),
        ("patch_value", Change::PatchValue { slot: 2, offset: 1, bytes: b"n" }),
    ];
    for (name, change) in changes {
        let (mut stored, mut met) = (Vec::new(), Met::new());
        change.encode(&mut stored);
        let mut input = Input(&stored);
        records::change(document, &mut input, &mut met)?;
        same(name, (met, input.0.len()), (Met::from([format!("change.{name}")]), 0))?;
    }
    let undo = Undo::FreePage { page }.stored();
    let changes: &[u8] = &[4 | 31 << 3, 40, 1, b'k'];
    let bodies = [
        ("update", Body::Update(&undo)),
        ("system", Body::System),
        ("compensation", Body::Compensation { remaining: 7 }),
        ("commit", Body::Commit { chains: &[1; 16], changes: &[] }),
        ("chain_step", Body::ChainStep { chain: 1, next: 5 }),
        ("rolled_back", Body::RolledBack),
        ("set_commit", Body::Commit { chains: &[], changes }),
        ("swept_commit", Body::SweptCommit { chains: &[2; 8], changes, sweep: Lsn(77), included: &[5] }),
        ("call", Body::Call { sweep: None, call: b"call" }),
        ("swept_call", Body::Call { sweep: Some(Lsn(1 << 40)), call: b"call" }),
        ("time", Body::Time { unix_ns: 1 << 60, oldest: None }),
        ("moment", Body::Time { unix_ns: 1 << 60, oldest: Some(Lsn(9)) }),
        ("sets_before", Body::SetsBefore { undos: b"undos" }),
        ("load_ended", Body::LoadEnded { partition: PartitionId(3) }),
        ("long_value", Body::LongValue { update: 3, value: b"value" }),
        ("catalog", Body::Catalog { is_whole: true, changes: b"changes" }),
        ("loaded", Body::Loaded { partition: PartitionId(3) }),
        ("load_undone", Body::LoadUndone { partition: PartitionId(3), loaded: Lsn(5) }),
    ];
    for (name, body) in bodies {
        let mut bytes = Vec::new();
        let edit = Edit { page, change: Change::RemoveSlot { slot: 1 } };
        encode(TransactionId(77), &body, [(5, &edit)], &mut bytes);
        let record = records::record(document, &bytes, &mut Met::new())?;
        same("kind of a record", record.kind, name)?;
        same("edits of a record", record.edits, [(page.packed(), 5)])?;
        same("log-record.transaction", document.view("log-record", &bytes)?.number("transaction")?, 77)?;
    }
    let (edit, mut records, mut bytes) =
        (Edit { page, change: Change::RemoveSlot { slot: 1 } }, Vec::new(), Vec::new());
    for body in [Body::Update(&undo), Body::System] {
        encode(TransactionId(77), &body, [(5, &edit)], &mut records);
    }
    encode(TransactionId(77), &Body::Shipment { records: &records }, [], &mut bytes);
    let record = records::record(document, &bytes, &mut Met::new())?;
    same("a shipment", (record.kind, record.edits), ("shipment", vec![(page.packed(), 5); 2]))?;
    Ok(())
}

/// The superblock file: the numbers of partitions by name.
fn superblock(document: &Document, files: &Files) -> Outcome<BTreeMap<String, u16>> {
    let file = files.get("disk", "entresol.home");
    let region = document.constant("superblock_region") as usize;
    let block = document.constant("superblock_block") as usize;
    let copy = |copy: usize| file.chunks_exact(region).skip(copy).step_by(2).flatten().copied().collect::<Vec<u8>>();
    let (first, second) = (copy(0), copy(1));
    let view = document.view("superblock", &first)?;
    let length = view.number("length")? as usize;
    let contents = view.offset("contents");
    same("superblock.format", view.number("format")?, document.constant("superblock_format"))?;
    let generation = view.offset("generation");
    same("superblock.checksum", view.number("checksum")?, u64::from(checksum(&first[generation..contents + length])))?;
    same("the mirror of the superblock", &second[..block], &first[..block])?;
    same("generation above zero", view.number("generation")? > 0, true)?;
    let mut reader = Reader { document, rest: &view.bytes("contents")?[..length] };
    let mut found = Found::new();
    reader.structure("superblock", "", &mut found)?;
    same("bytes behind the superblock's fields", reader.rest.len(), 0)?;
    for (name, value) in [
        ("page_size", PAGE.to_string()),
        ("log_page_size", LOG_PAGE.to_string()),
        ("log_device", "disk".to_owned()),
        ("tiers", "1".to_owned()),
        ("tiers.0.device", "nvem".to_owned()),
        ("tiers.0.capacity", files::CACHE_PAGES.to_string()),
        ("second_log.device", "flash".to_owned()),
        ("second_log.lost", "none".to_owned()),
        ("second_log.both", "true".to_owned()),
    ] {
        same(name, found.get(name), Some(&value))?;
    }
    tier(document, files.get("nvem", "cache.tier"), &found)?;
    table(document, files, &found)?;
    let number = |name: &str| found[name].parse::<u64>().map_err(|_| format!("{name} is no number"));
    let (start, end) =
        (number("catalog.start")? as usize, (number("catalog.start")? + number("catalog.length")?) as usize);
    let journal = first.get(start..end).ok_or("the journal is beyond the end")?;
    same("the mirror of the journal", &second[start..end], journal)?;
    let (numbers, entries) = entries(document, journal, (number("catalog.first")?, block))?;
    same("entries of the journal", entries, number("catalog.entries")?)?;
    Ok(numbers)
}

/// The partitions of a journal, and how many entries it has.
fn entries(document: &Document, journal: &[u8], (first, block): (u64, usize)) -> Outcome<(BTreeMap<String, u16>, u64)> {
    let (mut numbers, mut met) = (BTreeMap::new(), Met::new());
    let (mut at, mut entries) = (0, 0);
    while at < journal.len() {
        let entry = document.view("journal-entry", &journal[at..])?;
        let end = entry.offset("changes") + entry.number("length")? as usize;
        same("journal-entry.number", entry.number("number")?, first + entries)?;
        let checked = journal.get(at + entry.offset("number")..at + end).ok_or("an entry is cut off")?;
        same("journal-entry.checksum", entry.number("checksum")?, u64::from(checksum(checked)))?;
        let mut reader = Reader { document, rest: &journal[at + entry.offset("changes")..at + end] };
        entry.bytes("changes")?;
        for _ in 0..reader.varint()? {
            catalog_change(document, &mut reader, &mut numbers, &mut met)?;
        }
        same("bytes behind an entry's changes", reader.rest.len(), 0)?;
        at += end.next_multiple_of(block);
        entries += 1;
    }
    let of_partitions = ["begin", "enter", "drop", "gone", "segments", "images", "type", "files", "rename"];
    let mut expected = of_partitions.iter().chain(&["index", "set_index", "set_index_gone"]);
    same("changes in the journal", expected.find(|name| !met.contains(**name)), None::<&&str>)?;
    Ok((numbers, entries))
}

fn catalog_change(
    document: &Document,
    reader: &mut Reader<'_>,
    numbers: &mut BTreeMap<String, u16>,
    met: &mut Met,
) -> Outcome {
    let number = reader.varint()?;
    let name = document.name("catalog-change", number)?;
    met.insert(name.to_owned());
    match name {
        "begin" => {
            let mut found = Found::new();
            reader.structure("partition", "", &mut found)?;
            let number = found["id"].parse().map_err(|_| "an id is no number")?;
            numbers.insert(found["name"].clone(), number);
            let organization = match found["name"].as_str() {
                "tree" | "passing" | "passing.by_number" | "passed" | "passed.by_number" => "b_tree",
                "objects" => "direct",
                "history" => "append",
                _ => "set",
            };
            same("the organization of a partition", found["organization"].as_str(), organization)?;
            if reader.flag()? {
                let types = reader.schema()?;
                same("types of fields", types, ["u8", "u16", "u32", "u64", "i64", "f64", "array", "bytes", "text"])?;
            }
        }
        "enter" | "drop" | "gone" | "next" => _ = reader.varint()?,
        "segments" | "images" => {
            for _ in 0..reader.varint()? {
                reader.varint()?;
                if name == "segments" || reader.flag()? {
                    reader.varint()?;
                }
            }
        }
        "type" => {
            reader.varint()?;
            reader.fields()?;
        }
        "index" | "set_index" => {
            reader.varint()?;
            let mut found = Found::new();
            reader.structure("index", "", &mut found)?;
            same("the index", [&found["name"], &found["fields.0"], &found["unique"]], ["by_number", "2", "false"])?;
        }
        "files" | "rename" => _ = (reader.varint()?, reader.string()?),
        "since" | "set_index_gone" => _ = (reader.varint()?, reader.varint()?),
        other => return Err(format!("no change is called {other}")),
    }
    Ok(())
}

fn tier(document: &Document, file: &[u8], superblock: &Found) -> Outcome {
    let header = document.constant("tier_header_size") as usize;
    let view = document.view("tier", &file[..header])?;
    for (field, name) in [("stamp", "tiers.0.stamp"), ("capacity", "tiers.0.capacity")] {
        same(field, Some(&view.number(field)?.to_string()), superblock.get(name))?;
    }
    same("tier.page_size", view.number("page_size")?, PAGE as u64)?;
    let end = view.offset("checksum");
    same("tier.checksum", view.number("checksum")?, u64::from(checksum(&file[..end])))?;
    same("tier.database", Some(&view.number("database")?.to_string()), superblock.get("identity"))?;
    let database = view.offset("database");
    let sum = u64::from(checksum(&file[database..database + 8]));
    same("tier.database_checksum", view.number("database_checksum")?, sum)?;
    same("the rest of the header", view.bytes("zeros")?.iter().all(|byte| *byte == 0), true)?;
    let slots = files::CACHE_PAGES as usize * PAGE;
    same("the second header", &file[header + slots..header + slots + header], &file[..header])?;
    let sound = file[header..header + slots].chunks(PAGE).filter(|page| page_of(document, page, None).is_ok()).count();
    same("a tier has whole pages", sound > 0, true)
}

/// The size of a statement of a cache's table.
const STATEMENT: usize = 24;

/// The blocks of a cache's table up to the one that the superblock names: its statements are of what the slots hold.
fn table(document: &Document, files: &Files, superblock: &Found) -> Outcome {
    let (file, slots) = (files.get("nvem", "cache-table.tier"), files.get("nvem", "cache.tier"));
    let size = document.constant("table_block") as usize;
    same("blocks of a table", (file.len() / size) as u64, engine::tier_file::table::blocks_for(files::CACHE_PAGES))?;
    let number = |name: &str| superblock.get(name).and_then(|word| word.parse::<u64>().ok()).ok_or("no table is named");
    let (stamp, last) = (number("cache_table.stamp")?, number("cache_table.number")?);
    same("the table has blocks, and has not gone round", last > 0 && last < (file.len() / size) as u64, true)?;
    let (mut previous, mut held) = (0, BTreeMap::new());
    for number in 1..=last {
        let block = &file[number as usize * size..(number as usize + 1) * size];
        let view = document.view("table-block", block)?;
        same("table-block.stamp", view.number("stamp")?, stamp)?;
        same("table-block.number", view.number("number")?, number)?;
        same("table-block.previous", view.number("previous")?, previous)?;
        previous = view.number("checksum")?;
        same("table-block.checksum", previous, u64::from(checksum(&block[view.offset("magic")..])))?;
        // The cache was new in this opening of the database.
        same("table-block.opening", view.number("opening")?, stamp)?;
        let statements = view.bytes("statements")?;
        let length = STATEMENT;
        let count = view.number("count")? as usize;
        same("statements fit their block", count > 0 && count * length <= statements.len(), true)?;
        for statement in statements.chunks(length).take(count) {
            let view = document.view("table-statement", statement)?;
            let words = ["page", "partition", "sequence", "lsn"].map(|name| view.number(name));
            let [page, partition, sequence, lsn] = words;
            held.insert(view.number("slot")?, (page?, partition?, sequence?, lsn?));
        }
        same("zeros behind the statements", statements[count * length..].iter().all(|byte| *byte == 0), true)?;
    }
    let header = document.constant("tier_header_size") as usize;
    let mut found = 0;
    for (slot, (page, partition, sequence, lsn)) in
        held.into_iter().filter(|(_, (_, partition, ..))| *partition != 65535)
    {
        let place = header + slot as usize * PAGE;
        let id = PageId::new(PartitionId(partition as u16), page as u32);
        let (view, _) = page_of(document, &slots[place..place + PAGE], Some(id))?;
        same("table-statement.sequence", view.number("sequence")?, sequence)?;
        same("table-statement.lsn", view.number("lsn")?, lsn)?;
        found += 1;
    }
    same("the table states slots that hold something", found > 0, true)
}

/// A page whose checksum is right, and which has this id.
fn page_of<'a>(document: &'a Document, page: &'a [u8], id: Option<PageId>) -> Outcome<(View<'a>, &'a str)> {
    let view = document.view("page", page)?;
    same("page.checksum", view.number("checksum")?, u64::from(checksum(&page[view.offset("kind")..])))?;
    if let Some(id) = id {
        same("page.id", view.number("id")?, id.packed())?;
        same("an id is a partition and a number", id.packed(), u64::from(id.partition.0) << 32 | u64::from(id.number))?;
    }
    same("page_header_size", view.offset("contents") as u64, document.constant("page_header_size"))?;
    let kind = document.name("page-kind", view.number("kind")?)?;
    Ok((view, kind))
}

/// The written pages of a file by their numbers. The last edit that the log has of a page is the last one on it.
fn pages<'a>(document: &'a Document, file: &'a [u8], partition: u16, edits: &Edits) -> Outcome<Pages<'a>> {
    let written = (0_u32..).zip(file.chunks_exact(PAGE)).filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    let mut found = BTreeMap::new();
    for (number, page) in written {
        let id = PageId::new(PartitionId(partition), number);
        let (view, kind) = page_of(document, page, Some(id))?;
        let last = edits.get(&id.packed()).copied();
        same("page.sequence and lsn", Some((view.number("sequence")?, view.number("lsn")?)), last)?;
        found.insert(number, (view, kind, page));
    }
    Ok(found)
}

fn allocator(document: &Document, pages: &Pages<'_>) -> Outcome<u64> {
    let (_, kind, page) = pages[&0];
    same("page 0", kind, "allocator")?;
    let view = document.view("allocator", page)?;
    same("allocator.page_count", view.number("page_count")?, pages.len() as u64)?;
    let free = pages.values().filter(|(_, kind, _)| *kind == "free").count() as u64;
    same("allocator.free_count", view.number("free_count")?, free)?;
    let mut next = view.number("free_head")?;
    for _ in 0..free {
        let (_, kind, page) = pages.get(&(next as u32)).ok_or("the free list leaves the file")?;
        same("a page on the free list", *kind, "free")?;
        next = document.view("free", page)?.number("next")?;
    }
    same("the end of the free list", next, 0)?;
    // None was cut off.
    same("allocator.floor", view.number("floor")?, 0)?;
    view.number("tail")
}

fn tree(document: &Document, pages: &Pages<'_>) -> Outcome {
    allocator(document, pages)?;
    let (mut leaves, mut inner) = (BTreeMap::new(), 0);
    for (view, _, page) in pages.values().filter(|(_, kind, _)| *kind == "node") {
        let records = node(document, page, view.number("count")?)?;
        if view.number("level")? == 0 {
            leaves.extend(records);
            continue;
        }
        inner += 1;
        for (_, value) in records {
            let child = u32::from_le_bytes(value.try_into().map_err(|_| "a child is not four bytes")?);
            same("a child", pages.get(&child).map(|(_, kind, _)| *kind), Some("node"))?;
        }
    }
    same("inner nodes", inner, 1)?;
    same("records", leaves.len(), 2000)?;
    let value = |key: &[u8]| leaves.get(key).map(Vec::as_slice).ok_or("a key is missing");
    let short = value(b"key-\0\0\0\x07----")?;
    let view = document.view("stored-value", short)?;
    same("a stored value", (view.number("version")?, view.bytes("value")?), (0, &[7; 60][..]))?;
    let view = document.view("stored-value", value(b"long")?)?;
    same("stored-value.version", view.number("version")?, 1 << 63)?;
    let long = document.view("long-value", view.bytes("value")?)?;
    same("long-value.length", long.number("length")?, files::LONG_VALUE as u64)?;
    let (mut next, mut read) = (long.number("first")?, Vec::new());
    while next != 0 {
        let (_, kind, page) = pages.get(&(next as u32)).ok_or("a long value leaves the file")?;
        same("a part of a long value", *kind, "overflow")?;
        let part = document.view("overflow", page)?;
        let length = part.number("length")? as usize;
        read.extend_from_slice(part.bytes("value")?.get(..length).ok_or("a part is too long")?);
        next = part.number("next")?;
    }
    same("a long value", read == vec![9; files::LONG_VALUE], true)
}

/// A node's keys and values.
fn node(document: &Document, page: &[u8], count: u64) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = document.view("slotted", page)?;
    let (lower, upper) = (view.number("lower")? as usize, view.number("upper")? as usize);
    let fences = page.len().checked_sub(lower + upper).ok_or("fences are too long")?;
    let prefix = page.get(fences..fences + view.number("prefix")? as usize).ok_or("the prefix is too long")?;
    let mut used = lower + upper + view.number("garbage")? as usize;
    let mut slots = Input(view.bytes("slots")?);
    let mut records = Vec::new();
    for _ in 0..count {
        let slot = slots.take(12)?;
        let slot = document.view("node-slot", slot)?;
        let key_length = slot.number("key_length")? as usize;
        let record = page.get(slot.number("position")? as usize..).ok_or("a record is beyond the end")?;
        let record = document.view("record", record)?;
        let (rest, length) = (key_length.saturating_sub(8), record.number("length")? as usize);
        let bytes = record.bytes("bytes")?.get(..rest + length).ok_or("a record is too long")?;
        let head = slot.number("head")?.to_be_bytes();
        let key = [prefix, &head[..key_length.min(8)], &bytes[..rest]].concat();
        used += record.offset("bytes") + rest + length;
        records.push((key, bytes[rest..].to_vec()));
    }
    same("slotted.heap", view.number("heap")?, used as u64)?;
    same("keys are sorted", records.is_sorted(), true)?;
    let (lowest, bound) = (&page[fences..fences + lower], &page[fences + lower..]);
    let within = |key: &[u8]| key >= lowest && (bound.is_empty() || key < bound);
    let keys = if document.view("page", page)?.number("level")? == 0 { &records[..] } else { &[] };
    same("keys are within the fences", keys.iter().all(|(key, _)| within(key)), true)?;
    Ok(records)
}

fn direct(pages: &Pages<'_>) -> Outcome {
    same("direct pages", pages.len(), 5)?;
    for (_, kind, page) in pages.values() {
        same("kind", *kind, "direct")?;
        let objects = page[HEADER_SIZE..].chunks(files::OBJECT.0 as usize).take(files::OBJECT.1 as usize);
        same("objects", objects.map(|object| object[0]).collect::<Vec<_>>(), [5; 10])?;
    }
    Ok(())
}

fn append(document: &Document, pages: &Pages<'_>) -> Outcome {
    let tail = allocator(document, pages)?;
    same("allocator.tail", tail, 1)?;
    let (view, kind, page) = &pages[&1];
    same("the tail", (*kind, view.number("count")?), ("append", 2))?;
    let mut slots = Input(document.view("slotted", page)?.bytes("slots")?);
    for (state, text) in [("live", &b"a live record"[..]), ("erased", b"an erased one")] {
        let slot = document.view("append-slot", slots.take(2)?)?.number("position")? as usize;
        let record = document.view("record", page.get(slot..).ok_or("a record is beyond the end")?)?;
        let bytes = &record.bytes("bytes")?[..record.number("length")? as usize];
        same("a record", (u64::from(bytes[0]), &bytes[1..]), (document.number("append-record", state)?, text))?;
    }
    Ok(())
}

fn staging(document: &Document, file: &[u8]) -> Outcome {
    let pages = document.constant("double_write_regions") * document.constant("double_write_pages_per_region");
    same("the length of the double-write area", file.len() as u64, pages * PAGE as u64)?;
    page_of(document, &file[..PAGE], None).map(drop)
}

fn log_buffer(document: &Document, file: &[u8]) -> Outcome {
    let header = document.constant("tier_header_size") as usize;
    let view = document.view("tier", &file[..header])?;
    same("tier.capacity of a log's write buffer", view.number("capacity")?, files::LOG_BUFFER)?;
    same("tier.page_size of a log's write buffer", view.number("page_size")?, LOG_PAGE as u64)?;
    log_page(document, &file[header..header + LOG_PAGE]).map(drop)
}

fn sets(document: &Document, files: &Files, partitions: &BTreeMap<String, u16>) -> Outcome {
    let mut flags = 0;
    for (name, keys) in [("stock", &["four", "one", "two"][..]), ("typed", &["typed"])] {
        let copies = [0, 1].map(|copy| files.get("disk", &format!("{name}.backup-{copy}")));
        let file =
            copies.into_iter().find(|file| file.len() >= files::SEGMENT as usize).ok_or("no copy was written")?;
        let segment = &file[..files::SEGMENT as usize];
        let view = document.view("segment", segment)?;
        same("segment.checksum", view.number("checksum")?, u64::from(checksum(&segment[view.offset("magic")..])))?;
        same("segment.partition", view.number("partition")?, u64::from(partitions[name]))?;
        same("segment.number and arrival", (view.number("number")?, view.number("arrival")?), (0, 0))?;
        let (items, used) = (view.bytes("items")?, view.number("used")? as usize);
        let mut input = Input(items.get(..used - view.offset("items")).ok_or("more is used than there is")?);
        let mut found = BTreeMap::new();
        while !input.0.is_empty() {
            let head = document.view("item", input.0)?.number("head")?;
            flags |= head >> 59;
            let item = document.view("item", input.take((head & 0xf_ffff) as usize * 8)?)?;
            if head & 1 << document.number("item-flag", "hole")? == 0 {
                let (key, value) = ((head >> 20 & 0xffff) as usize, (head >> 36 & 0x7f_ffff) as usize);
                let (key, rest) = item.bytes("bytes")?.split_at_checked(key).ok_or("a key is too long")?;
                let sequence = item.number("sequence")?;
                same("a record's sequence number", (1..=view.number("sequence")?).contains(&sequence), true)?;
                found.insert(key.to_vec(), rest.get(..value).ok_or("a value is too long")?.to_vec());
            }
        }
        same("keys of a set", found.keys().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>(), keys)?;
        if let Some(value) = found.get(&b"typed"[..]) {
            let numbers =
                [&[1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0][..], &(-5_i64).to_le_bytes(), &0.5_f64.to_le_bytes()];
            let record = [&numbers.concat()[..], b"abc", &[5, 0, 9, 0], b"bytes", b"text"].concat();
            same("a typed record", value, &record)?;
        }
    }
    let after = document.number("item-flag", "after_hole")? - 59;
    same("flags of items", flags, 1 | 1 << after)
}

fn temporary(document: &Document, file: &[u8]) -> Outcome {
    let view = document.view("cluster", &file[..files::CLUSTER])?;
    let rows = view.offset("rows");
    let used = view.number("used")? as usize;
    same("cluster.checksum", view.number("checksum")?, u64::from(checksum(&file[view.offset("used")..rows + used])))?;
    same("cluster.number", view.number("number")?, 0)?;
    view.number("run")?;
    let mut input = Input(&view.bytes("rows")?[..used]);
    let mut last = 0;
    while !input.0.is_empty() {
        last = used - input.0.len();
        same("the lengths of a row", (input.varint()?, input.varint()?), (4, 20))?;
        input.take(24.min(input.0.len()))?;
    }
    same("cluster.last", view.number("last")?, last as u64)?;
    let next = document.view("cluster", &file[files::CLUSTER..2 * files::CLUSTER])?;
    same("the second cluster of a run", (next.number("number")?, next.number("run")?), (1, view.number("run")?))
}

fn versions(document: &Document, file: &[u8]) -> Outcome {
    let mut met = Met::new();
    let mut at = 0;
    while let Some(version) = file.get(at..).filter(|rest| rest.len() > 32 && rest[..4] != [0; 4]) {
        let view = document.view("version", version)?;
        let length = view.number("length")? as usize;
        let whole = version.get(..length).ok_or("a version is too long")?;
        let sum = u64::from(checksum(&whole[view.offset("below")..]));
        let place = |extent: u64| u64::from(checksum(&(extent << 32 | at as u64).to_le_bytes()));
        let stored = view.number("checksum")?;
        if !(0..16).any(|extent| sum ^ place(extent) == stored) {
            break;
        }
        let kind = document.name("version-kind", view.number("kind")?)?;
        met.insert(kind.to_owned());
        let (below, commit) = (view.number("below")?, view.number("commit")?);
        same("a version below has a commit", below == u64::MAX || commit > 0, true)?;
        same("version.partition", view.number("partition")? <= 2, true)?;
        let key = view.number("key_length")? as usize;
        let (key, rest) = view.bytes("key")?.split_at_checked(key).ok_or("a key is too long")?;
        let rest = &rest[..length - view.offset("key") - key.len()];
        match kind {
            "value" if key.starts_with(b"key-") => {
                same("a version's stored value", &rest[8..], &[7; 60][..])?;
            }
            "patch" => {
                let (offset, bytes) = rest.split_at(4);
                same("a version's patch", (offset[1], bytes.iter().all(|byte| *byte == 7 || *byte == 0)), (0, true))?;
            }
            "absent" => same("what there was", rest.len(), 0)?,
            _ => {}
        }
        at += length;
    }
    for kind in ["absent", "value", "patch"] {
        same("versions of a kind", (kind, met.contains(kind)), (kind, true))?;
    }
    Ok(())
}
