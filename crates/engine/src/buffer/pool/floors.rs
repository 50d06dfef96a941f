//! Sequence numbers that pages begin with, as page 0 of their partition says (`allocator::floor`), also when that is not here.

use super::{Pool, Presence};
use base::{PageId, PartitionId};
use structures::canary::{self, Canary};
use structures::organization::allocator;
use structures::page::{PageKind, header};

/// What page 0 of each partition said when it left.
#[derive(Default)]
pub(super) struct Floors(Vec<u64>);

fn floor_of(page: &[u8]) -> Option<u64> {
    (header::kind(page) == Some(PageKind::Allocator)).then(|| allocator::floor(page))
}

impl Pool {
    /// The sequence number that a page of a partition begins with which is used for the first time, or anew after it was cut off. Page 0
    /// has been here before, for it gives such pages out.
    pub fn floor(&self, partition: PartitionId) -> u64 {
        if canary::is_planted(Canary::ForgottenFloor) {
            return 0;
        }
        let left = self.floors.0.get(usize::from(partition.0)).copied().unwrap_or(0);
        match self.presence(PageId::new(partition, 0)) {
            Presence::Resident(frame) => floor_of(self.bytes(frame)).unwrap_or(left),
            _ => left,
        }
    }

    /// A page is about to leave its frame.
    pub(super) fn note_floor(&mut self, frame: u32) {
        let PageId { partition, number } = self.page_of(frame);
        if number > 0 {
            return;
        }
        let floor = floor_of(self.bytes(frame)).unwrap_or(0);
        let (floors, index) = (&mut self.floors.0, usize::from(partition.0));
        if floor > 0 && floors.len() <= index {
            floors.resize(index + 1, 0);
        }
        if let Some(left) = floors.get_mut(index) {
            *left = floor;
        }
    }
}
