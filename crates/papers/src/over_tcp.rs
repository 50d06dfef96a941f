//! Franklin, Carey and Livny 1992 for real: the page server and its clients as processes of one machine that TCP joins, beside the same
//! configuration under the virtual clock.
//!
//! All of the paper's machines are [`SPEED`] times as fast here. The disks are described devices on the wall clock, the network is the kernel's token
//! bucket, and a client sleeps while it processes a page, for it is one of many on this machine's CPUs. Messages take the time that
//! they take this machine; the described machines get it as their price, so the virtual clock knows it before it predicts anything else.

use crate::experiment::Work;
use crate::outcome::{Results, Trial};
use crate::{Claim, Estimate, Experiment, ExperimentError, Extent, study};
use workload::Length;

/// The study.
pub const STUDY: &str = "franklin-1992";
/// How many times as fast as the paper's all machines are.
pub const SPEED: f64 = 10.0;
/// How often each run is made, with a seed of its own.
pub const ROUNDS: u32 = 2;
/// Into how many batches each is cut.
pub const BATCHES: u32 = 4;
/// The share of a run's time that is its warm-up.
const WARM_UP: f64 = 1.0 / 3.0;
/// The experiments: those by which a claim of the paper is judged.
pub const EXPERIMENTS: [&str; 7] =
    ["ro-5-slow", "ro-5-fast", "ro-15-slow", "rw-5-slow", "rw-15-fast", "uniform-5-slow", "uniform-15-fast"];

/// The numbers of clients of a quick run, by experiment: those without which most claims cannot be judged.
fn quick_places(name: &str) -> &'static [f64] {
    if name == "ro-5-slow" { &[1.0, 2.0, 5.0, 10.0, 25.0] } else { &[2.0, 10.0, 25.0] }
}

/// What is laid over each of them.
const FASTER: &str = include_str!("../franklin-1992/over-tcp.toml");
/// The paper's algorithms.
const LINES: [&str; 5] = ["CBL", "FWD", "FWD-H", "FWD-S", "FWD-HS"];

/// The experiment of this name with the paper's algorithms, on the faster machines.
///
/// # Errors
/// [`ExperimentError`], of a name that is none of [`EXPERIMENTS`] or an output that is none of `outputs`.
///
/// ```
/// use entresol_papers::{Extent, over_tcp};
///
/// let keys = ["throughput_per_s", "page_server", "utilization"];
/// let experiment = over_tcp::experiment("ro-5-slow", Extent::Quick, &keys)?;
/// assert_eq!((experiment.lines.len(), experiment.points.len()), (5, 5 * 5));
/// assert!(over_tcp::experiment("idle-15-fast", Extent::Quick, &keys).is_err());
/// # Ok::<(), entresol_papers::ExperimentError>(())
/// ```
pub fn experiment(name: &str, extent: Extent, outputs: &[&str]) -> Result<Experiment, ExperimentError> {
    let file = format!("{name}.toml");
    let study = study::named(STUDY).expect("it is one of them");
    let known = study.experiments().iter().find(|(known, _)| *known == file && EXPERIMENTS.contains(&name));
    let (_, text) = known.ok_or_else(|| ExperimentError::Whole(format!("'{name}' is not run over TCP")))?;
    let nothing = |name: &str| Err(std::io::Error::other(format!("it names no files such as {name}")));
    let mut experiment = Experiment::parse(&file, &format!("{text}{FASTER}"), Extent::Full, outputs, &nothing)?;
    if extent == Extent::Quick {
        keep_places(&mut experiment, quick_places(name));
    }
    experiment.points.retain(|point| LINES.contains(&experiment.lines[point.line].as_str()));
    experiment.lines.retain(|line| LINES.contains(&line.as_str()));
    for point in &mut experiment.points {
        (point.setting.replications, point.setting.batches) = (ROUNDS, BATCHES);
        if let Work::PageServer { client, .. } = &mut point.setting.work
            && let Some(cpu) = &mut client.cpu
        {
            cpu.mips *= SPEED;
        }
    }
    experiment.title += ": processes joined by TCP, and the virtual clock";
    experiment.about += " All machines are ten times as fast as the paper's. Each curve is shown twice: as it came out of processes on this \
        machine, and of the same configuration on described machines. As in the paper, clients have no leases there, and nothing is sealed by \
        TLS.";
    Ok(experiment)
}

/// Leaves all other places of the abscissa out.
fn keep_places(experiment: &mut Experiment, places: &[f64]) {
    let values = std::mem::take(&mut experiment.x.values);
    experiment.x.values = values.iter().filter(|(x, _)| places.contains(x)).cloned().collect();
    let kept = &experiment.x.values;
    experiment.points.retain_mut(|point| {
        let (x, _) = values[point.x];
        let place = kept.iter().position(|(other, _)| *other == x);
        point.x = place.unwrap_or(point.x);
        place.is_some()
    });
}

