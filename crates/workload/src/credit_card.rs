//! The credit-card workload of System M (Garcia-Molina and Salem, 1988, section 4), after a benchmark of IMS/VS Fast Path:
//! four memory-resident sets and eight types of transactions. What the paper leaves open (the fields' types, what the three rare types do, amounts)
//! is chosen so that sizes are those of the paper and money adds up at the end.

mod draw;
mod load;
mod procedure;
mod transaction;
mod verify;

pub use draw::{Kind, Parameters};
pub use load::{load, record};
pub use procedure::{procedures, register};
pub use transaction::Tables;
pub use verify::{Totals, totals};

use engine::{Database, Result};

/// The set of accounts, by number: credit limit, used credit, what was paid back, expiration date.
pub const ACCOUNT: &str = "account";
/// The set of customers, by the number of their account: name, address, social security number.
pub const CUSTOMER: &str = "customer";
/// The set of cards that are reported as lost, by the number of their account: attempts to use them, date of the report.
pub const HOT_CARD: &str = "hot-card";
/// The set of stores, by number: name, and counters of what happens there.
pub const STORE: &str = "store";
/// All four, in the order in which they are loaded.
pub const SETS: [&str; 4] = [ACCOUNT, CUSTOMER, HOT_CARD, STORE];

/// How many records there are.
///
/// ```
/// use entresol_workload::credit_card::Scale;
///
/// let paper = Scale::system_m();
/// assert_eq!((paper.accounts, paper.hot_cards(), paper.stores()), (40_000, 100, 5_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Accounts, and as many customers: at least 2.
    pub accounts: u64,
}

impl Scale {
    /// The paper's: 40,000 accounts.
    pub fn system_m() -> Scale {
        Scale { accounts: 40_000 }
    }

    /// Stores: one for eight accounts.
    pub fn stores(self) -> u64 {
        self.accounts.div_ceil(8)
    }

    /// Cards reported as lost at the beginning, and about as many at any time: one of 400.
    pub fn hot_cards(self) -> u64 {
        self.accounts.div_ceil(400)
    }

    /// The account whose owner may lose card `number`: every two-hundredth, so that half of them are hot.
    fn careless(self, number: u64) -> u64 {
        number * 200 % self.accounts
    }
}

/// Whether the database holds the four sets.
pub fn exists(database: &Database) -> bool {
    SETS.iter().all(|name| database.partition(name).is_ok())
}

/// The credit-card workload as one that [`crate::run::run`] runs.
pub struct CreditCard(pub Tables);

impl crate::run::Workload for CreditCard {
    type Input = Parameters;

    fn draw(&self, random: &mut base::Random) -> Parameters {
        Parameters::draw(self.0.scale(), random)
    }

    async fn run(&self, tx: &mut engine::Transaction, input: &Parameters) -> Result<()> {
        self.0.run(tx, input).await.map(|_| ())
    }

    fn types(&self) -> Vec<String> {
        Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect()
    }

    fn type_of(&self, input: &Parameters) -> usize {
        input.kind as usize
    }

    fn procedures(&self) -> Vec<String> {
        self.types()
    }

    fn request(&self, input: &Parameters, parameters: &mut Vec<u8>) -> usize {
        parameters.extend(input.to_bytes());
        input.kind as usize
    }
}

#[cfg(test)]
mod tests;
