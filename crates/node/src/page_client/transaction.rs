//! Transactions on pages: strict two-phase locking with pages as granules, no steal, force to the server's log.

use super::group::{COMMIT_MAX, GroupOutcome, OutcomeOfGroup, RedoCost, length_of_commit};
use super::lock_wait::LockWait;
use super::savepoint::Savepoints;
use super::sets::SetWork;
use super::{ClientNode, PageClient, RollbackCause, ServerState, session};
use crate::client::{PageLock, WriteLock};
use crate::message::{LIST_MAX, Transaction};
use crate::server::WAITING_MAX;
use base::PageId;
use driver::{Fault, FaultKind, Work};
use engine::buffer::Pins;
use engine::canary::{self, Canary};
use engine::lock::Mode;
use engine::log::record::Body;
use engine::page::{Change, Edit, Pages, header};
use engine::second_level::design::Pattern;
use engine::undo::Undo;
use engine::{Error, Need, Result};
use executor::UserExecutor;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// How many frames there have to be for each transaction that runs: it has some pages in use at a time.
pub(super) const FRAMES_EACH: usize = 8;

/// What a transaction has done. Its node has a part in it: a page that it uses may fall to records at any time.
pub(super) type SharedWork = Rc<RefCell<WorkDone>>;

#[derive(Default)]
pub(super) struct WorkDone {
    /// The pages that it has asked write locks of, each with the frame in which it is pinned: such pages do not leave.
    pub pinned: BTreeMap<PageId, u32>,
    /// Those of them that it has changed, and what it would take to redo that.
    pub changed: BTreeMap<PageId, RedoCost>,
    /// Pages of which it has changed records by locks of their own.
    pub updated: BTreeSet<PageId>,
    pub records: Vec<u8>,
    /// Those records that it has locked so, as it would have them.
    pub objects: BTreeMap<(PageId, u16), Vec<u8>>,
    /// Why those did not come that it has asked for and that could not be had.
    pub lacking: BTreeMap<(PageId, u16), Fault>,
    pub sets: SetWork,
    pub savepoints: Savepoints,
    /// Why nothing can be done in the transaction, if that is so: its session has ended, and it was rolled back with that, or it was not begun.
    pub void: Option<Error>,
}

impl WorkDone {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.updated.is_empty() && !self.sets.is_changed()
    }

    /// How many bytes its log records and changes of sets have, how many pages it has changed, and how many records of sets.
    fn lengths(&self) -> (usize, usize, usize) {
        (self.records.len() + self.sets.bytes(), self.changed.len() + self.updated.len(), self.sets.changed())
    }
}

/// A transaction that reads and writes pages. It is rolled back if it is dropped, and if its session at the server ends before it does.
pub struct PageTransaction {
    pub(super) client: Rc<ClientNode>,
    pub(super) transaction: Transaction,
    pub(super) work: SharedWork,
    /// What it has seen of these is not committed yet, or was not when it was seen.
    depends: Vec<OutcomeOfGroup>,
    /// How long its calls wait for a lock, if that is not the settings' to say.
    pub(super) lock_wait_ns_max: Option<u64>,
    is_over: bool,
}

impl PageClient {
    /// Begins a transaction. It waits while the server is sought, and while as many run as may: those that wait begin in their order. If none of
    /// those that run has ended for as long as a lock would be waited for, which may all wait for this one, the transaction is void: all
    /// that is called of it gets [`Error::LockTimeout`].
    pub async fn begin(&self) -> PageTransaction {
        self.try_begin().await.unwrap_or_else(|error| PageTransaction::void(&self.0, error))
    }

