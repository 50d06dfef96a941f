//! What places cost that nothing was written to before: the stage that the first writes to them pass, and how fast a file gets room. Found,
//! as the rest of a device, by what the same closed loops show on the described one.

use super::closed_loop::{ClosedLoop, Mix, ProbeKind, ProbePoint, Until};
use super::device::{CLUSTER, DeviceMeasured, PAGE};
use super::fit::{SystemCosts, bench};
use crate::Failure;
use devices::{Bandwidth, Device, Law, ReadWrite, Servers, Stage, StageDiscipline};

/// How often the times of the stage are corrected.
const ROUNDS: usize = 3;
/// How many writes the stage may serve at once.
const SERVERS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Room that a file gets sooner than at this rate costs nothing that is seen.
const GROWTH_MAX: f64 = 100e9;
/// Of a cluster's time: less is not told from what a device drifts.
const SEEN: f64 = 0.03;

/// The stage that is looked for, in nanoseconds of a write and of each of its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct FreshGuess {
    write_ns: f64,
    byte_ns: f64,
    servers: u32,
}

impl FreshGuess {
    fn stage(self) -> Option<Stage> {
        let FreshGuess { write_ns, byte_ns, servers } = self;
        let bandwidth = (byte_ns > 0.0).then(|| ReadWrite::both(Bandwidth(1e9 / byte_ns)));
        (write_ns + byte_ns > 0.0).then(|| Stage {
            servers: Servers::count(servers),
            discipline: StageDiscipline::Fifo,
            concurrency: None,
            assignment: Default::default(),
            stripe: 65_536,
            service: ReadWrite { read: Law::NONE, write: Law::Fixed(write_ns.round() as u64) },
            sequential: None,
            bandwidth,
        })
    }

    /// Corrected by what a page and a cluster, one at a time, are off.
    fn correct(&mut self, [page_ns, cluster_ns]: [f64; 2]) {
        let byte_ns = (cluster_ns - page_ns) / f64::from(CLUSTER - PAGE);
        self.byte_ns = (self.byte_ns + byte_ns).max(0.0);
        self.write_ns = (self.write_ns + page_ns - byte_ns * f64::from(PAGE)).max(0.0);
    }
}

/// Describes what was measured of fresh places, and gives what the description shows of each.
pub fn fit(measured: &DeviceMeasured, device: &mut Device, costs: SystemCosts) -> Result<Vec<ProbePoint>, Failure> {
    device.growth = growth(measured);
    device.fresh = stage(measured, device, costs)?;
    let mixes: Vec<Mix> = measured.fresh.iter().map(|point| point.mix).collect();
    show(device, costs, &mixes)
}

/// The stage that makes the device show what was measured, if it takes one.
fn stage(measured: &DeviceMeasured, device: &Device, costs: SystemCosts) -> Result<Option<Stage>, Failure> {
    let [_, page, pages, cluster, clusters] = &measured.fresh[..] else { return Ok(None) };
    let shown =
        |guess: FreshGuess, mixes: [Mix; 2]| show(&Device { fresh: guess.stage(), ..device.clone() }, costs, &mixes);
    let mut guess = FreshGuess { servers: 1, ..FreshGuess::default() };
    for _ in 0..ROUNDS {
        let shown = shown(guess, [page.mix, cluster.mix])?;
        guess.correct([mean_ns(page) - mean_ns(&shown[0]), mean_ns(cluster) - mean_ns(&shown[1])]);
    }
    if guess.write_ns + guess.byte_ns * f64::from(CLUSTER) < SEEN * mean_ns(cluster) {
        return Ok(None);
    }
    let (mut least, mut best) = (f64::INFINITY, guess);
    for servers in SERVERS {
        let tried = FreshGuess { servers, ..guess };
        let shown = shown(tried, [pages.mix, clusters.mix])?;
        let off = |seen: &ProbePoint, shown: &ProbePoint| {
            (shown.per_second(ProbeKind::Write) / seen.per_second(ProbeKind::Write)).ln().powi(2)
        };
        let error = off(pages, &shown[0]) + off(clusters, &shown[1]);
        if error < least {
            (least, best) = (error, tried);
        }
    }
    Ok(best.stage())
}

fn mean_ns(point: &ProbePoint) -> f64 {
    point.times[ProbeKind::Write as usize].mean_ns
}

/// By the median of the times that the file took to get its room.
fn growth(measured: &DeviceMeasured) -> Option<Bandwidth> {
    let mut times = measured.growth_ns.clone();
    times.sort_unstable();
    let ns = *times.get(times.len() / 2)?;
    let rate = measured.extent.file_bytes as f64 * 1e9 / ns.max(1) as f64;
    (rate < GROWTH_MAX).then_some(Bandwidth(rate))
}

/// What closed loops show on fresh places of a described device.
pub fn show(device: &Device, costs: SystemCosts, mixes: &[Mix]) -> Result<Vec<ProbePoint>, Failure> {
    let mut bench: ClosedLoop = bench(device, costs, mixes, 1)?;
    let mut run = |mix: &Mix| {
        bench.make_fresh()?;
        Ok(bench.run(*mix, Until::Time(u64::MAX))?)
    };
    mixes.iter().map(&mut run).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::measured_disk;
    use super::*;
    use devices::Hardware;

    #[test]
    fn a_described_stage_is_found_again() {
        let text = "[device.d.transmission]\nservers = 1\ndiscipline = \"processor-sharing\"\nbandwidth = \"4 GB/s\"\n\
                    [device.d.medium]\nservers = 8\nservice = \"40 us\"\n\
                    [device.d.fresh]\nservers = 3\nbandwidth = \"1400 MB/s\"\n\
                    service = { read = \"0 us\", write = \"70 us\" }\n";
        let described = Hardware::parse(text, "test").unwrap_or_else(|error| panic!("{error}")).devices["d"].clone();
        let costs = SystemCosts { submission_ns: 2_000.0, ..SystemCosts::default() };
        let mut measured = measured_disk();
        measured.fresh = show(&described, costs, &measured.extent.fresh()).expect("it is described");
        measured.growth_ns = vec![32_000_000, 30_000_000, 900_000_000];
        let mut found = Device { fresh: None, growth: None, ..described.clone() };
        fit(&measured, &mut found, costs).expect("it is fitted");
        let rate = found.growth.expect("it takes time").0;
        assert!((rate / (2e9 * 1.048_576) - 1.0).abs() < 0.01, "64 MiB in 32 ms: {rate}");
        let stage = found.fresh.expect("it is found");
        assert_eq!(stage.servers, Servers::count(3), "{stage:?}");
        assert!((stage.bandwidth.expect("it is found").write.0 / 1.4e9 - 1.0).abs() < 0.03, "{stage:?}");
        assert!((stage.service.write.mean_ns() / 70e3 - 1.0).abs() < 0.03, "{stage:?}");

        let plain = Device { fresh: None, ..described };
        measured.fresh = show(&plain, costs, &measured.extent.fresh()).expect("it is described");
        measured.growth_ns = vec![100_000];
        let mut found = plain.clone();
        fit(&measured, &mut found, costs).expect("it is fitted");
        assert_eq!(found, plain, "where fresh places cost nothing none is described");
    }
}
