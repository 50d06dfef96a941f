//! A description that behaves as a measured device does. Its tables are corrected until the same closed loops, on the described
//! device under the virtual clock, show the measured times; so what the loop itself and the way to the device take is not
//! counted twice.

use super::closed_loop::{ClosedLoop, Mix, ProbeKind, ProbePoint, SHARES, Until};
use super::device::{DeviceMeasured, PAGE, TOGETHER};
use super::fresh;
use super::least_squares::nonnegative;
use super::prices::SEEN;
use crate::Failure;
use devices::{
    Bandwidth, Concurrency, Cpu, Device, Discipline, Hardware, Instructions, Law, ReadWrite, Servers, Stage,
    StageDiscipline, Times, Together, WriteCache,
};
use std::collections::BTreeMap;
use virtual_driver::{Media, Options, VirtualDriver};

/// What the engine's thread pays the operating system, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SystemCosts {
    /// A batch of operations.
    pub submission_ns: f64,
    /// More for a batch that finds nothing under way.
    pub notification_ns: f64,
    /// Each operation of it.
    pub operation_ns: f64,
    /// Sleeping and waking up.
    pub wake_up_ns: f64,
    /// Ends of operations while the thread runs, until it looks.
    pub interrupt_ns: f64,
    /// Whether it sleeps until several operations have ended.
    pub gathering: bool,
}

impl SystemCosts {
    /// The prices of [turns](driver::ThreadUse::counts) to the operating system, in nanoseconds.
    pub fn turns(&self) -> [f64; 4] {
        [self.submission_ns, self.notification_ns, self.wake_up_ns, self.interrupt_ns]
    }

    /// The same costs with other prices of these.
    pub fn with_turns(self, [submission_ns, notification_ns, wake_up_ns, interrupt_ns]: [f64; 4]) -> SystemCosts {
        SystemCosts { submission_ns, notification_ns, wake_up_ns, interrupt_ns, ..self }
    }
}

/// Those of a thread's [turns](driver::ThreadUse::counts) that have a price. What shows a described delay ends operations in this process,
/// at other times than its description: it is always at rest and interrupts nothing.
pub fn priced_turns<T: Default>(turns: [T; 4], shows_described: bool) -> [T; 4] {
    match (turns, shows_described) {
        ([batches, _, sleeps, _], true) => [batches, T::default(), sleeps, T::default()],
        (turns, false) => turns,
    }
}

/// A fitted device.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Its description.
    pub device: Device,
    /// The costs of reaching it.
    pub costs: SystemCosts,
    /// What the description shows of every measured mix, in the same order.
    pub shown: Vec<ProbePoint>,
    /// The same of writes to places that were never written.
    pub fresh: Option<ProbePoint>,
}

/// How often the tables are corrected.
const ROUNDS: usize = 4;
/// How many operations of a mix the described device is given.
const OPERATIONS: u64 = 3_000;

/// Fits a description: one in which flushes hold what comes meanwhile if that explains the times of reads and writes beside them better.
pub fn fit(measured: &DeviceMeasured, mut progress: impl FnMut(usize, usize)) -> Result<Fitted, Failure> {
    let (costs, steps) = (system_costs(measured), 2 * (ROUNDS + 1));
    let free = fit_form(measured, costs, false, |step| progress(step, steps))?;
    let held = fit_form(measured, costs, true, |step| progress(ROUNDS + 1 + step, steps))?;
    let [free_error, held_error] = [&free, &held].map(|fitted| error_beside_flushes(measured, &fitted.shown));
    Ok(if held_error < free_error { held } else { free })
}

/// How far reads and writes beside a flush are from what was measured: the sum of the squares of the logarithms of their ratios.
fn error_beside_flushes(measured: &DeviceMeasured, shown: &[ProbePoint]) -> f64 {
    let is_beside = |point: &&ProbePoint| point.mix.size == PAGE && point.mix.depths[2] + point.mix.depths[3] == 1;
    let error = |shown: &ProbePoint| {
        let Some(seen) = measured.point(&shown.mix) else { return 0.0 };
        let kinds = [ProbeKind::Read, ProbeKind::Write].map(|kind| kind as usize);
        let ratios = kinds.into_iter().filter(|kind| shown.mix.depths[*kind] > 0).map(|kind| {
            let [seen, shown] = [seen, shown].map(|point| point.times[kind].mean_ns.max(1.0));
            (shown / seen).ln().powi(2)
        });
        ratios.sum()
    };
    shown.iter().filter(is_beside).map(error).sum()
}

