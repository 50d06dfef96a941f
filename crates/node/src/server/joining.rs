//! How clients come: for the first time, after their connection broke, after the server was started again.
//!
//! A client that comes again may keep the copies that it names. In the same epoch that is so while the server has not given it up: then
//! all that it names is in the directory. A server that was started again takes its word while it grants no write lock: what is said by
//! a client with a lease was true when the server before ended, and nothing was changed since then. That server was of the same database:
//! one of another, or of a restored backup, may have come to its address. And since that server's epoch began the database was changed by
//! its nodes alone: a database that was opened without a server, or served no more, asks no node before it changes a page.

use super::directory::{RegisteredCopy, all_of};
use super::passing::Idleness;
use super::{ALIKE_MAX, Action, CLIENTS_MAX, JoinedClient, Memory, Newcomer, Server, UNUSED_NS};
use crate::grants::{Access, Right};
use crate::message::{ClientId, Copy, Former, Outcome, Secret, Session};
use engine::canary::{self, Canary};
use std::collections::BTreeSet;

/// What a client is told that has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its session.
    pub session: Session,
    /// Whether it has all copies that it would keep; otherwise it has none.
    pub keeps: bool,
    /// What became of the transactions of its former session.
    pub former: Outcome,
    /// The client that it was in its former session, which is given up.
    pub replaces: Option<ClientId>,
}

/// Of which earlier sessions the copies are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Believed {
    /// Those with a server of this database.
    pub database: u64,
    /// And of this epoch or a later one: since then it was changed by nodes alone.
    pub since: u64,
}

impl Believed {
    fn has(&self, Session { epoch, .. }: Session, secret: Secret) -> bool {
        secret.is_of(self.database) && epoch >= self.since
    }
}

/// Whether a client that may do this may have all of these copies.
fn are_granted(access: &Access, copies: &[Copy]) -> bool {
    copies.iter().all(|copy| access.allows(copy.page.partition, Right::Read))
}

impl Server {
    /// A client joins, and gets this secret. If it had a session under the same name, of which it knows the secret, it gives up of
    /// it all but the copies that it names. A commit of that session that is under way has to end before: see [`Server::is_committing`].
    pub fn join(
        &mut self,
        newcomer: impl Into<Newcomer>,
        (former, secret): (Option<&Former>, Secret),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Joined {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        self.counts.joined += 1;
        let Newcomer { address, name, access } = newcomer.into();
        let known = former.and_then(|former| self.known(former, name.as_deref()));
        let (waiting, next_copy, committing) = (0, 0, 0);
        let mut joined = JoinedClient {
            address,
            name,
            access,
            secret,
            since: self.now,
            // Who comes again and again has done nothing by that.
            active: known.map_or(self.now, |known| known.active),
            is_revoked: false,
            is_gone: false,
            loses_place: false,
            waiting,
            next_copy,
            last_committed: None,
            committing,
            idleness: Idleness::default(),
        };
        let session = Session { epoch: self.epoch, client };
        let mut told = Joined { session, keeps: false, former: Outcome::Unknown, replaces: None };
        let Some(Former { session: before, secret: shown, copies }) = former else {
            self.clients.insert(client, joined);
            return told;
        };
        joined.next_copy = copies.iter().map(|copy| copy.number.saturating_add(1)).max().unwrap_or(0);
        if let Some(known) = known {
            joined.next_copy = joined.next_copy.max(known.next_copy);
            told.former = Outcome::Committed(known.last_committed);
            told.keeps = copies.iter().all(|copy| self.directory.holds(before.client, *copy));
        } else if before.epoch < self.epoch && self.is_gathering && self.believes(*before, *shown) {
            let pages: BTreeSet<_> = copies.iter().map(|copy| copy.page).collect();
            told.keeps = pages.len() == copies.len();
        }
        if self.is_committing(*before) {
            // What becomes of that is not known before the next start.
            (told.former, told.keeps) = (Outcome::Unknown, false);
        }
        let are_granted = are_granted(&joined.access, copies);
        told.keeps &= are_granted || canary::is_planted(Canary::UngrantedCopies);
        if are_granted {
            told.replaces = known.map(|_| before.client);
        } else if known.is_some() {
            // Until it hears that it keeps none it may name them once more, to a server that is started again meanwhile.
            self.revoke(before.client, memory, actions);
        }
        self.clients.insert(client, joined);
        if told.keeps {
            copies.iter().for_each(|copy| self.hand_over(*copy, told.replaces, client));
        }
        if let Some(before) = told.replaces {
            self.lose(before, memory, actions);
        }
        if told.keeps {
            // They may be in the way of writes.
            copies.iter().for_each(|copy| self.advance(copy.page, memory, actions));
        }
        told
    }

    /// Whether what a client of an earlier server says of its copies is believed: they are what this database has.
    fn believes(&self, before: Session, secret: Secret) -> bool {
        self.believed.is_some_and(|believed| believed.has(before, secret))
    }

    /// The client that had this session and has its secret and its name, if it was not given up.
    fn known(&self, Former { session, secret, .. }: &Former, name: Option<&str>) -> Option<&JoinedClient> {
        let is_it = |known: &&JoinedClient| {
            let is_same = session.epoch == self.epoch && known.secret == *secret && known.name.as_deref() == name;
            is_same && !known.is_gone
        };
        self.clients.get(&session.client).filter(is_it)
    }

    /// Why there is no room for a client, if that is so. One that takes the place of its former session needs none. That stays beside it if
    /// it has copies for which the client has no grant any more, or loses its place.
    pub fn lack_of_room(&self, former: Option<&Former>, newcomer: &Newcomer) -> Option<String> {
        self.lack_beside(former, newcomer, |_| true)
    }

    /// The same, if only such clients have places.
    fn lack_beside(
        &self,
        former: Option<&Former>,
        newcomer: &Newcomer,
        has_one: impl Fn(&JoinedClient) -> bool,
    ) -> Option<String> {
        let Newcomer { name, access, .. } = newcomer;
        let has_place = |former: &Former| self.known(former, name.as_deref()).is_some_and(|known| !known.loses_place);
        let takes_place = |former: &&Former| has_place(former) && are_granted(access, &former.copies);
        if former.filter(takes_place).is_some() {
            return None;
        }
        let full = |of_all: String| Some(format!("{of_all} have joined, and there is room for no more"));
        let placed = || self.clients.values().filter(|joined| has_one(joined));
        let are_many =
            |is_such: &dyn Fn(&JoinedClient) -> bool| placed().filter(|joined| is_such(joined)).count() >= ALIKE_MAX;
        let has_name = |joined: &JoinedClient| {
            joined
                .name
                .as_deref()
                .is_some_and(|other| name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(other)))
        };
        match name {
            _ if placed().count() >= CLIENTS_MAX => full(format!("{CLIENTS_MAX} nodes")),
            Some(name) if are_many(&has_name) => full(format!("{ALIKE_MAX} nodes of the name '{name}'")),
            _ if access.is_none() && are_many(&|joined| joined.access.is_none()) => {
                full(format!("{ALIKE_MAX} nodes without a grant"))
            }
            _ => None,
        }
    }

