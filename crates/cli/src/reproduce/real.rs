//! `entresol reproduce franklin-1992 --real`: the study's server and clients as processes that TCP joins, beside the virtual clock.

use super::machines::{RunOverTcp, go_on, pause};
use super::network::ShapedNetwork;
use super::{Arguments, failures, figure};
use crate::experiment::{KEYS, report_head, run_all, write_report};
use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, print};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::{format_duration_ns, grouped_decimal};
use node::algorithm;
use papers::experiment::Work;
use papers::outcome::{Outcome, Results, Trial};
use papers::over_tcp::{self, Agreement, BATCHES, EXPERIMENTS, ROUNDS, SPEED, STUDY};
use papers::{Claim, Estimate, Experiment, Study, Verdict, report};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use workload::Load;

/// How long a run takes unless it is said, and at least, in nanoseconds.
const RUN_NS: u64 = 5 * SECOND_NS;
const RUN_NS_MIN: u64 = SECOND_NS;
/// What beginning and ending a run takes, about, in nanoseconds.
const AROUND_NS: u64 = 600 * MILLISECOND_NS;
/// A network that has no rate of ours carries this many bytes a second on the described machines.
const UNSHAPED: f64 = 10e9;
/// A share of this machine's processors that is most of them.
const BUSY: f64 = 0.75;
/// How often it is said how far the runs are where no line shows it, in nanoseconds.
const TELL_NS: u64 = 60 * SECOND_NS;
/// What a message takes the paper's machines, in instructions, and how fast these are (table 4).
const MESSAGE: f64 = 20_000.0;
const SERVER_MIPS: f64 = 30.0;
const CLIENT_MIPS: f64 = 15.0;
/// What is compared: its path, and its places.
const FIGURES: [(&str, usize); 3] =
    [("throughput_per_s", 1), ("page_server.disk_reads_per_commit", 2), ("page_server.messages_per_commit", 2)];

/// What all runs over TCP have taken.
#[derive(Default)]
struct Taken {
    cpu_ns: u64,
    messages: u64,
    /// The most processors that were at work in a run.
    processors: f64,
    /// The runs that had most of them at work: there these limit.
    busy: BTreeSet<String>,
    /// How many runs had no time.
    not_run: u64,
}

/// Everything that came out.
struct OnBothClocks {
    /// With the curves of both clocks.
    results: Results,
    here: Vec<Claim>,
    virtual_clock: Vec<Claim>,
    notes: Vec<String>,
    agreement: Option<Agreement>,
}

pub fn run(study: &dyn Study, arguments: &Arguments) -> Result<(), Failure> {
    if study.id() != STUDY {
        return Err(format!("--real is for {STUDY}; the other studies have no processes").into());
    }
    let extent = arguments.output.extent();
    real_driver::note_end_requests();
    let progress = Progress::start("reproduce");
    let mut experiments = EXPERIMENTS
        .iter()
        .map(|name| over_tcp::experiment(name, extent, &KEYS))
        .collect::<Result<Vec<Experiment>, _>>()?;
    let run_ns = run_length(&experiments, arguments.minutes)?;
    over_tcp::set_length(&mut experiments, run_ns);
    let (real, taken) = run_real(&experiments, arguments, &progress)?;
    let message_ns = taken.cpu_ns as f64 / (2 * taken.messages).max(1) as f64;
    over_tcp::set_price(&mut experiments, message_ns);
    if arguments.unshaped {
        unshape(&mut experiments);
    }
    let virtual_clock = run_all(experiments, &progress)?;
    go_on()?;
    progress.finish();
    let [here, virtual_claims] = [&real, &virtual_clock].map(|results| judged(results, arguments));
    let pairs = real.trials.into_iter().zip(virtual_clock.trials);
    let trials: Vec<Trial> = pairs.map(|(real, other)| over_tcp::both(real, other)).collect();
    let compared = OnBothClocks {
        here,
        virtual_clock: virtual_claims,
        notes: notes(arguments, run_ns, (&taken, message_ns)),
        agreement: over_tcp::agreement(&trials),
        results: Results { trials },
    };
    compared.tell(study, arguments)
}