    /// The same, with the error of a transaction that would be void.
    pub(super) async fn try_begin(&self) -> Result<PageTransaction> {
        let client = &self.0;
        let mut begun = pin!(async {
            let _next = client.beginning.take(&client.executor).await;
            while !client.may_begin() {
                client.gate.wait(&client.executor).await;
            }
            PageTransaction::new(client)
        });
        let Some(limit_ns) = client.settings.lock_wait_ns_max else { return Ok(begun.await) };
        loop {
            if let Some(begun) = client.executor.within(limit_ns, begun.as_mut()).await {
                return Ok(begun);
            }
            // How long a server is sought is not for this to say.
            if *client.standing.borrow() == ServerState::Joined {
                let resource = format!("a place among the node's {} transactions", client.running_max());
                return Err(Error::LockTimeout { resource, holders: Vec::new(), waited_ns: limit_ns });
            }
        }
    }
}

impl PageTransaction {
    pub(super) fn new(client: &Rc<ClientNode>) -> PageTransaction {
        client.protocol.borrow_mut().note_time(client.executor.round_now());
        let transaction = client.protocol.borrow_mut().begin();
        client.running.set(client.running.get() + 1);
        client.executor.charge(Work::BeginTransaction);
        let work = SharedWork::default();
        client.works.borrow_mut().insert(transaction, Rc::clone(&work));
        let client = Rc::clone(client);
        PageTransaction { client, transaction, work, depends: Vec::new(), lock_wait_ns_max: None, is_over: false }
    }

    /// One in which nothing can be done.
    fn void(client: &Rc<ClientNode>, why: Error) -> PageTransaction {
        let work = WorkDone { void: Some(why), ..WorkDone::default() };
        PageTransaction {
            client: Rc::clone(client),
            transaction: Transaction::NONE,
            work: Rc::new(RefCell::new(work)),
            depends: Vec::new(),
            lock_wait_ns_max: None,
            is_over: true,
        }
    }

    /// What the node runs on.
    pub fn executor(&self) -> &UserExecutor {
        self.client.for_users()
    }

    /// Locks a page for reading and shows it. Returns also whether it was in the buffer.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if the transaction is a victim and has to be rolled back; [`Error::LockTimeout`] if others have the page for longer
    /// than it [waits](PageTransaction::wait_at_most); those of a page that cannot be had.
    pub async fn read<T>(&mut self, page: PageId, look: impl FnOnce(&[u8]) -> T) -> Result<(T, bool)> {
        let was_here = self.bring(page, Mode::Shared, None).await?;
        let pool = self.client.buffer.pool().borrow();
        let bytes = pool.page(page).expect("it has been brought here");
        Ok((look(bytes), was_here))
    }

    /// Has the page in the buffer, locked, and keeps it there as long as `pins` if they are given. Whether it was there.
    pub(super) async fn bring(&mut self, page: PageId, mode: Mode, mut pins: Option<&mut Pins>) -> Result<bool> {
        self.check().await?;
        if !self.client.protocol.borrow_mut().use_page(self.transaction, page) {
            // It has locks of records of it: the next time it comes to these by way of the page.
            self.client.condemn(self.transaction, RollbackCause::Victim);
            return Err(Error::Deadlock);
        }
        self.client.executor.charge(Work::LockPair);
        self.lock_in_node(page, mode).await?;
        let client = Rc::clone(&self.client);
        let is_here = || client.buffer.pool().borrow().frame_of(page).is_some();
        let was_here = is_here();
        client.waits.look(was_here);
        let mut own = Pins::new(&client.buffer);
        let (mut is_kept, mut wait) = (false, None);
        while !is_here() || (pins.is_some() && !is_kept) {
            // It may be another one each time that has asked for the page, and does not wait for it any more.
            let told = client.protocol.borrow_mut().enter(self.transaction, page);
            told.iter().for_each(|told| client.say(told));
            let pins = pins.as_deref_mut().unwrap_or(&mut own);
            let waiting = (!is_here()).then(|| self.await_page(page, mode));
            let needed = client.buffer.resolve(Need::Page(page), Pattern::Random, pins);
            let fetched = self.unless_doomed(needed, &mut wait, || page.to_string()).await;
            drop(waiting);
            self.check().await?;
            match fetched? {
                // A transaction of this node had asked for it, and was a victim.
                Err(Error::Input(fault)) if fault.kind == FaultKind::Cancelled => {}
                fetched => is_kept = fetched.map(|_| true)?,
            }
        }
        self.see(page)?;
        Ok(was_here)
    }

