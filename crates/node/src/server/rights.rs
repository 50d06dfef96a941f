//! What clients may do, and what is believed of them.
//!
//! Copies are entered into the directory in two places, for a request and for a client that comes again, and both look here: no copy is
//! of a client that may not read it. Bytes of a page are taken from a client, and sent to another by it, only if it may write
//! the page anyway: one that may only read it could otherwise have others write what it has made up.

use super::{Action, Server};
use crate::grants::{Access, Right};
use crate::message::{Answer, ClientId, Copy, HELLO_MAX, SIZE_MAX, Transaction};
use base::{PageId, PartitionId};
use engine::canary::{self, Canary};
use std::net::SocketAddr;

/// Who joins.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// Where it accepts connections of other clients.
    pub address: SocketAddr,
    /// The name that it has proven.
    pub name: Option<String>,
    /// What it may do.
    pub access: Access,
}

impl From<SocketAddr> for Newcomer {
    /// One of nodes that are not told apart.
    fn from(address: SocketAddr) -> Newcomer {
        Newcomer { address, name: None, access: Access::All }
    }
}

impl Server {
    /// Whether a client has a right to a page.
    pub(crate) fn may(&self, client: ClientId, page: PageId, right: Right) -> bool {
        match self.clients.get(&client) {
            Some(joined) => joined.access.allows(page.partition, right),
            None => canary::is_planted(Canary::HeededGhost),
        }
    }

    /// Counts a request that wants a grant, and says why it is denied.
    pub(super) fn note_denial(&mut self, client: ClientId, page: PageId, right: Right) -> String {
        self.counts.denials += 1;
        let name = self.clients.get(&client).and_then(|joined| joined.name.as_deref()).unwrap_or_default();
        let right = right.name();
        match self.partition_names.get(&page.partition) {
            Some(partition) => format!(
                "node '{name}' may not {right} partition '{partition}' (page {}): the server's grants would have to name it",
                page.number
            ),
            None => {
                format!("node '{name}' may not {right} {page}: the server's grants would have to name its partition")
            }
        }
    }

    /// From now on denials call partitions by these names.
    pub fn name_partitions(&mut self, names: impl IntoIterator<Item = (PartitionId, String)>) {
        self.partition_names = names.into_iter().collect();
    }

    /// Says that a request is denied, if it is: of a page's copy, or of a transaction's write lock.
    pub(super) fn denies(
        &mut self,
        client: ClientId,
        (copy, lock_of): (Copy, Option<Transaction>),
        actions: &mut Vec<Action>,
    ) -> bool {
        let right = if lock_of.is_some() { Right::Write } else { Right::Read };
        if self.may(client, copy.page, right) {
            return false;
        }
        let reason = self.note_denial(client, copy.page, right);
        let answer = match lock_of {
            None => Answer::Failed { copy, is_denied: true, is_full: false, reason },
            Some(transaction) => Answer::Denied { transaction, reason },
        };
        actions.push(Action::Send(client, answer));
        true
    }

    /// The names of the clients that have proven one.
    pub fn names(&self) -> impl Iterator<Item = (ClientId, Option<&str>)> {
        self.clients.iter().map(|(client, joined)| (*client, joined.name.as_deref()))
    }

    /// What a client may do.
    pub fn access(&self, client: ClientId) -> Option<&Access> {
        self.clients.get(&client).map(|joined| &joined.access)
    }

    /// The longest message of a client, in bytes: commits are long, and who may write nothing has none.
    pub fn message_max(&self, client: ClientId) -> usize {
        let writes = self.access(client).is_some_and(Access::writes);
        if writes { SIZE_MAX } else { HELLO_MAX }
    }

    /// The first copy of a client that may not have it.
    pub(super) fn copy_without_grant(&self) -> Option<(ClientId, PageId)> {
        self.directory.holders().find(|(client, page)| !self.may(*client, *page, Right::Read))
    }
}
