//! The bank of TPC-B (TPC Benchmark B, revision 2.0, clauses 1 and 5): its rows, its tellers' requests, its invariant.

use crate::peer::Requests;
use base::Random;
use thiserror::Error;

/// Bytes of a row besides its 8-byte key; with the key the row has the 100 bytes that TPC-B asks for (clause 3.2).
pub const ROW_VALUE_BYTES: usize = 92;
/// Bytes of a history row besides its 8-byte key; with the key 50 bytes (clause 3.2).
pub const HISTORY_VALUE_BYTES: usize = 42;

/// Accounts of one branch (clause 4.2).
pub const ACCOUNTS_PER_BRANCH: u64 = 100_000;
/// Tellers of one branch (clause 4.2).
pub const TELLERS_PER_BRANCH: u64 = 10;

/// An account, teller or branch without its key: the balance in the first 8 bytes, little endian, then filler.
pub type Row = [u8; ROW_VALUE_BYTES];
/// A history row without its key: account, teller, branch, delta and time, 8 bytes each, then filler.
pub type HistoryRow = [u8; HISTORY_VALUE_BYTES];

/// The tables that hold balances. History is the fourth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// 100,000 rows a branch.
    Account,
    /// 10 rows a branch.
    Teller,
    /// As many rows as the scale says.
    Branch,
}

impl Table {
    /// All of them, in the order in which a transaction touches them.
    pub const ALL: [Table; 3] = [Table::Account, Table::Teller, Table::Branch];

    /// The table's name in the engines.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Account => "account",
            Table::Teller => "teller",
            Table::Branch => "branch",
        }
    }
}

/// The name of the history table in the engines.
pub const HISTORY: &str = "history";

/// A row that must exist and does not.
#[derive(Debug, Error)]
#[error("{} {id} is missing", table.name())]
pub struct MissingRow {
    /// Where it should be.
    pub table: Table,
    /// Its key.
    pub id: u64,
}

/// The number of branches; everything else follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(pub u64);

impl Scale {
    /// How many rows a table has; their keys are `0..rows`.
    pub const fn rows(self, table: Table) -> u64 {
        match table {
            Table::Account => self.0 * ACCOUNTS_PER_BRANCH,
            Table::Teller => self.0 * TELLERS_PER_BRANCH,
            Table::Branch => self.0,
        }
    }
}

/// A key as the engines order it.
pub const fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// A fresh row with balance 0. The filler depends on the key and does not compress.
pub fn row(id: u64) -> Row {
    let mut row = [0; ROW_VALUE_BYTES];
    let mut word = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for chunk in row[8..].chunks_mut(8) {
        // Marsaglia's xorshift64.
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    row
}

/// The balance of a row.
///
/// # Panics
/// If `row` is shorter than 8 bytes.
pub fn balance(row: &[u8]) -> i64 {
    i64::from_le_bytes(row[..8].try_into().expect("8 bytes were sliced"))
}

/// Adds `delta` to the balance of a row and returns the new balance.
///
/// # Panics
/// If `row` is shorter than 8 bytes.
pub fn add(row: &mut [u8], delta: i64) -> i64 {
    let balance = balance(row) + delta;
    row[..8].copy_from_slice(&balance.to_le_bytes());
    balance
}

/// The delta in a history row.
///
/// # Panics
/// If `row` is shorter than 32 bytes.
pub fn history_delta(row: &[u8]) -> i64 {
    balance(&row[24..])
}

/// What a client asks for: one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The key of the account.
    pub account: u64,
    /// The key of the teller.
    pub teller: u64,
    /// The key of the teller's branch.
    pub branch: u64,
    /// What is added to all three balances.
    pub delta: i64,
    /// The key of the history row.
    pub sequence: u64,
    /// The time stamp of the history row, in nanoseconds since the run began.
    pub time_ns: u64,
}

impl Transfer {
    /// The rows whose balances change, in the order in which the transaction touches them.
    pub const fn rows(&self) -> [(Table, u64); 3] {
        [(Table::Account, self.account), (Table::Teller, self.teller), (Table::Branch, self.branch)]
    }

