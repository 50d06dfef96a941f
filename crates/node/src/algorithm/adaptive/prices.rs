//! What disk operations and messages cost, by how long clients have waited for pages.

use super::ghost::Tally;
use crate::algorithm::Origin;

/// What one wait weighs in the mean.
const WEIGHT: f64 = 1.0 / 64.0;
/// What a page message costs at least, of a wait for a page in the server's memory: the sender's part of the work.
const PART_MIN: f64 = 0.25;
/// No wait is longer than this, whatever is said, in nanoseconds.
const WAIT_NS_MAX: u64 = 10 * base::time::SECOND_NS;

/// What was measured.
#[derive(Default)]
pub(super) struct Prices {
    memory: Waits,
    client: Waits,
    disk: Waits,
}

/// How long pages of one origin were waited for, in nanoseconds.
#[derive(Default)]
struct Waits {
    /// Nothing before the first one.
    mean: Option<f64>,
    /// The shortest, about.
    least: f64,
    /// How many in this round.
    count: u64,
}

impl Waits {
    fn note(&mut self, wait: f64) {
        self.count += 1;
        // One that is not honest may have waited for nothing.
        let wait = wait.max(self.least / 2.0);
        // The first ones weigh as much as they are.
        let mean = self.mean.unwrap_or(wait);
        self.least =
            if self.mean.is_none() { wait } else { wait.min(self.least + (mean - self.least) * WEIGHT * WEIGHT) };
        self.mean = Some(mean + (wait - mean) * WEIGHT);
    }

    /// What was not waited for is not as dear as it was.
    fn end_round(&mut self) {
        if std::mem::take(&mut self.count) == 0 {
            self.mean = self.mean.map(|mean| mean.min(mean + (2.0 * self.least - mean) / 4.0));
        }
    }
}

/// What things cost, in nanoseconds of a client's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// A page that is read, wherever it is.
    pub all: f64,
    /// What it costs more if another client sends it.
    pub forward: f64,
    /// An operation of the disk.
    pub disk: f64,
    /// A page that comes back.
    pub returned: f64,
}

impl Rates {
    /// What one read has cost in the mean, beside what all cost.
    pub fn cost(&self, tally: &Tally) -> f64 {
        let disk = self.disk * (tally.disk_reads + tally.disk_writes);
        (self.forward * tally.forwards + disk + self.returned * tally.returns) / tally.reads.max(1.0)
    }
}

impl Prices {
    /// A client has waited for a page.
    pub fn note(&mut self, origin: Origin, waited_ns: u64) {
        let waits = match origin {
            Origin::Memory => &mut self.memory,
            Origin::Client => &mut self.client,
            Origin::Disk => &mut self.disk,
        };
        waits.note(waited_ns.min(WAIT_NS_MAX) as f64);
    }

    /// The end of a round.
    pub fn end_round(&mut self) {
        [&mut self.memory, &mut self.client, &mut self.disk].into_iter().for_each(Waits::end_round);
    }

    /// What things cost at present, where this was done. None before that can be told.
    pub fn rates(&self, done: &Tally) -> Option<Rates> {
        let (all, disk) = (self.memory.mean?, self.disk.mean?);
        // A miss waits for the dirty page that makes room, too. Others make room for pages that come with commits or come back.
        let operations = 1.0 + (done.disk_writes / done.disk_reads.max(1.0)).min(1.0);
        let queueing = 1.0 - self.memory.least / all;
        // What is not waited for takes its part of the senders' work where there are no queues. Where messages queue it delays all that
        // come behind it, up to about twice as long as one waits for a page.
        let part = PART_MIN.max(queueing * (1.0 + queueing));
        // One short message more: what that waits in queues says little of what it adds to them.
        let forward = self.client.mean.map_or(all * PART_MIN, |_| (self.client.least - self.memory.least).max(0.0));
        Some(Rates { all, forward, disk: (disk - all).max(0.0) / operations, returned: all * part })
    }
}
