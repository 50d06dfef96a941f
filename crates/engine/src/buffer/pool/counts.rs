//! How many frames are in use in which way.

use super::{FrameState, Pool};

impl Pool {
    /// How many frames are empty and not free: taken for pages whose reads have not begun. None are while nothing runs.
    pub fn taken_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state == FrameState::Free).count() - self.free.len() - self.lasting.len()
    }

    /// How many pins there are, of all frames.
    pub fn pins(&self) -> usize {
        self.slots.iter().map(|slot| slot.pins as usize).sum()
    }

    /// How many frames are pinned.
    pub fn pinned_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.pins > 0).count()
    }
}
