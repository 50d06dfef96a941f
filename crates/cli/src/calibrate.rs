//! `entresol calibrate`: describes this machine by measuring it, and says how good the description is.

mod budget;
pub mod closed_loop;
mod cpu;
mod description;
mod device;
pub mod fit;
mod fresh;
mod idle;
mod in_process;
mod least_squares;
pub mod loopback;
mod loopback_fit;
mod nodes;
mod one_thread;
mod page;
mod prices;
mod quality;
mod residuals;
mod seldom;
mod values;

use crate::experiment::report_head;
use crate::files;
use crate::progress::Progress;
use crate::{Failure, print};
use base::units::parse_size;
use budget::Budget;
use clap::Args;
use cpu::{EngineExtent, EngineRun};
use device::{DeviceExtent, DeviceMeasured};
use devices::{ColdCaches, Cpu, Device, Hardware};
use driver::{Fault, FaultKind};
use entresol::configuration::Configuration;
use loopback::{LoopbackExtent, LoopbackMeasured};
use loopback_fit::FittedLoopback;
use papers::Extent;
use quality::Calibration;
use real_driver::DirectoryLock;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Describes this machine by measuring it, for predictions
///
/// The device of DIR is measured with a temporary file: reads and writes beside each other, durable
/// writes and syncs beside these, sizes, bandwidth, drift. The prices of the engine's steps are found
/// by running the engine, and what messages over the loopback cost by two threads. The description is
/// then run under the virtual clock and held against all of that: each law and each price is shown with
/// its error. 'hardware' and 'described' in a configuration may name the result.
///
/// An interrupted calibration with --output goes on where it was, if it is started again.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol calibrate --output here.toml\n  \
                  entresol calibrate /mnt/nvme --quick --output here.toml --report report\n  \
                  entresol bench debit-credit --hardware here.toml"
)]
pub struct Arguments {
    /// A directory on the device
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Writes the description to this file; else it is printed below the figures
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the device in the description
    #[arg(long, default_value = "disk", value_parser = device_name)]
    name: String,
    /// The device shows the delays of this description
    #[arg(long, value_name = "NAME")]
    described: Option<String>,
    /// Less is measured, in less than a minute where nothing else runs
    #[arg(long)]
    quick: bool,
    /// Size of the temporary file: that of the data
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", value_parser = file_size)]
    size: u64,
    /// Writes a report with measured and fitted curves into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Prints the figures and the description as JSON
    #[arg(long)]
    json: bool,
}

fn device_name(text: &str) -> Result<String, String> {
    if entresol::configuration::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("a name is 1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first".to_owned())
}

/// A whole number of the largest transfers that are measured.
fn file_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < 64 << 20 || !bytes.is_multiple_of(1 << 20) {
        return Err("the file's size is a multiple of 1 MiB, at least 64 MiB".to_owned());
    }
    Ok(bytes)
}

/// A configuration's name of the device that a database is on.
const ENGINE_DEVICE: &str = "disk";

/// How much longer nodes run than each exchange of messages is measured.
const NODES_LONGER: f64 = 3.0;

/// What is kept of a calibration, to go on with it after an interruption.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    directory: PathBuf,
    #[serde(default)]
    described: Option<String>,
    device: Option<DeviceMeasured>,
    engine_extent: Option<EngineExtent>,
    runs: Vec<EngineRun>,
    #[serde(default)]
    seldom: Vec<EngineRun>,
    #[serde(default)]
    bursts: Option<idle::BurstsSeen>,
    #[serde(default)]
    loopback: Option<LoopbackMeasured>,
}

/// Where a calibration is kept until it is complete.
struct Keeping<'a> {
    file: Option<PathBuf>,
    kept: Kept,
    progress: &'a Progress,
}

