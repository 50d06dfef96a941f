//! Page 0 of a partition that allocates pages: how many pages are in use or free, and the list of free ones.
//!
//! ```text
//! page 0:       32 page count u32   36 first free page u32 (0: none)   40 free pages u32
//!               44 and on: the organization's own
//!               48 sequence number u64 above which pages begin anew that were cut off the end before
//! a free page:  32 next free page u32 (0: none)
//! ```

use crate::page::header::{self, HEADER_SIZE, PageKind};
use crate::page::{OwnedChange, OwnedEdit, Pages};
use crate::{Error, Need};
use base::{PageId, PartitionId};

/// Where page 0 keeps what is the organization's own, from the front of the page.
pub const ORGANIZATION_OFFSET: usize = HEADER_SIZE + STATE_SIZE;

const STATE_SIZE: usize = 12;

/// Where page 0 keeps the highest sequence number of a page that was cut off the end, from the front of the page.
const FLOOR_OFFSET: usize = 48;

/// What page 0 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Pages in the partition, page 0 and free ones included.
    pub page_count: u32,
    /// The first page of the free list; 0 if the list is empty.
    pub free_head: u32,
    /// The length of the free list.
    pub free_count: u32,
}

impl State {
    fn bytes(self) -> Vec<u8> {
        [self.page_count, self.free_head, self.free_count].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn patch(self, partition: PartitionId) -> OwnedEdit {
        let change = OwnedChange::Patch { offset: HEADER_SIZE as u16, bytes: self.bytes() };
        OwnedEdit { page: PageId::new(partition, 0), change }
    }
}

fn word(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

/// What this allocator page says.
pub fn read(page: &[u8]) -> State {
    let field = |index: usize| word(page, HEADER_SIZE + 4 * index);
    State { page_count: field(0), free_head: field(1), free_count: field(2) }
}

/// The sequence number that a page begins with which is used for the first time, or anew after it was cut off the end: it is not below
/// any that the page has had, so no copy of before is ever newer.
pub fn floor(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[FLOOR_OFFSET..FLOOR_OFFSET + 8].try_into().expect("eight bytes"))
}

/// The page behind this free page on the free list; 0 at the end.
pub fn next_free(page: &[u8]) -> u32 {
    word(page, HEADER_SIZE)
}

/// The edit that formats page 0 of a partition whose pages are the first `page_count`, page 0 included; `own` is put at
/// [`ORGANIZATION_OFFSET`].
pub fn create(partition: PartitionId, page_count: u32, own: &[u8]) -> OwnedEdit {
    let mut image = State { page_count, free_head: 0, free_count: 0 }.bytes();
    image.extend_from_slice(own);
    let change = OwnedChange::Format { kind: PageKind::Allocator, level: 0, count: 0, image };
    OwnedEdit { page: PageId::new(partition, 0), change }
}

/// Plans to take a page off the free list, or else off the end of the file. Its number comes with the edits that make it
/// allocated; the caller adds the edit that formats it.
///
/// # Errors
/// [`Need::Page`] for page 0 or the first free page, [`Need::Space`] if the file is full, [`Need::Fail`] if page 0 or the
/// list is damaged.
pub fn allocate(pages: &impl Pages, partition: PartitionId) -> Result<(u32, Vec<OwnedEdit>), Need> {
    let mut state = state(pages, partition)?;
    let number = if state.free_head != 0 {
        let number = state.free_head;
        let page = free_page(pages, PageId::new(partition, number))?;
        state.free_head = next_free(page);
        state.free_count = state.free_count.saturating_sub(1);
        number
    } else if state.page_count < pages.capacity(partition) {
        state.page_count += 1;
        state.page_count - 1
    } else {
        return Err(Need::Space(partition));
    };
    Ok((number, vec![state.patch(partition)]))
}

/// Plans to put a page at the front of the free list.
///
/// # Errors
/// [`Need::Page`] for page 0 or the page itself, [`Need::Fail`] if page 0 is damaged or the page is free already.
pub fn free(pages: &impl Pages, id: PageId) -> Result<Vec<OwnedEdit>, Need> {
    let mut state = state(pages, id.partition)?;
    if header::kind(pages.page(id)?) == Some(PageKind::Free) {
        return Err(damaged(id, "it is freed twice"));
    }
    let image = state.free_head.to_le_bytes().to_vec();
    state.free_head = id.number;
    let more = state.free_count.checked_add(1);
    state.free_count =
        more.ok_or_else(|| damaged(PageId { number: 0, ..id }, "it has more free pages than any partition"))?;
    let change = OwnedChange::Format { kind: PageKind::Free, level: 0, count: 0, image };
    Ok(vec![OwnedEdit { page: id, change }, state.patch(id.partition)])
}

/// The page behind this page on the free list, 0 at the end, if it is free.
pub fn next_if_free(page: &[u8]) -> Option<u32> {
    (header::kind(page) == Some(PageKind::Free)).then(|| next_free(page))
}

/// Plans to take the first page off the free list, and to put `page`, whose contents the caller moves there, into its place. The
/// number of the first one comes with the edits; `None` if the list is empty.
///
/// # Errors
/// As [`allocate`], and [`Need::Page`] for the page itself.
pub fn exchange(pages: &impl Pages, page: PageId) -> Result<Option<(u32, Vec<OwnedEdit>)>, Need> {
    let mut state = state(pages, page.partition)?;
    if state.free_head == 0 {
        return Ok(None);
    }
    if header::kind(pages.page(page)?) == Some(PageKind::Free) {
        return Err(damaged(page, "it is freed twice"));
    }
    let taken = PageId { number: state.free_head, ..page };
    let image = next_free(free_page(pages, taken)?).to_le_bytes().to_vec();
    state.free_head = page.number;
    let change = OwnedChange::Format { kind: PageKind::Free, level: 0, count: 0, image };
    Ok(Some((taken.number, vec![OwnedEdit { page, change }, state.patch(page.partition)])))
}

/// Plans to have a free page come first on the free list, on which it is right behind page `before` now, or first if that is 0. No
/// edits if it is the first one; `None` if it is not there.
///
/// # Errors
/// [`Need::Page`] for page 0 or either page, [`Need::Fail`] if page 0 is damaged.
pub fn bring_forward(pages: &impl Pages, page: PageId, before: u32) -> Result<Option<Vec<OwnedEdit>>, Need> {
    let mut state = state(pages, page.partition)?;
    let bytes = pages.page(page)?;
    if header::kind(bytes) != Some(PageKind::Free) {
        return Ok(None);
    }
    if state.free_head == page.number {
        return Ok(Some(Vec::new()));
    }
    let Some(passed) = pass(pages, page, before, next_free(bytes))? else { return Ok(None) };
    let linked = link(page, state.free_head);
    state.free_head = page.number;
    Ok(Some(vec![passed, linked, state.patch(page.partition)]))
}

/// What becomes of the last page of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Cut {
    /// It is in use.
    Used,
    /// It is free, and not where it was said to be on the free list.
    Elsewhere,
    /// These edits take it, with this number, off the free list and out of the partition.
    Planned(u32, Vec<OwnedEdit>),
}

