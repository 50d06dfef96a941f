//! The runs of experiments, on as many cores as there are.

use super::point::{self, Traces};
use crate::Failure;
use crate::progress::Progress;
use papers::experiment::{Point, Work};
use papers::outcome::{Results, Trial};
use papers::{Experiment, Extent, Outcome};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use workload::Length;

/// Reads an experiment's file.
pub fn read(file: &Path, extent: Extent) -> Result<Experiment, Failure> {
    let text = text_of(file).map_err(|error| format!("the experiment '{}' cannot be read: {error}", file.display()))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let read_file = |name: &str| text_of(&directory.join(name));
    Ok(Experiment::parse(&file.display().to_string(), &text, extent, &point::KEYS, &read_file)?)
}

#[expect(clippy::disallowed_methods, reason = "what the user names is read before there is a driver")]
fn text_of(file: &Path) -> std::io::Result<String> {
    String::from_utf8(std::fs::read(file)?).map_err(std::io::Error::other)
}

/// Writes `report.html` and `results.json`; returns the first one's path.
#[expect(clippy::disallowed_methods, reason = "a report is written when nothing runs any more")]
pub fn write_report(directory: &Path, page: &str, results: &serde_json::Value) -> Result<PathBuf, Failure> {
    let fail = |error: std::io::Error| format!("the report '{}' cannot be written: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(fail)?;
    let file = directory.join("report.html");
    std::fs::write(&file, page).map_err(fail)?;
    std::fs::write(directory.join("results.json"), results.to_string()).map_err(fail)?;
    Ok(file)
}

/// One replication of one point.
struct Job<'a> {
    trial: usize,
    index: usize,
    replication: u32,
    point: &'a Point,
    /// How long it is likely to take, in any unit.
    weight: u64,
}

/// Runs every point of every experiment. Each run is single-threaded and seeded, so the results do not depend on how many
/// cores there are.
///
/// # Errors
/// A trace that cannot be read. A run that fails is part of the results.
pub fn run_all(experiments: Vec<Experiment>, progress: &Progress) -> Result<Results, Failure> {
    let mut traces = Traces::new();
    for point in experiments.iter().flat_map(|experiment| &experiment.points) {
        if let Work::Trace { trace } = &point.setting.work {
            point::load(&mut traces, trace, point.setting.replications)?;
        }
    }
    let mut jobs = Vec::new();
    for (trial, experiment) in experiments.iter().enumerate() {
        // One run shows all places of an abscissa that is its time.
        let is_run = |point: &Point| !experiment.over_time || point.x == 0;
        for (index, point) in experiment.points.iter().enumerate().filter(|(_, point)| is_run(point)) {
            let weight = weight(point);
            let replications = 0..point.setting.replications;
            jobs.extend(replications.map(|replication| Job { trial, index, replication, point, weight }));
        }
    }
    // The longest first, so that no core is left alone with one at the end.
    jobs.sort_by_key(|job| std::cmp::Reverse(job.weight));
    progress.phase("running", jobs.iter().map(|job| job.weight).sum());
    let done = Mutex::new((Vec::new(), 0));
    // What runs on this machine's clock runs alone, behind the others.
    let is_real = |job: &&Job<'_>| job.point.setting.configuration.hardware.is_none();
    let (mut real, described): (Vec<_>, Vec<_>) = jobs.iter().partition(is_real);
    // So that what else the machine does meanwhile comes to every point.
    real.sort_by_key(|job| job.replication);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (jobs, workers) in [(described, cores), (real, 1)] {
        run_jobs(&jobs, workers, &traces, &done, progress);
    }
    let (mut answers, _) = done.into_inner().expect("no worker panics while it holds the lock");
    answers.sort_by_key(|(trial, index, replication, _)| (*trial, *index, *replication));
    let empty = |experiment: Experiment| {
        let outcomes = vec![Outcome::default(); experiment.points.len()];
        Trial { experiment, outcomes }
    };
    let mut trials: Vec<Trial> = experiments.into_iter().map(empty).collect();
    for (trial, index, _, answer) in answers {
        let trial = &mut trials[trial];
        if let (true, Ok(run)) = (trial.experiment.over_time, &answer) {
            for (outcome, report) in trial.outcomes[index..].iter_mut().zip(&run.reports) {
                outcome.reports.push(report.clone());
            }
            continue;
        }
        let outcome = &mut trial.outcomes[index];
        match answer {
            Ok(run) => {
                outcome.saturated = outcome.saturated.take().or(run.saturated);
                outcome.reports.extend(run.reports);
            }
            Err(failure) => {
                outcome.failure.get_or_insert(failure);
            }
        }
    }
    Ok(Results { trials })
}

