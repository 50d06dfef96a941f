//! Savepoints: moments within a transaction to which it can be rolled back.

use super::Transaction;
use super::rollback::{ForgetUndone, undo};
use crate::{Error, Result};
use base::TransactionId;
use std::rc::Rc;
use structures::set::ChangePosition;

/// A moment within a transaction to which it can be rolled back; [`Transaction::savepoint`] shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: TransactionId,
    /// How often the transaction had gone back before.
    rollbacks: u64,
    position: Position,
}

/// How many updates of pages a transaction has made and not taken back, and where it is in its changes of sets.
type Position = (usize, ChangePosition);

/// How often a transaction has gone back to a savepoint, and what that leaves of the others.
#[derive(Debug, Default)]
pub(crate) struct PartialRollbacks {
    count: u64,
    /// The number of a rollback and where it went to, for those that no later one went behind. Both ascend.
    positions: Vec<(u64, Position)>,
}

impl PartialRollbacks {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
        self.positions.clear();
    }

    fn note(&mut self, position: Position) {
        self.count += 1;
        while self.positions.last().is_some_and(|(_, earlier)| *earlier >= position) {
            self.positions.pop();
        }
        self.positions.push((self.count, position));
    }

    /// Whether nothing that was there when `rollbacks` were over, up to `position`, was taken back since.
    fn have_left(&self, (rollbacks, position): (u64, Position)) -> bool {
        let first = self.positions.partition_point(|(number, _)| *number <= rollbacks);
        self.positions.get(first).is_none_or(|(_, furthest)| *furthest >= position)
    }
}

impl Transaction {
    /// Marks this moment.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let orders = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         tx.put(orders, b"1", b"pen").await?;
    ///         let before_second = tx.savepoint();
    ///         tx.put(orders, b"2", b"ink").await?;
    ///         tx.rollback_to(before_second).await?;
    ///         tx.put(orders, b"3", b"paper").await
    ///     })
    ///     .await?;
    /// let both = async |tx: &mut Transaction| Ok::<_, Error>((tx.get(orders, b"2").await?, tx.get(orders, b"3").await?));
    /// let kept = database.transaction(both).await?;
    /// assert_eq!(kept, (None, Some(b"paper".to_vec())));
    /// # Ok(())
    /// # });
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            transaction: self.state.id,
            rollbacks: self.state.rollbacks.count(),
            position: (self.state.updates(), self.engine.sets.sets.borrow().position(self.state.owner)),
        }
    }

    /// Takes back what was done since `savepoint`. Locks are kept. It does not help a transaction that has to give up: what
    /// it has seen does not go together with what it was refused, whatever it takes back.
    ///
    /// # Errors
    /// [`Error::Argument`] for a savepoint of another transaction, or one behind another that the transaction has gone back to; as
    /// [`Transaction::rollback`]; [`Error::Aborted`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// let empty = tx.savepoint();
    /// for attempt in 0..3_u8 {
    ///     tx.put(notes, b"milk", &[attempt]).await?;
    ///     tx.rollback_to(empty).await?;
    /// }
    /// tx.put(notes, b"milk", b"two litres").await?;
    /// tx.commit().await?;
    /// # let found = database.transaction(async |tx| tx.get(notes, b"milk").await).await?;
    /// # assert_eq!(found.as_deref(), Some(&b"two litres"[..]));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_active()?;
        let Savepoint { transaction, rollbacks, position } = savepoint;
        if transaction != self.state.id || !self.state.rollbacks.have_left((rollbacks, position)) {
            return Err(Error::Argument("the transaction has no such savepoint, or has taken it back".to_owned()));
        }
        let (updates, of_sets) = position;
        self.engine.sets.sets.borrow_mut().roll_back_to(self.state.owner, of_sets);
        self.state.rollbacks.note(position);
        let engine = self.engine.clone();
        let _forgotten = ForgetUndone { engine: &engine, owner: self.state.owner, undo: Rc::clone(&self.state.undo) };
        undo(&engine.core, &mut self.state, updates).await
    }
}

#[cfg(test)]
mod tests {
    use super::{PartialRollbacks, Position};
    use proptest::prelude::*;
    use structures::set::ChangePosition;

    proptest! {
        /// Beside a list of all savepoints, from which a rollback takes those that are behind it.
        #[test]
        fn savepoints_are_left_up_to_the_one_that_was_gone_back_to(steps in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 1..60)) {
            let (mut rollbacks, mut updates) = (PartialRollbacks::default(), 0_usize);
            let (mut taken, mut left): (Vec<(u64, Position)>, Vec<usize>) = (Vec::new(), Vec::new());
            for (step, index) in steps {
                match step {
                    0 => updates += 1,
                    1 => {
                        left.push(taken.len());
                        taken.push((rollbacks.count(), (updates, ChangePosition::default())));
                    }
                    _ if left.is_empty() => {}
                    _ => {
                        let to = index.index(left.len());
                        let position = taken[left[to]].1;
                        left.retain(|other| taken[*other].1 <= position);
                        updates = position.0;
                        rollbacks.note(position);
                    }
                }
                for (number, savepoint) in taken.iter().enumerate() {
                    prop_assert_eq!(rollbacks.have_left(*savepoint), left.contains(&number));
                }
            }
        }
    }
}
