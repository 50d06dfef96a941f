//! Transactions that another node has run on copies of pages: it sends their log records, and the pages that they have changed or the
//! names of these.
//!
//! The records are appended together with the commit as one record of the log, and the pages installed or the records redone, in one
//! synchronous step. So wherever a crash cuts the log, or a restore ends, no transaction of another node is there in part, and none is ever
//! rolled back here: its restructurings are not compared with what they were made of, and an ill node's may leave nothing that its updates
//! could be taken back on. What it changes in memory-resident sets is made before that by a transaction of the engine's, whose commit record
//! ends the record.

use super::Database;
use super::log_room::{check_log_of_shipment, has_log_beside, wait_for_log_of_shipment};
use super::shipment::{SetChange, Shipment, looked_through};
use crate::buffer::ArrivingPages;
use crate::engine::Visit;
use crate::log::{Log, record};
use crate::recovery::redo_edit;
use crate::transaction::{self, ShippedSets};
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Lsn, PageId};
use driver::Work;
use executor::WholeExecutor;
use structures::canary::{self, Canary};
use structures::set::FieldError;
use thiserror::Error;

/// Why a transaction of another node is not committed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CommitFailure {
    /// Nothing of it was logged or changed: it is as if it had been rolled back.
    #[error("{0}")]
    NothingLogged(Error),
    /// It was logged, but the log has failed before it was durable: the next opening shows whether it is committed. Until then its
    /// pages must not be used.
    #[error("{0}")]
    Undecided(Error),
}

impl Database {
    /// Commits a transaction of another node. Nothing else may use the pages that it has changed meanwhile, but for changes of other
    /// records of those whose changes have no numbers. A drop of their
    /// partitions waits. When this returns, the updates survive whatever happens.
    ///
    /// What is sent of pages that are in the buffer has to follow from them, so a caller that does not trust the other node brings them
    /// there before. Those that are redone come there now.
    ///
    /// `note` is told up to which position of the log it is described, before its pages are changed, in the same step: those
    /// that are in the buffer are as they were. If what its caller needs for that is not `at_hand` in that step, it does nothing and
    /// returns false.
    ///
    /// # Errors
    /// Whether anything was logged, and why it failed: [`Error::Shipment`] if records and pages do not fit together,
    /// [`Error::NoPartition`], otherwise as a transaction's commit.
    pub(crate) async fn commit_shipped_noting(
        &self,
        shipment: &Shipment<'_>,
        at_hand: impl Fn() -> bool,
        note: impl FnOnce(Lsn),
    ) -> Result<bool, CommitFailure> {
        let _visit = Visit::new(&self.0.engine);
        let logged = self.log_shipped(shipment, at_hand, note).await.map_err(CommitFailure::NothingLogged)?;
        let Some(lsn) = logged else { return Ok(false) };
        self.executor().whole().pay_debt().await;
        self.log().commit(lsn).await.map_err(CommitFailure::Undecided)?;
        Ok(true)
    }

