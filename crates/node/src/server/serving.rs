//! Where a page comes from that a client gets, and what becomes of the one that makes room for it.

use super::directory::{RegisteredCopy, Served};
use super::passing::GONE;
use super::{Action, Found, JoinedClient, Memory, Misbehaviour, Server, misbehaved};
use crate::algorithm::{Fate, Noted, Origin, Source};
use crate::grants::Right;
use crate::message::{Answer, ClientId, Copy, Image, Leaving, LeavingFate, Secret, Wait};
use base::PageId;

impl Server {
    /// A client says how long it has waited for a page, which has come.
    pub(super) fn note_wait(&mut self, client: ClientId, Wait { copy, waited_ns }: Wait) {
        self.directory.forget_sender(client, copy);
        let Some(Served { origin, queued_ns }) = self.directory.take_served(client, copy) else { return };
        // One that has asked again meanwhile has not counted all that it has waited for locks.
        if let Some(waited_ns) = waited_ns.checked_sub(queued_ns) {
            self.placement.note(Noted::Waited(origin, waited_ns));
        }
    }

    /// A client gets a page, and the read lock that comes with it, having waited for locks so long, in nanoseconds.
    pub(super) fn grant_read(
        &mut self,
        client: ClientId,
        (copy, secret): (Copy, Secret),
        (leaving, queued_ns): (Option<Leaving>, u64),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.register(client, copy);
        if let Some(origin) = self.serve(client, (copy, secret), leaving, memory, actions)
            && let Some(held) = self.directory.entry(copy.page).copies.get_mut(&client)
        {
            held.served = Some(Served { origin, queued_ns });
        }
    }

