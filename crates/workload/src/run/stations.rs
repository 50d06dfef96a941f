//! What the stations tell of a run: whether its figures add up, and which of them more came to than it could serve.

use driver::{Fault, FaultKind, StationReport};
use engine::{Database, Internals, Result};
use executor::WholeExecutor;
use std::fmt;

/// The share by which a station may differ from Little's law: rounding.
const LITTLE_ERROR_MAX: f64 = 1e-6;

/// From this utilization on a station is held to be what limits a saturated run.
const FULL: f64 = 0.9;

/// More transactions arrived than could be served, so that ever more waited: response times have no steady state, and the
/// throughput is what the machine can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturation {
    /// The station that limits the throughput, by its name in the driver's reports; `locks` if transactions wait for each
    /// other while no station is full.
    pub station: String,
    /// The mean share of its servers that were busy, 0 to 1; of the busiest station for `locks`.
    pub utilization: f64,
    /// How many transactions had arrived and not ended when the run did.
    pub unfinished: u64,
}

impl fmt::Display for Saturation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Saturation { station, utilization, unfinished } = self;
        let percent = utilization * 100.0;
        match station.as_str() {
            "locks" => write!(f, "saturated by waiting for locks: the busiest station is busy for {percent:.0} %")?,
            _ => write!(f, "saturated at station '{station}', busy for {percent:.1} % of the time")?,
        }
        write!(f, "; {} transactions had arrived and not ended", base::units::grouped(*unfinished))
    }
}

impl Saturation {
    /// Names what limits the run, from what the stations and the database have counted in the last `elapsed_ns`.
    pub(super) fn find(database: &Database, unfinished: u64, elapsed_ns: u64) -> Saturation {
        let stations = database.executor().whole().stations();
        let busiest = stations.into_iter().max_by(|a, b| a.utilization.total_cmp(&b.utilization));
        let (name, utilization) = busiest.map_or((String::new(), 0.0), |busiest| (busiest.name, busiest.utilization));
        // By Little's law, this number of the running transactions wait for locks.
        let waiting = database.statistics().lock_wait_ns.get() as f64 / elapsed_ns.max(1) as f64;
        let running = unfinished.min(database.settings().multiprogramming_level as u64) as f64;
        let station = if utilization < FULL && waiting > running / 4.0 { "locks".to_owned() } else { name };
        Saturation { station, utilization, unfinished }
    }
}

/// Makes sure that every station keeps Little's law.
///
/// # Errors
/// A [`Fault`] that names the station which does not: then the driver is wrong, and so are the run's figures.
pub fn check_little(stations: &[StationReport]) -> Result<()> {
    match stations.iter().find(|station| station.little_error.is_nan() || station.little_error > LITTLE_ERROR_MAX) {
        None => Ok(()),
        Some(StationReport { name, little_error, .. }) => {
            let message = format!(
                "station '{name}' breaks Little's law by {:.4} %: the driver's accounts of this run are wrong; report it",
                little_error * 100.0
            );
            Err(Fault::new(FaultKind::Device, message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_that_loses_a_request_is_named() {
        let station = |name: &str, little_error| StationReport {
            name: name.to_owned(),
            servers: 1,
            utilization: 0.5,
            completed: 10,
            response_ns_mean: 1e6,
            population_mean: 0.7,
            little_error,
        };
        assert_eq!(check_little(&[station("cpu", 1e-12), station("disk.medium", 0.0)]), Ok(()));
        for wrong in [0.01, f64::NAN] {
            let error = check_little(&[station("cpu", 0.0), station("disk.medium", wrong)]).unwrap_err().to_string();
            assert!(error.contains("'disk.medium' breaks Little's law"), "{error}");
        }
    }
}
