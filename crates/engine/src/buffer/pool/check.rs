//! The invariants of the pool, checked from first principles. For tests: it looks at everything.

use super::{FrameState, Pool};

impl Pool {
    /// Checks every invariant stated on this type.
    ///
    /// # Errors
    /// Words that say which does not hold.
    pub fn check(&self) -> Result<(), String> {
        let mut ordered = 0;
        self.replacement.coldest(&mut |frame| {
            ordered += usize::from(self.slots[frame as usize].state == FrameState::Resident);
            true
        });
        let replaceable = &self.slots[..self.replaceable as usize];
        let resident = replaceable.iter().filter(|slot| slot.state == FrameState::Resident).count();
        if ordered != resident {
            return Err(format!("{resident} pages are resident, {ordered} stand in the replacement order"));
        }
        if self.dirty != self.slots.iter().filter(|slot| slot.dirty).count() {
            return Err("the count of dirty pages is off".into());
        }
        self.permissions.check()?;
        for (frame, slot) in self.slots.iter().enumerate() {
            let mapped = self.table.get(slot.page) == Some(frame as u32);
            if (slot.state != FrameState::Free) != mapped {
                return Err(format!("frame {frame} with {} and the page table disagree", slot.page));
            }
            if slot.state == FrameState::Free && (slot.dirty || slot.writing || slot.pins > 0) {
                return Err(format!("free frame {frame} is in use"));
            }
            if slot.state == FrameState::Free && self.permissions.is_elsewhere(frame as u32) {
                return Err(format!("free frame {frame} has a page that may not be written"));
            }
        }
        Ok(())
    }
}
