//! What the shell does to whole partitions.

use crate::Failure;
use base::PartitionId;
use base::units::format_size;
use entresol::{Database, Handle};

/// A request about a partition.
#[derive(Debug, PartialEq)]
pub struct PartitionCommand {
    pub partition: String,
    pub change: PartitionChange,
}

#[derive(Debug, PartialEq)]
pub enum PartitionChange {
    Rename(String),
    Truncate,
    Drop,
    Compact,
}

impl PartitionCommand {
    /// Does it. The answer to what gives room back says how much.
    pub fn run(self, handle: &Handle) -> Result<String, Failure> {
        let PartitionCommand { partition, change } = self;
        let work = handle.with_database(async move |database| {
            let id = database.partition(&partition)?;
            match change {
                PartitionChange::Rename(name) => database.rename_partition(id, &name).await.map(|()| 0),
                PartitionChange::Truncate => {
                    let before = file_bytes(database, id).await;
                    let empty = database.truncate_partition(id).await?;
                    Ok(before.saturating_sub(file_bytes(database, empty).await))
                }
                PartitionChange::Drop => {
                    let before = file_bytes(database, id).await;
                    database.drop_partition(id).await.map(|()| before)
                }
                PartitionChange::Compact => {
                    let done = database.compact_partition(id).await?;
                    Ok(done.given_back + done.memory)
                }
            }
        });
        let given_back = work.wait()?;
        Ok(if given_back == 0 { "done".to_owned() } else { format!("done; {} given back", format_size(given_back)) })
    }
}

/// The bytes of a partition's files, with those of its indexes. One that cannot be read counts for nothing: damage must
/// not keep it from being dropped.
async fn file_bytes(database: &Database, id: PartitionId) -> u64 {
    let mut sum = 0;
    for partition in database.partitions() {
        if partition.id() == id || partition.index_of == Some(id) {
            sum += database.size(partition.id()).await.map_or(0, |size| size.file);
        }
    }
    sum
}
