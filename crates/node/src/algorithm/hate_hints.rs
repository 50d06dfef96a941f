use super::{Fate, Placement, Recency, Source, forwarded};
use crate::message::ClientId;

/// FWD-H: forwarding, and a page that was sent to a client leaves the server's memory next, because it is in memory elsewhere
/// (section 2.3.3).
pub struct HateHints;

impl Placement for HateHints {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        forwarded(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        Recency::Hated
    }

    fn on_last_copy(&self, _: bool) -> Fate {
        Fate::Dropped
    }
}
