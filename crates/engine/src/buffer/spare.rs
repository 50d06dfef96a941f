//! Frames on their way from one page to another.

use super::Buffer;

/// A frame that was emptied for a page. Goes back if the operation that wanted it is abandoned.
pub struct Spare<'a> {
    buffer: &'a Buffer,
    frame: Option<u32>,
}

impl<'a> Spare<'a> {
    /// This frame of the buffer is free.
    pub fn new(buffer: &'a Buffer, frame: u32) -> Spare<'a> {
        Spare { buffer, frame: Some(frame) }
    }

    /// Takes it for good.
    pub fn take(mut self) -> u32 {
        self.frame.take().expect("taken once")
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        if let Some(frame) = self.frame {
            self.buffer.pool.borrow_mut().give_free(frame);
            self.buffer.note_free();
        }
    }
}
