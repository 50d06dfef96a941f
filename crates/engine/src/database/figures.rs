//! What a database has counted, in plain numbers that may go to other threads, and as the text that monitoring systems read.

use super::Database;
use crate::tier_file::TierReport;
use base::time::SECOND_NS;
use executor::WholeExecutor;
use serde::Serialize;
use std::fmt::Write;

/// What a database has counted since it was opened, and what it holds now. Times are in nanoseconds, sums over all transactions.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
/// let figures = database.figures();
/// assert_eq!((figures.commits, figures.partitions[0].hits), (1, 1));
/// assert!(figures.open_metrics().contains("entresol_commits_total 1\n"));
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that were rolled back.
    pub rollbacks: u64,
    /// Rollbacks that ended a deadlock.
    pub deadlocks: u64,
    /// Transactions under way.
    pub active: u64,
    /// Time in which transactions waited for locks.
    pub lock_wait_ns: u64,
    /// Time in which they waited for pages to be read.
    pub read_wait_ns: u64,
    /// Time in which they waited for pages to be written.
    pub write_wait_ns: u64,
    /// Time in which they waited for the log.
    pub commit_wait_ns: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Sweeps over memory-resident sets completed.
    pub sweeps: u64,
    /// Records whose entries were added to secondary indexes that were being built.
    pub indexed_records: u64,
    /// Writes of the log completed.
    pub log_writes: u64,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Syncs of the log completed.
    pub log_syncs: u64,
    /// Bytes of the log that a restart would need.
    pub log_bytes_used: u64,
    /// Bytes that the log may take.
    pub log_bytes_max: u64,
    /// Frames of the buffer.
    pub frames: u64,
    /// Frames whose pages were changed and not written back.
    pub dirty_frames: u64,
    /// Bytes of memory that pages and sets take.
    pub memory_bytes: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Bytes that versions of records take that snapshots need.
    pub version_bytes: u64,
    /// Requests that devices have left unanswered for a second or longer.
    pub unanswered: u64,
    /// Each partition, by number.
    pub partitions: Vec<PartitionFigures>,
    /// The cache and the write buffers, as far as there are any.
    pub tiers: Vec<TierFigures>,
}

/// What was counted of a cache or a write buffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TierFigures {
    /// `cache`, `write-buffer` or `log-buffer`.
    pub name: String,
    /// Its device.
    pub device: String,
    /// Reads that it served.
    pub reads: u64,
    /// By how much all of them were shorter than as many of the pages' own devices, below zero if they were longer; `None` if that
    /// is not known.
    pub saved_ns: Option<f64>,
    /// Writes that it took in.
    pub writes: u64,
    /// Bytes written to its device, which that wears by.
    pub bytes_written: u64,
    /// Pages that did not enter because the budget of writes was spent.
    pub declined: u64,
    /// Whether it was switched off because its device fails.
    pub lost: bool,
}

/// What was counted of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartitionFigures {
    /// Its name.
    pub name: String,
    /// References to its records that found all pages in memory.
    pub hits: u64,
    /// References that did not: those of the next four.
    pub misses: u64,
    /// References that the cache has served (see [`References`](crate::statistics::References)).
    pub references_in_cache: u64,
    /// References that the upper cache has served.
    pub references_in_upper_cache: u64,
    /// References that the write buffer has served.
    pub references_in_write_buffer: u64,
    /// References for which a page was read from its own device.
    pub references_on_device: u64,
    /// Pages read from its device.
    pub pages_read: u64,
    /// Pages written to its device.
    pub pages_written: u64,
    /// Pages read from the cache in place of its device.
    pub cache_hits: u64,
    /// Pages read from the upper cache in place of what is below.
    pub upper_cache_hits: u64,
}

