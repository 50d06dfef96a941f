//! From the combined tables of one run to what is run. What is wrong in them is shown where it was written.

mod workload_table;

use super::document::{Document, overlay};
use super::read::TREES;
use super::{ExperimentError, ReadFile};
use devices::{Hardware, HardwareError};
use entresol::configuration::{Configuration, ConfigurationError, Finding, Problem, nearest};
use toml::{Table, Value};
use workload::page_server;
use workload::page_stream::Stream;
use workload::snapshot_readers::Readers;
use workload::synthetic::Model;
use workload::ycsb::Mix;
use workload::{Length, Load, Plan};

/// The keys of `[run]`.
pub(super) const RUN_KEYS: [&str; 6] = ["transactions", "seconds", "warm_up", "seed", "replications", "batches"];

/// What an experiment names as its hardware to run on this machine.
const REAL: &str = "this machine";

/// Batches of a run that does not say how many.
const BATCHES: u32 = 10;

/// What one run of an experiment is.
#[derive(Clone, Debug)]
pub struct Setting {
    /// `configuration` and `hardware`: the database and its machine.
    pub configuration: Configuration,
    /// `workload`: what runs on it.
    pub work: Work,
    /// `workload.rate` or `workload.clients`, and `run`: how much of it.
    pub plan: Plan,
    /// `run.replications`: how many runs with seeds of their own give the figures; the first has `plan.seed`.
    pub replications: u32,
    /// `run.batches`: into how many batches of equal length each run is cut, so that figures have a confidence interval.
    pub batches: u32,
}

/// `workload.kind`: a kind of workload with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// `"debit-credit"`.
    DebitCredit {
        /// `scale`: the branches.
        branches: u32,
    },
    /// `"credit-card"`: the workload of System M.
    CreditCard {
        /// `scale`: the accounts.
        accounts: u64,
        /// `restart`: whether the described machine stops at the end, and is started again.
        restart: bool,
    },
    /// `"synthetic"`: the synthetic model of Rahm 1991.
    Synthetic {
        /// `model`: the model, described as for `entresol bench synthetic`.
        model: Box<Model>,
        /// `readers`, `snapshot_age`: tasks that read the first partition in snapshots of that age beside it.
        readers: Readers,
    },
    /// `"trace"`: the replay of a trace.
    Trace {
        /// `trace`: the name of a trace that can be generated, or a file's path.
        trace: String,
    },
    /// `"tpc-c"`: orders of a wholesale supplier.
    TpcC {
        /// `scale`: the warehouses.
        warehouses: u32,
        /// `shrink`: which part of the customers and items is left out, 1 for none.
        shrink: u32,
    },
    /// `"ycsb"`: a core workload of the Yahoo! Cloud Serving Benchmark.
    Ycsb {
        /// `mix`: which one.
        mix: Mix,
        /// `scale`: the records.
        records: u64,
    },
    /// `"page-stream"`: references to pages.
    PageStream {
        /// `stream`: their law.
        stream: Stream,
        /// `pages`: how many there are.
        pages: u64,
    },
    /// `"page-server"`: clients on machines of their own, on the pages of a server.
    PageServer {
        /// What they run.
        model: Box<page_server::PageServerModel>,
        /// `client_hardware`: the machine of each.
        client: Box<Hardware>,
    },
    /// `"nodes"`: Debit-Credit on nodes that share a database, which a server has; the configuration's section `nodes` says how.
    /// `clients` are those of each node.
    Nodes {
        /// `scale`: the branches.
        branches: u32,
        /// `nodes`: how many join the server.
        nodes: u32,
    },
    /// `"sort"` or `"join"`: one operation on rows that its memory does not hold, verified; a run is one of them.
    Spill {
        /// `kind`, and `method` of a join.
        operation: Operation,
        /// `rows`: how many, of a join half of them in each input; every left row has one right row.
        rows: u64,
        /// `row_size`: bytes of a row, of which 8 are its key.
        row_size: u32,
        /// `memory`: bytes for the operation.
        memory: u64,
    },
    /// `"torture"`: no load but what is drawn for each seed, ended by faults, on a machine of its own.
    Torture {
        /// `seeds`: how many a run takes; the first run those from 0 on, the next ones those behind.
        seeds: u64,
    },
}

