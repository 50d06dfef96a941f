//! Snapshots at a node: reads of all pages as they were at one moment, which lock nothing. Sets are in `set_snapshot.rs`.
//!
//! What the node had when a snapshot was asked for is read where it is in the buffer; all else comes from the server as it was, and enters
//! no frame (`client/snapshots.rs`).

use super::reading::{self, PageReader};
use super::{ClientNode, PageClient, ServerState};
use crate::client::{Client, SNAPSHOTS_MAX, Sight, SnapshotState};
use crate::message::{Described, Session, SnapshotAnswer, ToServer};
use base::{Lsn, PageId, PartitionId};
use driver::{Fault, FaultKind, Work};
use engine::buffer::{AheadWindow, Pins, Pool};
use engine::organization::append::Position;
use engine::organization::b_tree;
use engine::page::{Pages, slotted};
use engine::second_level::design::Pattern;
use engine::{Error, Result};
use std::cell::Ref;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use structures::Need;

/// Which part of the buffer's number of pages is kept for snapshots beside it, and the least number.
const PART_OF_BUFFER: usize = 4;
const KEPT_MIN: usize = 32;

/// How many pages a node keeps for snapshots whose buffer has this many frames.
pub(super) fn kept_max(frames: usize) -> usize {
    (frames / PART_OF_BUFFER).max(KEPT_MIN)
}

/// All pages, and all memory-resident sets, as they were at one moment. It waits for no lock and keeps no one from one, and sees what was acknowledged before
/// [`PageClient::snapshot`] was called, wherever it was committed, and of each commit all or nothing. It ends when it is dropped, or with
/// the connection to the server.
pub struct PageSnapshot {
    pub(super) client: Rc<ClientNode>,
    pub(super) number: u64,
    session: Option<Session>,
    moment: Lsn,
}

/// Pages as a snapshot sees them: those that are here, and those that have come for what is being read.
struct SnapshotPages<'a> {
    number: u64,
    in_hand: &'a BTreeMap<PageId, Rc<[u8]>>,
    /// Whether some of these were waited for.
    missed: bool,
    protocol: Ref<'a, Client>,
    pool: Ref<'a, Pool>,
}

impl Pages for SnapshotPages<'_> {
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        match self.in_hand.get(&id) {
            Some(bytes) => Ok(bytes),
            None if self.protocol.sight(self.number, id) == Sight::Here => self.pool.page(id),
            None => Err(Need::Page(id)),
        }
    }

    fn write_permission(&self, id: PageId) -> Result<(), Need> {
        Err(Need::Write(id))
    }

    fn prefetch_header(&self, id: PageId) -> Option<&[u8]> {
        match self.in_hand.get(&id) {
            Some(bytes) => Some(bytes),
            None if self.protocol.sight(self.number, id) == Sight::Here => self.pool.peek(id),
            None => None,
        }
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        self.pool.capacity(partition)
    }

    fn page_size(&self, partition: PartitionId) -> usize {
        self.pool.page_size(partition)
    }
}

