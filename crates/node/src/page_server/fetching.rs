//! Pages that are to be in the buffer.

use super::ServerNode;
use crate::algorithm::Recency;
use crate::grants::Right;
use crate::message::{ClientId, Copy, LeavingFate};
use base::PageId;
use driver::FaultKind;
use engine::buffer::Pins;
use engine::catalog::Organization;
use engine::second_level::design::Pattern;
use engine::{Error, Internals, Need};

impl ServerNode {
    pub(super) async fn fetch_and_send(&self, (to, copy): (ClientId, Copy), fate: LeavingFate, recency: Recency) {
        let buffer = self.database.buffer();
        let mut pins = Pins::new(buffer);
        let fetched = match self.make_room(to, copy.page).await {
            Ok(()) => self.fetch(copy.page, &mut pins).await,
            Err(error) => Err(error),
        };
        match fetched {
            Ok(()) => assert!(self.send_page(to, copy, fate, recency), "a pinned page is here"),
            Err(error) => {
                let is_full = matches!(&error, Error::Input(fault) if fault.kind == FaultKind::NoSpace);
                let why = (is_full, error.to_string());
                self.step(|server, memory, actions| server.failed(to, copy, why, memory, actions));
            }
        }
    }

    /// Has the file of a page's partition grow where the page is the one behind the last: a client that adds a page to a partition asks
    /// for that. So it does for any page behind the end of a direct partition, which was cut off. One that may only read adds none.
    pub(super) async fn make_room(&self, client: ClientId, page: PageId) -> engine::Result<()> {
        let buffer = self.database.buffer();
        let allocates = match self.organization(page)? {
            Organization::Direct { .. } if self.protocol.borrow().may(client, page, Right::Write) => {
                return self.database.make_room_for_objects(page).await;
            }
            Organization::BTree | Organization::Append { .. } => true,
            _ => false,
        };
        let is_full = allocates && page.number == buffer.space(page.partition).capacity();
        if is_full && self.protocol.borrow().may(client, page, Right::Write) {
            let mut none = Pins::new(buffer);
            buffer.resolve(Need::Space(page.partition), Pattern::Random, &mut none).await?;
        }
        Ok(())
    }

    /// Has a page in the buffer.
    pub(super) async fn fetch(&self, page: PageId, pins: &mut Pins) -> engine::Result<()> {
        self.organization(page)?;
        self.database.buffer().resolve(Need::Page(page), Pattern::Random, pins).await.map(drop)
    }

    /// The organization of a page's partition. It may have none any more, or never had one.
    pub(super) fn organization(&self, page: PageId) -> engine::Result<Organization> {
        let found = self.database.describe(page.partition)?;
        if !self.database.buffer().is_attached(page.partition) {
            return Err(Error::NoPartition(format!("'{}' of pages: it is in memory", found.name)));
        }
        Ok(found.organization)
    }
}
