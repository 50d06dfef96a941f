use super::{ACCOUNT, BRANCH, HISTORY, Scale, TELLER};
use engine::{Database, PartitionSpec, Result};

/// Creates the partitions and fills those that are b-trees. Direct partitions begin with zeros, which are their balances.
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
        let keyed = spec.organization == engine::catalog::Organization::BTree;
        let partition = database.create_partition(spec).await?;
        if keyed {
            let records = (0..count).map(|number| (number.to_be_bytes(), &record[..]));
            database.load_b_tree(partition, records, |loaded| progress(done + loaded)).await?;
        }
        done += count;
        progress(done);
    }
    database.create_partition(spec(HISTORY)?).await?;
    database.checkpoint().await
}
