//! The prices of the engine's steps and of its turns to the operating system that explain the CPU times of measured runs best.

use super::cpu::EngineRun;
use super::fit::{SystemCosts, priced_turns};
use super::least_squares::nonnegative;
use devices::{ColdCaches, Cpu};
use driver::Work;
use std::collections::BTreeMap;

/// The prices, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPrices {
    /// By `Work as usize`; an input or output with what the operating system takes for it.
    pub steps_ns: [f64; Work::ALL.len()],
    /// What the engine's thread pays for its turns to the operating system, cold caches included.
    pub system: SystemCosts,
    /// The speed by memory that is touched, in proportion to that in caches.
    pub footprint: Vec<(u64, f64)>,
    /// How much longer the first 20 us of steps behind a sleep or an interrupt take, as a share.
    pub cold_slowdown: f64,
    /// What is slower behind longer sleeps, with the shortest of them first.
    pub behind_sleeps: Vec<ColdCaches>,
    /// What the prices say each run costs, in nanoseconds.
    pub explained_ns: Vec<f64>,
}

impl StepPrices {
    /// A CPU with the prices of turns to the operating system only, and what is cold behind these.
    pub fn cpu(&self) -> Cpu {
        // Less than half a percent is not seen.
        let slowdown = (self.cold_slowdown * 100.0).round() / 100.0;
        let cold = ColdCaches { sleep_ns: 0, instructions: COLD_NS as u64, slowdown };
        let behind_all = (slowdown > 0.0).then_some(cold).into_iter();
        let cold_caches = behind_all.chain(self.behind_sleeps.iter().copied()).collect();
        Cpu { cold_caches, ..super::fit::cpu(self.system) }
    }
}

/// The least and the greatest price of each step, in nanoseconds.
pub type StepRange = ([f64; Work::ALL.len()], [f64; Work::ALL.len()]);

/// How often a transaction or an operation turns to the operating system in some way, where the price of that can be told.
pub const SEEN: f64 = 0.05;

/// Steps that are told apart. Begin and end of a transaction come together: only their sum is known.
const SOLVED: [Work; 12] = [
    Work::BeginTransaction,
    Work::ObjectReference,
    Work::TreeSearch,
    Work::InputOutput,
    Work::LockPair,
    Work::LogRecord,
    Work::LogPage,
    Work::KeyComparison,
    Work::RowCopy,
    Work::HashEntry,
    Work::ValueCopy,
    Work::DistantValue,
];

/// How much a price that the device's mixes have shown counts against the errors of the runs: where these tell little of it, it stays
/// near to that.
const PRIOR: f64 = 0.3;

/// How long steps run until the caches are warm behind a sleep or an interrupt, in nanoseconds at full speed: of 5 to 120 us those that
/// explained four calibrations of two kinds of devices best.
const COLD_NS: f64 = 20_000.0;

/// How often prices, speeds and what runs with cold caches are found by turns.
const ROUNDS: usize = 20;
/// Where the prices of turns stand among those that are found, and the slowdown.
const TURNS: usize = SOLVED.len();
const COLD: usize = TURNS + 4;

/// Whether a run is one of those that the prices of steps are found by; the speed by footprint is found by the others.
pub fn is_solved(run: &EngineRun) -> bool {
    run.durable || !run.name.starts_with("Debit-Credit")
}

/// The least and the greatest prices of steps that are found without one of the runs, and how many runs they are found by.
pub fn ranges(runs: &[EngineRun], costs: SystemCosts) -> (StepRange, usize) {
    let count = runs.iter().filter(|run| is_solved(run)).count();
    let mut range = ([f64::INFINITY; Work::ALL.len()], [0.0_f64; Work::ALL.len()]);
    for left_out in runs.iter().filter(|run| is_solved(run)) {
        let others: Vec<EngineRun> = runs.iter().filter(|run| run.name != left_out.name).cloned().collect();
        for (work, ns) in prices(&others, costs).steps_ns.into_iter().enumerate() {
            range.0[work] = range.0[work].min(ns);
            range.1[work] = range.1[work].max(ns);
        }
    }
    (range, count)
}

/// Finds the prices that explain the runs. `costs` are those of the same turns in the device's mixes, where nothing else runs.
pub fn prices(runs: &[EngineRun], costs: SystemCosts) -> StepPrices {
    let small = runs.iter().map(|run| run.footprint).min().unwrap_or(0).max(1);
    let mut cpu = Cpu { footprint: vec![(small, 1.0)], ..super::fit::cpu(costs) };
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        found = solve(runs, costs, &cpu, &found);
        let at_full_speed = |run: &EngineRun| at_full_speed(run, costs, &found);
        let speeds = runs
            .iter()
            .filter(|run| !is_solved(run))
            .map(|run| (run.footprint.max(small + 1), (at_full_speed(run) / run.cpu_ns).clamp(0.1, 1.5)));
        cpu.footprint = BTreeMap::from_iter([(small, 1.0)].into_iter().chain(speeds)).into_iter().collect();
    }
    let explained = |run: &EngineRun| at_full_speed(run, costs, &found) / cpu.speed(run.footprint);
    let explained_ns = runs.iter().map(explained).collect();
    let mut steps_ns = [0.0; Work::ALL.len()];
    for (work, ns) in SOLVED.into_iter().zip(&found) {
        steps_ns[work as usize] = *ns;
    }
    let both_ns = steps_ns[Work::BeginTransaction as usize];
    steps_ns[Work::BeginTransaction as usize] = both_ns / 2.0;
    steps_ns[Work::EndTransaction as usize] = both_ns / 2.0;
    let turns = std::array::from_fn(|turn| found[TURNS + turn]);
    let (system, cold_slowdown) = (costs.with_turns(turns), found[COLD]);
    let behind_sleeps = Vec::new();
    StepPrices { steps_ns, system, footprint: cpu.footprint, cold_slowdown, behind_sleeps, explained_ns }
}