    /// It looks at a page that is here, and so may depend on what is not committed.
    pub(super) fn see(&mut self, page: PageId) -> Result<()> {
        let client = &self.client;
        if client.protocol.borrow().is_spoiled(page) {
            // It was granted what those before it have changed in vain: the page is here no longer when it is run again.
            client.condemn(self.transaction, RollbackCause::Victim);
            return Err(Error::Deadlock);
        }
        if let Some(fate) = client.groups.of_page(page)
            && !self.depends.iter().any(|other| other.is(&fate))
        {
            self.depends.push(fate);
        }
        Ok(())
    }

    /// What `waited` gives, unless the transaction has to be rolled back, for what it waits for may be asked for by another one, or the limit
    /// of this wait for `resource` is over.
    pub(super) async fn unless_doomed<T>(
        &self,
        waited: impl Future<Output = T>,
        wait: &mut Option<LockWait>,
        resource: impl Fn() -> String,
    ) -> Result<T> {
        let mut waited = pin!(waited);
        let began = self.client.executor.now();
        let count_wait = || {
            let waited_ns = self.client.executor.now().since_ns(began);
            self.client.waits.add(|waits| waits.page_ns += waited_ns);
        };
        loop {
            let mut rung = pin!(self.rest_uncounted(wait, &resource));
            let output = poll_fn(|context| match waited.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Ok(Some(output))),
                Poll::Pending => rung.as_mut().poll(context).map_ok(|()| None),
            });
            match output.await? {
                Some(output) => {
                    count_wait();
                    return Ok(output);
                }
                None => self.check().await?,
            }
        }
    }

    /// It waits for a page, which one that writes asks for with its write lock, as long as it has what this returns.
    pub(super) fn await_page(&self, page: PageId, mode: Mode) -> WaitForPage {
        let writes = match mode {
            Mode::Exclusive => true,
            // The first page of a partition is written seldom, and wanted by all.
            _ => mode == Mode::Update && page.number != 0,
        };
        if writes {
            self.client.to_write.borrow_mut().insert(page, self.transaction);
        }
        let _nothing = self.client.protocol.borrow_mut().awaits(self.transaction, Some(page));
        self.client.tell_waits();
        WaitForPage { client: Rc::clone(&self.client), transaction: self.transaction, page }
    }

    /// Locks a page among the transactions of the node.
    async fn lock_in_node(&self, page: PageId, mode: Mode) -> Result<()> {
        self.lock_in_node_unless(page, mode, || false).await.map(drop)
    }

    /// The same, unless something has come about meanwhile. False if it has.
    pub(super) async fn lock_in_node_unless(
        &self,
        page: PageId,
        mode: Mode,
        is_obsolete: impl Fn() -> bool,
    ) -> Result<bool> {
        let client = &self.client;
        let held = client.protocol.borrow().lock_of(self.transaction, page);
        if held.is_some_and(|held| held.supremum(mode) == held) {
            return Ok(true);
        }
        let asked = client.protocol.borrow_mut().lock(self.transaction, page, mode);
        client.advance();
        match asked {
            PageLock::Held => return Ok(true),
            PageLock::Wait => {}
            PageLock::Victim(victim) => client.condemn(victim, RollbackCause::Victim),
        }
        client.tell_waits();
        let _waiting = WaitInNode { client, transaction: self.transaction };
        let mut wait = None;
        loop {
            self.check().await?;
            if !client.protocol.borrow().waits(self.transaction) {
                return Ok(true);
            }
            if is_obsolete() {
                return Ok(false);
            }
            self.rest(&mut wait, || page.to_string()).await?;
        }
    }

    /// Locks a page for writing, and keeps it in the buffer until the transaction ends. If it is not waited for, the lock may come
    /// all the same.
    ///
    /// # Errors
    /// As [`PageTransaction::read`].
    pub async fn lock(&mut self, page: PageId) -> Result<()> {
        self.bring(page, Mode::Exclusive, None).await?;
        self.pin(page);
        let mut wait = None;
        loop {
            let asked = self.client.protocol.borrow_mut().write(self.transaction, page);
            match asked {
                WriteLock::Held => return self.check().await,
                WriteLock::Ask(message) => {
                    self.client.executor.charge(Work::LockPair);
                    self.client.say(&message);
                }
                // It has asked before, or the lock of a transaction before it is not over.
                WriteLock::Wait => {}
            }
            self.rest(&mut wait, || page.to_string()).await?;
            self.check().await?;
        }
    }

    pub(super) fn pin(&mut self, page: PageId) {
        let mut pool = self.client.buffer.pool().borrow_mut();
        self.work.borrow_mut().pinned.entry(page).or_insert_with(|| {
            let frame = pool.frame_in_use(page);
            pool.pin(frame);
            frame
        });
    }

    /// Overwrites a part of a page, behind its header.
    ///
    /// # Errors
    /// As [`PageTransaction::read`], and [`Error::Argument`] if the part does not lie on the page behind its header.
    pub async fn write(&mut self, page: PageId, offset: u16, bytes: &[u8]) -> Result<()> {
        self.lock(page).await?;
        // The lock that it has now is looked up and paid for as in each use.
        self.bring(page, Mode::Exclusive, None).await?;
        let undo = {
            let pool = self.client.buffer.pool().borrow();
            let before = pool.bytes(pool.frame_in_use(page));
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            if part.start < header::HEADER_SIZE || part.end > before.len() {
                let found = format!("bytes {} to {} of {page} cannot be written", part.start, part.end);
                let words =
                    format!("{found}: those from {} to {} are a transaction's", header::HEADER_SIZE, before.len());
                return Err(Error::Argument(words));
            }
            Undo::PatchPage { page, offset, bytes: &before[part] }.stored()
        };
        self.apply(&Body::Update(&undo), &[Edit { page, change: Change::Patch { offset, bytes } }]);
        Ok(())
    }

    /// Commits: when this returns, the changes survive whatever happens, and so does what was seen. If it is not waited for, it goes on.
    ///
    /// # Errors
    /// [`Error::Deadlock`] for a victim, [`Error::Abandoned`] if a change was made in part. [`Error::CommitRefused`] if the server commits nothing of it, or of what it has seen.
    /// [`Error::Input`] if the server was lost, after it was found again or given up: with [`FaultKind::Cancelled`] it is certain that
    /// nothing is committed; otherwise what became of the transaction is not known.
    pub async fn commit(self) -> Result<()> {
        self.client.executor.charge(Work::EndTransaction);
        self.client.executor.pay_debt().await;
        self.check().await?;
        let client = Rc::clone(&self.client);
        let began = client.executor.now();
        let committed = self.commit_work().await;
        client.waits.add(|waits| waits.commit_ns += client.executor.now().since_ns(began));
        committed
    }

    async fn commit_work(mut self) -> Result<()> {
        let client = Rc::clone(&self.client);
        if self.work.borrow().is_empty() {
            self.unpin();
            // Its locks stay until what it has seen is committed: what others change of the rest of it comes behind that.
            for fate in std::mem::take(&mut self.depends) {
                client.await_fate(&fate).await?;
            }
            self.check_void()?;
            client.protocol.borrow_mut().committed_unchanged(self.transaction);
            self.end();
            return Ok(());
        }
        let (records, pages, of_sets) = self.work.borrow().lengths();
        let page_size = client.settings.buffer.page_size;
        let length = length_of_commit(records, pages, page_size);
        if length > COMMIT_MAX || pages.max(of_sets) > LIST_MAX {
            let words = format!(
                "a transaction has changed {pages} pages and {of_sets} records of sets, and its commit would have {length} bytes: at most {COMMIT_MAX} are sent at a \
                 time; commit more often"
            );
            return Err(Fault::new(FaultKind::NoSpace, words).into());
        }
        let turn = client.groups.joining.take(&client.executor).await;
        loop {
            self.check().await?;
            let together = client.of_server.get().pages_together;
            if client.groups.has_room((records, pages, of_sets), (page_size, together)) {
                break;
            }
            client.answered.wait(&client.executor).await;
        }
        drop(turn);
        let fate = client.join_group(&self);
        self.unpin();
        let changed = std::mem::take(&mut self.work.borrow_mut().changed);
        client.protocol.borrow_mut().join_commit(self.transaction, changed.into_keys());
        self.end();
        client.send_group();
        client.await_fate(&fate).await
    }

    /// It is over: its pages may leave, and the next one may begin.
    fn end(&mut self) {
        self.is_over = true;
        self.client.end(self.transaction);
    }

    fn unpin(&mut self) {
        self.client.unpin(&mut self.work.borrow_mut());
    }

    /// Whether all that it has seen is known to be committed. Otherwise that shows when it commits itself.
    pub fn is_settled(&self) -> bool {
        self.depends.iter().all(|fate| fate.get() == GroupOutcome::Committed)
    }

    /// Whether it was given up to end a deadlock: it has to be rolled back, and may be run again.
    pub fn is_victim(&self) -> bool {
        self.client.doomed.borrow().get(&self.transaction) == Some(&RollbackCause::Victim)
    }

    fn check_void(&self) -> Result<()> {
        self.work.borrow().void.clone().map_or(Ok(()), Err)
    }

    /// It may go on. While the client has no lease, it waits.
    pub(super) async fn check(&self) -> Result<()> {
        loop {
            if let ServerState::Lost(cause) | ServerState::GivenUp(cause) = &*self.client.standing.borrow() {
                return Err(Fault::new(FaultKind::Reset, cause.clone()).into());
            }
            self.check_void()?;
            match self.client.doomed.borrow().get(&self.transaction) {
                None => {}
                Some(RollbackCause::Victim) => return Err(Error::Deadlock),
                Some(RollbackCause::HalfChange) => return Err(Error::Abandoned),
                Some(RollbackCause::Denied(reason)) => return Err(Fault::new(FaultKind::Denied, reason.clone()).into()),
            }
            if let Some(failed) = self.depends.iter().find(|fate| fate.has_failed()) {
                return Err(match failed.get() {
                    GroupOutcome::Refused(cause) => Error::CommitRefused(cause),
                    _ => Fault::new(FaultKind::Reset, "what the transaction has seen is lost with the server").into(),
                });
            }
            if self.client.has_lease() {
                return Ok(());
            }
            self.client.bell.wait(&self.client.executor).await;
        }
    }
}

