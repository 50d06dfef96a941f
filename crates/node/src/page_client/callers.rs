//! Connections of other clients, which send pages here.
//!
//! The server says who may send which page, and only such a sender knows its secret. Until one has sent a page that is wanted here it
//! may be any process that reaches the address: of those there are few, each for a short time.

use super::ClientNode;
use crate::channel::{Acceptor, Channel, Ending, Incoming, next_connection};
use crate::message::{Copy, LeavingFate, Secret, Session, ToPeer};
use crate::server::CLIENTS_MAX;
use base::time::SECOND_NS;
use driver::Work;
use executor::Executor;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// How many connections there may be on which no page has come yet that is wanted. One more, and the first of them is closed.
pub const CALLERS_MAX: usize = 64;
/// How long one may be that, in nanoseconds.
const UNWANTED_NS: u64 = 10 * SECOND_NS;
/// More than the bytes of a page's message beside the page.
const HEAD_MAX: usize = 128;

/// What a page is that has come from another client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// One that the server has told it to send here.
    Wanted,
    /// A stranger's, or a late one.
    Unwanted,
    /// None at all.
    Damaged,
}

/// The connections, each as the end that it can be brought to.
#[derive(Default)]
pub(super) struct Callers {
    ending: Ending,
    /// Those that have sent nothing yet that is wanted, the latest last.
    strangers: Line,
    /// The others.
    known: Line,
}

#[derive(Default)]
struct Line(RefCell<VecDeque<Rc<Ending>>>);

impl Line {
    /// One more comes. If they are more than this, the first of them ends.
    fn join(&self, caller: &Rc<Ending>, most: usize, executor: &Executor) {
        let mut callers = self.0.borrow_mut();
        callers.push_back(Rc::clone(caller));
        let first = (callers.len() > most).then(|| callers.pop_front()).flatten();
        first.inspect(|first| first.come(executor));
    }

    fn leave(&self, caller: &Rc<Ending>) {
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, caller));
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Callers {
    /// How many are strangers, and how many are not.
    pub fn count(&self) -> (usize, usize) {
        (self.strangers.len(), self.known.len())
    }

    /// All end, and no more come.
    pub fn close(&self, executor: &Executor) {
        self.ending.come(executor);
        for caller in self.strangers.0.take().into_iter().chain(self.known.0.take()) {
            caller.come(executor);
        }
    }
}

/// Lets other clients connect until this one is gone.
pub(super) async fn accept(
    client: Weak<ClientNode>,
    acceptor: Rc<dyn Acceptor>,
    (callers, executor): (Rc<Callers>, Executor),
) {
    while let Some(channel) = callers.ending.before(&executor, next_connection(&*acceptor, &executor)).await.flatten() {
        executor.spawn(attend(client.clone(), channel, (Rc::clone(&callers), executor.clone())));
    }
}

/// Hears another client until its connection ends.
async fn attend(client: Weak<ClientNode>, channel: Rc<dyn Channel>, (callers, executor): (Rc<Callers>, Executor)) {
    let Some(settings) = client.upgrade().map(|client| client.settings) else { return };
    let mut incoming = Incoming::new(&channel, &executor);
    incoming.limit((settings.buffer.page_size + HEAD_MAX).max(settings.message_size_min));
    let caller: Rc<Ending> = Rc::default();
    callers.strangers.join(&caller, CALLERS_MAX, &executor);
    let first = executor.within(UNWANTED_NS, hear(&client, &mut incoming, |sent| sent == Sent::Wanted));
    let is_known = caller.before(&executor, first).await.flatten() == Some(Some(Sent::Wanted));
    callers.strangers.leave(&caller);
    if is_known {
        callers.known.join(&caller, CLIENTS_MAX, &executor);
        caller.before(&executor, hear(&client, &mut incoming, |_| false)).await;
        callers.known.leave(&caller);
    }
}

/// Takes pages until one is as this says, or is none. `None` if no more come.
async fn hear(client: &Weak<ClientNode>, incoming: &mut Incoming, ends: impl Fn(Sent) -> bool) -> Option<Sent> {
    loop {
        let ToPeer::Page { to, secret, copy, bytes, fate } = incoming.next().await.ok()??;
        let executor = client.upgrade()?.executor.clone();
        executor.pay_steps(&[(Work::NodeMessage, 1), (Work::PageImage, 1)]).await;
        let sent = client.upgrade()?.arrive_from_peer((to, secret), copy, (&bytes, fate));
        if sent == Sent::Damaged || ends(sent) {
            return Some(sent);
        }
    }
}

impl ClientNode {
    /// A page has come from another client. If it is none the server is asked for it.
    fn arrive_from_peer(
        self: &Rc<Self>,
        to: (Session, Secret),
        copy: Copy,
        (bytes, fate): (&[u8], LeavingFate),
    ) -> Sent {
        // Without a server the reads of this session have failed, or are about to.
        if self.to_server.borrow().is_closed() || !self.protocol.borrow().is_sent_here(to, copy) {
            return Sent::Unwanted;
        }
        if self.check_page(copy.page, bytes).is_err() {
            self.ask_again(copy.page);
            return Sent::Damaged;
        }
        let arrival = self.protocol.borrow_mut().arrived_from_peer(to, copy, fate);
        arrival.inspect(|arrival| self.take_in(copy, bytes, arrival));
        Sent::Wanted
    }
}