impl Database {
    /// What was counted so far, in plain numbers.
    pub fn figures(&self) -> Figures {
        let (engine, statistics, log) = (&self.0.engine, self.statistics(), self.log().statistics());
        let (frames, dirty_frames) = {
            let pool = self.buffer().pool().borrow();
            (pool.len() as u64, pool.dirty_count() as u64)
        };
        let versions = self.versions();
        Figures {
            commits: statistics.commits.get(),
            rollbacks: statistics.rollbacks.get(),
            deadlocks: statistics.deadlocks.get(),
            active: self.active_transactions() as u64,
            lock_wait_ns: statistics.lock_wait_ns.get(),
            read_wait_ns: statistics.read_wait_ns.get(),
            write_wait_ns: statistics.write_wait_ns.get(),
            commit_wait_ns: statistics.commit_wait_ns.get(),
            checkpoints: statistics.checkpoints.get(),
            sweeps: statistics.sweeps.get(),
            indexed_records: statistics.indexed_records.get(),
            log_writes: log.writes,
            log_bytes_written: log.bytes_written,
            log_syncs: log.syncs,
            log_bytes_used: self.log().used(),
            log_bytes_max: self.log().capacity(),
            frames,
            dirty_frames,
            memory_bytes: engine.memory_in_use(),
            snapshots: versions.snapshots as u64,
            version_bytes: versions.bytes,
            unanswered: self.executor().whole().unanswered(SECOND_NS).len() as u64,
            partitions: self.partition_figures(),
            tiers: self.tiers().into_iter().map(TierFigures::of).collect(),
        }
    }

    fn partition_figures(&self) -> Vec<PartitionFigures> {
        let references = self.statistics().references();
        let figures = |partition: &std::rc::Rc<crate::catalog::Partition>| {
            let found = references.get(usize::from(partition.id)).copied().unwrap_or_default();
            let mut figures = PartitionFigures {
                name: partition.name.clone(),
                hits: found.hits,
                misses: found.misses(),
                references_in_cache: found.cache_hits,
                references_in_upper_cache: found.upper_cache_hits,
                references_in_write_buffer: found.write_buffer_hits,
                references_on_device: found.device_reads,
                ..PartitionFigures::default()
            };
            if partition.set_settings().is_none() {
                let space = self.buffer().space(partition.id());
                figures.pages_read = space.reads.get();
                figures.pages_written = space.writes.get();
                figures.cache_hits = space.cache_hits.get();
                figures.upper_cache_hits = space.upper_cache_hits.get();
            }
            figures
        };
        self.partitions().iter().map(figures).collect()
    }
}

impl TierFigures {
    fn of(tier: TierReport) -> TierFigures {
        TierFigures {
            name: tier.name.to_owned(),
            device: tier.device,
            reads: tier.reads,
            saved_ns: tier.saved_ns,
            writes: tier.writes,
            bytes_written: tier.bytes_written,
            declined: tier.declined,
            lost: tier.lost.is_some(),
        }
    }
}

/// Whether a figure only grows, and whether it is a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricType {
    Counter,
    Seconds,
    Gauge,
}

/// One figure of a partition.
type OfPartition = fn(&PartitionFigures) -> u64;

/// One figure of a tier.
type OfTier = fn(&TierFigures) -> u64;

