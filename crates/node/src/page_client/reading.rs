//! What transactions and snapshots read alike: records of append partitions, long values, and where objects are.

use super::ClientNode;
use base::{PageId, PartitionId};
use engine::buffer::AheadWindow;
use engine::catalog::Organization;
use engine::organization::append::{LIVE, Position};
use engine::organization::b_tree::stored::{self, Stored, VALUE_LEN_MAX};
use engine::organization::{allocator, direct};
use engine::page::{PageKind, header, slotted};
use engine::{Error, Result};
use std::rc::Rc;
use structures::Need;

/// Reads pages of a node: as they are now, or were at one moment.
pub(super) trait PageReader {
    fn node(&self) -> &Rc<ClientNode>;

    /// Shows a page, which is fetched if need be; also whether it was.
    async fn look_at<T>(
        &mut self,
        page: PageId,
        look: impl FnMut(&[u8]) -> std::result::Result<T, Need>,
    ) -> Result<(T, bool)>;

    /// A scan of pages as they are numbered, up to `end`, has come to this one, which was fetched or not: has those behind it asked for, if
    /// it is time.
    fn go_on(&self, window: &mut AheadWindow, page: (PageId, bool), end: u32);
}

/// Where an object is.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub page: PageId,
    pub slot: u16,
    pub offset: u16,
    pub length: usize,
}

impl ClientNode {
    /// Where an object is, which is looked at: this is charged.
    pub(super) async fn spot_of(&self, partition: PartitionId, number: u64) -> Result<Spot> {
        let found = self.described(partition).await?;
        let Organization::Direct { objects, blocking_factor, record_size } = found.organization else {
            found.refuse_set()?;
            return Err(found.wrong_organization("its records have no numbers"));
        };
        if number >= objects {
            return Err(Error::NoRecord(found.name.clone()));
        }
        let place = direct::place(partition, number, blocking_factor, record_size);
        let length = record_size as usize;
        let slot = place.slot(length);
        self.charge_value(place.page, slot, length);
        Ok(Spot { page: place.page, slot, offset: place.offset, length })
    }
}

/// Shows every record of an append partition, in order, until `look` returns false.
pub(super) async fn scan_appended(
    reader: &mut impl PageReader,
    partition: PartitionId,
    mut look: impl FnMut(Position, &[u8]) -> bool,
) -> Result<()> {
    let found = reader.node().described(partition).await?;
    if !matches!(found.organization, Organization::Append { .. }) {
        found.refuse_set()?;
        return Err(found.wrong_organization("its records are found by key or number"));
    }
    let (count, _) = reader.look_at(PageId::new(partition, 0), |bytes| Ok(allocator::read(bytes).page_count)).await?;
    let mut read_ahead = AheadWindow::default();
    for number in 1..count {
        let page = PageId::new(partition, number);
        let records = reader.look_at(page, |bytes| {
            let count = if header::kind(bytes) == Some(PageKind::Append) { slotted::count(bytes) } else { 0 };
            Ok((0..count).map(|slot| slotted::value(bytes, slot).to_vec()).collect::<Vec<_>>())
        });
        let (records, missed) = records.await?;
        reader.go_on(&mut read_ahead, (page, missed), count);
        for (record, slot) in records.iter().zip(0..) {
            reader.node().charge_value(page, slot, record.len());
            if record.first() == Some(&LIVE) && !look(Position { page, slot }, &record[1..]) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The value that is stored so, read from its pages if it is a long one.
pub(super) async fn value_of(reader: &mut impl PageReader, partition: PartitionId, stored: &[u8]) -> Result<Vec<u8>> {
    let (length, first) = match stored::read(stored) {
        Stored::Here(value) => return Ok(value.to_vec()),
        Stored::Elsewhere(length, first) => (length, first),
    };
    let node = Rc::clone(reader.node());
    let damaged = |detail| node.buffer.space(partition).damaged(PageId::new(partition, first), detail);
    if length > VALUE_LEN_MAX {
        return Err(damaged(format!("a long value of {length} bytes is said to begin there")));
    }
    let (mut value, mut page) = (Vec::new(), PageId::new(partition, first));
    while page.number != 0 && value.len() < length {
        let part = |bytes: &[u8]| stored::part_in(page, bytes).map(|(next, part)| (next, part.to_vec()));
        let ((next, part), _) = reader.look_at(page, part).await?;
        node.charge_value(page, 0, part.len());
        value.extend_from_slice(&part);
        page.number = next;
    }
    if value.len() == length {
        return Ok(value);
    }
    Err(damaged(format!("its long value has {} bytes of {length}", value.len())))
}