impl ClientNode {
    /// How many transactions may run at a time.
    fn running_max(&self) -> usize {
        let frames = self.settings.buffer.frames;
        self.settings.transactions.min(frames / FRAMES_EACH).clamp(1, WAITING_MAX / 2)
    }

    fn may_begin(&self) -> bool {
        match &*self.standing.borrow() {
            ServerState::Joined => self.running.get() < self.running_max(),
            ServerState::Lost(_) => false,
            ServerState::GivenUp(_) => true,
        }
    }

    fn unpin(&self, work: &mut WorkDone) {
        let mut pool = self.buffer.pool().borrow_mut();
        std::mem::take(&mut work.pinned).into_values().for_each(|frame| pool.unpin(frame));
    }

    /// A transaction is over.
    fn end(&self, transaction: Transaction) {
        self.doomed.borrow_mut().remove(&transaction);
        self.works.borrow_mut().remove(&transaction);
        self.advance();
        self.running.set(self.running.get() - 1);
        self.gate.wake_all(&self.executor);
    }

    fn roll_back(&self, transaction: Transaction, work: &SharedWork) {
        self.unpin(&mut work.borrow_mut());
        let is_begun = |page| work.borrow().changed.get(&page).is_some_and(|redo| redo.is_formatted());
        self.forget_begun(is_begun);
        let changed: BTreeSet<PageId> = work.borrow().changed.keys().copied().collect();
        self.changing.borrow_mut().retain(|page| !changed.contains(page));
        let restored = self.protocol.borrow_mut().aborted(transaction, &changed);
        self.restore(&restored);
        self.end(transaction);
    }

