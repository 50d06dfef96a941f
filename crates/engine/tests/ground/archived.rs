// A machine with an archive of the log, and what that has, read by itself.

use base::Random;
use devices::Hardware;
use entresol_engine::checkpoint::Policy;
use entresol_engine::log::page::{self, HEADER_SIZE};
use entresol_engine::log::record::{Body, Record};
use entresol_engine::undo::{Undo, decode_undo};
use entresol_engine::{Settings, log};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use virtual_driver::{FaultPlan, Media, Options, PowerCut, VirtualDriver};

/// The size of the log's pages, in bytes.
pub const PAGE: usize = 4096;

/// A small log with an archive.
pub fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 256 << 10, archive: Some("archive".into()), ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(32 << 10), interval_ns: None },
        ..Settings::default()
    }
}

/// The machine.
pub fn hardware() -> Hardware {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    Hardware::parse(&(device("disk") + &device("archive")), "test").expect("a description")
}

/// Runs `work` on the machine with these media, then takes its power away.
pub fn on<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    under(FaultPlan::default(), media, work)
}

/// The same with whatever goes wrong.
pub fn under<T>(faults: FaultPlan, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(hardware(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result.expect("the machine goes on")
}

/// Puts what was archived on one machine beside the database of another one.
pub fn put_archive(from: &Media, to: &Media) {
    let mut hardware = hardware();
    let place = hardware.device_mut("archive").clone();
    for file in from.names("archive") {
        let mut bytes = vec![0; from.length("archive", &file).expect("it is named") as usize];
        from.read("archive", &file, 0, &mut bytes).expect("it is sound");
        to.put(("archive", &place), &file, 0, &bytes);
    }
}

/// Where the pages of a segment begin.
const BLOCK: usize = 4096;

/// The log of one history as its segments have it: the position of its first page, and its pages.
#[derive(Debug)]
pub struct ArchivedHistory {
    pub first: u64,
    pub pages: Vec<u8>,
}

/// The log of each history in the archive.
///
/// # Errors
/// What is wrong with it: a page that is none, a gap, or two segments for one position.
pub fn histories(media: &Media, page_size: usize) -> Result<BTreeMap<u64, ArchivedHistory>, String> {
    let mut found: BTreeMap<u64, ArchivedHistory> = BTreeMap::new();
    for name in media.names("archive") {
        let Some(length) = media.length("archive", &name).filter(|length| *length >= BLOCK as u64) else { continue };
        let mut bytes = vec![0; length as usize];
        media.read("archive", &name, 0, &mut bytes).map_err(|fault| fault.to_string())?;
        if !bytes.starts_with(b"ENTRLOGS") {
            // Half written.
            continue;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (history, first, end) = (word(16), word(24), word(32));
        let pages = bytes.get(BLOCK..BLOCK + (end - first) as usize).ok_or(format!("'{name}' is cut off"))?;
        for (page, position) in pages.chunks_exact(page_size).zip((first..).step_by(page_size)) {
            page::verify(page, position).map_err(|flaw| format!("position {position} of '{name}': {flaw:?}"))?;
        }
        // Names are in the order of positions.
        let so_far = found.entry(history).or_insert(ArchivedHistory { first, pages: Vec::new() });
        let expected = so_far.first + so_far.pages.len() as u64;
        if first != expected {
            return Err(format!("'{name}' begins at {first}, the one before it ends at {expected}"));
        }
        so_far.pages.extend_from_slice(pages);
    }
    Ok(found)
}

/// The keys that records of a history say to have been added, in their order.
pub fn added_keys(history: &ArchivedHistory, page_size: usize) -> Vec<Vec<u8>> {
    let (mut stream, mut keys, mut epoch, mut aligned) = (Vec::new(), Vec::new(), 0, false);
    for (page, position) in history.pages.chunks_exact(page_size).zip((history.first..).step_by(page_size)) {
        let header = page::verify(page, position).expect("it was verified");
        assert!(header.epoch >= epoch, "openings are in their order at {position}");
        if header.epoch > epoch {
            stream.clear();
        }
        epoch = header.epoch;
        let from = if aligned || header.first == 0 { HEADER_SIZE } else { header.first };
        aligned |= header.first != 0;
        if aligned {
            stream.extend_from_slice(&page[from..header.used]);
        }
        let mut at = 0;
        while let Some(length) = stream.get(at..at + 4) {
            let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
            let Some(bytes) = stream.get(at..at + length) else { break };
            let record = Record::decode(bytes).expect("a whole record");
            if let Body::Update(mut undo) = record.body
                && let Some(Undo::Remove { key, .. }) = decode_undo(&mut undo)
            {
                keys.push(key.to_vec());
            }
            at += length;
        }
        stream.drain(..at);
    }
    keys
}
