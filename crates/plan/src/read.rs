//! From the text of a plan to its candidates.

use crate::candidate::{Candidate, Refused, Unfit};
use crate::catalogue::{Catalogue, VERSION, check_version};
use crate::machine::{Machine, Reader};
use crate::vary::{self, Choice, Vary};
use crate::{Limits, Loss, miniature};
use base::units::{format_size, parse_duration_ns, parse_size};
use devices::HardwareError;
use entresol::configuration::{Configuration, ConfigurationError, Problem, nearest};
use papers::ExperimentError;
use papers::experiment::document::{Document, overlay};
use papers::experiment::{Origin, ReadFile, Setting, Sources, Work};
use thiserror::Error;
use toml::{Table, Value};

/// Why there is no plan, or no answer to it.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A text says something that is not allowed.
    #[error("{0}")]
    Text(#[from] ExperimentError),
    /// A text is of another version of its format.
    #[error(
        "'{file}' {}; this release reads version {VERSION}: correct it, or use the release that it was written for",
        .found.as_ref().map_or_else(|| "does not say its version ('version = 1')".to_owned(), |found| format!("is of version {found}"))
    )]
    Version {
        /// The file.
        file: String,
        /// The version that it says; `None` if it says none.
        found: Option<String>,
    },
    /// Prices of several catalogues cannot be added.
    #[error("one catalogue has its prices in {one}, another in {other}; write them in one currency")]
    Currencies {
        /// A currency.
        one: String,
        /// Another.
        other: String,
    },
    /// What a plan may rent has no price.
    #[error("{file}: the {what} '{name}' has no price; add one, or take it out of the plan")]
    PriceMissing {
        /// `instance` or `volume`.
        what: &'static str,
        /// Its name.
        name: String,
        /// The catalogues.
        file: String,
    },
    /// A catalogue names a description that it does not have.
    #[error("{file}: there is no [{what}.{name}], which '{of}' names")]
    Undescribed {
        /// `cpu`, `drive` or `network`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What names it.
        of: String,
        /// The catalogues.
        file: String,
    },
    /// A volume is asked for more than its kind can be or do.
    #[error("{error}")]
    OutOfBounds {
        /// What is wrong, at its place.
        error: ExperimentError,
        /// The same in a line.
        why: String,
    },
    /// The described parts make no machine.
    #[error("{0}")]
    Hardware(HardwareError),
    /// A file that the plan names cannot be read.
    #[error("the {what} '{file}' cannot be read: {reason}")]
    Unreadable {
        /// `catalogue` or `trace`.
        what: &'static str,
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// No candidate keeps all limits.
    #[error("no candidate keeps all limits: the limit '{limit}' is to blame. The nearest is {nearest}")]
    Infeasible {
        /// The limit that the nearest candidate breaks most.
        limit: String,
        /// The nearest candidate, with its figures.
        nearest: String,
    },
}

/// How candidates are searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// `rounds`: how many rounds of runs there are, at most.
    pub rounds: u32,
    /// `factor`: by which factor each round's runs are longer, and fewer.
    pub factor: u64,
    /// `least`: how many candidates the last round has at least.
    pub least: usize,
    /// `time`: how long the search takes, at most, in nanoseconds of the wall clock.
    pub time_ns: Option<u64>,
}

impl Default for Search {
    fn default() -> Search {
        Search { rounds: 3, factor: 4, least: 12, time_ns: None }
    }
}

/// A plan, ready to be searched.
///
/// ```
/// use entresol_plan::{EXAMPLE, Plan};
///
/// let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
/// let plan = Plan::parse("example.toml", EXAMPLE, &no_files)?;
/// assert!(plan.candidates.len() > 20 && !plan.refused.is_empty());
///
/// let wrong = Plan::parse("example.toml", &EXAMPLE.replace("p99 =", "p98 ="), &no_files).unwrap_err();
/// assert!(wrong.to_string().contains("did you mean 'p99'?"), "{wrong}");
/// # Ok::<(), entresol_plan::PlanError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    /// `title`: what it is called.
    pub title: String,
    /// Where prices come from, with their dates, for people.
    pub sources: Vec<String>,
    /// What prices are in.
    pub currency: String,
    /// `[limits]`.
    pub limits: Limits,
    /// `[search]`.
    pub search: Search,
    /// `run.miniature`: how many times smaller than the database its miniature is that is run.
    pub miniature: u64,
    /// What may be run.
    pub candidates: Vec<Candidate>,
    /// What cannot be.
    pub refused: Vec<Refused>,
}

