//! What a run reports, on either clock: as text and as JSON.

mod course;
mod machine;
mod references;
mod servers;
mod tiers;
mod warm_up;

pub use course::Course;
pub use machine::{DiskCache, Saturated, Simulation};
pub use references::References;
pub use servers::{Locks, ServerUse};
pub use tiers::TierUse;
pub use warm_up::WarmedUp;

use crate::table::{fact, facts, table, wrapped};
use base::statistics::{Histogram, Interval};
use base::units::{format_duration_ns, format_size, grouped, grouped_decimal};
use driver::StationReport;
use serde::Serialize;
use std::collections::BTreeMap;

/// Which clock a run went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// This machine's.
    Real,
    /// The simulation's.
    Virtual,
}

/// A run's result. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The workload and its parameters, for people.
    pub workload: String,
    /// The driver's description of itself.
    pub driver: String,
    /// What a reader must know to trust the figures, such as a device that is not durable.
    pub notes: Vec<String>,
    /// What is configured and gains nothing, with the reason.
    pub warnings: Vec<String>,
    /// Which clock the times are by.
    pub clock: Clock,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The measured time on that clock, without load and warm-up.
    pub seconds: f64,
    /// The wall time of the measured part; equal to `seconds` on the real clock.
    pub wall_seconds: f64,
    /// Transactions committed.
    pub transactions: u64,
    /// Rollbacks, each followed by another try.
    pub aborts: u64,
    /// Transactions committed per second of `clock`.
    pub throughput_per_s: f64,
    /// The time from a transaction's arrival to its acknowledgement.
    pub response_us: Response,
    /// Its distribution, at [`SHARES`]: times that such a share does not exceed, in microseconds.
    #[serde(skip)]
    pub distribution_us: Vec<f64>,
    /// The same by type of transaction, where the workload has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeResponse>,
    /// What the mean response time consists of.
    pub composition_us: Composition,
    /// CPU time per transaction: of the engine's thread, or of the described CPU.
    pub cpu_us_per_transaction: f64,
    /// CPU time per transaction of the whole process, clients included; `None` (null) on described hardware.
    pub process_cpu_us_per_transaction: Option<f64>,
    /// How often the engine's thread handed operations to the operating system, per transaction; zero on described hardware unless
    /// its CPU is one that tasks keep until they wait.
    pub batches_per_transaction: f64,
    /// How often it slept, per transaction; likewise.
    pub sleeps_per_transaction: f64,
    /// Bytes of log per transaction.
    pub log_bytes_per_transaction: f64,
    /// The same without the headers of log pages and what is left empty in them.
    pub log_record_bytes_per_transaction: f64,
    /// Requests for locks and their conflicts.
    pub locks: Locks,
    /// References by partition, each counted once, at the farthest place where it has found a page. In a run of a given number of transactions they are those of these transactions, including
    /// attempts that were rolled back; in a run of a given time, and where arrivals go on, all that were made within it.
    pub references: BTreeMap<String, References>,
    /// The share (0 to 1) of references found in main memory, by partition; 0 if there were none.
    pub hit_ratio: BTreeMap<String, f64>,
    /// The share (0 to 1) of them that the second-level cache served, by partition; empty if there is none.
    pub hit_ratio_second_level: BTreeMap<String, f64>,
    /// What each tier between main memory and the partitions' own devices did.
    pub tiers: Vec<TierUse>,
    /// What the transaction server did, if the transactions went through one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerUse>,
    /// Reads and writes per transaction, by device.
    pub io_per_transaction: BTreeMap<String, Transfers>,
    /// Reads and writes per second of `clock`, by device.
    pub io_per_s: BTreeMap<String, Transfers>,
    /// Load and queueing of every station.
    pub utilization: Vec<Station>,
    /// What the caches inside devices did, by device and file.
    pub disk_caches: Vec<DiskCache>,
    /// The simulation's own speed and its events; `None` (null) on the real clock.
    pub simulation: Option<Simulation>,
    /// What limited the run, if more came than could be served; such a run may have ended early. `None` (null) otherwise.
    pub saturated: Option<Saturated>,
    /// How the run came to its steady state before it was measured; absent on the real clock and of a cold run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmedUp>,
    /// How the throughput went over the time, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
}

