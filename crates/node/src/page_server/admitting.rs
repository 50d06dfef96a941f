//! Peers that say who they are, and join if they may.

use super::{LOOK_NS, ServerNode};
use crate::channel::{Channel, ChannelError, Incoming, is_loopback};
use crate::lease::{LEASE_NS, Term};
use crate::message::{Answer, ClientId, Former, HELLO_MAX, MessageError, Request, Secret, ToServer};
use crate::outbox::{Outbox, TO_CLIENT_MAX};
use crate::server::{Joined, Newcomer};
use base::PartitionId;
use base::time::SECOND_NS;
use engine::Internals;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

/// How many peers there may be that have not said who they are. One more, and the first of them is not heard any more: each may have
/// sent as much as [`HELLO_MAX`].
pub const STRANGERS_MAX: usize = 64;
/// How much memory all of them together may take with what they have sent, in bytes. More, and the first that has sent something is not
/// heard any more. A node that comes for the first time says little, and one that comes again all at once.
pub const STRANGERS_BYTES_MAX: usize = 16 << 20;
/// How long a place is sought for one, in nanoseconds: it does not wait much longer for an answer.
const PLACE_NS: u64 = 2 * LEASE_NS;
/// For how long a newcomer waits before another node is to lose its place for it, in nanoseconds: many that come hang up soon. There is time for
/// the other one's lease behind that.
const STAY_NS: u64 = LEASE_NS * 5 / 8;
/// How long a peer may take to say who it is, in nanoseconds.
const INTRODUCTION_NS: u64 = 10 * SECOND_NS;

/// A peer that has not said who it is.
pub(super) struct Unknown {
    outbox: Rc<Outbox>,
    /// The memory of what it has sent, in bytes.
    pub sent: Rc<Cell<usize>>,
}

/// What is known of a peer before it says anything.
struct Stranger {
    /// The name that it has proven.
    name: Option<String>,
    /// Whether it is a process of this machine.
    is_local: bool,
}

impl ServerNode {
    /// Hears a client until its connection ends.
    pub(super) async fn attend(&self, channel: Rc<dyn Channel>) {
        let peer = Stranger {
            name: channel.peer_name().map(str::to_owned),
            is_local: channel.peer_address().is_some_and(is_loopback),
        };
        let mut incoming = Incoming::new(&channel, self.executor());
        incoming.limit(HELLO_MAX);
        let outbox =
            Outbox::new(self.executor(), channel, &self.traffic, (self.settings.message_size_min, TO_CLIENT_MAX));
        self.receive_stranger(&outbox, &mut incoming);
        let introduced = self.executor().within(INTRODUCTION_NS, self.admit(peer, &mut incoming, &outbox));
        let admitted = Outbox::unless_ended(&mut pin!(outbox.ended()), introduced).await.flatten();
        self.strangers.borrow_mut().retain(|other| !Rc::ptr_eq(&other.outbox, &outbox));
        incoming.unobserve();
        match admitted {
            Some(Ok(Some(client))) => {
                incoming.limit(self.protocol.borrow().message_max(client));
                self.hear(client, &mut incoming, &outbox).await;
                if !self.settings.has_leases {
                    self.give_up(client);
                }
            }
            Some(Err(ChannelError::Message(error @ (MessageError::Version(_) | MessageError::Sealed)))) => {
                outbox.push(&Answer::Refusal { reason: error.to_string() });
            }
            Some(Ok(None) | Err(_)) | None => {}
        }
        outbox.close();
    }

    fn receive_stranger(&self, outbox: &Rc<Outbox>, incoming: &mut Incoming) {
        let sent: Rc<Cell<usize>> = Rc::default();
        let mut strangers = self.strangers.borrow_mut();
        strangers.push_back(Unknown { outbox: Rc::clone(outbox), sent: Rc::clone(&sent) });
        let first = (strangers.len() > STRANGERS_MAX).then(|| strangers.pop_front()).flatten();
        first.inspect(|first| first.outbox.close());
        let this = self.this.clone();
        incoming.observe(Box::new(move |bytes| {
            sent.set(bytes);
            this.upgrade().inspect(|this| this.limit_strangers());
        }));
    }

    /// Strangers that have sent something make room, the first of them first.
    fn limit_strangers(&self) {
        let mut strangers = self.strangers.borrow_mut();
        while strangers.iter().map(|stranger| stranger.sent.get()).sum::<usize>() > STRANGERS_BYTES_MAX {
            let first = strangers.iter().position(|stranger| stranger.sent.get() > 0);
            first.and_then(|first| strangers.remove(first)).inspect(|first| first.outbox.close());
        }
    }

