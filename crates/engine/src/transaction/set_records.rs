//! Records of memory-resident sets. Locks are taken as for any other record; then a set does what it is asked in one
//! synchronous step, or says what it lacks.

use super::Transaction;
use super::secondary::check_since;
use crate::catalog::{EntryRange, Organization};
use crate::engine::set_returned;
use crate::mvcc::{SetPortion, index_portion_at, portion_at, scan_set_at};
use crate::statistics::FoundIn;
use crate::version::Rest;
use crate::{Error, Result};
use base::PartitionId;
use driver::Work;
use structures::key_hash;
use structures::lock::{Mode, Owner, Resource};
use structures::set::{Refusal, Sets};

impl Transaction {
    /// Shows the value of `key`, whose lock is held, to `look`.
    pub(super) async fn get_in_set_with<R>(
        &mut self,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let (mut look, mut bytes) = (Some(look), 0);
        let shown = self
            .in_set(partition, |sets, owner| {
                let found = sets.get(owner, partition, key, hash)?;
                bytes = found.map_or(0, <[u8]>::len);
                Ok(look.take().expect("shown once")(found))
            })
            .await?;
        self.engine.core.executor.charge_value(bytes);
        Ok(shown)
    }

    /// Changes the value of `key`, whose lock is held, in place.
    #[inline]
    pub(super) async fn modify_in_set<R>(
        &mut self,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let (mut change, mut bytes) = (Some(change), 0);
        let changed = self
            .in_set(partition, |sets, owner| {
                sets.modify(owner, partition, key, hash, |value| {
                    bytes = value.len();
                    change.take().expect("changed once")(value)
                })
            })
            .await?;
        self.engine.core.executor.charge_value(bytes);
        Ok(changed)
    }

    /// Inserts a record, whose lock is held; one that is there gets the value if `replace` says so. Returns whether it has
    /// the value now.
    pub(crate) async fn write_in_set(
        &mut self,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        value: &[u8],
        replace: bool,
    ) -> Result<bool> {
        let write = |sets: &mut Sets, owner| match sets.insert(owner, partition, key, hash, value) {
            Err(Refusal::Duplicate) if replace => sets.replace(owner, partition, key, hash, value).map(|()| true),
            Err(Refusal::Duplicate) => Ok(false),
            other => other.map(|()| true),
        };
        let is_written = self.in_set(partition, write).await?;
        self.engine.core.executor.charge_value(value.len());
        Ok(is_written)
    }

    /// Makes what was changed in sets final without logging it: while a set is loaded.
    pub(crate) fn commit_unlogged(&mut self) {
        self.engine.sets.sets.borrow_mut().commit(self.state.owner);
        // Readers of earlier moments are told of the load as a whole.
        self.engine.versions.forget(self.state.owner, 0, 0);
    }

    /// Deletes the record of `key`, whose lock is held; false if there is none.
    pub(super) async fn delete_in_set(&mut self, partition: PartitionId, (key, hash): (&[u8], u64)) -> Result<bool> {
        self.in_set(partition, |sets, owner| sets.delete(owner, partition, key, hash)).await
    }

    /// Adds a record to a set of arrivals, under this number if one was given out for it before, and returns its number.
    pub(super) async fn append_to_set(
        &mut self,
        (partition, number): (PartitionId, Option<u64>),
        value: &[u8],
        locks_records: bool,
    ) -> Result<u64> {
        let append = |sets: &mut Sets, owner| match number {
            None => sets.append(owner, partition, value),
            Some(number) => sets.append_numbered(owner, partition, number, value).map(|()| number),
        };
        let number = loop {
            // In the step that adds it: who has read up to the end sees none more.
            if locks_records && !self.pass_end(partition) {
                self.lock(Resource::end_gap(partition), Mode::InsertIntention).await?;
                continue;
            }
            match self.ask_sets(partition, append) {
                Ok(number) => break number,
                Err(refusal) => self.resolve_refusal(partition, refusal).await?,
            }
        };
        self.engine.core.executor.charge_value(value.len());
        if locks_records {
            // In the same step: no other transaction can know the record yet.
            self.lock(Resource::record(partition, key_hash(&number.to_be_bytes())), Mode::Exclusive).await?;
        }
        Ok(number)
    }

    /// Before an arrival: in a call that is repeated, has it given the number that it had. Returns the set's own count then.
    pub(super) fn begin_arrival(&mut self, partition: PartitionId) -> Result<Option<u64>> {
        if !self.state.call.is_replay() {
            return Ok(None);
        }
        let number = self.state.call.take_number();
        let number = number.ok_or(Error::ReplayDiverged("it adds more arrivals than when it was logged"))?;
        Ok(Some(self.engine.sets.sets.borrow_mut().count_arrivals_from(partition, number)))
    }

