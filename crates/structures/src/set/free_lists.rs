//! Which segment has room: segments listed by the power of two below their room.

use super::segment::Segment;

const CLASSES: usize = 24;
const NONE: u32 = u32::MAX;

/// Lists of segments by class of room. A segment of class `c` has room for 2^c to 2^(c+1) - 1 bytes; those of class 0 are
/// not listed.
pub(super) struct FreeLists {
    heads: [u32; CLASSES],
}

/// The class of a gap of this many bytes.
#[inline]
fn class(room: usize) -> u8 {
    if room < super::layout::ITEM_SIZE_MIN { 0 } else { room.ilog2() as u8 }
}

impl FreeLists {
    pub(super) fn new() -> FreeLists {
        FreeLists { heads: [NONE; CLASSES] }
    }

    /// Lists segment `number` under its present room.
    #[inline]
    pub(super) fn update(&mut self, segments: &mut [Segment], number: u32, room: usize) {
        if segments[number as usize].class != class(room) {
            self.list(segments, number, class(room));
        }
    }

    fn list(&mut self, segments: &mut [Segment], number: u32, class: u8) {
        let Segment { class: old, before, after, .. } = segments[number as usize];
        if old != 0 {
            match before {
                NONE => self.heads[old as usize] = after,
                before => segments[before as usize].after = after,
            }
            if after != NONE {
                segments[after as usize].before = before;
            }
        }
        let head = if class == 0 { NONE } else { std::mem::replace(&mut self.heads[class as usize], number) };
        if head != NONE {
            segments[head as usize].before = number;
        }
        let segment = &mut segments[number as usize];
        (segment.class, segment.before, segment.after) = (class, NONE, head);
    }

    /// Segments that may have `room` bytes, those with the most room first.
    pub(super) fn candidates<'a>(&self, segments: &'a [Segment], room: usize) -> impl Iterator<Item = u32> + use<'a> {
        let heads = self.heads;
        let listed = |number| (number != NONE).then_some(number);
        (usize::from(class(room)).max(1)..CLASSES).rev().flat_map(move |class| {
            std::iter::successors(listed(heads[class]), move |number| listed(segments[*number as usize].after))
        })
    }

    /// Words for what is wrong with the lists, if anything; `room` tells each segment's.
    pub(super) fn check(&self, segments: &[Segment], room: impl Fn(u32) -> usize) -> Result<(), String> {
        let mut listed = 0;
        for (class, head) in self.heads.iter().enumerate() {
            let (mut number, mut before) = (*head, NONE);
            while number != NONE {
                let segment = &segments[number as usize];
                if usize::from(segment.class) != class || segment.before != before || listed > segments.len() {
                    return Err(format!("segment {number} stands wrongly in the list of class {class}"));
                }
                listed += 1;
                (before, number) = (number, segment.after);
            }
        }
        let classes = || segments.iter().zip(0..).map(|(segment, number)| (segment.class, class(room(number))));
        if let Some((found, expected)) = classes().find(|(found, expected)| found != expected) {
            return Err(format!("a segment of class {expected} is listed under {found}"));
        }
        let expected = classes().filter(|(class, _)| *class != 0).count();
        if listed == expected { Ok(()) } else { Err(format!("{listed} of {expected} segments are listed")) }
    }
}