/// The shares at which a distribution is kept.
pub const SHARES: [f64; 14] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999];

/// A distribution of response times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Response {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 % are no longer than this.
    pub p95: f64,
    /// 99 % are no longer than this.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Half the width of the mean's 90 % confidence interval by batch means; `None` (null) if the run was too short.
    pub half_width90: Option<f64>,
}

/// The response times of one type of transaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeResponse {
    /// The type's name.
    pub name: String,
    /// Transactions committed.
    pub transactions: u64,
    /// Their times from arrival to acknowledgement.
    pub response_us: Response,
}

impl Response {
    /// From the times themselves and their batch means, both in nanoseconds.
    pub fn new(times: &Histogram, interval: Interval) -> Response {
        let quantile = |q| times.quantile_ns(q) as f64 / 1e3;
        Response {
            mean: times.mean_ns() / 1e3,
            p50: quantile(0.50),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max: times.max_ns() as f64 / 1e3,
            half_width90: Some(interval.half_width / 1e3).filter(|width| width.is_finite()),
        }
    }

    /// Mean, quantiles and maximum for people, as a fact among others.
    pub fn fact(&self) -> Vec<String> {
        let time = |us: f64| format_duration_ns(us * 1e3);
        let Response { mean, p50, p95, p99, max, .. } = *self;
        let quantiles = format!("50 %: {}, 95 %: {}, 99 %: {}, max: {}", time(p50), time(p95), time(p99), time(max));
        fact("response time", time(mean), quantiles)
    }

    /// Mean, interval, quantiles and maximum for people.
    fn row(&self) -> [String; 6] {
        let Response { mean, p50, p95, p99, max, half_width90 } = *self;
        let width = half_width90.map_or_else(|| "run too short".to_owned(), |width| format!("± {}", time_us(width)));
        [time_us(mean), width, time_us(p50), time_us(p95), time_us(p99), time_us(max)]
    }
}

/// Mean times per transaction, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Composition {
    /// Computing, and waiting for a processor.
    pub cpu: f64,
    /// Waiting for locks.
    pub lock_wait: f64,
    /// Waiting for pages to be read.
    pub read_wait: f64,
    /// Waiting for pages to be written.
    pub write_wait: f64,
    /// Waiting for the log at commit.
    pub commit_wait: f64,
}

/// Transfers per transaction or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Transfers {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

/// The load of one station.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Station {
    /// Its name, such as `cpu` or `disk.controller`.
    pub name: String,
    /// How many servers it has; zero if unlimited.
    pub servers: u32,
    /// The mean share of servers that were busy, 0 to 1; zero if they are unlimited.
    pub utilization: f64,
    /// Requests completed.
    pub completed: u64,
    /// Mean time from arrival to departure.
    pub response_us_mean: f64,
    /// Mean number of requests in the station, waiting or served.
    pub population_mean: f64,
}

impl From<StationReport> for Station {
    fn from(station: StationReport) -> Station {
        Station {
            name: station.name,
            servers: station.servers,
            utilization: station.utilization,
            completed: station.completed,
            response_us_mean: station.response_ns_mean / 1e3,
            population_mean: station.population_mean,
        }
    }
}