impl PageClient {
    /// A snapshot of this moment: what it sees is durable. It waits while the server is sought, and while the node has
    /// [`SNAPSHOTS_MAX`] of them.
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`] if none of these has ended for as long as a lock would be waited for. [`Error::Input`] if the server is lost or given up, or if its log fails before what the snapshot sees is durable.
    pub async fn snapshot(&self) -> Result<PageSnapshot> {
        let client = &self.0;
        let limit_ns = client.settings.lock_wait_ns_max;
        let (number, message) = loop {
            let Some(limit_ns) = limit_ns else { break client.begin_snapshot().await? };
            if let Some(begun) = client.executor.within(limit_ns, client.begin_snapshot()).await {
                break begun?;
            }
            if client.protocol.borrow().has_all_snapshots() {
                return Err(Error::TooManySnapshots { level: SNAPSHOTS_MAX });
            }
        };
        client.executor.charge(Work::BeginTransaction);
        let session = client.protocol.borrow().session();
        let mut snapshot = PageSnapshot { client: Rc::clone(client), number, session, moment: Lsn::ZERO };
        client.say(&message);
        loop {
            if let Some(moment) = snapshot.check()? {
                snapshot.moment = moment;
                return Ok(snapshot);
            }
            client.bell.wait(&client.executor).await;
        }
    }
}

impl ClientNode {
    /// Begins a snapshot behind those that were asked for before, as soon as the server is there and no more of them are open than may be. Returns
    /// its number, and what to say.
    async fn begin_snapshot(&self) -> Result<(u64, ToServer)> {
        let _next = self.snapping.take(&self.executor).await;
        loop {
            while matches!(*self.standing.borrow(), ServerState::Lost(_)) {
                self.gate.wait(&self.executor).await;
            }
            self.check_server()?;
            let begun = self.protocol.borrow_mut().begin_snapshot();
            if let Some(begun) = begun {
                return Ok(begun);
            }
            self.gate.wait(&self.executor).await;
        }
    }
}

impl PageSnapshot {
    /// Up to where in the server's log all commits are seen: of two snapshots of the same server, that with the greater moment sees more.
    pub fn moment(&self) -> Lsn {
        self.moment
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and as [`PageSnapshot::read`].
    pub async fn partition(&self, name: &str) -> Result<Rc<Described>> {
        self.client.partition(|partition| partition.name == name, || name.to_owned()).await
    }

    /// Shows a page as it was.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if that is not known any more. [`Error::Input`] if the server is lost, or the page cannot be had.
    pub async fn read<T>(&mut self, page: PageId, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        // A copy of it: `look` may drop other snapshots.
        let bytes = self.resolve(|pages| pages.page(page).map(<[u8]>::to_vec)).await?;
        Ok(look(&bytes))
    }

    /// The value of `key`, if there was such a record.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`]; [`Error::NoPartition`], [`Error::WrongOrganization`].
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pay_reference().await;
        let found = self.client.described(partition).await?;
        if !found.has_pages() {
            found.check_set(key, None)?;
            return self.past_record(partition, key).await;
        }
        self.tree(partition).await?;
        self.client.executor.charge(Work::TreeSearch);
        let found = self.resolve(|pages| {
            let (place, leaf) = b_tree::find(pages, partition, key)?;
            let found = place.exact.then(|| slotted::value(leaf, place.slot).to_vec());
            Ok((place, found))
        });
        let (place, found) = found.await?;
        self.client.charge_value(place.page, place.slot, found.as_ref().map_or(0, Vec::len));
        match found {
            None => Ok(None),
            Some(stored) => reading::value_of(self, partition, &stored).await.map(Some),
        }
    }

    /// Shows the records of a b-tree from a key on, in order, to `look`, which returns false to end the scan.
    ///
    /// # Errors
    /// As [`PageSnapshot::get`].
    pub async fn scan(
        &mut self,
        partition: PartitionId,
        from: Bound<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.tree(partition).await?;
        let (client, mut from) = (Rc::clone(&self.client), from.map(<[u8]>::to_vec));
        let (mut read_ahead, mut is_first) = (AheadWindow::default(), true);
        loop {
            self.client.executor.charge(Work::TreeSearch);
            let leaf = self.resolve(|pages| {
                let range = b_tree::forward(pages, partition, from.as_ref().map(Vec::as_slice))?;
                let page = pages.page(range.page)?;
                let records = (range.slot..slotted::count(page)).map(|slot| {
                    let mut key = Vec::new();
                    slotted::key_into(page, slot, &mut key);
                    (key, slotted::value(page, slot).to_vec())
                });
                let records: Vec<_> = records.collect();
                let count = read_ahead.pass(&client.buffer, (is_first, pages.missed));
                let behind = range.fence.as_deref().filter(|_| count > 0).map(|fence| {
                    b_tree::leaves_above(pages, partition, (Bound::Included(fence), Bound::Unbounded), count)
                });
                Ok((range.page, records, behind, range.fence))
            });
            let (page, records, behind, fence) = leaf.await?;
            self.client.charge_value(page, 0, records.iter().map(|(_, stored)| stored.len()).sum());
            is_first = false;
            if let Some(behind) = behind {
                read_ahead.read_with(behind, |pages| self.ask_ahead(pages));
            }
            for (key, stored) in records {
                let value = reading::value_of(self, partition, &stored).await?;
                if !look(&key, &value) {
                    return Ok(());
                }
            }
            match fence {
                Some(fence) => from = Bound::Included(fence),
                None => return Ok(()),
            }
        }
    }

    /// Shows every record of an append partition or a set of arrivals to `look`, in order; `look` returns false to end the scan.
    ///
    /// # Errors
    /// As [`PageSnapshot::get`].
    pub async fn scan_appended(
        &mut self,
        partition: PartitionId,
        look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        let found = self.client.described(partition).await?;
        if !found.has_pages() {
            return self.scan_past_arrivals(&found, look).await;
        }
        reading::scan_appended(self, partition, look).await
    }

    /// Shows object `number` of a direct partition to `look`.
    ///
    /// # Errors
    /// As [`PageSnapshot::get`]; [`Error::NoRecord`] if there are not as many.
    pub async fn read_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        self.pay_reference().await;
        let spot = self.client.spot_of(partition, number).await?;
        let start = usize::from(spot.offset);
        self.read(spot.page, |page| look(&page[start..start + spot.length])).await
    }

    async fn pay_reference(&self) {
        self.client.executor.charge(Work::ObjectReference);
        self.client.executor.pay_debt().await;
    }

    async fn tree(&self, partition: PartitionId) -> Result<()> {
        self.client.tree(partition).await.map(drop)
    }

    /// Calls `attempt` until it lacks nothing, fetching pages in between. What has come stays in hand until all is there.
    async fn resolve<T>(&mut self, mut attempt: impl FnMut(&SnapshotPages<'_>) -> Result<T, Need>) -> Result<T> {
        self.check()?;
        let (mut in_hand, mut missed) = (BTreeMap::new(), false);
        loop {
            let pages = SnapshotPages {
                number: self.number,
                in_hand: &in_hand,
                missed,
                protocol: self.client.protocol.borrow(),
                pool: self.client.buffer.pool().borrow(),
            };
            let attempted = attempt(&pages);
            drop(pages);
            match attempted {
                Ok(value) => return Ok(value),
                Err(Need::Page(page)) => {
                    let (bytes, was_elsewhere) = self.bring(page).await?;
                    missed |= was_elsewhere;
                    in_hand.extend(bytes.map(|bytes| (page, bytes)));
                }
                Err(need) => {
                    let mut none = Pins::new(&self.client.buffer);
                    self.client.buffer.resolve(need.into(), Pattern::Random, &mut none).await?;
                }
            }
        }
    }

    /// A page as the snapshot sees it, or none if it is in the buffer so; and whether it was waited for.
    async fn bring(&mut self, page: PageId) -> Result<(Option<Rc<[u8]>>, bool)> {
        let client = &self.client;
        let mut is_asked = false;
        loop {
            self.check()?;
            match client.protocol.borrow().sight(self.number, page) {
                Sight::Kept(bytes) => return Ok((Some(bytes), is_asked)),
                Sight::Here if client.buffer.pool().borrow().peek(page).is_some() => return Ok((None, is_asked)),
                Sight::Here | Sight::Elsewhere => {}
            }
            if !is_asked {
                if !client.protocol.borrow_mut().awaits_ahead(self.number, page) {
                    let message = client.protocol.borrow_mut().read_as_of(self.number, page);
                    client.say(&message);
                }
                is_asked = true;
            } else if let Some((is_denied, reason)) = client.protocol.borrow().snapshot_failure(self.number, page) {
                let kind = if is_denied { FaultKind::Denied } else { FaultKind::Device };
                return Err(Fault::new(kind, reason).into());
            }
            client.bell.wait(&client.executor).await;
        }
    }

    /// Asks for those of these pages that are elsewhere and not on their way, and says how many these are. They are kept beside the buffer, where
    /// there is room for more than all scans of the node may ask for ahead.
    fn ask_ahead(&self, pages: Vec<PageId>) -> usize {
        let ask = |page| self.client.protocol.borrow_mut().read_ahead_as_of(self.number, page);
        let messages: Vec<ToServer> = pages.into_iter().filter_map(ask).collect();
        messages.iter().for_each(|message| self.client.say(message));
        messages.len()
    }

    /// It may go on. Its moment, when the server has told it.
    pub(super) fn check(&self) -> Result<Option<Lsn>> {
        self.client.check_server()?;
        let protocol = self.client.protocol.borrow();
        let state =
            if protocol.session() == self.session { protocol.snapshot_state(self.number) } else { SnapshotState::Over };
        match state {
            SnapshotState::Asked => Ok(None),
            SnapshotState::Open(moment) => Ok(Some(moment)),
            SnapshotState::TooOld { oldest } => Err(Error::SnapshotTooOld { oldest, asked: None }),
            SnapshotState::Undecided(reason) => Err(Fault::new(FaultKind::Device, reason).into()),
            SnapshotState::Over => Err(Fault::new(FaultKind::Reset, "the snapshot has ended with its session").into()),
        }
    }
}

