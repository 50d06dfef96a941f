//! Transactions on pages: strict two-phase locking with pages as granules, no steal, force to the server's log.

use super::{ClientNode, Told, session};
use crate::client::{Ended, WriteLock};
use crate::message::{Image, LIST_MAX, SIZE_MAX, Transaction};
use base::PageId;
use driver::{Fault, FaultKind, Work};
use engine::buffer::Pins;
use engine::log::record::Body;
use engine::page::{Change, Edit, Pages, header};
use engine::second_level::design::Pattern;
use engine::undo::Undo;
use engine::{Error, Need, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A transaction that reads and writes pages. It is rolled back if it is dropped.
pub struct PageTransaction {
    pub(super) client: Rc<ClientNode>,
    pub(super) transaction: Transaction,
    /// The pages that it has asked write locks of, each with the frame in which it is pinned: such pages do not leave.
    pub(super) pinned: BTreeMap<PageId, u32>,
    /// Those of them that it has changed.
    pub(super) changed: BTreeSet<PageId>,
    pub(super) records: Vec<u8>,
    stage: Stage,
}

/// The most bytes of a commit: what else its message has, is less.
const COMMIT_MAX: usize = SIZE_MAX - (2 << 20);
/// More than the bytes that a page has in a message beside its own.
const PER_PAGE: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    /// Its commit is under way.
    Committing,
    /// Its commit is under way, and its program does not wait for that any more.
    Abandoned,
    Over,
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
            pinned: BTreeMap::new(),
            changed: BTreeSet::new(),
            records: Vec::new(),
            stage: Stage::Active,
        }
    }

    /// Locks a page for reading and shows it. Returns also whether it was in the buffer.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if the transaction is a victim and has to be rolled back; those of a page that cannot be had.
    pub async fn read<T>(&mut self, page: PageId, look: impl FnOnce(&[u8]) -> T) -> Result<(T, bool)> {
        let was_here = self.bring(page, None).await?;
        let pool = self.client.buffer.pool().borrow();
        let bytes = pool.page(page).expect("it has been brought here");
        Ok((look(bytes), was_here))
    }

    /// Has the page in the buffer, locked for reading, and keeps it there as long as `pins` if they are given. Whether it was there.
    pub(super) async fn bring(&mut self, page: PageId, mut pins: Option<&mut Pins>) -> Result<bool> {
        self.check().await?;
        let client = &self.client;
        client.executor.charge(Work::LockPair);
        let told = client.protocol.borrow_mut().enter(self.transaction, page);
        told.inspect(|told| client.say(told));
        let is_here = || client.buffer.pool().borrow().frame_of(page).is_some();
        let was_here = is_here();
        let mut own = Pins::new(&client.buffer);
        let mut is_kept = false;
        while !is_here() || (pins.is_some() && !is_kept) {
            let pins = pins.as_deref_mut().unwrap_or(&mut own);
            let fetched = client.buffer.resolve(Need::Page(page), Pattern::Random, pins).await;
            self.check().await?;
            match fetched {
                // An earlier transaction of this node had asked for it, and was a victim.
                Err(Error::Input(fault)) if fault.kind == FaultKind::Cancelled => {}
                fetched => is_kept = fetched.map(|_| true)?,
            }
        }
        Ok(was_here)
    }

    /// Locks a page for writing, and keeps it in the buffer until the transaction ends. If it is not waited for, the lock may come
    /// all the same.
    ///
    /// # Errors
    /// As [`PageTransaction::read`].
    pub async fn lock(&mut self, page: PageId) -> Result<()> {
        self.bring(page, None).await?;
        let asked = self.client.protocol.borrow_mut().write(self.transaction, page);
        self.pin(page);
        match asked {
            WriteLock::Held => return Ok(()),
            WriteLock::Ask(message) => {
                self.client.executor.charge(Work::LockPair);
                self.client.say(&message);
            }
            // It has asked before.
            WriteLock::Wait => {}
        }
        while !self.client.protocol.borrow().may_write(self.transaction, page) {
            self.check().await?;
            self.client.bell.wait(&self.client.executor).await;
        }
        self.check().await
    }

    fn pin(&mut self, page: PageId) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        self.pinned.entry(page).or_insert_with(|| {
            let frame = pool.frame_in_use(page);
            pool.pin(frame);
            frame
        });
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
        // The lock that it has now is looked up and paid for as in each use.
        self.bring(page, None).await?;
        let undo = {
            let pool = self.client.buffer.pool().borrow();
            let before = pool.bytes(pool.frame_in_use(page));
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            assert!(part.start >= header::HEADER_SIZE && part.end <= before.len(), "{part:?} of a page");
            Undo::PatchPage { page, offset, bytes: &before[part] }.stored()
        };
        self.apply(&Body::Update(&undo), &[Edit { page, change: Change::Patch { offset, bytes } }]);
        Ok(())
    }

    /// Commits: when this returns, the changes survive whatever happens. If it is not waited for, it goes on, and the next transaction
    /// waits for it.
    ///
    /// # Errors
    /// [`Error::Deadlock`] for a victim. [`Error::CommitRefused`] if the server commits nothing of it. [`Error::Input`] if the server was
    /// lost, after it was found again or given up: with [`FaultKind::Cancelled`] it is certain that nothing is committed; otherwise what
    /// became of the transaction is not known.
    pub async fn commit(mut self) -> Result<()> {
        self.check().await?;
        if self.changed.is_empty() {
            let ended = self.client.protocol.borrow_mut().committed_unchanged(self.transaction);
            self.end(ended);
            return Ok(());
        }
        let length = self.records.len() + self.changed.len() * (self.client.settings.buffer.page_size + PER_PAGE);
        if length > COMMIT_MAX || self.changed.len() > LIST_MAX {
            let words = format!(
                "a transaction has changed {} pages, and its commit would have {length} bytes: at most {COMMIT_MAX} are sent at a time; \
                 commit more often",
                self.changed.len()
            );
            return Err(Fault::new(FaultKind::NoSpace, words).into());
        }
        let pages = self.copy_out();
        let records = std::mem::take(&mut self.records);
        let message = self.client.protocol.borrow_mut().commit(self.transaction, records, pages);
        self.client.say(&message);
        self.client.told.replace(Told::Committing);
        self.stage = Stage::Committing;
        self.end_commit().await
    }

    /// Waits for the server's word on the commit.
    async fn end_commit(mut self) -> Result<()> {
        let client = Rc::clone(&self.client);
        while *client.told.borrow() == Told::Committing {
            client.bell.wait(&client.executor).await;
        }
        let told = client.told.borrow().clone();
        self.stage = Stage::Active;
        self.end_writes(told == Told::Committed);
        match told {
            Told::Lost(cause) => {
                let (session, transaction) = (client.protocol.borrow().session(), self.transaction);
                // What it has changed is dropped here, whatever became of it there.
                drop(self);
                client.ask_outcome(session.expect("it has joined"), transaction, cause).await
            }
            Told::Refused(cause) => Err(Error::CommitRefused(cause)),
            Told::GivenUp(cause) => Err(session::unknown_outcome(&cause)),
            Told::Committed => {
                let ended = client.protocol.borrow_mut().committed(self.transaction);
                self.end(ended);
                Ok(())
            }
            Told::Nothing | Told::Victim | Told::Denied(_) | Told::Committing => {
                unreachable!("the server's word ends a commit")
            }
        }
    }

    /// It is over: its pages may leave, and the next one may begin.
    fn end(&mut self, ended: Ended) {
        self.stage = Stage::Over;
        self.unpin();
        self.client.finish(ended);
        self.client.turn.give_back(&self.client.executor);
    }

    fn unpin(&mut self) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        std::mem::take(&mut self.pinned).into_values().for_each(|frame| pool.unpin(frame));
    }

    /// Copies of the changed pages, sealed. From here on they count as being written back.
    fn copy_out(&self) -> Vec<Image> {
        let mut pool = self.client.buffer.pool().borrow_mut();
        let copy = |page: &PageId| {
            let frame = self.pinned[page];
            let mut bytes = vec![0; pool.bytes(frame).len()];
            pool.begin_write(frame, &mut bytes);
            Image { page: *page, bytes }
        };
        self.changed.iter().map(copy).collect()
    }

    fn end_writes(&self, are_written: bool) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        self.changed.iter().for_each(|page| pool.end_write(self.pinned[page], are_written));
    }

    /// Whether it was given up to end a deadlock: it has to be rolled back, and may be run again.
    pub fn is_victim(&self) -> bool {
        *self.client.told.borrow() == Told::Victim
    }

    /// It may go on. While the client has no lease, it waits.
    pub(super) async fn check(&self) -> Result<()> {
        loop {
            match &*self.client.told.borrow() {
                Told::Nothing | Told::Committing | Told::Committed => {}
                Told::Victim => return Err(Error::Deadlock),
                Told::Denied(reason) => return Err(Fault::new(FaultKind::Denied, reason.clone()).into()),
                Told::Refused(cause) => return Err(Error::CommitRefused(cause.clone())),
                Told::Lost(cause) | Told::GivenUp(cause) => {
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
        match self.stage {
            Stage::Active => {
                self.unpin();
                let ended = self.client.protocol.borrow_mut().aborted(self.transaction);
                self.end(ended);
            }
            Stage::Committing => {
                // What the server has begun cannot be taken back.
                let rest = PageTransaction {
                    client: Rc::clone(&self.client),
                    transaction: self.transaction,
                    pinned: std::mem::take(&mut self.pinned),
                    changed: std::mem::take(&mut self.changed),
                    records: Vec::new(),
                    stage: Stage::Abandoned,
                };
                self.client.executor.spawn(async move {
                    let _unwanted = rest.end_commit().await;
                });
            }
            // The machine stops, or it is over.
            Stage::Abandoned | Stage::Over => {}
        }
    }
}
