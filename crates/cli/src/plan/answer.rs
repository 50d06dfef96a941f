//! The answer to a plan: the front, what binds each of its points, and what the next one would bring.

use super::search::{Found, Tried};
use base::units::grouped_decimal;
use plan::front::{front, told_apart};
use plan::limits::Nearness;
use plan::{Candidate, Figures, Plan, PlanError};

/// What a search says of a plan.
pub struct Answer<'a> {
    /// The points of the front by cost.
    pub front: Vec<AnswerPoint<'a>>,
    /// Every candidate with what became of it.
    pub all: Vec<(&'a Candidate, &'a Tried)>,
    /// How the search went.
    pub found: &'a Found,
    /// The front's figures are of runs of at least this part of the full length.
    pub divisor: u64,
    /// Why there is no front, if there is none.
    pub infeasible: Option<PlanError>,
}

/// A point of the front.
pub struct AnswerPoint<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// What its longest run gave.
    pub figures: &'a Figures,
    /// The limits, the nearest first.
    pub limits: Vec<Nearness>,
    /// What the next point costs more in a month, and by how many microseconds its 99 % response time is shorter.
    pub next: Option<(f64, f64)>,
}

impl Answer<'_> {
    /// Whether points are on the front though it is not known whether they keep the limit of restarts: these are behind full runs alone.
    pub fn lacks_restarts(&self, plan: &Plan) -> bool {
        plan.limits.recovery_ns.is_some() && self.front.iter().any(|point| point.figures.recovery_s.is_none())
    }
}

impl AnswerPoint<'_> {
    /// What is used most: a station or the limit of a device, with its utilization.
    pub fn busiest(&self) -> Option<&(String, f64)> {
        self.figures.utilizations.first()
    }
}

/// The answer that a search gives.
pub fn answer<'a>(plan: &'a Plan, found: &'a Found) -> Answer<'a> {
    let all: Vec<(&Candidate, &Tried)> = plan.candidates.iter().zip(&found.tried).collect();
    // Where the time was over within a round, some of its candidates have longer runs than others.
    let longest = |(at, (candidate, tried)): (usize, &(&'a Candidate, &'a Tried))| {
        let (divisor, figures) = tried.figures.as_ref()?;
        (found.present.contains(&at) && tried.may_be()).then_some((*divisor, (*candidate, figures)))
    };
    let (divisors, compared): (Vec<u64>, Vec<(&Candidate, &Figures)>) =
        all.iter().enumerate().filter_map(longest).unzip();
    let divisor = divisors.into_iter().max().unwrap_or(1);
    let kept: Vec<(&Candidate, &Figures)> =
        compared.iter().copied().filter(|(_, figures)| plan.limits.are_kept(figures)).collect();
    let places: Vec<(f64, f64)> = kept.iter().map(|(_, figures)| (figures.cost_per_month, figures.p99_us)).collect();
    let order = told_apart(&places, front(&places));
    let point = |(number, at): (usize, &usize)| {
        let (candidate, figures) = kept[*at];
        let mut limits = plan.limits.nearness(figures);
        limits.sort_by(|a, b| b.used.total_cmp(&a.used));
        let next = order
            .get(number + 1)
            .map(|next| (places[*next].0 - figures.cost_per_month, figures.p99_us - places[*next].1));
        AnswerPoint { candidate, figures, limits, next }
    };
    let front: Vec<AnswerPoint<'_>> = order.iter().enumerate().map(point).collect();
    let infeasible = front.is_empty().then(|| infeasible(plan, found, &compared));
    Answer { front, all, found, divisor, infeasible }
}

/// Which limit keeps all candidates out, and which of them is nearest to keeping all.
fn infeasible(plan: &Plan, found: &Found, compared: &[(&Candidate, &Figures)]) -> PlanError {
    let is_untried = |tried: &&Tried| tried.unfit.is_none() && tried.figures.is_none() && tried.failure.is_none();
    let untried = found.tried.iter().filter(is_untried).count();
    let broken =
        compared.iter().filter_map(|(candidate, figures)| Some((plan.limits.worst(figures)?, *candidate, *figures)));
    if let Some((worst, candidate, figures)) = broken.min_by(|a, b| a.0.used.total_cmp(&b.0.used)) {
        let untried = match untried {
            0 => String::new(),
            _ => format!("; the time was over before {untried} others had run: --resume goes on with them"),
        };
        let nearest = format!(
            "{}: {} {} a month, 99 % within {} ms, {} transactions/s, which misses '{}' by a factor of {}{untried}",
            candidate.name(),
            grouped_decimal(figures.cost_per_month, 2),
            plan.currency,
            grouped_decimal(figures.p99_us / 1e3, 2),
            grouped_decimal(figures.throughput_per_s, 0),
            worst.limit,
            grouped_decimal(worst.used, 3)
        );
        return PlanError::Infeasible { limit: worst.limit, nearest };
    }
    if untried > 0 {
        let nearest = "unknown: the time was over before a run had ended".to_owned();
        return PlanError::Infeasible { limit: "time".to_owned(), nearest };
    }
    let pruned = plan
        .candidates
        .iter()
        .zip(&found.tried)
        .filter_map(|(candidate, tried)| tried.unfit.as_ref().map(|unfit| (candidate.name(), unfit)));
    let refused = plan.refused.iter().map(|refused| {
        let labels: Vec<&str> = refused.choices.iter().map(|(_, label)| label.as_str()).collect();
        (labels.join(", "), &refused.unfit)
    });
    match pruned.chain(refused).min_by(|a, b| a.1.used().total_cmp(&b.1.used())) {
        Some((name, unfit)) => {
            PlanError::Infeasible { limit: unfit.limit().to_owned(), nearest: format!("{name}: {unfit}") }
        }
        None => {
            let failure = found.tried.iter().find_map(|tried| tried.failure.clone());
            let nearest = failure.unwrap_or_else(|| "unknown: there is no candidate".to_owned());
            PlanError::Infeasible { limit: "time".to_owned(), nearest }
        }
    }
}