impl Figures {
    /// All of it in the text format of OpenMetrics 1.0, as Prometheus reads it: serve it under the media type
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in self.metrics() {
            describe(&mut text, name, kind, help);
            sample(&mut text, name, kind, "", value);
        }
        let of_partition: [(&str, &str, OfPartition); 10] = [
            ("hits", "References to records whose pages were in memory", |figures| figures.hits),
            ("misses", "References to records with a page that was not in memory", |figures| figures.misses),
            ("references_in_cache", "References to records that the cache served", |figures| {
                figures.references_in_cache
            }),
            ("references_in_upper_cache", "References to records that the upper cache served", |figures| {
                figures.references_in_upper_cache
            }),
            ("references_in_write_buffer", "References to records that the write buffer served", |figures| {
                figures.references_in_write_buffer
            }),
            ("references_on_device", "References to records with a page that came from its own device", |figures| {
                figures.references_on_device
            }),
            ("pages_read", "Pages read from the partition's device", |figures| figures.pages_read),
            ("pages_written", "Pages written to the partition's device", |figures| figures.pages_written),
            ("cache_hits", "Pages read from the cache", |figures| figures.cache_hits),
            ("upper_cache_hits", "Pages read from the upper cache", |figures| figures.upper_cache_hits),
        ];
        for (name, help, value) in of_partition {
            let name = format!("partition_{name}");
            describe(&mut text, &name, MetricType::Counter, help);
            for partition in &self.partitions {
                // Names of partitions consist of letters, digits, '-', '_' and '.'.
                let label = format!("{{partition=\"{}\"}}", partition.name);
                sample(&mut text, &name, MetricType::Counter, &label, value(partition));
            }
        }
        self.write_tiers(&mut text);
        text.push_str("# EOF\n");
        text
    }

    fn write_tiers(&self, text: &mut String) {
        use MetricType::{Counter, Gauge};
        let of_tier: [(&str, MetricType, &str, OfTier); 5] = [
            ("reads", Counter, "Reads that the tier served", |tier| tier.reads),
            ("writes", Counter, "Writes that the tier took in", |tier| tier.writes),
            ("written_bytes", Counter, "Bytes written to the tier's device", |tier| tier.bytes_written),
            ("declined_writes", Counter, "Pages kept out by the budget of writes", |tier| tier.declined),
            ("lost", Gauge, "Whether the tier was switched off because its device fails", |tier| tier.lost.into()),
        ];
        // The names of devices are those of tables of a configuration.
        let label = |tier: &TierFigures| {
            let device = tier.device.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{{tier=\"{}\",device=\"{device}\"}}", tier.name)
        };
        for (name, kind, help, value) in of_tier {
            let name = format!("tier_{name}");
            describe(text, &name, kind, help);
            self.tiers.iter().for_each(|tier| sample(text, &name, kind, &label(tier), value(tier)));
        }
        // It may become less.
        let help = "By how much the tier's reads were shorter than those of the pages' own devices";
        describe(text, "tier_saved_seconds", Gauge, help);
        for (tier, saved_ns) in self.tiers.iter().filter_map(|tier| Some((tier, tier.saved_ns?))) {
            let _ = writeln!(text, "entresol_tier_saved_seconds{} {:.9}", label(tier), saved_ns / SECOND_NS as f64);
        }
    }

    fn metrics(&self) -> [(&'static str, MetricType, &'static str, u64); 22] {
        use MetricType::{Counter, Gauge, Seconds};
        [
            ("commits", Counter, "Transactions committed", self.commits),
            ("rollbacks", Counter, "Transactions rolled back", self.rollbacks),
            ("deadlocks", Counter, "Rollbacks that ended a deadlock", self.deadlocks),
            ("active_transactions", Gauge, "Transactions under way", self.active),
            ("lock_wait", Seconds, "Time in which transactions waited for locks", self.lock_wait_ns),
            ("read_wait", Seconds, "Time in which transactions waited for reads", self.read_wait_ns),
            ("write_wait", Seconds, "Time in which transactions waited for writes of pages", self.write_wait_ns),
            ("commit_wait", Seconds, "Time in which transactions waited for the log", self.commit_wait_ns),
            ("checkpoints", Counter, "Checkpoints completed", self.checkpoints),
            ("sweeps", Counter, "Sweeps over sets completed", self.sweeps),
            ("indexed_records", Counter, "Entries added to indexes being built", self.indexed_records),
            ("log_writes", Counter, "Writes of the log completed", self.log_writes),
            ("log_written_bytes", Counter, "Bytes written to the log", self.log_bytes_written),
            ("log_syncs", Counter, "Syncs of the log completed", self.log_syncs),
            ("log_used_bytes", Gauge, "Bytes of the log that a restart would need", self.log_bytes_used),
            ("log_max_bytes", Gauge, "Bytes that the log may take", self.log_bytes_max),
            ("frames", Gauge, "Frames of the buffer", self.frames),
            ("dirty_frames", Gauge, "Frames with changes that were not written back", self.dirty_frames),
            ("memory_bytes", Gauge, "Memory of pages and sets", self.memory_bytes),
            ("snapshots", Gauge, "Snapshots that are held", self.snapshots),
            ("version_bytes", Gauge, "Versions that snapshots need", self.version_bytes),
            ("unanswered_requests", Gauge, "Requests that devices left unanswered for a second", self.unanswered),
        ]
    }
}