impl Keeping<'_> {
    /// What an earlier calibration of this directory has left, or nothing.
    fn begin<'a>(arguments: &Arguments, progress: &'a Progress) -> Keeping<'a> {
        let file = arguments.output.as_ref().map(|output| output.with_extension("partial.json"));
        let fresh = Kept {
            version: description::VERSION,
            directory: arguments.directory.clone(),
            described: arguments.described.clone(),
            ..Kept::default()
        };
        let found = file.as_ref().filter(|file| file.is_file()).and_then(|file| files::read(file).ok());
        let known = found.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let fits = |known: &Kept| {
            (known.version, &known.directory, &known.described) == (fresh.version, &fresh.directory, &fresh.described)
        };
        let kept = known.filter(fits).unwrap_or(fresh);
        Keeping { file, kept, progress }
    }

    /// What is not kept costs time only, so an error here stops nothing; it is said.
    fn keep(&self) {
        let Some(file) = &self.file else { return };
        let text = serde_json::to_vec(&self.kept).expect("figures are JSON");
        if let Err(error) = files::replace(file, &text) {
            self.progress.warn(&[format!("an interruption would lose what was measured: {error}")]);
        }
    }
}

/// Measures, fits, runs the fit, writes it down.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let place = arguments.directory.display();
    if !arguments.directory.is_dir() {
        return Err(format!("'{place}' is not a directory; name a directory on the device to be measured").into());
    }
    if let Some(output) = &arguments.output {
        check_output(output)?;
    }
    real_driver::note_end_requests();
    let progress = Progress::start("calibrate");
    // The stores that run the engine there are of no use to other machines, but what is calibrated is to be used.
    progress.warn(&Vec::from_iter(DirectoryLock::doubt(&arguments.directory)));
    let mut keeping = Keeping::begin(arguments, &progress);
    let calibration = calibrated(arguments, &mut keeping)?;
    let unfinished = keeping.file.take();
    progress.finish();
    let description = calibration.description(&arguments.name);
    if let Some(output) = &arguments.output {
        files::replace(output, description.as_bytes())?;
    }
    if let Some(file) = &unfinished {
        files::remove_if_there(file)?;
    }
    if let Some(directory) = &arguments.report {
        let extent = if arguments.quick { Extent::Quick } else { Extent::Full };
        let page = page::html(&calibration, &report_head(extent));
        let file = crate::experiment::write_report(directory, &page, &calibration.to_json(&description))?;
        eprintln!("report: {}", file.display());
    }
    if arguments.json {
        return print(&format!("{:#}", calibration.to_json(&description)));
    }
    let rest = match &arguments.output {
        Some(output) => format!("The description is in '{}'.", output.display()),
        None => description,
    };
    print(&format!("{}\n\n{}", calibration.to_text(), rest.trim_end()))
}

