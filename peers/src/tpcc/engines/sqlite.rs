//! SQLite as a store of keys and rows: one table of two columns without rowids for each of TPC-C's.

use crate::closed_loop::Measured;
use crate::engines::sqlite::connect;
use crate::peer::{Engine, Grouping, PeerResult, Session};
use crate::tpcc::peer::{Clients, Opening, Peer, load_in_parts};
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{MissingRow, Record, Table, Tables, page};
use crate::tpcc::transactions;
use entresol::Direction;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use workload::tpcc::Scale;

/// The only connection.
pub struct Sqlite {
    connection: Mutex<Connection>,
    statements: Vec<Statements>,
}

/// The texts for one table.
struct Statements {
    read: String,
    insert: String,
    update: String,
    delete: String,
    forward: String,
    backward: String,
}

impl Statements {
    fn of(table: Table) -> Statements {
        let name = format!("\"{}\"", table.name());
        let range = format!("SELECT key, row FROM {name} WHERE key BETWEEN ?1 AND ?2 ORDER BY key");
        Statements {
            read: format!("SELECT row FROM {name} WHERE key = ?1"),
            insert: format!("INSERT INTO {name} VALUES (?1, ?2)"),
            update: format!("UPDATE {name} SET row = ?2 WHERE key = ?1"),
            delete: format!("DELETE FROM {name} WHERE key = ?1"),
            forward: range.clone(),
            backward: format!("{range} DESC"),
        }
    }
}

impl Sqlite {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        let connection = connect(directory, opening.durability, opening.cache_bytes)?;
        for table in Table::ALL {
            let columns = "(key BLOB PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID";
            connection.execute(&format!("CREATE TABLE \"{}\" {columns}", table.name()), ())?;
        }
        connection.set_prepared_statement_cache_capacity(6 * Table::ALL.len());
        let statements = Table::ALL.into_iter().map(Statements::of).collect();
        Ok(Box::new(Sqlite { connection: Mutex::new(connection), statements }))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Sqlite {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        let mut connection = self.connection();
        load_in_parts(scale, |table, records| {
            let transaction = connection.transaction()?;
            let mut tables = SqliteTables { transaction: &transaction, statements: &self.statements };
            for (key, row) in records {
                tables.insert(table, &key, &row)?;
            }
            Ok(transaction.commit()?)
        })?;
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        page(&mut SqliteTables { transaction: &transaction, statements: &self.statements }, table, after, limit)
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        crate::tpcc::peer::execute(self, requests)
    }
}

impl Engine<Terminals> for Sqlite {
    fn session(&self) -> PeerResult<Box<dyn Session<Terminals> + '_>> {
        Ok(Box::new(SqliteSession { connection: self.connection(), statements: &self.statements }))
    }
}

struct SqliteSession<'a> {
    connection: MutexGuard<'a, Connection>,
    statements: &'a [Statements],
}

impl Session<Terminals> for SqliteSession<'_> {
    fn commit(&mut self, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut tables = SqliteTables { transaction: &transaction, statements: self.statements };
        transactions::run_all(&mut tables, requests, answers)?;
        Ok(transaction.commit()?)
    }
}

struct SqliteTables<'a> {
    transaction: &'a Transaction<'a>,
    statements: &'a [Statements],
}

impl SqliteTables<'_> {
    /// Executes a statement that changes the row of `key`, which must exist.
    fn change(&self, sql: &str, parameters: impl rusqlite::Params, (table, key): (Table, &[u8])) -> PeerResult<()> {
        if self.transaction.prepare_cached(sql)?.execute(parameters)? != 1 {
            return Err(MissingRow::new(table, key).into());
        }
        Ok(())
    }
}

fn bytes<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => Err(rusqlite::Error::InvalidColumnType(column, "bytes".to_owned(), other.data_type())),
    }
}

impl Tables for SqliteTables<'_> {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        let mut read = self.transaction.prepare_cached(&self.statements[table as usize].read)?;
        Ok(read.query_row([key], |row| bytes(row, 0).map(look)).optional()?)
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.change(&self.statements[table as usize].insert, (key, row), (table, key))
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.change(&self.statements[table as usize].update, (key, row), (table, key))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        self.change(&self.statements[table as usize].delete, [key], (table, key))
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let statements = &self.statements[table as usize];
        let sql = if direction == Direction::Forward { &statements.forward } else { &statements.backward };
        let mut range = self.transaction.prepare_cached(sql)?;
        let mut rows = range.query([lower, upper])?;
        while let Some(row) = rows.next()? {
            if !see(bytes(row, 0)?, bytes(row, 1)?) {
                break;
            }
        }
        Ok(())
    }
}
