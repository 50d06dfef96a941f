//! The rows that a batch of requests changes, for engines whose write batches cannot be read.

use crate::bank::{Row, Table, add};
use std::collections::BTreeMap;

/// New versions of rows, not yet written. Each row is written once, however many requests change it, and in the order of the
/// keys.
#[derive(Debug, Default)]
pub struct ChangedRows {
    rows: BTreeMap<(Table, u64), Row>,
}

impl ChangedRows {
    /// Adds `delta` to a balance and returns the new balance; `read` fetches the row if it has not been changed yet.
    pub fn add<E>(
        &mut self,
        table: Table,
        id: u64,
        delta: i64,
        read: impl FnOnce() -> Result<Row, E>,
    ) -> Result<i64, E> {
        use std::collections::btree_map::Entry;
        let row = match self.rows.entry((table, id)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(read()?),
        };
        Ok(add(row, delta))
    }

    /// All changed rows in the order of their tables and keys.
    pub fn iter(&self) -> impl Iterator<Item = (Table, u64, &Row)> {
        self.rows.iter().map(|((table, id), row)| (*table, *id, row))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::{MissingRow, balance, row};

    #[test]
    fn a_row_is_read_once_and_written_once() {
        let mut changed = ChangedRows::default();
        let mut reads = 0;
        for delta in [5, -2] {
            let fetch = || {
                reads += 1;
                Ok::<Row, MissingRow>(row(9))
            };
            changed.add(Table::Branch, 9, delta, fetch).unwrap();
        }
        changed.add(Table::Account, 10, 1, || Ok::<Row, MissingRow>(row(10))).unwrap();
        assert_eq!(reads, 1);
        let written: Vec<_> = changed.iter().map(|(table, id, row)| (table, id, balance(row))).collect();
        assert_eq!(written, [(Table::Account, 10, 1), (Table::Branch, 9, 3)]);
    }
}
