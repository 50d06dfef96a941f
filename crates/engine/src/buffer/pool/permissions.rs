//! The permission to write a page that is here. A page comes with it and keeps it, unless it is taken elsewhere: then whatever
//! plans to change the page waits until the permission is back.
//!
//! Where no permission is elsewhere, asking costs one comparison.

use super::Pool;
use base::PageId;

/// Which frames have pages whose permission is elsewhere.
#[derive(Default)]
pub(super) struct Permissions {
    /// By frame, up to the last one of which that was ever so.
    elsewhere: Vec<bool>,
    /// How many there are.
    count: usize,
}

impl Permissions {
    /// Whether every page that is here may be written.
    #[inline]
    pub fn are_all_here(&self) -> bool {
        self.count == 0
    }

    /// Whether the permission of the frame's page is elsewhere.
    pub fn is_elsewhere(&self, frame: u32) -> bool {
        self.elsewhere.get(frame as usize).copied().unwrap_or(false)
    }

    /// The frame's page is gone.
    #[inline]
    pub fn forget(&mut self, frame: u32) {
        if !self.are_all_here() {
            self.set(frame, false);
        }
    }

    /// Checks the count.
    pub fn check(&self) -> Result<(), String> {
        let found = self.elsewhere.iter().filter(|is_elsewhere| **is_elsewhere).count();
        if found == self.count {
            Ok(())
        } else {
            Err(format!("{found} permissions are elsewhere, {} count", self.count))
        }
    }

    fn set(&mut self, frame: u32, is_elsewhere: bool) {
        let index = frame as usize;
        if self.elsewhere.len() <= index {
            self.elsewhere.resize(index + 1, false);
        }
        let before = std::mem::replace(&mut self.elsewhere[index], is_elsewhere);
        self.count = self.count + usize::from(is_elsewhere) - usize::from(before);
    }
}

impl Pool {
    /// Whether the page may be changed, or is not here.
    pub fn may_write(&self, id: PageId) -> bool {
        self.table.get(id).is_none_or(|frame| !self.permissions.is_elsewhere(frame))
    }

    /// The permission to write a page goes elsewhere. False if the page is not here.
    pub fn withhold_write(&mut self, id: PageId) -> bool {
        let frame = self.frame_of(id);
        frame.inspect(|frame| self.permissions.set(*frame, true)).is_some()
    }

    /// It is back.
    pub(in crate::buffer) fn grant_write(&mut self, id: PageId) {
        if let Some(frame) = self.frame_of(id) {
            self.permissions.set(frame, false);
        }
    }
}
