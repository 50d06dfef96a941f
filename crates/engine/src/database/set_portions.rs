//! Records of sets as they follow each other, some at a time and each time in one step: for a server whose nodes' locks say what may be looked at.

use super::Database;
use crate::Result;
use crate::catalog::{EntryRange, Organization, Partition};
use crate::engine::{Engine, resolve_refusal};
use crate::mvcc::{STEPS_MAX, SetPortion, enter_reader, enter_snapshot, leave_reader};
use crate::transaction::await_segments;
use base::{Lsn, PartitionId};
use executor::WholeExecutor;
use std::ops::Bound;
use std::rc::Rc;
use structures::set::{Refusal, Sets};

/// What is changed is kept as it was for moments, which are held without a wait as long as this is there.
pub struct KeptVersions(Rc<Engine>);

impl KeptVersions {
    /// Holds this moment. What was committed up to it may not be durable yet.
    pub fn hold(&self) -> HeldMoment {
        let at = self.0.versions.present();
        enter_snapshot(&self.0, at);
        HeldMoment { engine: Rc::clone(&self.0), at }
    }
}

/// A moment that can be read ([`Database::as_of`]) as long as this is there. It is no transaction, and keeps none from beginning.
pub struct HeldMoment {
    engine: Rc<Engine>,
    at: Lsn,
}

impl HeldMoment {
    /// The moment: the log position of the last commit before it.
    pub fn moment(&self) -> Lsn {
        self.at
    }
}

impl Drop for HeldMoment {
    fn drop(&mut self) {
        self.engine.versions.leave_snapshot(self.at);
    }
}

impl Drop for KeptVersions {
    fn drop(&mut self) {
        leave_reader(&self.0);
    }
}

impl Database {
    /// From now on what is changed is kept as it was, for moments that are held at any time: as for a transaction that reads what is committed,
    /// so no longer than until its change is.
    pub(crate) async fn keep_versions(&self) -> KeptVersions {
        await_segments(&self.0.engine).await;
        enter_reader(&self.0.engine);
        KeptVersions(Rc::clone(&self.0.engine))
    }

    /// Gives `take` records of a set that are within a range of an index, in its order, in the step in which they are looked at: those behind
    /// the one with this contents and key, or the first; and whether none follow. No locks are taken: a record may have been changed by a
    /// transaction that is under way.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::WrongOrganization`] if it is no set with such an index.
    pub(crate) async fn portion_of_index<R>(
        &self,
        (partition, secondary): (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
        take: impl FnOnce(SetPortion, bool) -> R,
    ) -> Result<R> {
        loop {
            let found = self.set_of(partition)?;
            if found.schema.as_ref().is_none_or(|schema| schema.index(secondary).is_err()) {
                return Err(found.wrong_organization("it has no such index"));
            }
            match self.try_portion_of_index((partition, secondary), range, behind) {
                Ok((portion, is_last)) => {
                    self.executor().whole().charge_value(portion.length_of_values());
                    return Ok(take(portion, is_last));
                }
                Err(refusal) => resolve_refusal(&self.0.engine, partition, refusal).await?,
            }
        }
    }

    fn try_portion_of_index(
        &self,
        (partition, secondary): (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
    ) -> Result<(SetPortion, bool), Refusal> {
        let (sets, mut portion) = (self.0.engine.sets.sets.borrow(), SetPortion::default());
        let first = (range.from.as_slice(), &[][..]);
        let from = behind.filter(|behind| *behind >= first).map_or(Bound::Included(first), Bound::Excluded);
        for (of, key) in sets.entries_beyond(partition, secondary, from) {
            if !range.contains(of) {
                break;
            }
            if portion.is_full() {
                return Ok((portion, false));
            }
            let value = sets.peek(partition, key, Sets::hash(key))?;
            portion.add(of, key, value.expect("an entry's record is there"));
        }
        Ok((portion, true))
    }

    /// Gives `take` records of a set from a position on, 0 at first, in the step in which they are looked at, and the position from which on
    /// others follow: in the order of arrival, or in no particular one. No locks are taken, as in [`Database::portion_of_index`]; what comes
    /// or goes between two portions is in one of them or in none.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::WrongOrganization`] if it is no set.
    pub(crate) async fn portion_of_set<R>(
        &self,
        partition: PartitionId,
        from: u64,
        take: impl FnOnce(SetPortion, Option<u64>) -> R,
    ) -> Result<R> {
        loop {
            let is_of_arrivals =
                matches!(self.set_of(partition)?.organization, Organization::Set { arrivals: true, .. });
            match self.try_portion_of_set((partition, is_of_arrivals), from) {
                Ok((portion, next)) => {
                    let portion = portion.whole(&self.describe(partition)?.name)?;
                    self.executor().whole().charge_value(portion.length_of_values());
                    return Ok(take(portion, next));
                }
                Err(refusal) => resolve_refusal(&self.0.engine, partition, refusal).await?,
            }
        }
    }

    fn try_portion_of_set(
        &self,
        (partition, is_of_arrivals): (PartitionId, bool),
        from: u64,
    ) -> Result<(SetPortion, Option<u64>), Refusal> {
        let (sets, mut portion) = (self.0.engine.sets.sets.borrow(), SetPortion::default());
        let (mut next, mut steps) = (Some(from), 0);
        while let Some(from) = next.filter(|_| !portion.is_full() && steps < STEPS_MAX) {
            let mut cut = None;
            let look = |key: &[u8], value: &[u8]| {
                cut = cut.or_else(|| portion.cut(is_of_arrivals, key));
                if cut.is_none() {
                    portion.add(&[], key, value);
                }
            };
            match sets.visit(partition, from, look) {
                Ok((_, then)) => next = cut.or(then),
                // What was seen before it is enough for now.
                Err(_) if steps > 0 => break,
                Err(refusal) => return Err(refusal),
            }
            steps += 1;
        }
        Ok((portion, next))
    }

    /// What the indexes of a set order a record by as it is, and as it would be with this value ([`Schema::moved_in_set`]), for a caller that
    /// knows that no transaction changes it.
    ///
    /// [`Schema::moved_in_set`]: crate::catalog::Schema::moved_in_set
    ///
    /// # Errors
    /// As [`Database::read_in_set`]; [`crate::Error::Field`] if the value is no record of the set's type.
    pub(crate) async fn moved_in_set(
        &self,
        partition: PartitionId,
        key: &[u8],
        new: Option<&[u8]>,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        let has_indexes =
            |found: &Partition| found.schema.as_ref().is_some_and(|schema| !schema.secondaries.is_empty());
        if !has_indexes(&*self.set_of(partition)?) {
            return Ok(Vec::new());
        }
        let old = self.read_in_set(partition, key).await?;
        let found = self.set_of(partition)?;
        let schema = found.typed()?;
        schema.moved_in_set((old.as_deref(), new)).map_err(|error| found.field_error(error))
    }

    fn set_of(&self, partition: PartitionId) -> Result<Rc<Partition>> {
        let found = self.describe(partition)?;
        if matches!(found.organization, Organization::Set { .. }) {
            return Ok(found);
        }
        Err(found.wrong_organization("it is no set"))
    }
}
