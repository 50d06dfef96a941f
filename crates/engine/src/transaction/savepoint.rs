//! Savepoints: moments within a transaction to which it can be rolled back.

use super::Transaction;
use super::half_change::HalfChange;
use super::rollback::{ForgetUndone, undo};
use crate::engine::Position;
use crate::{Error, Result};
use base::TransactionId;
use std::rc::Rc;

/// A moment within a transaction to which it can be rolled back; [`Transaction::savepoint`] shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: TransactionId,
    /// How often the transaction had gone back before.
    rollbacks: u64,
    position: Position,
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
    /// it has seen does not go together with what it was refused, whatever it takes back. If this fails or is given up when part of that was
    /// taken back, the transaction has to give up: half of a change may be left.
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
        let (engine, change) = (self.engine.clone(), HalfChange::begin(self));
        let _forgotten = ForgetUndone { engine: &engine, owner: self.state.owner, undo: Rc::clone(&self.state.undo) };
        undo(&engine.core, &mut self.state, updates).await?;
        // In one step with the last of the pages.
        engine.sets.sets.borrow_mut().roll_back_to(self.state.owner, of_sets);
        self.state.rollbacks.note(position);
        change.end();
        Ok(())
    }
}