    /// The request as bytes, for a registered procedure.
    pub fn to_bytes(self) -> [u8; 48] {
        let mut bytes = [0; 48];
        let words = [self.account, self.teller, self.branch, self.delta as u64, self.sequence, self.time_ns];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Transfer::to_bytes`].
    ///
    /// # Panics
    /// If there are fewer than 48 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Transfer {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("8 bytes were sliced"));
        let (account, teller, branch, delta) = (word(0), word(1), word(2), word(3) as i64);
        Transfer { account, teller, branch, delta, sequence: word(4), time_ns: word(5) }
    }

    /// The history row without its key.
    pub fn history_row(&self) -> HistoryRow {
        let mut row = [0x5a; HISTORY_VALUE_BYTES];
        let words = [self.account, self.teller, self.branch, self.delta as u64, self.time_ns];
        for (chunk, word) in row.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        row
    }
}

/// One client: draws requests as clause 5.3 prescribes.
#[derive(Debug)]
pub struct Terminal {
    scale: Scale,
    random: Random,
}

impl Terminal {
    /// The share of requests whose account belongs to the teller's own branch.
    pub const LOCAL_SHARE: f64 = 0.85;
    /// The largest absolute value of a delta.
    pub const DELTA_MAX: i64 = 999_999;

    /// The client `number` of a run under `seed`.
    pub fn new(scale: Scale, seed: u64, number: usize) -> Terminal {
        Terminal { scale, random: Random::stream(seed, &format!("terminal {number}")) }
    }

    /// The next request.
    pub fn next(&mut self, sequence: u64, time_ns: u64) -> Transfer {
        let teller = self.random.below(self.scale.rows(Table::Teller));
        let branch = teller / TELLERS_PER_BRANCH;
        let branches = self.scale.rows(Table::Branch);
        let home = if branches == 1 || self.random.chance(Self::LOCAL_SHARE) {
            branch
        } else {
            (branch + 1 + self.random.below(branches - 1)) % branches
        };
        let account = home * ACCOUNTS_PER_BRANCH + self.random.below(ACCOUNTS_PER_BRANCH);
        let delta = self.random.below(2 * Self::DELTA_MAX as u64 + 1) as i64 - Self::DELTA_MAX;
        Transfer { account, teller, branch, delta, sequence, time_ns }
    }
}

impl Requests for Scale {
    type Terminal = Terminal;
    type Request = Transfer;
    type Answer = i64;

    fn terminal(&self, seed: u64, number: usize) -> Terminal {
        Terminal::new(*self, seed, number)
    }

    fn next(&self, terminal: &mut Terminal, sequence: u64, time_ns: u64) -> Transfer {
        terminal.next(sequence, time_ns)
    }

    fn time_ns(transfer: &Transfer) -> u64 {
        transfer.time_ns
    }
}

/// What the tables add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// All balances of accounts.
    pub accounts: i64,
    /// All balances of tellers.
    pub tellers: i64,
    /// All balances of branches.
    pub branches: i64,
    /// All deltas in the history.
    pub history: i64,
    /// How many rows the history has.
    pub history_rows: u64,
}

/// The books do not balance: the engine lost or invented something.
#[derive(Debug, Error)]
#[error("the books do not balance: {sums:?}, {expected_rows} transactions were acknowledged")]
pub struct Imbalance {
    sums: Sums,
    expected_rows: u64,
}

impl Sums {
    /// The place for the sum of a table's balances.
    pub fn of_mut(&mut self, table: Table) -> &mut i64 {
        match table {
            Table::Account => &mut self.accounts,
            Table::Teller => &mut self.tellers,
            Table::Branch => &mut self.branches,
        }
    }

    /// Adds a history row.
    pub fn add_history(&mut self, row: &[u8]) {
        self.history += history_delta(row);
        self.history_rows += 1;
    }

    /// The consistency conditions of TPC-B (clause 2.3): all four sums are equal and every acknowledged transaction has its
    /// history row.
    ///
    /// # Errors
    /// [`Imbalance`] if one does not hold.
    pub fn check(self, expected_rows: u64) -> Result<(), Imbalance> {
        let equal = self.accounts == self.tellers && self.tellers == self.branches && self.branches == self.history;
        if equal && self.history_rows == expected_rows { Ok(()) } else { Err(Imbalance { sums: self, expected_rows }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_clause_5_3() {
        let scale = Scale(50);
        let mut terminal = Terminal::new(scale, 1, 0);
        let count = 200_000;
        let mut local = 0;
        for sequence in 0..count {
            let transfer = terminal.next(sequence, 0);
            assert!(transfer.account < scale.rows(Table::Account) && transfer.teller < scale.rows(Table::Teller));
            assert_eq!(transfer.branch, transfer.teller / TELLERS_PER_BRANCH);
            assert!(transfer.delta.abs() <= Terminal::DELTA_MAX);
            local += u64::from(transfer.account / ACCOUNTS_PER_BRANCH == transfer.branch);
        }
        let share = local as f64 / count as f64;
        assert!((share - Terminal::LOCAL_SHARE).abs() < 0.005, "{share}");
    }

    #[test]
    fn rows_carry_balances_and_deltas() {
        let mut account = row(7);
        assert_eq!(balance(&account), 0);
        assert_eq!(add(&mut account, -5), -5);
        assert_eq!(add(&mut account, 12), 7);
        assert_eq!(account[8..], row(7)[8..]);
        assert_ne!(row(7)[8..], row(8)[8..]);
        let transfer = Transfer { account: 1, teller: 2, branch: 3, delta: -42, sequence: 4, time_ns: 5 };
        assert_eq!(history_delta(&transfer.history_row()), -42);
    }

    #[test]
    fn a_lost_row_is_an_imbalance() {
        let sums = Sums { accounts: 3, tellers: 3, branches: 3, history: 3, history_rows: 2 };
        assert!(sums.check(2).is_ok());
        assert!(sums.check(3).is_err());
        assert!(Sums { tellers: 4, ..sums }.check(2).is_err());
    }
}