/// Plans to cut the last page off, if that is free and on the free list right behind page `before`, or first if that is 0. The first
/// `kept` pages stay.
///
/// # Errors
/// As [`bring_forward`].
pub fn cut(pages: &impl Pages, partition: PartitionId, kept: u32, before: impl Fn(u32) -> u32) -> Result<Cut, Need> {
    let mut state = state(pages, partition)?;
    let floor = floor(pages.page(PageId::new(partition, 0))?);
    if state.page_count <= kept.max(1) {
        return Ok(Cut::Used);
    }
    let last = PageId::new(partition, state.page_count - 1);
    let bytes = pages.page(last)?;
    if header::kind(bytes) != Some(PageKind::Free) {
        return Ok(Cut::Used);
    }
    let (behind, mut edits) = (next_free(bytes), Vec::new());
    if state.free_head == last.number {
        state.free_head = behind;
    } else {
        match pass(pages, last, before(last.number), behind)? {
            Some(passed) => edits.push(passed),
            None => return Ok(Cut::Elsewhere),
        }
    }
    state.page_count -= 1;
    state.free_count = state.free_count.saturating_sub(1);
    edits.push(state.patch(partition));
    let sequence = header::sequence(bytes);
    if sequence > floor {
        let change = OwnedChange::Patch { offset: FLOOR_OFFSET as u16, bytes: sequence.to_le_bytes().to_vec() };
        edits.push(OwnedEdit { page: PageId::new(partition, 0), change });
    }
    Ok(Cut::Planned(last.number, edits))
}

