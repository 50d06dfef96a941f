//! Exclusive locks on rows, kept by the application for engines that keep none.

use crate::bank::{Scale, Table, Transfer};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Accounts share this many locks; two of 64 clients seldom meet on one.
const ACCOUNT_STRIPES: u64 = 4096;

/// One lock a branch and a teller, and striped locks for the accounts. Locks are taken in one order, so there are no deadlocks.
#[derive(Debug)]
pub struct RowLocks {
    locks: Vec<Mutex<()>>,
    scale: Scale,
}

impl RowLocks {
    /// All locks, free.
    pub fn new(scale: Scale) -> RowLocks {
        let count = ACCOUNT_STRIPES + scale.rows(Table::Teller) + scale.rows(Table::Branch);
        RowLocks { locks: (0..count).map(|_| Mutex::new(())).collect(), scale }
    }

    /// Locks every row that the transfers change, until the guards are dropped.
    pub fn lock(&self, transfers: &[Transfer]) -> Vec<MutexGuard<'_, ()>> {
        let mut wanted: Vec<usize> =
            transfers.iter().flat_map(|transfer| transfer.rows().map(|row| self.index(row))).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into_iter().map(|index| self.locks[index].lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn index(&self, (table, id): (Table, u64)) -> usize {
        let index = match table {
            Table::Account => id % ACCOUNT_STRIPES,
            Table::Teller => ACCOUNT_STRIPES + id,
            Table::Branch => ACCOUNT_STRIPES + self.scale.rows(Table::Teller) + id,
        };
        index as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Terminal;

    #[test]
    fn different_rows_of_small_tables_have_different_locks() {
        let scale = Scale(3);
        let locks = RowLocks::new(scale);
        let mut indices = Vec::new();
        for table in [Table::Teller, Table::Branch] {
            indices.extend((0..scale.rows(table)).map(|id| locks.index((table, id))));
        }
        indices.push(locks.index((Table::Account, ACCOUNT_STRIPES - 1)));
        indices.sort_unstable();
        let count = indices.len();
        indices.dedup();
        assert_eq!(indices.len(), count);
        assert_eq!(*indices.last().unwrap(), locks.locks.len() - 1);
    }

    #[test]
    fn a_batch_locks_each_row_once() {
        let locks = RowLocks::new(Scale(1));
        let mut terminal = Terminal::new(Scale(1), 3, 0);
        let transfers: Vec<_> = (0..64).map(|sequence| terminal.next(sequence, 0)).collect();
        let guards = locks.lock(&transfers);
        assert!(guards.len() > 64 && guards.len() <= 64 + 10 + 1);
        drop(guards);
        assert_eq!(locks.lock(&transfers[..1]).len(), 3);
    }
}
