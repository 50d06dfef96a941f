//! The search: rounds of runs on all cores, until the time is over.

use super::runs;
use super::state::{State, TraceHashes, key, trace_hashes};
use crate::Failure;
use crate::experiment::Traces;
use crate::progress::Progress;
use plan::halving::{Score, rungs, survivors};
use plan::{Figures, Plan, Unfit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a search found.
pub struct Found {
    /// Of each of the plan's candidates, what its longest run gave.
    pub tried: Vec<Tried>,
    /// The candidates of the last round that was begun, by their positions.
    pub present: Vec<usize>,
    /// The rounds that were finished, of how many.
    pub rounds: (usize, usize),
    /// How long it took, in nanoseconds of the wall clock.
    pub wall_ns: u64,
    /// How many runs were made, without those that were known.
    pub runs: usize,
}

/// What became of a candidate.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Its figures, with the part of the length that they are of.
    pub figures: Option<(u64, Figures)>,
    /// Why it was not run, or not to the end.
    pub unfit: Option<Unfit>,
    /// Why its run failed.
    pub failure: Option<String>,
}

impl Tried {
    /// Whether nothing was found so far that keeps it out.
    pub fn may_be(&self) -> bool {
        self.unfit.is_none() && self.failure.is_none()
    }
}

/// Searches a plan.
pub fn search(plan: &Plan, state: &mut State, progress: &Progress) -> Result<Found, Failure> {
    let begin = real_driver::wall_ns();
    let traces = runs::traces(plan.candidates.iter())?;
    let hashes = trace_hashes(plan.candidates.iter())?;
    let mut tried = vec![Tried::default(); plan.candidates.len()];
    prune(plan, &mut tried, &traces, progress);
    let fit: Vec<usize> = (0..tried.len()).filter(|at| tried[*at].unfit.is_none()).collect();
    let search = plan.search;
    let rungs = rungs(fit.len(), search.rounds, search.factor, search.least);
    let end = search.time_ns.map(|time| begin + time);
    let mut found = Found { tried, present: fit, rounds: (0, rungs.len()), wall_ns: 0, runs: 0 };
    for (number, rung) in rungs.iter().enumerate() {
        if number > 0 {
            found.present = select(plan, &found, rung.candidates);
        }
        let round =
            Round { plan, divisor: rung.divisor, restarts: rung.divisor == 1, end, traces: &traces, hashes: &hashes };
        let name = match (number, rung.divisor) {
            (0, _) => "first round",
            (_, 1) => "last round",
            _ => "next round",
        };
        progress.phase(name, found.present.len() as u64);
        let is_complete = round.run(&found.present.clone(), &mut found, state, progress)?;
        if !is_complete {
            break;
        }
        found.rounds.0 += 1;
    }
    found.wall_ns = real_driver::wall_ns() - begin;
    Ok(found)
}

/// Leaves out what would read more than its devices do.
fn prune(plan: &Plan, tried: &mut [Tried], traces: &Traces, progress: &Progress) {
    progress.phase("looking at the workload", 0);
    // What a workload references, and in which pages that is, is the same in every candidate that has it.
    let mut curves = Vec::new();
    for (candidate, tried) in plan.candidates.iter().zip(tried) {
        let workload = (&candidate.setting.work, candidate.whole.buffer.page_size);
        let known = curves.iter().position(|(known, _)| *known == workload);
        let at = known.unwrap_or_else(|| {
            curves.push((workload, runs::curve(candidate, traces)));
            curves.len() - 1
        });
        if let Some((curve, references)) = &curves[at].1 {
            tried.unfit = candidate.find_unread(curve, *references, &plan.limits);
        }
    }
}

/// The candidates of the next round.
fn select(plan: &Plan, found: &Found, count: usize) -> Vec<usize> {
    let known: Vec<(usize, &Figures)> = found
        .present
        .iter()
        .filter(|at| found.tried[**at].may_be())
        .filter_map(|at| found.tried[*at].figures.as_ref().map(|(_, figures)| (*at, figures)))
        .collect();
    let score = |(_, figures): &(usize, &Figures)| Score {
        used: plan.limits.worst(figures).map_or(0.0, |worst| worst.used),
        cost: figures.cost_per_month,
        time: figures.p99_us,
    };
    let scores: Vec<Score> = known.iter().map(score).collect();
    survivors(&scores, count).into_iter().map(|at| known[at].0).collect()
}

/// One round.
struct Round<'a> {
    plan: &'a Plan,
    divisor: u64,
    restarts: bool,
    end: Option<u64>,
    traces: &'a Traces,
    hashes: &'a TraceHashes,
}

impl Round<'_> {
    /// Runs these candidates; false if the time was over before all were.
    fn run(
        &self,
        present: &[usize],
        found: &mut Found,
        state: &mut State,
        progress: &Progress,
    ) -> Result<bool, Failure> {
        let size = (self.restarts, self.plan.miniature);
        let key = |at: &usize| key(&self.plan.candidates[*at], self.divisor, size, self.hashes);
        let keys: Vec<String> = present.iter().map(key).collect();
        let mut left = Vec::new();
        for (at, key) in present.iter().zip(&keys) {
            match state.figures(key) {
                Some(figures) => found.tried[*at].figures = Some((self.divisor, figures.clone())),
                None => left.push((*at, key.as_str())),
            }
        }
        let (next, done) = (AtomicUsize::new(0), Mutex::new((found, state, Ok(()))));
        let known = present.len() - left.len();
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(left.len());
        let is_over = || self.end.is_some_and(|end| real_driver::wall_ns() >= end);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while !is_over() {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some((at, key)) = left.get(number) else { break };
                        let outcome = runs::run(&self.plan.candidates[*at], self.divisor, size, self.traces);
                        let mut done = done.lock().expect("no worker panics while it holds the lock");
                        let (found, state, kept) = &mut *done;
                        found.runs += 1;
                        match outcome {
                            Ok(Err(unfit)) => found.tried[*at].unfit = Some(unfit),
                            Ok(Ok(figures)) => {
                                if kept.is_ok() {
                                    *kept =
                                        state.keep((*key).to_owned(), &figures).map_err(|failure| failure.to_string());
                                }
                                found.tried[*at].figures = Some((self.divisor, figures));
                            }
                            Err(failure) => found.tried[*at].failure = Some(failure),
                        }
                        progress.advance_to((known + number + 1) as u64);
                    }
                });
            }
        });
        let (found, _, kept) = done.into_inner().expect("no worker panics while it holds the lock");
        kept?;
        let is_done = |at: &usize| {
            let tried = &found.tried[*at];
            !tried.may_be() || tried.figures.as_ref().is_some_and(|(divisor, _)| *divisor == self.divisor)
        };
        Ok(present.iter().all(is_done))
    }
}
