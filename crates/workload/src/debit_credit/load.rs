use super::{ACCOUNT, BRANCH, HISTORY, Scale, TELLER};
use engine::catalog::Organization;
use engine::{Database, PartitionSpec, Result};

/// Creates the partitions and fills those whose records have keys. Direct partitions begin with zeros, which are their balances.
/// `spec` gives the partitions their organization, by name; `progress` hears how many records are loaded.
///
/// # Errors
/// The engine's.
pub async fn load(
    database: &Database,
    scale: &Scale,
    spec: impl Fn(&str) -> Result<PartitionSpec>,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut tables = vec![(ACCOUNT, scale.accounts())];
    if scale.clustered {
        tables.push((BRANCH, scale.branches));
    } else {
        tables.extend([(TELLER, scale.tellers()), (BRANCH, scale.branches)]);
    }
    let record = vec![0_u8; scale.record_size.saturating_sub(8)];
    let mut done = 0;
    for (name, count) in tables {
        let spec = spec(name)?;
        let organization = spec.organization;
        let partition = database.create_partition(spec).await?;
        let records = (0..count).map(|number| (number.to_be_bytes(), &record[..]));
        match organization {
            Organization::BTree => {
                database.load_b_tree(partition, records, |loaded| progress(done + loaded)).await?;
            }
            Organization::Set { arrivals: false, .. } => {
                database.load_set(partition, records, |loaded| progress(done + loaded)).await?;
            }
            _ => {}
        }
        done += count;
        progress(done);
    }
    database.create_partition(spec(HISTORY)?).await?;
    database.checkpoint().await
}