/// The edit that has page `before` lead past `page`, to what is behind that on the free list; `None` if it does not lead to `page`.
fn pass(pages: &impl Pages, page: PageId, before: u32, behind: u32) -> Result<Option<OwnedEdit>, Need> {
    if before == 0 || before == page.number {
        return Ok(None);
    }
    let before = PageId { number: before, ..page };
    let bytes = pages.page(before)?;
    let leads_there = header::kind(bytes) == Some(PageKind::Free) && next_free(bytes) == page.number;
    Ok(leads_there.then(|| link(before, behind)))
}

fn link(page: PageId, next: u32) -> OwnedEdit {
    let change = OwnedChange::Patch { offset: HEADER_SIZE as u16, bytes: next.to_le_bytes().to_vec() };
    OwnedEdit { page, change }
}

fn free_page<P: Pages>(pages: &P, id: PageId) -> Result<&[u8], Need> {
    let page = pages.page(id)?;
    match header::kind(page) {
        Some(PageKind::Free) => Ok(page),
        _ => Err(damaged(id, "it is on the free list but not free")),
    }
}

fn state(pages: &impl Pages, partition: PartitionId) -> Result<State, Need> {
    let id = PageId::new(partition, 0);
    let page = pages.page(id)?;
    if header::kind(page) != Some(PageKind::Allocator) {
        return Err(damaged(id, "it is not the page that allocates"));
    }
    Ok(read(page))
}

/// The failure that a page's contents contradict another page's.
#[cold]
pub fn damaged(page: PageId, detail: &str) -> Need {
    Need::Fail(Error::DamagedPage { page, detail: detail.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::organization::b_tree;
    use base::Lsn;

    /// The first pages of a partition, each of 512 bytes.
    struct FirstPages(Vec<Vec<u8>>);

    impl Pages for FirstPages {
        fn page(&self, id: PageId) -> Result<&[u8], Need> {
            self.0.get(id.number as usize).map(Vec::as_slice).ok_or(Need::Page(id))
        }

        fn capacity(&self, _: PartitionId) -> u32 {
            u32::MAX
        }

        fn page_size(&self, _: PartitionId) -> usize {
            512
        }
    }

    /// Numbers that another node may have written there.
    #[test]
    fn numbers_that_no_partition_has_are_damage() {
        let partition = PartitionId(3);
        let mut pages = FirstPages(vec![vec![0; 512]; 3]);
        for edit in b_tree::create(partition, 512) {
            edit.as_edit().change.apply(&mut pages.0[edit.page.number as usize], Lsn::ZERO);
        }
        let id = PageId::new(partition, 2);
        assert!(free(&pages, id).is_ok());
        let is_damage = |need| matches!(need, Need::Fail(Error::DamagedPage { page, .. }) if page.number == 0);
        pages.0[0][HEADER_SIZE + 8..HEADER_SIZE + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(free(&pages, id).is_err_and(is_damage));
    }
}