/// What is done with rows that memory does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An external sort.
    Sort,
    /// `method = "sort-merge"`: a join of two sorted inputs.
    SortMergeJoin,
    /// `method = "hash"`: a hybrid hash join.
    HashJoin,
}

/// Where the values of a run come from.
pub struct Sources<'a> {
    /// What they were written in.
    pub document: &'a Document,
    /// Where those were written that are not in the document's own tables; what was laid over others comes before them.
    pub origins: Vec<Origin<'a>>,
    /// A reader of the files that the document names.
    pub read_file: ReadFile<'a>,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// As one of the values of a varied parameter.
    Parameter {
        /// The parameter, a dotted path.
        parameter: &'a str,
        /// The table that names it and its values.
        at: String,
    },
    /// In the table at this path, which was laid over others.
    Table(String),
}

impl Sources<'_> {
    /// The error that `problem` with the value at `path` (that begins with the tree's name) makes, shown where the value was
    /// written last: as a varied parameter, in the series, or in the experiment's own table.
    pub fn error(&self, path: &str, problem: Problem, allowed: &str, near: Option<String>) -> ExperimentError {
        let whose = |parameter: &str| {
            parameter == path
                || parameter.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
                || path.strip_prefix(parameter).is_some_and(|rest| rest.starts_with('.'))
        };
        let mut place = path.to_owned();
        for origin in &self.origins {
            match origin {
                Origin::Parameter { parameter, at } if whose(parameter) => {
                    let key = match problem {
                        Problem::Unknown { .. } | Problem::Conflict(_) => "parameter",
                        _ => "values",
                    };
                    return self.document.at_value(&format!("{at}.{key}"), problem, allowed, near);
                }
                Origin::Table(at) if self.document.holds(&format!("{at}.{path}")) => {
                    place = format!("{at}.{path}");
                    break;
                }
                _ => {}
            }
        }
        match problem {
            Problem::Unknown { .. } => self.document.at_key(&place, problem, allowed, near),
            _ => self.document.at_value(&place, problem, allowed, near),
        }
    }

    /// The same for a finding in the text that was made of the tree `tree`.
    pub fn finding(&self, tree: &str, text: &str, finding: Finding) -> ExperimentError {
        let path = format!("{tree}.{}", super::document::path_at(text, finding.line));
        self.error(&path, finding.problem, &finding.allowed, finding.nearest)
    }
}

pub(super) fn setting(run: &Table, sources: &Sources<'_>) -> Result<Setting, ExperimentError> {
    let branch = |name: &str| match run.get(name) {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    };
    let [configuration, hardware, workload, length] = TREES.map(branch);
    let configuration = configure(configuration, &hardware, sources)?;
    loaded(configuration, (&workload, &length), sources)
}

impl Setting {
    /// What `configuration`, `workload` and `run` of these tables say, on this described hardware.
    ///
    /// # Errors
    /// [`ExperimentError`] that names what is wrong where `sources` say that it was written.
    pub fn on_hardware(run: &Table, hardware: Hardware, sources: &Sources<'_>) -> Result<Setting, ExperimentError> {
        let branch = |name: &str| match run.get(name) {
            Some(Value::Table(table)) => table.clone(),
            _ => Table::new(),
        };
        let text = toml::to_string(&branch("configuration")).expect("a table of TOML is TOML");
        let read = Configuration::on_hardware("configuration", text.as_bytes(), hardware);
        let configuration = read.map_err(|error| misread(error, &text, sources))?;
        loaded(configuration, (&branch("workload"), &branch("run")), sources)
    }
}