/// The claims as a clock's results judge them. Over a network without a rate none is.
fn judged(results: &Results, arguments: &Arguments) -> Vec<Claim> {
    let nothing = Results::default();
    let mut claims = over_tcp::claims(if arguments.unshaped { &nothing } else { results }, arguments.output.extent());
    if arguments.unshaped {
        claims.iter_mut().for_each(|claim| claim.reason = "the network had no rate".to_owned());
    }
    claims
}

/// How long each run takes, warm-up and all.
fn run_length(experiments: &[Experiment], minutes: Option<f64>) -> Result<u64, Failure> {
    let runs = experiments.iter().map(|experiment| experiment.points.len()).sum::<usize>() as u64 * u64::from(ROUNDS);
    let Some(minutes) = minutes else { return Ok(RUN_NS) };
    let each_ns = (minutes * 60e9 / runs as f64) as u64;
    if each_ns < RUN_NS_MIN + AROUND_NS {
        let least = ((RUN_NS_MIN + AROUND_NS) * runs) as f64 / 60e9;
        return Err(format!("{runs} runs take {} minutes at least", least.ceil()).into());
    }
    Ok(each_ns - AROUND_NS)
}

fn unshape(experiments: &mut [Experiment]) {
    for point in experiments.iter_mut().flat_map(|experiment| &mut experiment.points) {
        let networks =
            point.setting.configuration.hardware.iter_mut().flat_map(|hardware| hardware.networks.values_mut());
        for bandwidth in networks.filter_map(|network| network.bandwidth.as_mut()) {
            bandwidth.0 = UNSHAPED;
        }
    }
}

/// Runs every point over TCP, one after the other; all of a round before any of the next, so that what else this machine does comes to all.
fn run_real(
    experiments: &[Experiment],
    arguments: &Arguments,
    progress: &Progress,
) -> Result<(Results, Taken), Failure> {
    let empty = |experiment: &Experiment| {
        let outcomes = vec![Outcome::default(); experiment.points.len()];
        Trial { experiment: experiment.clone(), outcomes }
    };
    let mut trials: Vec<Trial> = experiments.iter().map(empty).collect();
    let points: usize = experiments.iter().map(|experiment| experiment.points.len()).sum();
    let (mut taken, mut done, runs) = (Taken::default(), 0, points as u64 * u64::from(ROUNDS));
    let (limit_ns, mut told_ns) = (arguments.minutes.map(|minutes| (minutes * 60e9) as u64), 0);
    for round in 0..ROUNDS {
        for trial in &mut trials {
            if is_over(progress.elapsed_ns(), limit_ns) {
                continue;
            }
            let rate = rate(&trial.experiment)?;
            let network = if arguments.unshaped { None } else { Some(ShapedNetwork::new(rate.1 as u64)?) };
            for index in 0..trial.experiment.points.len() {
                let elapsed_ns = progress.elapsed_ns();
                if is_over(elapsed_ns, limit_ns) {
                    break;
                }
                progress.step("running over TCP", done, runs);
                if progress.is_hidden() && elapsed_ns - told_ns >= TELL_NS {
                    told_ns = elapsed_ns;
                    progress
                        .tell(&format!("{done} of {runs} runs over TCP in {}", format_duration_ns(elapsed_ns as f64)));
                }
                done += 1;
                let run = run_of(&trial.experiment, (index, round), (&rate.0, rate.1), arguments.output.quick)?;
                let ran = match run.run(network.as_ref()) {
                    Ok(ran) => ran,
                    Err(failure) if real_driver::is_end_requested() => return Err(failure),
                    Err(failure) => {
                        trial.outcomes[index].failure.get_or_insert(failure.to_string());
                        // Not to run through all of them in no time.
                        pause(SECOND_NS)?;
                        continue;
                    }
                };
                taken.cpu_ns += ran.cpu_ns;
                taken.messages += ran.messages;
                taken.note(ran.cpu_ns as f64 / run.measured_ns as f64, &trial.experiment, index);
                trial.outcomes[index].reports.extend(ran.reports);
            }
        }
    }
    taken.not_run = runs - done;
    for trial in &mut trials {
        for outcome in trial.outcomes.iter_mut().filter(|outcome| outcome.reports.is_empty()) {
            outcome.failure.get_or_insert_with(|| "the minutes were over before it could run over TCP".to_owned());
        }
    }
    Ok((Results { trials }, taken))
}

