//! What a run says of a candidate.

use crate::Place;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The figures of a candidate's run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The price of a month.
    pub cost_per_month: f64,
    /// Transactions measured.
    pub transactions: u64,
    /// Transactions per second.
    pub throughput_per_s: f64,
    /// Arrivals per second, of a load with a rate.
    pub arrivals_per_s: Option<f64>,
    /// The mean response time, in microseconds.
    pub mean_us: f64,
    /// 99 % of the response times are no longer than this.
    pub p99_us: f64,
    /// The station that could not keep up with the arrivals.
    pub saturated: Option<String>,
    /// Whether throughput and misses had come to change no more before it was measured, of a run that was warmed up for that.
    #[serde(default)]
    pub was_steady: Option<bool>,
    /// The shares of references that were found in main memory and in the second-level cache.
    pub hit_ratios: [f64; 2],
    /// The utilization of each station, the busiest first.
    pub utilizations: Vec<(String, f64)>,
    /// What is written to each device.
    pub wear: Vec<Wear>,
    /// How long a restart after a crash at the end of the run takes, in seconds, once it was tried.
    pub recovery_s: Option<f64>,
}

/// What is written to a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// The device's name.
    pub device: String,
    /// Bytes in a year at the rate of the run.
    pub bytes_per_year: f64,
    /// How many times its capacity is written over in a day.
    pub overwrites_per_day: f64,
    /// How long it lasts at this rate, if it is known what it is rated for and anything is written.
    pub years_of_life: Option<f64>,
}

/// Seconds of a year and of a day.
const YEAR_S: f64 = 365.25 * 86_400.0;
const DAY_S: f64 = 86_400.0;

impl Figures {
    /// Of the report of a run, of a candidate of this price under a load of this rate, on a machine with these devices.
    pub fn of_report(
        report: &Value,
        (cost_per_month, arrivals_per_s): (f64, Option<f64>),
        saturated: Option<String>,
        places: &BTreeMap<String, Place>,
    ) -> Figures {
        let number = |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        let stations = report["utilization"].as_array().map(Vec::as_slice).unwrap_or_default();
        let utilization = |station: &Value| {
            let busy = station["utilization"].as_f64()?;
            // A station with as many servers as requests is never full.
            (station["servers"].as_u64()? > 0).then_some((station["name"].as_str()?.to_owned(), busy))
        };
        let mut utilizations: Vec<(String, f64)> = stations.iter().filter_map(utilization).collect();
        utilizations.sort_by(|a, b| b.1.total_cmp(&a.1));
        let wear = places.iter().map(|(device, place)| {
            let bytes_per_s = report["written_bytes_per_s"][device].as_f64().unwrap_or(0.0);
            let rated = place.rated_writes.filter(|_| bytes_per_s > 0.0);
            Wear {
                device: device.clone(),
                bytes_per_year: bytes_per_s * YEAR_S,
                overwrites_per_day: bytes_per_s * DAY_S / place.capacity.max(1) as f64,
                years_of_life: rated.map(|rated| rated as f64 / bytes_per_s / YEAR_S),
            }
        });
        Figures {
            cost_per_month,
            transactions: report["transactions"].as_u64().unwrap_or(0),
            throughput_per_s: number("/throughput_per_s"),
            arrivals_per_s,
            mean_us: number("/response_us/mean"),
            p99_us: number("/response_us/p99"),
            saturated,
            was_steady: report.pointer("/warm_up/is_steady").and_then(Value::as_bool),
            hit_ratios: [number("/hit_ratio_all"), number("/hit_ratio_second_level_all")],
            utilizations,
            wear: wear.collect(),
            recovery_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_says_whether_it_was_steady_and_an_earlier_result_does_not() {
        let of = |report: &Value| Figures::of_report(report, (1.0, None), None, &BTreeMap::new());
        let figures = of(&json!({"transactions": 5, "warm_up": {"windows": 20, "is_steady": false}}));
        assert_eq!((figures.was_steady, of(&json!({})).was_steady), (Some(false), None));
        let mut kept = serde_json::to_value(&figures).expect("figures are JSON");
        kept.as_object_mut().expect("they are").remove("was_steady");
        let read: Figures = serde_json::from_value(kept).expect("an earlier release has kept them");
        assert_eq!((read.was_steady, read.transactions), (None, 5));
    }
}
