//! Replay of a trace: read it, create partitions to fit if need be, run its transactions, report.

use super::positive;
use super::session::{self, Run};
use super::terms::{self, Terms};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use clap::{Args, ValueEnum};
use engine::catalog::Locking;
use entresol::configuration::{Configuration, Update};
use std::path::PathBuf;
use std::rc::Rc;
use workload::trace::replay::{self, Replay};
use workload::trace::{Partition, Trace};
use workload::{Length, Load, Plan};

/// Replays a trace against partitions made to fit
///
/// All of it is measured, from an empty buffer on, unless a length is given. With one
/// client its references come exactly in the trace's order.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    entresol bench trace --trace rahm.trace --hardware rahm-1991 --rate 10\n  \
    entresol bench trace --trace usr.trace --below-buffer --rate-per-type --hardware rahm-1991\n  \
    entresol bench trace --trace bank.trace --rate-per-type transfer=90,audit=0.5 --json"
)]
pub struct Arguments {
    /// The trace, text or binary
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "trace.data")]
    pub data: PathBuf,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with_all = ["rate", "rate_per_type"])]
    pub clients: u32,
    /// In place of clients: arrivals per second, in the trace's order
    #[arg(long, value_name = "TPS", value_parser = positive, conflicts_with = "rate_per_type")]
    pub rate: Option<f64>,
    /// Each type so often: TYPE=TPS,...; without a value, as recorded
    #[arg(long, value_name = "RATES", num_args = 0..=1, default_missing_value = "")]
    pub rate_per_type: Option<String>,
    /// Transactions cut off before measuring, not all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u64,
    /// Locks other than the trace's
    #[arg(long, value_name = "LOCKS")]
    pub locks: Option<LockUnit>,
    /// The trace was taken below a buffer: 16 pages of memory, FORCE
    #[arg(long)]
    pub below_buffer: bool,
    /// Consecutive pages, 32 and more, are scanned with read-ahead
    #[arg(long)]
    pub read_ahead: bool,
    #[command(flatten)]
    pub terms: Terms,
}

/// What transactions lock.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LockUnit {
    /// Pages
    Page,
    /// Objects
    Object,
    /// Nothing
    None,
}

impl Arguments {
    fn locks(&self, partition: &Partition) -> Locking {
        match self.locks {
            Some(LockUnit::Page) => Locking::Page,
            Some(LockUnit::Object) => Locking::Record,
            Some(LockUnit::None) => Locking::None,
            None => partition.locks,
        }
    }
}

/// The rates of a trace's types, in their order, by what was asked for: `TYPE=TPS,...`, or nothing for those recorded.
fn rates(asked: &str, trace: &Trace) -> Result<Vec<f64>, Failure> {
    let types = trace.types();
    if asked.is_empty() {
        let missing = types.iter().find(|kind| kind.rate_per_s.is_none());
        return match missing {
            Some(kind) => {
                Err(format!("the trace gives type '{}' no rate; write --rate-per-type TYPE=TPS", kind.name).into())
            }
            None => Ok(types.iter().filter_map(|kind| kind.rate_per_s).collect()),
        };
    }
    let mut rates = vec![0.0; types.len()];
    for pair in asked.split(',') {
        let (name, rate) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not TYPE=TPS"))?;
        let Some(index) = types.iter().position(|kind| kind.name == name.trim()) else {
            let known: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
            return Err(format!("the trace has no type '{name}'; it has {}", known.join(", ")).into());
        };
        rates[index] = positive(rate.trim()).map_err(|why| format!("the rate of type '{name}' is {why}"))?;
    }
    Ok(rates)
}

/// The trace's partitions are added to the configuration, and what a trace from below a buffer asks for.
fn configure(arguments: &Arguments, trace: &Trace, configuration: &mut Configuration) {
    if arguments.below_buffer {
        configuration.buffer.size = 16 * u64::from(configuration.buffer.page_size);
        configuration.commit.update = Update::Force;
    }
    for partition in trace.partitions() {
        let organization = replay::organization(partition, configuration.buffer.page_size);
        terms::place(configuration, &partition.name, organization, Some(arguments.locks(partition)));
    }
}

/// How many transactions the trace has behind the warm-up.
fn rest(trace: &Trace, arguments: &Arguments) -> Result<u64, Failure> {
    let (transactions, warm_up) = (trace.len() as u64, arguments.warm_up);
    match transactions.checked_sub(warm_up).filter(|rest| *rest > 0 || transactions == 0) {
        Some(rest) => Ok(rest),
        None => Err(format!(
            "--warm-up {warm_up} leaves nothing of the trace '{}', which has {transactions} transactions; name fewer, or \
             replay it more than once with --transactions or --seconds",
            arguments.trace.display()
        )
        .into()),
    }
}

pub fn run(arguments: &Arguments, progress: &Progress) -> Result<RunReport, Failure> {
    progress.phase("reading", 0);
    let trace = Rc::new(crate::trace::read(&arguments.trace)?);
    let rates = arguments.rate_per_type.as_deref().map(|asked| rates(asked, &trace)).transpose()?;
    let mut configuration = arguments.terms.configuration(&arguments.data)?;
    configure(arguments, &trace, &mut configuration);
    let store = arguments.terms.open(arguments.terms.opening(&arguments.data, configuration), progress)?;
    let load = match (&rates, arguments.rate) {
        (Some(rates), _) => Load::Open { rate_per_s: rates.iter().sum() },
        (None, Some(rate_per_s)) => Load::Open { rate_per_s },
        (None, None) => Load::Closed { clients: arguments.clients },
    };
    let by_types = if rates.is_some() { " by types" } else { "" };
    let measure = match arguments.terms.length() {
        Some(length) => length,
        None => Length::Transactions(rest(&trace, arguments)?),
    };
    let plan = Plan { load, warm_up: Length::Transactions(arguments.warm_up), measure, seed: arguments.terms.seed };
    let name = format!("trace '{}'{by_types}", arguments.trace.display());
    let unfit = |problem| entresol::Error::Argument(format!("{problem}"));
    let run = Run { name, plan, course: arguments.terms.course, cold: arguments.terms.is_cold(), recording: None };
    let report = session::measure(&store, run, progress, async |database| {
        let prepared = Replay::prepare(database, trace, |partition| terms::placed(&store, &partition.name)).await?;
        let prepared = if arguments.read_ahead { prepared.with_read_ahead() } else { prepared };
        match &rates {
            Some(rates) => prepared.by_type(rates).map_err(unfit),
            None => Ok(prepared),
        }
    })?;
    session::close(store)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_given_or_recorded() {
        let text = "entresol-trace 1\ntype a rate 2\ntype b\nend transactions 0 references 0\n";
        let trace = Trace::read("t", text.as_bytes()).unwrap();
        assert_eq!(rates("b=3, a=0.5", &trace).unwrap(), [0.5, 3.0]);
        assert_eq!(rates("b=3", &trace).unwrap(), [0.0, 3.0]);
        for (asked, what) in [("", "no rate"), ("c=1", "it has a, b"), ("a", "TYPE=TPS"), ("a=-1", "above zero")] {
            let error = rates(asked, &trace).unwrap_err().to_string();
            assert!(error.contains(what), "{asked}: {error}");
        }
        let known = Trace::read("t", text.replace("type b", "type b rate 7").as_bytes()).unwrap();
        assert_eq!(rates("", &known).unwrap(), [2.0, 7.0]);
    }
}
