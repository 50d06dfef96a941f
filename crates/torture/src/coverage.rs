use crate::{ClientEvent, Configuration, FaultKind, SeedKind, Step};
use engine::checkpoint::Strategy;
use engine::second_level::DESIGNS;
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

/// The steps at which databases of every pair are to stop: during a checkpoint sweep, while the superblock file is written, and in a
/// restart, while the backup is loaded and the log replayed.
const STOPS: [Step; 4] = [Step::SegmentWrite, Step::SuperblockWrite, Step::SegmentRead, Step::LogScan];

/// What caches may meet in a run, beside [`ClientEvent::CacheEmptied`] and [`ClientEvent::CacheOlder`], which they meet between two.
const AT_TIERS: [(&str, &[FaultKind]); 6] = [
    ("cut, kill", &[FaultKind::PowerCut, FaultKind::Kill]),
    ("error", &[FaultKind::Error]),
    ("slow", &[FaultKind::Slow]),
    ("hung", &[FaultKind::Hung]),
    ("lost, old", &[FaultKind::LostWrite, FaultKind::Misdirected, FaultKind::StaleRead]),
    ("damaged", &[FaultKind::Flip, FaultKind::Unreadable, FaultKind::Decay, FaultKind::Rot]),
];

/// The designs of caches, by name.
pub fn cache_designs() -> impl Iterator<Item = &'static str> {
    DESIGNS.iter().map(|design| design.name())
}

/// What caches may meet, in words.
pub fn met_by_caches() -> impl Iterator<Item = &'static str> {
    AT_TIERS
        .into_iter()
        .map(|(name, _)| name)
        .chain([ClientEvent::CacheEmptied, ClientEvent::CacheOlder].map(ClientEvent::name))
}

/// What is to happen to databases while whole backups are taken of them.
pub const BESIDE_BACKUPS: [ClientEvent; 9] = [
    ClientEvent::Created,
    ClientEvent::Loaded,
    ClientEvent::Dropped,
    ClientEvent::Renamed,
    ClientEvent::Truncated,
    ClientEvent::Compacted,
    ClientEvent::SetCompacted,
    ClientEvent::IndexCreated,
    ClientEvent::IndexDropped,
];

/// How often each kind of fault hit each step, and what power cuts did to writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    hits: BTreeMap<(FaultKind, Step), u64>,
    /// How often a database with sets, of each pair, stopped at each step.
    stops: BTreeMap<(Pair, Step), u64>,
    events: BTreeMap<ClientEvent, u64>,
    /// What caches of each design met.
    designs: BTreeMap<(&'static str, &'static str), u64>,
    /// What happened while backups were taken that are whole.
    beside_backups: BTreeMap<ClientEvent, u64>,
    /// What became of writes that were not durable at a power cut.
    pub survival: Survival,
}

impl Coverage {
    /// Counts one hit.
    pub fn hit(&mut self, kind: FaultKind, step: Step) {
        *self.hits.entry((kind, step)).or_default() += 1;
    }

    /// Counts something that a client has met.
    pub fn event(&mut self, event: ClientEvent) {
        *self.events.entry(event).or_default() += 1;
    }

    /// How often clients met this.
    pub fn events(&self, event: ClientEvent) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    /// Counts what has happened since a backup began that is whole now; `begun` is the coverage of then.
    pub fn end_backup(&mut self, begun: &Coverage) {
        for event in BESIDE_BACKUPS {
            let count = self.events(event) - begun.events(event);
            *self.beside_backups.entry(event).or_default() += count;
        }
    }

    /// How often this happened while a backup was taken that is whole.
    pub fn beside_backups(&self, event: ClientEvent) -> u64 {
        self.beside_backups.get(&event).copied().unwrap_or(0)
    }

    /// Counts where a run with sets of this pair ended.
    pub fn end(&mut self, pair: Pair, run: &Coverage) {
        for step in STOPS {
            let stops = run.count(FaultKind::PowerCut, step) + run.count(FaultKind::Kill, step);
            *self.stops.entry((pair, step)).or_default() += stops;
        }
    }

    /// Counts something that the cache of this configuration met.
    pub fn design(&mut self, configuration: &Configuration, what: &'static str) {
        self.add_to_design(configuration, what, 1);
    }

    fn add_to_design(&mut self, configuration: &Configuration, what: &'static str, count: u64) {
        if let Some(cache) = &configuration.settings.hierarchy.cache {
            *self.designs.entry((cache.design.name(), what)).or_default() += count;
        }
    }

    /// Counts what the cache of this configuration met in a run, as far as it was not changed meanwhile.
    pub fn end_with_cache(&mut self, configuration: &Configuration, run: &Coverage) {
        if run.events(ClientEvent::CacheChanged) > 0 {
            return;
        }
        for (what, kinds) in AT_TIERS {
            let steps = [Step::TierScan, Step::TierRead, Step::TierWrite];
            let hits = steps.iter().flat_map(|step| kinds.iter().map(|kind| run.count(*kind, *step))).sum();
            self.add_to_design(configuration, what, hits);
        }
    }

