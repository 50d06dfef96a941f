//! Long values that a transaction of another node replaces or deletes: their pages are free behind it, and moments before it are to be read
//! after the next opening. The other node is not asked for them: what was committed is here.

use super::Database;
use super::shipment::{Shipment, looked_through};
use crate::log::record::Body;
use crate::{Error, Result};
use base::{PageId, PartitionId};
use std::collections::BTreeSet;
use structures::organization::b_tree::overflow;
use structures::organization::b_tree::stored::{self, Stored};
use structures::undo::{Undo, UndoList};

/// A long value as it was before a transaction.
pub(super) struct FormerValue {
    /// The number of the update that replaces or deletes it, as rollbacks count them.
    update: u32,
    partition: PartitionId,
    length: usize,
    first: u32,
}

impl FormerValue {
    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// Those of a shipment: of each record what it was first.
fn former_values(shipment: &Shipment<'_>) -> Vec<FormerValue> {
    let (mut former, mut seen) = (Vec::new(), BTreeSet::new());
    let undos = looked_through(shipment.records).filter_map(|record| match record.body {
        Body::Update(undo) => Some(UndoList::decode(undo)),
        _ => None,
    });
    for (undo, update) in undos.zip(0..) {
        let (partition, key, value) = match undo {
            Undo::Remove { partition, key } | Undo::PatchValue { partition, key, .. } => (partition, key, None),
            Undo::Insert { partition, key, value } | Undo::Replace { partition, key, value } => {
                (partition, key, Some(value))
            }
            Undo::PatchPage { .. } | Undo::EraseAppended { .. } | Undo::FreePage { .. } => continue,
        };
        let is_first = seen.insert((partition, key));
        if let Some(value) = value.filter(|value| is_first && stored::is_sound(value))
            && let Stored::Elsewhere(length, first) = stored::read(value)
        {
            former.push(FormerValue { update, partition, length, first });
        }
    }
    former
}

impl Database {
    /// The long values that the log has to keep beside a shipment, which was looked at; none where moments are not kept.
    pub(super) fn values_to_keep(&self, shipment: &Shipment<'_>) -> Vec<FormerValue> {
        let versions = &self.0.engine.versions;
        if versions.is_kept() && versions.keeps_moments() { former_values(shipment) } else { Vec::new() }
    }

    /// They have been on pages that the shipment changes: those are free behind it, or have something else.
    pub(super) fn check_room_of_former(&self, shipment: &Shipment<'_>, former: &[FormerValue]) -> Result<()> {
        let has_values = |page: &PageId| former.iter().any(|value| value.partition == page.partition);
        let room = shipment.pages().filter(has_values).count() * overflow::capacity(self.settings().buffer.page_size);
        if former.iter().map(FormerValue::length).sum::<usize>() > room {
            return Err(Error::Shipment("it deletes long values whose pages it does not free".to_owned()));
        }
        Ok(())
    }

    /// Reads them, each with the number of its update. What cannot be read is not kept: moments from before it are given up then.
    pub(super) async fn read_to_keep(&self, values: &[FormerValue]) -> Vec<(u32, Vec<u8>)> {
        let mut kept = Vec::new();
        for FormerValue { update, partition, length, first } in values {
            if let Ok(value) = self.0.engine.core.fetch(*partition, *length, *first).await {
                kept.push((*update, value));
            }
        }
        kept
    }
}