/// What is said of a configuration that was written out as `text`, where it was written first.
fn misread(error: ConfigurationError, text: &str, sources: &Sources<'_>) -> ExperimentError {
    match error {
        ConfigurationError::Wrong { mut findings } => sources.finding("configuration", text, findings.swap_remove(0)),
        other => ExperimentError::Whole(other.to_string()),
    }
}

/// The setting of a configuration with its workload and its length.
fn loaded(
    configuration: Configuration,
    (workload, length): (&Table, &Table),
    sources: &Sources<'_>,
) -> Result<Setting, ExperimentError> {
    let work = workload_table::work(workload, sources)?;
    let load = match work {
        Work::Torture { .. } | Work::Spill { .. } => Load::Closed { clients: 1 },
        _ => load(workload, sources)?,
    };
    let plan = plan(length, load, sources)?;
    let number = |key| Ok::<_, ExperimentError>(whole(length, "run", key, 1, 1_000, sources)?.map(|n| n as u32));
    let (replications, batches) = (number("replications")?.unwrap_or(1), number("batches")?.unwrap_or(BATCHES));
    Ok(Setting { configuration, work, plan, replications, batches })
}

fn configure(mut table: Table, changes: &Table, sources: &Sources<'_>) -> Result<Configuration, ExperimentError> {
    let Some(Value::String(name)) = table.remove("hardware") else {
        let problem = Problem::Conflict("an experiment runs on described hardware, and none is named".to_owned());
        let known: Vec<&str> = Hardware::names().collect();
        let allowed =
            format!("hardware = \"NAME\" with {}, the path of a description, or \"{REAL}\"", known.join(", "));
        return Err(sources.error("configuration.hardware", problem, &allowed, None));
    };
    let text = toml::to_string(&table).expect("a table of TOML is TOML");
    let read = if name == REAL {
        Configuration::from_bytes("configuration", text.as_bytes(), None)
    } else {
        Configuration::on_hardware("configuration", text.as_bytes(), hardware(&name, changes, sources)?)
    };
    read.map_err(|error| misread(error, &text, sources))
}

/// The named description with the changes laid over it.
fn hardware(name: &str, changes: &Table, sources: &Sources<'_>) -> Result<Hardware, ExperimentError> {
    let known: Vec<&str> = Hardware::names().collect();
    let place = "configuration.hardware";
    let text = match Hardware::text(name) {
        Some(text) => text.to_owned(),
        None if name.ends_with(".toml") => (sources.read_file)(name).map_err(|error| {
            let problem = Problem::BadDescription { name: name.to_owned(), reason: error.to_string() };
            sources.error(place, problem, "the path of a description", None)
        })?,
        None => {
            let near = nearest(name, known.iter().copied()).map(str::to_owned);
            let problem = Problem::NoSuch { what: "hardware", name: name.to_owned() };
            return Err(sources.error(place, problem, &known.join(", "), near));
        }
    };
    let mut table = Document::parse(name, &text)?.table;
    overlay(&mut table, changes);
    let text = toml::to_string(&table).expect("a table of TOML is TOML");
    Hardware::parse(&text, name).map_err(|error| match error {
        HardwareError::Text { line, message, .. } => {
            let path = super::document::path_at(&text, line.unwrap_or(0));
            let (problem, allowed, near) = said_by_serde(&message);
            sources.error(&format!("hardware.{path}"), problem, &allowed, near)
        }
        other => ExperimentError::Whole(other.to_string()),
    })
}

/// The last line of a message that serde has made, with the names that it expected.
fn said_by_serde(message: &str) -> (Problem, String, Option<String>) {
    let line = message.lines().last().unwrap_or_default();
    let (what, expected) = line.split_once(", expected ").unwrap_or((line, ""));
    let name = what.split('`').nth(1).unwrap_or_default();
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let near = nearest(name, names.iter().copied()).map(str::to_owned);
    let allowed = if names.is_empty() { expected.to_owned() } else { names.join(", ") };
    (Problem::Conflict(what.replace('`', "'")), allowed, near)
}

