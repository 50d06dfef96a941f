//! Page 0 of a partition that allocates pages: how many pages are in use or free, and the list of free ones.
//!
//! ```text
//! page 0:       32 page count u32   36 first free page u32 (0: none)   40 free pages u32
//!               44 and on: the organization's own
//! a free page:  32 next free page u32 (0: none)
//! ```

use crate::page::header::{self, HEADER_SIZE, PageKind};
use crate::page::{OwnedChange, OwnedEdit, Pages};
use crate::{Error, Need};
use base::{PageId, PartitionId};

/// Where page 0 keeps what is the organization's own, from the front of the page.
pub const ORGANIZATION_OFFSET: usize = HEADER_SIZE + STATE_SIZE;

const STATE_SIZE: usize = 12;

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
        let id = PageId::new(partition, number);
        let page = pages.page(id)?;
        if header::kind(page) != Some(PageKind::Free) {
            return Err(damaged(id, "it is on the free list but not free"));
        }
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
    state.free_count += 1;
    let change = OwnedChange::Format { kind: PageKind::Free, level: 0, count: 0, image };
    Ok(vec![OwnedEdit { page: id, change }, state.patch(id.partition)])
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