/// A plan with every key and its meaning.
pub const EXAMPLE: &str = include_str!("../plans/example.toml");

/// More candidates than a search needs.
const CANDIDATES_MAX: usize = 10_000;

const KEYS: [&str; 11] = [
    "version",
    "title",
    "catalogue",
    "limits",
    "search",
    "vary",
    "machine",
    "hardware",
    "configuration",
    "workload",
    "run",
];
const LIMITS: [&str; 7] = ["p99", "throughput", "cost", "recovery", "flash_years", "data", "survives"];
const SEARCH: [&str; 4] = ["rounds", "factor", "least", "time"];
const RUN: [&str; 5] = ["transactions", "seconds", "warm_up", "seed", "miniature"];

impl Plan {
    /// Reads the plan that `text` describes; `file` names it in messages, and catalogues that it names are read by `read_file`.
    ///
    /// # Errors
    /// [`PlanError`] with the place and what is allowed there.
    pub fn parse(file: &str, text: &str, read_file: ReadFile<'_>) -> Result<Plan, PlanError> {
        let document = Document::parse(file, text)?;
        check_version(file, &document)?;
        document.only("", "a plan", &KEYS)?;
        document.only("run", "[run]", &RUN)?;
        let catalogue = catalogue(&document, read_file)?;
        let limits = limits(&document)?;
        let search = search(&document)?;
        let miniature = whole(&document, "run.miniature", 1, 1 << 20)?.unwrap_or(1);
        let trees = trees(&document)?;
        let varies = vary::varies(&document)?;
        let count = varies.iter().try_fold(1_usize, |count, vary| count.checked_mul(vary.choices.len()));
        if count.is_none_or(|count| count > CANDIDATES_MAX) {
            let problem = Problem::Conflict(format!("that makes more than {CANDIDATES_MAX} candidates"));
            return Err(document.at_value("vary", problem, "fewer values", None).into());
        }
        let title = document.text_at("title")?.unwrap_or_else(|| "Plan".to_owned());
        let (sources, currency) = (catalogue.sources.clone(), catalogue.currency.clone());
        let mut plan =
            Plan { title, sources, currency, limits, search, miniature, candidates: vec![], refused: vec![] };
        let mut out_of_bounds = None;
        for chosen in combinations(&varies) {
            let choices: Vec<&Choice> = varies.iter().zip(&chosen).map(|(vary, at)| &vary.choices[*at]).collect();
            let names =
                varies.iter().zip(&choices).map(|(vary, choice)| (vary.name.clone(), choice.label.clone())).collect();
            // What was laid over others last is looked at first.
            let origins: Vec<Origin<'_>> = choices.iter().rev().map(|choice| choice.origin()).collect();
            let sources = Sources { document: &document, origins, read_file };
            let mut tables = trees.clone();
            choices.iter().for_each(|choice| choice.apply(&mut tables));
            match plan.candidate(names, &tables, (&catalogue, &sources)) {
                Ok(Ok(candidate)) => plan.candidates.push(candidate),
                Ok(Err(refused)) => plan.refused.push(refused),
                Err((choices, PlanError::OutOfBounds { error, why })) => {
                    plan.refused.push(Refused { choices, cost_per_month: None, unfit: Unfit::Bounds(why.clone()) });
                    out_of_bounds.get_or_insert(PlanError::OutOfBounds { error, why });
                }
                Err((_, error)) => return Err(error),
            }
        }
        match out_of_bounds {
            // Not one combination is within the bounds: then that is wrong, and no matter of choice.
            Some(error)
                if plan.refused.iter().all(|one| matches!(one.unfit, Unfit::Bounds(_)))
                    && plan.candidates.is_empty() =>
            {
                Err(error)
            }
            _ => Ok(plan),
        }
    }

