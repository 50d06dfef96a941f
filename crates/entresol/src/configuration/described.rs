//! What a configuration changes in the description of a device: its cache and the number of its servers.

use super::choice::Choice;
use super::error::Problem;
use super::section::Section;
use devices::{Cache, CacheKind, CacheSize, Device, Servers};

/// The cache that a configuration gives to a described device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CacheChoice {
    /// `"none"`: no cache, whatever the description has.
    #[default]
    None,
    Kind(CacheKind),
}

impl Choice for CacheChoice {
    const WORDS: &'static [(&'static str, CacheChoice)] = &[
        ("volatile", CacheChoice::Kind(CacheKind::Volatile)),
        ("non-volatile", CacheChoice::Kind(CacheKind::NonVolatile)),
        ("write-buffer", CacheChoice::Kind(CacheKind::WriteBuffer)),
        ("none", CacheChoice::None),
    ];
}

/// What is to be changed in a description.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// `None` leaves the cache as described, `Some(None)` removes it.
    cache: Option<Option<Cache>>,
    controllers: Option<Servers>,
    disks: Option<Servers>,
    /// Whether the cache's pages have the size of the buffer's, because the section leaves it open.
    pub(super) buffer_pages: bool,
}

const KEYS: [&str; 7] =
    ["cache", "cache_size", "cache_page_size", "cache_write_misses", "cache_read_misses", "controllers", "disks"];

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Reads the keys of a `[device.NAME]` section that change a description.
    pub(super) fn read(section: &mut Section<'_>) -> Changes {
        let choice = section.choice("cache");
        let size: Option<CacheSize> =
            section.parsed("cache_size", "a number of pages such as \"1,000 pages\", or a size such as \"4 MiB\"");
        let page_size = section.power_of_two("cache_page_size", 64..=64 << 10).map(|bytes| bytes as u32);
        let misses = (section.flag("cache_write_misses"), section.flag("cache_read_misses"));
        let mut changes = Changes { controllers: servers(section, "controllers"), ..Changes::default() };
        changes.disks = servers(section, "disks");
        let kind = match choice {
            Some(CacheChoice::Kind(kind)) => kind,
            choice => {
                for key in &KEYS[1..5] {
                    let conflict = format!("'{key}' has no effect without a cache");
                    let allowed = format!("{key} beside cache = \"volatile\", \"non-volatile\" or \"write-buffer\"");
                    section.conflict(key, Problem::Conflict(conflict), &allowed);
                }
                changes.cache = choice.map(|_| None);
                return changes;
            }
        };
        let Some(size) = size else {
            if !section.has("cache_size") {
                let conflict = Problem::Conflict("a cache needs its size".to_owned());
                section.conflict("cache", conflict, "cache beside cache_size, such as cache_size = \"1,000 pages\"");
            }
            return changes;
        };
        let mut cache = Cache::new(kind, size);
        if let Err(why) = cache.set_misses(misses.0, misses.1) {
            let key = if kind != CacheKind::Volatile && misses.0.is_some() { KEYS[3] } else { KEYS[4] };
            section.conflict(key, Problem::Conflict(why.to_owned()), "the section without this key");
        }
        changes.buffer_pages = page_size.is_none() && kind != CacheKind::WriteBuffer;
        cache.page_size = page_size.unwrap_or(Cache::PAGE_SIZE);
        changes.cache = Some(Some(cache));
        changes
    }

    /// Reports every key that is there: no description is.
    pub(super) fn refuse(section: &Section<'_>) {
        for key in KEYS {
            let conflict = Problem::Conflict(format!("'{key}' changes a description, and this device has none"));
            section.conflict(key, conflict, &format!("{key} beside described = \"NAME\" or hardware = \"NAME\""));
        }
    }

    /// Changes a description, and reports the keys that do not suit it.
    pub(super) fn apply(&self, section: &Section<'_>, device: &mut Device) {
        if let Some(cache) = &self.cache {
            if cache.is_some() && device.medium.is_none() {
                let conflict = Problem::Conflict("a cache stands before a medium, and this device has none".to_owned());
                section.conflict("cache", conflict, "\"none\"; a device whose description has a medium");
            }
            device.cache.clone_from(cache);
        }
        for (key, servers, stage) in
            [("controllers", self.controllers, &mut device.controller), ("disks", self.disks, &mut device.medium)]
        {
            match (servers, stage) {
                (Some(servers), Some(stage)) => stage.servers = servers,
                (Some(_), None) => {
                    let part = if key == "disks" { "medium" } else { "controller" };
                    let conflict = Problem::Conflict(format!("this device's description has no {part}"));
                    section.conflict(key, conflict, "the section without this key");
                }
                (None, _) => {}
            }
        }
    }
}

/// The number of a stage's servers.
fn servers(section: &mut Section<'_>, key: &'static str) -> Option<Servers> {
    let count = section.unless("unlimited", key, |section| section.number_or(key, 1..=65_536, ", or \"unlimited\""))?;
    Some(count.map_or(Servers::Unlimited, |count| Servers::count(count as u32)))
}

/// Sets the page size of the caches that left it open.
pub(super) fn set_cache_page_size(device: &mut Device, page_size: u32) {
    if let Some(cache) = &mut device.cache {
        cache.page_size = page_size;
    }
}
