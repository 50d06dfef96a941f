//! Pages that are read before they are asked for, beside everything else. A failure shows when the page is used.

use super::{Buffer, PageSpace, Presence};
use crate::second_level::design::Pattern;
use base::time::MILLISECOND_NS;
use base::{Instant, PageId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// Which share of the frames the pages that one scan has ahead of it may take, and those of all scans. More would have pages leave before
/// their scans have come to them.
const FRAMES_SHARE: usize = 16;
const FRAMES_SHARE_OF_ALL: usize = 8;
/// Nothing more is read ahead while so great a share of the frames is being read or written.
const IN_FLIGHT_SHARE: usize = 4;
/// How many pages a scan has ahead of it at most: more are on their way at once than what devices of today work on side by side.
const PAGES_MAX: usize = 64;

/// A scan that has come to no other page for so long, in nanoseconds, is at rest: what it had ahead of it is here, and it may never go on, so
/// others get its frames.
const REST_NS: u64 = 100 * MILLISECOND_NS;

/// Frames that a scan may fill ahead of it as long as this is there, unless it rests.
pub struct ReservedFrames {
    all: Rc<AheadFrames>,
    own: Rc<Reservation>,
}

/// The frames that scans have reserved.
#[derive(Default)]
pub(super) struct AheadFrames(RefCell<Vec<Rc<Reservation>>>);

struct Reservation {
    count: usize,
    /// When the scan came to a page the last time.
    used: Cell<Instant>,
}

impl AheadFrames {
    fn count(&self) -> usize {
        self.0.borrow().iter().map(|reserved| reserved.count).sum()
    }

    /// Takes those of scans that rest.
    fn end_resting(&self, now: Instant) {
        self.0.borrow_mut().retain(|reserved| now.since_ns(reserved.used.get()) < REST_NS);
    }
}

impl ReservedFrames {
    /// How many.
    pub fn count(&self) -> usize {
        self.own.count
    }

    /// The scan has come to another page.
    pub(super) fn note_use(&self, now: Instant) {
        self.own.used.set(now);
    }
}

impl fmt::Debug for ReservedFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReservedFrames").field(&self.own.count).finish()
    }
}

/// Pages are being read ahead, or wait for frames, as long as this is there.
struct ReadingAhead(Rc<Buffer>);

impl ReadingAhead {
    fn new(buffer: &Rc<Buffer>) -> ReadingAhead {
        buffer.reading_ahead.set(buffer.reading_ahead.get() + 1);
        ReadingAhead(Rc::clone(buffer))
    }
}

impl Drop for ReadingAhead {
    fn drop(&mut self) {
        self.0.reading_ahead.set(self.0.reading_ahead.get() - 1);
    }
}

impl Drop for ReservedFrames {
    fn drop(&mut self) {
        self.all.0.borrow_mut().retain(|reserved| !Rc::ptr_eq(reserved, &self.own));
    }
}

impl Buffer {
    /// How many pages one more scan may have ahead of it now. None where the policy takes their coming for a use: it would have them leave
    /// before they are used.
    pub fn ahead_max(&self) -> usize {
        if self.settings.replacement.counts_arrivals() {
            return 0;
        }
        let frames = self.settings.frames;
        let in_flight = (frames / IN_FLIGHT_SHARE).saturating_sub(self.in_flight.get());
        let most = (frames / FRAMES_SHARE).min(PAGES_MAX).min(in_flight);
        let of_all = || (frames / FRAMES_SHARE_OF_ALL).saturating_sub(self.reserved_ahead.count());
        if of_all() < most {
            self.reserved_ahead.end_resting(self.executor.round_now());
        }
        most.min(of_all())
    }

    /// Frames for pages that a scan reads ahead, no more than these; `None` if there are none for it now.
    pub fn reserve_ahead(self: &Rc<Self>, wanted: usize) -> Option<ReservedFrames> {
        let count = wanted.min(self.ahead_max());
        (count > 0).then(|| {
            let own = Rc::new(Reservation { count, used: Cell::new(self.executor.round_now()) });
            self.reserved_ahead.0.borrow_mut().push(Rc::clone(&own));
            ReservedFrames { all: Rc::clone(&self.reserved_ahead), own }
        })
    }

    /// Starts to read a page that is absent. False if it is here or on its way, or needs no read because it was never written.
    pub fn read_ahead(self: &Rc<Self>, id: PageId) -> bool {
        self.read_all_ahead(vec![id]) > 0
    }

    /// Starts to read those of these pages that are absent and were written; returns how many. What lies side by side is read so, as
    /// the pages of a file in sequence are.
    pub fn read_all_ahead(self: &Rc<Self>, mut ids: Vec<PageId>) -> usize {
        ids.retain(|id| self.is_to_read(*id));
        let (count, first) = (ids.len(), ids.first().copied());
        ids.sort_unstable();
        ids.dedup();
        if count > 0 {
            let (this, reading) = (Rc::clone(self), ReadingAhead::new(self));
            self.executor.spawn(async move {
                let _reading = reading;
                let mut runs: Vec<&[PageId]> = ids.chunk_by(|page, next| page.number + 1 == next.number).collect();
                // What is wanted first is asked for first.
                runs.sort_by_key(|run| !run.iter().any(|id| Some(*id) == first));
                for run in runs {
                    // It may have been cut off, or read, meanwhile.
                    let run = run.iter().copied().filter(|id| this.is_to_read(*id));
                    if this.is_ended.get() || this.begin_reads(run, Pattern::Sequential).await.is_err() {
                        break;
                    }
                }
            });
        }
        count
    }

    /// What holds the processor while it is read comes no sooner if it is read ahead.
    fn is_to_read(&self, id: PageId) -> bool {
        let is_written_apart =
            |space: Rc<PageSpace>| id.number < space.written().min(space.capacity()) && !space.is_synchronous();
        self.find_space(id.partition).is_ok_and(is_written_apart)
            && self.pool.borrow().presence(id) == Presence::Absent
            && !self.is_wanted(id)
            && self.copy_of(id).is_none_or(|source| !source.is_synchronous())
    }
}