    /// Logs the transaction and installs its pages, or does nothing and says why. None if not all was at hand for it.
    async fn log_shipped(
        &self,
        shipment: &Shipment<'_>,
        at_hand: impl Fn() -> bool,
        note: impl FnOnce(Lsn),
    ) -> Result<Option<Lsn>> {
        let engine = &self.0.engine;
        engine.core.check_open()?;
        check_length(shipment.records.len() as u64 + COMMIT_SIZE)?;
        self.check_shipment(shipment)?;
        engine.versions.wait_for_room().await;
        let of_pages = shipment.records.len() as u64 + self.logged_length_of_former(shipment) + COMMIT_SIZE;
        let mut length = of_pages + shipment.sets.iter().map(SetChange::bytes_of_log).sum::<u64>();
        check_length(length)?;
        check_log_of_shipment(engine, length)?;
        let mut former = self.find_former(shipment).await?;
        let mut arriving = self.buffer().arriving();
        arriving.fetch(shipment.redone).await?;
        for (page, _) in shipment.images {
            arriving.make_place(*page).await?;
        }
        loop {
            wait_for_log_of_shipment(engine, length).await?;
            // Whatever this waits for, it does not wait for the log with it: that may have to wait for its end.
            let sets = self.change_sets(shipment).await?;
            let of_sets = sets.as_ref().map_or(0, ShippedSets::bytes_of_log);
            length = length.max(of_pages + of_sets);
            check_length(length)?;
            if let Some(failure) = self.log().failure() {
                return Err(failure);
            }
            if former.is_none() && engine.versions.has_moments() {
                // A snapshot has begun meanwhile.
                drop(sets);
                former = self.find_former(shipment).await?;
            } else if has_log_beside(engine, length) {
                if !at_hand() {
                    return Ok(None);
                }
                // In one step with what follows: others may have changed other objects of the pages while this has waited.
                let numbered = self.number_shipped(shipment);
                let shipment = &Shipment { records: numbered.as_deref().unwrap_or(shipment.records), ..*shipment };
                let in_order = self.check_against_present(shipment)?;
                let end = self.append_shipped(shipment, sets, former.as_deref(), (&mut arriving, note));
                self.0.in_order.borrow_mut().note(&in_order);
                return Ok(Some(end));
            }
        }
    }

    /// Makes the changes of sets, which none sees yet; nothing if there are none. They are taken back if what this returns is dropped.
    async fn change_sets(&self, shipment: &Shipment<'_>) -> Result<Option<ShippedSets>> {
        if shipment.sets.is_empty() {
            return Ok(None);
        }
        let until = self.executor().now().plus_ns(SETS_PATIENCE_NS);
        loop {
            match self.try_sets(shipment.sets).await {
                // A sweep may have come between them.
                Err(error) if error.is_conflict() && self.executor().now() < until => {
                    self.executor().sleep_ns(SETS_REST_NS).await;
                }
                made => return made.map(Some),
            }
        }
    }

