//! What a report says of the tiers between main memory and the partitions' own devices.

use super::{count, percent, time_us};
use crate::table::{table, wrapped};
use base::units::{format_size, grouped, grouped_decimal};
use engine::tier_file::TierReport;
use serde::Serialize;

/// Seconds of a day, and of a year.
const DAY_S: f64 = 86_400.0;
const YEAR_S: f64 = 365.25 * DAY_S;

/// What one tier is and did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierUse {
    /// `upper-cache`, `cache`, `write-buffer` or `log-buffer`.
    pub name: String,
    /// Its device.
    pub device: String,
    /// How many pages it holds.
    pub pages: u64,
    /// Whether it loses its contents with the power.
    pub volatile: bool,
    /// Pages that misses in main memory were served with.
    pub reads: u64,
    /// Of those, how many were newer than on their own device, as a share; 0 if there were none.
    pub dirty_reads: f64,
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
    /// Slots that nothing comes to any more, because what was there could not be read.
    pub unusable: u64,
    /// Bytes written to its device.
    pub bytes_written: u64,
    /// The same per transaction.
    pub bytes_written_per_transaction: f64,
    /// How many times it would be written over in a day at this rate.
    pub written_over_per_day: f64,
    /// How long its device lasts at this rate, in years; `None` (null) if its rating is not known, or nothing was written.
    pub years_of_life: Option<f64>,
    /// How many bytes a day the budget lets be written; `None` (null) without one.
    pub write_budget_bytes_per_day: Option<u64>,
    /// Pages that were to enter while the budget was spent.
    pub declined_writes: u64,
    /// By how much all its reads were shorter than as many of the pages' own devices, in milliseconds; below zero if they were
    /// longer. `None` (null) for other tiers than caches, and if no such device was read to compare with.
    pub saved_ms: Option<f64>,
    /// The same per read, in microseconds.
    pub saved_us_per_read: Option<f64>,
    /// Why it was switched off, if its device has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl TierUse {
    /// Of a run of this number of transactions and seconds.
    pub fn new(tier: TierReport, transactions: f64, seconds: f64) -> TierUse {
        let bytes_per_s = tier.bytes_written as f64 / seconds;
        let rated_bytes = tier.rated_bytes.filter(|_| tier.bytes_written > 0);
        TierUse {
            name: tier.name.to_owned(),
            device: tier.device,
            pages: tier.pages,
            volatile: tier.volatile,
            reads: tier.reads,
            dirty_reads: tier.dirty_reads as f64 / tier.reads.max(1) as f64,
            writes: tier.writes,
            modified_writes: tier.modified,
            reads_per_transaction: tier.reads as f64 / transactions,
            writes_per_transaction: tier.writes as f64 / transactions,
            modified: tier.modified as f64 / tier.writes.max(1) as f64,
            fallbacks: tier.fallbacks,
            damaged: tier.damaged,
            unusable: tier.unusable,
            bytes_written: tier.bytes_written,
            bytes_written_per_transaction: tier.bytes_written as f64 / transactions,
            written_over_per_day: bytes_per_s * DAY_S / tier.size.max(1) as f64,
            years_of_life: rated_bytes.map(|rated| rated as f64 / bytes_per_s / YEAR_S),
            write_budget_bytes_per_day: tier.write_budget_bytes_per_day,
            declined_writes: tier.declined,
            saved_ms: tier.saved_ns.map(|saved| saved / 1e6),
            saved_us_per_read: tier.saved_ns.map(|saved| saved / 1e3 / tier.reads.max(1) as f64),
            lost: tier.lost,
        }
    }

    /// Tables of them: what they did, and what that wears; and what the cache brought.
    pub fn tables(tiers: &[TierUse]) -> Vec<String> {
        let mut parts = vec![TierUse::table(tiers), TierUse::wear(tiers)];
        parts.extend(tiers.iter().filter_map(TierUse::benefit));
        parts
    }

    fn table(tiers: &[TierUse]) -> String {
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
        let lost = tiers.iter().filter_map(|tier| tier.lost.as_ref()).map(|lost| format!("\n{lost}"));
        let unusable =
            tiers.iter().filter(|tier| tier.unusable > 0).map(|TierUse { name, device, unusable, .. }| {
                format!(
                    "\n{name} on {device}: {} slots could not be read, and are not used any more",
                    grouped(*unusable)
                )
            });
        table(&header, 1, rows) + &lost.chain(unusable).collect::<String>()
    }

    fn wear(tiers: &[TierUse]) -> String {
        let rows = tiers.iter().map(|tier| {
            vec![
                format!("{} on {}", tier.name, tier.device),
                format_size(tier.bytes_written),
                format_size(tier.bytes_written_per_transaction.round() as u64),
                grouped_decimal(tier.written_over_per_day, 1),
                tier.years_of_life.map_or_else(String::new, |years| grouped_decimal(years, 1)),
                tier.write_budget_bytes_per_day.map_or_else(String::new, format_size),
                grouped(tier.declined_writes),
            ]
        });
        let header =
            ["wear", "written", "per transaction", "times over/day", "years of life", "budget/day", "past budget"];
        table(&header, 1, rows)
    }

    /// What a cache brought, if it served anything.
    fn benefit(&self) -> Option<String> {
        let which = match self.name.as_str() {
            "cache" => "cache",
            "upper-cache" => "upper cache",
            _ => return None,
        };
        if self.reads == 0 {
            return None;
        }
        let hits = format!("The {which} served {} reads", grouped(self.reads));
        Some(wrapped(&match self.saved_ms.zip(self.saved_us_per_read) {
            Some((ms, us)) => {
                let word = if us < 0.0 { "later" } else { "sooner" };
                let (each, all) = (time_us(us.abs()), time_us(ms.abs() * 1e3));
                format!("{hits}, each {each} {word} than the pages' own devices do: {all} in all.")
            }
            None => format!("{hits}; none went to the pages' own devices, so what that saved is not known."),
        }))
    }
}
