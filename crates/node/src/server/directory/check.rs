//! What is always so, between steps.

use super::{Directory, Kind, Order, PageEntry, RegisteredCopy, all_of};
use crate::message::ClientId;
use base::PageId;
use std::collections::{BTreeMap, BTreeSet};

impl PageEntry {
    /// Why the queue is not as it is left whenever anything has changed, if that is so. Changes are granted only if they `may_be`.
    fn check_queue(&self, may_be_changes: bool) -> Result<(), &'static str> {
        let Some(first) = self.queue.front() else { return Ok(()) };
        let may_have = match first.kind {
            Kind::Record { .. } => false,
            kind if kind.writes() => may_be_changes && self.may_write(first.client),
            _ => self.may_read(first.client),
        };
        if may_have || !self.grantable_records(may_be_changes).is_empty() {
            return Err("is waited for, and may be had");
        }
        let is_needed = |client| self.leading().any(|waiting| self.is_in_the_way(client, waiting));
        if may_be_changes && self.copies.iter().any(|(client, held)| held.called.is_none() && is_needed(*client)) {
            return Err("is waited for, and a copy of it that has to go was not called back");
        }
        let is_untold = |kind: Kind, is_told: bool| kind.reads() && !is_told;
        if !self.records.is_empty() && self.queue.iter().any(|waiting| is_untold(waiting.kind, waiting.is_told)) {
            return Err("is waited for by a client that was not told of locks of its records");
        }
        Ok(())
    }
}

impl Directory {
    /// How many requests of a client wait in queues of pages.
    pub fn waiting_of(&self, client: ClientId) -> usize {
        self.waits.range(all_of(client)).flat_map(|(_, pages)| pages.values()).map(BTreeSet::len).sum()
    }

    /// No one is forgotten that waits.
    pub fn check_queues(&self, may_be_changes: bool) -> Result<(), String> {
        for (page, entry) in &self.pages {
            entry.check_queue(may_be_changes).map_err(|error| format!("{page} {error}: {:?}", entry.queue))?;
        }
        Ok(())
    }

    /// Each client's copies, and those that each was asked to send, are found by it.
    fn check_by_client(&self) -> Result<(), String> {
        let mut held: BTreeMap<ClientId, BTreeSet<PageId>> = BTreeMap::new();
        let mut sending: BTreeMap<ClientId, BTreeSet<(ClientId, PageId)>> = BTreeMap::new();
        for (page, entry) in &self.pages {
            for (client, copy) in entry.copies.iter() {
                held.entry(*client).or_default().insert(*page);
                if let Some((sender, _)) = copy.sender {
                    sending.entry(sender).or_default().insert((*client, *page));
                }
            }
        }
        let is_same = |client: &ClientId| {
            let known = self.held.get(client).zip(held.get(client));
            known.is_some_and(|(known, pages)| {
                known.len() == pages.len() && pages.iter().all(|page| known.contains(page))
            })
        };
        if let Some(client) = self.held.keys().chain(held.keys()).find(|client| !is_same(client)) {
            return Err(format!("{client:?} has copies {:?}, known are {:?}", held.get(client), self.held.get(client)));
        }
        if sending != self.sending {
            return Err(format!("clients are to send {sending:?}, known are {:?}", self.sending));
        }
        Ok(())
    }

    pub fn check(&self) -> Result<(), String> {
        self.check_records()?;
        self.ranges.check()?;
        for (page, entry) in &self.pages {
            if entry.is_empty() {
                return Err(format!("{page} is in the directory, and nothing is known of it"));
            }
            if let Some((writer, _)) = entry.writer
                && entry.copies.keys().any(|client| *client != writer)
            {
                return Err(format!("{page} has a writer and copies elsewhere"));
            }
            let is_called_in_vain = |(client, held): (&ClientId, &RegisteredCopy)| {
                held.called.is_some() && !entry.queue.iter().any(|waiting| entry.is_in_the_way(*client, waiting))
            };
            if entry.copies.iter().any(is_called_in_vain) {
                return Err(format!("{page} is called back for no one"));
            }
        }
        self.check_by_client()?;
        if self.pages.values().any(|entry| !entry.queue.iter().is_sorted_by_key(|waiting| waiting.order)) {
            return Err("a queue is not in its order".to_owned());
        }
        let mut waits: BTreeMap<_, BTreeMap<PageId, BTreeSet<Order>>> = BTreeMap::new();
        for waiting in self.pages.values().flat_map(|entry| &entry.queue) {
            let pages = waits.entry(waiting.owner()).or_default();
            pages.entry(waiting.copy.page).or_default().insert(waiting.order);
        }
        if waits == self.waits {
            Ok(())
        } else {
            Err(format!("{waits:?} stand in queues, {:?} are known to", self.waits))
        }
    }
}
