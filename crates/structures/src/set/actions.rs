//! Logging of actions: what was done to a record instead of what came out.
//!
//! An action's redo must be replayed exactly once, so it goes with consistent backups only. What a transaction has done in
//! segments that a black/white sweep has still to take will be in its backup; whoever logs the commit asks which changes those
//! are ([`Sets::included`]) and logs the answer beside the redo, so that a restart from that backup leaves them out
//! ([`Sets::apply_except`]). Backups of the moment at which a sweep began hold nothing that was committed later.

use super::redo::{Action, Redo};
use super::segment::WHITE;
use super::{Logging, Refusal, Sets};
use crate::lock::Owner;
use base::PartitionId;
use std::ops::Range;

/// Adds to a little-endian integer of 1, 2, 4 or 8 bytes, modulo its range, and returns it, without sign.
#[inline]
pub fn add_to(part: &mut [u8], amount: i64) -> u64 {
    if let Some(word) = part.as_mut_array::<8>() {
        let sum = u64::from_le_bytes(*word).wrapping_add_signed(amount);
        *word = sum.to_le_bytes();
        return sum;
    }
    let mut word = [0; 8];
    word[..part.len()].copy_from_slice(part);
    let sum = u64::from_le_bytes(word).wrapping_add_signed(amount).to_le_bytes();
    let mut kept = [0; 8];
    kept[..part.len()].copy_from_slice(&sum[..part.len()]);
    part.copy_from_slice(&sum[..part.len()]);
    u64::from_le_bytes(kept)
}

impl Sets {
    /// Chooses what redo repeats, for changes from now on.
    pub fn set_logging(&mut self, logging: Logging) {
        self.logging = logging;
    }

    /// Adds to a little-endian integer that is this part of a value, modulo its range, and returns it, without sign. Shorter
    /// in the log than a modification if actions are logged.
    ///
    /// # Errors
    /// As [`Sets::modify_part`].
    ///
    /// # Panics
    /// If the part is not of 1, 2, 4 or 8 bytes.
    pub fn add(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        part: Range<usize>,
        amount: i64,
    ) -> Result<u64, Refusal> {
        let (offset, width) = (part.start, part.len());
        assert!(matches!(width, 1 | 2 | 4 | 8), "an integer of {width} bytes");
        let change = |part: &mut [u8]| add_to(part, amount);
        if self.logging == Logging::Values {
            return self.modify_part(owner, partition, key, hash, part, change);
        }
        let before = self.position(owner);
        let sum = self.modify_part(owner, partition, key, hash, part, change)?;
        if self.position(owner) != before {
            let redo = &mut self.owners[owner.0 as usize].redo;
            redo.truncate(before.redo);
            Redo { partition, key, action: Action::Add { offset, width, amount } }.encode(redo);
        }
        Ok(sum)
    }

    /// For each change of a transaction, in the order of its redo, whether the black/white sweep in progress will have it in
    /// its backup. To be asked in the step of the commit, before it.
    pub fn included(&self, owner: Owner) -> impl Iterator<Item = bool> {
        let shadows = self.owners.get(owner.0 as usize).map_or(&[][..], |changes| &changes.shadows);
        shadows.iter().map(|shadow| {
            let set = self.set(PartitionId(shadow.set));
            set.is_black_white() && set.segments[set.locate(shadow.place).0].colour == WHITE
        })
    }
}
