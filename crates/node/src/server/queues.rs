//! Requests that wait in the queues of pages: how they come, and the one way in which they go.

use super::directory::{Kind, Waiting};
use super::{Action, Memory, Misbehaviour, Server, WAITING_MAX, misbehaved};
use crate::message::{Answer, ClientId, Copy, Transaction};
use base::PageId;

impl Server {
    /// Adds a request, grants it if possible, and ends the deadlock that it makes.
    pub(super) fn enqueue(
        &mut self,
        waiting: Waiting,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let Waiting { client, copy, .. } = waiting;
        let joined = self.clients.get_mut(&client).expect("messages come from clients that have joined");
        if joined.waiting == WAITING_MAX {
            return Err(misbehaved(client, "over a thousand requests waiting beside that for", copy.page));
        }
        if let Kind::Read { leaving, secret, writes: false } = waiting.kind
            && self.directory.get(copy.page).is_none_or(|entry| entry.is_free_for(client))
        {
            // It would be the first one of its page's queue, and leave that in the same step. Those that wait wait for no more than before.
            self.grant_read(client, (copy, secret), (leaving, 0), memory, actions);
            self.directory.tidy(copy.page);
            self.end_excess_waits(waiting.owner(), memory, actions);
            return Ok(());
        }
        if !self.directory.enqueue(waiting) {
            return Err(misbehaved(client, "asked a second time, while that waits, for", copy.page));
        }
        joined.waiting += 1;
        self.advance(copy.page, memory, actions);
        self.end_deadlock(waiting.owner(), memory, actions);
        self.end_excess_waits(waiting.owner(), memory, actions);
        Ok(())
    }

    /// Takes the requests at these places, which are in order, out of a page's queue.
    pub(super) fn dequeue(&mut self, page: PageId, places: &[usize]) -> Vec<Waiting> {
        let taken = self.directory.dequeue(page, places);
        for waiting in &taken {
            if let Some(client) = self.clients.get_mut(&waiting.client) {
                client.waiting -= 1;
            }
        }
        taken
    }

    /// Takes the first one.
    pub(super) fn dequeue_first(&mut self, page: PageId) -> Waiting {
        self.dequeue(page, &[0]).pop().expect("it was found there")
    }

    /// Takes requests that are granted no more. Copies that were called back for them alone may stay.
    pub(super) fn take_requests(
        &mut self,
        page: PageId,
        is_meant: impl Fn(&Waiting) -> bool,
        actions: &mut Vec<Action>,
    ) -> Vec<Waiting> {
        let places = self.directory.places(page, is_meant);
        let gone = self.dequeue(page, &places);
        for waiting in gone.iter().filter(|waiting| waiting.kind == Kind::Write) {
            if let Some(held) = self.directory.entry(page).copies.get_mut(&waiting.client) {
                held.users.remove(waiting.transaction);
            }
        }
        self.withdraw_callbacks(page, actions);
        gone
    }

    /// Copies of a page that were called back for nothing that still waits may stay.
    pub(super) fn withdraw_callbacks(&mut self, page: PageId, actions: &mut Vec<Action>) {
        if self.directory.get(page).is_some() {
            let stays = |(client, number)| Action::Send(client, Answer::Withdrawn { copy: Copy { page, number } });
            actions.extend(self.directory.entry(page).withdraw_callbacks().into_iter().map(stays));
        }
    }

    /// Rolls back, like a deadlock's victim, a transaction with several requests waiting while its client has many: otherwise the client
    /// would be given up. Its program has abandoned all of them but the last.
    fn end_excess_waits(&mut self, owner: (ClientId, Transaction), memory: &dyn Memory, actions: &mut Vec<Action>) {
        let has_many = self.clients.get(&owner.0).is_some_and(|joined| joined.waiting > WAITING_MAX / 2);
        if has_many && self.directory.requests_of(owner) > 1 {
            self.make_victim(owner, memory, actions);
        }
    }
}