/// What jobs gave, in the order in which they ended, and their weight.
type Done = (Vec<(usize, usize, u32, Result<point::PointRun, String>)>, u64);

fn run_jobs(jobs: &[&Job<'_>], workers: usize, traces: &Traces, done: &Mutex<Done>, progress: &Progress) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(|| {
                // A command that notes requests to end looks for one behind this.
                while let Some(job) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !real_driver::is_end_requested())
                {
                    let outcome = point::run(&job.point.setting, job.replication, traces);
                    let mut done = done.lock().expect("no worker panics while it holds the lock");
                    done.0.push((job.trial, job.index, job.replication, outcome));
                    done.1 += job.weight;
                    progress.advance_to(done.1);
                }
            });
        }
    });
}

/// A seed of torture takes about as long as this number of transactions.
const SEED_WEIGHT: u64 = 1_500;
/// This number of rows of a sort or a join takes about as long as a transaction.
const ROWS_WEIGHT: u64 = 8;

fn weight(point: &Point) -> u64 {
    let plan = &point.setting.plan;
    match point.setting.work {
        Work::Torture { seeds } => return SEED_WEIGHT * seeds,
        Work::Spill { rows, .. } => return rows / ROWS_WEIGHT,
        _ => {}
    }
    let rate = match plan.load {
        workload::Load::Open { rate_per_s } => rate_per_s,
        // Unknown: closed loads run as fast as the machine.
        workload::Load::Closed { .. } | workload::Load::Full => 1_000.0,
    };
    let transactions = |length| match length {
        Length::Transactions(count) => count,
        Length::Time(ns) => (ns as f64 / 1e9 * rate) as u64,
    };
    transactions(plan.warm_up) + transactions(plan.measure)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        base = "rahm-1991"
        outputs = ["response_us.mean", "utilization.log-disk.medium.utilization"]
        workload = { kind = "debit-credit", scale = 20 }
        run = { transactions = 400, warm_up = 50, replications = 2, batches = 4 }
        [[series]]
        name = "disk"
        [[series]]
        name = "NVEM"
        configuration.log.device = "nvem"
        [[vary]]
        parameter = "workload.rate"
        values = [20, 400]
    "#;

    fn results(text: &str) -> Results {
        let nothing = |_: &str| Err(std::io::Error::other("nothing"));
        let experiment = Experiment::parse("e.toml", text, Extent::Full, &point::KEYS, &nothing).unwrap();
        run_all(vec![experiment], &Progress::hidden()).unwrap()
    }

    #[test]
    fn a_small_experiment_runs_and_repeats() {
        let results = results(TEXT);
        let trial = &results.trials[0];
        assert!(trial.outcomes.iter().all(|outcome| outcome.failure.is_none() && !outcome.reports.is_empty()));
        let (disk, nvem) = (trial.response_ms("disk", 20.0).unwrap(), trial.response_ms("NVEM", 20.0).unwrap());
        assert!(disk.mean > nvem.mean + 5.0, "{disk:?} {nvem:?}");
        assert!(disk.half_width.is_some());
        // A single log disk serves 200 writes per second.
        assert_eq!(trial.at("disk", 400.0).unwrap().saturated.as_deref(), Some("log-disk.medium"));
        let again = self::results(TEXT);
        let figures = |results: &Results| -> Vec<_> {
            results.trials[0].outcomes.iter().map(|outcome| outcome.estimate("response_us.mean")).collect()
        };
        assert_eq!(figures(&results), figures(&again));
        let report = &trial.outcomes[0].reports[0];
        // A workload of one type runs alone: without a transaction server and without readers of snapshots. It is no sort, no
        // restart and no torture.
        let others = ["types", "server", "spill", "recovery", "snapshots", "torture", "page_server", "nodes"];
        for key in point::KEYS.iter().filter(|key| !others.contains(key)) {
            assert!(report.get(*key).is_some(), "the report has no {key}");
        }
    }

    #[test]
    fn the_course_of_a_run_is_shown_by_its_batches() {
        let text = "base = \"do-2011\"\noutputs = [\"throughput_per_s\"]\n\
                    workload = { kind = \"page-stream\", stream = \"uniform\", pages = 3_000, clients = 8 }\n\
                    run = { seconds = 6, warm_up = 0.001, batches = 3, replications = 2 }\n\
                    [[vary]]\nparameter = \"run.time\"\nvalues = [2, 4, 6]";
        let found = results(text);
        let trial = &found.trials[0];
        let course: Vec<_> = [2.0, 4.0, 6.0].map(|time| trial.figure("", time, "hit_ratio_all").unwrap().mean).into();
        assert!(course.is_sorted() && course[2] > course[0] + 0.1, "the buffer fills: {course:?}");
        assert!(trial.outcomes.iter().all(|outcome| outcome.reports.len() == 2), "one of each replication");
        let nothing = |_: &str| Err(std::io::Error::other("nothing"));
        let text = text.replace("batches = 3", "batches = 4");
        let error = Experiment::parse("e.toml", &text, Extent::Full, &point::KEYS, &nothing).unwrap_err();
        assert!(error.to_string().contains("4 batches is shown at 3 times"), "{error}");
    }

    #[test]
    fn replications_of_torture_take_seeds_of_their_own() {
        let text = "outputs = [\"torture.runs\"]\nconfiguration.hardware = \"ideal\"\n\
                    workload = { kind = \"torture\", seeds = 2 }\nrun = { replications = 2 }\n\
                    [[vary]]\nparameter = \"workload.seeds\"\nvalues = [2]";
        let results = results(text);
        let outcome = &results.trials[0].outcomes[0];
        let runs = |seeds: std::ops::Range<u64>| torture::run_range(seeds, torture::Options::FULL, |_| ()).runs;
        let found: Vec<_> = outcome.reports.iter().map(|report| report["torture"]["runs"].as_u64()).collect();
        assert_eq!(found, [Some(runs(0..2)), Some(runs(2..4))]);
        assert_eq!(outcome.names("torture.stops").len(), 14, "every valid pair is reported");
    }

    #[test]
    fn readers_of_snapshots_run_beside_updates() {
        let text = "base = \"lee-2008\"\noutputs = [\"snapshots.scan_us\"]\n\
                    configuration.undo = { memory = \"0 B\", cluster_size = \"512 B\" }\n\
                    configuration.partition.p.residence = \"memory\"\n\
                    [workload]\nkind = \"synthetic\"\nrate = 200\nreaders = 2\nsnapshot_age = \"1 s\"\n\
                    model = { partition.p = { objects = 300, locks = \"object\" }, type.t = { arrival_rate = 1, size = 1, \
                    write_probability = 1, references = { p = 1 } } }\n[run]\nseconds = 60\nbatches = 1\nreplications = 2\n\
                    [[vary]]\nparameter = \"configuration.undo.device\"\nvalues = [\"disk\", \"flash\"]";
        let results = results(text);
        let trial = &results.trials[0];
        let figure =
            |device: f64, path: &str| trial.figure("", device, path).unwrap_or_else(|| panic!("{path}: {trial:?}"));
        let [disk, flash] = [0.0, 1.0].map(|device| figure(device, "snapshots.scan_us"));
        assert!(disk.mean > 3.0 * flash.mean, "{disk:?} {flash:?}");
        assert!(figure(0.0, "snapshots.scans").mean > 5.0 && figure(1.0, "throughput_per_s").mean > 190.0);
        assert!(figure(0.0, "utilization.disk.medium.utilization").mean > 0.2);
    }

    #[test]
    fn sorts_and_joins_report_what_they_took() {
        let text = "outputs = [\"spill.seconds\"]\nconfiguration.hardware = \"lee-2008\"\n\
                    [configuration.temp]\ncluster_size = \"4 KiB\"\n\
                    [workload]\nkind = \"sort\"\nrows = 20_000\nmemory = \"1 MiB\"\n[run]\nreplications = 2\n\
                    [[series]]\nname = \"sort\"\n\
                    [[series]]\nname = \"hash join\"\nworkload = { kind = \"join\", method = \"hash\" }\n\
                    [[series]]\nname = \"sort-merge join\"\nworkload = { kind = \"join\", method = \"sort-merge\" }\n\
                    [[vary]]\nparameter = \"configuration.temp.device\"\nvalues = [\"disk\", \"flash\"]";
        let results = results(text);
        let trial = &results.trials[0];
        for line in &trial.experiment.lines {
            let seconds = |device: f64| trial.figure(line, device, "spill.seconds").unwrap();
            assert!(seconds(0.0).exceeds(seconds(1.0)), "{line}: {:?} {:?}", seconds(0.0), seconds(1.0));
            let bytes = trial.figure(line, 0.0, "spill.spilled_bytes").unwrap();
            assert!(bytes.mean > 500e3, "{line} spilled {bytes:?}");
            assert!(trial.figure(line, 1.0, "utilization.flash.medium.utilization").unwrap().mean > 0.3, "{line}");
        }
    }

    #[test]
    fn a_machine_that_stops_reports_how_it_was_started_again() {
        let text = "base = \"vax-11-785\"\noutputs = [\"recovery.seconds\"]\n\
                    [workload]\nkind = \"credit-card\"\nscale = 400\nfull = true\nrestart = true\n\
                    [run]\nseconds = 60\nbatches = 2\nreplications = 2\n\
                    [[series]]\nname = \"VALUE\"\nconfiguration.checkpoint.sets = \"tccou\"\n\
                    [[series]]\nname = \"TOPER\"\nconfiguration.checkpoint.sets = \"tccou\"\nconfiguration.log.sets = \"toper\"\n\
                    [[vary]]\nparameter = \"configuration.checkpoint.sweep_interval\"\nvalues = [\"0 s\", \"off\"]";
        let found = results(text);
        let trial = &found.trials[0];
        for line in ["VALUE", "TOPER"] {
            assert_eq!(trial.at(line, 0.0).unwrap().reports.len(), 2, "one of each replication");
            let figure =
                |place: f64, path: &str| trial.figure(line, place, path).unwrap_or_else(|| panic!("{trial:?}"));
            let redo = [0.0, 1.0].map(|place| figure(place, "recovery.redo_seconds"));
            assert!(redo[1].exceeds(redo[0]), "{line}: without sweeps all is repeated: {redo:?}");
            assert!(figure(0.0, "recovery.seconds").mean >= redo[0].mean, "{line}");
            assert!(figure(1.0, "recovery.records").mean > 3_000.0, "{line}");
        }
        let real = text.replace("base = \"vax-11-785\"", "configuration.hardware = \"this machine\"");
        let real = real.replace("[workload]", "[configuration.server]\n[workload]");
        let failure = results(&real).trials[0].outcomes[0].failure.clone().expect("refused");
        assert!(failure.contains("leave it out"), "{failure}");
    }

    #[test]
    fn nodes_report_what_all_machines_have_done() {
        let text = "outputs = [\"nodes.messages_per_transaction\"]\nconfiguration.hardware = \"nvme-2026\"\n\
                    configuration.log.device = \"nvme\"\nconfiguration.buffer.size = \"8 MiB\"\n\
                    hardware.network.lan.latency = \"50 us\"\n\
                    [workload]\nkind = \"nodes\"\nscale = 1\nclients = 2\n[run]\ntransactions = 200\nreplications = 2\n\
                    [[vary]]\nparameter = \"workload.nodes\"\nvalues = [1, 2]";
        let results = results(text);
        let trial = &results.trials[0];
        let figure = |nodes: f64, path: &str| trial.figure("", nodes, path).unwrap_or_else(|| panic!("{trial:?}"));
        let messages = [1.0, 2.0].map(|nodes| figure(nodes, "nodes.messages_per_transaction"));
        assert!(messages[1].exceeds(messages[0]), "two call copies back: {messages:?}");
        assert!(
            figure(2.0, "response_us.p99").mean > 100.0 && figure(2.0, "utilization.node 2.cpu.utilization").mean > 0.0
        );
        assert_eq!(trial.at("", 2.0).unwrap().reports.len(), 2, "one of each replication");
    }

    #[test]
    fn a_trace_that_does_not_exist_is_an_error() {
        let text =
            TEXT.replace("kind = \"debit-credit\", scale = 20", "kind = \"trace\", trace = \"/nowhere/t.trace\"");
        let nothing = |_: &str| Err(std::io::Error::other("nothing"));
        let experiment = Experiment::parse("e.toml", &text, Extent::Full, &point::KEYS, &nothing).unwrap();
        let error = run_all(vec![experiment], &Progress::hidden()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/t.trace"), "{error}");
    }
}
