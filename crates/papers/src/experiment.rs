//! Experiments: a TOML file that names a base configuration, hardware and a workload, the parameters to vary and the outputs
//! to plot.
//!
//! The tables `configuration` (the database's own TOML), `hardware` (keys of a description, laid over the named one),
//! `workload` and `run` say what is run. A `[[series]]` lays its own tables over them; a `[[vary]]` gives one parameter, a
//! dotted path into these tables, several values. Several of them make a product. The first is the abscissa of the plots.
//! An `[[at]]` lays tables over all of these at some of its places.
//!
//! `run.time` in place of a parameter makes the abscissa the time of one run: its batches are the places, named by `values`.
//!
//! A parameter is any key of the configuration, the hardware or the workload. None is listed anywhere: each run's
//! tables are written out as TOML and read by the code that reads such a file, and what that refuses is shown at its
//! origin. An experiment on the real machine names "this machine" as its hardware; its runs follow the described ones,
//! one at a time, each in a directory that is removed afterwards.

pub mod document;
mod places;
mod read;
mod setting;

#[cfg(test)]
mod tests;

pub use setting::{Operation, Origin, Setting, Sources, Work};

use entresol::configuration::Finding;
use std::io;
use thiserror::Error;

/// Why there is no experiment.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// The text says something that is not allowed.
    #[error("{0}")]
    Wrong(Box<Finding>),
    /// The whole cannot be run for a reason that no line alone is to blame for.
    #[error("{0}")]
    Whole(String),
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// Fewer values (`quick` of `[[vary]]`) and shorter runs (`[quick]`).
    Quick,
}

/// An experiment, ready to be run.
///
/// ```
/// use entresol_papers::{Experiment, Extent};
///
/// let text = r#"
///     title = "How large a buffer pays"
///     base = "rahm-1991"
///     outputs = ["response_us.mean"]
///     [workload]
///     rate = 300
///     [[vary]]
///     parameter = "configuration.buffer.size"
///     values = [200, 1_000]
///     unit = "256 B"
///     name = "main-memory buffer (pages)"
///     [[vary]]
///     parameter = "configuration.commit.update"
///     values = ["noforce", "force"]
/// "#;
/// let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
/// let experiment = Experiment::parse("buffer.toml", text, Extent::Full, &["response_us"], &no_files)?;
/// assert_eq!((experiment.lines.len(), experiment.points.len()), (2, 4), "two curves of two places each");
///
/// let text = text.replace("buffer.size", "buffer.sise");
/// let wrong = Experiment::parse("buffer.toml", &text, Extent::Full, &["response_us"], &no_files).unwrap_err();
/// assert!(wrong.to_string().contains("sise"), "{wrong}");
/// # Ok::<(), entresol_papers::ExperimentError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's name without directory and extension.
    pub name: String,
    /// `title`: what the experiment is called in the report.
    pub title: String,
    /// `about`: what it is for, in sentences.
    pub about: String,
    /// The abscissa: what is varied along it.
    pub x: Axis,
    /// Whether the abscissa is the time of one run for each curve: its places are the run's batches.
    pub over_time: bool,
    /// The curves, each with its name: every series with every combination of the other parameters.
    pub lines: Vec<String>,
    /// `outputs`: what is plotted.
    pub outputs: Vec<Output>,
    /// Every run, curve by curve, each in the order of the abscissa.
    pub points: Vec<Point>,
}

/// The abscissa of an experiment's plots.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with the unit.
    pub name: String,
    /// Its places in ascending order as they were written, with their labels.
    pub values: Vec<(f64, String)>,
    /// Whether the labels are names of things rather than quantities.
    pub named: bool,
    /// Whether equal ratios take equal room on it: the values grow by about the same factor, or `axis` says so.
    pub is_logarithmic: bool,
}

/// One output to plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The dotted path in a run's JSON report. The elements of arrays are named by their key `name`.
    pub path: String,
    /// What is plotted, with the unit.
    pub label: String,
    /// What a value is multiplied with to be in that unit.
    pub factor: f64,
    /// Whose figure at the same place it is divided by; `None`: it is shown as it is.
    pub relative_to: Option<String>,
    /// The upper end of the axis; `None`: as the values need it.
    pub y_max: Option<f64>,
    /// Of an output that is a table: at which place of the abscissa its composition is shown; `None`: in the middle.
    pub at: Option<f64>,
    /// The picture or table of the paper that shows the same, such as "figure 4.1".
    pub figure: Option<String>,
    /// `[[paper]]`: values that the paper gives.
    pub marks: Vec<Mark>,
}

/// A value that the paper gives for a place of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The curve.
    pub line: String,
    /// The place on the abscissa.
    pub x: f64,
    /// The value, in the unit of the plot.
    pub y: f64,
    /// Where the paper says so.
    pub source: String,
}

/// One run of an experiment.
#[derive(Clone, Debug)]
pub struct Point {
    /// The number of its curve.
    pub line: usize,
    /// The number of its place on the abscissa.
    pub x: usize,
    /// What is run.
    pub setting: Setting,
}

/// An experiment with every key and its meaning.
pub const REFERENCE: &str = include_str!("experiment/reference.toml");

/// A reader of the files that an experiment names: their paths are relative to it.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

impl Experiment {
    /// Reads the experiment that `text` describes; `file` names it in messages. `outputs` are the names that a run's report
    /// has at its top.
    ///
    /// # Errors
    /// [`ExperimentError`] with the place and what is allowed there.
    pub fn parse(
        file: &str,
        text: &str,
        extent: Extent,
        outputs: &[&str],
        read_file: ReadFile<'_>,
    ) -> Result<Experiment, ExperimentError> {
        read::experiment(file, text, extent, outputs, read_file)
    }
}

impl Output {
    /// The output at this path, with a label and a unit that its name suggests.
    pub fn of(path: &str) -> Output {
        let known = [
            ("response_us.mean", "mean response time (ms)"),
            ("response_us.p95", "95 % response time (ms)"),
            ("composition_us", "composition of the response time (ms)"),
            ("throughput_per_s", "throughput (transactions/s)"),
            ("cpu_us_per_transaction", "CPU time per transaction (ms)"),
        ];
        let named = known.iter().find(|(known, _)| *known == path).map(|(_, label)| (*label).to_owned());
        let [is_us, is_share] = [path.contains("_us"), path.contains("hit_ratio") || path.ends_with("utilization")];
        let (factor, unit) = match (is_us, is_share) {
            (true, _) => (1e-3, " (ms)"),
            (_, true) => (100.0, " (%)"),
            _ => (1.0, ""),
        };
        let label = named.unwrap_or_else(|| format!("{}{unit}", path.replace(['_', '.'], " ")));
        Output {
            path: path.to_owned(),
            label,
            factor,
            relative_to: None,
            y_max: None,
            at: None,
            figure: None,
            marks: Vec::new(),
        }
    }
}