fn fit_form(
    measured: &DeviceMeasured,
    costs: SystemCosts,
    flush_holds: bool,
    mut progress: impl FnMut(usize),
) -> Result<Fitted, Failure> {
    let mut device = first_guess(measured)?;
    tables_mut(&mut device).flush_holds = flush_holds;
    let [plain, durable, syncs] = measured.extent.tables();
    let sequences = measured.extent.sequences();
    for round in 0..ROUNDS {
        progress(round);
        let shown = |mixes: &[Mix]| show(&device, costs, mixes, 1 + round as u64);
        let (plain_shown, durable_shown) = (shown(&plain)?, shown(&durable)?);
        let (syncs_shown, sequences_shown) = (shown(&syncs)?, shown(&sequences)?);
        let tables = tables_mut(&mut device);
        for point in plain_shown {
            correct(measured, tables, &point, ProbeKind::Read);
            correct(measured, tables, &point, ProbeKind::Write);
        }
        for point in durable_shown {
            correct(measured, tables, &point, ProbeKind::Durable);
        }
        for point in syncs_shown {
            correct(measured, tables, &point, ProbeKind::Sync);
        }
        fill_edges(tables);
        for point in show(&device, costs, &measured.extent.together(), 1 + round as u64)? {
            correct_together(measured, tables_mut(&mut device), &point);
        }
        let bandwidth = device.transmission.as_mut().and_then(|stage| stage.bandwidth.as_mut());
        let Some(ReadWrite { read, write }) = bandwidth else { unreachable!("the guess has a bandwidth") };
        for (bandwidth, kind, shown) in
            [(read, ProbeKind::Read, &sequences_shown[0]), (write, ProbeKind::Write, &sequences_shown[1])]
        {
            if let Some(seen) = measured.point(&shown.mix) {
                bandwidth.0 *= (seen.per_second(kind) / shown.per_second(kind)).clamp(0.5, 2.0);
            }
        }
    }
    progress(ROUNDS);
    let mixes: Vec<Mix> = measured.points.iter().map(|point| point.mix).collect();
    let shown = show(&device, costs, &mixes, 99)?;
    device.fresh_write = fresh::law(measured)?;
    device.fresh_together = fresh::together(&device, costs, measured)?;
    let fresh = measured.fresh.map(|seen| fresh::show(&device, costs, &seen.mix)).transpose()?;
    Ok(Fitted { device, costs, shown, fresh })
}

/// The costs that explain the CPU time of all mixes best, from one operation at a time to many.
fn system_costs(measured: &DeviceMeasured) -> SystemCosts {
    let seen: Vec<&ProbePoint> =
        measured.points.iter().filter(|point| point.cpu_ns > 0 && point.mix.size == PAGE).collect();
    let counts = |point: &ProbePoint| {
        let [batches, notifications, sleeps, interrupts] = priced_turns(point.thread, measured.shows_described);
        [point.operations(), batches, notifications, sleeps, interrupts].map(|count| count as f64)
    };
    let is_seen = [0, 1, 2, 3, 4].map(|of| seen.iter().any(|point| counts(point)[of] >= SEEN * counts(point)[0]));
    let row = |point: &&ProbePoint| {
        let of = |(count, is_seen)| if is_seen { count / point.cpu_ns as f64 } else { 0.0 };
        counts(point).into_iter().zip(is_seen).map(of).collect()
    };
    let rows: Vec<Vec<f64>> = seen.iter().map(row).collect();
    let right = vec![1.0; rows.len()];
    match nonnegative(&rows, &right)[..] {
        [operation_ns, submission_ns, notification_ns, wake_up_ns, interrupt_ns] => SystemCosts {
            submission_ns,
            notification_ns,
            operation_ns,
            wake_up_ns,
            interrupt_ns,
            gathering: !measured.shows_described,
        },
        _ => SystemCosts::default(),
    }
}