    async fn try_sets(&self, changes: &[SetChange<'_>]) -> Result<ShippedSets> {
        let mut sets = ShippedSets::new(transaction::begin(&self.0.engine, None).await?);
        let mut left: Vec<&SetChange<'_>> = changes.iter().collect();
        let mut have_left = false;
        while !left.is_empty() {
            let (mut put_off, mut refused) = (Vec::new(), None);
            for change in &left {
                match sets.change(change.partition, change.key, change.value).await {
                    // Another one may leave its place in a unique index: only what all of them come to is the transaction's.
                    Err(error) if is_of_unique_index(&error) => {
                        put_off.push(*change);
                        refused = refused.or(Some(error));
                    }
                    made => made?,
                }
            }
            match refused {
                Some(error) if put_off.len() == left.len() && have_left => return Err(error),
                // They come to each other's places.
                Some(_) if put_off.len() == left.len() => {
                    for change in &put_off {
                        sets.leave(change.partition, change.key).await?;
                    }
                    have_left = true;
                }
                _ => {}
            }
            left = put_off;
        }
        Ok(sets)
    }

    fn append_shipped(
        &self,
        shipment: &Shipment<'_>,
        sets: Option<ShippedSets>,
        former: Option<&[(u32, Vec<u8>)]>,
        (arriving, note): (&mut ArrivingPages<'_>, impl FnOnce(Lsn)),
    ) -> Lsn {
        let log = self.log();
        // Before its first record: the table of transactions does not have it.
        self.0.engine.note_time();
        let start = log.end();
        let append = |id, commit: Option<&[u8]>| {
            let commit = commit.filter(|_| !canary::is_planted(Canary::UnloggedSets));
            let former = former.filter(|_| self.keeps_former_in_log()).unwrap_or_default();
            let record = record::shipment(id, shipment.records, former, commit);
            let is_scattered = canary::is_planted(Canary::ScatteredShipment);
            if is_scattered { append_parts(log, &record) } else { log.append_encoded(&record) }
        };
        let end = match sets {
            Some(sets) => {
                let owner = sets.owner();
                sets.commit_within(|id, commit| {
                    let end = append(id, Some(commit));
                    self.keep_past((owner, end), shipment, former);
                    end
                })
            }
            None => {
                let registry = &self.0.engine.transactions.registry;
                let state = registry.borrow_mut().begin(None);
                let end = append(state.id, None);
                self.keep_past((state.owner, end), shipment, former);
                self.0.engine.versions.commit(state.owner, end);
                registry.borrow_mut().end(state);
                end
            }
        };
        let start = if canary::is_planted(Canary::ShipmentFromEnd) { end } else { start };
        note(end);
        for (page, bytes) in shipment.images {
            arriving.install(*page, bytes, Some((start, end)));
        }
        self.redo_shipped(shipment, (start, end));
        end
    }

    /// Makes the changes of the pages that have come without their bytes, which were tried on them.
    fn redo_shipped(&self, shipment: &Shipment<'_>, (start, end): (Lsn, Lsn)) {
        let mut redone = shipment.redone.to_vec();
        redone.sort_unstable();
        let edits = looked_through(shipment.records).flat_map(|record| record.edits());
        let mut edits = edits.filter(|(_, edit)| redone.binary_search(&edit.page).is_ok()).peekable();
        let mut times = 0;
        while let Some((sequence, edit)) = edits.next() {
            if edits.peek().is_none() && canary::is_planted(Canary::UnredoneShipment) {
                break;
            }
            redo_edit(self.buffer(), sequence, &edit, start, end).expect("it was tried on the page");
            times += 1;
        }
        let pool = self.buffer().pool().borrow();
        redone.iter().for_each(|page| pool.touch(pool.frame_in_use(*page)));
        drop(pool);
        self.executor().whole().charge_times(Work::Redo, times);
    }

    /// Waits until the transactions of other nodes up to this position of the log are durable, if the log is.
    ///
    /// # Errors
    /// [`Error::LogFailed`].
    pub(crate) async fn confirm_shipped(&self, end: Lsn) -> Result<()> {
        let log = self.log();
        if !log.settings().durable {
            return Ok(());
        }
        // What there was before the first of them is demanded by none.
        log.request(end);
        log.wait_durable(end).await
    }

    /// Takes a page that another node has dropped into the buffer, as used just now. It is what was committed last; nothing else may
    /// use it meanwhile.
    ///
    /// # Errors
    /// [`Error::Shipment`] if these are not the bytes of a page of this database, and those of a buffer without room.
    pub(crate) async fn keep_shipped(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        let _visit = Visit::new(&self.0.engine);
        self.check_image(page, bytes)?;
        let mut arriving = self.buffer().arriving();
        arriving.make_place(page).await?;
        arriving.install(page, bytes, None);
        Ok(())
    }
}

/// As planted: each by itself.
fn append_parts(log: &Log, record: &[u8]) -> Lsn {
    record::parts(record).map(|part| log.append_encoded(part)).last().expect("its commit at least")
}

/// Whether another record has the same contents in the fields of a unique index.
fn is_of_unique_index(error: &Error) -> bool {
    matches!(error, Error::Field { error: FieldError::NotUnique(_), .. })
}

/// A record of the log has no more bytes than this.
fn check_length(found: u64) -> Result<()> {
    if found > record::SIZE_MAX { Err(Error::RecordTooLong { found, limit: record::SIZE_MAX }) } else { Ok(()) }
}

/// For how long changes of sets are tried again that a sweep is in the way of, and how long they rest before that, in nanoseconds.
const SETS_PATIENCE_NS: u64 = 10 * SECOND_NS;
const SETS_REST_NS: u64 = 5 * MILLISECOND_NS;
/// The bytes of such a transaction beside its records, and more: the head of their record, its commit, and when that is.
const COMMIT_SIZE: u64 = 96;
