//! What went wrong on purpose, and what came of it.

use super::{ClusterEvent, ClusterFault, ClusterStep};
use node::algorithm::ALGORITHMS;
use std::collections::BTreeMap;

/// How often each fault hit each step, and how often each event was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterCoverage {
    hits: BTreeMap<(ClusterFault, ClusterStep), u64>,
    events: BTreeMap<ClusterEvent, u64>,
    /// Seeds with each algorithm.
    algorithms: BTreeMap<&'static str, u64>,
}

impl ClusterCoverage {
    /// Counts one hit.
    pub fn hit(&mut self, fault: ClusterFault, step: ClusterStep) {
        *self.hits.entry((fault, step)).or_default() += 1;
    }

    /// Counts an event.
    pub fn event(&mut self, event: ClusterEvent) {
        self.event_times(event, 1);
    }

    /// Counts an event this many times.
    pub fn event_times(&mut self, event: ClusterEvent, times: u64) {
        *self.events.entry(event).or_default() += times;
    }

    /// Counts a seed with this algorithm.
    pub fn algorithm(&mut self, name: &'static str) {
        *self.algorithms.entry(name).or_default() += 1;
    }

    /// How often this fault hit this step.
    pub fn count(&self, fault: ClusterFault, step: ClusterStep) -> u64 {
        self.hits.get(&(fault, step)).copied().unwrap_or(0)
    }

    /// How often this was met.
    pub fn events(&self, event: ClusterEvent) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    /// How many seeds had each algorithm.
    pub fn algorithms(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ALGORITHMS.iter().map(|known| (known.name(), self.algorithms.get(known.name()).copied().unwrap_or(0)))
    }

    /// Adds the coverage of another seed.
    pub fn add(&mut self, other: &ClusterCoverage) {
        for (cell, count) in &other.hits {
            *self.hits.entry(*cell).or_default() += count;
        }
        for (event, count) in &other.events {
            *self.events.entry(*event).or_default() += count;
        }
        for (name, count) in &other.algorithms {
            *self.algorithms.entry(name).or_default() += count;
        }
    }

    /// The faults that hit nothing, the steps that nothing hit, the events and algorithms that were not met, in words.
    pub fn absent(&self) -> Vec<String> {
        let of_fault = |fault| ClusterStep::ALL.iter().map(|step| self.count(fault, *step)).sum::<u64>();
        let of_step = |step| ClusterFault::ALL.iter().map(|fault| self.count(*fault, step)).sum::<u64>();
        let faults = ClusterFault::ALL.into_iter().filter(|fault| of_fault(*fault) == 0);
        let steps = ClusterStep::ALL.into_iter().filter(|step| of_step(*step) == 0);
        let faults = faults.map(|fault| format!("{} anywhere", fault.name()));
        faults.chain(steps.map(|step| format!("anything while it {}", step.name()))).chain(self.unmet()).collect()
    }

    /// The same, and each fault that never hit a step which it can hit.
    pub fn missing(&self) -> Vec<String> {
        let cells = ClusterFault::ALL.into_iter().flat_map(|fault| ClusterStep::ALL.map(|step| (fault, step)));
        let missed = cells.filter(|(fault, step)| step.admits(*fault) && self.count(*fault, *step) == 0);
        let missed = missed.map(|(fault, step)| format!("{} at '{}'", fault.name(), step.name()));
        missed.chain(self.unmet()).collect()
    }

    fn unmet(&self) -> impl Iterator<Item = String> {
        let events = ClusterEvent::ALL.into_iter().filter(|event| self.events(*event) == 0);
        let algorithms = self.algorithms().filter(|(_, seeds)| *seeds == 0);
        events.map(|event| event.name().to_owned()).chain(algorithms.map(|(name, _)| format!("a seed with {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_met_is_named() {
        let mut coverage = ClusterCoverage::default();
        let (missing, absent) = (coverage.missing().len(), coverage.absent().len());
        coverage.hit(ClusterFault::Cut, ClusterStep::Read);
        assert_eq!((coverage.missing().len(), coverage.absent().len()), (missing - 1, absent - 2));
        coverage.event(ClusterEvent::Victim);
        coverage.algorithm("fwd");
        assert_eq!((coverage.missing().len(), coverage.absent().len()), (missing - 3, absent - 4));
        assert!(coverage.missing().contains(&"power cut at 'serves'".to_owned()));
        assert!(!coverage.missing().contains(&"grant at 'serves'".to_owned()), "a grant is a node's");
    }
}