impl RunReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let mut parts = vec![self.heading(), self.summary(), self.response(), self.composition()];
        parts.extend(self.course.as_ref().map(Course::to_text));
        if !self.types.is_empty() {
            parts.push(self.by_type());
        }
        if !self.references.is_empty() {
            parts.push(References::table(&self.references, !self.hit_ratio_second_level.is_empty()));
        }
        if !self.tiers.is_empty() {
            parts.extend(TierUse::tables(&self.tiers));
        }
        parts.extend(self.server.as_ref().map(ServerUse::to_text));
        if !self.io_per_transaction.is_empty() {
            parts.push(self.transfers());
        }
        if !self.utilization.is_empty() {
            parts.push(self.stations());
        }
        if !self.disk_caches.is_empty() {
            parts.push(DiskCache::table(&self.disk_caches));
        }
        parts.extend(self.simulation.as_ref().map(Simulation::to_text));
        parts.extend(self.notes.iter().map(|note| wrapped(&format!("Note: {note}"))));
        parts.join("\n\n")
    }

    fn transfers(&self) -> String {
        let header = ["device", "reads per transaction", "writes", "reads/s", "writes/s"];
        let rows = self.io_per_transaction.iter().map(|(name, io)| {
            let second = self.io_per_s.get(name).copied().unwrap_or_default();
            let rates = [second.reads, second.writes].map(|rate| grouped_decimal(rate, 0));
            let mut row = vec![name.clone(), count(io.reads), count(io.writes)];
            row.extend(rates);
            row
        });
        table(&header, 1, rows)
    }

    fn heading(&self) -> String {
        let clock = match self.clock {
            Clock::Real => "wall clock",
            Clock::Virtual => "virtual clock",
        };
        wrapped(&format!("{}\n{clock}; {}; seed {}", self.workload, self.driver, self.seed))
    }

    fn summary(&self) -> String {
        let mut time = format!("in {}", format_duration_ns(self.seconds * 1e9));
        if self.clock == Clock::Virtual {
            let speed = grouped_decimal(self.transactions as f64 / self.wall_seconds.max(1e-9), 0);
            time += &format!(" of virtual time; {speed} per second of wall time");
        }
        let cpu = match self.process_cpu_us_per_transaction {
            Some(process) => format!("per transaction on the engine's thread; {} in the process", time_us(process)),
            None => "per transaction".to_owned(),
        };
        let mut rows = vec![
            fact("throughput", format!("{}/s", grouped_decimal(self.throughput_per_s, 1)), "transactions"),
            fact("transactions", grouped(self.transactions), time),
            fact("rolled back", grouped(self.aborts), "and tried again"),
            fact("CPU", time_us(self.cpu_us_per_transaction), cpu),
            fact("log", format_size(self.log_bytes_per_transaction.round() as u64), "per transaction"),
        ];
        rows.extend(self.warm_up.map(WarmedUp::to_fact));
        facts(rows)
    }

    fn response(&self) -> String {
        let header = ["", "mean", "90 % interval", "50 %", "95 %", "99 %", "max"];
        let mut row = vec!["response time".to_owned()];
        row.extend(self.response_us.row());
        table(&header, 1, [row])
    }

    fn by_type(&self) -> String {
        let header = ["type", "transactions", "mean", "90 % interval", "50 %", "95 %", "99 %", "max"];
        let rows = self.types.iter().map(|measured| {
            let mut row = vec![measured.name.clone(), grouped(measured.transactions)];
            row.extend(measured.response_us.row());
            row
        });
        table(&header, 1, rows)
    }

    fn composition(&self) -> String {
        let Composition { cpu, lock_wait, read_wait, write_wait, commit_wait } = self.composition_us;
        let parts = [cpu, lock_wait, read_wait, write_wait, commit_wait];
        // What no part accounts for: waiting for a turn, and what the engine does not attribute.
        let rest = (self.response_us.mean - parts.iter().sum::<f64>()).max(0.0);
        let header = ["", "CPU", "locks", "reads", "writes", "commit", "other"];
        let mut times = vec!["of which".to_owned()];
        let mut shares = vec!["share".to_owned()];
        for part in parts.into_iter().chain([rest]) {
            times.push(time_us(part));
            shares.push(percent(part / self.response_us.mean.max(f64::MIN_POSITIVE)));
        }
        table(&header, 1, [times, shares])
    }

    fn stations(&self) -> String {
        let header = ["station", "servers", "busy", "requests", "mean time", "mean number"];
        let rows = self.utilization.iter().map(|station| {
            let (servers, busy) = match station.servers {
                0 => ("unlimited".to_owned(), String::new()),
                servers => (grouped(servers.into()), percent(station.utilization)),
            };
            vec![
                station.name.clone(),
                servers,
                busy,
                grouped(station.completed),
                time_us(station.response_us_mean),
                count(station.population_mean),
            ]
        });
        table(&header, 1, rows)
    }
}

