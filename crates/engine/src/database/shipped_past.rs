//! What records were before a transaction of another node has changed them, for moments that are held or can be travelled to. The other node is
//! not asked for it: what was committed is here, and the records that it sends say what takes each change back.
//!
//! Long values that it replaces or deletes are read before that: their pages are free behind it. Where moments are to be read after the next
//! opening, the log has them, too.

use super::Database;
use super::shipment::{Shipment, looked_through};
use crate::log::record::Body;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use std::collections::BTreeSet;
use structures::canary::{self, Canary};
use structures::lock::Owner;
use structures::organization::b_tree::overflow;
use structures::organization::b_tree::stored::{self, Stored};
use structures::undo::{Undo, UndoList};

/// More bytes than the record of a value that is kept has in the log beside the value.
const RECORD_SIZE: u64 = 32;

/// A long value as it was before a transaction.
struct FormerValue {
    /// The number of the update that replaces or deletes it, as rollbacks count them.
    update: u32,
    partition: PartitionId,
    length: usize,
    first: u32,
}

/// What takes back the updates of a shipment, in their order.
fn updates_of<'a>(shipment: &Shipment<'a>) -> impl Iterator<Item = Undo<'a>> {
    looked_through(shipment.records).filter_map(|record| match record.body {
        Body::Update(undo) => Some(UndoList::decode(undo)),
        _ => None,
    })
}

/// Those of a shipment: of each record what it was first.
fn former_values(shipment: &Shipment<'_>) -> Vec<FormerValue> {
    let (mut former, mut seen) = (Vec::new(), BTreeSet::new());
    for (undo, update) in updates_of(shipment).zip(0..) {
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
    /// At most how many bytes the log has of them, if it is to have any.
    pub(super) fn logged_length_of_former(&self, shipment: &Shipment<'_>) -> u64 {
        match self.keeps_former_in_log() {
            true => former_values(shipment).iter().map(|value| RECORD_SIZE + value.length as u64).sum(),
            false => 0,
        }
    }

    /// Whether the log has them, too.
    pub(super) fn keeps_former_in_log(&self) -> bool {
        let versions = &self.0.engine.versions;
        versions.is_kept() && versions.keeps_moments()
    }

    /// Reads the long values that are to be kept of a shipment, which was looked at: each with the number of its update. None if there are no
    /// moments for which that would be.
    ///
    /// # Errors
    /// [`Error::Shipment`] if it does not go on from what is here, or leaves their pages as they are.
    pub(super) async fn find_former(&self, shipment: &Shipment<'_>) -> Result<Option<Vec<(u32, Vec<u8>)>>> {
        if !self.0.engine.versions.has_moments() {
            return Ok(None);
        }
        let former = former_values(shipment);
        if former.is_empty() {
            return Ok(Some(Vec::new()));
        }
        // Before they are read: the values have been there, as far as the pages are here, and on no more pages than come. Others may
        // change objects meanwhile, so the numbers that theirs get now are for this alone.
        let numbered = self.number_shipped(shipment);
        let tried = Shipment { records: numbered.as_deref().unwrap_or(shipment.records), ..*shipment };
        self.check_against_present(&tried)?;
        self.check_room_of_former(shipment, &former)?;
        Ok(Some(self.read_to_keep(&former).await))
    }

    /// They have been on pages that the shipment changes: those are free behind it, or have something else.
    fn check_room_of_former(&self, shipment: &Shipment<'_>, former: &[FormerValue]) -> Result<()> {
        let has_values = |page: &PageId| former.iter().any(|value| value.partition == page.partition);
        let room = shipment.pages().filter(has_values).count() * overflow::capacity(self.settings().buffer.page_size);
        if former.iter().map(|value| value.length).sum::<usize>() > room {
            return Err(Error::Shipment("it deletes long values whose pages it does not free".to_owned()));
        }
        Ok(())
    }

    /// Reads them, each with the number of its update. What cannot be read is not kept: moments from before it are given up then.
    async fn read_to_keep(&self, values: &[FormerValue]) -> Vec<(u32, Vec<u8>)> {
        let mut kept = Vec::new();
        for FormerValue { update, partition, length, first } in values {
            if let Ok(value) = self.0.engine.core.fetch(*partition, *length, *first).await {
                kept.push((*update, value));
            }
        }
        kept
    }

    /// Keeps what records were before a shipment, whose commit is the record up to `end` and has to follow. Its pages may be changed or not.
    pub(super) fn keep_past(
        &self,
        (owner, end): (Owner, Lsn),
        shipment: &Shipment<'_>,
        former: Option<&[(u32, Vec<u8>)]>,
    ) {
        let (records, versions) = (self.0.engine.records(), &self.0.engine.versions);
        if !versions.has_moments() || canary::is_planted(Canary::PresentForPast) {
            return;
        }
        for (number, undo) in updates_of(shipment).enumerate() {
            if !versions.keep_recorded(records, (owner, number), &undo, end) {
                versions.forget_partition(undo.partition(), end);
            }
        }
        let mut from = 0;
        for (update, value) in former.unwrap_or_default() {
            from = versions.make_whole((owner, from), *update as usize, value);
        }
        versions.give_up_unread(records, owner, end);
    }
}
