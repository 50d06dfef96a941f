//! `entresol reproduce`: a paper's experiments, and each of its claims beside what came out here.

mod machine;
mod machines;
mod network;
mod real;

use crate::bench::positive;
use crate::experiment::{Output, run_all};
use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, print};
use base::units::grouped_decimal;
use clap::Args;
use papers::outcome::{Results, Trial};
use papers::{Claim, Experiment, Extent, STUDIES, Study, Verdict, report, study};

/// Reproduces a paper's study: its experiments, and each of its claims beside ours
///
/// The experiments run on described hardware, in parallel over the cores; each run is seeded,
/// so the figures are the same everywhere. Those that run on this machine's clock run alone,
/// behind the others. A claim that does not come out is no failure: it is shown as 'differs',
/// with the reason.
///
/// With --real the server and the clients of franklin-1992 are processes of this machine, joined
/// by TCP over a network of their own that has the study's rate (network namespaces and tc, for
/// which it takes root), and their figures stand beside those of the virtual clock.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    arg_required_else_help = true,
    after_help = "Examples:\n  entresol reproduce rahm-1991 --quick\n  entresol reproduce rahm-1991 --report report\n  entresol reproduce system-m-1988 --report report\n  entresol reproduce lee-2008 --quick\n  entresol reproduce do-2011 --report report\n  entresol reproduce franklin-1992 --quick\n  entresol reproduce franklin-1992 --only ro-5-slow,ro-5-fast\n  entresol reproduce franklin-1992 --real --quick --minutes 20"
)]
pub struct Arguments {
    /// The study: rahm-1991, system-m-1988, lee-2008, do-2011, franklin-1992
    #[arg(value_name = "STUDY", value_parser = known)]
    pub study: String,
    /// Runs only these experiments, and judges what they are enough for
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',', conflicts_with = "real")]
    pub only: Vec<String>,
    /// Runs franklin-1992 for real: with processes that TCP joins
    #[arg(long)]
    pub real: bool,
    /// When runs over TCP end at the latest [default: 5 s for each]
    #[arg(long, value_name = "N", requires = "real", value_parser = positive)]
    pub minutes: Option<f64>,
    /// Over this machine's loopback as it is: without a rate or verdicts
    #[arg(long, requires = "real")]
    pub unshaped: bool,
    /// Is one of these processes
    #[arg(long, hide = true)]
    pub machine: bool,
    #[command(flatten)]
    pub output: Output,
}

fn known(id: &str) -> Result<String, String> {
    let names = || STUDIES.iter().map(|study| study.id()).collect::<Vec<_>>().join(", ");
    study::named(id).map(|study| study.id().to_owned()).ok_or_else(|| format!("the studies are: {}", names()))
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.machine {
        return machine::run();
    }
    let study = study::named(&arguments.study).expect("the argument was checked");
    if arguments.real {
        return real::run(study, arguments);
    }
    let experiments = experiments(study, arguments.output.extent(), &arguments.only)?;
    let progress = Progress::start("reproduce");
    let results = run_all(experiments, &progress)?;
    progress.finish();
    let mut claims = study::judge(study, &results, arguments.output.extent());
    let mut answers = study.answers(&results);
    if !arguments.only.is_empty() {
        claims.retain(|claim| claim.experiments.iter().all(|name| results.trial(name).is_some()));
        answers.clear();
    }
    arguments.output.write(|head| report::study(head, study, &claims, &answers, &results), &results)?;
    let failures = failures(&results);
    if arguments.output.json {
        let json = serde_json::json!({
            "study": study.id(), "claims": claims, "tables": study.tables(&results), "answers": answers,
            "failed_runs": failures,
        });
        return print(&serde_json::to_string_pretty(&json).expect("claims hold nothing that JSON cannot"));
    }
    print(&text(study, &claims, &answers, &failures))
}

/// The study's experiments, or these alone. They refer to nothing outside.
fn experiments(study: &dyn Study, extent: Extent, only: &[String]) -> Result<Vec<Experiment>, Failure> {
    let nothing =
        |name: &str| Err(std::io::Error::other(format!("a study's experiments name no files such as {name}")));
    let name_of = |file: &'static str| file.strip_suffix(".toml").unwrap_or(file);
    let names: Vec<&str> = study.experiments().iter().map(|(file, _)| name_of(file)).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("{} has no experiment '{unknown}'; it has {}", study.id(), names.join(", ")).into());
    }
    let is_wanted =
        |found: &&(&'static str, &'static str)| only.is_empty() || only.iter().any(|name| name == name_of(found.0));
    let read = |(file, text): &(&'static str, &'static str)| {
        Experiment::parse(file, text, extent, &crate::experiment::KEYS, &nothing).map_err(Failure::from)
    };
    study.experiments().iter().filter(is_wanted).map(read).collect()
}

/// Every run that failed, with its experiment and the reason.
fn failures(results: &Results) -> Vec<String> {
    let of = |trial: &Trial| {
        let name = trial.experiment.name.clone();
        trial.failures().map(|(at, failure)| format!("{name}, {at}: {failure}")).collect::<Vec<_>>()
    };
    results.trials.iter().flat_map(of).collect()
}

fn text(study: &dyn Study, claims: &[Claim], answers: &[papers::Answer], failures: &[String]) -> String {
    let mut parts = vec![wrapped(study.source())];
    let rows = claims.iter().map(|claim| {
        let ours = match claim.interval {
            Some([low, high]) => format!("{} [{}, {}]", claim.ours, figure(low), figure(high)),
            None => claim.ours.clone(),
        };
        vec![claim.id.clone(), claim.verdict.word().to_owned(), claim.paper.clone(), ours]
    });
    parts.push(table(&["claim", "", "paper", "here [90 % interval]"], 4, rows));
    for claim in claims {
        parts.push(wrapped(&format!("{} {}: {}\n{}", claim.id, claim.verdict.word(), claim.claim, claim.reason)));
    }
    for answer in answers {
        parts.push(wrapped(&format!("{}\n{}", answer.question, answer.answer)));
    }
    parts.extend(failures.iter().map(|failure| wrapped(&format!("Failed: {failure}"))));
    let count = |verdict: Verdict| {
        let count = claims.iter().filter(|claim| claim.verdict == verdict).count();
        format!("{count} {}", verdict.word())
    };
    parts.push(format!("{} claims: {}", claims.len(), Verdict::ALL.map(count).join(", ")));
    parts.join("\n\n")
}

fn figure(number: f64) -> String {
    grouped_decimal(number, if number.abs() >= 100.0 { 0 } else { 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_may_be_run_alone() {
        let study = study::named("franklin-1992").expect("it is one of them");
        let names = |only: &[&str]| -> Result<Vec<String>, String> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let found = experiments(study, Extent::Full, &only).map_err(|failure| failure.to_string())?;
            Ok(found.into_iter().map(|experiment| experiment.name).collect())
        };
        assert_eq!(names(&[]).map(|all| all.len()), Ok(study.experiments().len()));
        assert_eq!(names(&["rw-5-fast", "ro-5-slow"]), Ok(vec!["ro-5-slow".to_owned(), "rw-5-fast".to_owned()]));
        let refused = names(&["ro-6-slow"]).unwrap_err();
        assert!(refused.contains("no experiment 'ro-6-slow'") && refused.contains("ro-5-slow"), "{refused}");
    }
}
