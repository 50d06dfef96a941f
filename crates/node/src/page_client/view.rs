//! The pages that a transaction may look at, as the functions of organizations ask for them; and how what these lack is fetched.

use super::reading::PageReader;
use super::transaction::WorkDone;
use super::{ClientNode, PageTransaction};
use crate::message::Transaction;
use base::{Lsn, PageId, PartitionId, TransactionId};
use driver::Work;
use engine::Result;
use engine::buffer::{AheadWindow, Pins, Pool};
use engine::canary::{self, Canary};
use engine::lock::Mode;
use engine::log::record::{self, Body};
use engine::page::{Edit, OwnedEdit, PageKind, Pages, header, slotted};
use engine::second_level::design::Pattern;
use std::cell::{Ref, RefCell};
use std::rc::Rc;
use structures::Need;

/// Pages in the buffer that the transaction has locked, or locks without a wait: others are asked for first, so that nothing is seen
/// without a lock.
pub(super) struct LockedPages<'a> {
    transaction: Transaction,
    /// What it means to do.
    intent: Intent,
    client: &'a ClientNode,
    pool: Ref<'a, Pool>,
    work: Ref<'a, WorkDone>,
    /// Pages that it has locked while it looked, and those that it had locked before and may look at for the first time, as others have left
    /// them that are not answered.
    entered: RefCell<Vec<PageId>>,
}

/// What a transaction means to do with records that it looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    Read,
    /// Their pages are locked so that it can, before it looks at them: two that have both looked could not both write.
    Change,
    /// Records are added one after the other, and each may need a new page, which the partition's first one has to name.
    Append,
}

impl Intent {
    /// How a page is locked that is here, with these bytes.
    fn mode(self, id: PageId, page: &[u8]) -> Mode {
        let may_change = match self {
            Intent::Read => false,
            Intent::Change => header::kind(page) == Some(PageKind::Node) && slotted::level(page) == 0,
            Intent::Append => id.number == 0,
        };
        if may_change { Mode::Update } else { Mode::Shared }
    }
}

impl Pages for LockedPages<'_> {
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        let protocol = self.client.protocol.borrow();
        let Some(mode) = protocol.lock_of(self.transaction, id) else {
            drop(protocol);
            return self.enter(id);
        };
        if protocol.does_with_records(self.transaction, id) {
            return Err(Need::Page(id));
        }
        let bytes = self.pool.page(id)?;
        if mode == Mode::Shared && self.intent.mode(id, bytes) != mode {
            return Err(Need::Page(id));
        }
        // It may have locked the page ahead, or by a call that was given up, and not have looked at it.
        let is_unanswered = protocol.is_spoiled(id) || self.client.groups.of_page(id).is_some();
        if is_unanswered && !canary::is_planted(Canary::SeenUnnoted) {
            self.entered.borrow_mut().push(id);
        }
        Ok(bytes)
    }

    /// A page may have come with its write lock when that was not waited for any more: then it is not pinned.
    fn write_permission(&self, id: PageId) -> Result<(), Need> {
        let may_write = || self.client.protocol.borrow().may_write(self.transaction, id);
        if self.work.pinned.contains_key(&id) && may_write() { Ok(()) } else { Err(Need::Write(id)) }
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        self.pool.capacity(partition)
    }

    fn page_size(&self, partition: PartitionId) -> usize {
        self.pool.page_size(partition)
    }
}

impl ClientNode {
    /// A value of `length` bytes was copied or shown where it lies on a page that the node has or has had, or written there: this is charged
    /// as an engine is ([`Buffer::charge_value`](engine::buffer::Buffer::charge_value)).
    pub(super) fn charge_value(&self, page: PageId, slot: u16, length: usize) {
        self.buffer.charge_value(page, slot, length);
    }
}

impl LockedPages<'_> {
    /// As [`ClientNode::charge_value`].
    pub fn charge_value(&self, page: PageId, slot: u16, length: usize) {
        self.client.charge_value(page, slot, length);
    }

    /// Locks a page that is here, if nothing is in the way of that.
    fn enter(&self, id: PageId) -> Result<&[u8], Need> {
        let mode = self.intent.mode(id, self.pool.peek(id).ok_or(Need::Page(id))?);
        if !self.client.protocol.borrow_mut().try_use_page(self.transaction, id, mode) {
            return Err(Need::Page(id));
        }
        self.client.executor.charge(Work::LockPair);
        self.entered.borrow_mut().push(id);
        self.pool.page(id)
    }

    /// These pages, for a search of a b-tree, which is charged.
    pub fn to_search(&self) -> &Self {
        self.client.executor.charge(Work::TreeSearch);
        self
    }

    /// Whether the transaction has locked all of a page.
    pub fn has_whole(&self, id: PageId) -> bool {
        let protocol = self.client.protocol.borrow();
        protocol.is_used_by(self.transaction, id) && !protocol.does_with_records(self.transaction, id)
    }

    /// A page, if it is here, without a lock of it: who looks at it so looks again when it is locked.
    pub fn peek(&self, id: PageId) -> Option<&[u8]> {
        self.pool.peek(id)
    }

    /// Asks for the write locks of the pages that a plan edits, new ones among them.
    pub fn permit(&self, plan: &[OwnedEdit]) -> Result<(), Need> {
        plan.iter().try_for_each(|edit| {
            self.page(edit.page)?;
            self.write_permission(edit.page)
        })
    }
}

