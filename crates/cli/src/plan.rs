//! `entresol plan`: which hardware to rent for a workload, and how to lay a database out on it.

mod answer;
mod page;
mod runs;
mod search;
mod state;
mod text;

use crate::experiment::{report_head, write_report};
use crate::progress::Progress;
use crate::{Failure, files, print};
use clap::Args;
use entresol::configuration::{Configuration, FILE_NAME};
use papers::Extent;
use plan::{Catalogue, EXAMPLE, Plan, PlanError};
use state::State;
use std::path::{Path, PathBuf};

/// Plans what to rent for a workload, from runs under the virtual clock
///
/// The file names a workload, a catalogue of hardware with prices, limits (response time,
/// throughput, losses to survive), and what may vary. All combinations have short runs of the
/// engine on described hardware, the better ones longer ones. What comes out is the front of
/// cost per month against the 99 % response time.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    arg_required_else_help = true,
    after_help = "Examples:\n  entresol plan --example > plan.toml\n  entresol plan plan.toml --resume plan.state --report report\n  entresol plan plan.toml --resume plan.state --point 2 --write data"
)]
pub struct Arguments {
    /// The plan
    #[arg(value_name = "FILE", required_unless_present_any = ["example", "catalogue"])]
    file: Option<PathBuf>,
    /// Prints a plan with every key and its meaning
    #[arg(long, exclusive = true)]
    example: bool,
    /// Prints the catalogue of hardware and prices that comes with this release
    #[arg(long, exclusive = true)]
    catalogue: bool,
    /// Keeps what was run in this file, and runs nothing that is there already
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Ends the search after this time, whatever the plan says
    #[arg(long, value_name = "MINUTES", value_parser = crate::bench::positive)]
    minutes: Option<f64>,
    /// Writes a report with the plot into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Writes the configuration of a point into a directory or .toml file
    #[arg(long, value_name = "DIR|FILE")]
    write: Option<PathBuf>,
    /// Which point: its number in the table, the cheapest being 1
    #[arg(long, value_name = "N", default_value_t = 1, requires = "write", value_parser = clap::value_parser!(u32).range(1..))]
    point: u32,
    /// Prints the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.example {
        return print(EXAMPLE.trim_end());
    }
    let Some(file) = arguments.file.as_ref().filter(|_| !arguments.catalogue) else {
        return print(Catalogue::names().filter_map(Catalogue::text).collect::<Vec<_>>().join("\n").trim_end());
    };
    let mut plan = read(file)?;
    if let Some(minutes) = arguments.minutes {
        plan.search.time_ns = Some((minutes * 60e9) as u64);
    }
    let target = arguments.write.as_deref().map(target).transpose()?;
    let mut state = State::open(arguments.resume.as_deref())?;
    let progress = Progress::start("plan");
    let found = search::search(&plan, &mut state, &progress)?;
    progress.finish();
    let answer = answer::answer(&plan, &found);
    if let Some(directory) = &arguments.report {
        let page = page::page(&report_head(Extent::Full), &plan, &answer);
        let file = write_report(directory, &page, &text::to_json(&plan, &answer))?;
        eprintln!("report: {}", file.display());
    }
    print(&if arguments.json {
        serde_json::to_string_pretty(&text::to_json(&plan, &answer))?
    } else {
        text::to_text(&plan, &answer)
    })?;
    if let Some(error) = answer.infeasible {
        return Err(error.into());
    }
    if let Some(file) = target {
        let number = arguments.point as usize;
        let point = answer.front.get(number - 1).ok_or_else(|| {
            let (points, noun) = (answer.front.len(), if answer.front.len() == 1 { "point" } else { "points" });
            format!("the front has {points} {noun}; there is no point {number}")
        })?;
        write(&file, &plan, point)?;
    }
    Ok(())
}

/// Reads a plan; catalogues that it names are looked for beside it.
fn read(file: &Path) -> Result<Plan, Failure> {
    let text = files::read_text(file).map_err(|error| format!("the plan {error}"))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let read_file = |name: &str| {
        files::read_text(&directory.join(name)).map_err(|failure| std::io::Error::other(failure.to_string()))
    };
    let plan = Plan::parse(&file.display().to_string(), &text, &read_file)?;
    for trace in plan.candidates.iter().filter_map(|candidate| candidate.trace()) {
        if !runs::is_generated(trace) && !Path::new(trace).is_file() {
            let reason = "there is no such file; 'entresol trace record' makes one".to_owned();
            return Err(PlanError::Unreadable { what: "trace", file: trace.to_owned(), reason }.into());
        }
    }
    Ok(plan)
}

/// The file that the chosen configuration is written into, which must not be there yet.
fn target(path: &Path) -> Result<PathBuf, Failure> {
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    let file = if is_file { path.to_owned() } else { path.join(FILE_NAME) };
    files::must_not_exist(&file)?;
    Ok(file)
}

/// Writes the configuration of a point, and reads it as an opening does.
fn write(file: &Path, plan: &Plan, point: &answer::AnswerPoint<'_>) -> Result<(), Failure> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory {
        let failure = |error: std::io::Error| format!("'{}' cannot be made: {error}", directory.display());
        std::fs::create_dir_all(directory).map_err(failure)?;
    }
    files::create(file, point.candidate.configuration_text(&text::comment(plan, point)).as_bytes())?;
    Configuration::read(Some(file), None)?;
    eprintln!("configuration: {}", file.display());
    Ok(())
}