fn time_us(us: f64) -> String {
    format_duration_ns(us * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn count(number: f64) -> String {
    grouped_decimal(number, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::statistics::BatchMeans;

    fn report(clock: Clock) -> RunReport {
        let mut times = Histogram::new();
        let mut means = BatchMeans::new();
        for index in 0..1_000_u64 {
            times.record(1_000_000 + index * 1_000);
            means.record((1_000_000 + index * 1_000) as f64);
        }
        let station = |name: &str, servers| Station {
            name: name.to_owned(),
            servers,
            utilization: 0.8765,
            completed: 12_345_678,
            response_us_mean: 16_400.0,
            population_mean: 1_234.5,
        };
        RunReport {
            workload: "debit-credit, scale 50, 64 clients".to_owned(),
            driver: "io_uring with direct I/O, because the kernel permits it and nothing else was asked for".to_owned(),
            notes: vec![
                "device 'nvem' is memory of this machine: what it holds does not survive a power cut".to_owned(),
            ],
            warnings: vec!["partition 'account': its cache is on its own device 'disk', which is no faster".to_owned()],
            clock,
            seed: 7,
            seconds: 10.0,
            wall_seconds: if clock == Clock::Real { 10.0 } else { 2.0 },
            transactions: 1_234_567,
            aborts: 1_234,
            throughput_per_s: 123_456.7,
            response_us: Response::new(&times, means.interval()),
            distribution_us: Vec::new(),
            types: vec![TypeResponse {
                name: "a-type-of-a-very-".repeat(6),
                transactions: 1_234_567,
                response_us: Response::new(&times, means.interval()),
            }],
            composition_us: Composition {
                cpu: 2.3,
                lock_wait: 10.0,
                read_wait: 0.0,
                write_wait: 0.0,
                commit_wait: 1_400.0,
            },
            cpu_us_per_transaction: 2.25,
            process_cpu_us_per_transaction: (clock == Clock::Real).then_some(7.75),
            batches_per_transaction: 0.25,
            sleeps_per_transaction: 0.125,
            log_bytes_per_transaction: 512.4,
            log_record_bytes_per_transaction: 400.5,
            locks: Locks { requests: 1_234_567_890, waits: 12_345_679, conflicts: 0.01, restarts_by_colour: 0 },
            references: BTreeMap::from([
                (
                    "account".to_owned(),
                    References {
                        hits: 725,
                        misses: 275,
                        second_level_hits: 125,
                        device_reads: 150,
                        ..References::default()
                    },
                ),
                ("a-partition-of-a-very-".repeat(5), References { hits: 12_345_678_901, ..References::default() }),
            ]),
            hit_ratio: BTreeMap::from([("account".to_owned(), 0.725), ("a-partition-of-a-very-".repeat(5), 1.0)]),
            hit_ratio_second_level: BTreeMap::from([
                ("account".to_owned(), 0.125),
                ("a-partition-of-a-very-".repeat(5), 0.0),
            ]),
            tiers: vec![TierUse {
                name: "write-buffer".to_owned(),
                device: "nvem".repeat(20),
                pages: 1_000_000,
                volatile: false,
                reads: 617_283,
                dirty_reads: 0.83,
                writes: 1_524_066_961,
                modified_writes: 1_504_254_090,
                reads_per_transaction: 0.5,
                writes_per_transaction: 1_234.5,
                modified: 0.987,
                fallbacks: 1_234_567,
                damaged: 0,
                unusable: 0,
                bytes_written: 12_484_356_544_512,
                bytes_written_per_transaction: 10_112_386.3,
                written_over_per_day: 13_167.5,
                years_of_life: Some(12.34),
                write_budget_bytes_per_day: Some(1 << 40),
                declined_writes: 1_234_567,
                saved_ms: None,
                saved_us_per_read: None,
                lost: None,
            }],
            server: None,
            io_per_transaction: BTreeMap::from([("disk".to_owned(), Transfers { reads: 1.25, writes: 1_000.0 })]),
            io_per_s: BTreeMap::from([("disk".to_owned(), Transfers { reads: 154_320.9, writes: 12_345_670.0 })]),
            utilization: vec![station("cpu", 4), station(&"disk-of-a-long-name.".repeat(8), 0)],
            disk_caches: Vec::new(),
            simulation: None,
            saturated: None,
            warm_up: (clock == Clock::Virtual).then_some(WarmedUp {
                seconds: 1_234.5,
                windows: 20,
                is_steady: false,
                throughput_change: -0.123,
                misses_change: 12.5,
            }),
            course: None,
        }
    }

    #[test]
    fn text_fits_the_width() {
        for clock in [Clock::Real, Clock::Virtual] {
            let text = report(clock).to_text();
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{line}");
                assert_eq!(line.trim_end(), line);
            }
        }
    }

    #[test]
    fn text_has_units_and_separators() {
        let text = report(Clock::Virtual).to_text();
        for part in ["123,456.7/s", "1,234,567", "2.25 us", "512 B", "1.50 ms", "72.5 %", "1.25", "unlimited"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("617,284 per second of wall time"), "{text}");
        let bare = RunReport { response_us: Response::default(), utilization: vec![], ..report(Clock::Real) }.to_text();
        assert!(bare.contains("run too short") && !bare.contains("station"), "{bare}");
    }

    #[test]
    fn text_says_what_the_cache_wears_and_brings() {
        let cache = |saved_ms, saved_us_per_read| {
            let report = report(Clock::Real);
            let tier = TierUse {
                name: "cache".to_owned(),
                device: "nvem".to_owned(),
                saved_ms,
                saved_us_per_read,
                ..report.tiers[0].clone()
            };
            RunReport { tiers: vec![tier], ..report }.to_text().replace('\n', " ")
        };
        let text = cache(Some(2_592_588.6), Some(4_200.0));
        for part in ["11.4 TiB", "9.6 MiB", "13,167.5", "12.3", "1 TiB", "1,234,567"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(
            text.contains("served 617,283 reads, each 4.20 ms sooner") && text.contains(": 2,592.59 s in all."),
            "{text}"
        );
        let text = cache(Some(-61.7), Some(-100.0));
        assert!(text.contains("each 100.00 us later") && text.contains(": 61.70 ms in all."), "{text}");
        assert!(cache(None, None).contains("what that saved is not known"));
    }

    #[test]
    fn json_has_the_keys_that_are_promised() {
        let json: serde_json::Value = serde_json::from_str(&report(Clock::Real).to_json()).unwrap();
        assert_eq!(json["throughput_per_s"], 123_456.7);
        assert_eq!(json["clock"], "real");
        assert!(json["warnings"][0].as_str().is_some_and(|warning| warning.contains("no faster")));
        assert_eq!(json["cpu_us_per_transaction"], 2.25);
        assert_eq!(json["process_cpu_us_per_transaction"], 7.75);
        assert_eq!(json["io_per_s"]["disk"]["reads"], 154_320.9);
        assert_eq!(json["hit_ratio"]["account"], 0.725);
        let account = &json["references"]["account"];
        assert_eq!(account["misses"], 275);
        let places = ["hits", "upper_cache_hits", "second_level_hits", "write_buffer_hits", "device_reads"];
        let count = |place: &str| account[place].as_u64().expect("a count");
        assert_eq!(places.map(count).iter().sum::<u64>(), 1_000, "they are all references");
        assert_eq!(json["hit_ratio_second_level"]["account"], 0.125);
        assert_eq!(json["tiers"][0]["fallbacks"], 1_234_567);
        assert_eq!(json["tiers"][0]["bytes_written_per_transaction"], 10_112_386.3);
        assert_eq!(json["tiers"][0]["years_of_life"], 12.34);
        assert!(json["tiers"][0]["saved_ms"].is_null());
        assert_eq!(json["io_per_transaction"]["disk"]["reads"], 1.25);
        assert_eq!(json["composition_us"]["commit_wait"], 1_400.0);
        assert_eq!(json["utilization"][0]["name"], "cpu");
        let response = &json["response_us"];
        assert_eq!(response["mean"], 1_499.5);
        for key in ["p50", "p95", "p99", "max", "half_width90"] {
            assert!(response[key].as_f64().is_some_and(|us| us > 0.0), "{key}");
        }
        let short = RunReport { response_us: Response::default(), ..report(Clock::Virtual) };
        assert!(short.to_json().contains("\"half_width90\": null"));
    }
}
