//! The pages that a transaction may look at, as the functions of organizations ask for them; and how what these lack is fetched.

use super::PageTransaction;
use crate::client::Client;
use crate::message::Transaction;
use base::{Lsn, PageId, PartitionId, TransactionId};
use engine::Result;
use engine::buffer::{Pins, Pool};
use engine::log::record::{self, Body};
use engine::page::{Edit, OwnedEdit, Pages, header};
use engine::second_level::design::Pattern;
use std::cell::Ref;
use structures::Need;

/// Pages in the buffer that the transaction has locked for reading: others are asked for first, so that nothing is seen without a lock.
pub(super) struct LockedPages<'a> {
    transaction: Transaction,
    protocol: Ref<'a, Client>,
    pool: Ref<'a, Pool>,
}

impl Pages for LockedPages<'_> {
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        if self.protocol.is_used_by(self.transaction, id) { self.pool.page(id) } else { Err(Need::Page(id)) }
    }

    fn write_permission(&self, id: PageId) -> Result<(), Need> {
        if self.protocol.may_write(self.transaction, id) { Ok(()) } else { Err(Need::Write(id)) }
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        self.pool.capacity(partition)
    }

    fn page_size(&self, partition: PartitionId) -> usize {
        self.pool.page_size(partition)
    }
}

impl LockedPages<'_> {
    /// Asks for the write locks of the pages that a plan edits, new ones among them.
    pub fn permit(&self, plan: &[OwnedEdit]) -> Result<(), Need> {
        plan.iter().try_for_each(|edit| {
            self.page(edit.page)?;
            self.write_permission(edit.page)
        })
    }
}

impl PageTransaction {
    fn locked_pages(&self) -> LockedPages<'_> {
        LockedPages {
            transaction: self.transaction,
            protocol: self.client.protocol.borrow(),
            pool: self.client.buffer.pool().borrow(),
        }
    }

    /// Calls `attempt` until it lacks nothing, fetching and locking pages in between.
    pub(super) async fn resolve<T>(
        &mut self,
        mut attempt: impl FnMut(&LockedPages<'_>) -> std::result::Result<T, Need>,
    ) -> Result<T> {
        self.check().await?;
        // What has come stays until all is there.
        let mut pins = Pins::new(&self.client.buffer);
        loop {
            let need = match attempt(&self.locked_pages()) {
                Ok(value) => return Ok(value),
                Err(need) => need,
            };
            match need {
                Need::Page(page) => self.bring(page, Some(&mut pins)).await.map(drop)?,
                Need::Write(page) => self.lock(page).await?,
                Need::Space(_) | Need::Fail(_) => {
                    self.client.buffer.resolve(need.into(), Pattern::Random, &mut pins).await?;
                }
            }
        }
    }

    /// Notes the record of a change and makes its edits: of pages that the transaction has locked for writing.
    pub(super) fn apply(&mut self, body: &Body<'_>, edits: &[Edit<'_>]) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        let numbered = edits.iter().enumerate().map(|(index, edit)| {
            let page = pool.peek(edit.page).expect("it is locked, and so it is here");
            let earlier = edits[..index].iter().filter(|other| other.page == edit.page).count() as u64;
            (header::sequence(page) + 1 + earlier, edit)
        });
        record::encode(TransactionId::SYSTEM, body, numbered, &mut self.records);
        for edit in edits {
            let frame = self.pinned[&edit.page];
            pool.edit(frame, &edit.change, Lsn::ZERO, Lsn::ZERO);
            self.changed.insert(edit.page);
        }
    }
}
