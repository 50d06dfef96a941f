//! A client's sessions at its server, one after the other: it introduces itself, prolongs its lease, finds out that the server is gone
//! or has given it up, and joins again.
//!
//! Its copies outlive a session if it had a lease when it introduced itself again, and the server still had it among its clients or
//! was started again only just now.

use super::{ClientNode, ClientSettings, PageClient, ServerState};
use crate::channel::{ChannelError, Incoming, Transport};
use crate::lease::{self, Lapses, Lease};
use crate::message::{Answer, Former, MessageError, Outcome, PageAnswer, decode};
use crate::message::{Request, Secret, Session, ToServer, Transaction};
use crate::outbox::{Outbox, TO_SERVER_MAX, Traffic};
use base::Instant;
use base::time::MILLISECOND_NS;
use driver::{Fault, FaultKind, Work};
use engine::canary::{self, Canary};
use engine::{Error, Result};
use executor::Executor;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};

/// The way to a server.
pub(super) struct Way<'a> {
    pub executor: &'a Executor,
    pub transport: &'a dyn Transport,
    pub server: SocketAddr,
    pub traffic: &'a Rc<Traffic>,
    pub settings: &'a ClientSettings,
}

/// What a server has said of itself.
#[derive(Clone, Copy)]
pub(super) struct ServerWants {
    /// Whether the bytes of copies that have left the buffer may be wanted, so that they are kept.
    pub leaving: bool,
    /// How many pages commits that are sent together may have.
    pub pages_together: usize,
}

/// A session that has begun.
pub(super) struct Introduced {
    pub session: Session,
    pub secret: Secret,
    pub lease: Lease,
    pub keeps: bool,
    pub of_server: ServerWants,
    pub former: Outcome,
    pub incoming: Incoming,
    pub outbox: NewOutbox,
}

/// The queue of a connection that no node has taken over yet. If none does, it hangs up.
pub(super) struct NewOutbox(Option<Rc<Outbox>>);

impl NewOutbox {
    /// The node hangs up from now on.
    pub fn take_over(mut self) -> Rc<Outbox> {
        self.0.take().expect("it is taken over once")
    }
}

impl Drop for NewOutbox {
    fn drop(&mut self) {
        self.0.iter().for_each(|outbox| outbox.close());
    }
}

/// How long a server may take to answer an introduction, in nanoseconds.
const ANSWER_NS: u64 = 5_000 * MILLISECOND_NS;

/// Connects to the server and says who this is.
pub(super) async fn introduce(
    way: &Way<'_>,
    address: SocketAddr,
    former: Option<(Former, Lease)>,
) -> Result<Introduced> {
    let Way { executor, server, .. } = *way;
    let silent = || Fault::new(FaultKind::TimedOut, format!("the server at {server} does not answer"));
    let introduced = executor.within(ANSWER_NS, try_introduce(way, address, former)).await;
    introduced.unwrap_or_else(|| Err(silent().into()))
}

async fn try_introduce(way: &Way<'_>, address: SocketAddr, former: Option<(Former, Lease)>) -> Result<Introduced> {
    let Way { executor, transport, server, traffic, settings } = *way;
    let channel = transport.connect(server, None).await?;
    let mut incoming = Incoming::new(&channel, executor);
    let outbox = Outbox::new(executor, channel, traffic, (settings.message_size_min, TO_SERVER_MAX));
    let new = NewOutbox(Some(Rc::clone(&outbox)));
    let sent = executor.now();
    // The lease counts at this moment, at which the server that is spoken to runs: one before it has not given this client up.
    let former = former.map(|(mut former, lease)| {
        former.copies.retain(|_| lease.is_valid(sent));
        former
    });
    let names_copies = former.as_ref().is_some_and(|former| !former.copies.is_empty());
    let hello = Request::Hello { page_size: settings.buffer.page_size as u32, address, former };
    outbox.push(&ToServer { drops: Vec::new(), body: hello });
    match incoming.next().await.map_err(|error| lost(server, &error))? {
        Some(Answer::Joined { session, secret, lease_ns, keeps, wants_leaving, pages_together, former }) => {
            let mut lease = Lease::given(lease_ns).ok_or_else(|| odd_lease(server, lease_ns))?;
            lease.renew(sent, executor.now());
            let keeps = keeps && names_copies;
            let of_server = ServerWants { leaving: wants_leaving, pages_together: pages_together as usize };
            Ok(Introduced { session, secret, lease, keeps, of_server, former, incoming, outbox: new })
        }
        Some(Answer::Refusal { reason }) => {
            Err(Fault::new(FaultKind::Denied, format!("the server at {server} refuses: {reason}")).into())
        }
        _ => Err(Fault::new(FaultKind::Reset, format!("the server at {server} hangs up")).into()),
    }
}

