//! `entresol predict`: a workload on both clocks, side by side, and how far the prediction is from what was measured.

mod comparison;
mod figures;
mod page;
mod probe;

use crate::bench::OnEitherClock;
use crate::experiment::{report_head, write_report};
use crate::progress::Progress;
use crate::{Failure, print};
use clap::Args;
use comparison::Comparison;
use devices::{Discipline, Hardware};
use entresol::configuration::{Configuration, Device, FILE_NAME};
use papers::Extent;
use probe::Prober;
use std::path::PathBuf;

/// Runs a workload here and on described hardware, and shows the errors
///
/// The same configuration runs under the virtual clock on the hardware that --hardware names (a
/// description of this machine: 'entresol calibrate'), then here, --rounds times with looks at the
/// devices between. Every figure is shown beside its prediction, with the error and the spread of
/// the runs. Options of a workload are those of 'entresol bench'.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    entresol calibrate --output here.toml\n  \
    entresol predict debit-credit --hardware here.toml --scale 50 --clients 64\n  \
    entresol predict ycsb --workload a --hardware here.toml --config placed.toml --report report\n  \
    entresol predict sort --hardware here.toml --size 512MiB --memory 64MiB --json"
)]
pub struct Arguments {
    #[command(subcommand)]
    workload: OnEitherClock,
    /// How often it runs here
    #[arg(long, global = true, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Writes a report with both distributions into this directory
    #[arg(long, global = true, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// A workload prepared for both clocks.
struct Prepared {
    real: OnEitherClock,
    described: OnEitherClock,
    /// As it is here.
    configuration: Configuration,
    hardware: Hardware,
    hardware_name: String,
}

/// The same workload on both clocks: what the command line names, by one configuration.
fn prepared(workload: &OnEitherClock) -> Result<Prepared, Failure> {
    let mut described = workload.clone();
    let Some(hardware_name) = described.setup().hardware.clone() else {
        let how = "'entresol calibrate --output here.toml' describes this machine";
        return Err(format!("name the hardware of the prediction with --hardware; {how}").into());
    };
    let inside = workload.data().join(FILE_NAME);
    if described.setup().config.is_none() && inside.is_file() {
        described.setup_mut().config = Some(inside);
    }
    let file = described.setup().config.clone();
    if file.is_none() && papers::base(&hardware_name).is_some() {
        let why = "has a configuration of its own, which is not that of a run here";
        return Err(format!("'{hardware_name}' {why}; name one for both with --config").into());
    }
    let configuration = Configuration::read(file.as_deref(), None)?;
    if configuration.hardware.is_some() {
        let file = file.unwrap_or_default();
        return Err(format!(
            "'{}' names hardware, so it cannot run here; take the key out and name the hardware with --hardware",
            file.display()
        )
        .into());
    }
    let virtually = Configuration::read(file.as_deref(), Some(&hardware_name))?;
    let hardware = virtually.hardware.ok_or("the described configuration has hardware")?;
    let mut real = described.clone();
    real.setup_mut().hardware = None;
    if let Some(terms) = real.terms_mut() {
        terms.like = None;
    }
    Ok(Prepared { real, described, configuration, hardware, hardware_name })
}

/// Runs the workload on both clocks.
fn compared(arguments: &Arguments, progress: &Progress) -> Result<Comparison, Failure> {
    let Prepared { real, mut described, configuration, hardware, hardware_name } = prepared(&arguments.workload)?;
    // What is memory here takes no changed page of a cache, and so it does not in the prediction.
    let is_memory = |device: &Device| real_driver::is_memory(device.path.as_deref().unwrap_or(real.data()));
    let volatile = configuration.devices.iter().filter(|(_, device)| is_memory(device));
    described.setup_mut().volatile = volatile.map(|(name, _)| name.clone()).collect();
    // A copy of a database that is made here is predicted behind the runs that make it.
    let is_late = arguments.workload.clone().terms_mut().is_some_and(|terms| terms.like.is_some());
    let predict = || timed(|| described.run(progress));
    let early = if is_late { None } else { Some(predict()?) };
    let mut prober = Prober::new(&real, &configuration, &hardware)?;
    let (mut runs, mut seconds) = (Vec::new(), Vec::new());
    prober.look()?;
    for round in 0..arguments.rounds {
        let mut real = real.clone();
        if let Some(terms) = real.terms_mut() {
            // What the round before has drawn would be written over what it has written: the same, and so nothing.
            terms.seed = terms.seed.wrapping_add(u64::from(round) + 1);
        }
        let (run, took) = timed(|| real.run(progress))?;
        runs.push(run);
        seconds.push(took);
        prober.look()?;
    }
    let probes = prober.finish()?;
    let (predicted, took) = early.map_or_else(predict, Ok)?;
    let wall_seconds = [took, comparison::median(&seconds).unwrap_or(0.0)];
    let notes = Vec::from_iter(unpriced(&hardware));
    Ok(Comparison { hardware: hardware_name, real: runs, predicted, wall_seconds, probes, notes })
}

/// What a calibration of an earlier release says nothing of.
fn unpriced(hardware: &Hardware) -> Option<String> {
    let cpu = hardware.cpu.as_ref().filter(|cpu| cpu.discipline == Discipline::RunUntilWait)?;
    let prices = [cpu.instructions.value_copy, cpu.instructions.distant_value];
    (prices == [0; 2]).then(|| {
        "the description has no prices of values (value_copy, distant_value), so that reading and writing them takes no time in \
         the prediction; a calibration by this release has them"
            .to_owned()
    })
}

/// What was done, and how many seconds of the wall clock it took.
fn timed<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<(T, f64), Failure> {
    let begun = real_driver::wall_ns();
    let done = run()?;
    Ok((done, (real_driver::wall_ns() - begun) as f64 / 1e9))
}

/// Runs the workload on both clocks and sets them side by side.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let comparison = crate::bench::watched("predict", |progress| compared(arguments, progress))?;
    if let Some(directory) = &arguments.report {
        let page = page::html(&report_head(Extent::Full), &comparison);
        let file = write_report(directory, &page, &comparison.to_json())?;
        eprintln!("report: {}", file.display());
    }
    let is_json = arguments.workload.setup().json;
    print(&if is_json { format!("{:#}", comparison.to_json()) } else { comparison.to_text() })
}
