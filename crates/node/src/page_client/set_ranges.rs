//! Records of memory-resident sets that follow each other: in the order of an index, or all of them.
//!
//! They come from the server in portions, which it locks as far as they go: nothing comes to be where the transaction has read, and nothing
//! goes, until it ends. What it has changed itself is not there yet, and is put in its place here.

use super::indexed::Typed;
use super::view::Intent;
use super::{ClientNode, PageTransaction, RollbackCause};
use crate::message::{
    Described, LIST_MAX, SET_ASK_MAX, SetAnswer, SetAsk, SetEntry, SetFound, SetQuestion, SetRange, SetValue,
    Transaction,
};
use base::PartitionId;
use driver::{Fault, FaultKind, Work};
use engine::catalog::EntryRange;
use engine::organization::append::Position;
use engine::{Direction, Error, Result, arrival_position};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

/// From how many bytes on entries are asked for before the others of the same record.
const ENTRIES_BYTES: usize = 8 << 20;

/// Refuses what a server would not answer.
pub(super) fn check_length(found: &Described, length: usize) -> Result<()> {
    if length <= SET_ASK_MAX {
        return Ok(());
    }
    let (what, partition) = ("the bounds of a range", found.name.clone());
    Err(Error::TooLarge { what, found: length, limit: SET_ASK_MAX, partition })
}

/// Of an ill server.
pub(super) const OTHER_ANSWER: &str = "the server has answered another question about a set";

/// What orders a record among those of an index, its key, and its value.
type Entry = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Shows records of a set that numbers them by their positions.
pub(super) fn by_position(
    partition: PartitionId,
    mut look: impl FnMut(Position, &[u8]) -> bool,
) -> impl FnMut(&[u8], &[u8]) -> bool {
    move |key, record| match key.try_into().map(u64::from_be_bytes) {
        Ok(number) => look(arrival_position(partition, number), record),
        Err(_) => true,
    }
}

