//! The figures of a report that both clocks have, each under a name, a key for programs and a unit.

use crate::bench::Outcome;
use crate::bench::page_server::PageServerReport;
use crate::bench::spill::SpillReport;
use crate::report::{Composition, Response, RunReport, SHARES, Station, TierUse, Transfers};
use base::units::{format_duration_ns, format_size, grouped_decimal};
use std::collections::{BTreeMap, BTreeSet};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Microseconds.
    Microseconds,
    /// Microseconds that are a part of the mean response time: errors are shares of that.
    PartOfResponse,
    /// Bytes.
    Bytes,
    /// A number.
    Number,
    /// A share, 0 to 1: errors are differences.
    Share,
}

impl Unit {
    /// A value in this unit, for people.
    pub fn words(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", grouped_decimal(value, if value < 100.0 { 1 } else { 0 })),
            Unit::Microseconds | Unit::PartOfResponse => format_duration_ns(value * 1e3),
            Unit::Bytes => format_size(value.round() as u64),
            Unit::Number if value != 0.0 && value < 0.1 => format!("{value:.4}"),
            Unit::Number => grouped_decimal(value, if value < 1_000.0 { 2 } else { 0 }),
            Unit::Share => format!("{:.1} %", value * 100.0),
        }
    }
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// For people.
    pub name: String,
    /// For programs.
    pub key: String,
    /// What it counts.
    pub unit: Unit,
    /// Its value.
    pub value: f64,
}

/// The key of the mean response time.
pub const MEAN: &str = "response_us.mean";

fn reading(name: impl Into<String>, key: impl Into<String>, unit: Unit, value: f64) -> Reading {
    Reading { name: name.into(), key: key.into(), unit, value }
}

/// The figures of a run.
pub fn readings(outcome: &Outcome) -> Vec<Reading> {
    match outcome {
        Outcome::Transactions(report) => of_transactions(report),
        Outcome::Spill(report) => of_spill(report),
        Outcome::PageServer(report) => of_page_server(report),
    }
}

fn of_transactions(report: &RunReport) -> Vec<Reading> {
    let per_transaction = |count: u64| count as f64 / report.transactions.max(1) as f64;
    let mut readings = of_response(report.throughput_per_s, &report.response_us);
    readings.extend(of_composition(&report.composition_us));
    readings.extend([
        reading("CPU of a transaction", "cpu_us_per_transaction", Unit::Microseconds, report.cpu_us_per_transaction),
        reading("CPUs busy", "cpus_busy", Unit::Share, report.cpu_us_per_transaction * report.throughput_per_s / 1e6),
        reading("batches, per transaction", "batches_per_transaction", Unit::Number, report.batches_per_transaction),
        reading("sleeps, per transaction", "sleeps_per_transaction", Unit::Number, report.sleeps_per_transaction),
        reading("log, per transaction", "log_bytes_per_transaction", Unit::Bytes, report.log_bytes_per_transaction),
        reading("rolled back, per transaction", "aborts_per_transaction", Unit::Number, per_transaction(report.aborts)),
    ]);
    for (name, references) in report.references.iter().filter(|(_, seen)| seen.hits + seen.misses > 0) {
        let key = |level: &str| format!("hit_ratio{level}.{name}");
        readings.push(reading(format!("hits in memory: {name}"), key(""), Unit::Share, references.hit_ratio()));
        if let Some(second) = report.hit_ratio_second_level.get(name).filter(|_| references.misses > 0) {
            readings.push(reading(format!("hits in the cache: {name}"), key("_second_level"), Unit::Share, *second));
        }
    }
    readings.extend(report.tiers.iter().flat_map(|tier| of_tier(tier, report.transactions)));
    readings.extend(of_transfers(&report.io_per_transaction));
    readings.extend(of_devices(&report.utilization));
    readings
}

fn of_composition(composition: &Composition) -> [Reading; 5] {
    let Composition { cpu, lock_wait, read_wait, write_wait, commit_wait } = *composition;
    [
        reading("of the mean: CPU, and waiting for it", "composition_us.cpu", Unit::PartOfResponse, cpu),
        reading("of the mean: locks", "composition_us.lock_wait", Unit::PartOfResponse, lock_wait),
        reading("of the mean: reads", "composition_us.read_wait", Unit::PartOfResponse, read_wait),
        reading("of the mean: writes", "composition_us.write_wait", Unit::PartOfResponse, write_wait),
        reading("of the mean: commit", "composition_us.commit_wait", Unit::PartOfResponse, commit_wait),
    ]
}

/// What a tier did for a transaction, what that saved, and what it is written with.
fn of_tier(tier: &TierUse, transactions: u64) -> Vec<Reading> {
    let of = |word: &str, key: &str, unit: Unit, value: f64| {
        let name = format!("{}: {word}, per transaction", tier.name);
        reading(name, format!("tier.{}.{key}", tier.name), unit, value)
    };
    let mut readings = vec![
        of("reads", "reads", Unit::Number, tier.reads_per_transaction),
        of("writes", "writes", Unit::Number, tier.writes_per_transaction),
        of("written", "written_bytes", Unit::Bytes, tier.bytes_written_per_transaction),
    ];
    let saved_us = tier.saved_ms.map(|ms| ms * 1e3 / transactions.max(1) as f64);
    readings.extend(saved_us.map(|us| of("time saved", "saved_us", Unit::Microseconds, us)));
    readings
}