fn load(table: &Table, sources: &Sources<'_>) -> Result<Load, ExperimentError> {
    let rate = positive(table, "workload", "rate", sources)?;
    let clients = whole(table, "workload", "clients", 1, 65_536, sources)?;
    let full = flag(table, "full", sources)?;
    match (rate, clients, full) {
        (Some(rate_per_s), None, false) => Ok(Load::Open { rate_per_s }),
        (None, Some(clients), false) => Ok(Load::Closed { clients: clients as u32 }),
        (None, None, true) => Ok(Load::Full),
        _ => {
            let problem =
                Problem::Conflict("[workload] needs either an arrival rate, clients, or a full queue".to_owned());
            let allowed = "rate = 100 (transactions per second), clients = 64, or full = true beside [server]";
            Err(sources.error("workload", problem, allowed, None))
        }
    }
}

fn plan(table: &Table, load: Load, sources: &Sources<'_>) -> Result<Plan, ExperimentError> {
    if let Some(key) = table.keys().find(|key| !RUN_KEYS.contains(&key.as_str())) {
        let near = nearest(key, RUN_KEYS.iter().copied()).map(str::to_owned);
        let problem = Problem::Unknown { what: "key", name: key.clone(), section: "[run]".to_owned() };
        return Err(sources.error(&format!("run.{key}"), problem, &RUN_KEYS.join(", "), near));
    }
    let transactions = whole(table, "run", "transactions", 1, 1 << 40, sources)?;
    let seconds = positive(table, "run", "seconds", sources)?;
    let warm_up = positive(table, "run", "warm_up", sources)?;
    let seed = whole(table, "run", "seed", 0, i64::MAX as u64, sources)?.unwrap_or(1);
    let measure = match (transactions, seconds) {
        (Some(_), Some(_)) => {
            let problem = Problem::Conflict("'seconds' and 'transactions' are both a run's length".to_owned());
            return Err(sources.error("run.seconds", problem, "one of the two", None));
        }
        (None, Some(seconds)) => Length::Time((seconds * 1e9) as u64),
        (transactions, None) => Length::Transactions(transactions.unwrap_or(20_000)),
    };
    let warm_up = match (warm_up, measure) {
        (None, measure) => measure.share(5),
        (Some(warm_up), Length::Time(_)) => Length::Time((warm_up * 1e9) as u64),
        (Some(warm_up), Length::Transactions(_)) => Length::Transactions(warm_up as u64),
    };
    Ok(Plan { load, warm_up, measure, seed })
}

/// A key of the workload that is true or false, the latter if it is left out.
fn flag(table: &Table, key: &str, sources: &Sources<'_>) -> Result<bool, ExperimentError> {
    match table.get(key) {
        None => Ok(false),
        Some(Value::Boolean(flag)) => Ok(*flag),
        Some(other) => {
            let problem = Problem::OutOfRange { key: key.to_owned(), value: other.to_string() };
            Err(sources.error(&format!("workload.{key}"), problem, "true, false", None))
        }
    }
}

/// A whole number within bounds, if the key is there.
fn whole(
    table: &Table,
    tree: &str,
    key: &str,
    low: u64,
    high: u64,
    sources: &Sources<'_>,
) -> Result<Option<u64>, ExperimentError> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    match number.filter(|number| (low..=high).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let problem = Problem::OutOfRange { key: key.to_owned(), value: value.to_string() };
            let allowed = format!("a whole number from {low} to {high}");
            Err(sources.error(&format!("{tree}.{key}"), problem, &allowed, None))
        }
    }
}

/// A number above zero, if the key is there.
fn positive(table: &Table, tree: &str, key: &str, sources: &Sources<'_>) -> Result<Option<f64>, ExperimentError> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
    match number.filter(|number| *number > 0.0 && number.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => {
            let problem = Problem::OutOfRange { key: key.to_owned(), value: value.to_string() };
            Err(sources.error(&format!("{tree}.{key}"), problem, "a number above zero", None))
        }
    }
}
