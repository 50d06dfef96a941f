//! Last copies that are passed on to idle clients (Dahlin, Wang, Anderson, Patterson, OSDI 1994).
//!
//! A copy that leaves a client's memory, and is the last one in any, is offered to another client. That accepts by asking for it, and
//! the first one sends it; until it says that it has dropped its copy, it is a holder like any other. So a page is passed on under the
//! same rules as one that is asked for: the receiver is entered before the page is sent, and what is called back meanwhile is given up.
//!
//! One that has nothing to keep says so without a message of its own: each copy that leaves says for how long it was not used, and
//! since then what is left there grows older. A client is made one offer at a time, so no other one can fill its memory faster than it
//! accepts. What leaves for a page that was accepted is not passed on itself, and a page is passed on only so often before it is used.
//! One that was passed on and then sent to a client which uses it is the first to leave, until it is the last copy again.

use super::{Action, COPIES_MAX, Memory, Misbehaviour, Server, misbehaved};
use crate::algorithm::IdleClient;
use crate::grants::Right;
use crate::message::{Answer, ClientId, Copy, Leaving, Secret};
use base::{Instant, PageId};
use engine::canary::{self, Canary};

/// Why a page does not come that was offered.
pub(super) const GONE: &str = "no other node has the page any more";

/// What is known of a client's memory.
pub(super) struct Idleness {
    /// For how long what has left it last was not used, in nanoseconds, and when it did. The greatest number while nothing had to leave.
    unused_ns: u64,
    since: Instant,
    /// What it is offered and has not answered.
    offered: Option<OpenOffer>,
}

/// A client has a copy that leaves.
#[derive(Clone, Copy)]
struct OpenOffer {
    by: ClientId,
    leaving: Leaving,
}

impl Default for Idleness {
    fn default() -> Idleness {
        Idleness { unused_ns: u64::MAX, since: Instant::START, offered: None }
    }
}

impl Idleness {
    /// For how long what leaves the memory next has not been used.
    fn unused_ns(&self, now: Instant) -> u64 {
        self.unused_ns.saturating_add(now.since_ns(self.since))
    }
}

impl Server {
    /// A client says what leaves its memory. Of a copy that it has kept for others, who have it by now, that says nothing.
    pub(super) fn note_leaving(&mut self, client: ClientId, leaving: Leaving) {
        let now = self.now;
        if let Some(joined) = self.clients.get_mut(&client) {
            (joined.idleness.unused_ns, joined.idleness.since) = (leaving.unused_ns, now);
        }
    }

    /// Offers a last copy to another client, unless it was passed on too often or no client is idle.
    pub(super) fn pass_on(&mut self, (client, leaving): (ClientId, Leaving), actions: &mut Vec<Action>) -> bool {
        let entry = self.directory.entry(leaving.copy.page);
        let held = entry.copies.get_mut(&client).expect("it is the last to hold it");
        if leaving.was_used {
            held.passed = 0;
        }
        if held.passed >= self.chances && !canary::is_planted(Canary::EndlessChances) {
            return false;
        }
        self.offer(OpenOffer { by: client, leaving }, actions)
    }

    /// Offers a copy to the idlest client, if there is one.
    fn offer(&mut self, offer: OpenOffer, actions: &mut Vec<Action>) -> bool {
        let page = offer.leaving.copy.page;
        let Some(to) = self.placement.receiver(offer.leaving.unused_ns, &self.candidates(page)) else { return false };
        self.counts.offers += 1;
        self.clients.get_mut(&to).expect("it is one of them").idleness.offered = Some(offer);
        self.directory.entry(page).copies.get_mut(&offer.by).expect("it holds it").is_offered = true;
        actions.push(Action::Send(to, Answer::Offer { page }));
        true
    }

    /// The clients that may be offered a page: they may send it to others, too, and have answered the offer before.
    fn candidates(&self, page: PageId) -> Vec<IdleClient> {
        let entry = self.directory.get(page);
        let has_copy = |client: &ClientId| entry.is_some_and(|entry| entry.copies.contains_key(client));
        let clients = self.clients.iter().filter(|(client, joined)| {
            let is_heard = !joined.is_revoked && joined.idleness.offered.is_none();
            is_heard && !has_copy(client) && self.may(**client, page, Right::Write)
        });
        let candidates = clients.map(|(client, joined)| IdleClient {
            client: *client,
            unused_ns: joined.idleness.unused_ns(self.now),
            copies: self.directory.held_by(*client),
        });
        candidates.filter(|candidate| candidate.copies < COPIES_MAX).collect()
    }