fn of_response(throughput_per_s: f64, response: &Response) -> Vec<Reading> {
    vec![
        reading("throughput", "throughput_per_s", Unit::PerSecond, throughput_per_s),
        reading("response, mean", MEAN, Unit::Microseconds, response.mean),
        reading("response, 50 %", "response_us.p50", Unit::Microseconds, response.p50),
        reading("response, 95 %", "response_us.p95", Unit::Microseconds, response.p95),
        reading("response, 99 %", "response_us.p99", Unit::Microseconds, response.p99),
    ]
}

fn of_transfers(devices: &BTreeMap<String, Transfers>) -> impl Iterator<Item = Reading> {
    devices.iter().flat_map(|(device, transfers)| {
        [("reads", transfers.reads), ("writes", transfers.writes)].map(|(word, count)| {
            let name = format!("{device}: {word}, per transaction");
            reading(name, format!("io.{device}.{word}"), Unit::Number, count)
        })
    })
}

fn of_page_server(report: &PageServerReport) -> Vec<Reading> {
    let number = |name: &str, key: &str, value: f64| reading(name, key, Unit::Number, value);
    let time = |name: &str, key: &str, us: f64| reading(name, key, Unit::Microseconds, us);
    let bytes = |name: &str, key: &str, bytes: f64| reading(name, key, Unit::Bytes, bytes);
    let share = |name: &str, key: &str, share: f64| reading(name, key, Unit::Share, share);
    let mut readings = of_response(report.throughput_per_s, &report.response_us);
    readings.extend(of_composition(&report.composition_us));
    readings.extend([
        share("hits in the nodes' memories", "node_hit_ratio", report.node_hit_ratio),
        time("CPU of a transaction, of all", "cpu_us_per_transaction", report.cpu_us_per_transaction),
        time("of it the server's", "server_cpu_us_per_transaction", report.server_cpu_us_per_transaction),
        number("messages, per transaction", "messages_per_transaction", report.messages_per_transaction),
        bytes("their bytes, per transaction", "bytes_per_transaction", report.bytes_per_transaction),
        number("pages asked for, per transaction", "pages_per_transaction", report.pages_per_transaction),
        share("hits in the server's memory", "server_hit_ratio", report.server_hit_ratio),
        number("callbacks, per transaction", "callbacks_per_transaction", report.callbacks_per_transaction),
        number("repeated, per transaction", "repeated_per_transaction", report.repeated_per_transaction),
        bytes("log, per transaction", "log_bytes_per_transaction", report.log_bytes_per_transaction),
    ]);
    readings.extend(of_transfers(&report.io_per_transaction));
    readings.extend(of_devices(&report.utilization));
    readings
}

/// How many requests are under way at each device, and how busy its stations are. The stations of a device have its name, alone or in front of a dot.
fn of_devices(stations: &[Station]) -> Vec<Reading> {
    let device = |station: &Station| station.name.split('.').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = stations.iter().map(device).filter(|name| name != "cpu").collect();
    let present = |name: &String| {
        let of_device = || stations.iter().filter(|station| device(station) == *name);
        // A device that is real and described has both: what is under way there is the real one's.
        let alone = of_device().find(|station| station.name == *name).map(|station| station.population_mean);
        alone.unwrap_or_else(|| of_device().map(|station| station.population_mean).sum())
    };
    let under_way = |name: &String| {
        reading(format!("{name}: requests under way"), format!("under_way.{name}"), Unit::Number, present(name))
    };
    // A station with as many servers as requests is never busy; a real device does not say how many it has.
    let is_bounded = |station: &&Station| station.servers > 0 && device(station) != "cpu";
    let busy = |station: &Station| {
        let name = &station.name;
        reading(format!("{name}: busy"), format!("utilization.{name}"), Unit::Share, station.utilization)
    };
    names.iter().map(under_way).chain(stations.iter().filter(is_bounded).map(busy)).collect()
}

fn of_spill(report: &SpillReport) -> Vec<Reading> {
    let at = |share: f64| {
        let place = SHARES.iter().position(|known| *known == share);
        place.and_then(|place| report.distribution_us.get(place)).copied().unwrap_or(0.0)
    };
    let mut readings = vec![
        reading("rows", "rows_per_s", Unit::PerSecond, report.rows_per_s),
        reading("time", "time_us", Unit::Microseconds, report.took.seconds * 1e6),
        reading("first row after", "first_row_us", Unit::Microseconds, report.took.first_seconds * 1e6),
        reading("half of the rows after", "rows_us.p50", Unit::Microseconds, at(0.5)),
        reading("95 % of them after", "rows_us.p95", Unit::Microseconds, at(0.95)),
        reading("99 % of them after", "rows_us.p99", Unit::Microseconds, at(0.99)),
        reading("clusters written", "clusters_written", Unit::Number, report.took.writes as f64),
        reading("clusters read", "clusters_read", Unit::Number, report.took.reads as f64),
        reading("spilled", "spilled_bytes", Unit::Bytes, report.spilled.spilled_bytes as f64),
        reading("runs", "runs", Unit::Number, report.spilled.runs as f64),
        reading("passes", "passes", Unit::Number, f64::from(report.spilled.passes)),
    ];
    readings.extend(report.cpu_seconds.map(|cpu| reading("CPU, all threads", "cpu_us", Unit::Microseconds, cpu * 1e6)));
    readings
}
