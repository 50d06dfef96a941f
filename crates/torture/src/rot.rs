//! Bits that flip while nothing runs.

use crate::configuration::SEGMENT_SIZE;
use crate::{Configuration, Step};
use base::{Lsn, Random};
use engine::log::page;
use virtual_driver::Media;

/// Flips a bit of what `step` wrote, if there is something that would show it; true if so.
pub fn decay(media: &Media, configuration: &Configuration, step: Step, random: &mut Random) -> bool {
    let place = match step {
        Step::HomeWrite => Some(("disk", "entresol.home".to_owned(), random.below(2) * 65_536 + random.below(200))),
        Step::Staging => stored_page(media, "double-write", configuration.settings.buffer.page_size, random),
        Step::LogWrite => vouched_log_page(media, configuration, random),
        Step::SegmentWrite => stored_in(media, ".backup-", SEGMENT_SIZE as usize, random),
        _ => stored_in(media, ".pages", configuration.settings.buffer.page_size, random),
    };
    let Some((device, file, offset)) = place else { return false };
    media.flip_bit(device, &file, offset, random.below(8) as u8).is_ok()
}

type Place = (&'static str, String, u64);

/// A byte of some page, or segment, of this size that was written to a file with such a name.
fn stored_in(media: &Media, names: &str, size: usize, random: &mut Random) -> Option<Place> {
    let found: Vec<String> = media.names("disk").into_iter().filter(|name| name.contains(names)).collect();
    random.choose(&found).and_then(|name| stored_page(media, name, size, random))
}

/// A byte of some page that was written.
fn stored_page(media: &Media, file: &str, page_size: usize, random: &mut Random) -> Option<Place> {
    let pages = media.length("disk", file)? / page_size as u64;
    let mut bytes = vec![0; page_size];
    let written: Vec<u64> = (0..pages.min(200))
        .filter(|number| {
            let read = media.read("disk", file, number * page_size as u64, &mut bytes);
            read.is_ok() && bytes.iter().any(|byte| *byte != 0)
        })
        .collect();
    let number = random.choose(&written)?;
    Some(("disk", file.to_owned(), number * page_size as u64 + random.below(page_size as u64)))
}

/// A byte of a log page that a later page says is durable: its loss is no crash.
fn vouched_log_page(media: &Media, configuration: &Configuration, random: &mut Random) -> Option<Place> {
    let device = if configuration.settings.log_device == "disk" { "disk" } else { "flash" };
    let size = configuration.settings.log.page_size;
    let capacity = media.length(device, "log")?;
    let mut bytes = vec![0; size];
    let mut pages = Vec::new();
    for offset in (0..capacity).step_by(size) {
        media.read(device, "log", offset, &mut bytes).ok()?;
        let position = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        if position % capacity == offset
            && let Ok(header) = page::verify(&bytes, position)
        {
            pages.push(header);
        }
    }
    let last = pages.iter().max_by_key(|header| (header.epoch, header.position))?;
    let vouched: Vec<u64> = pages
        .iter()
        .filter(|header| Lsn(header.position) < last.durable && header.position + capacity > last.position)
        .map(|header| header.position)
        .collect();
    // The latest are the likeliest to be needed.
    let recent = &vouched[vouched.len().saturating_sub(12)..];
    let position = random.choose(recent)?;
    Some((device, "log".to_owned(), position % capacity + random.below(size as u64)))
}
