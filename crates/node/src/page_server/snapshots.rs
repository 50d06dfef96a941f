//! Snapshots of clients above an engine: what commits replace is looked at in the step in which they do that, and pages are read as they
//! were from memory, from disk, or from what was kept.

use super::sets::shown;
use super::{PageServer, ServerNode};
use crate::message::{Answer, ClientId, PastAsk, SetAnswer, SetRange, SetValue, SnapshotAnswer};
use crate::server::AsOf;
use base::{Lsn, PageId, PartitionId};
use engine::buffer::Pins;
use engine::canary::{self, Canary};
use engine::catalog::{EntryRange, Organization};
use engine::page::header;
use engine::{Error, HeldMoment, Internals, Result, Shipment};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which part of the buffer's size what pages were may take.
const PART_OF_BUFFER: usize = 4;
/// The least room for that, in bytes.
const ROOM_MIN: usize = 1 << 20;
/// More bytes than the answer to the beginning of a snapshot has, and what waits for it takes.
const EXPECTED: usize = 1 << 10;

/// What keeps of sets what snapshots see, one for each that is open: each is entered in the step in which its snapshot begins.
pub(super) struct SetViews<View>(BTreeMap<(ClientId, u64), View>);

impl<View> Default for SetViews<View> {
    fn default() -> SetViews<View> {
        SetViews(BTreeMap::new())
    }
}

impl<View> SetViews<View> {
    /// Those end whose snapshots are not among the open ones any more, of which there is this number. If none of theirs has ended, as after most
    /// steps, none is looked at.
    fn end(&mut self, open: usize, is_open: impl Fn((ClientId, u64)) -> bool) {
        if self.0.len() != open {
            self.0.retain(|snapshot, _| is_open(*snapshot));
        }
    }
}

impl PageServer {
    /// From now on what pages were before commits, as snapshots see them, may take this number of bytes of memory. Without that it is a quarter of
    /// the buffer, or one MiB if that is more. Snapshots that it does not suffice for get [`Error::SnapshotTooOld`].
    pub fn set_snapshot_room(&self, bytes: usize) {
        self.0.protocol.borrow_mut().set_snapshot_room(bytes);
    }
}

impl ServerNode {
    pub(super) fn set_default_snapshot_room(&self) {
        let buffer = &self.database.settings().buffer;
        let room = (buffer.frames * buffer.page_size / PART_OF_BUFFER).max(ROOM_MIN);
        self.protocol.borrow_mut().set_snapshot_room(room);
    }

    /// Whether snapshots are open, so that pages are to be at hand before they are changed.
    pub(super) fn has_snapshots(&self) -> bool {
        self.protocol.borrow().snapshots().0 > 0
    }

    /// A commit that is described up to this position of the log changes its pages next, in the same step.
    pub(super) fn note_applied(&self, shipment: &Shipment<'_>, at: Lsn) {
        let before = |page| self.database.buffer().pool().borrow().peek(page).map(Rc::from);
        self.step(|server, _, actions| server.applied(at, shipment.pages(), before, actions));
    }

    /// Tells a client of its snapshot when all that it sees is durable. Of sets it sees what the engine's own snapshot of this step does, which
    /// is the step of its moment.
    pub(super) fn begin_snapshot(&self, (client, number): (ClientId, u64), moment: Lsn) {
        self.set_views.borrow_mut().0.insert((client, number), self.kept.hold());
        if self.database.log().durable() >= moment {
            return self.tell_begun((client, number), moment);
        }
        // A client that begins and ends many is not heard for a while.
        let expected = self.outboxes.borrow().get(&client).map(|outbox| outbox.expect(EXPECTED));
        self.spawn(async move |this| {
            match this.database.confirm_shipped(moment).await {
                Ok(()) => this.tell_begun((client, number), moment),
                Err(error) => {
                    let reason = error.to_string();
                    this.step(|server, _, actions| server.undecided_snapshot((client, number), reason, actions));
                }
            }
            drop(expected);
        });
    }

    /// Those end whose snapshots have ended.
    pub(super) fn end_set_views(&self) {
        let protocol = self.protocol.borrow();
        self.set_views.borrow_mut().end(protocol.snapshots().0, |snapshot| protocol.is_open(snapshot));
    }

    /// Answers what a client asks of a set as it was at the moment of its snapshot.
    pub(super) async fn read_past_of_set(
        &self,
        snapshot: (ClientId, u64),
        question: u64,
        (partition, ask): (PartitionId, PastAsk),
    ) {
        let moment = self.set_views.borrow().0.get(&snapshot).map(HeldMoment::moment);
        // Its client has been told that it has ended.
        let Some(moment) = moment else { return };
        let said = match self.look_at_past(moment, partition, &ask).await {
            Ok(said) => said,
            Err(Error::SnapshotTooOld { oldest, .. }) => SetAnswer::TooOld { oldest: oldest.0 },
            Err(error) => SetAnswer::Failed { is_denied: false, reason: error.to_string() },
        };
        let (client, number) = snapshot;
        let length = said.length();
        let said = SnapshotAnswer::Set { question, said };
        self.send_portion(client, &Answer::Snapshot { number, said }, length).await;
    }

