//! Where a page comes from that a client gets, and what becomes of the one that makes room for it.

use super::directory::Served;
use super::{Action, Found, JoinedClient, Memory, Server};
use crate::algorithm::{Fate, Noted, Origin, Source};
use crate::grants::Right;
use crate::message::{Answer, ClientId, Copy, Wait};
use base::PageId;

impl Server {
    /// A client says how long it has waited for a page.
    pub(super) fn note_wait(&mut self, client: ClientId, Wait { copy, waited_ns }: Wait) {
        let Some(Served { origin, queued_ns }) = self.directory.take_served(client, copy) else { return };
        // One that has asked again meanwhile has not counted all that it has waited for locks.
        if let Some(waited_ns) = waited_ns.checked_sub(queued_ns) {
            self.placement.note(Noted::Waited(origin, waited_ns));
        }
    }

    /// Has the page sent to a client that is in the directory as one of its holders. Returns where it is; nothing if the client, which
    /// is not an honest one then, has given it up meanwhile.
    pub(super) fn serve(
        &mut self,
        client: ClientId,
        copy: Copy,
        leaving: Option<Copy>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Option<Origin> {
        let holders = self.senders(client, copy.page);
        self.placement.note(Noted::Read(copy.page, &holders));
        let returns = leaving.is_some_and(|leaving| self.leave(client, leaving, memory, actions));
        if !self.directory.holds(client, copy) {
            return None;
        }
        self.counts.reads += 1;
        if memory.has(copy.page) {
            self.counts.hits += 1;
            actions.push(self.page_to(client, copy, returns, Found::Memory));
            return Some(Origin::Memory);
        }
        self.turn += 1;
        // What has left may have let others have pages for which they have given up this one.
        let holders = self.senders(client, copy.page);
        match self.placement.source(&holders, self.turn) {
            Source::Disk => {
                actions.push(self.page_to(client, copy, returns, Found::Disk));
                Some(Origin::Disk)
            }
            Source::Client(holder) => {
                self.counts.forwards += 1;
                let entry = self.directory.entry(copy.page);
                let own = Copy { page: copy.page, number: entry.copies[&holder].number };
                entry.copies.get_mut(&client).expect("it was entered").sender = Some((holder, returns));
                let JoinedClient { address, name, secrets, .. } = &self.clients[&client];
                let (wanted, secret, address, name) = (copy.number, secrets.pages, *address, name.clone());
                let forward = Answer::Forward { copy: own, wanted, to: client, address, name, secret, returns };
                actions.push(Action::Send(holder, forward));
                Some(Origin::Client)
            }
        }
    }

    /// The clients that may send a page to another one.
    fn senders(&mut self, client: ClientId, page: PageId) -> Vec<ClientId> {
        let mut holders = self.directory.entry(page).senders(client);
        holders.retain(|holder| self.may(*holder, page, Right::Write) && !self.clients[holder].is_revoked);
        holders
    }

    /// Has a page sent that the client has got before, or should have got from another one.
    pub(super) fn serve_again(
        &mut self,
        client: ClientId,
        copy: Copy,
        (leaving, was_forwarded): (Option<Copy>, bool),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.forget_served(client, copy.page);
        let returns = leaving.is_some_and(|leaving| self.leave(client, leaving, memory, actions));
        let found = match memory.has(copy.page) {
            _ if was_forwarded => Found::Refused,
            true => Found::Memory,
            false => Found::Disk,
        };
        self.counts.reads += u64::from(!was_forwarded);
        self.counts.hits += u64::from(found == Found::Memory);
        actions.push(self.page_to(client, copy, returns, found));
    }

    pub(super) fn page_to(&self, to: ClientId, copy: Copy, returns: bool, found: Found) -> Action {
        Action::SendPage { to, copy, returns, recency: self.placement.after_sending(), found }
    }

    /// Decides what becomes of a copy that leaves a client's memory. True if it is to be returned; otherwise it is gone. A copy that
    /// its client writes does not leave, whatever it says.
    pub(super) fn leave(
        &mut self,
        client: ClientId,
        copy: Copy,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !self.directory.holds(client, copy) || self.directory.entry(copy.page).is_written_by(client) {
            return false;
        }
        self.counts.leaving += 1;
        if self.directory.entry(copy.page).copies.len() == 1 && self.may(client, copy.page, Right::Write) {
            self.placement.note(Noted::LastCopy(copy.page));
            match self.placement.on_last_copy(memory.has(copy.page)) {
                Fate::Returned => {
                    self.counts.returned += 1;
                    self.directory.entry(copy.page).copies.get_mut(&client).expect("it holds it").is_wanted = true;
                    return true;
                }
                Fate::KeptAtServer => actions.push(Action::Touch(copy.page)),
                Fate::Dropped => {}
            }
        }
        self.directory.remove(client, copy);
        self.advance(copy.page, memory, actions);
        false
    }
}