/// The measured times as they are.
fn first_guess(measured: &DeviceMeasured) -> Result<Device, Failure> {
    let axis = &measured.extent.axis;
    let table = || Times(vec![vec![1_000.0; axis.len()]; axis.len()]);
    let mut tables = Concurrency {
        reads: axis.clone(),
        writes: axis.clone(),
        read: table(),
        write: table(),
        durable_write: Some(table()),
        sync: Some(table()),
        durable_together: Some(Together { count: TOGETHER.to_vec(), times: vec![1.0; TOGETHER.len()] }),
        flush_holds: false,
        read_law: None,
        write_law: None,
        durable_write_law: None,
        sync_law: None,
    };
    for point in &measured.points {
        let Some((row, column)) = place(&tables, &point.mix) else { continue };
        for kind in ProbeKind::ALL {
            if point.mix.depths[kind as usize] > 0 && is_tabled(&point.mix, kind) {
                let plain_ns = if kind == ProbeKind::Durable { tables.write.0[row][column] } else { 0.0 };
                let ns = (point.times[kind as usize].mean_ns - plain_ns).max(1_000.0);
                times_mut(&mut tables, kind).0[row][column] = ns;
            }
        }
    }
    fill_edges(&mut tables);
    let [read_rate, write_rate] = measured.extent.sequences().map(|mix| {
        let kind = if mix.depths[0] > 0 { ProbeKind::Read } else { ProbeKind::Write };
        measured.point(&mix).map_or(1e9, |point| point.per_second(kind) * f64::from(mix.size))
    });
    let law = |kind| law(measured, kind);
    let (read, write) = (law(ProbeKind::Read)?, law(ProbeKind::Write)?);
    let (atomic_write, alignment, synchronous, durable) = measured.traits;
    let stage = Stage {
        servers: Servers::Unlimited,
        discipline: StageDiscipline::Fifo,
        concurrency: Some(tables),
        assignment: Default::default(),
        stripe: 65_536,
        service: ReadWrite { read, write },
        sequential: None,
        bandwidth: None,
    };
    let transmission = Stage {
        servers: Servers::count(1),
        discipline: StageDiscipline::ProcessorSharing,
        concurrency: None,
        service: ReadWrite::both(Law::NONE),
        bandwidth: Some(ReadWrite { read: Bandwidth(read_rate), write: Bandwidth(write_rate) }),
        ..stage.clone()
    };
    Ok(Device {
        transmission: Some(transmission),
        medium: Some(stage),
        sync: law(ProbeKind::Sync)?,
        durable_write: Some(law(ProbeKind::Durable)?),
        write_cache: if durable { WriteCache::Volatile } else { WriteCache::None },
        alignment,
        atomic_write,
        synchronous,
        volatile: !durable,
        ..Device::no_delay()
    })
}

/// Whether this kind's times in this mix belong into its table.
fn is_tabled(mix: &Mix, kind: ProbeKind) -> bool {
    let [_, _, durable, syncs] = mix.depths;
    match kind {
        ProbeKind::Read | ProbeKind::Write => durable == 0 && syncs == 0,
        ProbeKind::Durable => durable == 1 && syncs == 0,
        ProbeKind::Sync => syncs == 1 && durable == 0,
    }
}

/// The place of a mix in the tables, if it has one.
fn place(tables: &Concurrency, mix: &Mix) -> Option<(usize, usize)> {
    let [reads, writes, durable, _] = mix.depths;
    let at = |axis: &[u32], number| axis.iter().position(|at| *at == number);
    let in_tables = mix.size == PAGE && !mix.in_sequence && durable <= 1;
    in_tables.then_some(())?;
    Some((at(&tables.reads, reads)?, at(&tables.writes, writes + durable)?))
}

fn times_mut(tables: &mut Concurrency, kind: ProbeKind) -> &mut Times {
    let table = match kind {
        ProbeKind::Read => Some(&mut tables.read),
        ProbeKind::Write => Some(&mut tables.write),
        ProbeKind::Durable => tables.durable_write.as_mut(),
        ProbeKind::Sync => tables.sync.as_mut(),
    };
    table.expect("a fitted device has all tables")
}

fn tables_mut(device: &mut Device) -> &mut Concurrency {
    let tables = device.medium.as_mut().and_then(|stage| stage.concurrency.as_mut());
    tables.expect("a fitted device has tables")
}

/// Where none of a kind is under way its table has no measurement; what stands beside is taken.
fn fill_edges(tables: &mut Concurrency) {
    let first = tables.read.0[1].clone();
    tables.read.0[0] = first;
    for kind in [ProbeKind::Write, ProbeKind::Durable] {
        times_mut(tables, kind).0.iter_mut().for_each(|row| row[0] = row[1]);
    }
}

/// Brings the time in a kind's table nearer to what was measured where the description showed something else.
fn correct(measured: &DeviceMeasured, tables: &mut Concurrency, shown: &ProbePoint, kind: ProbeKind) {
    let (Some((row, column)), Some(seen)) = (place(tables, &shown.mix), measured.point(&shown.mix)) else { return };
    if shown.mix.depths[kind as usize] == 0 {
        return;
    }
    let off_ns = seen.times[kind as usize].mean_ns - shown.times[kind as usize].mean_ns;
    let time_ns = &mut times_mut(tables, kind).0[row][column];
    *time_ns = (*time_ns + off_ns).max(*time_ns / 4.0).max(500.0);
}