/// What is said when the server cannot be understood.
fn lost(server: SocketAddr, error: &ChannelError) -> Error {
    // What cannot be understood will not be understood better the next time.
    let kind = match error {
        ChannelError::Message(_) => FaultKind::Denied,
        ChannelError::Fault(fault) if fault.kind == FaultKind::Denied => FaultKind::Denied,
        ChannelError::Fault(_) => FaultKind::Reset,
    };
    Fault::new(kind, format!("the server at {server} is lost: {error}")).into()
}

fn odd_lease(server: SocketAddr, lease_ns: u64) -> Error {
    let (least, most) = lease::LENGTHS_NS.into_inner();
    let words = format!(
        "the server at {server} gives a lease of {lease_ns} ns, and only {least} to {most} ns are believed: is it another release's?"
    );
    Fault::new(FaultKind::Denied, words).into()
}

/// What is said of a commit that nothing is known of.
pub(super) fn unknown_outcome(cause: &str) -> Error {
    let words = format!("it is not known whether a transaction is committed: {cause}");
    Fault::new(FaultKind::Reset, words).into()
}

/// What is said of a commit of which it is certain that nothing came.
pub(super) fn not_committed(cause: &str) -> Error {
    let words = format!("a transaction was lost with the server and is not committed: {cause}");
    Fault::new(FaultKind::Cancelled, words).into()
}

/// Asks for a longer lease, three times in one. A server that says nothing for as long as two is as good as gone.
pub(super) async fn renew(client: Weak<ClientNode>, executor: Executor) {
    loop {
        let Some(client) = client.upgrade() else { return };
        let silence_ns = executor.now().since_ns(client.heard.get());
        if silence_ns > 2 * client.lease.get().length_ns() {
            client.to_server.borrow().close();
        }
        client.say(&ToServer { drops: Vec::new(), body: Request::Renew { sent: executor.now().ns() } });
        let pause_ns = client.lease.get().length_ns() / 3;
        drop(client);
        executor.sleep_ns(pause_ns).await;
    }
}

/// Hears the server, and joins again whenever it is gone.
pub(super) async fn stay(client: Weak<ClientNode>, mut incoming: Incoming, executor: Executor) {
    while let Some(cause) = hear(&client, &mut incoming, &executor).await {
        let Some(node) = client.upgrade() else { return };
        node.lose_server(&cause);
        drop(node);
        let introduced = seek(&client, &executor, &cause).await;
        let Some(node) = client.upgrade() else { return };
        match introduced {
            Some(introduced) => incoming = node.begin_session(introduced),
            None => node.stand(ServerState::GivenUp(cause)),
        }
        if node.is_given_up() {
            return;
        }
    }
}

/// Hears the server until it is gone, and says why. `None` if the client itself is.
async fn hear(client: &Weak<ClientNode>, incoming: &mut Incoming, executor: &Executor) -> Option<String> {
    let (server, outbox) = client.upgrade().map(|node| (node.server, Rc::clone(&node.to_server.borrow())))?;
    let mut ended = pin!(outbox.ended());
    // What has come of a long message says that the server is there, as whole ones do.
    let this = client.clone();
    incoming.observe(Box::new(move |_| {
        this.upgrade().inspect(|node| node.heard.set(node.executor.round_now()));
    }));
    loop {
        match Outbox::unless_ended(&mut ended, incoming.next_frame()).await {
            Some(Ok(Some(frame))) => {
                let images = u64::from(PageAnswer::is_in_frame(frame));
                executor.pay_steps(&[(Work::NodeMessage, 1), (Work::PageImage, images)]).await;
                if let Err(error) = client.upgrade()?.hear_frame(frame) {
                    return Some(lost(server, &error.into()).to_string());
                }
            }
            Some(Ok(None)) => return Some(format!("the server at {server} has ended")),
            Some(Err(error)) => return Some(lost(server, &error).to_string()),
            None => return Some(format!("the server at {server} takes and says nothing any more")),
        }
    }
}

/// How long it is waited before a server is tried again, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND_NS;

/// Ends the transactions of a session that was lost. Most do so by themselves when their next call fails; one that rests, or whose program waits
/// for the server in another way, is rolled back where it stands. `None` if a call that is not awaited any more keeps pages until `end`.
async fn end_transactions(client: &Weak<ClientNode>, executor: &Executor, cause: &str, end: Instant) -> Option<()> {
    loop {
        let node = client.upgrade()?;
        let all_end = async {
            while node.running.get() > 0 {
                node.gate.wait(executor).await;
            }
        };
        if executor.within(PAUSE_NS, all_end).await.is_some() || node.roll_back_all(cause) {
            return Some(());
        }
        if executor.now() >= end {
            return None;
        }
    }
}

