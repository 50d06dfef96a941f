//! What a report says of references to pages and objects.

use super::percent;
use crate::table::table;
use base::units::grouped;
use engine::statistics;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many references to a partition were found where: `hits`, `upper_cache_hits`, `second_level_hits`, `write_buffer_hits` and
/// `device_reads` together are all references, each of which counts once (see [`statistics::References`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct References {
    /// Those that found all their pages in main memory.
    pub hits: u64,
    /// The others: the sum of what follows.
    pub misses: u64,
    /// Those that the upper cache served.
    pub upper_cache_hits: u64,
    /// Those that the second-level cache served.
    pub second_level_hits: u64,
    /// Those that the write buffer served.
    pub write_buffer_hits: u64,
    /// Those for which a page was read from its own device.
    pub device_reads: u64,
}

impl From<statistics::References> for References {
    fn from(seen: statistics::References) -> References {
        References {
            hits: seen.hits,
            misses: seen.misses(),
            upper_cache_hits: seen.upper_cache_hits,
            second_level_hits: seen.cache_hits,
            write_buffer_hits: seen.write_buffer_hits,
            device_reads: seen.device_reads,
        }
    }
}

impl References {
    /// The share of references found in main memory, 0 to 1; 0 if there were none.
    pub fn hit_ratio(&self) -> f64 {
        self.share(self.hits)
    }

    /// The share of references that the second-level cache served, 0 to 1; 0 if there were none.
    pub fn second_level_ratio(&self) -> f64 {
        self.share(self.second_level_hits)
    }

    fn share(&self, part: u64) -> f64 {
        part as f64 / self.count().max(1) as f64
    }

    fn count(&self) -> u64 {
        self.hits + self.misses
    }

    /// A table of them, by partition. Without a `second_level` and anything else below main memory, what is no hit there was read from
    /// the partition's device.
    pub fn table(references: &BTreeMap<String, References>, second_level: bool) -> String {
        type Level = (&'static str, bool, fn(&References) -> u64);
        let any = |of: fn(&References) -> u64| references.values().any(|seen| of(seen) > 0);
        let has_tiers = second_level || any(|seen| seen.misses - seen.device_reads);
        let levels: [Level; 5] = [
            ("hits in main memory", true, |seen| seen.hits),
            ("in the upper cache", any(|seen| seen.upper_cache_hits), |seen| seen.upper_cache_hits),
            ("in the second-level cache", second_level, |seen| seen.second_level_hits),
            ("in the write buffer", any(|seen| seen.write_buffer_hits), |seen| seen.write_buffer_hits),
            ("read from its device", has_tiers, |seen| seen.device_reads),
        ];
        let levels: Vec<Level> = levels.into_iter().filter(|(_, is_shown, _)| *is_shown).collect();
        let rows = references.iter().map(|(name, seen)| {
            let mut row = vec![name.clone(), grouped(seen.count())];
            for (_, _, of) in &levels {
                let share = if seen.count() == 0 { String::new() } else { percent(seen.share(of(seen))) };
                row.extend([grouped(of(seen)), share]);
            }
            row
        });
        let mut header = vec!["partition", "references"];
        header.extend(levels.iter().flat_map(|(name, _, _)| [*name, "share"]));
        table(&header, 1, rows)
    }
}
