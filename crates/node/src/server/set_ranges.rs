//! Records of sets that follow each other, as the server's side of the protocol sees them: who reads where, and who is going to change what
//! (`directory/set_ranges.rs`).
//!
//! What a set has is looked at by the server's owner, in the step in which it asks for the locks of what it has seen ([`Server::read_set`]). If
//! these are free nothing of it is another's that is not committed. Otherwise it is asked for again when they are the transaction's.

use super::directory::set_ranges::{Progress, RangeLock, RangePurpose, WaitingRange, stand_of_entry, stand_of_record};
pub use super::directory::set_ranges::{span_of_index, span_of_record, span_of_records};
use super::{Action, Memory, Misbehaviour, Server, WAITING_MAX, misbehaved};
use crate::grants::Right;
use crate::message::{
    Answer, ClientId, RecordLock, SET_ASK_MAX, SetAnswer, SetAsk, SetEntry, SetQuestion, Transaction,
};
use base::{PageId, PartitionId};
use engine::lock::KeySpan;

/// How many bytes ranges of sets that transactions of one client have read, and marks of what they change, may take. No more are read then.
pub const SET_RANGES_MAX: usize = 32 << 20;

/// How many transactions of one client may have locks in sets: each change looks at all that have read in its set.
pub const SET_OWNERS_MAX: usize = 1024;

const TOO_MUCH_LOCKED: &str =
    "its node has locks of so large a part of sets that no more of them may be read or changed at a time";

/// What comes of asking for the locks of what was seen of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetSight {
    /// It may be shown.
    Locked,
    /// The transaction waits.
    Waits,
    /// The question is asked no more.
    Over,
}

impl Server {
    /// A transaction asks about a set.
    pub(super) fn ask_set(
        &mut self,
        client: ClientId,
        question: SetQuestion,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let (owner, partition) = ((client, question.transaction), PartitionId(question.partition));
        let page = PageId::new(partition, 0);
        if question.length() > SET_ASK_MAX {
            return Err(misbehaved(client, "asked more than there is about the set that would have", page));
        }
        if self.writers.get(&owner).is_some_and(|writer| writer.is_committing) {
            return Err(misbehaved(client, "committed the transaction that asks about the set that would have", page));
        }
        self.withdraw_questions(owner, None, memory, actions);
        if self.directory.ranges.questions_of(client) >= WAITING_MAX {
            return Err(misbehaved(client, "over a thousand questions about the set that would have", page));
        }
        let right = match question.ask {
            SetAsk::Entries(_) | SetAsk::Arrival => Right::Write,
            SetAsk::Range(_) | SetAsk::Scan(_) => Right::Read,
        };
        let refusal = if !self.may(client, page, right) {
            Some((true, self.note_denial(client, page, right)))
        } else if !memory.is_set(partition) {
            Some((false, format!("partition {} is no set", partition.0)))
        } else {
            self.too_much_of_sets(owner).map(|reason| (false, reason))
        };
        if let Some((is_denied, reason)) = refusal {
            actions.push(said(owner, question.number, SetAnswer::Failed { is_denied, reason }));
            return Ok(());
        }
        let number = question.number;
        if let SetAsk::Entries(entries) = &question.ask {
            let lock = RangeLock::Change(entries.iter().map(stand_of_entry).collect());
            if self.lock_range(owner, partition, (lock, RangePurpose::Entries(number)), memory, actions) {
                actions.push(said(owner, number, SetAnswer::Granted));
            }
        } else {
            self.directory.ranges.ask(owner, number);
            actions.push(Action::AnswerSet { client, question });
        }
        Ok(())
    }

