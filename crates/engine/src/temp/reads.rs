//! Reading several runs ahead of a merge.
//!
//! Which run's clusters run out first shows in the last keys of what is here: the least of them is read on (forecasting: Knuth,
//! The Art of Computer Programming, volume 3, section 5.4.6). A wrong forecast only costs time: a frame is kept for every run
//! that has none.

use super::cluster::last_key;
use super::frames::Frames;
use super::run::Run;
use super::space::Space;
use super::stream::Damage;
use crate::{Error, Result};
use driver::Frame;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Reads under way at once, at most.
const DEPTH: usize = 16;

/// Clusters of several runs on their way into memory.
pub(super) struct Reads {
    space: Space,
    frames: Frames,
    runs: Vec<Reading>,
    arrivals: Arrivals,
}

/// Clusters that have arrived: run, cluster and bytes.
type Arrivals = Rc<RefCell<Vec<(usize, u32, Frame)>>>;

struct Reading {
    run: Run,
    /// The next cluster to ask for.
    next: u32,
    /// The next cluster to deliver.
    delivered: u32,
    /// Clusters whose rows were all used.
    spent: u32,
    /// About the last key of the latest cluster that has arrived.
    last_key: u64,
    /// Clusters that have arrived before those in front of them.
    waiting: VecDeque<(u32, Frame)>,
}

impl Reading {
    /// Frames that hold its clusters, or will.
    fn holds(&self) -> u32 {
        self.next - self.spent
    }

    fn in_flight(&self) -> u32 {
        self.next - self.delivered - self.waiting.len() as u32
    }

    fn is_asked_for(&self) -> bool {
        self.next == self.run.clusters
    }
}

impl Reads {
    /// Of these runs into the given frames, at least one for each.
    ///
    /// # Errors
    /// The driver's, if there is no memory.
    pub fn new(space: &Space, runs: Vec<Run>, frames: usize) -> Result<Reads> {
        assert!(frames >= runs.len(), "every run needs a frame");
        let clusters = runs.iter().map(|run| run.clusters as usize).sum::<usize>();
        let frames = Frames::new(space.executor(), frames.min(clusters), space.cluster_size())?;
        let reading = |run| Reading { run, next: 0, delivered: 0, spent: 0, last_key: 0, waiting: VecDeque::new() };
        Ok(Reads {
            space: space.clone(),
            frames,
            runs: runs.into_iter().map(reading).collect(),
            arrivals: Rc::default(),
        })
    }

    /// The frames that are read into.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Waits until something has arrived.
    pub async fn changed(&self) {
        self.frames.changed().await;
    }

    /// Nothing has failed.
    ///
    /// # Errors
    /// The first failure of a read.
    pub fn check(&self) -> Result<()> {
        self.frames.check()
    }

    /// Starts as many reads as frames and the device's queue allow.
    pub async fn start(&mut self) {
        while self.frames.in_flight() < DEPTH && self.frames.free_count() > 0 && self.choose().is_some() {
            let access = self.space.pay().await;
            // Nothing is noted before the wait, so that it can be given up and begun again.
            let Some(number) = self.choose() else { return };
            let Some(frame) = self.frames.try_take() else { return };
            let reading = &mut self.runs[number];
            let cluster = reading.next;
            reading.next += 1;
            let arrivals = Rc::clone(&self.arrivals);
            let arrived = move |frame| arrivals.borrow_mut().push((number, cluster, frame));
            reading.run.read(cluster, (&self.frames, frame), access, arrived);
        }
    }

    /// The run to read next.
    fn choose(&self) -> Option<usize> {
        let open = || self.runs.iter().enumerate().filter(|(_, reading)| !reading.is_asked_for());
        let empty = open().filter(|(_, reading)| reading.holds() == 0).count();
        let allowed = |reading: &Reading| reading.holds() == 0 || self.frames.free_count() > empty;
        let urgency = |reading: &Reading| (reading.holds() > 0, reading.in_flight(), reading.last_key);
        let chosen = open().filter(|(_, reading)| allowed(reading)).min_by_key(|(_, reading)| urgency(reading));
        chosen.map(|(number, _)| number)
    }

    /// Hands over what has arrived, for each run in the order of its clusters.
    pub fn deliver(&mut self, mut to: impl FnMut(usize, Frame)) {
        for (number, cluster, frame) in self.arrivals.borrow_mut().drain(..) {
            let waiting = &mut self.runs[number].waiting;
            let place = waiting.partition_point(|(other, _)| *other < cluster);
            waiting.insert(place, (cluster, frame));
        }
        for (number, reading) in self.runs.iter_mut().enumerate() {
            while let Some((_, frame)) = reading.waiting.pop_front_if(|(cluster, _)| *cluster == reading.delivered) {
                reading.last_key = last_key(&frame).unwrap_or(reading.last_key);
                reading.delivered += 1;
                to(number, frame);
            }
        }
    }

    /// A cluster's rows were all used.
    pub fn take_back(&mut self, number: usize, frame: Frame) {
        let reading = &mut self.runs[number];
        reading.run.release(reading.spent);
        reading.spent += 1;
        self.frames.put(frame);
    }

    /// The error that a damaged cluster makes.
    pub fn damaged(&self, number: usize, damage: Damage) -> Error {
        self.runs[number].run.damaged(damage)
    }
}
