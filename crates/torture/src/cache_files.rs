//! The files of a cache are replaced while nothing runs: a device that was exchanged, or put back from earlier.

use crate::Configuration;
use base::{PageId, Random};
use driver::{Access, Op};
use engine::page::header;
use executor::{Executor, Order};
use std::collections::BTreeMap;
use virtual_driver::{Media, Options, VirtualDriver};

const NAMES: [&str; 2] = ["cache.tier", "cache-table.tier"];

/// What the files of a cache hold.
#[derive(Clone)]
pub struct CacheFiles {
    device: String,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl CacheFiles {
    /// Those of the configured cache, if it has any.
    pub fn of(media: &Media, configuration: &Configuration) -> Option<CacheFiles> {
        let device = configuration.settings.hierarchy.cache.as_ref()?.device.clone();
        let bytes = |name| {
            let mut bytes = vec![0; media.length(&device, name)? as usize];
            media.read(&device, name, 0, &mut bytes).ok()?;
            Some((name, bytes))
        };
        let files: Vec<_> = NAMES.into_iter().filter_map(bytes).collect();
        (!files.is_empty()).then_some(CacheFiles { device, files })
    }

    /// The same without any file.
    pub fn emptied(&self) -> CacheFiles {
        CacheFiles { device: self.device.clone(), files: Vec::new() }
    }

    /// The same as another database's: both headers have another stamp.
    pub fn foreign(&self, random: &mut Random) -> CacheFiles {
        let mut foreign = self.clone();
        let stamp = random.word().to_le_bytes();
        for (_, bytes) in foreign.files.iter_mut().filter(|(name, _)| *name == NAMES[0]) {
            let last = bytes.len().saturating_sub(HEADER_BYTES);
            for header in [0, last] {
                let Some(header) = bytes.get_mut(header..header + HEADER_SUMMED + 4) else { continue };
                header[8..16].copy_from_slice(&stamp);
                let sum = engine::checksum::checksum(&header[..HEADER_SUMMED]);
                header[HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
            }
        }
        foreign
    }

    /// Whether they are another tier's: of another database, or of an earlier time of this one.
    pub fn is_of_another_tier_than(&self, other: &CacheFiles) -> bool {
        let header = |files: &CacheFiles| {
            let (_, bytes) = files.files.iter().find(|(name, _)| *name == NAMES[0])?;
            Some(bytes.get(..HEADER_SUMMED)?.to_vec())
        };
        header(self).is_some_and(|own| header(other).is_none_or(|other| own != other))
    }

    /// The same with an older version of its page in a slot here and there, each as sound as it was in a slot of `older`. `None` if
    /// that has none.
    pub fn with_older_versions(&self, older: &CacheFiles, page_size: usize, random: &mut Random) -> Option<CacheFiles> {
        let slots = |files: &CacheFiles| files.files.iter().position(|(name, _)| *name == NAMES[0]);
        let is_sound = |page: &[u8]| page.len() == page_size && header::verify(page, header::id(page)) == Ok(true);
        let pages = older.files[slots(older)?].1.get(HEADER_BYTES..)?.chunks(page_size).filter(|page| is_sound(page));
        let before: BTreeMap<PageId, &[u8]> = pages.map(|page| (header::id(page), page)).collect();
        let mut files = self.clone();
        let present = slots(self)?;
        let mut is_older = false;
        for slot in files.files[present].1.get_mut(HEADER_BYTES..)?.chunks_mut(page_size).filter(|slot| is_sound(slot))
        {
            let version = before.get(&header::id(slot)).filter(|page| header::sequence(page) < header::sequence(slot));
            if let Some(version) = version.filter(|_| random.chance(0.5)) {
                slot.copy_from_slice(version);
                is_older = true;
            }
        }
        is_older.then_some(files)
    }

    /// Puts them in place of those that are there.
    pub fn put(&self, media: &Media, configuration: &Configuration) {
        let driver = VirtualDriver::new(configuration.hardware(), Options::default(), media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let done = executor.run(async {
            let device = executor.device(&self.device).expect("the cache was there");
            for name in NAMES {
                executor.perform(Op::Remove { device, name: name.to_owned() }).await.result.expect("removes");
            }
            for (name, bytes) in &self.files {
                let (file, _) = executor.open(device, name, true).await.expect("creates");
                if bytes.is_empty() {
                    continue;
                }
                let mut buffer = executor.frame(bytes.len()).expect("memory");
                buffer.copy_from_slice(bytes);
                let (length, access) = (bytes.len() as u32, Access::Asynchronous);
                let op = Op::Write { file, offset: 0, length, buffer, durable: true, access };
                executor.perform(op).await.result.expect("writes");
            }
        });
        executor.stop();
        done.expect("nothing stops it");
    }
}

/// The size of a tier's header, and how many of its bytes its checksum covers (`docs/format.md`).
const HEADER_BYTES: usize = 4096;
const HEADER_SUMMED: usize = 28;
