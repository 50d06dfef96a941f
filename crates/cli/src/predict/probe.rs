//! Looks at this machine's devices between the runs: whether they are as they were, and as they are described.

use crate::Failure;
use crate::bench::OnEitherClock;
use crate::calibrate::closed_loop::{ClosedLoop, Mix, ProbeKind, ProbePoint, Until};
use crate::calibrate::fit::{self, SystemCosts};
use crate::files::Directory;
use crate::table::{table, wrapped};
use base::units::{format_duration_ns, grouped_decimal};
use devices::Hardware;
use entresol::configuration::{Configuration, DeviceKind};
use real_driver::{Behaviour, Options, RealDriver};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a probe keeps under way: it is short, and looks at all that a database waits for.
const MIX: Mix = Mix { depths: [4, 4, 1, 0], size: 8 << 10, in_sequence: false };
/// How long, in nanoseconds.
const SPAN_NS: u64 = 250_000_000;
const FILE_BYTES: u64 = 64 << 20;
const DIRECTORY: &str = "entresol-predict.probe";
const FILE: &str = "probe.tmp";

/// What the probes of one device saw.
struct Seen {
    device: String,
    points: Vec<ProbePoint>,
    /// What the description shows of the same.
    described: ProbePoint,
}

/// The probes of all devices.
pub struct Probes(Vec<Seen>);

/// A device that is probed; its directory goes with it.
struct ProbedDevice {
    seen: Seen,
    bench: ClosedLoop,
    _directory: Directory,
}

/// Devices that are looked at again and again.
pub struct Prober(Vec<ProbedDevice>);

impl Prober {
    /// Of the devices that this workload's configuration places files on, beside what `described` says of them.
    pub fn new(
        workload: &OnEitherClock,
        configuration: &Configuration,
        described: &Hardware,
    ) -> Result<Prober, Failure> {
        let costs = described.cpu.as_ref().map_or_else(SystemCosts::default, |cpu| {
            let ns = |instructions: u64| instructions as f64 * 1e3 / cpu.mips;
            let steps = &cpu.instructions;
            SystemCosts {
                submission_ns: ns(steps.submission),
                notification_ns: ns(steps.notification),
                operation_ns: ns(steps.input_output),
                wake_up_ns: ns(steps.wake_up),
                interrupt_ns: ns(steps.interrupt),
                gathering: cpu.gathering,
            }
        });
        let mut probed = Vec::new();
        for (name, device) in &configuration.devices {
            let Some(description) = described.devices.get(name) else { continue };
            let place = device.path.as_deref().unwrap_or(workload.data());
            std::fs::create_dir_all(place).map_err(|error| format!("'{}' cannot be made: {error}", place.display()))?;
            let directory = Directory::anew(place, DIRECTORY)?;
            let behaviour =
                Behaviour { mapped: device.kind == DeviceKind::Mapped, described: device.described.clone() };
            let options = Options {
                behaviour: BTreeMap::from([(name.clone(), behaviour)]),
                direct: configuration.driver.direct,
                ..Options::new(name.clone(), directory.path())
            };
            let driver = RealDriver::open(options)?;
            let depth: u32 = MIX.depths.iter().sum();
            let bench = ClosedLoop::new(Box::new(driver), (name, FILE), FILE_BYTES, (MIX.size, depth))?;
            let shown = fit::show(description, costs, &[MIX], 1)?;
            let seen = Seen { device: name.clone(), points: Vec::new(), described: shown[0] };
            probed.push(ProbedDevice { seen, bench, _directory: directory });
        }
        Ok(Prober(probed))
    }

    /// Looks at each device once.
    pub fn look(&mut self) -> Result<(), Failure> {
        for probed in &mut self.0 {
            let point = probed.bench.run(MIX, Until::Time(SPAN_NS))?;
            probed.seen.points.push(point);
        }
        Ok(())
    }

    /// What was seen.
    pub fn finish(self) -> Result<Probes, Failure> {
        let seen = self.0.into_iter().map(|mut probed| {
            probed.bench.remove()?;
            Ok(probed.seen)
        });
        seen.collect::<Result<_, Failure>>().map(Probes)
    }
}

const KINDS: [ProbeKind; 3] = [ProbeKind::Read, ProbeKind::Write, ProbeKind::Durable];

fn mean_us(point: &ProbePoint, kind: ProbeKind) -> f64 {
    point.times[kind as usize].mean_ns / 1e3
}

fn rate(point: &ProbePoint) -> f64 {
    point.operations() as f64 / point.seconds
}

impl Probes {
    /// The probes for people, if there are any.
    pub fn to_text(&self) -> Option<String> {
        let rows = self.0.iter().flat_map(|seen| {
            KINDS.map(|kind| {
                let times: Vec<f64> = seen.points.iter().map(|point| mean_us(point, kind)).collect();
                let [least, most] = [f64::min, f64::max].map(|pick| times.iter().copied().reduce(pick).unwrap_or(0.0));
                let words = |us: f64| format_duration_ns(us * 1e3);
                let middle = super::comparison::median(&times).unwrap_or(0.0);
                let described = mean_us(&seen.described, kind);
                let name = format!("{}: {}", seen.device, ProbeKind::WORDS[kind as usize]);
                let range = format!("{} to {}", words(least), words(most));
                vec![
                    name,
                    words(middle),
                    range,
                    words(described),
                    format!("{:+.1} %", (described / middle - 1.0) * 100.0),
                ]
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return None;
        }
        let header = ["mean time beside each other", "here", "all looks", "described", "error"];
        let rates: Vec<String> = self
            .0
            .iter()
            .map(|seen| {
                let rates: Vec<String> = seen.points.iter().map(|point| grouped_decimal(rate(point), 0)).collect();
                format!(
                    "Operations of '{}' per second, before, between and behind the runs: {}.",
                    seen.device,
                    rates.join(", ")
                )
            })
            .collect();
        let rates = rates.iter().map(|line| wrapped(line)).collect::<Vec<_>>().join("\n");
        Some(format!("{}\n\n{rates}", table(&header, 1, rows)))
    }

    /// The probes for programs.
    pub fn to_json(&self) -> Value {
        let of = |point: &ProbePoint| {
            let [read, write, durable] = KINDS.map(|kind| mean_us(point, kind));
            json!({"operations_per_s": rate(point), "read_us": read, "write_us": write, "durable_write_us": durable})
        };
        let of_device = |seen: &Seen| json!({"device": seen.device, "looks": seen.points.iter().map(of).collect::<Vec<_>>(), "described": of(&seen.described)});
        Value::Array(self.0.iter().map(of_device).collect())
    }
}
