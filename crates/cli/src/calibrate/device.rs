//! What is measured of a device.

use super::closed_loop::{ClosedLoop, Mix, ProbeKind, ProbePoint, Until};
use driver::{DeviceTraits, Driver, Fault};
use real_driver::{Behaviour, Options, RealDriver};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The length of the transfers that the tables are made of: the default page's.
pub const PAGE: u32 = 8 << 10;
const LARGE: u32 = 1 << 20;
/// How many durable writes are under way at once.
pub const TOGETHER: [u32; 4] = [1, 2, 4, 8];
const FILE_NAME: &str = "entresol-calibrate.tmp";

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceExtent {
    /// Numbers of reads and writes under way, ascending from 0.
    pub axis: Vec<u32>,
    /// Lengths of transfers other than a page.
    pub sizes: Vec<u32>,
    /// How long a point is measured, in nanoseconds.
    pub span_ns: u64,
    /// How long the file is, in bytes.
    pub file_bytes: u64,
}

impl DeviceExtent {
    /// Everything, in some five minutes.
    pub fn full(file_bytes: u64) -> DeviceExtent {
        let sizes = vec![4 << 10, 32 << 10, 128 << 10, LARGE];
        DeviceExtent { axis: vec![0, 1, 4, 16, 64], sizes, span_ns: 2_500_000_000, file_bytes }
    }

    /// Less, in less than a minute.
    pub fn quick(file_bytes: u64) -> DeviceExtent {
        DeviceExtent { axis: vec![0, 1, 8, 48], sizes: vec![4 << 10, LARGE], span_ns: 220_000_000, file_bytes }
    }

    /// Reads and writes beside each other, then a durable write and then a sync beside these.
    pub fn tables(&self) -> [Vec<Mix>; 3] {
        let mix = |depths| Mix { depths, size: PAGE, in_sequence: false };
        let pairs = || self.axis.iter().flat_map(|reads| self.axis.iter().map(move |writes| (*reads, *writes)));
        let plain = pairs().filter(|pair| *pair != (0, 0)).map(|(reads, writes)| mix([reads, writes, 0, 0]));
        // The durable write is one of the writes.
        let durable = pairs().filter(|(_, writes)| *writes > 0).map(|(reads, writes)| mix([reads, writes - 1, 1, 0]));
        let syncs = pairs().map(|(reads, writes)| mix([reads, writes, 0, 1]));
        [plain.collect(), durable.collect(), syncs.collect()]
    }

    /// Several durable writes at once.
    pub fn together(&self) -> Vec<Mix> {
        let mix = |count: &u32| Mix { depths: [0, 0, *count, 0], size: PAGE, in_sequence: false };
        TOGETHER[1..].iter().map(mix).collect()
    }

    /// What shows whether the fit holds elsewhere: other lengths, durable writes beside others, sequences.
    pub fn checks(&self) -> Vec<Mix> {
        let mut checks = Vec::new();
        for size in &self.sizes {
            for depth in [1, 16] {
                checks.push(Mix { depths: [depth, 0, 0, 0], size: *size, in_sequence: false });
                checks.push(Mix { depths: [0, depth, 0, 0], size: *size, in_sequence: false });
            }
        }
        checks.push(Mix { depths: [0, 0, 1, 0], size: PAGE, in_sequence: true });
        checks.push(Mix { depths: [24, 24, 2, 0], size: PAGE, in_sequence: false });
        checks
    }

    /// The transfers that show the bandwidth: reads, then writes.
    pub fn sequences(&self) -> [Mix; 2] {
        [[8, 0, 0, 0], [0, 8, 0, 0]].map(|depths| Mix { depths, size: LARGE, in_sequence: true })
    }

    /// All of these, in the order in which they are measured.
    pub fn mixes(&self) -> Vec<Mix> {
        let tables = self.tables().into_iter().flatten();
        tables.chain(self.together()).chain(self.checks()).chain(self.sequences()).collect()
    }

    /// The mix that is measured again and again, to see the device drift.
    pub fn reference(&self) -> Mix {
        Mix { depths: [8, 8, 0, 0], size: PAGE, in_sequence: false }
    }

    /// How many operations are under way at most.
    fn depth_max(&self) -> u32 {
        self.mixes().iter().map(|mix| mix.depths.iter().sum()).max().unwrap_or(1)
    }
}

/// What was measured of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMeasured {
    /// What was to be measured.
    pub extent: DeviceExtent,
    /// The driver's words about itself.
    pub driver: String,
    /// Writes of up to this many bytes are never torn; alignment in bytes; whether accesses are synchronous, and durable.
    pub traits: (u32, u32, bool, bool),
    /// In the order of [`DeviceExtent::tables`], [`DeviceExtent::together`], [`DeviceExtent::checks`], [`DeviceExtent::sequences`].
    pub points: Vec<ProbePoint>,
    /// The reference, from the beginning to the end.
    pub references: Vec<ProbePoint>,
    /// Durable writes, one after the other, to places that were never written.
    pub fresh: Option<ProbePoint>,
    /// As many plain writes to such places at once as sorts make, and then to the same places.
    #[serde(default)]
    pub fresh_together: Option<[ProbePoint; 2]>,
    /// Whether it shows the delays of a description.
    pub shows_described: bool,
}

impl DeviceMeasured {
    /// The point of this mix.
    pub fn point(&self, mix: &Mix) -> Option<&ProbePoint> {
        self.points.iter().find(|point| point.mix == *mix)
    }

