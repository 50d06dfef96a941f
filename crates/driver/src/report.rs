/// What the engine must know of a device to use it well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTraits {
    /// Writes of up to this many aligned bytes are never torn by a power cut.
    pub atomic_write: u32,
    /// Offsets, lengths and buffers of direct I/O are multiples of this many bytes.
    pub alignment: u32,
    /// Whether accesses hold the CPU (NVEM) unless a configuration says otherwise.
    pub synchronous: bool,
    /// Whether what is written survives a power cut at all.
    pub durable: bool,
}

/// The load of one station: a CPU group, a disk arm group, a controller, a transmission path.
#[derive(Clone, Debug, PartialEq)]
pub struct StationReport {
    /// The station's name, such as `cpu` or `disk.controller`.
    pub name: String,
    /// How many servers it has.
    pub servers: u32,
    /// The mean share of servers that were busy, 0 to 1.
    pub utilization: f64,
    /// Requests completed.
    pub completed: u64,
    /// Mean time from arrival to departure, in nanoseconds.
    pub response_ns_mean: f64,
    /// Mean number of requests in the station, waiting or served.
    pub population_mean: f64,
}
