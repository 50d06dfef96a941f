//! Records of memory-resident sets that are sent, and commits that change such.

use super::ServerNode;
use crate::message::{
    Answer, ClientId, SetAnswer, SetAsk, SetEntry, SetFound, SetQuestion, SetRange, SetRecord, SetValue, SetWrite,
    Transaction, place_in_set,
};
use crate::outbox::Outbox;
use crate::server::{Server, SetSight, span_of_index, span_of_record, span_of_records};
use base::PartitionId;
use engine::catalog::{EntryRange, Organization};
use engine::lock::KeySpan;
use engine::{Database, Error, FoundInSet, Internals, Result, SetChange};
use std::ops::Bound;
use std::rc::Rc;

/// More bytes than most answers to questions about sets have.
pub(super) const PORTION: usize = 256 << 10;

/// Whether the partition is a set.
pub(super) fn is_set(database: &Database, partition: PartitionId) -> bool {
    database.describe(partition).is_ok_and(|found| matches!(found.organization, Organization::Set { .. }))
}

/// A change, as the engine is to make it.
pub(super) fn as_change(write: &SetWrite) -> SetChange<'_> {
    let value = write.value.as_ref().map(|value| &value.0[..]);
    SetChange { partition: PartitionId(write.partition), key: &write.key, value }
}

impl ServerNode {
    /// Sends a record whose lock was granted: no commit changes it meanwhile, unless the transaction has ended that asks for it.
    pub(super) async fn send_set_record(&self, to: ClientId, record: SetRecord) {
        let value = loop {
            let value = match self.database.read_in_set(PartitionId(record.partition), &record.key).await {
                Ok(value) => value,
                Err(error) => {
                    let reason = error.to_string();
                    return self.send(to, &Answer::NoSetRecord { record, is_denied: false, reason });
                }
            };
            let Some(full) = self.full_outbox(to, value.as_ref().map_or(0, Vec::len)) else { break value };
            // The record is read anew then: many that are long take no memory meanwhile.
            drop(value);
            full.await_space().await;
        };
        self.send(to, &Answer::SetRecord { record, value: value.map(SetValue) });
    }

    /// Sends an answer with this number of bytes of records when there is space: they are more than were expected if the last one is long.
    pub(super) async fn send_portion(&self, to: ClientId, answer: &Answer, length: usize) {
        while let Some(full) = self.full_outbox(to, length) {
            full.await_space().await;
        }
        self.send(to, answer);
    }

    /// What waits to be sent to a client, if there is no space behind it for a message of this number of bytes.
    fn full_outbox(&self, to: ClientId, length: usize) -> Option<Rc<Outbox>> {
        let outboxes = self.outboxes.borrow();
        outboxes.get(&to).filter(|outbox| !outbox.has_space(length)).cloned()
    }

    /// What a transaction changes in sets, it has the locks of: of the records, and of where their entries in indexes are and will be.
    pub(super) async fn check_set_locks(
        &self,
        (client, transaction): (ClientId, Transaction),
        sets: &[SetWrite],
    ) -> Result<()> {
        for write in sets {
            let (partition, lacks) = (PartitionId(write.partition), |what: &str| {
                Err(Error::Shipment(format!(
                    "it changes {what} of partition {}, a set, without the lock",
                    write.partition
                )))
            });
            let place = place_in_set(partition, &write.key);
            if !self.protocol.borrow().changes_record(client, transaction, place) {
                return lacks("a record");
            }
            if !self.may_come((client, transaction), write)? {
                return lacks("what it may not add: a record");
            }
            let new = write.value.as_ref().map(|SetValue(value)| &value[..]);
            let moved = self.database.moved_in_set(partition, &write.key, new).await?;
            let entry = |(index, of): (usize, Vec<u8>)| SetEntry { index: index as u16, of };
            let entries: Vec<SetEntry> = moved.into_iter().map(entry).collect();
            let owner = (client, transaction);
            if !self.protocol.borrow().may_change_in_set(owner, (partition, &write.key), &entries) {
                return lacks("an entry");
            }
        }
        Ok(())
    }

