//! Records of memory-resident sets that are sent, and commits that change such.

use super::ServerNode;
use crate::message::{Answer, ClientId, SetRecord, SetValue, SetWrite, Transaction, place_in_set};
use base::PartitionId;
use engine::catalog::Organization;
use engine::{Database, Error, Result, SetChange};

/// Whether the partition is a set whose records have keys.
pub(super) fn is_set(database: &Database, partition: PartitionId) -> bool {
    let found = database.describe(partition);
    found.is_ok_and(|found| matches!(found.organization, Organization::Set { arrivals: false, .. }))
}

/// A change, as the engine is to make it.
pub(super) fn as_change(write: &SetWrite) -> SetChange<'_> {
    let value = write.value.as_ref().map(|value| &value.0[..]);
    SetChange { partition: PartitionId(write.partition), key: &write.key, value }
}

impl ServerNode {
    /// Sends a record whose lock was granted: no commit changes it meanwhile, unless the transaction has ended that asks for it.
    pub(super) async fn send_set_record(&self, to: ClientId, record: SetRecord) {
        let answer = match self.database.read_in_set(PartitionId(record.partition), &record.key).await {
            Ok(value) => Answer::SetRecord { record, value: value.map(SetValue) },
            Err(error) => Answer::NoSetRecord { record, is_denied: false, reason: error.to_string() },
        };
        self.send(to, &answer);
    }

    /// What a transaction changes in sets, it has the locks of.
    pub(super) fn check_set_locks(
        &self,
        (client, transaction): (ClientId, Transaction),
        sets: &[SetWrite],
    ) -> Result<()> {
        let protocol = self.protocol.borrow();
        let is_locked = |write: &SetWrite| {
            let place = place_in_set(PartitionId(write.partition), &write.key);
            protocol.changes_record(client, transaction, place)
        };
        match sets.iter().find(|write| !is_locked(write)) {
            Some(write) => {
                let why = format!("it changes a record of partition {}, a set, without the lock", write.partition);
                Err(Error::Shipment(why))
            }
            None => Ok(()),
        }
    }
}
