//! Which changes of a transaction belong to which segment.
//!
//! An image of a segment needs the shadows there, and a transaction may have a million elsewhere. So where an image is made beside a
//! transaction, its changes are sorted by segment, each once however many images there are: first when they are asked for, then as far as
//! there are more.

use super::Sets;
use super::changes::{Before, Shadow};
use super::memory::Set;
use base::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// The changes of one transaction by segment.
#[derive(Default)]
pub(super) struct ChangesBySegment {
    /// By set and segment, the numbers of the changes there, which ascend.
    numbers: BTreeMap<(u16, usize), Vec<usize>>,
    /// How many changes are sorted, from the first on.
    sorted: usize,
}

/// A set, and the segments in it that a change belongs to: one, or two if it has moved its record.
fn segments_of(sets: &[Option<Box<Set>>], shadow: &Shadow) -> (u16, usize, Option<usize>) {
    let set = sets[usize::from(shadow.set)].as_ref().expect("it had been changed");
    let (here, _) = set.locate(shadow.place);
    let moved_to = if let Before::MovedTo(to) = shadow.before { Some(set.locate(to).0) } else { None };
    (shadow.set, here, moved_to.filter(|to| *to != here))
}

impl ChangesBySegment {
    /// The numbers of the changes in a segment, among all of the transaction.
    fn in_segment(&mut self, sets: &[Option<Box<Set>>], shadows: &[Shadow], segment: (u16, usize)) -> &[usize] {
        for (number, shadow) in shadows.iter().enumerate().skip(self.sorted) {
            let (set, here, moved_to) = segments_of(sets, shadow);
            for segment in [Some(here), moved_to].into_iter().flatten() {
                self.numbers.entry((set, segment)).or_default().push(number);
            }
        }
        self.sorted = shadows.len();
        self.numbers.get(&segment).map_or(&[], Vec::as_slice)
    }

    /// The last change, of this number, is taken back.
    #[inline]
    pub(super) fn take_back(&mut self, sets: &[Option<Box<Set>>], shadow: &Shadow, number: usize) {
        if self.sorted > number {
            self.forget_last(segments_of(sets, shadow), number);
        }
    }

    #[cold]
    fn forget_last(&mut self, (set, here, moved_to): (u16, usize, Option<usize>), number: usize) {
        for segment in [Some(here), moved_to].into_iter().flatten() {
            if let Some(numbers) = self.numbers.get_mut(&(set, segment)) {
                let last = numbers.pop();
                debug_assert_eq!(last, Some(number), "changes are taken back in the reverse of their order");
            }
        }
        self.sorted = number;
    }

    /// They are no more, or have other places.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.sorted > 0 {
            *self = ChangesBySegment::default();
        }
    }
}

/// The white segments that the commit of these changes is going to alter and whose image is not saved, as set and number.
pub(super) fn wanted(sets: &[Option<Box<Set>>], shadows: &[Shadow]) -> BTreeSet<(u16, usize)> {
    let (mut wanted, mut last) = (BTreeSet::new(), None);
    for shadow in shadows {
        let (number, here, moved_to) = segments_of(sets, shadow);
        let set = sets[usize::from(number)].as_ref().expect("it had been changed");
        for segment in [Some(here), moved_to].into_iter().flatten() {
            // Neighbours are often of one segment.
            if last.replace((number, segment)) != Some((number, segment)) && set.is_wanted(segment) {
                wanted.insert((number, segment));
            }
        }
    }
    wanted
}

impl Sets {
    /// The shadows in a segment with their saved bytes, for every record the latest first.
    pub(super) fn shadows_in(&self, partition: PartitionId, segment: usize) -> Vec<(&Shadow, &[u8])> {
        let mut found = Vec::new();
        for changes in self.owners.iter().filter(|changes| !changes.shadows.is_empty()) {
            let mut by_segment = changes.by_segment.borrow_mut();
            let numbers = by_segment.in_segment(&self.sets, &changes.shadows, (partition.0, segment));
            let shadows = numbers.iter().rev().map(|number| &changes.shadows[*number]);
            found.extend(shadows.map(|shadow| (shadow, shadow.bytes(&changes.saved))));
        }
        found
    }
}
