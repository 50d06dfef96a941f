//! Studies that can be reproduced: experiments, and what a paper claims of them.
//!
//! What follows from a parameter that was calibrated on it, or from another claim, is shown and not counted.

use crate::{Estimate, Extent, Results};
use serde::Serialize;

/// A paper's study. A new one is one file that implements this, and one line in [`STUDIES`].
///
/// ```
/// use entresol_papers::{Results, Verdict, study};
///
/// let rahm = study::named("rahm-1991").expect("it is one of them");
/// println!("{}: {} experiments", rahm.source(), rahm.experiments().len());
/// let claims = rahm.claims(&Results::default());
/// assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun), "nothing was run yet");
/// ```
pub trait Study: Sync {
    /// Its name, such as `rahm-1991`.
    fn id(&self) -> &'static str;

    /// Author, title, year and place.
    fn source(&self) -> &'static str;

    /// The experiments: the file names and texts.
    fn experiments(&self) -> &'static [(&'static str, &'static str)];

    /// What the paper leaves open and what was chosen.
    fn choices(&self) -> &'static [&'static str];

    /// Each claim of the paper, judged by what came out.
    fn claims(&self, results: &Results) -> Vec<Claim>;

    /// Tables of the paper, beside what came out. Without runs their cells are empty.
    fn tables(&self, results: &Results) -> Vec<Table> {
        let _ = results;
        Vec::new()
    }

    /// The questions that the paper asks, answered by what came out.
    fn answers(&self, results: &Results) -> Vec<Answer>;
}

/// Every study.
pub const STUDIES: [&dyn Study; 5] = [
    &crate::rahm_1991::Rahm1991,
    &crate::system_m_1988::SystemM1988,
    &crate::lee_2008::Lee2008,
    &crate::do_2011::Do2011,
    &crate::franklin_1992::Franklin1992,
];

/// The study of this name.
pub fn named(id: &str) -> Option<&'static dyn Study> {
    STUDIES.into_iter().find(|study| study.id() == id)
}

/// The claims of a study, judged by what came out; of those that were not run it is said whether the extent left them out.
pub fn judge(study: &dyn Study, results: &Results, extent: Extent) -> Vec<Claim> {
    let has_failed = |name: &String| results.trial(name).is_some_and(|trial| trial.failures().next().is_some());
    let mut claims = study.claims(results);
    for claim in claims.iter_mut().filter(|claim| claim.verdict == Verdict::NotRun) {
        if extent == Extent::Quick && !claim.experiments.iter().any(has_failed) {
            claim.reason = "not in the quick run".to_owned();
        }
    }
    claims
}

/// Whether what a paper says is found here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is.
    Holds,
    /// It is not.
    Differs,
    /// The interval of the figure that decides reaches over the limit.
    Undecided,
    /// It follows from a parameter that was calibrated on it, or from another claim: shown, and not counted.
    Calibrated,
    /// The run that would tell failed or was not made.
    NotRun,
}

impl Verdict {
    /// Every verdict, in the order in which they are counted.
    pub const ALL: [Verdict; 5] =
        [Verdict::Holds, Verdict::Differs, Verdict::Undecided, Verdict::Calibrated, Verdict::NotRun];

    /// The verdict as a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::Undecided => "undecided",
            Verdict::Calibrated => "calibrated",
            Verdict::NotRun => "not run",
        }
    }

    /// What several conditions say together: one that differs decides, then one that is undecided.
    pub fn all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let mut all = Verdict::Holds;
        for verdict in verdicts {
            match verdict {
                Verdict::Differs => return Verdict::Differs,
                Verdict::Undecided => all = Verdict::Undecided,
                Verdict::Holds | Verdict::Calibrated | Verdict::NotRun => {}
            }
        }
        all
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Differs }
    }
}

