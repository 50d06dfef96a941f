//! What `bench update-commit` measured, as text and as JSON.

use super::Arguments;
use crate::bench::bandwidth::DurableRate;
use crate::report::Clock;
use crate::table::{table, wrapped};
use base::statistics::Histogram;
use base::units::{grouped, grouped_decimal};
use engine::Internals;
use entresol::{Database, Store};
use executor::WholeExecutor;
use serde::Serialize;
use workload::Measured;

/// What a distribution of times comes to, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 99 % are no longer than this.
    pub p99: f64,
}

impl From<&Histogram> for Times {
    fn from(times: &Histogram) -> Times {
        let quantile = |q| times.quantile_ns(q) as f64 / 1e3;
        Times { mean: times.mean_ns() / 1e3, p50: quantile(0.5), p99: quantile(0.99) }
    }
}

/// What the device gave without an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Probed {
    /// Durable writes per second.
    pub writes_per_s: f64,
    /// From the submission of a write to its completion.
    pub latency_us: Times,
}

/// One run with the probe after it, or medians of several, each figure by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Which round, counted from 1; 0 for medians.
    pub round: u32,
    /// Clients, each with one transaction at a time.
    pub clients: u32,
    /// Commits per second.
    pub commits_per_s: f64,
    /// From the beginning of an update to the acknowledgement of its commit.
    pub response_us: Times,
    /// The share of the engine's thread, or of the described processors, that was busy, 0 to 1.
    pub cpu: f64,
    /// Log writes per second.
    pub log_writes_per_s: f64,
    /// Bytes of a log write, padding included.
    pub log_bytes_per_write: f64,
    /// From the submission of a log write to its completion, means in microseconds.
    pub log_write_us: f64,
    /// Commits that a log write carried.
    pub group_size_mean: f64,
    /// The same of the largest group.
    pub group_size_max: u32,
    /// Bytes of a write of the probe: those of a log write, in whole pages of the log.
    pub write_bytes: u32,
    /// Writes of the probe under way at once: as many as the log had in the mean.
    pub depth: u32,
    /// The probe.
    pub device: Probed,
    /// The median response time over the device's median latency.
    pub response_ratio: f64,
    /// The same of the means.
    pub response_ratio_mean: f64,
    /// Log writes per second over the device's.
    pub rate_ratio: f64,
}

impl Point {
    /// From a run that has just ended, before its probe.
    pub fn of(database: &Database, clients: u32, measured: &Measured, is_virtual: bool) -> Point {
        let log = database.log().statistics();
        let seconds = measured.elapsed_ns as f64 / 1e9;
        let (writes, page_size) = (log.writes.max(1) as f64, database.settings().log.page_size as f64);
        let log_bytes_per_write = log.bytes_written as f64 / writes;
        let latency_ns = log.write_latency.mean_ns();
        let cpu = if is_virtual {
            // An empty sum would be -0.
            let cpu = measured.stations.iter().filter(|station| station.name == "cpu");
            cpu.fold(0.0, |sum, cpu| sum + cpu.utilization)
        } else {
            measured.cpu_ns as f64 / 1e9 / seconds
        };
        Point {
            clients,
            commits_per_s: measured.transactions as f64 / seconds,
            response_us: Times::from(&measured.response),
            cpu,
            log_writes_per_s: writes / seconds,
            log_bytes_per_write,
            log_write_us: latency_ns / 1e3,
            group_size_mean: log.group_size_mean(),
            group_size_max: log.group_size_max,
            write_bytes: ((log_bytes_per_write / page_size).round().max(1.0) * page_size) as u32,
            // Little's law.
            depth: (writes / seconds * latency_ns / 1e9).round().max(1.0) as u32,
            ..Point::default()
        }
    }

    /// The same beside what the device gave.
    pub fn beside(self, probed: &DurableRate) -> Point {
        let device = Probed { writes_per_s: probed.writes_per_s, latency_us: Times::from(&probed.latency) };
        Point {
            device,
            response_ratio: self.response_us.p50 / device.latency_us.p50,
            response_ratio_mean: self.response_us.mean / device.latency_us.mean,
            rate_ratio: self.log_writes_per_s / device.writes_per_s,
            ..self
        }
    }

    /// The medians of each figure over runs of as many clients.
    fn median(runs: &[&Point]) -> Point {
        let median = |figure: fn(&Point) -> f64| {
            let mut figures: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
            figures.sort_by(f64::total_cmp);
            (figures[(figures.len() - 1) / 2] + figures[figures.len() / 2]) / 2.0
        };
        Point {
            round: 0,
            clients: runs[0].clients,
            commits_per_s: median(|run| run.commits_per_s),
            response_us: Times {
                mean: median(|run| run.response_us.mean),
                p50: median(|run| run.response_us.p50),
                p99: median(|run| run.response_us.p99),
            },
            cpu: median(|run| run.cpu),
            log_writes_per_s: median(|run| run.log_writes_per_s),
            log_bytes_per_write: median(|run| run.log_bytes_per_write),
            log_write_us: median(|run| run.log_write_us),
            group_size_mean: median(|run| run.group_size_mean),
            group_size_max: median(|run| run.group_size_max.into()) as u32,
            write_bytes: median(|run| run.write_bytes.into()) as u32,
            depth: median(|run| run.depth.into()) as u32,
            device: Probed {
                writes_per_s: median(|run| run.device.writes_per_s),
                latency_us: Times {
                    mean: median(|run| run.device.latency_us.mean),
                    p50: median(|run| run.device.latency_us.p50),
                    p99: median(|run| run.device.latency_us.p99),
                },
            },
            response_ratio: median(|run| run.response_ratio),
            response_ratio_mean: median(|run| run.response_ratio_mean),
            rate_ratio: median(|run| run.rate_ratio),
        }
    }
}

