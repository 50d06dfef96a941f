use super::Tables;
use super::transaction::Access;
use engine::{Database, Direction, Result, Transaction};
use std::ops::Bound;

/// The four sums that are equal at any moment between transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Of all account balances.
    pub accounts: i64,
    /// Of all teller balances.
    pub tellers: i64,
    /// Of all branch balances.
    pub branches: i64,
    /// Of all amounts in the history, where its records hold them.
    pub history: Option<i64>,
    /// Records in the history.
    pub transactions: u64,
}

impl Totals {
    /// Whether the sums agree.
    pub fn agree(&self) -> bool {
        let tables = self.accounts == self.tellers && self.tellers == self.branches;
        tables && self.history.is_none_or(|history| history == self.accounts)
    }
}

/// Adds everything up, without locks: while no transaction runs.
///
/// # Errors
/// The engine's.
pub async fn totals(database: &Database, tables: &Tables) -> Result<Totals> {
    database.transaction(async |tx| totals_in(tx, tables, || ()).await).await
}

/// The same within a transaction whose isolation level shows it one moment. `seen` is called with each record.
///
/// # Errors
/// The engine's.
pub async fn totals_in(tx: &mut Transaction, tables: &Tables, mut seen: impl FnMut()) -> Result<Totals> {
    let scale = &tables.scale;
    // Nothing is waited for between the scans of sets.
    tx.segments_returned().await;
    let accounts = sum(tx, tables.account, 0..scale.accounts(), &mut seen).await?;
    let group = 1 + scale.tellers_per_branch;
    let (tellers, branches) = match tables.teller {
        Some(teller) => (
            sum(tx, teller, 0..scale.tellers(), &mut seen).await?,
            sum(tx, tables.branch, 0..scale.branches, &mut seen).await?,
        ),
        None => {
            let all = 0..scale.branches * group;
            let tellers = sum(tx, tables.branch, all.clone().filter(|number| number % group > 0), &mut seen).await?;
            (tellers, sum(tx, tables.branch, all.filter(|number| number % group == 0), &mut seen).await?)
        }
    };
    let has_amounts = scale.history_size >= 32;
    let (mut history, mut transactions) = (0, 0);
    tx.scan_appended(tables.history, |_, record| {
        if has_amounts {
            history += i64::from_le_bytes(record[24..32].try_into().expect("eight bytes"));
        }
        transactions += 1;
        seen();
        true
    })
    .await?;
    Ok(Totals { accounts, tellers, branches, history: has_amounts.then_some(history), transactions })
}

async fn sum(
    tx: &mut Transaction,
    table: Access,
    numbers: impl Iterator<Item = u64>,
    seen: &mut impl FnMut(),
) -> Result<i64> {
    let mut total = 0;
    let mut add = |record: &[u8]| {
        total += i64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
        seen();
    };
    match table {
        Access::Set(partition) => {
            tx.scan_set(partition, |_, value| {
                add(value);
                true
            })
            .await?;
        }
        Access::Key(partition) => {
            let mut cursor =
                tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward).without_locks();
            while let Some((_, value)) = tx.next(&mut cursor).await? {
                add(&value);
            }
        }
        Access::Number(partition) => {
            for number in numbers {
                tx.read_object(partition, number, &mut add).await?;
            }
        }
    }
    Ok(total)
}