/// The same for several durable writes at once.
fn correct_together(measured: &DeviceMeasured, tables: &mut Concurrency, shown: &ProbePoint) {
    let (Some(seen), Some(Together { count, times })) = (measured.point(&shown.mix), &mut tables.durable_together)
    else {
        return;
    };
    let durable = ProbeKind::Durable as usize;
    let Some(at) = count.iter().position(|count| *count == shown.mix.depths[durable]) else { return };
    let [seen_ns, shown_ns] = [seen, shown].map(|point| point.times[durable].mean_ns);
    times[at] = (times[at] * (seen_ns / shown_ns).clamp(0.5, 2.0)).max(1.0);
    // More of them are never quicker.
    for index in 1..times.len() {
        times[index] = times[index].max(times[index - 1]);
    }
}

/// The law of a kind's times about their means: of each quantile the median over what was measured.
fn law(measured: &DeviceMeasured, kind: ProbeKind) -> Result<Law, Failure> {
    let points = measured.points.iter().filter(|point| {
        is_tabled(&point.mix, kind) && point.mix.size == PAGE && point.times[kind as usize].count >= 50
    });
    let shapes: Vec<[f64; SHARES.len()]> = points
        .map(|point| {
            let times = &point.times[kind as usize];
            times.quantiles_ns.map(|ns| ns as f64 / times.mean_ns)
        })
        .collect();
    if shapes.is_empty() {
        return Ok(Law::Fixed(100_000));
    }
    let mut last = 0;
    let quantiles = SHARES.iter().enumerate().map(|(index, share)| {
        let mut values: Vec<f64> = shapes.iter().map(|shape| shape[index]).collect();
        values.sort_by(f64::total_cmp);
        // About a mean of 100 us; the tables have the means.
        last = last.max((values[values.len() / 2] * 1e5) as u64);
        (*share, last)
    });
    Ok(Law::quantiles(quantiles.collect())?)
}

/// A CPU that has these costs only. An instruction is a nanosecond.
pub fn cpu(costs: SystemCosts) -> Cpu {
    let instructions = Instructions {
        submission: costs.submission_ns as u64,
        notification: costs.notification_ns as u64,
        wake_up: costs.wake_up_ns as u64,
        interrupt: costs.interrupt_ns as u64,
        ..Instructions::default()
    };
    Cpu {
        count: 1,
        mips: 1_000.0,
        discipline: Discipline::RunUntilWait,
        footprint: Vec::new(),
        wake_latency: Law::NONE,
        cold_caches: Vec::new(),
        gathering: costs.gathering,
        instructions,
    }
}

/// What closed loops show on a described device.
pub fn show(device: &Device, costs: SystemCosts, mixes: &[Mix], seed: u64) -> Result<Vec<ProbePoint>, Failure> {
    let size = mixes.iter().map(|mix| mix.size).max().unwrap_or(PAGE);
    let depth = mixes.iter().map(|mix| mix.depths.iter().sum()).max().unwrap_or(1);
    let mut bench = described(device, costs, (size, depth), seed)?;
    mixes.iter().map(|mix| Ok(bench.run(*mix, until(mix))?)).collect()
}

/// When a mix on a described device ends.
pub fn until(mix: &Mix) -> Until {
    let depth: u32 = mix.depths.iter().sum();
    Until::Operations(OPERATIONS.max(50 * u64::from(depth)))
}

/// A closed loop of this size and depth on a described device.
pub fn described(device: &Device, costs: SystemCosts, sizes: (u32, u32), seed: u64) -> Result<ClosedLoop, Failure> {
    let cpu = cpu(costs);
    let devices = BTreeMap::from([("d".to_owned(), device.clone())]);
    let hardware = Hardware { name: "fitted".to_owned(), cpu: Some(cpu), devices, networks: BTreeMap::new() };
    let options = Options { seed, discard: vec!["f".to_owned()], ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, Media::new());
    let mut bench = ClosedLoop::new(Box::new(driver), ("d", "f"), 64 << 20, sizes)?;
    bench.charge(costs.operation_ns as u64);
    Ok(bench)
}

#[cfg(test)]
pub mod tests {
    use super::super::device::DeviceExtent;
    use super::*;