/// The name of a metric with its unit.
fn full_name(name: &str, kind: MetricType) -> String {
    let unit = if kind == MetricType::Seconds { "_seconds" } else { "" };
    format!("entresol_{name}{unit}")
}

fn describe(text: &mut String, name: &str, kind: MetricType, help: &str) {
    let full = full_name(name, kind);
    let of_kind = if kind == MetricType::Gauge { "gauge" } else { "counter" };
    let unit = match kind {
        MetricType::Seconds => Some("seconds"),
        _ => ["bytes", "seconds"].into_iter().find(|unit| full.ends_with(&format!("_{unit}"))),
    };
    let _ = writeln!(text, "# TYPE {full} {of_kind}");
    if let Some(unit) = unit {
        let _ = writeln!(text, "# UNIT {full} {unit}");
    }
    let _ = writeln!(text, "# HELP {full} {help}.");
}

fn sample(text: &mut String, name: &str, kind: MetricType, label: &str, value: u64) {
    let full = full_name(name, kind);
    let _ = match kind {
        MetricType::Counter => writeln!(text, "{full}_total{label} {value}"),
        MetricType::Seconds => {
            writeln!(text, "{full}_total{label} {}.{:09}", value / SECOND_NS, value % SECOND_NS)
        }
        MetricType::Gauge => writeln!(text, "{full}{label} {value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the text as OpenMetrics 1.0 defines it: families one after another, each described before its samples.
    #[test]
    fn the_text_is_that_of_open_metrics() {
        let partition = |name: &str| PartitionFigures { name: name.into(), hits: 7, ..PartitionFigures::default() };
        let figures = Figures {
            commits: 3,
            lock_wait_ns: 1_500_000_000,
            partitions: vec![partition("account"), partition("account.by_branch")],
            tiers: vec![TierFigures {
                name: "cache".into(),
                device: "flash".into(),
                reads: 5,
                saved_ns: Some(2_500_000.0),
                bytes_written: 4096,
                ..TierFigures::default()
            }],
            ..Figures::default()
        };
        let text = figures.open_metrics();
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
        assert!(text.contains("\nentresol_lock_wait_seconds_total 1.500000000\n"), "{text}");
        assert!(text.contains("\nentresol_partition_hits_total{partition=\"account.by_branch\"} 7\n"), "{text}");
        assert!(text.contains("\nentresol_tier_reads_total{tier=\"cache\",device=\"flash\"} 5\n"), "{text}");
        assert!(
            text.contains("\nentresol_tier_saved_seconds{tier=\"cache\",device=\"flash\"} 0.002500000\n"),
            "{text}"
        );
        assert!(text.contains("\nentresol_tier_written_bytes_total{tier=\"cache\",device=\"flash\"} 4096\n"), "{text}");
        let mut families = std::collections::BTreeSet::new();
        let mut present = (String::new(), String::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert!(families.insert(name.to_owned()), "'{name}' is described once");
                present = (name.to_owned(), kind.to_owned());
                continue;
            }
            if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').expect("a name and a unit");
                assert!(name == present.0 && name.ends_with(&format!("_{unit}")), "{line}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.starts_with(&present.0));
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').expect("a sample and its value");
            let suffix = if present.1 == "counter" { "_total" } else { "" };
            let expected = format!("{}{suffix}", present.0);
            assert_eq!(sample.split('{').next(), Some(&expected[..]));
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
        }
        assert_eq!(families.len(), 38);
    }
}
