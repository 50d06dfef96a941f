//! Pages that are read before they are asked for, beside everything else. A failure shows when the page is used.

use super::{Buffer, Presence};
use crate::second_level::design::Pattern;
use base::PageId;
use std::rc::Rc;

/// Nothing more is read ahead while so great a share of the frames is being read or written.
const IN_FLIGHT_SHARE: usize = 4;
/// Which share of the frames a scan's pages may take before the scan has come to them.
const FRAMES_SHARE: usize = 16;
/// How many such pages a scan has at most: more are on their way at once than what devices of today work on side by side.
const PAGES_MAX: usize = 64;

impl Buffer {
    /// How many pages a scan may have ahead of it now.
    pub fn ahead_max(&self) -> usize {
        let frames = self.settings.frames;
        (frames / FRAMES_SHARE).min(PAGES_MAX).min((frames / IN_FLIGHT_SHARE).saturating_sub(self.in_flight.get()))
    }

    /// Starts to read a page that is absent. False if it is here or on its way, or needs no read because it was never written.
    pub fn read_ahead(self: &Rc<Self>, id: PageId) -> bool {
        self.read_all_ahead(vec![id]) > 0
    }

    /// Starts to read those of these pages that are absent and were written; returns how many. What lies side by side is read so, as
    /// the pages of a file in sequence are.
    pub fn read_all_ahead(self: &Rc<Self>, mut ids: Vec<PageId>) -> usize {
        ids.retain(|id| self.is_to_read(*id));
        ids.sort_unstable();
        ids.dedup();
        let count = ids.len();
        if count > 0 {
            let this = Rc::clone(self);
            self.executor.spawn(async move {
                for run in ids.chunk_by(|page, next| page.number + 1 == next.number) {
                    if this.begin_reads(run.iter().copied(), Pattern::Sequential).await.is_err() {
                        break;
                    }
                }
            });
        }
        count
    }

    fn is_to_read(&self, id: PageId) -> bool {
        self.find_space(id.partition).is_ok_and(|space| id.number < space.written().min(space.capacity()))
            && self.pool.borrow().presence(id) == Presence::Absent
            && !self.is_wanted(id)
    }
}
