//! Pages that stay in the buffer while an operation waits for others.
//!
//! An operation is attempted from the start whenever a page has come that it lacked. What others did meanwhile may have it look
//! for other pages than before: of two that extend a file, the second finds the page taken that it waited for. It must not keep
//! that one, or such operations would in time keep the whole buffer from each other.

use super::Buffer;
use base::PageId;
use std::cell::RefCell;
use std::rc::Rc;

/// How many vectors are kept for reuse at most.
const SPARE_MAX: usize = 64;

/// The frames that one operation keeps in the buffer while it waits for others. Released when dropped, so an abandoned
/// operation leaves no pin behind.
pub struct Pins {
    buffer: Rc<Buffer>,
    pinned: Vec<Pinned>,
    /// How many references to pages there were when the present attempt began.
    before: u64,
    /// How many references the latest attempt made before it lacked a page; of the first one that is not known.
    made: u64,
}

/// Empty vectors of earlier operations, for reuse: so a miss allocates none.
#[derive(Default)]
pub(super) struct SparePins(RefCell<Vec<Vec<Pinned>>>);

struct Pinned {
    frame: u32,
    /// How many references came before it in the attempt that lacked it.
    place: u64,
}

impl Pins {
    /// No frames yet.
    pub fn new(buffer: &Rc<Buffer>) -> Pins {
        let pinned = buffer.spare_pins.0.borrow_mut().pop().unwrap_or_default();
        Pins { buffer: Rc::clone(buffer), pinned, before: 0, made: u64::MAX }
    }

    /// Keeps a page, if it is here. False if it is not.
    pub fn hold(&mut self, id: PageId) -> bool {
        let mut pool = self.buffer.pool.borrow_mut();
        let Some(frame) = pool.frame_of(id) else { return false };
        pool.pin(frame);
        drop(pool);
        self.add(frame);
        true
    }

    /// Takes over a pin of what the latest attempt lacked.
    pub(super) fn add(&mut self, frame: u32) {
        self.pinned.push(Pinned { frame, place: self.made });
    }

    /// An attempt begins.
    pub(crate) fn begin_attempt(&mut self) {
        self.before = self.buffer.pool.borrow().references();
    }

    /// An attempt ends because it lacks something. Lets go of the pages that it would have referenced before that if it still
    /// needed them.
    pub(crate) fn end_attempt(&mut self) {
        let mut pool = self.buffer.pool.borrow_mut();
        self.made = pool.references() - self.before;
        let (held, made, before) = (self.pinned.len(), self.made, self.before);
        self.pinned.retain(|pinned| {
            let stays = pinned.place > made || pool.is_referenced_since(pinned.frame, before);
            if !stays {
                pool.unpin(pinned.frame);
            }
            stays
        });
        drop(pool);
        let released = held - self.pinned.len();
        if released > 0 {
            self.buffer.wake_for_frames(released);
        }
    }

    /// The planted bug: nothing lets go of the pages any more.
    pub(super) fn forget(&mut self) {
        self.pinned.clear();
    }

    /// Lets go of all pages.
    pub(super) fn release(&mut self) {
        let released = self.pinned.len();
        let pinned = self.pinned.drain(..);
        let mut pool = self.buffer.pool.borrow_mut();
        pinned.for_each(|pinned| pool.unpin(pinned.frame));
        drop(pool);
        if released > 0 {
            self.buffer.wake_for_frames(released);
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.release();
        let mut spare = self.buffer.spare_pins.0.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(std::mem::take(&mut self.pinned));
        }
    }
}
