use super::keys::{self, Key};
use super::{FIELD_LENGTH, RECORD_LENGTH, USERTABLE};
use crate::RecordTransaction;
use base::{PartitionId, Random};
use engine::{Database, PartitionSpec, Result};
use node::page_client::PageClient;

/// The record of this number as it is inserted: printable characters.
pub(super) fn record(number: u64) -> [u8; RECORD_LENGTH] {
    let mut random = Random::stream(number, "ycsb record");
    let mut record = [0; RECORD_LENGTH];
    random.fill(&mut record);
    record.iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
    debug_assert_eq!(record.len() % FIELD_LENGTH, 0);
    record
}

/// Creates the table and loads its records in the order of their keys; `progress` is called with the number loaded.
///
/// # Errors
/// The engine's.
pub async fn load(database: &Database, spec: PartitionSpec, records: u64, progress: impl FnMut(u64)) -> Result<()> {
    let mut numbers: Vec<u64> = (0..records).collect();
    numbers.sort_by_cached_key(|number| keys::rank(keys::hash(*number)));
    let partition = database.create_partition(spec).await?;
    let records = numbers.into_iter().map(|number| (Key::of(number), record(number)));
    database.load_b_tree(partition, records, progress).await?;
    database.checkpoint().await
}

/// How many records the table has: they are numbered without a gap.
///
/// # Errors
/// The engine's.
pub async fn records(database: &Database) -> Result<u64> {
    let partition = database.partition(USERTABLE)?;
    let exists = async |number: u64| database.transaction(async |tx| is_there(tx, partition, number).await).await;
    count(exists).await
}

/// How many records the table of a node's server has.
///
/// # Errors
/// Those of the calls.
pub async fn records_at_node(client: &PageClient) -> Result<u64> {
    let partition = client.partition(USERTABLE).await?.id();
    count(async |number| client.transaction(async |tx| is_there(tx, partition, number).await).await).await
}

async fn is_there(tx: &mut impl RecordTransaction, partition: PartitionId, number: u64) -> Result<bool> {
    tx.get_with(partition, Key::of(number).as_bytes(), |found| found.is_some()).await
}

async fn count(exists: impl AsyncFn(u64) -> Result<bool>) -> Result<u64> {
    let mut end = 1;
    while exists(end - 1).await? {
        end *= 2;
    }
    // Record `end - 1` is missing, and if there are any, record `begin - 1` is there.
    let mut begin = end / 2;
    while end - begin > 1 {
        let middle = begin + (end - begin) / 2;
        if exists(middle - 1).await? {
            begin = middle;
        } else {
            end = middle;
        }
    }
    Ok(begin)
}