    /// The candidate of these tables, or why it cannot be.
    #[expect(clippy::type_complexity, reason = "a combination that is wrong is told with its choices")]
    fn candidate(
        &self,
        choices: Vec<(String, String)>,
        tables: &Table,
        (catalogue, sources): (&Catalogue, &Sources<'_>),
    ) -> Result<Result<Candidate, Refused>, (Vec<(String, String)>, PlanError)> {
        let made = || -> Result<Result<Candidate, (Option<f64>, Unfit)>, PlanError> {
            let branch = |name: &str| match tables.get(name) {
                Some(Value::Table(table)) => table.clone(),
                _ => Table::new(),
            };
            let file = catalogue.sources.join(", ");
            let machine = Reader { catalogue, sources, file }.machine(&branch("machine"), &branch("hardware"))?;
            let cost = Some(machine.cost_per_month());
            let mut configuration = branch("configuration");
            if configuration.contains_key("hardware") {
                let problem = Problem::Conflict("a plan's hardware is its [machine]".to_owned());
                return Err(sources.error("configuration.hardware", problem, "[machine]", None).into());
            }
            if let Some(device) = missing_drives(&configuration, &branch("machine"), &machine) {
                return Ok(Err((cost, Unfit::NoDrives(device))));
            }
            shares(&mut configuration, &machine, sources)?;
            let text = toml::to_string(&configuration).expect("a table of TOML is TOML");
            let (mut small, mut workload) = (configuration.clone(), branch("workload"));
            let mut run = branch("run");
            run.remove("miniature");
            run.insert("batches".to_owned(), Value::Integer(1));
            let mut tables = Table::new();
            miniature::shrink(&mut small, &mut workload, self.miniature).map_err(|why| {
                let allowed = "miniature = 1, or a workload that has a size";
                sources.error("run.miniature", Problem::Conflict(why), allowed, None)
            })?;
            for (name, table) in [("configuration", small), ("workload", workload), ("run", run)] {
                tables.insert(name.to_owned(), Value::Table(table));
            }
            let setting = Setting::on_hardware(&tables, machine.hardware.clone(), sources)?;
            if matches!(setting.work, Work::Torture { .. } | Work::PageServer { .. }) {
                let problem = Problem::Conflict("that is no load that a machine is rented for".to_owned());
                let allowed =
                    "debit-credit, credit-card, tpc-c, ycsb, synthetic, trace, page-stream, nodes, sort, join";
                return Err(sources.error("workload.kind", problem, allowed, None).into());
            }
            let machine = match setting.work {
                Work::Nodes { nodes, .. } => machine.with_nodes(nodes).map_err(|why| {
                    let allowed = "'network' of the instance in a catalogue, or [hardware.network.NAME]; 'loopback' if all are on one";
                    sources.error("workload.kind", Problem::Conflict(why), allowed, None)
                })?,
                _ => machine,
            };
            let cost = Some(machine.cost_per_month());
            // What the smaller one has passed can be wrong only in sizes that the larger one has.
            let whole = Configuration::on_hardware("configuration", text.as_bytes(), machine.hardware.clone());
            let whole = whole.map_err(|error| match error {
                ConfigurationError::Wrong { mut findings } => {
                    sources.finding("configuration", &text, findings.swap_remove(0))
                }
                other => ExperimentError::Whole(other.to_string()),
            })?;
            let candidate = Candidate { choices: choices.clone(), machine, configuration, whole, setting };
            Ok(match candidate.find_unfit(&self.limits) {
                Some(unfit) => Err((cost, unfit)),
                None => Ok(candidate),
            })
        };
        match made() {
            Ok(Ok(candidate)) => Ok(Ok(candidate)),
            Ok(Err((cost_per_month, unfit))) => Ok(Err(Refused { choices, cost_per_month, unfit })),
            Err(error) => Err((choices, error)),
        }
    }
}

/// Every combination of one choice of each, the last changing fastest.
fn combinations(varies: &[Vary]) -> Vec<Vec<usize>> {
    varies.iter().fold(vec![Vec::new()], |before, vary| {
        let longer = |chosen: &Vec<usize>| {
            let chosen = chosen.clone();
            (0..vary.choices.len()).map(move |at| chosen.iter().copied().chain([at]).collect())
        };
        before.iter().flat_map(longer).collect()
    })
}

/// The instance, if the configuration puts something on drives that it does not have.
fn missing_drives(configuration: &Table, machine: &Table, found: &Machine) -> Option<String> {
    fn names(table: &Table, device: &str) -> bool {
        table.iter().any(|(key, value)| match value {
            Value::String(text) => (key == "device" || key == "second_device") && text == device,
            Value::Table(inner) => names(inner, device),
            _ => false,
        })
    }
    let local = machine.get("local").and_then(|local| local.get("name")).and_then(Value::as_str).unwrap_or("local");
    (!found.places.contains_key(local) && names(configuration, local)).then(|| found.instance.clone())
}

/// Writes sizes out that are shares: of the buffer, of the memory; of a cache, of its device.
fn shares(configuration: &mut Table, machine: &Machine, sources: &Sources<'_>) -> Result<(), PlanError> {
    for section in ["buffer", "cache", "upper_cache"] {
        let Some(Value::Table(table)) = configuration.get_mut(section) else { continue };
        let Some(text) = table.get("size").and_then(Value::as_str) else { continue };
        let Some(percent) = text.trim().strip_suffix('%') else { continue };
        let path = format!("{section}.size");
        let whole = if section == "buffer" {
            Some(machine.memory)
        } else {
            let device = table.get("device").and_then(Value::as_str);
            device.and_then(|device| machine.places.get(device)).map(|place| place.capacity)
        };
        let share = percent.trim().parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
        let (Some(whole), Some(share)) = (whole, share) else {
            let problem = Problem::OutOfRange { key: "size".to_owned(), value: text.to_owned() };
            let allowed = "a size, or a share such as \"70%\" of the memory (a cache: of its device)";
            return Err(sources.error(&format!("configuration.{path}"), problem, allowed, None).into());
        };
        // Whole units of 1 MiB read well, and are pages of every size.
        let bytes = ((whole as f64 * share / 100.0) as u64) >> 20 << 20;
        table.insert("size".to_owned(), Value::String(format!("{} MiB", bytes >> 20)));
        debug_assert_eq!(parse_size(&format!("{} MiB", bytes >> 20)).ok(), Some(bytes), "{}", format_size(bytes));
    }
    Ok(())
}

/// The tables that every candidate begins with.
fn trees(document: &Document) -> Result<Table, PlanError> {
    let mut trees = Table::new();
    for name in vary::TREES {
        match document.table.get(name) {
            Some(Value::Table(table)) => {
                let over = Table::from_iter([(name.to_owned(), Value::Table(table.clone()))]);
                overlay(&mut trees, &over);
            }
            Some(other) => return Err(document.wrong_type(name, other, "a table").into()),
            None => {}
        }
    }
    Ok(trees)
}

fn catalogue(document: &Document, read_file: ReadFile<'_>) -> Result<Catalogue, PlanError> {
    let names: Vec<String> = match document.value("catalogue") {
        None => Catalogue::names().map(str::to_owned).collect(),
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) if !names.is_empty() && names.iter().all(Value::is_str) => {
            names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(other) => return Err(document.wrong_type("catalogue", other, "a name or path, or a list of them").into()),
    };
    let mut all: Option<Catalogue> = None;
    for name in &names {
        let text = match Catalogue::text(name) {
            Some(text) => text.to_owned(),
            None if name.ends_with(".toml") => read_file(name).map_err(|error| PlanError::Unreadable {
                what: "catalogue",
                file: name.clone(),
                reason: error.to_string(),
            })?,
            None => {
                let known: Vec<&str> = Catalogue::names().collect();
                let near = nearest(name, known.iter().copied()).map(str::to_owned);
                let problem = Problem::NoSuch { what: "catalogue", name: name.clone() };
                let allowed = format!("{}, or the path of one ending in .toml", known.join(", "));
                return Err(document.at_value("catalogue", problem, &allowed, near).into());
            }
        };
        let next = Catalogue::parse(name, &text)?;
        match &mut all {
            None => all = Some(next),
            Some(all) => all.extend(next)?,
        }
    }
    Ok(all.expect("there is a catalogue"))
}

fn limits(document: &Document) -> Result<Limits, PlanError> {
    document.only("limits", "[limits]", &LIMITS)?;
    let duration =
        |key: &str| quantity(document, &format!("limits.{key}"), parse_duration_ns, "a duration such as \"20 ms\"");
    let number = |key: &str| positive(document, &format!("limits.{key}"));
    let mut survives = Vec::new();
    for at in 0..document.elements("limits.survives")? {
        let path = format!("limits.survives.{at}");
        let word = document.text_at(&path)?.unwrap_or_default();
        let known = Loss::WORDS.map(|(word, _)| word);
        let found = Loss::WORDS.iter().find(|(known, _)| *known == word).ok_or_else(|| {
            let near = nearest(&word, known.into_iter()).map(str::to_owned);
            let problem = Problem::NoSuch { what: "loss", name: word.clone() };
            document.at_value(&path, problem, &known.join(", "), near)
        })?;
        survives.push(found.1);
    }
    Ok(Limits {
        p99_ns: duration("p99")?,
        throughput_per_s: number("throughput")?,
        cost_per_month: number("cost")?,
        recovery_ns: duration("recovery")?,
        flash_years: number("flash_years")?,
        data: quantity(document, "limits.data", parse_size, "a size such as \"40 GB\"")?,
        survives,
    })
}

fn search(document: &Document) -> Result<Search, PlanError> {
    document.only("search", "[search]", &SEARCH)?;
    let usual = Search::default();
    Ok(Search {
        rounds: whole(document, "search.rounds", 1, 10)?.map_or(usual.rounds, |rounds| rounds as u32),
        factor: whole(document, "search.factor", 2, 64)?.unwrap_or(usual.factor),
        least: whole(document, "search.least", 1, 10_000)?.map_or(usual.least, |least| least as usize),
        time_ns: quantity(document, "search.time", parse_duration_ns, "a duration such as \"10 min\"")?,
    })
}

/// A quantity above zero at this path, if there is something.
fn quantity<E: std::fmt::Display>(
    document: &Document,
    path: &str,
    parse: impl Fn(&str) -> Result<u64, E>,
    allowed: &str,
) -> Result<Option<u64>, PlanError> {
    let Some(text) = document.text_at(path)? else { return Ok(None) };
    let key = path.rsplit('.').next().unwrap_or(path).to_owned();
    let problem = match parse(&text) {
        Ok(0) => Problem::OutOfRange { key, value: text },
        Ok(quantity) => return Ok(Some(quantity)),
        Err(error) => Problem::NotAQuantity { key, reason: error.to_string() },
    };
    Err(document.at_value(path, problem, allowed, None).into())
}

/// A number above zero at this path, if there is something.
fn positive(document: &Document, path: &str) -> Result<Option<f64>, PlanError> {
    let Some(value) = document.value(path) else { return Ok(None) };
    let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
    match number.filter(|number| *number > 0.0 && number.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => {
            let key = path.rsplit('.').next().unwrap_or(path).to_owned();
            let problem = Problem::OutOfRange { key, value: value.to_string() };
            Err(document.at_value(path, problem, "a number above zero", None).into())
        }
    }
}

/// A whole number within bounds at this path, if there is something.
fn whole(document: &Document, path: &str, least: u64, most: u64) -> Result<Option<u64>, PlanError> {
    let Some(value) = document.value(path) else { return Ok(None) };
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let key = path.rsplit('.').next().unwrap_or(path).to_owned();
            let problem = Problem::OutOfRange { key, value: value.to_string() };
            let allowed = format!("a whole number from {least} to {most}");
            Err(document.at_value(path, problem, &allowed, None).into())
        }
    }
}
