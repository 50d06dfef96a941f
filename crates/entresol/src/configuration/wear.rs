//! What `[cache]` says of wear: how much may be written, and how much the device stands.

use super::error::Problem;
use super::section::Section;
use base::units::{format_size, parse_size};
use engine::second_level::WriteBudget;
use std::str::FromStr;

/// The keys.
pub const KEYS: [&str; 3] = ["write_budget", "write_burst", "rated_writes"];

const SIZE_MAX: u64 = 1 << 60;
const BUDGET: &str =
    "times that the cache is written over, such as \"3 per day\", or a rate such as \"20 MiB/s\", above zero";

/// `write_budget`: how much may be written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rate {
    /// This number of times the size of the cache in a day.
    CachesPerDay(f64),
    /// This number of bytes in a second.
    BytesPerSecond(u64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let trimmed = text.trim();
        let days = trimmed.strip_suffix("per day").or_else(|| trimmed.strip_suffix("/day"));
        let rate = match (days, trimmed.strip_suffix("/s")) {
            (Some(times), _) => times.trim().parse().ok().map(Rate::CachesPerDay),
            (None, Some(size)) => parse_size(size).ok().map(Rate::BytesPerSecond),
            (None, None) => None,
        };
        match rate {
            Some(Rate::CachesPerDay(times)) if !(times.is_finite() && (0.0..=1e9).contains(&times)) => None,
            rate => rate,
        }
        .ok_or_else(|| format!("'{text}' is no rate of writes"))
    }
}

/// Reads the keys.
pub fn read(section: &mut Section<'_>) -> Wear {
    let rate = section.parsed("write_budget", BUDGET);
    let burst = section.size("write_burst", 0..=SIZE_MAX, "");
    let rated = section.size("rated_writes", 0..=SIZE_MAX, "");
    if section.has("write_burst") && !section.has("write_budget") {
        let conflict = Problem::Conflict("'write_burst' has no effect without a budget".to_owned());
        section.conflict("write_burst", conflict, "write_burst beside write_budget");
    }
    if rated == Some(0) {
        let conflict = Problem::Conflict("a device that may not be written at all holds no cache".to_owned());
        section.conflict("rated_writes", conflict, "a size such as \"600 TB\"");
    }
    Wear { rate, burst, rated }
}

/// What the keys say, before the size of the cache is known.
pub struct Wear {
    rate: Option<Rate>,
    burst: Option<u64>,
    /// How many bytes the device is rated for.
    pub rated: Option<u64>,
}

impl Wear {
    /// The budget of a cache for this number of pages of `page_size` bytes.
    pub fn budget(&self, section: &Section<'_>, pages: u32, page_size: u32) -> Option<WriteBudget> {
        let mut budget = match self.rate? {
            Rate::CachesPerDay(times) => {
                WriteBudget::cache_writes_per_day(times, u64::from(pages) * u64::from(page_size))
            }
            Rate::BytesPerSecond(bytes) => WriteBudget::bytes_per_second(bytes),
        };
        if budget.bytes_per_day == 0 {
            let conflict = "a budget of zero keeps every page out of the cache".to_owned();
            let allowed = format!("{BUDGET}; or no [cache] at all");
            section.conflict("write_budget", Problem::Conflict(conflict), &allowed);
            return None;
        }
        let page = u64::from(page_size);
        budget.burst_bytes = self.burst.unwrap_or(budget.burst_bytes.max(page * PAGES_MIN));
        if budget.burst_bytes < page {
            let conflict = format!("no page of {} fits in it", format_size(page));
            section.conflict("write_burst", Problem::Conflict(conflict), "a size of at least one page");
        }
        Some(budget)
    }
}

/// A burst is at least that many pages where nothing else is said.
const PAGES_MIN: u64 = 64;
