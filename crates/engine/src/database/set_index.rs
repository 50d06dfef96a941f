//! The secondary index that a set gets later: in memory only, so that its creation logs nothing but that it is there.
//!
//! 1. The set has an index without entries, which follows each change from now on.
//! 2. Records are visited, some at a time, and each gets its entry as it is then: also what a transaction has changed that has not ended.
//!    If that is rolled back, its entry is taken back as any other.
//! 3. Transactions that had begun before the index had all records have locked gaps between those that it had. Their ends are waited for:
//!    a reader of the index would pass between others.
//! 4. The superblock file enters it. From there on each opening builds it while it loads the set.

use super::Database;
use super::drop::PATIENCE_NS;
use super::index::{Building, LOOK_NS};
use crate::catalog::Partition;
use crate::engine::resolve_refusal;
use crate::transaction::not_indexed;
use crate::{Error, Result};
use base::PartitionId;
use driver::Work;
use executor::Executor;
use structures::canary::{self, Canary};
use structures::set::{DroppedIndex, Secondary};

/// How many entries of an index that was dropped are given up before others get their turn.
const GIVEN_UP: usize = 256;

impl Database {
    /// Has a set follow an index that has no records yet. Returns its number.
    pub(super) fn begin_in_set(&self, found: &Partition, definition: Secondary) -> Result<u16> {
        let mut sets = self.0.engine.sets.sets.borrow_mut();
        let number = sets.next_secondary(found.id());
        let given = u16::try_from(number).map_err(|_| {
            let detail = "it has had as many indexes as it may since the database was opened; open it again";
            found.wrong_organization(detail)
        })?;
        assert_eq!(sets.begin_secondary(found.id(), definition), number, "numbers are given once");
        Ok(given)
    }

    /// Adds all records to an index that was begun, and waits for those who have met it without.
    pub(super) async fn fill_in_set(&self, building: &Building) -> Result<()> {
        let (engine, at) = (&self.0.engine, (building.base, building.number()));
        let mut next = Some(0);
        while let Some(from) = next {
            building.build.check(engine)?;
            let found = engine.catalog.describe(building.base)?;
            let record = &found.typed()?.record;
            let (mut count, mut unsuitable) = (0, None);
            let look = |key: &[u8], value: &[u8]| {
                count += 1;
                let verified = record.verify(value).map_err(|error| not_indexed(&found, key, error));
                unsuitable = unsuitable.take().or(verified.err());
            };
            let filled = engine.sets.sets.borrow_mut().fill_secondary(at, from, look);
            if let Some(error) = unsuitable {
                return Err(error);
            }
            match filled {
                Ok(then) => next = then,
                Err(refusal) => {
                    resolve_refusal(engine, building.base, refusal).await?;
                    continue;
                }
            }
            building.build.add(count);
            self.check_twice(building).await?;
            engine.core.executor.charge_times(Work::TreeSearch, count);
            engine.core.executor.pay_debt().await;
            engine.core.executor.yield_now().await;
        }
        let found = engine.catalog.describe(building.base)?;
        self.await_earlier(&found).await?;
        self.check_twice(building).await
    }

    /// Of a unique index: whether two records have the same contents, where that was so for a while. A record that a transaction has deleted or
    /// changed meanwhile, and that comes back, shows as another one does that is added.
    async fn check_twice(&self, building: &Building) -> Result<()> {
        let engine = &self.0.engine;
        loop {
            let twice = engine.sets.sets.borrow_mut().take_twice(building.base, building.number());
            if twice.is_empty() || canary::is_planted(Canary::UncheckedTwice) {
                return Ok(());
            }
            for of in twice {
                self.check_contents(building, &of).await?;
            }
        }
    }

    /// Of these contents, once no transaction is about to change who has them, for ten seconds at most.
    async fn check_contents(&self, building: &Building, of: &[u8]) -> Result<()> {
        let engine = &self.0.engine;
        let until = engine.core.executor.now().plus_ns(PATIENCE_NS);
        loop {
            building.build.check(engine)?;
            let found = engine.catalog.describe(building.base)?;
            if self.transaction(async |tx| tx.check_unique(&found, &building.index, of).await).await? {
                return Ok(());
            }
            if engine.core.executor.now() >= until {
                return Err(Error::PartitionInUse(found.name.clone()));
            }
            engine.core.executor.sleep_ns(LOOK_NS).await;
        }
    }

    /// Takes an index out of memory that changes of records leave alone, beside others.
    pub(super) fn end_in_set(&self, base: PartitionId, number: usize) {
        let dropped = self.0.engine.sets.sets.borrow_mut().drop_secondary(base, number);
        give_up_entries(&self.0.engine.core.executor, dropped);
    }
}

/// Gives up entries that no index has any more, beside everything else.
pub(super) fn give_up_entries(executor: &Executor, mut dropped: DroppedIndex) {
    let yielding = executor.clone();
    drop(executor.spawn(async move {
        while dropped.give_up(GIVEN_UP) {
            yielding.yield_now().await;
        }
    }));
}
