//! Transactions on pages: strict two-phase locking with pages as granules, no steal, force to the server's log.

use super::{ClientNode, Told, session};
use crate::client::WriteLock;
use crate::message::{Image, Transaction};
use base::{Lsn, PageId, TransactionId};
use driver::{Fault, FaultKind, Work};
use engine::buffer::Pins;
use engine::log::record::{self, Body};
use engine::page::{Change, Edit, Pages, header};
use engine::second_level::design::Pattern;
use engine::undo::Undo;
use engine::{Error, Need, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A transaction that reads and writes pages. It is rolled back if it is dropped.
pub struct PageTransaction {
    client: Rc<ClientNode>,
    transaction: Transaction,
    /// The pages that it has changed, each with the frame in which it is pinned.
    changed: BTreeMap<PageId, u32>,
    records: Vec<u8>,
    is_over: bool,
}

impl PageTransaction {
    pub(super) fn new(client: &Rc<ClientNode>) -> PageTransaction {
        let transaction = client.protocol.borrow_mut().begin();
        client.current.set(transaction);
        let is_lost = matches!(*client.told.borrow(), Told::Lost(_) | Told::GivenUp(_));
        if !is_lost {
            client.told.replace(Told::Nothing);
        }
        PageTransaction {
            client: Rc::clone(client),
            transaction,
            changed: BTreeMap::new(),
            records: Vec::new(),
            is_over: false,
        }
    }

    /// Locks a page for reading and shows it. Returns also whether it was in the buffer.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if the transaction is a victim and has to be rolled back; those of a page that cannot be had.
    pub async fn read<T>(&mut self, page: PageId, look: impl FnOnce(&[u8]) -> T) -> Result<(T, bool)> {
        let was_here = self.bring(page).await?;
        let pool = self.client.buffer.pool().borrow();
        let bytes = pool.page(page).expect("it has been brought here");
        Ok((look(bytes), was_here))
    }

    /// Has the page in the buffer, locked for reading. Whether it was there.
    async fn bring(&mut self, page: PageId) -> Result<bool> {
        self.check().await?;
        let client = &self.client;
        client.executor.charge(Work::LockPair);
        client.protocol.borrow_mut().enter(self.transaction, page);
        let mut was_here = true;
        while client.buffer.pool().borrow().frame_of(page).is_none() {
            was_here = false;
            let mut pins = Pins::new(&client.buffer);
            let fetched = client.buffer.resolve(Need::Page(page), Pattern::Random, &mut pins).await;
            self.check().await?;
            fetched?;
        }
        Ok(was_here)
    }

    /// Locks a page for writing.
    ///
    /// # Errors
    /// As [`PageTransaction::read`].
    pub async fn lock(&mut self, page: PageId) -> Result<()> {
        self.bring(page).await?;
        let asked = self.client.protocol.borrow_mut().write(self.transaction, page);
        match asked {
            WriteLock::Held => return Ok(()),
            WriteLock::Ask(message) => {
                self.client.executor.charge(Work::LockPair);
                self.client.say(&message);
            }
            WriteLock::Wait => unreachable!("one transaction runs at a time"),
        }
        while !self.client.protocol.borrow().may_write(self.transaction, page) {
            self.check().await?;
            self.client.bell.wait(&self.client.executor).await;
        }
        self.check().await
    }

    /// Overwrites a part of a page, behind its header.
    ///
    /// # Errors
    /// As [`PageTransaction::read`].
    ///
    /// # Panics
    /// If the part does not lie on the page behind its header.
    pub async fn write(&mut self, page: PageId, offset: u16, bytes: &[u8]) -> Result<()> {
        self.lock(page).await?;
        // It may have left while the lock was waited for.
        self.bring(page).await?;
        let mut pool = self.client.buffer.pool().borrow_mut();
        let frame = pool.frame_in_use(page);
        let before = pool.bytes(frame);
        let part = usize::from(offset)..usize::from(offset) + bytes.len();
        assert!(part.start >= header::HEADER_SIZE && part.end <= before.len(), "{part:?} of a page");
        let undo = Undo::PatchPage { page, offset, bytes: &before[part] }.stored();
        let edit = Edit { page, change: Change::Patch { offset, bytes } };
        let sequence = header::sequence(before) + 1;
        record::encode(TransactionId::SYSTEM, &Body::Update(&undo), [(sequence, &edit)], &mut self.records);
        pool.edit(frame, &edit.change, Lsn::ZERO, Lsn::ZERO);
        if self.changed.insert(page, frame).is_none() {
            pool.pin(frame);
        }
        Ok(())
    }

    /// Commits: when this returns, the changes survive whatever happens.
    ///
    /// # Errors
    /// [`Error::Deadlock`] for a victim. [`Error::Input`] if the server was lost, after it was found again or given up: with
    /// [`FaultKind::Cancelled`] it is certain that nothing is committed; otherwise what became of the transaction is not known.
    pub async fn commit(mut self) -> Result<()> {
        self.check().await?;
        let client = Rc::clone(&self.client);
        let is_read_only = client.protocol.borrow().written(self.transaction).is_empty();
        if !is_read_only {
            let pages = self.copy_out();
            let records = std::mem::take(&mut self.records);
            let message = client.protocol.borrow_mut().commit(self.transaction, records, pages);
            client.say(&message);
            while *client.told.borrow() == Told::Nothing {
                client.bell.wait(&client.executor).await;
            }
            let told = client.told.borrow().clone();
            self.end_writes(told == Told::Committed);
            match told {
                Told::Lost(cause) => {
                    let (session, transaction) = (client.protocol.borrow().session(), self.transaction);
                    // What it has changed is dropped here, whatever became of it there.
                    drop(self);
                    return client.ask_outcome(session.expect("it has joined"), transaction, cause).await;
                }
                Told::Refused(cause) | Told::GivenUp(cause) => return Err(session::unknown_outcome(&cause)),
                _ => {}
            }
        }
        self.is_over = true;
        let ended = client.protocol.borrow_mut().committed(self.transaction);
        client.finish(ended);
        client.turn.give_back(&client.executor);
        Ok(())
    }

    /// Copies of the changed pages, sealed. From here on they count as being written back.
    fn copy_out(&self) -> Vec<Image> {
        let mut pool = self.client.buffer.pool().borrow_mut();
        let copy = |(page, frame): (&PageId, &u32)| {
            let mut bytes = vec![0; pool.bytes(*frame).len()];
            pool.begin_write(*frame, &mut bytes);
            Image { page: *page, bytes }
        };
        self.changed.iter().map(copy).collect()
    }

    fn end_writes(&mut self, are_written: bool) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        for frame in self.changed.values() {
            pool.end_write(*frame, are_written);
        }
        if are_written {
            std::mem::take(&mut self.changed).into_values().for_each(|frame| pool.unpin(frame));
        }
    }

    /// It may go on. While the client has no lease, it waits.
    async fn check(&self) -> Result<()> {
        loop {
            match &*self.client.told.borrow() {
                Told::Nothing | Told::Committed => {}
                Told::Victim => return Err(Error::Deadlock),
                Told::Refused(cause) | Told::Lost(cause) | Told::GivenUp(cause) => {
                    return Err(Fault::new(FaultKind::Reset, cause.clone()).into());
                }
            }
            if self.client.has_lease() {
                return Ok(());
            }
            self.client.bell.wait(&self.client.executor).await;
        }
    }
}

impl Drop for PageTransaction {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let client = &self.client;
        {
            let mut pool = client.buffer.pool().borrow_mut();
            for frame in self.changed.values() {
                if pool.is_writing(*frame) {
                    pool.end_write(*frame, false);
                }
                pool.unpin(*frame);
            }
        }
        let ended = client.protocol.borrow_mut().aborted(self.transaction);
        client.finish(ended);
        client.turn.give_back(&client.executor);
    }
}