/// One claim of a paper and what was found of it.
///
/// ```
/// use entresol_papers::{Claim, Estimate, Verdict};
///
/// let ours = Estimate::of(&[1.9, 2.0, 2.1]);
/// let claim = Claim::new("R-1", "group commit doubles throughput", "2")
///     .judged(ours.with_unit("times"), ours.within(1.7..=2.3), "the same within 15 %")
///     .with_interval(ours);
/// assert_eq!((claim.verdict, claim.ours.as_str()), (Verdict::Holds, "2.00 times"));
/// assert_eq!(ours.within(2.05..=2.3), Verdict::Undecided, "the interval reaches over the limit");
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Its name in the list of claims.
    pub id: String,
    /// What is claimed.
    pub claim: String,
    /// The paper's figure.
    pub paper: String,
    /// Ours, with units.
    pub ours: String,
    /// The 90 % confidence interval of ours, in the unit of `ours`; `None` (null) where no single figure decides or one run
    /// alone gave it.
    pub interval: Option<[f64; 2]>,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Why it differs, or how the verdict was reached.
    pub reason: String,
    /// The experiments by which it is judged.
    pub experiments: Vec<String>,
}

impl Claim {
    /// A claim about which nothing is known yet.
    pub fn new(id: &str, claim: &str, paper: &str) -> Claim {
        let reason = "a run that it needs failed".to_owned();
        let [id, claim, paper] = [id, claim, paper].map(str::to_owned);
        let (ours, verdict) = ("-".to_owned(), Verdict::NotRun);
        Claim { id, claim, paper, ours, interval: None, verdict, reason, experiments: Vec::new() }
    }

    /// Judged: what was found, whether that agrees, and how the verdict was reached.
    pub fn judged(self, ours: impl Into<String>, verdict: impl Into<Verdict>, reason: impl Into<String>) -> Claim {
        Claim { ours: ours.into(), verdict: verdict.into(), reason: reason.into(), ..self }
    }

    /// With the interval of the figure that decides.
    pub fn with_interval(self, estimate: Estimate) -> Claim {
        Claim { interval: estimate.interval(), ..self }
    }

    /// Judged by `judge`, which answers `None` if a run is missing.
    pub fn judge(self, judge: impl FnOnce(Claim) -> Option<Claim>) -> Claim {
        judge(self.clone()).unwrap_or(self)
    }

    /// Not to be counted where it holds, because it holds by calibration or follows from another claim, as `why` says. Where it
    /// does not hold even so, that counts.
    pub fn calibrated(mut self, why: &str) -> Claim {
        if self.verdict == Verdict::Holds {
            self.verdict = Verdict::Calibrated;
        }
        self.reason = format!("{} {why}", self.reason).trim().to_owned();
        self
    }

    /// With one more experiment by which it is judged.
    pub fn seen_in(mut self, experiment: &str) -> Claim {
        self.experiments.push(experiment.to_owned());
        self
    }
}

/// A table of a paper, with what came out here beside each of its cells.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Its name in the list of claims, or a word.
    pub id: String,
    /// What it shows, with the unit, and which table of the paper it is.
    pub title: String,
    /// The names of its columns of figures.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// How many places its figures have.
    pub places: usize,
}

/// A row of a [`Table`].
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// A cell of a [`Table`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// The mean that came out; `None` (null) if the run is missing.
    pub ours: Option<f64>,
    /// Half the width of its 90 % confidence interval.
    pub half_width90: Option<f64>,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// How far they may be apart, if that was asked.
    pub tolerance: Option<f64>,
}

impl Cell {
    /// A figure beside the paper's.
    pub fn new(ours: Option<Estimate>, paper: f64) -> Cell {
        let half_width90 = ours.and_then(|ours| ours.half_width);
        Cell { ours: ours.map(|ours| ours.mean), half_width90, paper: Some(paper), tolerance: None }
    }

    /// Whether it is as near to the paper's as was asked; `None` if nothing was asked or it is missing.
    pub fn verdict(&self) -> Option<Verdict> {
        let (ours, paper, tolerance) = (self.ours?, self.paper?, self.tolerance?);
        let ours = Estimate { mean: ours, half_width: self.half_width90 };
        Some(ours.within(paper - tolerance..=paper + tolerance))
    }
}

/// A question of a study and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// The answer, drawn from the runs.
    pub answer: String,
}