    /// What would be measured of a described device.
    fn measured_of(device: &Device, costs: SystemCosts) -> DeviceMeasured {
        let extent = DeviceExtent { axis: vec![0, 1, 4, 16], sizes: vec![4 << 10], span_ns: 0, file_bytes: 64 << 20 };
        let mixes = extent.mixes();
        let mut points = show(device, costs, &mixes, 7).expect("it is described");
        for point in &mut points {
            let operations_ns = point.operations() as f64 * costs.operation_ns;
            let turns_ns: f64 = point.thread.iter().zip(costs.turns()).map(|(count, ns)| *count as f64 * ns).sum();
            point.cpu_ns = (operations_ns + turns_ns) as u64;
        }
        DeviceMeasured {
            extent,
            driver: "described".to_owned(),
            traits: (4096, 512, false, true),
            points,
            references: Vec::new(),
            fresh: None,
            fresh_together: None,
            shows_described: false,
        }
    }

    /// What would be measured of a disk.
    pub fn measured_disk() -> DeviceMeasured {
        measured_disk_whose_flushes_hold(false)
    }

    fn measured_disk_whose_flushes_hold(flush_holds: bool) -> DeviceMeasured {
        let text = "[device.d]\nsync = \"70 us\"\ndurable_write = \"50 us\"\nwrite_cache = \"volatile\"\n\
                    [device.d.transmission]\nservers = 1\ndiscipline = \"processor-sharing\"\nbandwidth = \"2 GB/s\"\n\
                    [device.d.medium]\nservice = \"quantiles 0% 50 us, 50% 95 us, 99% 180 us, 100% 400 us\"\n\
                    [device.d.medium.concurrency]\nreads = [0, 1, 4, 16]\nwrites = [0, 1, 4, 16]\n\
                    read = [[\"50 us\", \"60 us\", \"90 us\", \"200 us\"], [\"50 us\", \"60 us\", \"90 us\", \"200 us\"], \
                    [\"60 us\", \"90 us\", \"140 us\", \"300 us\"], [\"150 us\", \"200 us\", \"260 us\", \"500 us\"]]\n\
                    write = [[\"40 us\", \"40 us\", \"80 us\", \"250 us\"], [\"45 us\", \"45 us\", \"90 us\", \"260 us\"], \
                    [\"80 us\", \"80 us\", \"120 us\", \"300 us\"], [\"180 us\", \"180 us\", \"260 us\", \"600 us\"]]\n";
        let text = format!("{text}flush_holds = {flush_holds}\n");
        let described = Hardware::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
        let costs = SystemCosts {
            submission_ns: 2_000.0,
            notification_ns: 4_000.0,
            operation_ns: 1_000.0,
            wake_up_ns: 3_000.0,
            interrupt_ns: 1_500.0,
            gathering: true,
        };
        measured_of(&described.devices["d"], costs)
    }

    #[test]
    fn a_described_device_is_found_again() {
        let measured = measured_disk();
        let fitted = fit(&measured, |_, _| ()).expect("it is fitted");
        let SystemCosts { submission_ns, notification_ns, operation_ns, wake_up_ns, interrupt_ns, .. } = fitted.costs;
        let found = [submission_ns, notification_ns, operation_ns, wake_up_ns, interrupt_ns];
        for (found, ns) in found.into_iter().zip([2_000.0, 4_000.0, 1_000.0, 3_000.0, 1_500.0]) {
            assert!((found / ns - 1.0).abs() < 0.02, "{:?}", fitted.costs);
        }
        let tables = measured.extent.tables().concat();
        let found = measured.points.iter().zip(&fitted.shown).filter(|(point, _)| tables.contains(&point.mix));
        let mut errors = Vec::new();
        for (measured, shown) in found {
            for kind in ProbeKind::ALL.into_iter().filter(|kind| is_tabled(&measured.mix, *kind)) {
                if measured.mix.depths[kind as usize] > 0 {
                    errors.push((shown.per_second(kind) / measured.per_second(kind) - 1.0).abs());
                }
            }
        }
        errors.sort_by(f64::total_cmp);
        assert!(errors[errors.len() / 2] < 0.02 && errors[errors.len() * 9 / 10] < 0.06, "{errors:?}");
    }
    #[test]
    fn flushes_that_hold_are_known_by_the_reads_beside_them() {
        for flush_holds in [false, true] {
            let fitted = fit(&measured_disk_whose_flushes_hold(flush_holds), |_, _| ()).expect("it is fitted");
            let tables = fitted.device.medium.and_then(|medium| medium.concurrency).expect("it has tables");
            assert_eq!(tables.flush_holds, flush_holds);
        }
    }
}