    /// How much the reference's throughput spread: its greatest deviation from its mean, as a share.
    pub fn drift(&self) -> f64 {
        let rates: Vec<f64> = self.references.iter().map(|point| point.operations() as f64 / point.seconds).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        rates.iter().fold(0.0, |most, rate| most.max((rate / mean - 1.0).abs()))
    }
}

/// Writes to fresh places as temporary space has them: of its clusters, some at once, in sequence.
pub const FRESH_TOGETHER: Mix = Mix { depths: [0, 8, 0, 0], size: 256 << 10, in_sequence: true };
/// How many of them at most.
const FRESH_MAX: u64 = 2_000;

/// How many references there are among the points.
const REFERENCES: usize = 5;

/// Measures the device that holds `directory` with a temporary file in it. `known` is what an interrupted measurement of the same
/// extent has: it is taken over. `described` is whose delays it shows. `keep` hears of everything so far behind each point, and how many points there are; an error of
/// its ends the measurement.
pub fn measure(
    (directory, described): (&Path, Option<&devices::Device>),
    extent: &DeviceExtent,
    known: Option<DeviceMeasured>,
    mut keep: impl FnMut(&DeviceMeasured, usize) -> Result<(), Fault>,
) -> Result<DeviceMeasured, Fault> {
    let behaviour = Behaviour { mapped: false, described: described.cloned() };
    let options = Options {
        behaviour: BTreeMap::from([("measured".to_owned(), behaviour)]),
        ..Options::new("measured", directory)
    };
    let driver = RealDriver::open(options)?;
    let device = driver.device("measured").expect("opened with this device");
    let DeviceTraits { atomic_write, alignment, synchronous, durable, .. } = driver.traits(device);
    let begun = DeviceMeasured {
        extent: extent.clone(),
        driver: driver.description(),
        traits: (atomic_write, alignment, synchronous, durable),
        points: Vec::new(),
        references: Vec::new(),
        fresh: None,
        fresh_together: None,
        shows_described: described.is_some(),
    };
    let mut measured = known.filter(|known| known.extent == *extent).unwrap_or(begun);
    let sizes = (LARGE, extent.depth_max());
    let mut bench = ClosedLoop::new(Box::new(driver), ("measured", FILE_NAME), extent.file_bytes, sizes)?;
    let result = measure_points(&mut bench, &mut measured, &mut keep);
    let removed = bench.remove();
    result?;
    removed.map(|()| measured)
}

fn measure_points(
    bench: &mut ClosedLoop,
    measured: &mut DeviceMeasured,
    keep: &mut impl FnMut(&DeviceMeasured, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let extent = measured.extent.clone();
    let mixes = extent.mixes();
    let span = Until::Time(extent.span_ns);
    let all = mixes.len() + REFERENCES + 2;
    // The first operations on a new file are not like the others.
    bench.run(extent.reference(), span)?;
    for number in measured.points.len()..mixes.len() {
        if number >= measured.references.len() * mixes.len() / (REFERENCES - 1) {
            let reference = bench.run(extent.reference(), span)?;
            measured.references.push(reference);
        }
        let point = bench.run(mixes[number], span)?;
        measured.points.push(point);
        keep(measured, all)?;
    }
    let reference = bench.run(extent.reference(), span)?;
    measured.references.push(reference);
    keep(measured, all)?;
    bench.make_fresh()?;
    let one = Mix { depths: [0, 0, 1, 0], size: PAGE, in_sequence: true };
    debug_assert_eq!(ProbeKind::ALL[2], ProbeKind::Durable);
    measured.fresh = Some(bench.run(one, span)?);
    bench.make_fresh()?;
    // No place is written twice.
    let places = extent.file_bytes / u64::from(FRESH_TOGETHER.size) - u64::from(FRESH_TOGETHER.depths[1]);
    let count = Until::Operations(places.min(FRESH_MAX));
    let fresh = bench.run(FRESH_TOGETHER, count)?;
    bench.rewind();
    measured.fresh_together = Some([fresh, bench.run(FRESH_TOGETHER, count)?]);
    keep(measured, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_measurement_goes_on_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory for this test");
        let extent =
            DeviceExtent { axis: vec![0, 1, 3], sizes: vec![4 << 10], span_ns: 2_000_000, file_bytes: 64 << 20 };
        let mut kept = Vec::new();
        let keep = |so_far: &DeviceMeasured, _: usize| {
            kept.push(so_far.clone());
            Ok(())
        };
        let whole = measure((directory.path(), None), &extent, None, keep).expect("it is writable");
        let tears = whole.driver.contains("writes are whole by 512 B");
        assert!(tears || !whole.traits.3, "it says what a power cut leaves of a write: {}", whole.driver);
        let mixes = extent.tables().concat().len() + extent.together().len() + extent.checks().len() + 2;
        assert_eq!(whole.points.len(), mixes);
        assert!(whole.points.iter().all(|point| point.operations() > 0) && whole.fresh.is_some());
        assert!(whole.references.len() >= REFERENCES - 1);
        let half = kept[mixes / 2].clone();
        let known = half.points.len();
        let mut more = 0;
        let keep = |_: &DeviceMeasured, _: usize| {
            more += 1;
            Ok(())
        };
        let rest = measure((directory.path(), None), &extent, Some(half.clone()), keep).expect("it is writable");
        assert_eq!(rest.points[..known], half.points, "what is known is not measured again");
        assert_eq!((rest.points.len(), more), (mixes, mixes - known + 2));
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}