impl PageTransaction {
    /// Shows every record of a set to `look`, in no particular order but that of arrival, until that returns false. No other transaction
    /// changes a record of the set from then on until this one ends: a repeated scan shows the same.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn scan_set(&mut self, partition: PartitionId, mut look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let found = self.client.described(partition).await?;
        found.refuse_pages()?;
        let mut own = VecDeque::from(self.own_in_set(partition));
        let mut next = Some(0);
        while let Some(from) = next {
            let (records, then) = self.ask_portion(&found, SetAsk::Scan(from)).await?;
            // One that goes round in circles is ill.
            next = then.filter(|then| *then > from);
            for SetFound { key, value, .. } in records {
                while let Some((key, value)) = own.pop_front_if(|own| found.is_of_arrivals() && own.0 < key) {
                    if !look(&key, &value) {
                        return Ok(());
                    }
                }
                if self.work.borrow().sets.has_changed(partition, &key) {
                    continue;
                }
                let value = self.value_in_portion(&found, &key, value).await?;
                if value.is_some_and(|value| !look(&key, &value)) {
                    return Ok(());
                }
            }
        }
        let _ended = own.iter().find(|(key, value)| !look(key, value));
        Ok(())
    }

    /// Shows every record of a set that numbers its records, in the order of their numbers.
    pub(super) async fn scan_arrivals(
        &mut self,
        found: &Described,
        look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        found.refuse_keyed()?;
        let partition = found.id();
        self.scan_set(partition, by_position(partition, look)).await
    }

    /// Adds a record to a set that numbers its records.
    pub(super) async fn append_to_set(&mut self, found: &Rc<Described>, record: &[u8]) -> Result<Position> {
        found.refuse_keyed()?;
        let partition = found.id();
        let typed = self.client.schema(found)?.map(|schema| Typed { found: Rc::clone(found), schema });
        if let Some(typed) = &typed {
            typed.schema.record.verify(record).map_err(|error| typed.field_error(error))?;
        }
        found.check_record_of_set(size_of::<u64>(), record.len())?;
        let SetAnswer::Number(number) = self.ask_set(found, SetAsk::Arrival).await? else {
            return Err(Fault::new(FaultKind::Device, OTHER_ANSWER).into());
        };
        let key = number.to_be_bytes();
        self.lock_in_set(partition, &key, true).await?;
        if let Some(typed) = &typed {
            self.lock_entries_in_set(typed, (None, Some(record))).await?;
            self.check_places_in_set(typed, &key, (None, Some(record))).await?;
        }
        self.client.executor.charge(Work::LogRecord);
        self.client.executor.charge_value(record.len());
        self.work.borrow_mut().sets.change((partition, key.to_vec()), Some(record.to_vec()));
        Ok(arrival_position(partition, number))
    }

    /// The records of a set that the transaction has given values.
    fn own_in_set(&self, partition: PartitionId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let work = self.work.borrow();
        work.sets.own(partition).filter_map(|(key, value)| Some((key.to_vec(), value?.to_vec()))).collect()
    }

    /// Shows the records of a span of an index of a set.
    pub(super) async fn range_in_set(
        &mut self,
        typed: &Typed,
        secondary: usize,
        span: EntryRange,
        (direction, mut look): (Direction, impl FnMut(&[u8], &[u8]) -> bool),
    ) -> Result<()> {
        if direction == Direction::Forward {
            return self.forward_in_set(typed, secondary, span, look).await;
        }
        let mut records = Vec::new();
        let keep = |key: &[u8], value: &[u8]| {
            records.push((key.to_vec(), value.to_vec()));
            true
        };
        self.forward_in_set(typed, secondary, span, keep).await?;
        let _ended = records.iter().rev().find(|(key, value)| !look(key, value));
        Ok(())
    }

    async fn forward_in_set(
        &mut self,
        typed: &Typed,
        secondary: usize,
        span: EntryRange,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut own = self.own_in_span(typed, secondary, &span)?;
        let mut behind: Option<(Vec<u8>, Vec<u8>)> = None;
        loop {
            let after = behind.clone().map(|(of, key)| (SetValue(of), SetValue(key)));
            let (from, to) = (span.from.clone(), span.to.clone().map(SetValue));
            let ask = SetAsk::Range(SetRange { index: secondary as u16, from, to, behind: after });
            let (records, is_more) = self.ask_portion(&typed.found, ask).await?;
            behind = records.last().map(|last| (last.of.clone(), last.key.clone()));
            for SetFound { of, key, value } in records {
                while let Some((_, key, value)) = own.pop_front_if(|own| (&own.0, &own.1) < (&of, &key)) {
                    if !look(&key, &value) {
                        return Ok(());
                    }
                }
                if self.work.borrow().sets.has_changed(typed.found.id(), &key) {
                    continue;
                }
                let value = self.value_in_portion(&typed.found, &key, value).await?;
                if value.is_some_and(|value| !look(&key, &value)) {
                    return Ok(());
                }
            }
            // A server that has more, and shows none of it, is ill.
            if is_more.is_none() || behind.is_none() {
                break;
            }
        }
        let _ended = own.iter().find(|(_, key, value)| !look(key, value));
        Ok(())
    }

    /// The records that the transaction has changed which are in a span of an index now, in its order.
    fn own_in_span(&self, typed: &Typed, secondary: usize, span: &EntryRange) -> Result<VecDeque<Entry>> {
        let mut own = Vec::new();
        for (key, value) in self.own_in_set(typed.found.id()) {
            let of = typed.schema.order_of(secondary, &value).map_err(|error| typed.field_error(error))?;
            if of >= span.from && span.contains(&of) {
                own.push((of, key, value));
            }
        }
        own.sort();
        Ok(own.into())
    }

    /// The value of a record of a portion, which is asked for where it has not come along.
    async fn value_in_portion(
        &mut self,
        found: &Described,
        key: &[u8],
        value: Option<SetValue>,
    ) -> Result<Option<Vec<u8>>> {
        match value {
            Some(SetValue(value)) => Ok(Some(value)),
            None => self.read_keyed(found, key, Intent::Read).await,
        }
    }

    /// Before a record of a set is changed, which is locked: locks where its entries in indexes are and will be.
    pub(super) async fn lock_entries_in_set(
        &mut self,
        typed: &Typed,
        change: (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<()> {
        let moved = typed.schema.moved_in_set(change).map_err(|error| typed.field_error(error))?;
        let (mut entries, mut length) = (Vec::new(), 0);
        for (index, of) in moved {
            length += of.len();
            entries.push(SetEntry { index: index as u16, of });
            if length >= ENTRIES_BYTES || entries.len() == LIST_MAX {
                self.ask_set(&typed.found, SetAsk::Entries(mem::take(&mut entries))).await?;
                length = 0;
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        self.ask_set(&typed.found, SetAsk::Entries(entries)).await.map(drop)
    }

    /// Behind that: whether another record has the place in a unique index that this one comes to. A transaction that changes a record locks
    /// the record's places exclusively, so none is about to come there or to come back.
    pub(super) async fn check_places_in_set(
        &mut self,
        typed: &Typed,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<()> {
        let (schema, Some(value)) = (Rc::clone(&typed.schema), new) else { return Ok(()) };
        for index in schema.secondaries.iter().filter(|index| index.is_unique) {
            let Some(number) = index.number() else { continue };
            let of = |value: &[u8]| schema.order_of(number, value).map_err(|error| typed.field_error(error));
            let to = of(value)?;
            if old.map(of).transpose()?.as_ref() == Some(&to) {
                continue;
            }
            let mut present = None;
            let look = |found: &[u8], _: &[u8]| {
                present = (found != key).then(|| found.to_vec());
                present.is_none()
            };
            self.forward_in_set(typed, number, EntryRange::exactly(&to), look).await?;
            if let Some(present) = present {
                return Err(typed.field_error(schema.not_unique(index, value, (&present, key))));
            }
        }
        Ok(())
    }

    /// Records of a set, and from where on there are others: the same where that is said by the last of them.
    async fn ask_portion(&mut self, found: &Described, ask: SetAsk) -> Result<(Vec<SetFound>, Option<u64>)> {
        match self.ask_set(found, ask).await? {
            SetAnswer::Records { records, is_last, next } => {
                self.client.executor.charge_value(SetFound::length_of_values(&records));
                Ok((records, next.or((!is_last).then_some(0))))
            }
            _ => Err(Fault::new(FaultKind::Device, OTHER_ANSWER).into()),
        }
    }

    /// Asks the server about a set, again whenever what the answer waits for has come.
    async fn ask_set(&mut self, found: &Described, ask: SetAsk) -> Result<SetAnswer> {
        self.client.executor.charge(Work::LockPair);
        loop {
            self.check().await?;
            let number = {
                let mut work = self.work.borrow_mut();
                work.sets.question = (work.sets.question.0 + 1, None);
                work.sets.forget_asking();
                work.sets.question.0
            };
            let question = SetQuestion { transaction: self.transaction, number, partition: found.id, ask: ask.clone() };
            check_length(found, question.length())?;
            let message = self.client.protocol.borrow_mut().ask_about_set(question);
            self.client.say(&message);
            match self.await_set_answer().await? {
                SetAnswer::AskAgain => {}
                SetAnswer::Failed { is_denied: true, reason } => {
                    self.client.condemn(self.transaction, RollbackCause::Denied(reason));
                }
                SetAnswer::Failed { reason, .. } => return Err(Fault::new(FaultKind::Device, reason).into()),
                said => return Ok(said),
            }
        }
    }

    async fn await_set_answer(&self) -> Result<SetAnswer> {
        let mut wait = None;
        loop {
            self.check().await?;
            if let Some(said) = self.work.borrow_mut().sets.question.1.take() {
                return Ok(said);
            }
            self.rest(&mut wait, || "a range of a set".to_owned()).await?;
        }
    }
}

impl ClientNode {
    /// The server has answered a question about a set.
    pub(super) fn take_set_answer(&self, transaction: Transaction, number: u64, said: SetAnswer) {
        self.with_work(transaction, |work| {
            if work.sets.question.0 == number {
                work.sets.question.1 = Some(said);
            }
        });
    }
}
