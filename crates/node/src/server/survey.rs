//! What is known of clients, of their copies and of callbacks, for those who look.

use super::Server;
use crate::message::ClientId;
use crate::survey::{Callback, CopyCount, ENTRIES_MAX, Holder, NodeState, PageState, Survey, Waiter};
use base::{Instant, PageId, PartitionId};
use std::collections::BTreeMap;

impl Server {
    /// What it knows `now`, with partitions named by `name`. Leases and messages are its owner's.
    pub fn survey(&self, now: Instant, name: &dyn Fn(PartitionId) -> String) -> Survey {
        let mut survey = Survey {
            algorithm: self.algorithm.name().to_owned(),
            is_gathering: self.is_gathering,
            nodes: self.node_states(now),
            held: self.held(name),
            callbacks: self.callbacks_under_way(now, name),
            ..Survey::default()
        };
        let beyond = survey.held.len().saturating_sub(ENTRIES_MAX) + survey.callbacks.len().saturating_sub(ENTRIES_MAX);
        survey.left_off = beyond as u64;
        survey.held.truncate(ENTRIES_MAX);
        survey.callbacks.truncate(ENTRIES_MAX);
        survey
    }

    fn node_states(&self, now: Instant) -> Vec<NodeState> {
        let state = |(client, joined): (&ClientId, &super::JoinedClient)| NodeState {
            client: *client,
            name: joined.name.clone(),
            address: joined.address,
            joined_ns: now.since_ns(joined.since),
            lease_left_ns: None,
            is_revoked: joined.is_revoked && !joined.is_gone,
            is_gone: joined.is_gone,
            waiting: joined.waiting as u64,
        };
        self.clients.iter().map(state).collect()
    }

    fn held(&self, name: &dyn Fn(PartitionId) -> String) -> Vec<CopyCount> {
        let mut counts: BTreeMap<(ClientId, PartitionId), (u64, u64)> = BTreeMap::new();
        for (client, page) in self.directory.holders() {
            counts.entry((client, page.partition)).or_default().0 += 1;
        }
        for ((client, _), writer) in &self.writers {
            for page in &writer.pages {
                counts.entry((*client, page.partition)).or_default().1 += 1;
            }
        }
        let held = counts.into_iter().map(|((client, partition), (copies, locks))| CopyCount {
            client,
            partition: name(partition),
            copies,
            locks,
        });
        held.collect()
    }

    fn callbacks_under_way(&self, now: Instant, name: &dyn Fn(PartitionId) -> String) -> Vec<Callback> {
        let mut found = Vec::new();
        for page in self.directory.contended() {
            // The first in the queue is what they are called back for.
            let Some(entry) = self.directory.get(page) else { continue };
            let Some(first) = entry.queue.front() else { continue };
            found.extend(entry.copies.iter().filter_map(|(holder, held)| {
                Some(Callback {
                    partition: name(page.partition),
                    page: page.number,
                    holder: *holder,
                    users: held.users.len() as u64,
                    writer: first.client,
                    age_ns: now.since_ns(held.called?),
                })
            }));
        }
        found.sort_by_key(|callback| std::cmp::Reverse(callback.age_ns));
        found
    }

    /// What it knows `now` of a page, whose partition has this name.
    pub fn page_state(&self, page: PageId, partition: String, now: Instant) -> PageState {
        let mut state = PageState {
            partition,
            page: page.number,
            writer: self.writer(page),
            holders: Vec::new(),
            waiting: Vec::new(),
        };
        if let Some(entry) = self.directory.get(page) {
            state.holders = entry
                .copies
                .iter()
                .map(|(client, held)| Holder {
                    client: *client,
                    users: held.users.len() as u64,
                    called_ns: held.called.map(|called| now.since_ns(called)),
                })
                .collect();
            let waiter = |waiting: &super::Waiting| Waiter {
                client: waiting.client,
                transaction: waiting.known_owner(),
                is_write: waiting.kind.writes(),
            };
            state.waiting = entry.queue.iter().map(waiter).collect();
        }
        state
    }
}