    /// After it.
    pub(super) fn end_arrival(&mut self, partition: PartitionId, number: u64, counted: Option<u64>) {
        self.state.call.give_number(number);
        if let Some(counted) = counted {
            self.engine.sets.sets.borrow_mut().count_arrivals_from(partition, counted.max(number + 1));
        }
    }

    /// Shows every record of a set to `look`, in no particular order, without locks: for checks while nothing else runs.
    /// `look` returns false to end the scan. It begins when no sweep is writing a segment of this set itself. To scan several sets
    /// of one moment, await [`Transaction::segments_returned`] first.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`].
    pub async fn scan_set(&self, partition: PartitionId, mut look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let found = self.engine.catalog.describe(partition)?;
        if found.set_settings().is_none() {
            return Err(found.wrong_organization("use a cursor, object numbers or scan_appended"));
        }
        self.check_active()?;
        self.mark_not_replayable()?;
        if let Some(read_view) = self.read_view_of(partition)? {
            return scan_set_at(&self.engine, read_view.view, partition, &self.state.pace, look).await;
        }
        set_returned(&self.engine, partition).await;
        self.state.depend_on(self.engine.versions.present());
        let sets = self.engine.sets.sets.borrow();
        let (mut bytes, mut records) = (0, sets.iterate(partition));
        let _ended = records.find(|(key, value)| {
            bytes += value.len();
            !look(key, value)
        });
        self.engine.core.executor.charge_value(bytes);
        Ok(())
    }

    /// Some records of a set that a transaction sees which reads a moment.
    pub(super) async fn portion_of_set(
        &mut self,
        partition: PartitionId,
        from: u64,
    ) -> Result<(SetPortion, Option<u64>)> {
        let found = self.engine.catalog.describe(partition)?;
        let is_of_arrivals = matches!(found.organization, Organization::Set { arrivals: true, .. });
        match self.read_view_of(partition)?.filter(|_| found.set_settings().is_some()) {
            Some(read_view) => {
                let by = (read_view.view, &*self.state.pace);
                let (portion, next) = portion_at(&self.engine, by, (partition, is_of_arrivals), from).await?;
                portion.whole(&found.name).map(|portion| (portion, next))
            }
            None => Err(found.wrong_organization("it is no set, or no moment is read of it")),
        }
    }

    /// The same in the order of an index.
    pub(super) async fn portion_of_index(
        &mut self,
        (partition, secondary): (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
    ) -> Result<(SetPortion, bool)> {
        let found = self.engine.catalog.describe(partition)?;
        let is_indexed = found.schema.as_ref().is_some_and(|schema| schema.index(secondary).is_ok());
        let read_view = self.read_view_of(partition)?.filter(|_| found.set_settings().is_some() && is_indexed);
        let Some(read_view) = read_view else {
            return Err(found.wrong_organization("it is no set with such an index, or no moment is read of it"));
        };
        check_since(&found, secondary, read_view.view)?;
        let first = (range.from.as_slice(), &[][..]);
        let last = behind.filter(|behind| *behind >= first).map(|(of, key)| (of.to_vec(), key.to_vec()));
        let left = Rest { last, from: range.from.clone(), to: range.to.clone() };
        let (view, pace) = (read_view.view, &*self.state.pace);
        index_portion_at(&self.engine, (view, pace), (partition, secondary), left).await
    }

    /// Asks the sets for something until they do not lack anything for it.
    #[inline]
    pub(super) async fn in_set<T>(
        &mut self,
        partition: PartitionId,
        mut attempt: impl FnMut(&mut Sets, Owner) -> Result<T, Refusal>,
    ) -> Result<T> {
        loop {
            match self.ask_sets(partition, &mut attempt) {
                Ok(answer) => return Ok(answer),
                Err(refusal) => self.resolve_refusal(partition, refusal).await?,
            }
        }
    }

    /// Asks the sets for something once. If they do not lack anything for it, this counts one reference to the partition and
    /// is charged with the lock of the segment (System M, 1988, section 2.7), which is lent if a sweep holds that.
    #[inline]
    pub(super) fn ask_sets<T>(
        &mut self,
        partition: PartitionId,
        attempt: impl FnOnce(&mut Sets, Owner) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let answer = attempt(&mut self.engine.sets.sets.borrow_mut(), self.state.owner)?;
        self.keep_set_changes();
        // No task comes between the steps of an answer, so that this lock is in no table.
        self.engine.core.executor.charge(Work::LockPair);
        self.engine.core.statistics.count_reference(usize::from(partition.0), FoundIn::Memory);
        Ok(answer)
    }
}
