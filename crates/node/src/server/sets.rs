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
        let refusal = if !self.may(client, page, right) {
            Some((true, self.note_denial(client, page, right)))
        } else if !memory.is_set(PartitionId(record.partition)) {
            Some((false, format!("partition {} is no set whose records have keys", record.partition)))
        } else if !has_it
            && lock.writes
            && let Some(reason) = self.too_much_of_sets(owner)
        {
            Some((false, reason))
        } else if !has_it && self.records_held(client) >= RECORDS_MAX {
            Some((false, format!("its node has locks of {RECORDS_MAX} records, and no more may be locked at a time")))
        } else {
            None
        };
        if let Some((is_denied, reason)) = refusal {
            actions.push(Action::Send(client, Answer::NoSetRecord { record, is_denied, reason }));
            return Ok(());
        }
        if lock.writes && !has_it && !self.mark_record((client, &record.key), (page, lock), memory, actions)? {
            return Ok(());
        }
        let before = actions.len();
        self.want_record(client, (page, lock), memory, actions)?;
        let mut record = Some(record);
        for action in &mut actions[before..] {
            let is_it = matches!(action, Action::SendRecord { to, page: of, lock: granted, .. }
                if (*to, *of, *granted) == (client, page, lock));
            if is_it && let Some(record) = record.take() {
                *action = Action::SendSetRecord { to: client, record };
                self.counts.set_records += 1;
            }
        }
        Ok(())
    }
}
