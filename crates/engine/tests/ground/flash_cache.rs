// A cache on `flash` whose device has 80 ms for an answer, below ten frames of 8 KiB, so that pages may be torn. What is written is
// written because a test asks for it: no cleaner runs, and no checkpoint.

use base::time::MILLISECOND_NS;
use entresol_engine::second_level::{self, CacheSettings, Design, Parameters};
use entresol_engine::{Settings, buffer, checkpoint, log};

/// More than the device writes atomically.
pub const PAGE_SIZE: usize = 8192;

/// A cache of `pages` pages that outlives a power cut and may be dirty as a whole.
pub fn cache(design: &str, pages: u32) -> CacheSettings {
    CacheSettings {
        design: Design::named(design).expect("it has this name"),
        volatile: Some(false),
        table: Some(true),
        silence_ns_max: 80 * MILLISECOND_NS,
        parameters: Parameters { dirty_max_percent: 100, ..Parameters::default() },
        ..CacheSettings::new("flash", pages)
    }
}

/// This cache, or none.
pub fn settings(cache: Option<CacheSettings>) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 10, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache, ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}