impl LockedPages<'_> {
    /// As [`LockedPages::permit`], for a plan whose pages are probably not here: each comes together with its write lock.
    pub fn permit_new(&self, plan: &[OwnedEdit]) -> Result<(), Need> {
        plan.iter().try_for_each(|edit| {
            self.write_permission(edit.page)?;
            self.page(edit.page).map(drop)
        })
    }
}

impl PageReader for PageTransaction {
    fn node(&self) -> &Rc<ClientNode> {
        &self.client
    }

    async fn look_at<T>(
        &mut self,
        page: PageId,
        mut look: impl FnMut(&[u8]) -> std::result::Result<T, Need>,
    ) -> Result<(T, bool)> {
        self.resolve_access(Intent::Read, |pages| look(pages.page(page)?)).await
    }

    fn go_on(&self, window: &mut AheadWindow, page: (PageId, bool), end: u32) {
        window.go_on(&self.client.buffer, page, end);
    }
}

impl PageTransaction {
    fn locked_pages(&self, intent: Intent) -> LockedPages<'_> {
        LockedPages {
            transaction: self.transaction,
            intent,
            client: &self.client,
            pool: self.client.buffer.pool().borrow(),
            work: self.work.borrow(),
            entered: RefCell::default(),
        }
    }

    /// How a page is locked that `attempt` of [`PageTransaction::resolve`] asks for. Of one that is not here it is only known whether it was
    /// written here before.
    pub(super) fn mode(&self, intent: Intent, page: PageId) -> Mode {
        match self.client.buffer.pool().borrow().peek(page) {
            Some(bytes) => intent.mode(page, bytes),
            None if intent == Intent::Change && self.client.protocol.borrow().has_written(page) => Mode::Update,
            None => Mode::Shared,
        }
    }

    /// Calls `attempt` until it lacks nothing, fetching and locking pages in between.
    pub(super) async fn resolve<T>(
        &mut self,
        intent: Intent,
        attempt: impl FnMut(&LockedPages<'_>) -> std::result::Result<T, Need>,
    ) -> Result<T> {
        self.resolve_access(intent, attempt).await.map(|(value, _)| value)
    }

    /// The same; also whether a page was not here.
    pub(super) async fn resolve_access<T>(
        &mut self,
        intent: Intent,
        mut attempt: impl FnMut(&LockedPages<'_>) -> std::result::Result<T, Need>,
    ) -> Result<(T, bool)> {
        // What has come stays until all is there.
        let (mut pins, mut missed) = (Pins::new(&self.client.buffer), false);
        loop {
            self.check().await?;
            let (attempted, entered) = {
                let pages = self.locked_pages(intent);
                let attempted = attempt(&pages);
                (attempted, pages.entered.into_inner())
            };
            for page in entered {
                self.see(page)?;
            }
            let need = match attempted {
                Ok(value) => return Ok((value, missed)),
                Err(need) => need,
            };
            match need {
                Need::Page(page) => {
                    let mode = self.mode(intent, page);
                    missed |= !self.bring(page, mode, Some(&mut pins)).await?;
                }
                Need::Write(page) => self.lock(page).await?,
                Need::Space(_) | Need::Fail(_) => {
                    self.client.buffer.resolve(need.into(), Pattern::Random, &mut pins).await?;
                }
            }
        }
    }

    /// Notes the record of a change and makes its edits: of pages that the transaction has locked for writing.
    pub(super) fn apply(&mut self, body: &Body<'_>, edits: &[Edit<'_>]) {
        self.client.executor.charge(Work::LogRecord);
        edits.iter().for_each(|edit| self.client.keep_for_snapshots(edit.page));
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let mut pool = self.client.buffer.pool().borrow_mut();
        let numbered = edits.iter().enumerate().map(|(index, edit)| {
            let page = pool.peek(edit.page).expect("it is locked, and so it is here");
            let earlier = edits[..index].iter().filter(|other| other.page == edit.page).count() as u64;
            (header::sequence(page) + 1 + earlier, edit)
        });
        let before = work.records.len();
        record::encode(TransactionId::SYSTEM, body, numbered, &mut work.records);
        let length = work.records.len() - before;
        for edit in edits {
            let (frame, redo) = (work.pinned[&edit.page], work.changed.get(&edit.page).copied());
            work.savepoints.note(edit.page, redo, || pool.bytes(frame).to_vec());
            if redo.is_none() {
                self.client.keep_for_rollbacks(edit.page, pool.bytes(frame));
                self.client.changing.borrow_mut().insert(edit.page);
            }
            pool.edit(frame, &edit.change, Lsn::ZERO, Lsn::ZERO);
            work.changed.entry(edit.page).or_default().add(&edit.change, length);
        }
    }
}
