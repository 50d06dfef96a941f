//! One segment: where its items are, and which of its bytes are free.
//!
//! Free bytes are the *tail* behind the last item and *holes* between items. A hole carries links to the segment's other
//! holes and, in its last word, its size; the item behind it is marked. So a hole merges with its neighbours in constant
//! time (boundary tags: Knuth, The Art of Computer Programming, volume 1, section 2.5). None of this is trusted when a
//! segment is loaded: it is rebuilt from the sizes of the items.

use super::capture::Preserved;
use super::layout::{self, ITEM_SIZE_MIN, Item, SEGMENT_HEADER_SIZE, item, set_item, set_word, word};
use driver::Frame;

/// The colour of a segment that the sweep in progress has still to take.
pub(super) const WHITE: u8 = 1;
/// The colour of a segment that it has taken, or that does not count. Without a sweep, segments have no colour: 0.
pub(super) const BLACK: u8 = 2;

/// Holes looked at before an insert gives up on them.
const HOLES_TRIED_MAX: usize = 8;

/// A segment and what is known of it.
pub(super) struct Segment {
    /// Its bytes, unless they are lent to a write.
    pub(super) frame: Option<Frame>,
    /// Where the items end.
    tail: u32,
    /// Bytes in the tail and in holes.
    free: u32,
    /// The first hole, in bytes from the front; 0: none.
    holes: u32,
    /// Shadows of unfinished transactions that belong to its items.
    pub(super) uncommitted: u32,
    /// Its neighbours in the list of its class of room.
    pub(super) before: u32,
    pub(super) after: u32,
    /// The class of room that it is listed under.
    pub(super) class: u8,
    /// One bit for each copy of the backup that has an older state.
    pub(super) dirty: u8,
    /// [`WHITE`], [`BLACK`] or none.
    pub(super) colour: u8,
    /// Whether each record is saved before it is first changed: see [`super::stable`].
    pub(super) saves: bool,
    /// Its state at the beginning of the sweep in progress, as far as it has been changed since.
    pub(super) preserved: Option<Box<Preserved>>,
}

impl Segment {
    /// An empty segment.
    pub(super) fn new(frame: Frame) -> Segment {
        let size = frame.len() as u32;
        Segment {
            frame: Some(frame),
            tail: SEGMENT_HEADER_SIZE as u32,
            free: size - SEGMENT_HEADER_SIZE as u32,
            holes: 0,
            uncommitted: 0,
            before: 0,
            after: 0,
            class: 0,
            dirty: 0b11,
            colour: 0,
            saves: false,
            preserved: None,
        }
    }

    #[inline]
    pub(super) fn is_lent(&self) -> bool {
        self.frame.is_none()
    }

    /// Hands out the bytes.
    pub(super) fn lend(&mut self) -> Frame {
        self.frame.take().expect("a segment is lent once at a time")
    }

    /// Takes the bytes back.
    pub(super) fn take_back(&mut self, frame: Frame) {
        assert!(self.frame.is_none(), "only a lent segment comes back");
        self.frame = Some(frame);
    }