/// Whether the time of all runs is over, if they have a limit.
fn is_over(elapsed_ns: u64, limit_ns: Option<u64>) -> bool {
    limit_ns.is_some_and(|limit_ns| elapsed_ns >= limit_ns)
}

/// The network of an experiment, and what it carries in a second, in bytes.
fn rate(experiment: &Experiment) -> Result<(String, f64), Failure> {
    let setting = &experiment.points.first().ok_or("the experiment has no runs")?.setting;
    let Work::PageServer { model, .. } = &setting.work else { return Err("the experiment has no page server".into()) };
    let network = setting.configuration.hardware.as_ref().and_then(|hardware| hardware.networks.get(&model.network));
    let bandwidth = network.and_then(|network| network.bandwidth).ok_or("the experiment's network has no rate")?;
    Ok((model.network.clone(), bandwidth.0))
}

fn run_of<'a>(
    experiment: &'a Experiment,
    (index, round): (usize, u32),
    network: (&'a str, f64),
    quick: bool,
) -> Result<RunOverTcp<'a>, Failure> {
    let setting = &experiment.points[index].setting;
    let (Work::PageServer { model, .. }, Load::Closed { clients }) = (&setting.work, setting.plan.load) else {
        return Err("the experiment has no clients of a page server".into());
    };
    let ns = |length| match length {
        workload::Length::Time(ns) => ns,
        workload::Length::Transactions(_) => RUN_NS,
    };
    Ok(RunOverTcp {
        experiment: &experiment.name,
        quick,
        point: index,
        seed: setting.plan.seed + u64::from(round),
        clients,
        forwards: algorithm::named(&model.algorithm).is_some_and(algorithm::Algorithm::forwards),
        warm_up_ns: ns(setting.plan.warm_up),
        measured_ns: ns(setting.plan.measure),
        batches: BATCHES,
        network,
    })
}

impl Taken {
    /// A run has had this number of processors at work.
    fn note(&mut self, processors: f64, experiment: &Experiment, index: usize) {
        self.processors = self.processors.max(processors);
        if processors > BUSY * all_processors() as f64 {
            let point = &experiment.points[index];
            let (line, (_, clients)) = (&experiment.lines[point.line], &experiment.x.values[point.x]);
            self.busy.insert(format!("{} {line} {clients}", experiment.name));
        }
    }
}

fn all_processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a reader has to know.
fn notes(arguments: &Arguments, run_ns: u64, (taken, message_ns): (&Taken, f64)) -> Vec<String> {
    let network = if arguments.unshaped {
        "The network is this machine's loopback as it is, without a rate: no claim is judged.".to_owned()
    } else {
        let headers = "headers of packets do not count";
        format!(
            "The network is one medium: the loopback of a namespace, with a token bucket (tc tbf) of 10 or 100 MB/s, {SPEED} times the \
             paper's; {headers}. A bucket that is full lets a packet pass at once, so an idle network takes somewhat less time here."
        )
    };
    let busy = if taken.busy.is_empty() {
        String::new()
    } else {
        let names = taken.busy.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!(
            " They limit where more than three quarters of them were, which is not so under the virtual clock: {names}."
        )
    };
    let mut notes = vec![
        format!(
            "The server and each client were processes, joined by TCP. Disks are described devices on the wall clock ({SPEED} times as \
             fast as the paper's, on files in memory), logs take what this machine takes, and a client sleeps while it processes a page."
        ),
        network,
        format!(
            "A message took {} of CPU at each end in the mean, which the described machines have as its price; the paper's {} \
             instructions are {} at the server and {} at a client that are {SPEED} times as fast. At most {:.1} of {} processors were at \
             work.{busy}",
            format_duration_ns(message_ns),
            grouped_decimal(MESSAGE, 0),
            format_duration_ns(MESSAGE / (SERVER_MIPS * SPEED) * 1e3),
            format_duration_ns(MESSAGE / (CLIENT_MIPS * SPEED) * 1e3),
            taken.processors,
            all_processors()
        ),
        format!(
            "Each run took {} on either clock, a third of it to warm up; {ROUNDS} runs with seeds of their own, {BATCHES} batches of each.",
            format_duration_ns(run_ns as f64)
        ),
    ];
    if taken.not_run > 0 {
        notes.insert(0, format!("{} runs over TCP were not made: the minutes were over.", taken.not_run));
    }
    notes
}

