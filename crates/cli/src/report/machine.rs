//! What a report says of the machine beneath a run: caches inside devices, the simulation's own speed, saturation.

use super::{count, percent};
use crate::table::{table, wrapped};
use base::units::{grouped, grouped_decimal};
use driver::{CacheReport, EventCount};
use serde::Serialize;
use workload::run::Saturation;

/// What the requests to one file met in the cache of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskCache {
    /// The device.
    pub device: String,
    /// What the cache is, as in configurations.
    pub kind: String,
    /// The file.
    pub file: String,
    /// Read requests.
    pub reads: u64,
    /// Those answered from the cache.
    pub read_hits: u64,
    /// The same per transaction.
    pub read_hits_per_transaction: f64,
    /// Write requests.
    pub writes: u64,
    /// Those whose pages were in the cache.
    pub write_hits: u64,
    /// Writes that did not wait for the medium.
    pub absorbed: u64,
}

impl DiskCache {
    /// Of every file in every cache, for a run of this number of transactions.
    pub fn all(caches: &[CacheReport], transactions: f64) -> Vec<DiskCache> {
        let of_cache = |cache: &CacheReport| {
            let (device, kind) = (cache.device.clone(), cache.kind.clone());
            cache.files.clone().into_iter().map(move |file| DiskCache {
                device: device.clone(),
                kind: kind.clone(),
                file: file.name,
                reads: file.reads,
                read_hits: file.read_hits,
                read_hits_per_transaction: file.read_hits as f64 / transactions,
                writes: file.writes,
                write_hits: file.write_hits,
                absorbed: file.absorbed,
            })
        };
        caches.iter().flat_map(of_cache).collect()
    }

    /// A table of them.
    pub fn table(caches: &[DiskCache]) -> String {
        let share = |part: u64, all: u64| if all == 0 { String::new() } else { percent(part as f64 / all as f64) };
        let rows = caches.iter().map(|cache| {
            vec![
                format!("{}, {}", cache.device, cache.kind),
                cache.file.clone(),
                grouped(cache.reads),
                share(cache.read_hits, cache.reads),
                count(cache.read_hits_per_transaction),
                grouped(cache.writes),
                share(cache.write_hits, cache.writes),
                share(cache.absorbed, cache.writes),
            ]
        });
        let header = ["disk cache", "file", "reads", "hits", "per transaction", "writes", "hits", "absorbed"];
        table(&header, 2, rows)
    }
}

/// How fast the simulation was, and where its events went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Events per second of wall time.
    pub events_per_wall_s: f64,
    /// Transactions per second of wall time.
    pub transactions_per_wall_s: f64,
    /// Events per transaction, by sort: `cpu`, the name of a device's station, `delays`, `timers`.
    pub events_per_transaction: Vec<(String, f64)>,
}

impl Simulation {
    /// Of a run of this number of transactions; `None` if nothing was simulated.
    pub fn new(events: &[EventCount], transactions: f64, wall_seconds: f64) -> Option<Simulation> {
        let all: u64 = events.iter().map(|event| event.count).sum();
        let per_transaction = |event: &EventCount| (event.name.clone(), event.count as f64 / transactions);
        (all > 0).then(|| Simulation {
            events_per_wall_s: all as f64 / wall_seconds.max(1e-9),
            transactions_per_wall_s: transactions / wall_seconds.max(1e-9),
            events_per_transaction: events.iter().map(per_transaction).collect(),
        })
    }

    /// The same in words.
    pub fn to_text(&self) -> String {
        let all: f64 = self.events_per_transaction.iter().map(|(_, events)| events).sum();
        let rates = [self.transactions_per_wall_s, self.events_per_wall_s].map(|rate| grouped_decimal(rate, 0));
        let parts = self.events_per_transaction.iter();
        let parts: Vec<String> = parts.map(|(name, events)| format!("{name} {}", percent(events / all))).collect();
        wrapped(&format!(
            "Simulated {} transactions and {} events per second of wall time; {} events per transaction: {}.",
            rates[0],
            rates[1],
            count(all),
            parts.join(", ")
        ))
    }
}

/// What limited a run to which more came than could be served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saturated {
    /// The station, or `locks`.
    pub station: String,
    /// The mean share of its servers that were busy, 0 to 1.
    pub utilization: f64,
    /// Transactions that had arrived and not ended.
    pub unfinished: u64,
}

impl From<&Saturation> for Saturated {
    fn from(saturation: &Saturation) -> Saturated {
        let Saturation { station, utilization, unfinished } = saturation.clone();
        Saturated { station, utilization, unfinished }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::CachedFile;

    #[test]
    fn figures_are_per_transaction_and_per_second() {
        let files = vec![
            CachedFile { name: "account.data".into(), reads: 100, read_hits: 25, ..CachedFile::default() },
            CachedFile { name: "log".into(), writes: 50, absorbed: 50, ..CachedFile::default() },
        ];
        let report = CacheReport { device: "disk".into(), kind: "non-volatile".into(), pages: 1_000, files };
        let caches = DiskCache::all(&[report], 50.0);
        assert_eq!(caches[0].read_hits_per_transaction, 0.5);
        let text = DiskCache::table(&caches);
        for part in ["disk, non-volatile", "account.data", "25.0 %", "0.50", "100.0 %"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let events = [("cpu", 300), ("disk.medium", 100)];
        let events = events.map(|(name, count)| EventCount { name: name.to_owned(), count });
        let simulation = Simulation::new(&events, 50.0, 0.001).expect("events");
        assert_eq!((simulation.events_per_wall_s, simulation.transactions_per_wall_s), (400_000.0, 50_000.0));
        let text = simulation.to_text();
        assert!(text.contains("; 8.00 events") && text.contains("cpu 75.0 %, disk.medium 25.0 %"), "{text}");
        assert_eq!(Simulation::new(&[], 50.0, 1.0), None);
    }
}
