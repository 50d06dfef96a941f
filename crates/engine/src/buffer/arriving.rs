//! Frames for pages that come from another node.

use super::{Buffer, Pins, Presence};
use crate::Result;
use base::PageId;
use std::rc::Rc;

impl Buffer {
    /// A frame for a page that is to come from another node: that in which it is, or one with a page that was never written. It stays
    /// until the pins are dropped. Nothing else may use the page meanwhile.
    ///
    /// # Errors
    /// The driver's, or a buffer without a frame to spare.
    pub async fn make_place(self: &Rc<Self>, id: PageId, pins: &mut Pins) -> Result<()> {
        loop {
            let presence = self.pool.borrow().presence(id);
            match presence {
                Presence::Resident(frame) => {
                    self.pool.borrow_mut().pin(frame);
                    pins.add(frame);
                    return Ok(());
                }
                Presence::Loading(frame) => {
                    if self.await_load(frame).await {
                        pins.add(frame);
                        return Ok(());
                    }
                }
                Presence::Absent => self.make_anew(id).await?,
            }
        }
    }
}