impl PageReader for PageSnapshot {
    fn node(&self) -> &Rc<ClientNode> {
        &self.client
    }

    async fn look_at<T>(&mut self, page: PageId, mut look: impl FnMut(&[u8]) -> Result<T, Need>) -> Result<(T, bool)> {
        self.resolve(|pages| Ok((look(pages.page(page)?)?, pages.missed))).await
    }

    fn go_on(&self, window: &mut AheadWindow, page: (PageId, bool), end: u32) {
        window.go_on_with(&self.client.buffer, page, end, |pages| self.ask_ahead(pages));
    }
}

impl Drop for PageSnapshot {
    fn drop(&mut self) {
        let told = self.client.protocol.borrow_mut().end_snapshot(self.number);
        told.inspect(|told| self.client.say(told));
        self.client.gate.wake_all(&self.client.executor);
    }
}

impl ClientNode {
    fn check_server(&self) -> Result<()> {
        match &*self.standing.borrow() {
            ServerState::Joined => Ok(()),
            ServerState::Lost(cause) | ServerState::GivenUp(cause) => {
                Err(Fault::new(FaultKind::Reset, cause.clone()).into())
            }
        }
    }

    /// A page that is here is about to be changed or to go.
    pub(super) fn keep_for_snapshots(&self, page: PageId) {
        if !self.protocol.borrow().has_snapshots() || self.changing.borrow().contains(&page) {
            return;
        }
        if let Some(bytes) = self.buffer.pool().borrow().peek(page) {
            self.protocol.borrow_mut().keep_for_snapshots(page, bytes);
        }
    }

    /// The server has said something of a snapshot.
    pub(super) fn hear_of_snapshot(&self, number: u64, said: SnapshotAnswer) {
        let said = match said {
            SnapshotAnswer::Page { page, bytes } => match self.check_page(page, &bytes) {
                Ok(()) => SnapshotAnswer::Page { page, bytes },
                Err(detail) => {
                    let reason = format!("the server at {} has sent {page} damaged: {detail}", self.server);
                    SnapshotAnswer::Failed { page, is_denied: false, reason }
                }
            },
            said => said,
        };
        self.protocol.borrow_mut().hear_of_snapshot(number, said);
        self.bell.wake_all(&self.executor);
    }
}