    async fn look_at_past(&self, moment: Lsn, partition: PartitionId, ask: &PastAsk) -> Result<SetAnswer> {
        let mut view = match canary::is_planted(Canary::PresentSetForMoment) {
            true => self.database.snapshot().await?,
            false => self.database.as_of(moment).await?,
        };
        Ok(match ask {
            PastAsk::Record(key) => SetAnswer::Value(view.get(partition, key).await?.map(SetValue)),
            PastAsk::Range(SetRange { index, from, to, behind }) => {
                let range = EntryRange { from: from.clone(), to: to.as_ref().map(|SetValue(to)| to.clone()) };
                let behind = behind.as_ref().map(|(SetValue(of), SetValue(key))| (&of[..], &key[..]));
                let at = (partition, usize::from(*index));
                let (portion, is_last) = self.database.past_portion_of_index(&mut view, at, &range, behind).await?;
                shown(portion.records, (is_last, None))
            }
            PastAsk::Scan(from) => {
                let (portion, next) = self.database.past_portion_of_set(&mut view, partition, *from).await?;
                shown(portion.records, (next.is_none(), next))
            }
        })
    }

    fn tell_begun(&self, (client, number): (ClientId, u64), moment: Lsn) {
        self.send(client, &Answer::Snapshot { number, said: SnapshotAnswer::Begun { moment: moment.0 } });
    }

    /// Sends a page as it was at the moment of a snapshot.
    pub(super) fn read_snapshot(&self, snapshot: (ClientId, u64), page: PageId) {
        if self.send_as_of(snapshot, page) {
            return;
        }
        let length = self.database.settings().buffer.page_size;
        let expected = self.outboxes.borrow().get(&snapshot.0).map(|outbox| outbox.expect(length));
        self.spawn(async move |this| {
            let mut pins = Pins::new(this.database.buffer());
            let fetched = this.fetch_as_of(snapshot.0, page, &mut pins).await;
            // A commit may have replaced it meanwhile.
            let is_answered = this.send_as_of(snapshot, page);
            if let (false, Err(error)) = (is_answered, fetched) {
                this.fail_snapshot_read(snapshot, page, &error);
            }
            drop(expected);
        });
    }

    async fn fetch_as_of(&self, client: ClientId, page: PageId, pins: &mut Pins) -> Result<()> {
        // Objects at the end of a partition may have been cut off: they are blank.
        if matches!(self.organization(page)?, Organization::Direct { .. }) {
            self.make_room(client, page).await?;
        }
        self.fetch(page, pins).await
    }

    /// Sends a page as it was, or says that the snapshot is too old. False if the page has to be fetched for that.
    fn send_as_of(&self, (client, number): (ClientId, u64), page: PageId) -> bool {
        let as_of = self.step(|server, _, actions| server.as_of((client, number), page, actions));
        let mut bytes = match as_of {
            None | Some(AsOf::Lost) => return true,
            Some(AsOf::Earlier(bytes)) => bytes.to_vec(),
            Some(AsOf::Present) => {
                let pool = self.database.buffer().pool().borrow();
                let Some(frame) = pool.frame_of(page) else { return false };
                pool.touch(frame);
                pool.bytes(frame).to_vec()
            }
        };
        header::seal(&mut bytes);
        self.send(client, &Answer::Snapshot { number, said: SnapshotAnswer::Page { page, bytes } });
        true
    }

    fn fail_snapshot_read(&self, (client, number): (ClientId, u64), page: PageId, error: &Error) {
        let said = SnapshotAnswer::Failed { page, is_denied: false, reason: error.to_string() };
        self.send(client, &Answer::Snapshot { number, said });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn views_are_looked_at_only_when_a_snapshot_has_ended() {
        let snapshot = |number: u64| (ClientId(number as u32 % 8), number);
        let mut views = SetViews((0..1_000).map(|number| (snapshot(number), ())).collect());
        let looked = Cell::new(0);
        let mut end_of = |ended: u64| {
            views.end(1_000 - ended as usize, |(_, number)| {
                looked.set(looked.get() + 1);
                number >= ended
            });
            (views.0.len(), looked.take())
        };
        for _ in 0..100 {
            assert_eq!(end_of(0), (1_000, 0));
        }
        assert_eq!(end_of(1), (999, 1_000));
        assert_eq!(end_of(1), (999, 0));
    }
}
