//! Debit-Credit through a node of a page server: transactions run there on copies of pages.

use super::transaction::{Access, add_to};
use super::{ACCOUNT, BRANCH, DebitCredit, HISTORY, Parameters, Scale, TELLER, Tables};
use crate::at_node::AtNode;
use engine::catalog::Organization;
use engine::{Error, Result};
use node::page_client::{PageClient, PageTransaction};
use std::ops::Bound;

impl Tables {
    /// Finds the partitions at a node's server, and how large they are.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::WrongOrganization`] for sets, which have no pages; those of reading all branches.
    pub async fn at_node(client: &PageClient) -> Result<Tables> {
        let branch = client.partition(BRANCH).await?;
        let (is_clustered, objects) = match branch.organization {
            Organization::Direct { objects, .. } => (true, objects),
            _ => (false, count(client, branch.id()).await?),
        };
        let scale = if is_clustered {
            Scale::rahm_1991(objects / (1 + Scale::tpc_b(1).tellers_per_branch))
        } else {
            Scale::tpc_b(objects)
        };
        let teller = if is_clustered { None } else { Some(access(client, TELLER).await?) };
        let history = client.partition(HISTORY).await?.id();
        Ok(Tables {
            account: access(client, ACCOUNT).await?,
            teller,
            branch: access(client, BRANCH).await?,
            history,
            scale,
        })
    }

    /// The references of one transaction, in the order of [`Tables::run`].
    ///
    /// # Errors
    /// Those of the calls; [`Error::WrongOrganization`] for sets, which have no pages.
    pub async fn run_at_node(&self, tx: &mut PageTransaction, parameters: &Parameters) -> Result<()> {
        let Parameters { account, teller, branch, delta } = *parameters;
        add(self.account, tx, account, delta).await?;
        tx.append(self.history, &parameters.history()[..self.scale.history_size.min(64)]).await?;
        match self.teller {
            Some(table) => {
                add(table, tx, teller, delta).await?;
                add(self.branch, tx, branch, delta).await
            }
            None => {
                let cluster = branch * (1 + self.scale.tellers_per_branch);
                add(self.branch, tx, cluster, delta).await?;
                add(self.branch, tx, cluster + self.cluster(teller), delta).await
            }
        }
    }
}

async fn access(client: &PageClient, name: &str) -> Result<Access> {
    let found = client.partition(name).await?;
    match found.organization {
        Organization::BTree => Ok(Access::Key(found.id())),
        Organization::Direct { .. } => Ok(Access::Number(found.id())),
        other => {
            let detail = "Debit-Credit through a node needs a b-tree or a direct partition".to_owned();
            Err(Error::WrongOrganization { partition: name.into(), organization: other.name(), detail })
        }
    }
}

/// How many branches a b-tree has: their numbers have no gaps.
async fn count(client: &PageClient, branches: base::PartitionId) -> Result<u64> {
    let (mut tx, mut count) = (client.begin().await, 0);
    tx.scan(branches, Bound::Unbounded, |_, _| {
        count += 1;
        true
    })
    .await?;
    tx.commit().await?;
    Ok(count)
}

async fn add(table: Access, tx: &mut PageTransaction, number: u64, delta: i64) -> Result<()> {
    let change = |record: &mut [u8]| add_to(record, delta);
    match table {
        Access::Key(partition) => tx.modify(partition, &number.to_be_bytes(), change).await.map(drop),
        Access::Number(partition) => tx.modify_object(partition, number, change).await.map(drop),
        Access::Set(partition) => Err(Error::WrongOrganization {
            partition: partition.0.to_string(),
            organization: "set",
            detail: "Debit-Credit through a node needs a b-tree or a direct partition".to_owned(),
        }),
    }
}

impl AtNode for DebitCredit {
    async fn run_at_node(&self, tx: &mut PageTransaction, input: &Parameters) -> Result<()> {
        self.0.run_at_node(tx, input).await
    }
}