    /// The segment's bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.frame.as_ref().expect("the segment is not lent")
    }

    /// The segment's bytes, unless they are lent.
    #[inline]
    pub(super) fn bytes_here(&self) -> Option<&[u8]> {
        self.frame.as_deref()
    }

    /// The segment's bytes, to be changed.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.as_mut().expect("the segment is not lent")
    }

    /// Where the items end.
    #[inline]
    pub(super) fn tail(&self) -> usize {
        self.tail as usize
    }

    /// Bytes that no item takes.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free as usize
    }

    /// Whether it holds no record at all.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tail as usize == SEGMENT_HEADER_SIZE
    }

    /// Takes out whatever it holds.
    pub(super) fn clear(&mut self) {
        assert_eq!(self.uncommitted, 0, "shadows name places");
        if !self.is_empty() {
            self.tail = SEGMENT_HEADER_SIZE as u32;
            self.free = (self.bytes().len() - SEGMENT_HEADER_SIZE) as u32;
            self.holes = 0;
            self.dirty = 0b11;
        }
    }

    /// Where the items are and their first words, holes included.
    pub(super) fn items(&self) -> impl Iterator<Item = (usize, Item)> {
        items(self.bytes(), self.tail())
    }

    /// Finds room for an item of `size` bytes: its place and its size, which may be a little larger. `None` if there is no
    /// such piece, or only far down the list of holes.
    #[inline]
    pub(super) fn allocate(&mut self, size: usize) -> Option<(usize, usize)> {
        let at = self.tail as usize;
        if at + size <= self.bytes().len() {
            self.tail += size as u32;
            self.free -= size as u32;
            return Some((at, size));
        }
        self.allocate_hole(size)
    }

    fn allocate_hole(&mut self, size: usize) -> Option<(usize, usize)> {
        let mut at = self.holes as usize;
        for _ in 0..HOLES_TRIED_MAX {
            if at == 0 {
                return None;
            }
            let found = item(self.bytes(), at).size();
            if found >= size {
                self.unlink(at);
                let taken = self.leave_rest(at, found, size);
                self.free -= taken as u32;
                return Some((at, taken));
            }
            at = word(self.bytes(), at + 8) as u32 as usize;
        }
        None
    }

    /// Of `found` free bytes at `at`, takes `size` and leaves the rest as a hole, if it can be one. The piece ends at an
    /// item that is marked as standing behind a hole.
    fn leave_rest(&mut self, at: usize, found: usize, size: usize) -> usize {
        if found - size >= ITEM_SIZE_MIN {
            self.link(at + size, found - size);
            return size;
        }
        let behind = item(self.bytes(), at + found);
        set_item(self.bytes_mut(), at + found, behind.with_after_hole(false));
        found
    }

    /// Makes the item at `at` a hole.
    pub(super) fn release(&mut self, at: usize) {
        let item = item(self.bytes(), at);
        self.free += item.size() as u32;
        let (mut from, mut size) = (at, item.size());
        if item.is_after_hole() {
            let before = word(self.bytes(), at - 8) as usize;
            from -= before;
            size += before;
            self.unlink(from);
        }
        self.put_back(from, size);
    }

    /// Makes a piece free that no hole stands in front of.
    fn put_back(&mut self, at: usize, mut size: usize) {
        if at + size == self.tail() {
            self.tail = at as u32;
            return;
        }
        let behind = item(self.bytes(), at + size);
        if behind.is_hole() {
            self.unlink(at + size);
            size += behind.size();
        }
        self.link(at, size);
    }

    /// Makes the item at `at` at least `size` bytes large where it is; false if there is no room behind it.
    pub(super) fn extend(&mut self, at: usize, size: usize) -> bool {
        let head = item(self.bytes(), at);
        let end = at + head.size();
        if end == self.tail() {
            if at + size > self.bytes().len() {
                return false;
            }
            self.tail = (at + size) as u32;
            self.free -= (size - head.size()) as u32;
            set_item(self.bytes_mut(), at, head.with_size(size));
            return true;
        }
        let behind = item(self.bytes(), end);
        if !behind.is_hole() || head.size() + behind.size() < size {
            return false;
        }
        self.unlink(end);
        let taken = self.leave_rest(at, head.size() + behind.size(), size);
        self.free -= (taken - head.size()) as u32;
        set_item(self.bytes_mut(), at, head.with_size(taken));
        true
    }

    /// Gives back what the item at `at` has over `size` bytes, as far as that can be a hole.
    pub(super) fn trim(&mut self, at: usize, size: usize) {
        let head = item(self.bytes(), at);
        let (end, surplus) = (at + head.size(), head.size() - size);
        let joins = end == self.tail() || item(self.bytes(), end).is_hole();
        if surplus == 0 || !joins && surplus < ITEM_SIZE_MIN {
            return;
        }
        set_item(self.bytes_mut(), at, head.with_size(size));
        self.free += surplus as u32;
        self.put_back(at + size, surplus);
    }

    /// Moves all records to the front, in their order, so that all free bytes are in the tail. `moved` hears of each that
    /// changes its place: its key, from where, to where.
    pub(super) fn compact(&mut self, mut moved: impl FnMut(&[u8], usize, usize)) {
        assert_eq!(self.uncommitted, 0, "shadows name places");
        let end = self.tail();
        let bytes = self.bytes_mut();
        let (mut from, mut to) = (SEGMENT_HEADER_SIZE, SEGMENT_HEADER_SIZE);
        while from < end {
            let head = item(bytes, from);
            if !head.is_hole() {
                let size = head.needed();
                if from != to {
                    bytes.copy_within(from..from + size, to);
                    moved(layout::key(bytes, to), from, to);
                }
                set_item(bytes, to, head.with_size(size).with_after_hole(false));
                to += size;
            }
            from += head.size();
        }
        self.holes = 0;
        self.tail = to as u32;
        self.free = (self.bytes().len() - to) as u32;
    }

    /// Takes up the items of an image that was found sound up to `used`: merges holes and finds the free bytes.
    pub(super) fn rebuild(&mut self, used: usize) {
        self.holes = 0;
        self.tail = used as u32;
        self.free = (self.bytes().len() - used) as u32;
        let mut at = SEGMENT_HEADER_SIZE;
        let mut hole = None;
        while at < used {
            let head = item(self.bytes(), at);
            if head.is_hole() {
                hole.get_or_insert(at);
            } else {
                let clean = head.with_deleted(false).with_after_hole(false).with_saved(false);
                set_item(self.bytes_mut(), at, clean);
                if let Some(from) = hole.take() {
                    self.free += (at - from) as u32;
                    self.link(from, at - from);
                }
            }
            at += head.size();
        }
        if let Some(from) = hole {
            self.free += (used - from) as u32;
            self.tail = from as u32;
        }
    }

    /// Makes these bytes a hole that stands first in the list. An item stands behind it.
    fn link(&mut self, at: usize, size: usize) {
        let next = self.holes as usize;
        self.holes = at as u32;
        let bytes = self.bytes_mut();
        set_item(bytes, at, Item::hole(size));
        set_word(bytes, at + 8, next as u64);
        set_word(bytes, at + size - 8, size as u64);
        let behind = item(bytes, at + size);
        set_item(bytes, at + size, behind.with_after_hole(true));
        if next != 0 {
            let links = word(bytes, next + 8) & 0xffff_ffff;
            set_word(bytes, next + 8, links | (at as u64) << 32);
        }
    }

    /// Takes the hole at `at` out of the list.
    fn unlink(&mut self, at: usize) {
        let links = word(self.bytes(), at + 8);
        let (next, before) = (links as u32 as usize, (links >> 32) as usize);
        let bytes = self.bytes_mut();
        if next != 0 {
            let kept = word(bytes, next + 8) & 0xffff_ffff;
            set_word(bytes, next + 8, kept | (before as u64) << 32);
        }
        if before == 0 {
            self.holes = next as u32;
        } else {
            let kept = word(bytes, before + 8) & !0xffff_ffff;
            set_word(bytes, before + 8, kept | next as u64);
        }
    }

    /// Words for what is wrong with the free bytes, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut free, mut holes, mut after_hole) = (self.bytes().len() - self.tail(), 0, false);
        let mut end = SEGMENT_HEADER_SIZE;
        for (at, head) in self.items() {
            if head.size() < ITEM_SIZE_MIN || at + head.size() > self.tail() {
                return Err(format!("the item at {at} has {} bytes", head.size()));
            }
            if head.is_hole() {
                if after_hole || word(self.bytes(), at + head.size() - 8) != head.size() as u64 {
                    return Err(format!("the hole at {at} is not merged or not closed"));
                }
                free += head.size();
                holes += 1;
            } else if head.is_after_hole() != after_hole || head.needed() > head.size() {
                return Err(format!("the item at {at} is wrong of the hole before it or its own length"));
            }
            after_hole = head.is_hole();
            end = at + head.size();
        }
        if end != self.tail() || after_hole || free != self.free() {
            return Err(format!("it ends at {end} with {free} bytes free, not {} with {}", self.tail, self.free));
        }
        let (mut at, mut before, mut listed) = (self.holes as usize, 0, 0);
        while at != 0 {
            let links = word(self.bytes(), at + 8);
            if !item(self.bytes(), at).is_hole() || (links >> 32) as usize != before || listed > holes {
                return Err(format!("the list of holes is broken at {at}"));
            }
            listed += 1;
            (before, at) = (at, links as u32 as usize);
        }
        if listed == holes { Ok(()) } else { Err(format!("{listed} of {holes} holes are listed")) }
    }
}

/// Where the items of a segment are and their first words, holes included.
pub(super) fn items(bytes: &[u8], tail: usize) -> impl Iterator<Item = (usize, Item)> {
    let mut next = SEGMENT_HEADER_SIZE;
    std::iter::from_fn(move || {
        (next < tail).then(|| {
            let at = next;
            let head = item(bytes, at);
            next += head.size();
            (at, head)
        })
    })
}
