use super::{Fate, Placement, Recency, Source};
use crate::message::ClientId;

/// CBL: copies and their read locks stay at clients; the server's memory is least recently used, and the memories of clients serve
/// themselves alone (section 2.3.1).
pub struct CallbackLocking;

impl Placement for CallbackLocking {
    fn source(&self, _: &[ClientId], _: u64) -> Source {
        Source::Disk
    }

    fn after_sending(&self) -> Recency {
        Recency::MostRecentlyUsed
    }

    fn on_last_copy(&self, _: bool) -> Fate {
        Fate::Dropped
    }
}
