//! Records of memory-resident sets, as the server's side of the protocol sees them.
//!
//! Clients have no copies of them. Each is asked for with its lock, which is one of a record like those that locks of pages fall to
//! (`records.rs`): of a page that there is not, named by the key's hash, so that no copy is in its way. So such locks are in the one graph of
//! waits, are the transactions', and go with these: with the answer to a commit, a rollback, a lost client.
//!
//! What a request asks for is sent if it is granted at once. One that has to wait is told when it is granted, and asks again: so no key is kept
//! here while it waits.

use super::records::RECORDS_MAX;
use super::{Action, Memory, Misbehaviour, Server, misbehaved};
use crate::grants::Right;
use crate::message::{Answer, ClientId, SetRecord};
use base::PartitionId;
use engine::set;

impl Server {
    /// A transaction wants a record of a set.
    pub(super) fn ask_set_record(
        &mut self,
        client: ClientId,
        record: SetRecord,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let (page, lock) = record.lock();
        let right = if lock.writes { Right::Write } else { Right::Read };
        if record.key.len() > set::KEY_MAX {
            return Err(misbehaved(client, "a longer key than there is for a record of a set that would be", page));
        }
        if self.writers.get(&(client, lock.transaction)).is_some_and(|writer| writer.is_committing) {
            return Err(misbehaved(
                client,
                "committed the transaction that asks for a record of a set that would be",
                page,
            ));
        }
        let owner = (client, lock.transaction);
        self.withdraw_questions(owner, Some((page, lock.slot)), memory, actions);
        let has_it = self.directory.get(page).is_some_and(|entry| entry.records.has(owner, lock.slot, lock.writes));
        if let Some((is_denied, reason)) = self.refusal_of_set_record((client, &record), right, has_it, memory) {
            actions.push(Action::Send(client, Answer::NoSetRecord { record, is_denied, reason }));
            return Ok(());
        }
        if lock.writes && !self.mark_record((client, &record.key), (page, lock), memory, actions)? {
            return Ok(());
        }
        let before = actions.len();
        self.want_record(client, (page, lock), memory, actions)?;
        let is_it = |action: &&mut Action| {
            matches!(action, Action::SendRecord { to, page: of, lock: granted, .. }
                if (*to, *of, *granted) == (client, page, lock))
        };
        // It was granted in this step, so that its key is at hand.
        if let Some(granted) = actions[before..].iter_mut().find(is_it) {
            *granted = Action::SendSetRecord { to: client, record };
            self.counts.set_records += 1;
        }
        Ok(())
    }

    /// Why a transaction does not get a record of a set, and whether that is for want of a grant, if it does not. What it has locked so, it gets
    /// again.
    fn refusal_of_set_record(
        &mut self,
        (client, record): (ClientId, &SetRecord),
        right: Right,
        has_it: bool,
        memory: &dyn Memory,
    ) -> Option<(bool, String)> {
        let (page, lock) = record.lock();
        if !self.may(client, page, right) {
            return Some((true, self.note_denial(client, page, right)));
        }
        if !memory.is_set(PartitionId(record.partition)) {
            return Some((false, format!("partition {} is no set whose records have keys", record.partition)));
        }
        if has_it {
            return None;
        }
        let too_much = lock.writes.then(|| self.too_much_of_sets((client, lock.transaction))).flatten();
        let too_many = || {
            let is_full = self.records_held(client) >= RECORDS_MAX;
            is_full.then(|| format!("its node has locks of {RECORDS_MAX} records, and no more may be locked at a time"))
        };
        too_much.or_else(too_many).map(|reason| (false, reason))
    }
}