/// States that each run takes this long, warm-up and all, in nanoseconds.
pub fn set_length(experiments: &mut [Experiment], run_ns: u64) {
    let warm_up = (run_ns as f64 * WARM_UP) as u64;
    for point in experiments.iter_mut().flat_map(|experiment| &mut experiment.points) {
        point.setting.plan.warm_up = Length::Time(warm_up);
        point.setting.plan.measure = Length::Time(run_ns - warm_up);
    }
}

/// States that a message takes a CPU this long at each end, in nanoseconds, and nothing else takes it any time but the processing of pages.
pub fn set_price(experiments: &mut [Experiment], message_ns: f64) {
    for point in experiments.iter_mut().flat_map(|experiment| &mut experiment.points) {
        let server = point.setting.configuration.hardware.as_mut().and_then(|hardware| hardware.cpu.as_mut());
        let client = match &mut point.setting.work {
            Work::PageServer { client, .. } => client.cpu.as_mut(),
            _ => None,
        };
        for cpu in server.into_iter().chain(client) {
            let instructions = &mut cpu.instructions;
            instructions.network_message = (message_ns * cpu.mips / 1e3).round() as u64;
            instructions.network_bytes = 0;
            instructions.input_output = 0;
            instructions.lock_pair = 0;
            instructions.copy_registration = 0;
            instructions.redo = 0;
        }
    }
}

/// The claims of the paper, judged by what came out on one of the clocks.
pub fn claims(results: &Results, extent: Extent) -> Vec<Claim> {
    let study = study::named(STUDY).expect("it is one of them");
    let mut claims = study::judge(study, results, extent);
    claims.retain(|claim| claim.id.starts_with("F-"));
    claims
}

/// What the curve of this name is called that comes from the virtual clock.
fn described(line: &str) -> String {
    format!("{line}, virtual")
}

/// One experiment with the curves of both.
pub fn both(mut real: Trial, virtual_clock: Trial) -> Trial {
    let first = real.experiment.lines.len();
    real.experiment.lines.extend(virtual_clock.experiment.lines.iter().map(|line| described(line)));
    for (mut point, outcome) in virtual_clock.experiment.points.into_iter().zip(virtual_clock.outcomes) {
        point.line += first;
        real.experiment.points.push(point);
        real.outcomes.push(outcome);
    }
    real
}

/// How well the two clocks agree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// The least, the median and the greatest throughput here over that of the virtual clock.
    pub ratios: [f64; 3],
    /// Pairs of algorithms, at one place of one experiment, whose order neither clock leaves open.
    pub pairs: usize,
    /// Those of them that have the same order on both.
    pub same: usize,
}

