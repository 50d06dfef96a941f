//! Caches that the controller of a described disk manages by itself, as Rahm 1991 (section 3.3) models those of the IBM 3990.
//!
//! A cache decides only whether a request needs the medium; the bytes are kept elsewhere. So it never loses anything: a
//! volatile one is written through, the contents of a non-volatile one survive a power cut.
//!
//! Contents change when a request completes. So timing and durability are tested apart.

mod lru;
mod model;

#[cfg(test)]
mod tests;

pub use model::CacheCounts;
pub(crate) use model::{Answer, DiskCache};

use crate::fields;
use base::units::{Size, format_size, grouped};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::fmt;
use std::str::FromStr;

/// What a disk's cache does with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CacheKind {
    /// Every write goes to the medium. A write hit refreshes the copy and makes it the most recently used page.
    Volatile,
    /// Writes end in the cache and reach the medium asynchronously, at once. A write miss replaces the least recently used
    /// page that does not await its write; where there is none, it goes to the medium directly.
    NonVolatile,
    /// Writes end in the cache while it has room and reach the medium asynchronously; otherwise they go there directly. Reads
    /// are not cached.
    WriteBuffer,
}

impl CacheKind {
    /// The kinds, each with the word for it.
    pub const WORDS: [(&'static str, CacheKind); 3] = [
        ("volatile", CacheKind::Volatile),
        ("non-volatile", CacheKind::NonVolatile),
        ("write-buffer", CacheKind::WriteBuffer),
    ];

    /// The word for this kind.
    pub fn word(self) -> &'static str {
        CacheKind::WORDS.iter().find(|(_, kind)| *kind == self).map(|(word, _)| *word).expect("every kind has a word")
    }
}

/// How much a cache holds: written as `"1,000 pages"` or as a size such as `"4 MiB"`; at least one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// A number of pages.
    Pages(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        match text.parse() {
            Ok(Size::Pages(pages)) if pages > 0 => Ok(CacheSize::Pages(pages)),
            Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(CacheSize::Bytes(bytes)),
            _ => Err(format!("'{text}' is not the size of a cache; write \"1,000 pages\" or \"4 MiB\"")),
        }
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CacheSize::Pages(pages) => write!(f, "{} pages", grouped(pages)),
            CacheSize::Bytes(bytes) => f.write_str(&format_size(bytes)),
        }
    }
}

impl<'de> Deserialize<'de> for CacheSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CacheSize, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A described disk's cache. All files of the device share it.
///
/// ```
/// use entresol_devices::{Cache, CacheKind, CacheSize, Hardware};
///
/// let mut hardware = Hardware::named("hdd-7200")?;
/// let disk = hardware.devices.values_mut().next().expect("it has one device");
/// disk.cache = Some(Cache::new(CacheKind::NonVolatile, "4 MiB".parse::<CacheSize>()?));
/// let cache = disk.cache.as_ref().expect("it was just put in");
/// assert!(cache.write_misses && cache.pages() == 1_024);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Cache {
    /// What it does with writes.
    pub kind: CacheKind,
    /// How much it holds.
    pub size: CacheSize,
    /// Bytes per page, a power of two from 64 on: requests are cached page by page. 4 KiB by default.
    pub page_size: u32,
    /// Whether a volatile cache also takes pages that are written and not in it; false by default (the IBM 3990). A
    /// non-volatile cache always does, a write buffer never.
    pub write_misses: bool,
    /// Whether pages that had to be read from the medium are taken; true by default, never for a write buffer. Without them
    /// the cache holds what was written, and no page twice that main memory has just read.
    pub read_misses: bool,
}

impl Cache {
    /// Bytes per page unless a description says otherwise.
    pub const PAGE_SIZE: u32 = 4096;

    /// A cache of this kind and size with everything else by default.
    pub fn new(kind: CacheKind, size: CacheSize) -> Cache {
        Cache {
            kind,
            size,
            page_size: Cache::PAGE_SIZE,
            write_misses: kind == CacheKind::NonVolatile,
            read_misses: kind != CacheKind::WriteBuffer,
        }
    }

    /// How many pages it holds.
    pub fn pages(&self) -> u64 {
        match self.size {
            CacheSize::Pages(pages) => pages,
            CacheSize::Bytes(bytes) => bytes / u64::from(self.page_size.max(1)),
        }
        .max(1)
    }

    /// Sets what is to be done with misses, each as by default if `None`.
    ///
    /// # Errors
    /// Words that say what is allowed if the kind of cache leaves no choice.
    pub fn set_misses(&mut self, write_misses: Option<bool>, read_misses: Option<bool>) -> Result<(), &'static str> {
        match (self.kind, write_misses) {
            (_, None) => {}
            (CacheKind::Volatile, Some(taken)) => self.write_misses = taken,
            (CacheKind::NonVolatile, Some(taken)) if taken => {}
            _ => {
                return Err(
                    "write misses are a choice of volatile caches: a non-volatile one takes them, a write buffer \
                             takes what it has room for",
                );
            }
        }
        match (self.kind, read_misses) {
            (_, None) => {}
            (CacheKind::WriteBuffer, Some(true)) => return Err("a write buffer takes no reads"),
            (_, Some(taken)) => self.read_misses = taken && self.kind != CacheKind::WriteBuffer,
        }
        Ok(())
    }
}

/// A cache as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    kind: CacheKind,
    size: CacheSize,
    #[serde(default = "page_size", deserialize_with = "fields::alignment")]
    page_size: u32,
    write_misses: Option<bool>,
    read_misses: Option<bool>,
}

fn page_size() -> u32 {
    Cache::PAGE_SIZE
}

impl TryFrom<Text> for Cache {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Cache, &'static str> {
        if text.page_size < 64 {
            return Err("a cache's page has 64 bytes or more");
        }
        let mut cache = Cache { page_size: text.page_size, ..Cache::new(text.kind, text.size) };
        cache.set_misses(text.write_misses, text.read_misses)?;
        Ok(cache)
    }
}