fn calibrated(arguments: &Arguments, keeping: &mut Keeping) -> Result<Calibration, Failure> {
    let place = arguments.directory.display();
    let progress = keeping.progress;
    let device_extent =
        if arguments.quick { DeviceExtent::quick(arguments.size) } else { DeviceExtent::full(arguments.size) };
    let (budget, branches) = if arguments.quick { (Budget::QUICK, 10) } else { (Budget::FULL, 60) };
    let begun_ns = real_driver::wall_ns();
    let described = shown(arguments.described.as_deref())?;
    progress.phase("writing the file", 0);
    let known = keeping.kept.device.take();
    let measured = device::measure((&arguments.directory, described.as_ref()), &device_extent, known, |so_far, all| {
        progress.step("measuring the device", so_far.points.len() as u64, all as u64);
        keeping.kept.device = Some(so_far.clone());
        keeping.keep();
        go_on()
    })
    .map_err(|fault| refused(&arguments.directory, &fault))?;
    let measured_ns = real_driver::wall_ns();
    let fitted = fit::fit(&measured, |round, rounds| progress.step("fitting", round as u64, rounds as u64))?;
    let fitted_ns = real_driver::wall_ns();

    // What was interrupted goes on as it was begun.
    let kept_extent = keeping.kept.engine_extent.filter(|kept| kept.branches == branches);
    let engine_extent = kept_extent.unwrap_or_else(|| EngineExtent {
        span_ns: budget.span_ns(fitted_ns - begun_ns, fitted_ns - measured_ns),
        branches,
    });
    if kept_extent.is_none() {
        (keeping.kept.engine_extent, keeping.kept.runs) = (Some(engine_extent), Vec::new());
        keeping.kept.seldom.clear();
    }
    let directory = files::Directory::anew(&arguments.directory, "entresol-calibrate.engine")?;
    progress.phase("running the engine", 0);
    let known = keeping.kept.runs.clone();
    let runs = cpu::run_engine((directory.path(), described.as_ref()), engine_extent, known, |run| {
        keeping.kept.runs.retain(|known| known.name != run.name);
        keeping.kept.runs.push(run.clone());
        progress.step("running the engine", keeping.kept.runs.len() as u64, cpu::RUNS);
        keeping.keep();
        go_on()
    });
    let known = keeping.kept.seldom.clone();
    let seldom = runs.and_then(|runs| {
        let of_seldom = seldom::run_engine((directory.path(), described.as_ref()), engine_extent, known, |run| {
            keeping.kept.seldom.push(run.clone());
            progress.step("running the engine for seldom steps", keeping.kept.seldom.len() as u64, seldom::RUNS);
            keeping.keep();
            go_on()
        });
        Ok((of_seldom?, runs))
    });
    let (of_seldom, runs) = seldom.map_err(|failure| match failure.downcast::<Fault>() {
        Ok(fault) => refused(&arguments.directory, &fault),
        Err(failure) => format!("the engine cannot run in '{place}', where it needs some GiB: {failure}").into(),
    })?;
    let mut prices = prices::prices(&runs, fitted.costs);
    let seldom = seldom::prices(&of_seldom, &prices, fitted.costs);
    for ((work, ..), price) in seldom::SELDOM.into_iter().zip(&seldom) {
        prices.steps_ns[work as usize] = price.map_or(0.0, |price| price.ns);
    }
    let place = (directory.path(), described.as_ref());
    prices.behind_sleeps = calibrated_bursts(place, if arguments.quick { 3 } else { 11 }, keeping)?;
    let loopback_extent = if arguments.quick { LoopbackExtent::quick() } else { LoopbackExtent::full() };
    let describe = |loopback: &FittedLoopback| {
        description::text((ENGINE_DEVICE, &fitted.device), &prices, Some(loopback), "fitting nodes")
    };
    let loopback = calibrated_loopback(place, (&loopback_extent, &prices.cpu()), describe, keeping)
        .map_err(|failure| failure.to_string());
    Ok(Calibration { measured, fitted, runs, prices, seldom, loopback })
}

/// Measures what long sleeps cost behind them.
fn calibrated_bursts(
    place: (&Path, Option<&Device>),
    rounds: usize,
    keeping: &mut Keeping,
) -> Result<Vec<ColdCaches>, Failure> {
    let progress = keeping.progress;
    let seen = match keeping.kept.bursts.take() {
        Some(known) => known,
        None => idle::measure(place, rounds, |round| {
            progress.step("running behind sleeps", round as u64, rounds as u64);
            go_on()
        })?,
    };
    let cold = seen.cold_caches();
    keeping.kept.bursts = Some(seen);
    keeping.keep();
    Ok(cold)
}

/// The description whose delays the device shows.
fn shown(described: Option<&str>) -> Result<Option<Device>, Failure> {
    let Some(described) = described else { return Ok(None) };
    let text = format!("[device.{ENGINE_DEVICE}]\ndescribed = {described:?}\n");
    let mut configuration = Configuration::from_bytes("--described", text.as_bytes(), None)?;
    Ok(configuration.devices.remove(ENGINE_DEVICE).and_then(|device| device.described))
}

/// Measures the loopback and what nodes do over it, and describes both. A machine that has none can be calibrated all the same. `describe`
/// gives the whole description with such a loopback.
fn calibrated_loopback(
    (directory, described): (&Path, Option<&Device>),
    (extent, of_steps): (&LoopbackExtent, &Cpu),
    describe: impl Fn(&FittedLoopback) -> String,
    keeping: &mut Keeping,
) -> Result<(LoopbackMeasured, FittedLoopback), Failure> {
    let progress = keeping.progress;
    let step = |number: usize, all: usize| progress.step("measuring the loopback", number as u64, all as u64);
    let mut measured = match keeping.kept.loopback.take().filter(|known| known.extent == *extent) {
        Some(known) => known,
        None => loopback::measure(extent, step)?,
    };
    keeping.kept.loopback = Some(measured.clone());
    keeping.keep();
    let mut fitted = loopback_fit::fit(&measured, of_steps)?;
    progress.phase("running nodes", 0);
    let seconds = extent.span_ns as f64 / 1e9 * NODES_LONGER;
    let seen = match measured.nodes {
        Some(seen) => seen,
        None => nodes::measure((directory, described), seconds)?,
    };
    measured.nodes = Some(seen);
    keeping.kept.loopback = Some(measured.clone());
    keeping.keep();
    progress.phase("fitting nodes", 0);
    let (wake_ns, shown) = nodes::fit(seen, |wake_ns| {
        let text = describe(&fitted.waking_in(wake_ns));
        let mut configuration = cpu::configuration(described, true, 64 << 20);
        let mut hardware = Hardware::parse(&text, "calibrated")?;
        if let Some(device) = described {
            hardware.devices.insert(ENGINE_DEVICE.to_owned(), device.clone());
        }
        configuration.hardware = Some(hardware);
        nodes::seen((directory, configuration), seconds)
    })?;
    fitted = FittedLoopback { nodes: Some(shown), ..fitted.waking_in(wake_ns) };
    Ok((measured, fitted))
}

