//! Debit-Credit, also known as TPC-A and TPC-B (Anon et al. 1985; TPC Benchmark B, 1990): a teller of a branch changes an
//! account; account, teller and branch balances change by the same amount and the history grows by one record.

mod at_node;
mod load;
mod procedure;
mod transaction;
mod verify;

pub use load::load;
pub use procedure::{PROCEDURE, register};
pub use transaction::{Parameters, Tables};
pub use verify::{Totals, totals, totals_in};

use engine::catalog::Organization;
use engine::{Database, Direction, Result};
use std::ops::Bound;

/// How large the database is and how records are laid out.
///
/// ```
/// use entresol_workload::debit_credit::Scale;
///
/// let bank = Scale::tpc_b(50);
/// assert_eq!((bank.branches, bank.tellers(), bank.accounts()), (50, 500, 5_000_000));
/// let small = Scale { accounts_per_branch: 1_000, local: 1.0, ..Scale::tpc_b(2) };
/// assert_eq!(small.accounts(), 2_000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Branches.
    pub branches: u64,
    /// Tellers of each branch.
    pub tellers_per_branch: u64,
    /// Accounts of each branch.
    pub accounts_per_branch: u64,
    /// The share (0 to 1) of transactions whose account belongs to the teller's branch.
    pub local: f64,
    /// The size of account, teller and branch records in bytes, key included.
    pub record_size: usize,
    /// The size of a history record in bytes.
    pub history_size: usize,
    /// Branch and tellers of a branch share one record (Rahm 1991: one page), so a transaction touches three pages.
    pub clustered: bool,
}

impl Scale {
    /// TPC-B: 10 tellers and 100,000 accounts a branch, records of 100 bytes, history records of 50, 85 % local.
    pub fn tpc_b(branches: u64) -> Scale {
        Scale {
            branches,
            tellers_per_branch: 10,
            accounts_per_branch: 100_000,
            local: 0.85,
            record_size: 100,
            history_size: 50,
            clustered: false,
        }
    }

    /// Rahm 1991, table 4.1: only balances are stored; branch and tellers are clustered on one page.
    pub fn rahm_1991(branches: u64) -> Scale {
        Scale { record_size: 8, history_size: 3, clustered: true, ..Scale::tpc_b(branches) }
    }

    /// All tellers.
    pub fn tellers(&self) -> u64 {
        self.branches * self.tellers_per_branch
    }

    /// All accounts.
    pub fn accounts(&self) -> u64 {
        self.branches * self.accounts_per_branch
    }
}

/// The names of the four partitions.
pub const ACCOUNT: &str = "account";
/// See [`ACCOUNT`].
pub const TELLER: &str = "teller";
/// See [`ACCOUNT`].
pub const BRANCH: &str = "branch";
/// See [`ACCOUNT`].
pub const HISTORY: &str = "history";

/// Whether the database holds the four partitions.
pub fn exists(database: &Database) -> bool {
    [ACCOUNT, BRANCH, HISTORY].iter().all(|name| database.partition(name).is_ok())
}

/// How many branches the database holds; `clustered` as in [`Scale`].
///
/// # Errors
/// The engine's.
pub async fn branches(database: &Database, clustered: bool) -> Result<u64> {
    let partition = database.partition(BRANCH)?;
    let objects = match database.describe(partition)?.organization {
        Organization::Direct { objects, .. } => objects,
        Organization::Set { .. } => database.set_records(partition).unwrap_or(0),
        _ => {
            let mut tx = database.begin().await?;
            let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            let last = tx.next(&mut cursor).await?;
            tx.rollback().await?;
            let number = last.and_then(|(key, _)| Some(u64::from_be_bytes(*key.first_chunk()?)));
            number.map_or(0, |number| number + 1)
        }
    };
    Ok(if clustered { objects / (1 + Scale::tpc_b(1).tellers_per_branch) } else { objects })
}

/// Debit-Credit as a workload that [`crate::run::run`] runs.
pub struct DebitCredit(pub Tables);

impl crate::run::Workload for DebitCredit {
    type Input = Parameters;

    fn draw(&self, random: &mut base::Random) -> Parameters {
        Parameters::draw(self.0.scale(), random)
    }

    fn prefetch(&self, memory: &engine::Prefetcher<'_>, input: &Parameters) {
        self.0.prefetch(memory, input);
    }

    async fn run(&self, tx: &mut engine::Transaction, input: &Parameters) -> engine::Result<()> {
        self.0.run(tx, input).await.map(|_| ())
    }

    fn procedures(&self) -> Vec<String> {
        vec![PROCEDURE.to_owned()]
    }

    fn request(&self, input: &Parameters, parameters: &mut Vec<u8>) -> usize {
        parameters.extend(input.to_bytes());
        0
    }
}
