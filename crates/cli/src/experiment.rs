//! `entresol experiment`: an experiment of the user's own.

mod head;
mod page_server;
mod point;
mod runs;
mod view;

pub use head::head as report_head;
pub use point::{Circumstances, GENERATED, KEYS, Traces, load as load_trace, opening, run_under};
pub use runs::{read, run_all, write_report};
pub use view::experiment_text;

use crate::progress::Progress;
use crate::{Failure, print};
use clap::Args;
use entresol::configuration::Configuration;
use papers::Extent;
use papers::outcome::Results;
use papers::report::{self, Head};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Runs an experiment: what a TOML file varies, on described hardware
///
/// The file names a base configuration, hardware, a workload, the parameters to vary and the
/// outputs to plot. 'entresol experiment --example' prints one with every key.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    arg_required_else_help = true,
    after_help = "Examples:\n  entresol experiment --example > buffer.toml\n  entresol experiment buffer.toml --report report"
)]
pub struct Arguments {
    /// The experiment
    #[arg(value_name = "FILE", required_unless_present = "example")]
    pub file: Option<PathBuf>,
    /// Prints an experiment with every key and its meaning
    #[arg(long, exclusive = true)]
    pub example: bool,
    #[command(flatten)]
    pub output: Output,
}

/// How much is run, and where its results go.
#[derive(Args)]
pub struct Output {
    /// Fewer values and shorter runs, as the experiments say under 'quick'
    #[arg(long)]
    pub quick: bool,
    /// Writes a report with the plots into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Prints the results as JSON
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// How much of the experiments is run.
    pub fn extent(&self) -> Extent {
        if self.quick { Extent::Quick } else { Extent::Full }
    }

    /// Writes the report, if one is asked for, and says where.
    pub fn write(&self, page: impl FnOnce(&Head) -> String, results: &Results) -> Result<(), Failure> {
        let Some(directory) = &self.report else { return Ok(()) };
        let file = write_report(directory, &page(&head::head(self.extent())), &report::to_json(results))?;
        eprintln!("report: {}", file.display());
        Ok(())
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(file) = arguments.file.as_ref().filter(|_| !arguments.example) else {
        return print(papers::experiment::REFERENCE.trim_end());
    };
    let experiment = read(file, arguments.output.extent())?;
    let progress = Progress::start("experiment");
    let configurations = experiment.points.iter().map(|point| &point.setting.configuration);
    let warnings: BTreeSet<String> = configurations.flat_map(Configuration::warnings).collect();
    progress.warn(&Vec::from_iter(warnings));
    let results = run_all(vec![experiment], &progress)?;
    progress.finish();
    arguments.output.write(|head| report::experiments(head, &results), &results)?;
    print(&if arguments.output.json { to_json(&results) } else { text(&results) })
}

fn text(results: &Results) -> String {
    results.trials.iter().map(experiment_text).collect::<Vec<_>>().join("\n\n")
}

fn to_json(results: &Results) -> String {
    serde_json::to_string_pretty(&report::to_json(results)).expect("a report holds nothing that JSON cannot")
}
