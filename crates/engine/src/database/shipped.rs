//! Transactions that another node has run on copies of pages: it sends their log records and the pages that they have changed.
//!
//! The records are appended with the commit record, and the pages installed, in one synchronous step. So no transaction of another
//! node is ever in the log in part, and none has to be rolled back but after a crash that cuts the log in its midst.

use super::Database;
use super::log_room::{has_log_for_shipment, wait_for_log_of_shipment};
use crate::buffer::ArrivingPages;
use crate::engine::Visit;
use crate::log::record::{Body, Record};
use crate::{Error, Result};
use base::{Lsn, PageId, TransactionId};
use std::collections::BTreeMap;
use structures::page::header;
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
    /// Commits a transaction of another node: its log records, one behind the other in stored form, of updates and of restructurings
    /// that are never undone, and the pages that it has changed, each with its bytes, sealed. Nothing else may use these pages meanwhile. A drop of their
    /// partitions waits. When this returns, the updates survive whatever happens.
    ///
    /// # Errors
    /// Whether anything was logged, and why it failed: [`Error::Shipment`] if records and pages do not fit together,
    /// [`Error::NoPartition`], otherwise as a transaction's commit.
    pub async fn commit_shipped(&self, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<(), CommitFailure> {
        let _visit = Visit::new(&self.0.engine);
        let lsn = self.log_shipped(records, pages).await.map_err(CommitFailure::NothingLogged)?;
        self.log().commit(lsn).await.map_err(CommitFailure::Undecided)
    }

    /// Logs the transaction and installs its pages, or does nothing and says why.
    async fn log_shipped(&self, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<Lsn> {
        let engine = &self.0.engine;
        engine.core.check_open()?;
        self.check_shipment(records, pages)?;
        let mut arriving = self.buffer().arriving();
        for (page, _) in pages {
            arriving.make_place(*page).await?;
        }
        let length = records.len() as u64 + COMMIT_SIZE;
        loop {
            wait_for_log_of_shipment(engine, length).await?;
            if let Some(failure) = self.log().failure() {
                return Err(failure);
            }
            if has_log_for_shipment(engine, length) {
                return Ok(self.append_shipped(records, pages, &mut arriving));
            }
        }
    }

    fn append_shipped(&self, records: &[u8], pages: &[(PageId, &[u8])], arriving: &mut ArrivingPages<'_>) -> Lsn {
        let log = self.log();
        let start = log.end();
        let id = self.0.engine.transactions.registry.borrow_mut().number();
        let mut rest = records;
        let mut record = Vec::new();
        while let Some(length) = length_of(rest) {
            record.clear();
            record.extend_from_slice(&rest[..length]);
            let is_undone = matches!(Record::decode(&record).map(|record| record.body), Some(Body::Update(_)));
            let owner = if is_undone { id } else { TransactionId::SYSTEM };
            record[8..16].copy_from_slice(&owner.0.to_le_bytes());
            log.append_encoded(&record);
            rest = &rest[length..];
        }
        log.note_time();
        let end = log.append(id, &Body::Commit { chains: &[], changes: &[] }, std::iter::empty());
        for (page, bytes) in pages {
            arriving.install(*page, bytes, Some((start, end)));
        }
        end
    }

    /// Takes a page that another node has dropped into the buffer, as used just now. It is what was committed last; nothing else may
    /// use it meanwhile.
    ///
    /// # Errors
    /// [`Error::Shipment`] if these are not the bytes of a page of this database, and those of a buffer without room.
    pub async fn keep_shipped(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        let _visit = Visit::new(&self.0.engine);
        self.check_image(page, bytes)?;
        let mut arriving = self.buffer().arriving();
        arriving.make_place(page).await?;
        arriving.install(page, bytes, None);
        Ok(())
    }

    /// Each record must be an update or a restructuring of pages that come with it, and the pages must be as the records leave them.
    fn check_shipment(&self, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<()> {
        let mut latest: BTreeMap<PageId, u64> = BTreeMap::new();
        let mut rest = records;
        while !rest.is_empty() {
            let record = length_of(rest).and_then(|length| Record::decode(rest.get(..length)?));
            let record = record.ok_or_else(|| Error::Shipment("its log records are damaged".to_owned()))?;
            if !matches!(record.body, Body::Update(_) | Body::System) {
                return Err(Error::Shipment("it has a log record that changes no pages".to_owned()));
            }
            latest.extend(record.edits().map(|(sequence, edit)| (edit.page, sequence)));
            rest = &rest[length_of(rest).expect("it was decoded")..];
        }
        for (page, bytes) in pages {
            self.check_image(*page, bytes)?;
            let found = self.0.engine.catalog.describe(page.partition)?;
            if found.index_of.is_some() || found.schema.is_some() {
                let why = format!("partition '{}' has records with a type, or is a secondary index", found.name);
                return Err(Error::Shipment(why));
            }
            if latest.remove(page) != Some(header::sequence(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        match latest.first_key_value() {
            Some((page, _)) => {
                Err(Error::Shipment(format!("{page} is changed by a log record and does not come with it")))
            }
            None => Ok(()),
        }
    }

    fn check_image(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        self.0.engine.catalog.describe(page.partition)?;
        let space = self.buffer().find_space(page.partition)?;
        if bytes.len() != space.page_size() || page.number >= space.capacity() {
            return Err(Error::Shipment(format!("{page} with {} bytes is none of this database", bytes.len())));
        }
        match header::verify(bytes, page) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Shipment(format!("{page} was never written"))),
            Err(detail) => Err(Error::Shipment(format!("{page} is damaged: {detail}"))),
        }
    }
}

/// The bytes of the commit record of such a transaction, and more.
const COMMIT_SIZE: u64 = 64;

/// The length of the record at the front, if its bytes are there.
fn length_of(records: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
    (Record::FIXED_SIZE..=records.len()).contains(&length).then_some(length)
}