/// How well the two clocks agree in these experiments of both; `None` if no run came out on both.
pub fn agreement(trials: &[Trial]) -> Option<Agreement> {
    let mut ratios = Vec::new();
    let mut agreement = Agreement::default();
    for trial in trials {
        for place in trial.places() {
            for (number, line) in LINES.iter().enumerate() {
                ratios
                    .extend(beside(trial, line, place, "throughput_per_s").map(|[here, there]| here.mean / there.mean));
                for other in &LINES[number + 1..] {
                    let order = |line: &str, other: &str| {
                        let difference = trial.difference([line, other], place, "throughput_per_s")?;
                        let [low, high] = difference.interval()?;
                        (low > 0.0 || high < 0.0).then_some(low > 0.0)
                    };
                    let both = order(line, other).zip(order(&described(line), &described(other)));
                    agreement.pairs += usize::from(both.is_some());
                    agreement.same += usize::from(both.is_some_and(|(here, there)| here == there));
                }
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    let [first, .., last] = ratios[..] else { return None };
    agreement.ratios = [first, ratios[ratios.len() / 2], last];
    Some(agreement)
}

/// The figure at a path of an algorithm at a place: here, and by the virtual clock.
pub fn beside(trial: &Trial, line: &str, place: f64, path: &str) -> Option<[Estimate; 2]> {
    Some([trial.figure(line, place, path)?, trial.figure(&described(line), place, path)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use devices::Law;
    use serde_json::json;

    const KEYS: [&str; 3] = ["throughput_per_s", "page_server", "utilization"];

    fn trial(throughput: impl Fn(&str, f64) -> [f64; 2]) -> Trial {
        let experiment = experiment("rw-5-slow", Extent::Quick, &KEYS).expect("it is one of them");
        let of = |(line, place): (usize, usize)| {
            let tps = throughput(&experiment.lines[line], experiment.x.values[place].0);
            let reports = tps.iter().map(|tps| json!({ "throughput_per_s": tps })).collect();
            Outcome { reports, ..Outcome::default() }
        };
        let outcomes = experiment.points.iter().map(|point| of((point.line, point.x))).collect();
        Trial { experiment, outcomes }
    }

    #[test]
    fn every_experiment_is_as_much_faster_as_is_said() {
        for name in EXPERIMENTS {
            for extent in [Extent::Full, Extent::Quick] {
                let experiment = experiment(name, extent, &KEYS).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(experiment.lines, LINES);
                for point in &experiment.points {
                    let hardware = point.setting.configuration.hardware.as_ref().expect("described");
                    let paper = devices::Hardware::named("franklin-1992-server").expect("embedded");
                    let [here, there] = [hardware, &paper].map(|hardware| {
                        let service = hardware.devices["disk"].medium.as_ref().expect("arms").service.read.clone();
                        let bandwidths =
                            ["slow", "fast"].map(|name| hardware.networks[name].bandwidth.expect("limited").0);
                        (hardware.cpu.as_ref().expect("a CPU").mips, service, bandwidths)
                    });
                    assert_eq!((here.0, here.2), (there.0 * SPEED, there.2.map(|bandwidth| bandwidth * SPEED)));
                    assert_eq!(
                        (here.1, there.1),
                        (Law::Uniform(1_000_000, 3_000_000), Law::Uniform(10_000_000, 30_000_000))
                    );
                    let Work::PageServer { client, .. } = &point.setting.work else { panic!("no page server") };
                    assert_eq!(client.cpu.as_ref().expect("a CPU").mips, 15.0 * SPEED);
                }
            }
        }
    }

    #[test]
    fn a_quick_run_has_fewer_numbers_of_clients() {
        let experiment = experiment("rw-15-fast", Extent::Quick, &KEYS).expect("it is one of them");
        let places: Vec<f64> = experiment.x.values.iter().map(|(x, _)| *x).collect();
        assert_eq!(places, [2.0, 10.0, 25.0]);
        for (index, point) in experiment.points.iter().enumerate() {
            assert_eq!((point.line, point.x), (index / 3, index % 3));
            assert_eq!(point.setting.plan.load, workload::Load::Closed { clients: places[point.x] as u32 });
        }
    }

    #[test]
    fn lengths_and_prices_are_those_of_every_run() {
        let mut experiments = vec![experiment("ro-5-fast", Extent::Quick, &KEYS).expect("it is one of them")];
        set_length(&mut experiments, 3_000_000_000);
        set_price(&mut experiments, 20_000.0);
        for point in &experiments[0].points {
            let plan = &point.setting.plan;
            assert_eq!((plan.warm_up, plan.measure), (Length::Time(1_000_000_000), Length::Time(2_000_000_000)));
            let Work::PageServer { client, .. } = &point.setting.work else { panic!("no page server") };
            let server = point.setting.configuration.hardware.as_ref().expect("described");
            let price =
                |hardware: &devices::Hardware| hardware.cpu.as_ref().expect("a CPU").instructions.network_message;
            assert_eq!((price(server), price(client)), (6_000, 3_000), "20 us of 300 and 150 MIPS");
        }
    }

    #[test]
    fn the_clocks_agree_where_pairs_have_one_order_on_both() {
        let rank = |line: &str| LINES.iter().position(|other| *other == line).expect("one of them") as f64;
        let here = trial(|line, _| [100.0 + rank(line), 100.5 + rank(line)]);
        // At the last two places all are in the opposite order, but for two that are equal.
        let there = trial(|line, clients| {
            let rank = if clients < 10.0 { rank(line) } else { -f64::max(rank(line), 1.0) };
            [200.0 + rank, 200.5 + rank]
        });
        let both = [both(here, there)];
        let found = agreement(&both).expect("all came out");
        assert_eq!((found.pairs, found.same), (10 + 9 + 9, 10));
        assert!(found.ratios.iter().all(|ratio| (0.49..0.54).contains(ratio)), "{found:?}");
        assert_eq!(both[0].experiment.lines.len(), 10);
        let [here, there] = beside(&both[0], "FWD", 2.0, "throughput_per_s").expect("both came out");
        assert_eq!((here.mean, there.mean), (101.25, 201.25));
        assert_eq!(agreement(&[]), None);
    }

    #[test]
    fn only_the_papers_claims_are_judged() {
        let claims = claims(&Results::default(), Extent::Full);
        assert_eq!(claims.len(), 24 + 6 + 7 + 4);
        assert!(claims.iter().all(|claim| claim.id.starts_with("F-")));
    }
}
