//! Commits of clients: what is shipped is installed in the buffer, or redone there, or nothing of it.

use super::ServerNode;
use super::sets::as_change;
use crate::message::{ClientId, Image, SetWrite, Transaction};
use base::PageId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::buffer::Pins;
use engine::canary::{self, Canary};
use engine::page::Pages;
use engine::{CommitFailure, Error, Internals, SetChange, Shipment};
use std::collections::BTreeSet;

/// For how long a commit that finds all frames in use is tried again, and how long it rests before each try, in nanoseconds.
const PATIENCE_NS: u64 = SECOND_NS;
const DELAY_NS: u64 = MILLISECOND_NS;

impl ServerNode {
    /// Commits what follows from the pages as they are here, all at once: whatever makes room lets go of pages. On described networks, on
    /// which no strangers are, pages that are not in the buffer are not read for that, but for those on which the records are redone or that
    /// snapshots may see.
    async fn commit_checked(
        &self,
        client: ClientId,
        shipment: &Shipment<'_>,
        pins: &mut Pins,
    ) -> Result<(), CommitFailure> {
        loop {
            if self.settings.has_leases || self.has_snapshots() {
                // None of them was used lately by this thread, and each is looked at next.
                shipment.pages().for_each(|page| self.database.buffer().pool().borrow().prefetch(page));
                let absent: Vec<PageId> = shipment.pages().filter(|page| !pins.hold(*page)).collect();
                for page in &absent {
                    self.make_room(client, *page).await.map_err(CommitFailure::NothingLogged)?;
                }
                for page in absent {
                    self.fetch(page, pins).await.map_err(CommitFailure::NothingLogged)?;
                }
            }
            // A snapshot may have been begun while this has waited.
            let at_hand = || !self.has_snapshots() || self.are_here(shipment);
            let note = |at| self.note_applied(shipment, at);
            if self.database.commit_shipped_noting(shipment, at_hand, note).await? {
                return Ok(());
            }
        }
    }

    fn are_here(&self, shipment: &Shipment<'_>) -> bool {
        let pool = self.database.buffer().pool().borrow();
        shipment.pages().all(|page| pool.peek(page).is_some())
    }

    /// That all frames are in use for a moment is no reason to refuse a commit. Those that have found it so are tried again one at a time,
    /// so that none waits for frames that another one waits with.
    async fn commit_as_frames_allow(
        &self,
        client: ClientId,
        shipment: &Shipment<'_>,
        pins: &mut Pins,
    ) -> Result<(), CommitFailure> {
        let pages = shipment.pages().count();
        let is_exhausted = |done: &Result<(), CommitFailure>| matches!(done, Err(CommitFailure::NothingLogged(Error::BufferExhausted { frames })) if pages < *frames);
        let mut done = self.commit_checked(client, shipment, pins).await;
        if is_exhausted(&done) {
            *pins = Pins::new(self.database.buffer());
            let _turn = self.frames_turn.take(self.executor()).await;
            let until = self.executor().now().plus_ns(PATIENCE_NS);
            while is_exhausted(&done) && self.executor().now() < until && !self.ending.has_come() {
                *pins = Pins::new(self.database.buffer());
                self.executor().sleep_ns(DELAY_NS).await;
                done = self.commit_checked(client, shipment, pins).await;
            }
        }
        done
    }

    pub(super) async fn commit(
        &self,
        owner: (ClientId, Transaction),
        (records, pages, redone): (Vec<u8>, Vec<Image>, Vec<PageId>),
        (by_records, sets): (&BTreeSet<PageId>, &[SetWrite]),
    ) {
        let changes: Vec<SetChange<'_>> = sets.iter().map(as_change).collect();
        let images: Vec<(PageId, &[u8])> = pages.iter().map(|image| (image.page, &image.bytes[..])).collect();
        let shipment = Shipment { records: &records, images: &images, redone: &redone, sets: &changes };
        let mut pins = Pins::new(self.database.buffer());
        let checked = match self.check_record_locks(owner, &records, by_records) {
            Ok(()) => self.check_set_locks(owner, sets).await,
            refused => refused,
        };
        let committed = match checked {
            Ok(()) => self.commit_as_frames_allow(owner.0, &shipment, &mut pins).await,
            Err(error) => Err(CommitFailure::NothingLogged(error)),
        };
        match committed {
            Ok(()) => {
                self.protocol.borrow_mut().note_redone(redone.len());
                self.step(|server, memory, actions| server.committed(owner, memory, actions));
            }
            Err(CommitFailure::NothingLogged(error)) => {
                let reason = error.to_string();
                self.step(|server, memory, actions| server.not_committed(owner, reason, memory, actions));
            }
            // The client must not roll back what it may find committed. As it joins again it learns that nothing is known.
            Err(CommitFailure::Undecided(error)) => {
                if canary::is_planted(Canary::DecidedFailure) {
                    let reason = error.to_string();
                    self.step(|server, memory, actions| server.not_committed(owner, reason, memory, actions));
                }
                self.step(|server, memory, actions| server.note_undecided(owner, memory, actions));
                self.hang_up(owner.0);
            }
        }
        self.bell.wake_all(self.executor());
    }
}