    /// How often a cache of this design met this.
    pub fn met_by_design(&self, design: &str, what: &str) -> u64 {
        let is_it = |key: &(&str, &str)| *key == (design, what);
        self.designs.iter().filter(|(key, _)| is_it(key)).map(|(_, count)| count).sum()
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

    /// Adds the coverage of another scenario.
    pub fn add(&mut self, other: &Coverage) {
        for (cell, count) in &other.hits {
            *self.hits.entry(*cell).or_default() += count;
        }
        for (cell, count) in &other.stops {
            *self.stops.entry(*cell).or_default() += count;
        }
        for (event, count) in &other.events {
            *self.events.entry(*event).or_default() += count;
        }
        for (met, count) in &other.designs {
            *self.designs.entry(*met).or_default() += count;
        }
        for (event, count) in &other.beside_backups {
            *self.beside_backups.entry(*event).or_default() += count;
        }
        self.add_survival(other.survival);
    }

    /// Adds what a power cut did.
    pub fn add_survival(&mut self, other: Survival) {
        self.survival.kept += other.kept;
        self.survival.lost += other.lost;
        self.survival.torn += other.torn;
    }

    /// Names the kinds of faults that hit nothing, the steps that nothing hit and the events that no client met; a few hundred
    /// seeds meet them all.
    pub fn absent(&self, kind: SeedKind) -> Vec<String> {
        let hits = |fault: FaultKind| Step::ALL.iter().map(|step| self.count(fault, *step)).sum::<u64>();
        let faults = FaultKind::all().filter(|fault| hits(*fault) == 0);
        let met = |step: Step| FaultKind::all().map(|fault| self.count(fault, step)).sum::<u64>();
        let steps = Step::ALL.into_iter().filter(|step| step.is_met_by(kind) && met(*step) == 0);
        let faults = faults.map(|fault| format!("{} anywhere", fault.name()));
        let events = self.unmet(kind).filter(|event| !event.is_rare()).map(|event| event.name().to_owned());
        faults.chain(steps.map(|step| format!("anything at {}", step.name()))).chain(events).collect()
    }

    fn unmet(&self, kind: SeedKind) -> impl Iterator<Item = ClientEvent> {
        ClientEvent::ALL.into_iter().filter(move |event| event.is_met_by(kind) && self.events(*event) == 0)
    }

    /// What seeds of this kind never met, in words: what a few hundred seeds meet, and each kind of fault at each step that it can hit; events; writes kept, lost and
    /// torn. Thousands of seeds meet it all. Of isolation only the steps are asked for that the other seeds do not reach: it
    /// takes more seeds than that to have every fault at every other one.
    pub fn missing(&self, kind: SeedKind) -> Vec<String> {
        let cells = FaultKind::all().flat_map(|fault| Step::ALL.iter().map(move |step| (fault, *step)));
        let missed =
            cells.filter(|(fault, step)| is_due(*step, kind) && step.admits(*fault) && self.count(*fault, *step) == 0);
        let mut missing = self.absent(kind);
        missing.extend(missed.map(|(fault, step)| format!("{} at {}", fault.name(), step.name())));
        if kind == SeedKind::Durability {
            let missed = self.stops().filter(|(_, _, count)| *count == 0);
            missing.extend(missed.map(|((logging, strategy), step, _)| {
                format!("a stop at {} with {logging:?} and {strategy:?}", step.name())
            }));
            let missed = BESIDE_BACKUPS.into_iter().filter(|event| self.beside_backups(*event) == 0);
            missing.extend(missed.map(|event| format!("{} beside a backup", event.name())));
        }
        missing.extend(self.unmet(kind).filter(|event| event.is_rare()).map(|event| event.name().to_owned()));
        let met = cache_designs().flat_map(|design| met_by_caches().map(move |what| (design, what)));
        let unmet = met.filter(|(design, what)| self.met_by_design(design, what) == 0);
        missing.extend(unmet.map(|(design, what)| format!("{what} with a cache of design {design}")));
        let Survival { kept, lost, torn } = self.survival;
        let counts = [("kept", kept), ("lost", lost), ("torn", torn)];
        missing.extend(counts.iter().filter(|(_, count)| *count == 0).map(|(name, _)| format!("a {name} write")));
        missing
    }
}

/// Whether seeds of this kind have to have every fault at this step.
fn is_due(step: Step, kind: SeedKind) -> bool {
    match kind {
        SeedKind::Durability => step.is_met_by(kind),
        SeedKind::Isolation => !step.is_met_by(SeedKind::Durability),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_met_is_named() {
        let mut coverage = Coverage::default();
        let all = coverage.missing(SeedKind::Durability).len();
        coverage.hit(FaultKind::Error, Step::LogWrite);
        coverage.add_survival(Survival { kept: 1, lost: 0, torn: 0 });
        let missing = coverage.missing(SeedKind::Durability);
        // That, errors and log writes at all, and a kept write.
        assert_eq!(missing.len(), all - 4);
        assert!(missing.contains(&"power cut at log write".to_owned()) && missing.contains(&"a torn write".to_owned()));
        assert!(!missing.contains(&"slow at resize".to_owned()), "a resize is never slow");
        let isolation = coverage.missing(SeedKind::Isolation);
        assert!(isolation.contains(&"error at undo space read".to_owned()));
        assert!(
            isolation.contains(&"kill anywhere".to_owned()) && isolation.contains(&"anything at log sync".to_owned())
        );
        let absent = coverage.absent(SeedKind::Durability);
        assert!(
            absent.contains(&"power cut anywhere".to_owned()) && absent.contains(&"anything at log sync".to_owned())
        );
        assert!(
            !absent.contains(&"error anywhere".to_owned()) && !absent.contains(&"anything at log write".to_owned())
        );
        assert!(absent.contains(&"partition dropped".to_owned()) && missing.contains(&"1,000 partitions".to_owned()));
        assert!(!absent.contains(&"1,000 partitions".to_owned()), "few seeds have as many");
        coverage.event(ClientEvent::Dropped);
        assert!(!coverage.absent(SeedKind::Durability).contains(&"partition dropped".to_owned()));
        assert!(!absent.contains(&"anything at undo space read".to_owned()), "only isolation reads the past");
    }
}
