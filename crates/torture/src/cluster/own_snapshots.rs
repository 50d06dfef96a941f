//! Snapshots of the database itself, which the program that serves it reads while nodes change what they see.
//!
//! Objects on pages are not among it: their partition has no locks, so a snapshot of the database sees them as they are.

use super::ClusterEvent;
use super::actor::{log_key, record_key, tree_key, tree_number, version};
use super::course::Course;
use super::set_orders;
use super::shape::{ARRIVALS, LOG, OFFERS, STOCK, THINGS, TREE};
use super::{sets, things};
use crate::history::{History, Level, Span};
use base::Random;
use base::time::MILLISECOND_NS;
use engine::{Database, Direction, Error, Result, Snapshot};
use executor::Executor;
use std::cell::RefMut;
use std::rc::Rc;

/// Whether a seed has this: none of those whose nodes alone find what is planted.
pub(super) fn is_of(seed: u64) -> bool {
    matches!(seed % 16, 2 | 6 | 7)
}

/// Reads snapshots, one after the other.
pub(super) struct OwnReader {
    pub executor: Executor,
    pub course: Rc<Course>,
    pub database: Database,
    pub random: Random,
}

impl OwnReader {
    /// Reads until the database is closed, or all is over.
    pub async fn work(mut self) {
        while !self.course.over.get() {
            let rest_ns = self.random.below(self.course.shape.rest_ns_max);
            self.executor.sleep_ns(rest_ns).await;
            match self.read_one().await {
                Ok(()) => self.course.event(ClusterEvent::OwnSnapshotRead),
                Err(Error::Closed) => return,
                Err(Error::BufferExhausted { .. }) => {}
                Err(error) if self.course.is_of_failed_device(&error.to_string()) => {}
                Err(error) => return self.course.wrong(format!("a snapshot of the database that is served: {error}")),
            }
        }
    }

    fn history(&self) -> RefMut<'_, History> {
        self.course.history.borrow_mut()
    }

    async fn read_one(&mut self) -> Result<()> {
        let reader = self.history().begin(Level::Snapshot);
        let mut snapshot = match self.database.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.history().aborted(reader);
                return Err(error);
            }
        };
        self.history().started(reader);
        let read = self.read_some(&mut snapshot, reader).await;
        // What it was shown has to be right, whatever has ended it.
        self.history().asks(reader);
        self.history().committed(reader);
        read
    }

    async fn read_some(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        for _ in 0..self.random.between(1, 8) {
            if self.random.chance(0.5) {
                self.executor.sleep_ns(self.random.below(50 * MILLISECOND_NS)).await;
            }
            match self.random.below(8) {
                0..2 => self.get(snapshot, reader).await?,
                2..4 => self.scan(snapshot, reader).await?,
                4 => self.scan_log(snapshot, reader).await?,
                5 if self.course.shape.things > 0 => self.scan_things(snapshot, reader).await?,
                6..8 if self.course.shape.set_records > 0 => self.scan_sets(snapshot, reader).await?,
                _ => {}
            }
        }
        Ok(())
    }

    async fn get(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        let number = self.random.below(self.course.shape.keys);
        let found = snapshot.get(self.database.partition(TREE)?, &tree_key(number)).await?;
        self.history().read(reader, record_key(number), found.map(|value| version(&value)));
        Ok(())
    }

    async fn scan(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        let all = snapshot.scan(self.database.partition(TREE)?, .., Direction::Forward).take(usize::MAX).await?;
        let found = all.iter().map(|(key, value)| (record_key(tree_number(key)), version(value))).collect();
        self.history().scanned(reader, TREE, Span::ALL, found);
        Ok(())
    }

    async fn scan_log(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        let mut found = Vec::new();
        let look = |_, record: &[u8]| {
            found.push((log_key(version(record)), version(record)));
            true
        };
        snapshot.scan_appended(self.database.partition(LOG)?, look).await?;
        self.history().scanned(reader, LOG, Span::ALL, found);
        Ok(())
    }

    async fn scan_things(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        let things = self.database.partition(THINGS)?;
        let found = if self.random.chance(0.5) {
            let all = snapshot.scan(things, .., Direction::Forward).take(usize::MAX).await?;
            all.iter().map(|(key, value)| things::shown(key, value)).collect()
        } else {
            things::range_of(&self.database, snapshot).await?
        };
        self.history().scanned(reader, THINGS, Span::ALL, found);
        Ok(())
    }

    async fn scan_sets(&mut self, snapshot: &mut Snapshot, reader: usize) -> Result<()> {
        let mut found = Vec::new();
        let store = *self.random.choose(&[STOCK, OFFERS, ARRIVALS]).expect("there are three");
        let partition = self.database.partition(store)?;
        match store {
            STOCK => found = sets::at_moment(snapshot, partition).await?,
            OFFERS => {
                let look = |key: &[u8], value: &[u8]| {
                    found.push(set_orders::shown(OFFERS, key, value));
                    true
                };
                snapshot.scan_set(partition, look).await?;
            }
            _ => {
                let look = |_, record: &[u8]| {
                    found.push(set_orders::arrived(record));
                    true
                };
                snapshot.scan_appended(partition, look).await?;
            }
        }
        self.history().scanned(reader, store, Span::ALL, found);
        Ok(())
    }
}
