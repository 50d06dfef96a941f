use super::Tables;
use engine::{Database, Internals, Result};
use std::collections::BTreeSet;

/// What is the same at any moment between transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Accounts, and customers.
    pub accounts: u64,
    /// See [`Totals::accounts`].
    pub customers: u64,
    /// What all accounts owe and have paid back, in cents.
    pub charged: i64,
    /// What all stores have sold, in cents.
    pub sold: i64,
    /// Cards that are reported as lost.
    pub hot_cards: u64,
    /// Those of them that belong to no account.
    pub strange: u64,
}

impl Totals {
    /// Whether every account has a customer, money was neither made nor lost, and every hot card belongs to an account.
    pub fn agree(&self) -> bool {
        self.accounts == self.customers && self.charged == self.sold && self.strange == 0
    }
}

/// Adds everything up, without locks: while no transaction runs.
///
/// # Errors
/// The engine's.
pub async fn totals(database: &Database, tables: &Tables) -> Result<Totals> {
    database
        .transaction(async |tx| {
            database.segments_returned().await;
            let (mut charged, mut sold, mut accounts) = (0, 0, BTreeSet::new());
            tx.scan_set(tables.account.partition, |key, value| {
                accounts.insert(key.to_vec());
                charged += tables.account.number(value, tables.used) + tables.account.number(value, tables.paid);
                true
            })
            .await?;
            tx.scan_set(tables.store.partition, |_, value| {
                sold += tables.store.number(value, tables.sold);
                true
            })
            .await?;
            let (mut hot_cards, mut strange, mut customers) = (0, 0, 0);
            tx.scan_set(tables.hot_card.partition, |key, _| {
                hot_cards += 1;
                strange += u64::from(!accounts.contains(key));
                true
            })
            .await?;
            tx.scan_set(tables.customer.partition, |key, _| {
                customers += u64::from(accounts.contains(key));
                true
            })
            .await?;
            Ok(Totals { accounts: accounts.len() as u64, customers, charged, sold, hot_cards, strange })
        })
        .await
}