/// Not if this process is asked to end.
fn go_on() -> Result<(), Fault> {
    if real_driver::is_end_requested() {
        return Err(Fault::new(FaultKind::Cancelled, "interrupted"));
    }
    Ok(())
}

/// Why a directory cannot be measured, and what helps.
fn refused(directory: &Path, fault: &Fault) -> Failure {
    let place = directory.display();
    let help = match fault.kind {
        FaultKind::Cancelled => {
            let how = "the same command goes on where it was, if it has an --output";
            return format!("interrupted, and '{place}' is left as it was; {how}").into();
        }
        FaultKind::NoSpace => "; make room there, or give a smaller --size",
        FaultKind::Denied => "; name a directory in which files can be written",
        _ => "",
    };
    format!("'{place}' cannot be measured: {fault}{help}").into()
}

/// Refuses early what could not be written after a long measurement.
fn check_output(output: &Path) -> Result<(), Failure> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = parent.metadata().is_ok_and(|metadata| metadata.is_dir() && !metadata.permissions().readonly());
    let cause = match (output.is_dir(), parent.is_dir(), writable) {
        (true, ..) => "it is a directory; name a file".to_owned(),
        (_, false, _) => format!("there is no directory '{}'", parent.display()),
        (.., false) => format!("the directory '{}' may not be written to", parent.display()),
        _ => return Ok(()),
    };
    Err(format!("'{}' cannot be written: {cause}", output.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_calibration_has_left_is_not_taken_over() {
        let directory = tempfile::tempdir().expect("a directory for this test");
        let arguments = |place: &str| Arguments {
            directory: PathBuf::from(place),
            output: Some(directory.path().join("here.toml")),
            name: "disk".to_owned(),
            described: None,
            quick: true,
            size: 64 << 20,
            report: None,
            json: false,
        };
        let progress = Progress::hidden();
        let run = EngineRun {
            name: "reads".into(),
            steps: Default::default(),
            thread: [0.0; 4],
            cpu_ns: 1.0,
            footprint: 1,
            durable: false,
        };
        let mut first = Keeping::begin(&arguments("a"), &progress);
        first.kept.runs.push(run);
        first.keep();
        assert_eq!(Keeping::begin(&arguments("a"), &progress).kept.runs.len(), 1);
        assert!(Keeping::begin(&arguments("b"), &progress).kept.runs.is_empty(), "another directory");
        first.kept.version += 1;
        first.keep();
        assert!(Keeping::begin(&arguments("a"), &progress).kept.runs.is_empty(), "another version");
        files::replace(&directory.path().join("here.partial.json"), b"{").expect("it can be written");
        assert!(Keeping::begin(&arguments("a"), &progress).kept.runs.is_empty(), "damaged");
    }

    #[test]
    fn sizes_and_names_are_checked() {
        assert_eq!(file_size("64 MiB"), Ok(64 << 20));
        assert!(file_size("0 B").is_err() && file_size("65.5 MiB").is_err() && file_size("big").is_err());
        assert!(device_name("nvme-0").is_ok() && device_name("../x").is_err());
        assert!(check_output(Path::new("/no/such/place.toml")).is_err() && check_output(Path::new("/")).is_err());
        assert!(check_output(Path::new("place.toml")).is_ok());
    }
}