impl OnBothClocks {
    fn tell(&self, study: &dyn Study, arguments: &Arguments) -> Result<(), Failure> {
        let answers = if arguments.unshaped { Vec::new() } else { study.answers(&self.results) };
        if let Some(directory) = &arguments.output.report {
            let head = report_head(arguments.output.extent());
            let page = report::study(&head, study, &self.here, &answers, &self.results);
            let file = write_report(directory, &page, &report::to_json(&self.results))?;
            eprintln!("report: {}", file.display());
        }
        let failures = failures(&self.results);
        if arguments.output.json {
            let json = json!({
                "study": study.id(), "notes": self.notes, "claims": self.here, "claims_virtual": self.virtual_clock,
                "runs": self.rows().collect::<Vec<Value>>(),
                "agreement": self.agreement.map(|agreement| json!({
                    "throughput_ratio": agreement.ratios, "pairs": agreement.pairs, "same_order": agreement.same,
                })),
                "failed_runs": failures,
            });
            return print(&serde_json::to_string_pretty(&json).expect("figures hold nothing that JSON cannot"));
        }
        print(&self.text(study, &failures))
    }

    /// Of each run on both clocks the figures that are compared.
    fn rows(&self) -> impl Iterator<Item = Value> {
        let of_trial = |trial: &Trial| {
            let lines = trial.experiment.lines.len() / 2;
            let places: Vec<f64> = trial.places().collect();
            let mut rows = Vec::new();
            for place in places {
                for line in &trial.experiment.lines[..lines] {
                    let mut row = json!({ "experiment": trial.experiment.name, "clients": place, "algorithm": line });
                    for (path, _) in FIGURES {
                        let name = path.rsplit('.').next().unwrap_or(path);
                        let both = over_tcp::beside(trial, line, place, path);
                        row[name] = json!(both.map(|both| both.map(|one| json!({
                            "mean": one.mean, "half_width90": one.half_width,
                        }))));
                    }
                    rows.push(row);
                }
            }
            rows
        };
        self.results.trials.iter().flat_map(of_trial)
    }

    fn text(&self, study: &dyn Study, failures: &[String]) -> String {
        let mut parts = vec![wrapped(study.source())];
        parts.extend(self.notes.iter().map(|note| wrapped(note)));
        parts.extend(self.results.trials.iter().map(trial_text));
        parts.push(self.claims_text());
        for claim in &self.here {
            parts.push(wrapped(&format!("{} {}: {}\n{}", claim.id, claim.verdict.word(), claim.claim, claim.reason)));
        }
        if let Some(Agreement { ratios: [low, middle, high], pairs, same }) = self.agreement {
            parts.push(wrapped(&format!(
                "Throughput here is {middle:.2} of the virtual clock's in the median, from {low:.2} to {high:.2}. Of {pairs} pairs of \
                 algorithms whose order neither clock leaves open, {same} have the same order on both."
            )));
        }
        parts.extend(failures.iter().map(|failure| wrapped(&format!("Failed: {failure}"))));
        for (clock, claims) in [("over TCP", &self.here), ("virtual clock", &self.virtual_clock)] {
            let count = |verdict: Verdict| {
                format!("{} {}", claims.iter().filter(|claim| claim.verdict == verdict).count(), verdict.word())
            };
            parts.push(format!("{clock}: {} claims: {}", claims.len(), Verdict::ALL.map(count).join(", ")));
        }
        parts.join("\n\n")
    }