    /// Whether there is room for it, or will be when commits have ended that are under way: of those that are gone, and have their places
    /// until then.
    pub fn has_room_soon(&self, former: Option<&Former>, newcomer: &Newcomer) -> bool {
        self.lack_beside(former, newcomer, |joined| !joined.is_gone).is_none()
    }

    /// Whose place a node gets that has proven no name, if all are taken: that of the one without a name that has not committed for the
    /// longest time. Such nodes are not told apart, so nothing but what they do can keep one from taking all places. One that loses its own
    /// gets no other one's before that is done: else each that loses one would have the next one lose its place at once.
    pub fn place_for(&self, former: Option<&Former>, newcomer: &Newcomer) -> Option<ClientId> {
        let loses_own = former.and_then(|former| self.known(former, None)).is_some_and(|known| known.loses_place);
        if newcomer.name.is_some() || self.clients.len() < CLIENTS_MAX || loses_own {
            return None;
        }
        let is_unused = |joined: &JoinedClient| {
            joined.name.is_none() && !joined.is_revoked && self.now.since_ns(joined.active) >= UNUSED_NS
        };
        let unused = self.clients.iter().filter(|(_, joined)| is_unused(joined));
        unused.min_by_key(|(_, joined)| joined.active).map(|(client, _)| *client)
    }

    /// A client's place is another one's once it is revoked and its lease is over: it does not take that itself when it comes again.
    pub fn lose_place(&mut self, client: ClientId) {
        self.clients.get_mut(&client).into_iter().for_each(|joined| joined.loses_place = true);
    }

    /// A copy is another session's from now on. That it was called back may not have been heard, so it is as if it had not been.
    fn hand_over(&mut self, copy: Copy, from: Option<ClientId>, to: ClientId) {
        let before = from.and_then(|from| self.directory.strike_out(from, copy.page));
        let called = before.and_then(|before| before.called).filter(|_| canary::is_planted(Canary::ForgottenCallback));
        let held = RegisteredCopy { number: copy.number, called, ..RegisteredCopy::default() };
        self.directory.enter(to, copy.page, held);
    }

    /// Whether a commit of this session is under way.
    pub fn is_committing(&self, session: Session) -> bool {
        let is_known = session.epoch == self.epoch;
        is_known && self.writers.range(all_of(session.client)).any(|(_, writer)| writer.is_committing)
    }

    /// Whether the client has joined and was not given up.
    pub fn has_joined(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|joined| !joined.is_gone)
    }
}
