use super::{Measurement, Point, Probe};
use base::units::format_size;
use std::fmt::Write;

/// The speed that is written down for the CPU; the costs of steps are in proportion to it.
const MIPS: f64 = 3_000.0;

impl Measurement {
    /// A hardware description in which the device `name` behaves as measured: text that `devices::Hardware::parse` accepts.
    ///
    /// The medium is a station of parallel channels. A channel's service time is the median time of a lone transfer of the
    /// smallest size (the mean of so short a time depends on the other programs of the machine), and there are as many channels
    /// as are busy at the greatest depth by Little's law. Transfers share one way to the medium with the bandwidth of
    /// sequential access.
    pub fn description(&self, name: &str) -> String {
        let lone = |probe| self.extreme(probe, false);
        let (read, write) = (lone(Probe::Read), lone(Probe::Write));
        let read_rate = self.sequential_read.bytes_per_second;
        let write_rate = self.sequential_write.bytes_per_second;
        let mut text = format!("# Measured with {} on a file of {}.\n", self.driver, format_size(self.file_bytes));
        text += &self.cpu();
        let _ = writeln!(text, "\n[device.{name}]");
        let (read_rate_mb, write_rate_mb) = (megabytes(read_rate), megabytes(write_rate));
        let _ = writeln!(
            text,
            "transmission = {{ servers = 1, bandwidth = {{ read = \"{read_rate_mb} MB/s\", write = \"{write_rate_mb} MB/s\" }} }}"
        );
        if let (Some(read), Some(write)) = (read, write) {
            let channels = self
                .extreme(Probe::Read, true)
                .map_or(1.0, |deep| deep.operations_per_second * read.p50_ns as f64 / 1e9);
            let service = |point: &Point, rate: f64| micros(point.p50_ns as f64 - f64::from(point.size) / rate * 1e9);
            let _ = writeln!(
                text,
                "medium = {{ servers = {}, service = {{ read = \"{}\", write = \"{}\" }} }}",
                channels.round().max(1.0),
                service(read, read_rate),
                service(write, write_rate),
            );
            let durable = lone(Probe::DurableWrite).map_or(0.0, |durable| durable.p50_ns as f64 - write.p50_ns as f64);
            let sync = lone(Probe::Sync).map_or(0.0, |sync| sync.p50_ns as f64);
            let cache = if self.traits.durable { "volatile" } else { "none" };
            let _ = writeln!(text, "write_cache = \"{cache}\"");
            let _ = writeln!(text, "durable_write = \"{}\"\nsync = \"{}\"", micros(durable), micros(sync));
        }
        let _ = writeln!(text, "alignment = \"{}\"", format_size(u64::from(self.traits.alignment)));
        let _ = writeln!(text, "atomic_write = \"{}\"", format_size(u64::from(self.traits.atomic_write)));
        let _ = writeln!(text, "synchronous = {}\nvolatile = {}", self.traits.synchronous, !self.traits.durable);
        text
    }

    /// The point of the smallest size at the least or the greatest depth.
    fn extreme(&self, probe: Probe, deep: bool) -> Option<&Point> {
        let smallest = self.points.iter().filter(|point| point.probe == probe).map(|point| point.size).min()?;
        let points = self.points.iter().filter(|point| (point.probe, point.size) == (probe, smallest));
        if deep { points.max_by_key(|point| point.depth) } else { points.min_by_key(|point| point.depth) }
    }

    /// One core; the cost of an I/O is measured where the device is kept busy, the others are assumed.
    fn cpu(&self) -> String {
        let busy = self.extreme(Probe::Read, true);
        let input_output = busy.map_or(0.0, |point| point.cpu_ns_mean * MIPS / 1e3).round();
        format!(
            "\n# One core. The cost of an I/O is measured; the other steps are assumptions.\n[cpu]\ncount = 1\nmips = {MIPS}\n\n\
             [cpu.instructions]\nbegin_transaction = 1_500\nobject_reference = 3_000\nend_transaction = 3_000\n\
             input_output = {input_output}\nnvem_access = 300\n"
        )
    }
}

fn micros(ns: f64) -> String {
    format!("{:.1} us", ns.max(0.0) / 1e3)
}

fn megabytes(bytes_per_second: f64) -> u64 {
    (bytes_per_second / 1e6).round().max(1.0) as u64
}