    /// Has the page sent to a client that is in the directory as one of its holders. Returns where it is; nothing if the client, which
    /// is not an honest one then, has given it up meanwhile.
    pub(super) fn serve(
        &mut self,
        client: ClientId,
        (copy, secret): (Copy, Secret),
        leaving: Option<Leaving>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Option<Origin> {
        let holders = self.senders(client, copy.page);
        self.placement.note(Noted::Read(copy.page, &holders));
        let fate = self.make_room(client, leaving, memory, actions);
        if !self.directory.holds(client, copy) {
            return None;
        }
        self.counts.reads += 1;
        self.directory.note_used(copy.page);
        if memory.has(copy.page) {
            self.counts.hits += 1;
            actions.push(self.page_to(client, copy, fate, Found::Memory));
            return Some(Origin::Memory);
        }
        self.turn += 1;
        // What has left may have let others have pages for which they have given up this one.
        let holders = self.senders(client, copy.page);
        match self.placement.source(&holders, self.turn) {
            Source::Disk => {
                actions.push(self.page_to(client, copy, fate, Found::Disk));
                Some(Origin::Disk)
            }
            Source::Client(holder) => {
                self.counts.forwards += 1;
                let forward = self.forward(holder, client, (copy, secret), fate);
                actions.push(Action::Send(holder, forward));
                Some(Origin::Client)
            }
        }
    }

    /// Asks a client to send its copy of a page to another one, which is in the directory as a holder.
    pub(super) fn forward(
        &mut self,
        holder: ClientId,
        client: ClientId,
        (wanted, secret): (Copy, Secret),
        fate: LeavingFate,
    ) -> Answer {
        let entry = self.directory.entry(wanted.page);
        let copy = Copy { page: wanted.page, number: entry.copies[&holder].number };
        self.directory.begin_sending((holder, fate), (client, wanted.page));
        let JoinedClient { address, name, .. } = &self.clients[&client];
        let (wanted, address, name) = (wanted.number, *address, name.clone());
        Answer::Forward { copy, wanted, to: client, address, name, secret, fate }
    }

    /// The clients that may send a page to another one.
    pub(super) fn senders(&mut self, client: ClientId, page: PageId) -> Vec<ClientId> {
        let mut holders = self.directory.entry(page).senders(client);
        holders.retain(|holder| self.may(*holder, page, Right::Write) && !self.clients[holder].is_revoked);
        holders
    }

    /// Has a page sent that the client has got before, or should have got from another one.
    pub(super) fn serve_again(
        &mut self,
        client: ClientId,
        copy: Copy,
        (leaving, was_forwarded): (Option<Leaving>, bool),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.forget_served(client, copy.page);
        let fate = self.make_room(client, leaving, memory, actions);
        let found = match memory.has(copy.page) {
            _ if was_forwarded => Found::Refused,
            true => Found::Memory,
            false => Found::Disk,
        };
        self.counts.reads += u64::from(!was_forwarded);
        self.counts.hits += u64::from(found == Found::Memory);
        actions.push(self.page_to(client, copy, fate, found));
    }

    pub(super) fn page_to(&self, to: ClientId, copy: Copy, fate: LeavingFate, found: Found) -> Action {
        Action::SendPage { to, copy, fate, recency: self.placement.after_sending(), found }
    }

    /// A client does not send a page, as it was told to: another one gets it from here. What others refuse is not theirs to send.
    pub(super) fn refused(&mut self, sender: ClientId, (to, copy): (ClientId, Copy), actions: &mut Vec<Action>) {
        let Some(fate) = self.directory.take_sender(to, copy, sender) else { return };
        self.counts.refusals += 1;
        self.directory.forget_served(to, copy.page);
        let was_accepted = |held: &RegisteredCopy| held.was_accepted;
        actions.push(if self.directory.held(to, copy).is_some_and(was_accepted) {
            // No one has asked for it, so it is not worth an access to the disk.
            Action::Send(to, Answer::Failed { copy, is_denied: false, is_full: false, reason: GONE.to_owned() })
        } else {
            self.page_to(to, copy, fate, Found::Refused)
        });
    }

    /// A copy leaves a client's memory for another one, if it does.
    fn make_room(
        &mut self,
        client: ClientId,
        leaving: Option<Leaving>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> LeavingFate {
        let leave = |leaving| self.leave((client, leaving), true, memory, actions);
        leaving.map_or(LeavingFate::Dropped, leave)
    }

    /// Decides what becomes of a copy that leaves a client's memory; another client may be offered it if it `may_be_passed`. If it is
    /// dropped, it is gone. A copy that its client writes does not leave, whatever it says.
    pub(super) fn leave(
        &mut self,
        (client, leaving): (ClientId, Leaving),
        may_be_passed: bool,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> LeavingFate {
        let copy = leaving.copy;
        if let Some(decided) = self.directory.held(client, copy).and_then(RegisteredCopy::leaving_fate) {
            // What it makes room for is late, and was asked for again.
            return decided;
        }
        let is_last = self.directory.get(copy.page).is_none_or(|entry| entry.copies.len() == 1);
        if is_last || leaving.was_used {
            self.note_leaving(client, leaving);
        }
        if !self.directory.holds(client, copy) || self.directory.entry(copy.page).is_written_by(client) {
            return LeavingFate::Dropped;
        }
        self.counts.leaving += 1;
        if is_last && self.may(client, copy.page, Right::Write) {
            self.placement.note(Noted::LastCopy(copy.page));
            match self.placement.on_last_copy(memory.has(copy.page)) {
                Fate::Returned => {
                    self.counts.returned += 1;
                    self.directory.entry(copy.page).copies.get_mut(&client).expect("it holds it").is_wanted = true;
                    return LeavingFate::Returned;
                }
                Fate::PassedOn if may_be_passed && self.pass_on((client, leaving), actions) => {
                    return LeavingFate::Offered;
                }
                Fate::KeptAtServer => actions.push(Action::Touch(copy.page)),
                Fate::PassedOn | Fate::Dropped => {}
            }
        }
        self.directory.remove(client, copy);
        if !is_last && !memory.has(copy.page) {
            self.tell_last(copy.page, actions);
        }
        self.advance(copy.page, memory, actions);
        LeavingFate::Dropped
    }

    /// A page comes back that was asked for when it left a client's memory. Nothing was allowed to write it meanwhile, so it is as it
    /// has left here; nor is anything until it is kept. Other bytes are of no use.
    pub(super) fn take_back(
        &mut self,
        client: ClientId,
        (copy, bytes): (Copy, Vec<u8>),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let Some(held) = self.directory.held(client, copy) else { return Ok(()) };
        if !held.is_wanted && !held.is_offered {
            return Err(misbehaved(client, "returned, without having been asked to,", copy.page));
        }
        let is_sound = held.is_wanted && !memory.has(copy.page) && memory.has_left_as(copy.page, &bytes);
        let is_kept = is_sound && self.directory.begin_keeping(copy.page);
        self.directory.remove(client, copy);
        if is_kept {
            actions.push(Action::Keep(Image { page: copy.page, bytes }));
        }
        self.advance(copy.page, memory, actions);
        Ok(())
    }

    /// A page that was taken into the server's memory is there, or could not be.
    pub fn kept(&mut self, page: PageId, memory: &dyn Memory, actions: &mut Vec<Action>) {
        self.directory.entry(page).is_arriving = false;
        self.advance(page, memory, actions);
    }
}