    /// Asks for the locks of what was seen of a set, in the same step, to answer a question.
    pub fn read_set(
        &mut self,
        (client, transaction): (ClientId, Transaction),
        number: u64,
        (partition, spans): (PartitionId, Vec<KeySpan>),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> SetSight {
        let owner = (client, transaction);
        if !self.end_question(owner, number) {
            return SetSight::Over;
        }
        let lock = (RangeLock::Read(spans), RangePurpose::Question(number));
        if !self.lock_range(owner, partition, lock, memory, actions) {
            return SetSight::Waits;
        }
        self.counts.set_portions += 1;
        SetSight::Locked
    }

    /// Why a transaction may lock nothing more in sets, if that is so.
    pub(super) fn too_much_of_sets(&self, owner: (ClientId, Transaction)) -> Option<String> {
        let ranges = &self.directory.ranges;
        if ranges.bytes_of(owner.0) > SET_RANGES_MAX {
            return Some(TOO_MUCH_LOCKED.to_owned());
        }
        let is_one_more = !ranges.may_lock(owner, SET_OWNERS_MAX);
        is_one_more.then(|| format!("{SET_OWNERS_MAX} transactions of its node have locks in sets, and no more may"))
    }

    /// A question about a set has been answered. False if it was asked no more.
    pub fn end_question(&mut self, owner: (ClientId, Transaction), number: u64) -> bool {
        self.directory.ranges.answer(owner, number)
    }

    /// A number was given out for a record that a transaction adds to a set, in the same step. False if its question is asked no more.
    pub fn reserve_arrival(
        &mut self,
        owner: (ClientId, Transaction),
        question: u64,
        (partition, number): (PartitionId, u64),
    ) -> bool {
        let is_asked = self.end_question(owner, question);
        if is_asked {
            self.directory.ranges.reserve(owner, partition, number);
        }
        is_asked
    }

    /// Whether a transaction, whose commit may be under way, was given the number of a record that it adds to a set.
    pub fn has_reserved(&self, owner: (ClientId, Transaction), partition: PartitionId, number: u64) -> bool {
        self.directory.ranges.has_reserved(owner, partition, number)
    }

    /// Before a record of a set is locked for a change: those that have read where it is are waited for. False if there are such.
    pub(super) fn mark_record(
        &mut self,
        (client, key): (ClientId, &[u8]),
        (page, lock): (PageId, RecordLock),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<bool, Misbehaviour> {
        if self.directory.ranges.questions_of(client) >= WAITING_MAX {
            return Err(misbehaved(client, "over a thousand questions about the set that would have", page));
        }
        let mark = (RangeLock::Change(vec![stand_of_record(key)]), RangePurpose::Record(page, lock));
        Ok(self.lock_range((client, lock.transaction), page.partition, mark, memory, actions))
    }

    /// Asks for a lock, and waits for it if it is not free. False if it does.
    fn lock_range(
        &mut self,
        owner: (ClientId, Transaction),
        partition: PartitionId,
        (lock, purpose): (RangeLock, RangePurpose),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> bool {
        let since = self.directory.tick();
        let is_free = self.directory.ranges.lock(owner, partition, (lock, purpose), since);
        // Others may wait for what it has marked.
        self.end_deadlock(owner, memory, actions);
        is_free
    }

    /// Tells those that have waited and have their locks now, and ends deadlocks of those that have marked what they are going to change.
    pub(super) fn advance_ranges(&mut self, memory: &dyn Memory, actions: &mut Vec<Action>) {
        while let Some(progress) = self.directory.ranges.advance() {
            let (owner, purpose) = match progress {
                Progress::Granted(WaitingRange { owner, purpose, .. }) => (owner, purpose),
                Progress::Marked(owner) => {
                    self.end_deadlock(owner, memory, actions);
                    continue;
                }
            };
            actions.push(match purpose {
                RangePurpose::Question(number) => said(owner, number, SetAnswer::AskAgain),
                RangePurpose::Entries(number) => said(owner, number, SetAnswer::Granted),
                RangePurpose::Record(page, lock) => Action::SendRecord { to: owner.0, page, lock, is_alone: false },
            });
            // It may wait for what its program has given up.
            self.end_deadlock(owner, memory, actions);
        }
    }

    /// Whether a transaction, whose commit may be under way, may change a record of a set with these entries that come or go.
    pub fn may_change_in_set(
        &self,
        (client, transaction): (ClientId, Transaction),
        (partition, key): (PartitionId, &[u8]),
        entries: &[SetEntry],
    ) -> bool {
        let ranges = &self.directory.ranges;
        let may = |stand: Vec<u8>| ranges.may_change((client, transaction), partition, &stand);
        may(stand_of_record(key)) && entries.iter().map(stand_of_entry).all(may)
    }

    /// How many bytes ranges and marks of a client's transactions take, about.
    pub fn set_ranges_held(&self, client: ClientId) -> usize {
        self.directory.ranges.bytes_of(client)
    }
}

fn said((client, transaction): (ClientId, Transaction), number: u64, said: SetAnswer) -> Action {
    Action::Send(client, Answer::Set { transaction, number, said })
}
