//! SQLite through rusqlite, with a write-ahead log. One writer at a time and one sync a commit.

use crate::bank::{HISTORY, MissingRow, Scale, Sums, Table, Transfer, row};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::engines::CACHE_BYTES;
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages in the log at which it is copied into the database: 256 MiB.
const CHECKPOINT_PAGES: u32 = 65_536;

/// The only connection: SQLite has one writer, and an exclusive one needs no shared memory.
pub struct Sqlite {
    connection: Mutex<Connection>,
}

/// The texts of a transaction, made once.
struct Statements {
    update: [String; 3],
    balance: String,
    history: String,
}

/// Creates a database in an empty directory.
pub fn connect(directory: &Path, durability: Durability, cache_bytes: usize) -> rusqlite::Result<Connection> {
    let connection = Connection::open(directory.join("sqlite"))?;
    let synchronous = match durability {
        Durability::Sync => "FULL",
        Durability::Off => "OFF",
    };
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", -((cache_bytes >> 10) as i64))?;
    Ok(connection)
}

impl Sqlite {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let connection = connect(directory, durability, CACHE_BYTES)?;
        for table in Table::ALL {
            let sql = "(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler BLOB NOT NULL)";
            connection.execute(&format!("CREATE TABLE {} {sql}", table.name()), ())?;
        }
        let sql = "(id INTEGER PRIMARY KEY, account INTEGER, teller INTEGER, branch INTEGER, delta INTEGER, time INTEGER, \
                   filler BLOB)";
        connection.execute(&format!("CREATE TABLE {HISTORY} {sql}"), ())?;
        connection.set_prepared_statement_cache_capacity(16);
        Ok(Box::new(Sqlite { connection: Mutex::new(connection) }))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Sqlite {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        let mut connection = self.connection();
        for table in Table::ALL {
            let transaction = connection.transaction()?;
            let mut insert = transaction.prepare(&format!("INSERT INTO {} VALUES (?1, 0, ?2)", table.name()))?;
            for id in 0..scale.rows(table) {
                insert.execute(params![id as i64, &row(id)[8..]])?;
            }
            drop(insert);
            transaction.commit()?;
        }
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        let connection = self.connection();
        let mut sums = Sums::default();
        for table in Table::ALL {
            let sql = format!("SELECT COALESCE(SUM(balance), 0) FROM {}", table.name());
            *sums.of_mut(table) = connection.query_row(&sql, (), |columns| columns.get(0))?;
        }
        let sql = format!("SELECT COALESCE(SUM(delta), 0), COUNT(*) FROM {HISTORY}");
        (sums.history, sums.history_rows) =
            connection.query_row(&sql, (), |columns| Ok((columns.get(0)?, columns.get::<_, i64>(1)? as u64)))?;
        Ok(sums)
    }
}

impl Engine for Sqlite {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        let update = |table: Table| format!("UPDATE {} SET balance = balance + ?1 WHERE id = ?2", table.name());
        let statements = Statements {
            update: Table::ALL.map(update),
            balance: format!("SELECT balance FROM {} WHERE id = ?1", Table::Account.name()),
            history: format!("INSERT INTO {HISTORY} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
        };
        Ok(Box::new(SqliteSession { connection: self.connection(), statements }))
    }
}

struct SqliteSession<'a> {
    connection: MutexGuard<'a, Connection>,
    statements: Statements,
}

impl Session for SqliteSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for transfer in transfers {
            for (table, id) in transfer.rows() {
                let mut update = transaction.prepare_cached(&self.statements.update[table as usize])?;
                if update.execute(params![transfer.delta, id as i64])? != 1 {
                    return Err(MissingRow { table, id }.into());
                }
            }
            let mut balance = transaction.prepare_cached(&self.statements.balance)?;
            balances.push(balance.query_row([transfer.account as i64], |columns| columns.get(0))?);
            let Transfer { account, teller, branch, delta, sequence, time_ns } = *transfer;
            transaction.prepare_cached(&self.statements.history)?.execute(params![
                sequence as i64,
                account as i64,
                teller as i64,
                branch as i64,
                delta,
                time_ns as i64,
                [0x5a_u8; 22],
            ])?;
        }
        transaction.commit()?;
        Ok(())
    }
}
