use crate::{FaultKind, Kind, Step};
use engine::checkpoint::Strategy;
use engine::set::Logging;
use std::collections::BTreeMap;
use virtual_driver::Survival;

/// A log of sets and the sweeps that it goes with.
pub type Pair = (Logging, Strategy);

/// Every log of sets with every strategy that it goes with.
pub fn pairs() -> Vec<Pair> {
    let all = Logging::ALL.into_iter().flat_map(|logging| Strategy::ALL.map(|strategy| (logging, strategy)));
    all.filter(|(logging, strategy)| strategy.check(*logging).is_ok()).collect()
}

/// The steps at which databases of every pair are to stop: within a sweep, as the home file is written, and in a restart, as
/// the backup is loaded and as the log is repeated.
const STOPS: [Step; 4] = [Step::SegmentWrite, Step::HomeWrite, Step::SegmentRead, Step::LogScan];

/// How often each kind of fault hit each step, and what power cuts did to writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    hits: BTreeMap<(FaultKind, Step), u64>,
    /// How often a database with sets, of each pair, stopped at each step.
    stops: BTreeMap<(Pair, Step), u64>,
    /// What became of writes that were not durable at a power cut.
    pub survival: Survival,
}

impl Coverage {
    /// Counts one hit.
    pub fn hit(&mut self, kind: FaultKind, step: Step) {
        *self.hits.entry((kind, step)).or_default() += 1;
    }

    /// Counts where a life with sets of this pair ended, which hit this.
    pub fn end(&mut self, pair: Pair, life: &Coverage) {
        for step in STOPS {
            let stops = life.count(FaultKind::PowerCut, step) + life.count(FaultKind::Kill, step);
            *self.stops.entry((pair, step)).or_default() += stops;
        }
    }

    /// How often this kind hit this step.
    pub fn count(&self, kind: FaultKind, step: Step) -> u64 {
        self.hits.get(&(kind, step)).copied().unwrap_or(0)
    }

    /// How often a database with sets, of each pair in turn, stopped at each step at which they are to stop.
    pub fn stops(&self) -> impl Iterator<Item = (Pair, Step, u64)> {
        let count = |pair, step| self.stops.get(&(pair, step)).copied().unwrap_or(0);
        pairs().into_iter().flat_map(move |pair| STOPS.map(|step| (pair, step, count(pair, step))))
    }

    /// Adds what another story met.
    pub fn add(&mut self, other: &Coverage) {
        for (cell, count) in &other.hits {
            *self.hits.entry(*cell).or_default() += count;
        }
        for (cell, count) in &other.stops {
            *self.stops.entry(*cell).or_default() += count;
        }
        self.add_survival(other.survival);
    }

    /// Adds what a power cut did.
    pub fn add_survival(&mut self, other: Survival) {
        self.survival.kept += other.kept;
        self.survival.lost += other.lost;
        self.survival.torn += other.torn;
    }

    /// What seeds of durability never met, in words: each kind of fault at each step that it can hit; writes kept, lost and
    /// torn.
    pub fn missing(&self) -> Vec<String> {
        let cells = FaultKind::ALL.iter().flat_map(|kind| Step::ALL.iter().map(move |step| (*kind, *step)));
        let due = |kind, step: Step| step.is_met_by(Kind::Durability) && step.admits(kind);
        let missed = cells.filter(|(kind, step)| due(*kind, *step) && self.count(*kind, *step) == 0);
        let mut missing: Vec<String> =
            missed.map(|(kind, step)| format!("{} at {}", kind.name(), step.name())).collect();
        let missed = self.stops().filter(|(_, _, count)| *count == 0);
        missing.extend(missed.map(|((logging, strategy), step, _)| {
            format!("a stop at {} with {logging:?} and {strategy:?}", step.name())
        }));
        let Survival { kept, lost, torn } = self.survival;
        let fates = [("kept", kept), ("lost", lost), ("torn", torn)];
        missing.extend(fates.iter().filter(|(_, count)| *count == 0).map(|(name, _)| format!("a {name} write")));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_met_is_named() {
        let mut coverage = Coverage::default();
        let all = coverage.missing().len();
        coverage.hit(FaultKind::Error, Step::LogWrite);
        coverage.add_survival(Survival { kept: 1, lost: 0, torn: 0 });
        let missing = coverage.missing();
        assert_eq!(missing.len(), all - 2);
        assert!(missing.contains(&"power cut at log write".to_owned()) && missing.contains(&"a torn write".to_owned()));
        assert!(!missing.contains(&"error at resize".to_owned()), "a resize is never failed");
    }
}
