//! Snapshots that a node reads beside its transactions, and writes down what it is shown.

use super::ClusterEvent;
use super::actor::{Tables, log_key, page_key, record_key, tree_key, tree_number, version};
use super::course::{Course, TransactionStart};
use super::set_orders;
use super::shape::{LOG, TREE};
use crate::history::{History, Level, Span};
use base::Random;
use base::time::MILLISECOND_NS;
use engine::organization::direct;
use engine::{Error, Result};
use executor::Executor;
use node::page_client::{PageClient, PageSnapshot};
use std::cell::RefMut;
use std::ops::Bound;
use std::rc::Rc;

/// Reads snapshots, one after the other.
pub(super) struct ClusterReader {
    pub executor: Executor,
    pub course: Rc<Course>,
    /// The node's number.
    pub number: u32,
    pub random: Random,
    pub tables: Tables,
}

impl ClusterReader {
    /// Reads until the node is of no use any more, or all is over.
    pub async fn work(&mut self, client: &PageClient) {
        while !self.course.over.get() {
            let rest_ns = self.random.below(self.course.shape.rest_ns_max);
            self.executor.sleep_ns(rest_ns).await;
            if client.failure().is_some() {
                return;
            }
            self.read_one(client).await;
        }
    }

    fn history(&self) -> RefMut<'_, History> {
        self.course.history.borrow_mut()
    }

    async fn read_one(&mut self, client: &PageClient) {
        let reader = self.history().begin(Level::Snapshot);
        let begun = self.course.begun(self.number, &self.executor);
        let mut snapshot = match client.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.history().aborted(reader);
                return self.judge(begun, error);
            }
        };
        self.history().started(reader);
        let read = self.read_some(&mut snapshot, reader).await;
        // What it was shown has to be right, whatever has ended it.
        self.history().asks(reader);
        self.history().committed(reader);
        match read {
            Ok(()) => self.course.event(ClusterEvent::SnapshotRead),
            Err(error) => self.judge(begun, error),
        }
    }

    fn judge(&self, begun: TransactionStart, error: Error) {
        match error {
            Error::SnapshotTooOld { .. } if self.course.shape.has_little_room_for_snapshots() => {
                self.course.event(ClusterEvent::SnapshotTooOld);
            }
            error => self.course.judge(begun, &error, "snapshot"),
        }
    }

    async fn read_some(&mut self, snapshot: &mut PageSnapshot, reader: usize) -> Result<()> {
        for _ in 0..self.random.between(1, 10) {
            if self.random.chance(0.5) {
                self.executor.sleep_ns(self.random.below(20 * MILLISECOND_NS)).await;
            }
            if let Some(sets) = self.tables.sets.filter(|_| self.random.chance(0.5)) {
                let (history, of_sets) = (&self.course.history, (sets, self.course.shape.set_records));
                set_orders::look_back(snapshot, of_sets, &mut self.random, |note| {
                    note(&mut history.borrow_mut(), reader)
                })
                .await?;
                continue;
            }
            match self.random.below(100) {
                0..50 => self.read_page(snapshot, reader).await?,
                50..75 => self.get(snapshot, reader).await?,
                75..90 => self.scan(snapshot, reader).await?,
                _ => self.scan_appended(snapshot, reader).await?,
            }
        }
        Ok(())
    }

    async fn read_page(&mut self, snapshot: &mut PageSnapshot, reader: usize) -> Result<()> {
        let on_page = self.course.shape.objects_on_page;
        let number = self.random.below(self.course.shape.pages * on_page);
        let found = if self.random.chance(0.5) {
            let place = direct::place(self.tables.pages, number, on_page as u32, 8);
            snapshot.read(place.page, |bytes| version(&bytes[usize::from(place.offset)..])).await?
        } else {
            snapshot.read_object(self.tables.pages, number, version).await?
        };
        self.history().read(reader, page_key(number), Some(found));
        Ok(())
    }

    async fn get(&mut self, snapshot: &mut PageSnapshot, reader: usize) -> Result<()> {
        let number = self.random.below(self.course.shape.keys);
        let found = snapshot.get(self.tables.tree, &tree_key(number)).await?;
        self.history().read(reader, record_key(number), found.map(|value| version(&value)));
        Ok(())
    }

    async fn scan(&mut self, snapshot: &mut PageSnapshot, reader: usize) -> Result<()> {
        let (one, other) = (self.random.below(self.course.shape.keys), self.random.below(self.course.shape.keys));
        let span = Span { first: one.min(other), last: one.max(other) };
        let mut found = Vec::new();
        let look = |key: &[u8], value: &[u8]| {
            let number = tree_number(key);
            if number <= span.last {
                found.push((record_key(number), version(value)));
            }
            number <= span.last
        };
        snapshot.scan(self.tables.tree, Bound::Included(&tree_key(span.first)[..]), look).await?;
        self.history().scanned(reader, TREE, span, found);
        Ok(())
    }

    async fn scan_appended(&mut self, snapshot: &mut PageSnapshot, reader: usize) -> Result<()> {
        let mut found = Vec::new();
        let look = |_, record: &[u8]| {
            found.push((log_key(version(record)), version(record)));
            true
        };
        snapshot.scan_appended(self.tables.log, look).await?;
        self.history().scanned(reader, LOG, Span::ALL, found);
        Ok(())
    }
}