/// What these prices say that a run costs, in nanoseconds.
pub fn explained_ns(run: &EngineRun, prices: &StepPrices, costs: SystemCosts) -> f64 {
    let mut found: Vec<f64> = SOLVED.iter().map(|work| prices.steps_ns[*work as usize]).collect();
    // Begin and end come together.
    found[0] += prices.steps_ns[Work::EndTransaction as usize];
    found.extend(prices.system.turns());
    found.push(prices.cold_slowdown);
    let cpu = Cpu { footprint: prices.footprint.clone(), ..prices.cpu() };
    at_full_speed(run, costs, &found) / cpu.speed(run.footprint)
}

/// How often a run does what has a price to be found: steps, then turns to the operating system; and for how long its steps run with cold
/// caches, in nanoseconds, if they cost what was `found` last.
fn unknowns(run: &EngineRun, costs: SystemCosts, found: &[f64]) -> [f64; COLD + 1] {
    let steps = SOLVED.map(|work| run.steps[work as usize]);
    // A real device's ends are gathered.
    let turns = priced_turns(run.thread, !costs.gathering);
    let [_, _, sleeps, interrupts] = turns;
    let work_ns =
        if found.is_empty() { run.cpu_ns } else { steps.iter().zip(found).map(|(count, ns)| count * ns).sum() };
    let cold_ns = work_ns.min((sleeps + interrupts) * COLD_NS);
    let mut unknowns = [0.0; COLD + 1];
    unknowns[..TURNS].copy_from_slice(&steps);
    unknowns[TURNS..COLD].copy_from_slice(&turns);
    unknowns[COLD] = cold_ns;
    unknowns
}

/// The CPU time that prices make a run have where memory is as fast as caches, in nanoseconds.
fn at_full_speed(run: &EngineRun, costs: SystemCosts, found: &[f64]) -> f64 {
    unknowns(run, costs, found).iter().zip(found).map(|(count, ns)| count * ns).sum()
}

/// The prices that bring the runs nearest to their CPU times, where memory takes what `cpu` says and steps run with cold caches for as long
/// as by those `found` before.
fn solve(runs: &[EngineRun], costs: SystemCosts, cpu: &Cpu, found: &[f64]) -> Vec<f64> {
    let solved = || runs.iter().filter(|run| is_solved(run));
    // What hardly happens has no price that these runs tell.
    let is_seen: [bool; COLD + 1] = std::array::from_fn(|at| {
        !(TURNS..COLD).contains(&at) || solved().any(|run| unknowns(run, costs, found)[at] >= SEEN)
    });
    let row = |run: &EngineRun| -> Vec<f64> {
        let per_ns = 1.0 / (cpu.speed(run.footprint) * run.cpu_ns);
        let counted = unknowns(run, costs, found).into_iter().zip(is_seen);
        counted.map(|(count, is_seen)| if is_seen { count * per_ns } else { 0.0 }).collect()
    };
    let mut rows: Vec<Vec<f64>> = solved().map(row).collect();
    let mut right = vec![1.0; rows.len()];
    for (turn, ns) in costs.turns().into_iter().enumerate().filter(|(_, ns)| *ns > 0.0) {
        let mut prior = vec![0.0; is_seen.len()];
        prior[TURNS + turn] = PRIOR / ns;
        rows.push(prior);
        right.push(PRIOR);
    }
    let mut found = nonnegative(&rows, &right);
    found.resize(is_seen.len(), 0.0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, steps: &[(Work, f64)], cpu_ns: f64) -> EngineRun {
        let mut counts = [0.0; Work::ALL.len()];
        steps.iter().for_each(|(work, count)| counts[*work as usize] = *count);
        EngineRun { name: name.to_owned(), steps: counts, thread: [0.0; 4], cpu_ns, footprint: 1 << 20, durable: false }
    }

    #[test]
    fn a_price_that_its_runs_agree_on_has_a_narrow_range() {
        let (begin, reference) = (Work::BeginTransaction, Work::ObjectReference);
        let mut runs: Vec<EngineRun> = [1.0, 4.0, 16.0, 40.0]
            .map(|count| {
                run(&format!("{count} references"), &[(begin, 1.0), (reference, count)], 900.0 + 250.0 * count)
            })
            .into();
        let ((low, high), count) = ranges(&runs, SystemCosts::default());
        assert_eq!(count, 4);
        for (step, ns) in [(begin, 450.0), (reference, 250.0)] {
            let (low, high) = (low[step as usize], high[step as usize]);
            assert!((low / ns - 1.0).abs() < 0.01 && (high / ns - 1.0).abs() < 0.01, "{step:?}: {low} to {high}");
        }
        runs[1].cpu_ns *= 1.4;
        let ((low, high), _) = ranges(&runs, SystemCosts::default());
        assert!(high[begin as usize] > 1.1 * low[begin as usize], "one run disagrees, and it is seen");
    }
}
