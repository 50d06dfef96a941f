//! A synthetic workload: read its description, create its partitions if need be, warm up, measure, report.

use super::positive;
use super::session::{self, Run};
use super::terms::{self, Terms};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::trace::Recording;
use clap::Args;
use entresol::configuration::Configuration;
use std::path::PathBuf;
use workload::Load;
use workload::synthetic::{Model, Synthetic};

/// Any mix of transactions, described by a file (Rahm 1991)
///
/// Partitions and how references spread over them, types of transactions and what
/// they reference: 'entresol bench synthetic --format' prints the file's whole format.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    entresol bench synthetic --format > workload.toml\n  \
    entresol bench synthetic --workload workload.toml --clients 16\n  \
    entresol bench synthetic --workload rahm-1991-contention --hardware rahm-1991 --json"
)]
pub struct Arguments {
    /// The description: a file, or 'rahm-1991-contention' (section 4.7)
    #[arg(long, value_name = "FILE", required_unless_present = "format")]
    pub workload: Option<PathBuf>,
    /// Prints the format of descriptions as a commented file
    #[arg(long)]
    pub format: bool,
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "synthetic.data")]
    pub data: PathBuf,
    /// Arrivals per second of all types together [default: as described]
    #[arg(long, value_name = "TPS", value_parser = positive, conflicts_with = "clients")]
    pub rate: Option<f64>,
    /// In place of arrivals: clients, each with one transaction at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: Option<u32>,
    #[command(flatten)]
    pub terms: Terms,
}

/// The workload that the arguments name.
fn model(arguments: &Arguments) -> Result<Model, Failure> {
    let path = arguments.workload.as_deref().ok_or("name a description with --workload")?;
    if path.as_os_str() == "rahm-1991-contention" {
        return Ok(Model::parse(Model::RAHM_1991_CONTENTION, "rahm-1991-contention")?);
    }
    let text = crate::files::read_text(path)?;
    Ok(Model::parse(&text, &path.display().to_string())?)
}

/// Runs the workload; what it references is recorded if `recording` is given.
pub fn run(arguments: &Arguments, recording: Option<&Recording>, progress: &Progress) -> Result<RunReport, Failure> {
    let model = model(arguments)?;
    let mut configuration = arguments.terms.configuration(&arguments.data)?;
    for partition in &model.partitions {
        let organization = partition.organization(configuration.buffer.page_size);
        terms::place(&mut configuration, &partition.name, organization, partition.locks);
    }
    let prices = if model.has_instructions() { unprice(&mut configuration) } else { None };
    let store = arguments.terms.open(arguments.terms.opening(&arguments.data, configuration), progress)?;
    let rate_per_s = arguments.rate.unwrap_or_else(|| model.rate_per_s());
    let load = arguments.clients.map_or(Load::Open { rate_per_s }, |clients| Load::Closed { clients });
    let plan = arguments.terms.plan(load);
    let file = arguments.workload.as_deref().map_or_else(String::new, |path| path.display().to_string());
    let run = Run {
        name: format!("synthetic workload '{file}'"),
        plan,
        course: arguments.terms.course,
        cold: arguments.terms.is_cold(),
        recording,
    };
    let report = session::measure(&store, run, progress, async |database| {
        let prepared = Synthetic::prepare(database, model, |partition| terms::placed(&store, &partition.name)).await?;
        Ok(match prices {
            Some(prices) => prepared.priced(prices),
            None => prepared,
        })
    })?;
    session::close(store)?;
    Ok(report)
}

/// Takes the prices of begin, reference and end of transactions from the described hardware: the workload charges for them.
pub fn unprice(configuration: &mut Configuration) -> Option<[u64; 3]> {
    let instructions = &mut configuration.hardware.as_mut()?.cpu.as_mut()?.instructions;
    let steps =
        [&mut instructions.begin_transaction, &mut instructions.object_reference, &mut instructions.end_transaction];
    Some(steps.map(std::mem::take))
}
