//! Successive halving (Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS
//! 2016): every candidate has a short run, the better ones a longer one, the best the full one.

use crate::front::layers;

/// One round of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// By which number the full length is divided.
    pub divisor: u64,
    /// How many candidates run in it, at most; those that nothing else is better than always do.
    pub candidates: usize,
}

/// What is known of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// How much of what is allowed is used of the limit that is nearest; above 1 it is broken.
    pub used: f64,
    /// The price of a month.
    pub cost: f64,
    /// The response time.
    pub time: f64,
}

/// The rounds for a number of candidates: in each the runs are `factor` times as long, and as many times fewer, but no fewer
/// than `least`.
///
/// ```
/// use entresol_plan::halving::{Rung, rungs};
///
/// let rung = |divisor, candidates| Rung { divisor, candidates };
/// assert_eq!(rungs(200, 3, 4, 12), [rung(16, 200), rung(4, 50), rung(1, 13)]);
/// assert_eq!(rungs(10, 3, 4, 12), [rung(1, 10)], "all may have the full length");
/// ```
pub fn rungs(candidates: usize, rounds: u32, factor: u64, least: usize) -> Vec<Rung> {
    let factor = factor.max(2);
    let fewer = |round: u32| {
        let divisor = factor.saturating_pow(round);
        usize::try_from((candidates as u64).div_ceil(divisor)).unwrap_or(candidates).max(least).min(candidates)
    };
    let last = rounds.max(1) - 1;
    // Where the next round has as many, shorter runs decide nothing.
    let rounds = (0..=last).filter(|round| *round == last || fewer(round + 1) < fewer(*round));
    rounds.map(|round| Rung { divisor: factor.saturating_pow(last - round), candidates: fewer(round) }).collect()
}

/// Which of the scored candidates run in a round for this number of them, by their positions, the best first: those that keep
/// all limits, layer by layer of the front of cost against time; then the others, those nearest to their limits first.
pub fn survivors(scores: &[Score], count: usize) -> Vec<usize> {
    let (kept, broken): (Vec<usize>, Vec<usize>) = (0..scores.len()).partition(|at| scores[*at].used <= 1.0);
    let points: Vec<(f64, f64)> = kept.iter().map(|at| (scores[*at].cost, scores[*at].time)).collect();
    let layers = layers(&points);
    let always = layers.first().map_or(0, Vec::len);
    let mut order: Vec<usize> = layers.into_iter().flatten().map(|at| kept[at]).collect();
    let mut broken = broken;
    broken
        .sort_by(|a, b| scores[*a].used.total_cmp(&scores[*b].used).then(scores[*a].cost.total_cmp(&scores[*b].cost)));
    order.extend(broken);
    order.truncate(count.max(always));
    order
}
