use super::{Fate, Placement, Recency, Source, forwarded, sent_back};
use crate::message::ClientId;

/// FWD-S: forwarding, and the last copy in memory is not dropped but comes to the server (section 2.3.4).
pub struct Sending;

impl Placement for Sending {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        forwarded(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        Recency::MostRecentlyUsed
    }

    fn on_last_copy(&self, is_at_server: bool) -> Fate {
        sent_back(is_at_server)
    }
}
