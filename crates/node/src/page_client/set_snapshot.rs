//! Memory-resident sets as they were at the moment of a node's snapshot: the server reads them in one of its engine's of the same moment.

use super::PageSnapshot;
use super::indexed::Typed;
use super::set_ranges::{OTHER_ANSWER, by_position, check_length};
use crate::message::{Described, PastAsk, SetAnswer, SetFound, SetRange, SetValue};
use base::{Lsn, PartitionId};
use driver::{Fault, FaultKind};
use engine::catalog::EntryRange;
use engine::organization::append::Position;
use engine::set::FieldValue;
use engine::{Direction, Error, Result};
use std::ops::Bound;

impl PageSnapshot {
    /// Shows every record of a set to `look`, in no particular order but that of arrival, until that returns false.
    ///
    /// # Errors
    /// As [`PageSnapshot::get`].
    pub async fn scan_set(&mut self, partition: PartitionId, mut look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let found = self.client.described(partition).await?;
        found.refuse_pages()?;
        let mut next = Some(0);
        while let Some(from) = next {
            let (records, _, then) = self.past_portion(partition, PastAsk::Scan(from)).await?;
            // One that goes round in circles is ill.
            next = then.filter(|then| *then > from);
            for SetFound { key, value, .. } in records {
                let value = self.value_in_past(partition, &key, value).await?;
                if value.is_some_and(|value| !look(&key, &value)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Shows the records of a set whose fields are within bounds, in the order of a secondary index or backward, key and value, until `look`
    /// returns false. A bound may name the contents of the first few of the index's fields only: records that have these are included, or
    /// excluded, all. Backward, all of them are read before the first is shown.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if it is no set of records with a type, [`Error::Field`], and as [`PageSnapshot::get`].
    pub async fn range_of_set(
        &mut self,
        partition: PartitionId,
        secondary: usize,
        bounds: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
        direction: Direction,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let found = self.client.described(partition).await?;
        found.refuse_pages()?;
        let untyped = || found.wrong_organization("its records have no fields; give it a record type");
        let schema = self.client.schema(&found)?.ok_or_else(untyped)?;
        let typed = Typed { found: std::rc::Rc::clone(&found), schema };
        let span = EntryRange::new(&typed.schema, secondary, bounds).map_err(|error| typed.field_error(error))?;
        let mut records = Vec::new();
        let mut behind: Option<(SetValue, SetValue)> = None;
        let mut is_last = span.is_empty();
        while !is_last {
            let (from, to) = (span.from.clone(), span.to.clone().map(SetValue));
            check_length(&found, from.len() + to.as_ref().map_or(0, |SetValue(to)| to.len()))?;
            let range = SetRange { index: secondary as u16, from, to, behind: behind.clone() };
            let (portion, ends, _) = self.past_portion(partition, PastAsk::Range(range)).await?;
            behind = portion.last().map(|last| (SetValue(last.of.clone()), SetValue(last.key.clone())));
            // A server that has more, and shows none of it, is ill.
            is_last = ends || behind.is_none();
            for SetFound { key, value, .. } in portion {
                let Some(value) = self.value_in_past(partition, &key, value).await? else { continue };
                if direction == Direction::Backward {
                    records.push((key, value));
                } else if !look(&key, &value) {
                    return Ok(());
                }
            }
        }
        let _ended = records.iter().rev().find(|(key, value)| !look(key, value));
        Ok(())
    }

    /// Shows every record of a set that numbers its records, in the order of their numbers.
    pub(super) async fn scan_past_arrivals(
        &mut self,
        found: &Described,
        look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        found.refuse_keyed()?;
        let partition = found.id();
        self.scan_set(partition, by_position(partition, look)).await
    }

    /// The value of a record, if it was there.
    pub(super) async fn past_record(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.ask_past(partition, PastAsk::Record(key.to_vec())).await? {
            SetAnswer::Value(value) => {
                let value = value.map(|SetValue(value)| value);
                self.client.executor.charge_value(value.as_ref().map_or(0, Vec::len));
                Ok(value)
            }
            _ => Err(Fault::new(FaultKind::Device, OTHER_ANSWER).into()),
        }
    }

    async fn value_in_past(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: Option<SetValue>,
    ) -> Result<Option<Vec<u8>>> {
        match value {
            Some(SetValue(value)) => Ok(Some(value)),
            None => self.past_record(partition, key).await,
        }
    }

    async fn past_portion(
        &mut self,
        partition: PartitionId,
        ask: PastAsk,
    ) -> Result<(Vec<SetFound>, bool, Option<u64>)> {
        match self.ask_past(partition, ask).await? {
            SetAnswer::Records { records, is_last, next } => {
                self.client.executor.charge_value(SetFound::length_of_values(&records));
                Ok((records, is_last, next))
            }
            _ => Err(Fault::new(FaultKind::Device, OTHER_ANSWER).into()),
        }
    }

    async fn ask_past(&mut self, partition: PartitionId, ask: PastAsk) -> Result<SetAnswer> {
        self.check()?;
        let message = self.client.protocol.borrow_mut().ask_past(self.number, partition, ask);
        self.client.say(&message);
        loop {
            self.check()?;
            let said = self.client.protocol.borrow_mut().take_past(self.number);
            match said {
                None => self.client.bell.wait(&self.client.executor).await,
                Some(SetAnswer::Failed { is_denied, reason }) => {
                    let kind = if is_denied { FaultKind::Denied } else { FaultKind::Device };
                    return Err(Fault::new(kind, reason).into());
                }
                Some(SetAnswer::TooOld { oldest }) => {
                    return Err(Error::SnapshotTooOld { oldest: Lsn(oldest), asked: None });
                }
                Some(said) => return Ok(said),
            }
        }
    }
}