/// What was measured. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdateCommitReport {
    /// The workload and its parameters, for people.
    pub workload: String,
    /// The driver's description of itself.
    pub driver: String,
    /// Which clock the times are by.
    pub clock: Clock,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Where the log is and how its writes become durable.
    pub log: String,
    /// What is configured and gains nothing.
    pub warnings: Vec<String>,
    /// Medians over all rounds, by number of clients.
    pub points: Vec<Point>,
    /// Every run.
    pub runs: Vec<Point>,
}

impl UpdateCommitReport {
    /// From all runs on this store.
    pub fn new(store: &Store, arguments: &Arguments, (records, rounds): (u64, u32), runs: Vec<Point>) -> Self {
        let of = |clients: &u32| runs.iter().filter(|run| run.clients == *clients).collect::<Vec<_>>();
        let points = arguments.clients.iter().map(|clients| Point::median(&of(clients))).collect();
        let rounds = if rounds == 1 { "one round".to_owned() } else { format!("medians of {rounds} rounds") };
        let seconds = arguments.seconds;
        let durable = if store.database().settings().log.durable { "" } else { ", not durable" };
        UpdateCommitReport {
            workload: format!("update and commit, {} records, {rounds}, {seconds} s a run{durable}", grouped(records)),
            driver: store.executor().whole().description(),
            clock: if store.is_virtual() { Clock::Virtual } else { Clock::Real },
            seed: arguments.seed,
            log: store.log_description(),
            warnings: store.warnings(),
            points,
            runs,
        }
    }

    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let clock = if self.clock == Clock::Virtual { "virtual clock" } else { "wall clock" };
        let heading =
            wrapped(&format!("{}\n{clock}; {}; seed {}\n{}", self.workload, self.driver, self.seed, self.log));
        let us = |us: f64| grouped_decimal(us, 0);
        let commits = self.points.iter().map(|point| {
            let Times { mean, p50, p99 } = point.response_us;
            vec![
                grouped(point.clients.into()),
                grouped_decimal(point.commits_per_s, 0),
                us(mean),
                us(p50),
                us(p99),
                format!("{:.0} %", 100.0 * point.cpu),
                format!("{:.1}", point.group_size_mean),
                grouped(point.group_size_max.into()),
                grouped_decimal(point.log_bytes_per_write, 0),
                grouped_decimal(point.log_writes_per_s, 0),
            ]
        });
        let header =
            ["clients", "commits/s", "mean us", "p50", "p99", "CPU", "group", "max", "bytes/write", "log writes/s"];
        let commits = table(&header, 0, commits);
        let devices = self.points.iter().map(|point| {
            let Times { mean, p50, p99 } = point.device.latency_us;
            vec![
                grouped(point.clients.into()),
                grouped(point.write_bytes.into()),
                grouped(point.depth.into()),
                grouped_decimal(point.device.writes_per_s, 0),
                us(mean),
                us(p50),
                us(p99),
                format!("{:.2}", point.response_ratio),
                format!("{:.2}", point.rate_ratio),
            ]
        });
        let header = ["clients", "bytes", "depth", "writes/s", "mean us", "p50", "p99", "response", "rate"];
        let devices = table(&header, 0, devices);
        let legend = wrapped(
            "The device alone: durable writes of as many bytes, as many at once, to the log's device. Response: our median \
             over its median latency; rate: our log writes over its writes.",
        );
        format!("{heading}\n\n{commits}\n\n{devices}\n\n{legend}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: u32, clients: u32, response_us: f64) -> Point {
        let response_us = Times { mean: response_us, p50: response_us, p99: 9_999_999.0 };
        let device = Probed { writes_per_s: 10_000.0, latency_us: Times { mean: 50.0, p50: 50.0, p99: 50.0 } };
        let (log_writes_per_s, log_bytes_per_write) = (5_000_000.0, 262_144.0);
        let run = Point {
            round,
            clients,
            response_us,
            device,
            commits_per_s: 12_345_678.0,
            log_writes_per_s,
            log_bytes_per_write,
            write_bytes: 262_144,
            ..Point::default()
        };
        Point { response_ratio: run.response_us.p50 / 50.0, ..run }
    }

    #[test]
    fn medians_are_taken_of_each_figure_and_tables_fit() {
        let runs = [point(1, 1, 100.0), point(2, 1, 300.0), point(3, 1, 150.0)];
        let median = Point::median(&runs.iter().collect::<Vec<_>>());
        assert_eq!((median.round, median.clients, median.response_us.p50, median.response_ratio), (0, 1, 150.0, 3.0));
        let report = UpdateCommitReport {
            workload: "update and commit".to_owned(),
            driver: "io_uring".to_owned(),
            clock: Clock::Real,
            seed: 1,
            log: "log on device 'disk'".to_owned(),
            warnings: Vec::new(),
            points: vec![median, point(1, 65_536, 1_234_567.0)],
            runs: runs.to_vec(),
        };
        let text = report.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("3.00") && text.contains("1,234,567"), "{text}");
    }
}