    /// Whether a record that is changed may be: of a set that numbers its records one that is added under a number which was given out for it.
    fn may_come(&self, owner: (ClientId, Transaction), write: &SetWrite) -> Result<bool> {
        let partition = PartitionId(write.partition);
        if !matches!(self.database.describe(partition)?.organization, Organization::Set { arrivals: true, .. }) {
            return Ok(true);
        }
        let number = write.key[..].try_into().map(u64::from_be_bytes).ok();
        let is_reserved = |number| self.protocol.borrow().has_reserved(owner, partition, number);
        Ok(write.value.is_some() && number.is_some_and(is_reserved))
    }

    /// Answers what a transaction asks about a set, unless it has to wait: then it asks again.
    pub(super) async fn answer_set(&self, client: ClientId, question: SetQuestion) {
        let (owner, number) = ((client, question.transaction), question.number);
        let said = match self.look_at_set(owner, &question).await {
            Ok(Some(said)) => said,
            Ok(None) => return,
            Err(error) if self.step(|server, _, _| server.end_question(owner, number)) => {
                SetAnswer::Failed { is_denied: false, reason: error.to_string() }
            }
            Err(_) => return,
        };
        let length = said.length();
        self.send_portion(client, &Answer::Set { transaction: owner.1, number, said }, length).await;
    }

    async fn look_at_set(
        &self,
        owner: (ClientId, Transaction),
        SetQuestion { number, partition, ask, .. }: &SetQuestion,
    ) -> Result<Option<SetAnswer>> {
        let partition = PartitionId(*partition);
        let lock = |spans| self.lock_sight(owner, *number, (partition, spans));
        match ask {
            SetAsk::Entries(_) => Ok(None),
            SetAsk::Arrival => {
                let arrival = self.database.reserve_arrival(partition)?;
                let reserved = |server: &mut Server| server.reserve_arrival(owner, *number, (partition, arrival));
                let is_asked = self.step(|server, _, _| reserved(server));
                Ok(is_asked.then_some(SetAnswer::Number(arrival)))
            }
            SetAsk::Range(SetRange { index, from, to, behind }) => {
                let range = EntryRange { from: from.clone(), to: to.as_ref().map(|SetValue(to)| to.clone()) };
                let behind = behind.as_ref().map(|(SetValue(of), SetValue(key))| (&of[..], &key[..]));
                let at = (partition, usize::from(*index));
                let shown = self.database.portion_of_index(at, &range, behind, |portion, is_last| {
                    let from = behind.map_or(&range.from[..], |(of, _)| of.max(&range.from[..]));
                    let end = range.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let last = portion.records.last().filter(|_| !is_last);
                    let to = last.map_or(end, |last| Bound::Included(&last.of[..]));
                    let records = portion.records.iter().map(|record| span_of_record(&record.key));
                    let spans = [span_of_index(*index, from, to)].into_iter().chain(records).collect();
                    lock(spans).then(|| shown(portion.records, (is_last, None)))
                });
                shown.await
            }
            SetAsk::Scan(from) => {
                let shown = self.database.portion_of_set(partition, *from, |portion, next| {
                    lock(vec![span_of_records()]).then(|| shown(portion.records, (next.is_none(), next)))
                });
                shown.await
            }
        }
    }

    /// Asks for the locks of what was seen, in the step in which it was. False if the transaction has to wait, or has ended.
    fn lock_sight(&self, owner: (ClientId, Transaction), number: u64, seen: (PartitionId, Vec<KeySpan>)) -> bool {
        let sight = self.step(|server, memory, actions| server.read_set(owner, number, seen, memory, actions));
        sight == SetSight::Locked
    }
}

/// Records of a set, as they are sent.
pub(super) fn shown(records: Vec<FoundInSet>, (is_last, next): (bool, Option<u64>)) -> SetAnswer {
    SetAnswer::Records { records: records.into_iter().map(SetFound::from).collect(), is_last, next }
}
