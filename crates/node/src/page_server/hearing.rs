//! Clients that are heard: their messages one after the other, and what has come of one that is long.
//!
//! A message may take longer to come than a term lasts: the bytes that come of it say that its client is there, as whole messages do, and
//! begin its term anew. That is never too soon: a term may end as late as it likes, and no lease is longer by it. The client itself has no
//! lease meanwhile, for what it would prolong that with stands behind the long message; so that it does not take its server for gone, it is told
//! now and then that it is heard. So it is while it is not heard because of what the server has to find for it, or has sent and sees it take.

use super::{LOOK_NS, ServerNode};
use crate::channel::Incoming;
use crate::lease::LEASE_NS;
use crate::message::{Answer, ClientId, Message, Request, ToServer};
use crate::outbox::Outbox;
use base::Instant;
use driver::Work;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

/// How long a message takes to come before its client is told that it is heard, and how long after that again, in nanoseconds: a server that says
/// nothing for two leases would be taken for gone.
const TOLD_NS: u64 = LEASE_NS / 2;
/// How many messages that have come together are heard before others have their turn: they may be short, and costly to heed.
const HEARD_TOGETHER: usize = 64;

impl ServerNode {
    /// Hears a client until its connection ends, or it is given up.
    pub(super) async fn hear(&self, client: ClientId, incoming: &mut Incoming, outbox: &Outbox) {
        // Since when there are only signs of it, or it was told that it is heard.
        let since: Rc<Cell<Option<Instant>>> = Rc::default();
        if self.settings.has_leases {
            let (this, since) = (self.this.clone(), Rc::clone(&since));
            incoming.observe(Box::new(move |_| {
                this.upgrade().inspect(|this| this.note_sign(client, &since));
            }));
        }
        let mut ended = pin!(outbox.ended());
        while let Some(Ok(Some(message))) = Outbox::unless_ended(&mut ended, incoming.next::<ToServer>()).await {
            let steps = [(Work::NodeMessage, 1), (Work::PageImage, message.images() as u64)];
            self.executor().pay_steps(&steps).await;
            self.charge(&message);
            self.received.borrow_mut().add(message.kind(), incoming.last_size());
            self.executor().pay_debt().await;
            // What has come before the end and was not heard is not.
            if self.ending.has_come() {
                return;
            }
            let heard = self.step(|server, memory, actions| server.receive(client, message, memory, actions));
            if heard.is_err() {
                return;
            }
            if let Some(term) = self.terms.borrow_mut().get_mut(&client) {
                term.renew(self.executor().now());
            }
            since.set(None);
            self.await_room(client, outbox, &since).await;
            if incoming.together() >= HEARD_TOGETHER {
                incoming.begin_anew();
                self.executor().yield_now().await;
            }
        }
    }

    /// A client is there, though no whole message of it has come.
    fn note_sign(&self, client: ClientId, since: &Cell<Option<Instant>>) {
        // One that is revoked is listened to no more.
        if !self.outboxes.borrow().contains_key(&client) {
            return;
        }
        let now = self.executor().now();
        if let Some(term) = self.terms.borrow_mut().get_mut(&client) {
            term.renew(now);
        }
        let begun = since.get().unwrap_or(now);
        since.set(Some(begun));
        if now.since_ns(begun) >= TOLD_NS {
            since.set(Some(now));
            // It prolongs no lease: it is as if that were answered which was asked for when the client's clock began.
            self.send(client, &Answer::Renewed { sent: 0 });
        }
    }

    /// Waits while much is to be sent to a client, which is not heard meanwhile.
    async fn await_room(&self, client: ClientId, outbox: &Outbox, since: &Cell<Option<Instant>>) {
        while outbox.is_crowded() {
            let taken = outbox.taken();
            let has_room = self.executor().within(LOOK_NS, outbox.has_room()).await;
            let is_there = outbox.taken() > taken || !outbox.is_waiting();
            match has_room {
                Some(()) => return,
                None if is_there && self.settings.has_leases => self.note_sign(client, since),
                None => {}
            }
        }
    }

    /// Marks what a message costs beside its transfer.
    fn charge(&self, message: &ToServer) {
        let executor = self.executor();
        match &message.body {
            Request::Read { .. } | Request::Accept { .. } | Request::Write { .. } => {
                executor.charge(Work::LockPair);
                executor.charge(Work::CopyRegistration);
            }
            Request::Record { .. } | Request::SetRecord(_) | Request::Set(_) => executor.charge(Work::LockPair),
            Request::Fell { locks, .. } => executor.charge_times(Work::LockPair, locks.len() as u64),
            Request::Commit { pages, redone, .. } => {
                executor.charge_times(Work::CopyRegistration, (pages.len() + redone.len()) as u64);
            }
            _ => {}
        }
    }
}