    /// Rolls back the transactions that are left of a session which was lost. False if that has to wait: calls of some are under way, and keep
    /// pages in the buffer.
    pub(super) fn roll_back_all(&self, cause: &str) -> bool {
        let left: Vec<(Transaction, SharedWork)> =
            self.works.borrow().iter().map(|(transaction, work)| (*transaction, Rc::clone(work))).collect();
        let pins_at_rest: usize = left.iter().map(|(_, work)| work.borrow().pinned.len()).sum();
        if self.buffer.pool().borrow().pins() > pins_at_rest {
            return false;
        }
        for (transaction, work) in left {
            self.roll_back(transaction, &work);
            let why = Fault::new(FaultKind::Reset, cause);
            work.replace(WorkDone { void: Some(why.into()), ..WorkDone::default() });
        }
        true
    }

    /// Pages are not begun after all: others may begin them.
    pub(super) fn forget_begun(&self, is_undone: impl Fn(PageId) -> bool) {
        for own in self.append_pages.borrow_mut().values_mut() {
            *own = own.filter(|page| !is_undone(*page));
        }
    }

    /// Waits for the server's word on a group.
    async fn await_fate(&self, fate: &OutcomeOfGroup) -> Result<()> {
        loop {
            match fate.get() {
                GroupOutcome::Open if canary::is_planted(Canary::UnansweredCommits) => return Ok(()),
                GroupOutcome::Open => self.answered.wait(&self.executor).await,
                GroupOutcome::Committed => return Ok(()),
                GroupOutcome::Refused(cause) => return Err(Error::CommitRefused(cause)),
                GroupOutcome::Unsent(cause) => return Err(session::not_committed(&cause)),
                GroupOutcome::Lost { session, name, cause } => return self.ask_outcome(session, name, cause).await,
            }
        }
    }
}