    /// Says so if a client keeps the last copy of a page for others.
    pub(super) fn tell_last(&mut self, page: PageId, actions: &mut Vec<Action>) {
        let copies = self.directory.get(page).map(|entry| &entry.copies).filter(|copies| copies.len() == 1);
        let last = copies.and_then(|copies| copies.first_key_value());
        if let Some((holder, held)) = last.filter(|(_, held)| held.was_accepted && held.called.is_none()) {
            let copy = Copy { page, number: held.number };
            actions.push(Action::Send(*holder, Answer::LastCopy { copy }));
        }
    }

    /// The offer that a client answers.
    fn take_offer(&mut self, client: ClientId, page: PageId) -> Result<OpenOffer, Misbehaviour> {
        let joined = self.clients.get_mut(&client);
        let offered =
            joined.and_then(|joined| joined.idleness.offered.take_if(|offer| offer.leaving.copy.page == page));
        offered.ok_or_else(|| misbehaved(client, "answered an offer, without having got one, of", page))
    }

    /// A client takes a page that it was offered: it gets it if the one that had it still has it, and no one wants to write it.
    pub(super) fn accept(
        &mut self,
        client: ClientId,
        (copy, secret): (Copy, Secret),
        leaving: Option<Leaving>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let OpenOffer { by, leaving: offered } = self.take_offer(client, copy.page)?;
        let joined = self.clients.get_mut(&client).expect("it was made an offer");
        if copy.number < joined.next_copy {
            return Err(misbehaved(client, "used a number twice for a copy of", copy.page));
        }
        joined.next_copy = copy.number.saturating_add(1);
        if let Some(leaving) = leaving {
            // Were it passed on, the next one would have to make room for that, and so on.
            self.leave((client, leaving), false, memory, actions);
        }
        if !self.may_be_passed(by, offered.copy, client) {
            actions.push(Action::Send(
                client,
                Answer::Failed { copy, is_denied: false, is_full: false, reason: GONE.to_owned() },
            ));
            return Ok(());
        }
        let passed = self.directory.held(by, offered.copy).map_or(0, |held| held.passed);
        if !canary::is_planted(Canary::UnenteredReceiver) {
            self.directory.register(client, copy);
        }
        if let Some(held) = self.directory.entry(copy.page).copies.get_mut(&client) {
            (held.passed, held.was_accepted) = (passed.saturating_add(1), true);
        }
        self.counts.passed_on += 1;
        let forward = self.forward(by, client, (copy, secret), Default::default());
        actions.push(Action::PassOn(by, forward));
        Ok(())
    }

    /// Whether a client may get a copy that is another one's, which may send it.
    fn may_be_passed(&mut self, by: ClientId, copy: Copy, client: ClientId) -> bool {
        let Some(entry) = self.directory.get(copy.page) else { return false };
        let is_free = entry.queue.is_empty() && entry.may_read(client) && !entry.copies.contains_key(&client);
        let may_have = self.may(client, copy.page, Right::Write) && self.directory.held_by(client) < COPIES_MAX;
        is_free && may_have && self.directory.holds(by, copy) && self.senders(client, copy.page).contains(&by)
    }

    /// A client does not take a page that it was offered. It counts as one that works, and the next one is asked.
    pub(super) fn decline(
        &mut self,
        client: ClientId,
        page: PageId,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let offer = self.take_offer(client, page)?;
        let now = self.now;
        if let Some(joined) = self.clients.get_mut(&client) {
            (joined.idleness.unused_ns, joined.idleness.since) = (0, now);
        }
        let is_last = self.directory.get(page).is_some_and(|entry| entry.copies.len() == 1 && entry.queue.is_empty());
        if is_last && self.directory.holds(offer.by, offer.leaving.copy) {
            self.offer(offer, actions);
        }
        Ok(())
    }
}
