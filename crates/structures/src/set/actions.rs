//! What redo has of a change of a part of a value, such as a field: the bytes that differ, or the whole part, or, where actions
//! are logged, what was done instead of what came out.
//!
//! An action's redo must be replayed exactly once, so it goes with consistent backups only. What a transaction has done in
//! segments that a black/white sweep has still to take will be in its backup; the commit asks which changes those are
//! ([`Sets::included`]) and logs the answer beside the redo, so that a restart from that backup leaves them out
//! ([`Sets::apply_except`]). Backups of the moment at which a sweep began hold nothing that was committed later.

use super::redo::{Action, Redo};
use super::segment::WHITE;
use super::{ChangePosition, Logging, Refusal, Sets};
use crate::lock::Owner;
use base::PartitionId;
use std::ops::Range;

/// What redo has of a change of a part of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartRedo {
    /// The bytes that differ.
    #[default]
    Difference,
    /// All its bytes.
    Whole,
    /// What was added, or the bytes that differ.
    Action,
    /// What was added, or all its bytes.
    ActionOrWhole,
}

impl PartRedo {
    #[inline]
    fn is_whole(self) -> bool {
        matches!(self, PartRedo::Whole | PartRedo::ActionOrWhole)
    }
}

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
    /// Chooses what redo replays, for changes from now on: `logging`, and whether a part of a value that a call names and
    /// changes is logged whole; otherwise only the bytes of it are that differ. An action stays one.
    pub fn set_logging(&mut self, logging: Logging, whole_fields: bool) {
        self.part_redo = match (logging, whole_fields) {
            (Logging::Values, false) => PartRedo::Difference,
            (Logging::Values, true) => PartRedo::Whole,
            (Logging::Actions | Logging::Procedures, false) => PartRedo::Action,
            (Logging::Actions | Logging::Procedures, true) => PartRedo::ActionOrWhole,
        };
    }

    /// As [`Sets::modify`], for a part of the value that is known beforehand: faster for a field of a long record.
    ///
    /// # Errors
    /// As [`Sets::modify`], and [`Refusal::TooLarge`] if the part is not within the value.
    #[inline]
    pub fn modify_part<R>(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        part: Range<usize>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Refusal> {
        if !self.part_redo.is_whole() {
            return self.change_part(owner, partition, key, hash, part, change);
        }
        let (before, offset) = (self.position(owner), part.start);
        let answer = self.change_part(owner, partition, key, hash, part, change)?;
        if self.position(owner) != before {
            self.log_whole(owner, before, partition, key, offset);
        }
        Ok(answer)
    }

    #[inline]
    fn change_part<R>(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        part: Range<usize>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Refusal> {
        let (set, changes, scratch, watch) = self.parts(owner, partition);
        let place = set.find(key, hash)?.ok_or_else(|| watch.missing(owner))?;
        set.watch_write(watch, owner, place)?;
        set.modify(changes, scratch, (place, hash), Some(part), change)
    }

    /// Puts the whole part that was just changed, and still is in `scratch`, in the place of its redo.
    #[cold]
    fn log_whole(&mut self, owner: Owner, before: ChangePosition, partition: PartitionId, key: &[u8], offset: usize) {
        let redo = &mut self.owners[owner.0 as usize].redo;
        redo.truncate(before.redo);
        Redo { partition, key, action: Action::Patch { offset, bytes: &self.scratch } }.encode(redo);
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
        if self.part_redo == PartRedo::Difference {
            return self.change_part(owner, partition, key, hash, part, change);
        }
        let before = self.position(owner);
        let sum = self.change_part(owner, partition, key, hash, part, change)?;
        if self.position(owner) != before {
            if self.part_redo == PartRedo::Whole {
                self.log_whole(owner, before, partition, key, offset);
                return Ok(sum);
            }
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
