//! What a report says of the tiers between main memory and the partitions' own devices.

use super::{count, percent};
use crate::table::table;
use base::units::grouped;
use entresol::tier_file::TierReport;
use serde::Serialize;

/// What one tier is and did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierUse {
    /// `cache`, `write-buffer` or `log-buffer`.
    pub name: String,
    /// Its device.
    pub device: String,
    /// How many pages it holds.
    pub pages: u64,
    /// Whether it loses its contents with the power.
    pub volatile: bool,
    /// Pages that misses in main memory were served with.
    pub reads: u64,
    /// Writes that it took in, of pages or of pieces of the log.
    pub writes: u64,
    /// Of those, how many were newer than on their own device.
    pub modified_writes: u64,
    /// Pages that misses in main memory were served with, per transaction.
    pub reads_per_transaction: f64,
    /// Writes that it took in (of pages, or of pieces of the log), per transaction.
    pub writes_per_transaction: f64,
    /// Of those, how many were newer than on their own device, as a share; 0 if it took none in.
    pub modified: f64,
    /// Writes that went to their own device because it had no room.
    pub fallbacks: u64,
    /// Copies found damaged and replaced by those on their own device.
    pub damaged: u64,
}

impl TierUse {
    /// Of a run of this number of transactions.
    pub fn new(tier: TierReport, transactions: f64) -> TierUse {
        TierUse {
            name: tier.name.to_owned(),
            device: tier.device,
            pages: tier.pages,
            volatile: tier.volatile,
            reads: tier.reads,
            writes: tier.writes,
            modified_writes: tier.modified,
            reads_per_transaction: tier.reads as f64 / transactions,
            writes_per_transaction: tier.writes as f64 / transactions,
            modified: tier.modified as f64 / tier.writes.max(1) as f64,
            fallbacks: tier.fallbacks,
            damaged: tier.damaged,
        }
    }

    /// A table of them.
    pub fn table(tiers: &[TierUse]) -> String {
        let rows = tiers.iter().map(|tier| {
            vec![
                format!("{} on {}", tier.name, tier.device),
                grouped(tier.pages),
                grouped(tier.reads),
                count(tier.reads_per_transaction),
                grouped(tier.writes),
                count(tier.writes_per_transaction),
                if tier.writes == 0 { String::new() } else { percent(tier.modified) },
                grouped(tier.fallbacks),
            ]
        });
        let transaction = "per transaction";
        let header = ["tier", "pages", "reads", transaction, "writes", transaction, "modified", "no room"];
        table(&header, 1, rows)
    }
}