    /// The first message says who the client is. `None` if it may not join.
    async fn admit(
        &self,
        peer: Stranger,
        incoming: &mut Incoming,
        outbox: &Rc<Outbox>,
    ) -> Result<Option<ClientId>, ChannelError> {
        let (page_size, address, former) = match incoming.next().await? {
            Some(ToServer { body: Request::Hello { page_size, address, former }, .. }) => (page_size, address, former),
            Some(ToServer { body: Request::Survey { page }, .. }) => {
                self.tell_survey(peer.name.as_deref(), page, outbox).await;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let access = self.access(peer.name.as_deref());
        if self.grants.borrow().is_some() {
            let named = self.database.partitions().into_iter().map(|found| (PartitionId(found.id), found.name.clone()));
            self.protocol.borrow_mut().name_partitions(named);
        }
        let newcomer = Newcomer { address, name: peer.name, access };
        if let Some(reason) = self.mistake(page_size as usize, (&newcomer, peer.is_local)) {
            outbox.push(&Answer::Refusal { reason });
            return Ok(None);
        }
        let awaited = async {
            // Its former session may have its place until that.
            if let Some(former) = &former {
                self.await_commits(former).await;
            }
            self.await_place(former.as_ref(), &newcomer).await;
        };
        if Outbox::unless_ended(&mut pin!(incoming.hung_up()), awaited).await.is_none() {
            return Ok(None);
        }
        // In one step with what follows: others may have joined while this has waited, or the server was closed.
        let full = self.protocol.borrow().lack_of_room(former.as_ref(), &newcomer);
        match (full, former) {
            _ if self.ending.has_come() => Ok(None),
            (None, former) => Ok(Some(self.join((newcomer, former), outbox))),
            (Some(reason), None) => {
                outbox.push(&Answer::Refusal { reason });
                Ok(None)
            }
            // One that comes again comes once more: what is in its way may be sessions that end with their leases, its own among them.
            (Some(_), Some(_)) => Ok(None),
        }
    }

    /// If all places are taken, those of nodes that are gone are waited for, which end with their commits, for two leases at most. If there is
    /// none then, one that is not used is given up for a node without a name, which is still there after a while; it has its lease before, if there
    /// is time for that.
    async fn await_place(&self, former: Option<&Former>, newcomer: &Newcomer) {
        let has_none = || self.protocol.borrow().lack_of_room(former, newcomer).is_some();
        let has_soon = || has_none() && self.protocol.borrow().has_room_soon(former, newcomer);
        let begun = self.executor().now();
        let end = begun.plus_ns(PLACE_NS);
        while has_soon() && self.executor().now() < end {
            self.executor().sleep_ns(LOOK_NS).await;
        }
        let unused = || {
            self.protocol.borrow_mut().note_time(self.executor().now());
            self.protocol.borrow().place_for(former, newcomer).filter(|_| has_none())
        };
        let stay = begun.plus_ns(STAY_NS);
        while unused().is_some() && self.executor().now() < stay {
            self.executor().sleep_ns(LOOK_NS).await;
        }
        let unused = unused();
        let is_in_time = Term::new(LEASE_NS, self.executor().now()).end() <= end;
        let Some(unused) = unused.filter(|_| is_in_time) else { return };
        self.protocol.borrow_mut().lose_place(unused);
        self.revoke(unused);
        while has_none() && self.executor().now() < end {
            self.executor().sleep_ns(LOOK_NS).await;
        }
    }

    /// What is wrong with what a node says of itself, if anything is.
    fn mistake(&self, page_size: usize, (newcomer, is_local): (&Newcomer, bool)) -> Option<String> {
        let own = self.database.settings().buffer.page_size;
        if page_size != own {
            return Some(format!(
                "its pages have {page_size} bytes, those of this database {own}: set its page_size so"
            ));
        }
        // Others would send pages there without protection.
        let leads_away = is_local && newcomer.name.is_none() && !is_loopback(newcomer.address);
        leads_away.then(|| format!("it has come by the loopback, and wants pages to be sent to {}", newcomer.address))
    }

    /// A commit of the former session that is under way comes to its end, or the log has failed.
    async fn await_commits(&self, former: &Former) {
        let is_under_way = || self.protocol.borrow().is_committing(former.session);
        while is_under_way() && self.database.log().failure().is_none() {
            self.bell.wait(self.executor()).await;
        }
    }

    fn join(&self, (newcomer, former): (Newcomer, Option<Former>), outbox: &Rc<Outbox>) -> ClientId {
        let mut actions = Vec::new();
        let secret = self.draw_secret();
        self.protocol.borrow_mut().note_time(self.executor().now());
        let joined = self.protocol.borrow_mut().join(newcomer, (former.as_ref(), secret), &self.memory, &mut actions);
        let client = joined.session.client;
        self.outboxes.borrow_mut().insert(client, Rc::clone(outbox));
        let lease_ns = if self.settings.has_leases { LEASE_NS } else { 0 };
        let Joined { session, keeps, former, replaces } = joined;
        let wants_leaving = self.settings.algorithm.wants_leaving();
        let pages_together = (self.database.buffer().pool().borrow().len() / 2) as u32;
        outbox.push(&Answer::Joined { session, secret, lease_ns, keeps, wants_leaving, pages_together, former });
        actions.into_iter().for_each(|action| self.perform(action));
        if self.settings.has_leases {
            self.terms.borrow_mut().insert(client, Term::new(lease_ns, self.executor().now()));
        }
        if let Some(before) = replaces {
            self.give_up(before);
        }
        client
    }

    /// On described networks, on which nothing is lost, no session comes again.
    fn draw_secret(&self) -> Secret {
        if !self.settings.has_leases {
            return Secret::default();
        }
        Secret::of_session(self.executor().entropy(), self.database.identity())
    }
}
