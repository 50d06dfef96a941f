//! Measures what a directory's device can do, with the driver that the engine uses.

mod closed_loop;
mod description;

use crate::{Backend, Options, RealDriver};
use base::time::SECOND_NS;
use closed_loop::ClosedLoop;
use driver::{DeviceTraits, Driver, Fault};
use std::fmt;
use std::path::Path;

/// What is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Reads at random places.
    Read,
    /// Writes over written data at random places.
    Write,
    /// Data-sync writes over written data at random places.
    DurableWrite,
    /// As many writes at random places as the depth says, at once, and then one sync. Only the sync is timed, and the
    /// operations counted are the writes.
    Sync,
    /// Reads one after the other.
    SequentialRead,
    /// Writes one after the other.
    SequentialWrite,
}

impl Probe {
    /// Those measured by size and depth.
    pub const RANDOM: [Probe; 4] = [Probe::Read, Probe::Write, Probe::DurableWrite, Probe::Sync];
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Probe::Read => "read",
            Probe::Write => "write",
            Probe::DurableWrite => "durable write",
            Probe::Sync => "sync",
            Probe::SequentialRead => "sequential read",
            Probe::SequentialWrite => "sequential write",
        })
    }
}

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// How transfers reach the kernel.
    pub backend: Backend,
    /// Whether direct I/O is used where it is allowed.
    pub direct: bool,
    /// How large the file is that is read and written, in bytes; a multiple of the largest size.
    pub file_bytes: u64,
    /// How long everything may take, in seconds; making the file comes on top.
    pub seconds: f64,
    /// Lengths of transfers, in bytes.
    pub sizes: Vec<u32>,
    /// Numbers of operations in flight.
    pub depths: Vec<u32>,
    /// Which probes are made for each size and depth.
    pub probes: Vec<Probe>,
}

impl Default for MeasureOptions {
    fn default() -> MeasureOptions {
        MeasureOptions {
            backend: Backend::Automatic,
            direct: true,
            file_bytes: 1 << 30,
            seconds: 27.0,
            sizes: vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
            depths: vec![1, 8, 32, 128],
            probes: Probe::RANDOM.to_vec(),
        }
    }
}

/// What was measured of one probe at one size and depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What was repeated.
    pub probe: Probe,
    /// The length of a transfer, in bytes.
    pub size: u32,
    /// Operations in flight.
    pub depth: u32,
    /// How many operations were made.
    pub operations: u64,
    /// Mean time of an operation, in nanoseconds.
    pub mean_ns: f64,
    /// The time that half of the operations did not exceed, in nanoseconds.
    pub p50_ns: u64,
    /// The time that 99 % of the operations did not exceed, in nanoseconds.
    pub p99_ns: u64,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// CPU time of this process for an operation, in nanoseconds.
    pub cpu_ns_mean: f64,
}

/// What a device can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The driver's words about itself.
    pub driver: String,
    /// What the file system says of the device.
    pub traits: DeviceTraits,
    /// The size of the file that was read and written, in bytes.
    pub file_bytes: u64,
    /// Every probe, size and depth in the order of measuring.
    pub points: Vec<Point>,
    /// Reading in sequence.
    pub sequential_read: Point,
    /// Writing in sequence.
    pub sequential_write: Point,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct MeasureProgress {
    /// Points measured.
    pub done: usize,
    /// Points to measure in all.
    pub total: usize,
    /// The last point measured.
    pub point: Point,
}

const SEQUENTIAL_SIZE: u32 = 1 << 20;
const SEQUENTIAL_DEPTH: u32 = 8;
const FILE_NAME: &str = "entresol-measure.tmp";

impl Measurement {
    /// The point of this probe, size and depth, if it was measured.
    pub fn point(&self, probe: Probe, size: u32, depth: u32) -> Option<&Point> {
        self.points.iter().find(|point| (point.probe, point.size, point.depth) == (probe, size, depth))
    }
}

/// Measures the device that holds `directory` with a temporary file in it; `progress` is called after each point.
///
/// # Errors
/// The [`Fault`] of the first operation that fails: no room for the file, no right to write.
///
/// # Panics
/// If a size or depth is zero, or the file is smaller than the largest size.
///
/// ```
/// use devices::Hardware;
/// use entresol_real::{MeasureOptions, Probe, measure};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let options = MeasureOptions {
///     file_bytes: 1 << 20,
///     seconds: 0.05,
///     sizes: vec![4096],
///     depths: vec![1],
///     ..MeasureOptions::default()
/// };
/// let measurement = measure(directory, &options, |_| {})?;
/// assert!(measurement.point(Probe::RANDOM[0], 4096, 1).is_some_and(|point| point.operations_per_second > 0.0));
/// // The description is hardware of one device, to be simulated.
/// let described = Hardware::parse(&measurement.description("mine"), "mine.toml").expect("it is a description");
/// assert!(described.devices.contains_key("mine"));
/// # Ok::<(), driver::Fault>(())
/// ```
pub fn measure(
    directory: &Path,
    options: &MeasureOptions,
    mut progress: impl FnMut(MeasureProgress),
) -> Result<Measurement, Fault> {
    let driver = RealDriver::open(Options {
        devices: vec![("measured".to_owned(), directory.to_owned())],
        backend: options.backend,
        direct: options.direct,
        ..Options::default()
    })?;
    let size = options.sizes.iter().copied().max().unwrap_or(0).max(SEQUENTIAL_SIZE);
    let depth = options.depths.iter().copied().max().unwrap_or(0).max(SEQUENTIAL_DEPTH);
    assert!(options.file_bytes >= u64::from(size), "the file holds the largest transfer");
    let mut bench = ClosedLoop::new(driver, FILE_NAME, options.file_bytes, size, depth)?;
    let result = measure_points(&mut bench, options, &mut progress);
    let removed = bench.remove(FILE_NAME);
    let measurement = result?;
    removed.map(|()| measurement)
}

fn measure_points(
    bench: &mut ClosedLoop,
    options: &MeasureOptions,
    progress: &mut impl FnMut(MeasureProgress),
) -> Result<Measurement, Fault> {
    let total = 2 + options.probes.len() * options.sizes.len() * options.depths.len();
    let span_ns = (options.seconds * SECOND_NS as f64 / total as f64) as u64;
    let mut done = 0;
    let mut run = |bench: &mut ClosedLoop, probe, size, depth| {
        let point = bench.run(probe, size, depth, span_ns)?;
        done += 1;
        progress(MeasureProgress { done, total, point });
        Ok(point)
    };
    let sequential_write = run(bench, Probe::SequentialWrite, SEQUENTIAL_SIZE, SEQUENTIAL_DEPTH)?;
    let sequential_read = run(bench, Probe::SequentialRead, SEQUENTIAL_SIZE, SEQUENTIAL_DEPTH)?;
    let mut points = Vec::with_capacity(total - 2);
    for probe in &options.probes {
        for size in &options.sizes {
            for depth in &options.depths {
                points.push(run(bench, *probe, *size, *depth)?);
            }
        }
    }
    let driver = bench.driver();
    let device = driver.device("measured").expect("opened with this device");
    let (traits, driver) = (driver.traits(device), driver.description());
    Ok(Measurement { driver, traits, file_bytes: options.file_bytes, points, sequential_read, sequential_write })
}

#[cfg(test)]
mod tests;
