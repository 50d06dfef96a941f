/// Load and queueing of one station (a group of CPUs, a disk's arms, a controller, a transmission path) since its statistics
/// were last restarted.
#[derive(Clone, Debug, PartialEq)]
pub struct StationReport {
    /// The station's name, such as `cpu` or `disk.controller`.
    pub name: String,
    /// How many servers it has; zero if unlimited.
    pub servers: u32,
    /// The mean share of servers that were busy, 0 to 1; zero if unlimited.
    pub utilization: f64,
    /// Requests completed.
    pub completed: u64,
    /// Mean time from arrival to departure in nanoseconds, from the requests' own times.
    pub response_ns_mean: f64,
    /// Mean number of requests in the station, waiting or served, from the integral of their number over time.
    pub population_mean: f64,
    /// How far the station is from Little's law, as a share: the integral of the number of requests over time against the
    /// sum of the requests' own times here. The two are accumulated independently, and the times of requests that are still
    /// here are counted up to now, so anything but rounding means a wrong simulation or driver.
    pub little_error: f64,
}
