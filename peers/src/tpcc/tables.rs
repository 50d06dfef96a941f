//! What a transaction asks of an engine: ordered tables of keys and rows.

use crate::peer::PeerResult;
use entresol::Direction;
use thiserror::Error;
use workload::tpcc::{HISTORY, TREES};

/// The nine tables of TPC-C and its two indexes, in the order of [`TREES`]. The keys of the history are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Warehouse,
    District,
    Customer,
    /// Customers by last and first name: keys without rows.
    CustomerName,
    NewOrder,
    Order,
    /// Orders by customer: keys without rows.
    CustomerOrder,
    OrderLine,
    Item,
    Stock,
    History,
}

impl Table {
    /// All of them, each at the place that is its number.
    pub const ALL: [Table; 11] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::CustomerName,
        Table::NewOrder,
        Table::Order,
        Table::CustomerOrder,
        Table::OrderLine,
        Table::Item,
        Table::Stock,
        Table::History,
    ];

    /// The table's name in the engines.
    pub fn name(self) -> &'static str {
        TREES.get(self as usize).copied().unwrap_or(HISTORY)
    }

    /// The table of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> Table {
        Table::ALL
            .into_iter()
            .find(|table| table.name() == name)
            .unwrap_or_else(|| panic!("there is no table '{name}'"))
    }
}

/// A row that must exist and does not.
#[derive(Debug, Error)]
#[error("{} {key:?} is missing", table.name())]
pub struct MissingRow {
    table: Table,
    key: Vec<u8>,
}

impl MissingRow {
    /// The row of `key`.
    pub fn new(table: Table, key: &[u8]) -> MissingRow {
        MissingRow { table, key: key.to_owned() }
    }
}

/// The longest row: a customer's.
const ROW_BYTES_MAX: usize = workload::tpcc::rows::customer::SIZE;

/// The tables as one transaction sees them, its own changes included.
pub trait Tables {
    /// What `look` makes of the row of `key`, if there is one.
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>>;

    /// Adds a row whose key is new.
    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()>;

    /// Writes another row of the same length over that of `key`.
    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()>;

    /// Removes the row of `key`.
    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()>;

    /// Shows the rows of a range, both of its ends included, until `see` says no.
    fn scan(
        &mut self,
        table: Table,
        range: (&[u8], &[u8]),
        direction: Direction,
        see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()>;

    /// What `look` makes of the row of `key`, which must exist.
    fn get<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<T> {
        Ok(self.read(table, key, look)?.ok_or_else(|| MissingRow::new(table, key))?)
    }

    /// Changes the row of `key`, which must exist.
    fn modify<T>(&mut self, table: Table, key: &[u8], change: impl FnOnce(&mut [u8]) -> T) -> PeerResult<T> {
        let mut room = [0; ROW_BYTES_MAX];
        let length = self.get(table, key, |old| {
            room[..old.len()].copy_from_slice(old);
            old.len()
        })?;
        let row = &mut room[..length];
        let result = change(row);
        self.update(table, key, row)?;
        Ok(result)
    }
}

/// A key and its row.
pub type Record = (Vec<u8>, Vec<u8>);

/// Not before any key that is used.
const LAST_KEY: [u8; 64] = [u8::MAX; 64];

/// Up to `limit` records of a table in the order of their keys: those behind the key `after`, or the first ones.
pub fn page(tables: &mut impl Tables, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
    // The least key behind another one is that with a zero behind it. LMDB takes no empty key.
    let lower = after.map_or_else(|| vec![0], |key| [key, &[0]].concat());
    let mut records = Vec::new();
    tables.scan(table, (&lower, &LAST_KEY), Direction::Forward, |key, row| {
        records.push((key.to_owned(), row.to_owned()));
        records.len() < limit
    })?;
    Ok(records)
}
