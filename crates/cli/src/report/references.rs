//! What a report says of references to pages and objects.

use super::percent;
use crate::table::table;
use base::units::grouped;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many references to a partition were found where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct References {
    /// Those whose pages were all in main memory.
    pub hits: u64,
    /// Those of which at least one page was not.
    pub misses: u64,
    /// Pages that the second-level cache served.
    pub second_level_hits: u64,
}

impl References {
    /// The share of references found in main memory, 0 to 1; 0 if there were none.
    pub fn hit_ratio(&self) -> f64 {
        self.share(self.hits)
    }

    /// The pages that the second-level cache served, as a share of the references; 0 if there were none.
    pub fn second_level_ratio(&self) -> f64 {
        self.share(self.second_level_hits)
    }

    fn share(&self, part: u64) -> f64 {
        part as f64 / (self.hits + self.misses).max(1) as f64
    }

    /// A table of them, by partition.
    pub fn table(references: &BTreeMap<String, References>, second_level: bool) -> String {
        let rows = references.iter().map(|(name, seen)| {
            let all = seen.hits + seen.misses;
            let share = |ratio| if all == 0 { String::new() } else { percent(ratio) };
            let mut row = vec![name.clone(), grouped(all), grouped(seen.hits), share(seen.hit_ratio())];
            if second_level {
                row.extend([grouped(seen.second_level_hits), share(seen.second_level_ratio())]);
            }
            row
        });
        let header = ["partition", "references", "hits in main memory", "share", "in the second-level cache", "share"];
        table(&header[..if second_level { 6 } else { 4 }], 1, rows)
    }
}
