use super::{ACCOUNT, BRANCH, HISTORY, Scale, TELLER};
use base::{PartitionId, Random};
use engine::catalog::Organization;
use engine::{Catalog, Error, Prefetcher, Result, Transaction};

/// What one transaction changes, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The account's number.
    pub account: u64,
    /// The teller's number.
    pub teller: u64,
    /// The branch's number.
    pub branch: u64,
    /// The amount: -999,999 to 999,999.
    pub delta: i64,
}

impl Parameters {
    /// Draws a transaction: the teller uniformly, hence the branch; the account from the same branch with the scale's local
    /// share, else from another one.
    pub fn draw(scale: &Scale, random: &mut Random) -> Parameters {
        let teller = random.below(scale.tellers());
        let branch = teller / scale.tellers_per_branch;
        let home = if scale.branches == 1 || random.chance(scale.local) {
            branch
        } else {
            (branch + random.between(1, scale.branches - 1)) % scale.branches
        };
        let account = home * scale.accounts_per_branch + random.below(scale.accounts_per_branch);
        Parameters { account, teller, branch, delta: random.between(0, 1_999_998) as i64 - 999_999 }
    }

    /// The parameters as bytes, for a registered procedure.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (field, value) in bytes.chunks_exact_mut(8).zip([self.account, self.teller, self.branch, self.delta as u64])
        {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The record that goes to the history, of any length up to this.
    #[inline]
    pub(super) fn history(&self) -> [u8; 64] {
        let mut record = [0_u8; 64];
        let Parameters { account, teller, branch, delta } = *self;
        for (field, value) in record.chunks_exact_mut(8).zip([account, teller, branch, delta as u64]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        record
    }

    /// The inverse of [`Parameters::to_bytes`]; `None` if the length is another.
    pub fn from_bytes(bytes: &[u8]) -> Option<Parameters> {
        let words: &[[u8; 8]; 4] = bytes.as_chunks().0.try_into().ok().filter(|_| bytes.len() == 32)?;
        let [account, teller, branch, delta] = words.map(u64::from_le_bytes);
        Some(Parameters { account, teller, branch, delta: delta as i64 })
    }
}

/// How a table's records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Key(PartitionId),
    Set(PartitionId),
    Number(PartitionId),
}

impl Access {
    pub fn of(catalog: &Catalog, name: &str) -> Result<Access> {
        let id = catalog.partition(name)?;
        match catalog.describe(id)?.organization {
            Organization::BTree => Ok(Access::Key(id)),
            Organization::Set { arrivals: false, .. } => Ok(Access::Set(id)),
            Organization::Direct { .. } => Ok(Access::Number(id)),
            other => {
                let detail = "Debit-Credit needs a b-tree, a set or a direct partition".to_owned();
                Err(Error::WrongOrganization { partition: name.into(), organization: other.name(), detail })
            }
        }
    }

    /// Adds `delta` to the balance at the front of record `number`, or behind `skip` bytes of it.
    #[inline]
    async fn add(self, tx: &mut Transaction, number: u64, skip: usize, delta: i64) -> Result<i64> {
        let change = move |record: &mut [u8]| add_to(&mut record[skip..], delta);
        match self {
            Access::Set(partition) => {
                let sum = tx.add(partition, &number.to_be_bytes(), skip..skip + 8, delta).await?;
                Ok(sum as i64)
            }
            Access::Key(partition) => tx.modify(partition, &number.to_be_bytes(), change).await,
            Access::Number(partition) => tx.modify_object(partition, number, change).await,
        }
    }
}

pub(super) fn add_to(field: &mut [u8], delta: i64) -> i64 {
    let balance: &mut [u8; 8] = field.first_chunk_mut().expect("a balance of eight bytes");
    let sum = i64::from_le_bytes(*balance) + delta;
    *balance = sum.to_le_bytes();
    sum
}

/// The four partitions, ready for transactions.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(super) account: Access,
    /// Absent where tellers are clustered with their branch.
    pub(super) teller: Option<Access>,
    pub(super) branch: Access,
    pub(super) history: PartitionId,
    pub(super) scale: Scale,
}

impl Tables {
    /// Finds the partitions.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`].
    pub fn of(catalog: &Catalog, scale: &Scale) -> Result<Tables> {
        let teller = if scale.clustered { None } else { Some(Access::of(catalog, TELLER)?) };
        Ok(Tables {
            account: Access::of(catalog, ACCOUNT)?,
            teller,
            branch: Access::of(catalog, BRANCH)?,
            history: catalog.partition(HISTORY)?,
            scale: scale.clone(),
        })
    }

    /// The size of the database.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Asks for the account that a transaction will need; the other tables are small enough to stay in caches.
    #[inline]
    pub fn prefetch(&self, memory: &Prefetcher<'_>, parameters: &Parameters) {
        if let Access::Set(accounts) = self.account {
            memory.prefetch(accounts, &parameters.account.to_be_bytes());
        }
    }

    /// Where clustered balances are: the branch's own comes first, its tellers' follow.
    pub(super) fn cluster(&self, number: u64) -> u64 {
        1 + number % self.scale.tellers_per_branch
    }

    /// One transaction's four references: account and history first, the small tables last, so that their locks are held
    /// briefly (Rahm 1991, section 3.1). Clustered, the branch's reference brings the page, and the teller's finds it
    /// there; otherwise the branch, the smaller table, comes last. Returns the account's new balance.
    ///
    /// # Errors
    /// The engine's.
    #[inline]
    pub async fn run(&self, tx: &mut Transaction, parameters: &Parameters) -> Result<i64> {
        let Parameters { account, teller, branch, delta } = *parameters;
        let balance = self.account.add(tx, account, 0, delta).await?;
        tx.append(self.history, &parameters.history()[..self.scale.history_size.min(64)]).await?;
        match self.teller {
            Some(table) => {
                table.add(tx, teller, 0, delta).await?;
                self.branch.add(tx, branch, 0, delta).await?;
            }
            None => {
                let cluster = branch * (1 + self.scale.tellers_per_branch);
                self.branch.add(tx, cluster, 0, delta).await?;
                self.branch.add(tx, cluster + self.cluster(teller), 0, delta).await?;
            }
        }
        Ok(balance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_within_the_scale_and_mostly_local() {
        let scale = Scale::tpc_b(20);
        let mut random = Random::stream(1, "draw");
        let mut local = 0;
        for _ in 0..20_000 {
            let drawn = Parameters::draw(&scale, &mut random);
            assert!(drawn.account < scale.accounts() && drawn.teller < scale.tellers() && drawn.branch < 20);
            assert_eq!(drawn.teller / 10, drawn.branch);
            assert_eq!(Parameters::from_bytes(&drawn.to_bytes()), Some(drawn));
            local += u64::from(drawn.account / 100_000 == drawn.branch);
        }
        assert!((16_700..17_300).contains(&local), "{local}");
        assert_eq!(Parameters::from_bytes(&[0; 31]), None);
    }
}