impl Answer {
    /// The answers to these questions; `None` where a run that would tell is missing.
    pub(crate) fn all<const N: usize>(questions: [(&str, Option<String>); N]) -> Vec<Answer> {
        let answer = |(question, answer): (&str, Option<String>)| Answer {
            question: question.to_owned(),
            answer: answer.unwrap_or_else(|| "The runs that would tell are missing.".to_owned()),
        };
        questions.into_iter().map(answer).collect()
    }
}

/// Every experiment of a study can be read and has something to run; `outputs` are all names that their outputs begin with.
#[cfg(test)]
pub(crate) fn assert_readable(study: &dyn Study, outputs: &[&str]) {
    use crate::{Experiment, Extent};
    for (file, text) in study.experiments() {
        for extent in [Extent::Full, Extent::Quick] {
            let nothing = |_: &str| Err(std::io::Error::other("nothing"));
            let experiment = Experiment::parse(file, text, extent, outputs, &nothing);
            let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
            assert!(!experiment.points.is_empty() && !experiment.about.is_empty(), "{file}");
        }
    }
}

/// An experiment of a study, all whose points came out as `outcome` says of their line and their place on the axis.
#[cfg(test)]
pub(crate) fn canned(
    study: &dyn Study,
    outputs: &[&str],
    name: &str,
    outcome: impl Fn(&str, f64) -> crate::outcome::Outcome,
) -> crate::outcome::Trial {
    use crate::{Experiment, Extent};
    let (file, text) = study.experiments().iter().find(|(file, _)| *file == format!("{name}.toml")).unwrap();
    let nothing = |_: &str| Err(std::io::Error::other("nothing"));
    let experiment = Experiment::parse(file, text, Extent::Full, outputs, &nothing);
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    let points = experiment.points.iter();
    let outcomes = points.map(|point| outcome(&experiment.lines[point.line], experiment.x.values[point.x].0)).collect();
    crate::outcome::Trial { experiment, outcomes }
}

/// The same results from two batches each whose figures are half and one and a half times what they were: each interval is more than
/// three times its mean to either side, so that hardly anything can be told by them.
#[cfg(test)]
pub(crate) fn uncertain(mut results: Results) -> Results {
    use serde_json::{Value, json};
    fn scaled(value: &Value, factor: f64) -> Value {
        match value {
            Value::Number(number) => json!(number.as_f64().expect("a figure") * factor),
            Value::Array(elements) => elements.iter().map(|element| scaled(element, factor)).collect(),
            Value::Object(table) => table.iter().map(|(key, inner)| (key.clone(), scaled(inner, factor))).collect(),
            other => other.clone(),
        }
    }
    for outcome in results.trials.iter_mut().flat_map(|trial| &mut trial.outcomes) {
        outcome.reports =
            outcome.reports.iter().flat_map(|report| [0.5, 1.5].map(|factor| scaled(report, factor))).collect();
    }
    results
}

/// The names of the claims that such results show or refute all the same.
#[cfg(test)]
pub(crate) fn certain_all_the_same(study: &dyn Study, results: Results) -> Vec<String> {
    let claims = study.claims(&uncertain(results)).into_iter();
    claims
        .filter(|claim| ![Verdict::Undecided, Verdict::NotRun].contains(&claim.verdict))
        .map(|claim| claim.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Outcome, Trial};

    const KEYS: [&str; 3] = ["throughput_per_s", "cpu_us_per_transaction", "response_us"];

    #[test]
    fn what_a_quick_run_leaves_out_is_not_called_a_failure() {
        let study = named("lee-2008").expect("it is one of them");
        let reason = |results: &Results, extent| {
            let claims = judge(study, results, extent);
            claims.into_iter().find(|claim| claim.id == "L-4 flash, this machine").expect("it is one of them").reason
        };
        assert_eq!(reason(&Results::default(), Extent::Quick), "not in the quick run");
        assert_eq!(reason(&Results::default(), Extent::Full), "a run that it needs failed");
        let failed = |_: &str, _: f64| Outcome { failure: Some("no space".to_owned()), ..Outcome::default() };
        let trial: Trial = canned(study, &KEYS, "this-machine-tpc-b", failed);
        assert_eq!(reason(&Results { trials: vec![trial] }, Extent::Quick), "a run that it needs failed");
    }
}
