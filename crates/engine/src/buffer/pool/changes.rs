//! Changes of pages that others write for the buffer, or that come to nothing.

use super::Pool;

impl Pool {
    /// The changes of the page in a frame are where they have to be, without a write from here.
    pub fn note_written(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        debug_assert!(!slot.writing, "nothing is written from here");
        self.dirty -= usize::from(std::mem::take(&mut slot.dirty));
    }

    /// Takes changes of the page in a frame back: these are its bytes.
    pub fn overwrite(&mut self, frame: u32, bytes: &[u8]) {
        self.bytes_mut(frame).copy_from_slice(bytes);
    }
}