    /// Each claim as both clocks judge it.
    fn claims_text(&self) -> String {
        let rows = self.here.iter().zip(&self.virtual_clock).map(|(here, other)| {
            let ours = match here.interval {
                Some([low, high]) => format!("{} [{}, {}]", here.ours, figure(low), figure(high)),
                None => here.ours.clone(),
            };
            let words = [here.verdict.word(), other.verdict.word()].map(str::to_owned);
            let [tcp, clock] = words;
            vec![here.id.clone(), tcp, clock, here.paper.clone(), ours]
        });
        table(&["claim", "TCP", "virtual", "paper", "over TCP [90 % interval]"], 5, rows)
    }
}

/// What came out of an experiment on both clocks.
fn trial_text(trial: &Trial) -> String {
    let lines = trial.experiment.lines.len() / 2;
    let mut rows = Vec::new();
    for place in trial.places().collect::<Vec<_>>() {
        for line in &trial.experiment.lines[..lines] {
            let mut row = vec![format!("{place}"), line.clone()];
            for (path, places) in FIGURES {
                let both = over_tcp::beside(trial, line, place, path);
                let shown =
                    |one: Option<Estimate>| one.map_or_else(|| "-".to_owned(), |one| grouped_decimal(one.mean, places));
                let [here, there] = both.map_or([None, None], |both| both.map(Some));
                let width = here.and_then(|here| here.half_width).filter(|_| path == FIGURES[0].0);
                let width = width.map_or_else(String::new, |width| format!(" ±{}", grouped_decimal(width, places)));
                row.extend([format!("{}{width}", shown(here)), shown(there)]);
            }
            rows.push(row);
        }
    }
    let header = ["clients", "", "tx/s", "virtual", "reads/tx", "virtual", "messages/tx", "virtual"];
    format!("{}\n\n{}", wrapped(&trial.experiment.title), table(&header, 2, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use papers::Extent;

    fn experiments() -> Vec<Experiment> {
        let of = |name: &&str| over_tcp::experiment(name, Extent::Quick, &KEYS).expect("it is one of them");
        EXPERIMENTS.iter().map(of).collect()
    }

    #[test]
    fn the_minutes_are_those_of_all_runs() {
        let experiments = experiments();
        let runs = 2 * (25 + 6 * 15);
        let each_ns = run_length(&experiments, Some(17.0)).expect("they are enough") + AROUND_NS;
        assert_eq!(each_ns, 17 * 60 * SECOND_NS / runs);
        let refused = run_length(&experiments, Some(1.0)).expect_err("they are not").to_string();
        assert!(refused.contains("230 runs"), "{refused}");
    }

    #[test]
    fn tables_fit_the_terminal() {
        let experiment = over_tcp::experiment("ro-5-slow", Extent::Full, &KEYS).expect("it is one of them");
        let report = json!({
            "throughput_per_s": 12_345.6,
            "page_server": { "disk_reads_per_commit": 123.45, "messages_per_commit": 123.45 },
        });
        let mut other = report.clone();
        other["throughput_per_s"] = json!(11_345.6);
        let outcome = Outcome { reports: vec![report, other], ..Outcome::default() };
        let trial =
            || Trial { outcomes: vec![outcome.clone(); experiment.points.len()], experiment: experiment.clone() };
        let text = trial_text(&over_tcp::both(trial(), trial()));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("FWD-HS") && text.contains(" ±") && text.contains("11,845.6"), "{text}");
    }

    #[test]
    fn the_rates_are_ten_times_the_papers() {
        let rates: Vec<f64> = experiments().iter().map(|experiment| rate(experiment).expect("it has one").1).collect();
        assert_eq!(rates, [10e6, 100e6, 10e6, 10e6, 100e6, 10e6, 100e6]);
    }
}
