//! A partition whose pages are at the server.

use super::ClientNode;
use crate::message::{Copy, Secret, Transaction};
use base::{Instant, PageId};
use driver::{Access, Completion, Fault, FaultKind, Output, Token};
use engine::page_store::{Future, PageStore, Then, Transfer};
use executor::Executor;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::RefCell;
use std::rc::Weak;

/// Reads that wait for their pages.
#[derive(Default)]
pub(super) struct Reads(RefCell<HashMap<PageId, PendingRead, FixedState>>);

/// A read of the buffer.
struct PendingRead {
    transfer: Transfer,
    then: Then,
    /// When the page was asked for, the last time.
    asked: Instant,
    /// Whether it was asked for because it was offered, or ahead of a scan.
    is_accepted: bool,
    is_ahead: bool,
}

impl Reads {
    /// The page has come, `now`. Returns for how long it was waited, in nanoseconds, if it was: one that was asked for ahead has come behind
    /// others, so that its time says nothing of what a page costs.
    pub fn complete(&self, page: PageId, bytes: &[u8], now: Instant) -> Option<u64> {
        let PendingRead { mut transfer, then, asked, is_ahead, .. } = self.0.borrow_mut().remove(&page)?;
        let result = if bytes.len() == transfer.length {
            transfer.buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(Output::Done)
        } else {
            Err(Fault::new(FaultKind::Device, format!("{page} came with {} bytes", bytes.len())))
        };
        then(Completion { token: TOKEN, result, buffer: Some(transfer.buffer) });
        (!is_ahead).then(|| now.since_ns(asked))
    }

    /// It will not come.
    pub fn fail(&self, page: PageId, cause: Fault) {
        let Some(PendingRead { transfer, then, .. }) = self.0.borrow_mut().remove(&page) else { return };
        then(Completion { token: TOKEN, result: Err(cause), buffer: Some(transfer.buffer) });
    }

    /// The pages that were asked for before `long_ago`. They count as asked for `now`.
    pub fn overdue(&self, long_ago: Instant, now: Instant) -> Vec<PageId> {
        let mut reads = self.0.borrow_mut();
        let late = reads.iter_mut().filter(|(_, read)| read.asked < long_ago);
        let mut pages: Vec<PageId> = late
            .map(|(page, read)| {
                read.asked = now;
                *page
            })
            .collect();
        pages.sort_unstable();
        pages
    }

    /// How many pages are on their way.
    pub fn under_way(&self) -> usize {
        self.0.borrow().len()
    }

    /// How many pages are on their way that were offered.
    pub fn accepted(&self) -> usize {
        self.0.borrow().values().filter(|read| read.is_accepted).count()
    }

    /// Nothing comes any more.
    pub fn fail_all(&self, cause: &Fault) {
        let mut pages: Vec<PageId> = self.0.borrow().keys().copied().collect();
        pages.sort_unstable();
        pages.into_iter().for_each(|page| self.fail(page, cause.clone()));
    }
}

/// No operation of the driver's stands behind such a read.
const TOKEN: Token = Token(u64::MAX);

/// The places of a partition's pages, as a client sees them. It knows nothing of how many there are: the server does.
pub(super) struct RemoteStore {
    client: Weak<ClientNode>,
    page_size: usize,
}

impl RemoteStore {
    pub fn new(client: Weak<ClientNode>, page_size: usize) -> RemoteStore {
        RemoteStore { client, page_size }
    }
}

impl ClientNode {
    /// The transaction that a page is asked for, and whether that writes it; none if it is offered, or asked for ahead of a scan. Not one that
    /// has it locked and does not wait for it: at the server it would be in the way of those that have the page.
    fn asker(&self, page: PageId) -> (Transaction, bool) {
        let protocol = self.protocol.borrow();
        let is_user = |transaction: &Transaction| protocol.is_used_by(*transaction, page);
        let writer = self.to_write.borrow().get(&page).copied().filter(is_user);
        let ahead = || self.to_look_at.borrow().get(&page).copied().filter(is_user);
        let by = writer.or_else(|| protocol.awaiting(page)).or_else(ahead).unwrap_or(Transaction::NONE);
        (by, writer.is_some())
    }

    /// No transaction waits any more for what was asked for.
    pub(super) fn fail_unwanted(&self, unwanted: Vec<(Copy, Option<Copy>)>) {
        for (copy, forgets) in unwanted {
            self.forget(forgets);
            self.reads.fail(copy.page, Fault::new(FaultKind::Cancelled, "no transaction waits for the page any more"));
        }
    }

    /// What another client has to show that sends a page which is asked for now. On described networks there are no strangers.
    fn draw_secret(&self) -> Secret {
        Secret(if self.lease.get().length_ns() > 0 { self.executor.entropy() } else { 0 })
    }
}

fn gone() -> Fault {
    Fault::new(FaultKind::Closed, "the node has left its server")
}

impl PageStore for RemoteStore {
    fn name(&self) -> &str {
        "the page server"
    }

    fn page_size(&self) -> usize {
        self.page_size
    }

    fn capacity(&self) -> u32 {
        u32::MAX
    }

    fn may_tear(&self) -> bool {
        false
    }

    /// Each is looked at when it comes, before it counts as here.
    fn gives_sound_pages(&self) -> bool {
        true
    }

    fn access<'a>(&'a self, _: &'a Executor) -> Future<'a, Access> {
        Box::pin(std::future::ready(Access::Asynchronous))
    }

    fn read(&self, executor: &Executor, transfer: Transfer, then: Then) {
        let Some(client) = self.client.upgrade().filter(|client| !client.to_server.borrow().is_closed()) else {
            return then(Completion { token: TOKEN, result: Err(gone()), buffer: Some(transfer.buffer) });
        };
        let page = transfer.first;
        let (by, writes) = client.asker(page);
        let wanted = (page, client.draw_secret());
        let is_accepted = by == Transaction::NONE && client.accepting.borrow_mut().remove(&page);
        let is_ahead = by == Transaction::NONE && !is_accepted;
        let (request, forgotten) = if is_accepted {
            client.protocol.borrow_mut().accept(wanted)
        } else {
            client.decline_if_open(page);
            client.protocol.borrow_mut().request(wanted, by, writes)
        };
        client.forget(forgotten);
        let read = PendingRead { transfer, then, asked: executor.now(), is_accepted, is_ahead };
        let before = client.reads.0.borrow_mut().insert(page, read);
        assert!(before.is_none(), "a page is read into one frame");
        client.say(&request);
    }

    /// Nothing that may have changed leaves a client but with a commit, so a buffer has nothing to write here.
    fn write(&self, _: &Executor, transfer: Transfer, _: bool, then: Then) {
        let fault = Fault::new(FaultKind::Unsupported, "pages of a server are written by commits only");
        then(Completion { token: TOKEN, result: Err(fault), buffer: Some(transfer.buffer) });
    }

    fn reserve<'a>(&'a self, _: &'a Executor, _: u32) -> Future<'a, engine::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync<'a>(&'a self, _: &'a Executor) -> Future<'a, engine::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn failure(&self) -> Option<engine::Error> {
        None
    }
}