impl Drop for PageTransaction {
    fn drop(&mut self) {
        let is_void = self.work.borrow().void.is_some();
        if !self.is_over && !is_void {
            self.client.roll_back(self.transaction, &self.work);
        }
    }
}

/// A transaction waits for a page to come, as long as this is there.
pub(super) struct WaitForPage {
    client: Rc<ClientNode>,
    transaction: Transaction,
    page: PageId,
}

impl Drop for WaitForPage {
    fn drop(&mut self) {
        let again = self.client.protocol.borrow_mut().awaits(self.transaction, None);
        again.iter().for_each(|again| self.client.say(again));
        let mut to_write = self.client.to_write.borrow_mut();
        if to_write.get(&self.page) == Some(&self.transaction) {
            to_write.remove(&self.page);
        }
        drop(to_write);
        // A copy that was called back as it came could not fall before.
        if self.client.protocol.borrow().may_see_falls() {
            self.client.advance();
        }
    }
}

/// A transaction waits for a lock of the node's, as long as this is there.
struct WaitInNode<'a> {
    client: &'a ClientNode,
    transaction: Transaction,
}

impl Drop for WaitInNode<'_> {
    fn drop(&mut self) {
        self.client.protocol.borrow_mut().wait_no_more(self.transaction);
        self.client.advance();
    }
}
