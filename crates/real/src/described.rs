//! Real devices that behave as described ones: each request completes when both the device and the model of its description
//! have it done, on the wall clock.
//!
//! So a device is as slow as described, and not slower, where the real device is faster.

use base::Instant;
use devices::{Device, Hardware, JobId, Machine, Transfer};
use driver::{CacheReport, CachedFile, StationReport};
use std::collections::BTreeMap;

/// The running model of one device's description.
pub(crate) struct Model {
    machine: Machine,
    /// Which slot's transfer waits for which of the machine's jobs.
    waiting: Vec<Option<u32>>,
}

impl Model {
    /// A model of this description under this name; `seed` draws its service times.
    pub(crate) fn new(name: &str, description: &Device, seed: u64) -> Model {
        let devices = BTreeMap::from([(name.to_owned(), description.clone())]);
        let hardware = Hardware { name: name.to_owned(), cpu: None, devices, networks: BTreeMap::new() };
        Model { machine: Machine::new(&hardware, seed, false), waiting: Vec::new() }
    }

    /// The transfer of this slot begins.
    pub(crate) fn start(&mut self, now: Instant, slot: u32, transfer: Transfer, ended: &mut Vec<u32>) {
        self.advance(now, ended);
        let JobId(job) = self.machine.transfer(0, transfer);
        let job = job as usize;
        if self.waiting.len() <= job {
            self.waiting.resize(job + 1, None);
        }
        self.waiting[job] = Some(slot);
    }

    /// When something happens next, if anything will.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.machine.next()
    }

    /// Time has passed: appends the slots whose transfers are done by the description.
    pub(crate) fn advance(&mut self, now: Instant, ended: &mut Vec<u32>) {
        while self.machine.next().is_some_and(|next| next <= now) {
            if let Some(JobId(job)) = self.machine.step() {
                ended.extend(self.waiting[job as usize].take());
            }
        }
        self.machine.pass(now);
    }

    pub(crate) fn restart(&mut self) {
        self.machine.restart_statistics();
    }

    /// The reports of the described stations.
    pub(crate) fn stations(&self) -> impl Iterator<Item = StationReport> {
        self.machine.stations().into_iter()
    }

    /// The report of the described cache; `name` tells a file's name by its number.
    pub(crate) fn caches(&self, device: &str, name: impl Fn(u32) -> String) -> impl Iterator<Item = CacheReport> {
        self.machine.caches().map(move |(_, cache, counts)| CacheReport {
            device: device.to_owned(),
            kind: cache.kind.word().to_owned(),
            pages: cache.pages(),
            files: counts
                .iter()
                .map(|(file, counts)| CachedFile {
                    name: name(*file),
                    reads: counts.reads,
                    read_hits: counts.read_hits,
                    writes: counts.writes,
                    write_hits: counts.write_hits,
                    absorbed: counts.absorbed,
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use devices::Direction;

    #[test]
    fn transfers_end_when_the_description_says() {
        let mut description = Hardware::named("rahm-1991").expect("embedded").devices["nvem"].clone();
        description.capacity = None;
        let mut model = Model::new("nvem", &description, 1);
        let transfer = Transfer { direction: Direction::Read, file: 0, offset: 0, length: 4096, fresh: false };
        let at = |us: u64| Instant::from_ns(us * 1_000);
        let mut ended = Vec::new();
        model.start(at(10), 7, transfer, &mut ended);
        model.start(at(20), 8, transfer, &mut ended);
        assert_eq!(model.next(), Some(at(60)));
        model.advance(at(59), &mut ended);
        assert!(ended.is_empty());
        model.advance(at(75), &mut ended);
        assert_eq!(ended, [7], "one server, 50 us each");
        model.start(at(200), 7, transfer, &mut ended);
        assert_eq!((ended.as_slice(), model.next()), ([7, 8].as_slice(), Some(at(250))));
    }
}