/// Joins again. `None` if the server is not to be found, or does not want this client.
async fn seek(client: &Weak<ClientNode>, executor: &Executor, cause: &str) -> Option<Introduced> {
    let patience_ns = client.upgrade()?.settings.patience_ns;
    let patience_ns = if canary::is_planted(Canary::ShortPatience) { patience_ns / 2 } else { patience_ns };
    let end = executor.now().plus_ns(patience_ns);
    // On networks without leases nothing is lost.
    let is_sought = client.upgrade()?.lease.get().length_ns() > 0;
    end_transactions(client, executor, cause, end).await?;
    while is_sought && executor.now() < end {
        let tried = client.upgrade()?.rejoin().await;
        match tried {
            Ok(introduced) => return Some(introduced),
            Err(Error::Input(fault)) if fault.kind == FaultKind::Denied => return None,
            Err(_) => executor.sleep_ns(PAUSE_NS).await,
        }
    }
    None
}

impl PageClient {
    /// Whether its server hears it, as far as it knows: it has joined, and has not been told otherwise.
    pub fn has_server(&self) -> bool {
        *self.0.standing.borrow() == ServerState::Joined
    }
}

impl ClientNode {
    /// A message of the server's has come. Most are pages, whose bytes go into their frames from where they are.
    fn hear_frame(self: &Rc<Self>, frame: &[u8]) -> Result<(), MessageError> {
        // Many come at once, and no right is decided by this.
        let now = self.executor.round_now();
        self.heard.set(now);
        self.protocol.borrow_mut().note_time(now);
        match PageAnswer::in_frame(frame)? {
            Some(PageAnswer { copy, bytes, fate }) => self.arrive(copy, bytes, fate),
            None => self.hear(decode(frame)?),
        }
        Ok(())
    }

    /// Prolongs the lease: the server has answered what was said at this moment.
    pub(super) fn prolong(&self, sent: Instant) {
        let (mut lease, had_lease) = (self.lease.get(), self.has_lease());
        lease.renew(sent, self.executor.now());
        self.lease.set(lease);
        if !had_lease && self.has_lease() && self.protocol.borrow().resident().next().is_some() {
            self.note_lapse(|lapses| lapses.renewed += 1);
        }
        self.bell.wake_all(&self.executor);
    }

    fn note_lapse(&self, note: impl FnOnce(&mut Lapses)) {
        let mut lapses = self.lapses.get();
        note(&mut lapses);
        self.lapses.set(lapses);
    }

    fn is_given_up(&self) -> bool {
        matches!(*self.standing.borrow(), ServerState::GivenUp(_))
    }

    fn lose_server(&self, cause: &str) {
        self.to_server.borrow().close();
        self.standing.replace(ServerState::Lost(cause.to_owned()));
        self.reads.fail_all(&Fault::new(FaultKind::Reset, cause));
        self.lose_groups(cause);
        self.gate.wake_all(&self.executor);
    }

    async fn rejoin(&self) -> Result<Introduced> {
        self.kept.borrow_mut().clear();
        self.accepting.borrow_mut().clear();
        self.deferred.set(None);
        let former = {
            let mut protocol = self.protocol.borrow_mut();
            let copies = protocol.disconnect(self.has_lease());
            let secret = protocol.secret();
            protocol.session().map(|session| (Former { session, secret, copies }, self.lease.get()))
        };
        let way = Way {
            executor: &self.executor,
            transport: &*self.transport,
            server: self.server,
            traffic: &self.traffic,
            settings: &self.settings,
        };
        introduce(&way, self.address, former).await
    }

    /// A new session begins, with the copies of the one before or with none.
    fn begin_session(&self, introduced: Introduced) -> Incoming {
        let Introduced { session, secret, lease, keeps, of_server, former, incoming, outbox } = introduced;
        if !keeps {
            let forgotten = self.protocol.borrow_mut().forget_copies();
            if !forgotten.is_empty() && !self.has_lease() {
                self.note_lapse(|lapses| lapses.copies_lost += 1);
            }
            forgotten.into_iter().for_each(|page| self.discard(page));
        }
        // The server may have been replaced by an older copy, in which these are no pages of their partitions yet.
        self.append_pages.borrow_mut().clear();
        let before = self.protocol.borrow().session();
        self.protocol.borrow_mut().join(session, secret);
        self.ended.set(before.map(|before| (before, former)));
        self.lease.set(lease);
        self.of_server.set(of_server);
        self.heard.set(self.executor.now());
        self.to_server.replace(outbox.take_over());
        self.doomed.borrow_mut().clear();
        self.stand(ServerState::Joined);
        incoming
    }

    /// What became of a transaction whose commit was not answered: it is waited for until the server tells, or is given up.
    pub(super) async fn ask_outcome(&self, session: Session, transaction: Transaction, cause: String) -> Result<()> {
        loop {
            match self.ended.get() {
                Some((ended, Outcome::Committed(last))) if ended == session => {
                    let is_committed = last == Some(transaction);
                    return if is_committed { Ok(()) } else { Err(not_committed(&cause)) };
                }
                // Another session has begun. Epochs need not grow: the server may have been started from a backup.
                _ if self.protocol.borrow().session() != Some(session) => return Err(unknown_outcome(&cause)),
                _ if self.is_given_up() => return Err(unknown_outcome(&cause)),
                _ => self.bell.wait(&self.executor).await,
            }
        }
    }
}
