//! Studies that can be reproduced: experiments, and what a paper claims of them.

use crate::{Estimate, Results};
use serde::Serialize;

/// A paper's study. A new one is one file that implements this, and one line in [`STUDIES`].
///
/// ```
/// use entresol_papers::{Results, Verdict, study};
///
/// let rahm = study::named("rahm-1991").expect("it is one of them");
/// println!("{}: {} experiments", rahm.source(), rahm.experiments().len());
/// let claims = rahm.claims(&Results::default());
/// assert!(claims.iter().all(|claim| claim.verdict() == Verdict::NotRun), "nothing was run yet");
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

    /// The questions that the paper asks, answered by what came out.
    fn answers(&self, results: &Results) -> Vec<Answer>;
}

/// Every study.
pub const STUDIES: [&dyn Study; 3] =
    [&crate::rahm_1991::Rahm1991, &crate::system_m_1988::SystemM1988, &crate::lee_2008::Lee2008];

/// The study of this name.
pub fn named(id: &str) -> Option<&'static dyn Study> {
    STUDIES.into_iter().find(|study| study.id() == id)
}

/// Whether what a paper says is found here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Holds,
    /// It is not.
    Differs,
    /// The run that would tell failed or was not made.
    NotRun,
}

impl Verdict {
    /// The verdict as a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::NotRun => "not run",
        }
    }
}

/// One claim of a paper and what was found of it.
///
/// ```
/// use entresol_papers::{Claim, Estimate, Verdict};
///
/// let ours = Estimate::of(&[1.9, 2.0, 2.1]);
/// let claim = Claim::new("R-1", "group commit doubles throughput", "2")
///     .judged(ours.with_unit("times"), (ours.mean - 2.0).abs() < 0.3, "the same within 15 %")
///     .with_interval(ours);
/// assert_eq!((claim.verdict(), claim.ours.as_str()), (Verdict::Holds, "2.00 times"));
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
    /// Whether the claim holds; `None` (null) if it was not run.
    pub holds: Option<bool>,
    /// Why it differs, or how the verdict was reached.
    pub reason: String,
}

impl Claim {
    /// A claim about which nothing is known yet.
    pub fn new(id: &str, claim: &str, paper: &str) -> Claim {
        let reason = "a run that it needs failed or does not exist".to_owned();
        let [id, claim, paper] = [id, claim, paper].map(str::to_owned);
        Claim { id, claim, paper, ours: "-".to_owned(), interval: None, holds: None, reason }
    }

    /// Judged: what was found, whether that agrees, and how the verdict was reached.
    pub fn judged(self, ours: impl Into<String>, holds: bool, reason: impl Into<String>) -> Claim {
        Claim { ours: ours.into(), holds: Some(holds), reason: reason.into(), ..self }
    }

    /// With the interval of the figure that decides.
    pub fn with_interval(self, estimate: Estimate) -> Claim {
        Claim { interval: estimate.interval(), ..self }
    }

    /// Judged by `judge`, which answers `None` if a run is missing.
    pub fn judge(self, judge: impl FnOnce(Claim) -> Option<Claim>) -> Claim {
        judge(self.clone()).unwrap_or(self)
    }

    /// Whether it holds.
    pub fn verdict(&self) -> Verdict {
        match self.holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Differs,
            None => Verdict::NotRun,
        }
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
