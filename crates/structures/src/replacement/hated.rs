//! Hate hints: pages that are to leave before all others, because they are in memory elsewhere (Franklin, Carey, Livny, VLDB 1992,
//! section 2.3.3).
//!
//! A hint holds until the page is referenced again. Of several pages the one that was hated last leaves first.

use std::cell::RefCell;

/// The frames whose pages are hated, beside any policy: what that says of them does not count.
#[derive(Default)]
pub struct Hated {
    /// By frame, the latest reference to its page when it was hated; 0 if it never was.
    at: Vec<u64>,
    /// The frames in the order in which they were hated, with the same number. Some are not hated any more.
    order: RefCell<Vec<(u32, u64)>>,
}

impl Hated {
    /// The frame's page is hated, to which the latest reference was the one with this number.
    pub fn add(&mut self, frame: u32, latest: u64) {
        let index = frame as usize;
        if self.at.len() <= index {
            self.at.resize(index + 1, 0);
        }
        self.at[index] = latest;
        let order = self.order.get_mut();
        order.retain(|(other, _)| *other != frame);
        order.push((frame, latest));
    }

    /// Whether the frame's page, to which the latest reference was the one with this number, is hated.
    #[inline]
    pub fn includes(&self, frame: u32, latest: u64) -> bool {
        latest > 0 && self.at.get(frame as usize) == Some(&latest)
    }

    /// The frame's page is gone.
    pub fn forget(&mut self, frame: u32) {
        if let Some(at) = self.at.get_mut(frame as usize) {
            *at = 0;
        }
    }

    /// Visits the frames in the order in which they should leave, until `visit` returns false; whether it never did. `latest` tells
    /// the latest reference to a frame's page.
    pub fn visit(&self, latest: impl Fn(u32) -> u64, visit: &mut dyn FnMut(u32) -> bool) -> bool {
        let mut order = self.order.borrow_mut();
        order.retain(|(frame, at)| self.at[*frame as usize] == *at && latest(*frame) == *at);
        order.iter().rev().all(|(frame, _)| visit(*frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn the_last_to_be_hated_leaves_first_until_it_is_referenced_again() {
        const FRAMES: u64 = 8;
        let mut random = Random::stream(5, "hated");
        let (mut hated, mut latest, mut clock) = (Hated::default(), [0_u64; FRAMES as usize], 0);
        let mut naive: Vec<u32> = Vec::new();
        for _ in 0..10_000 {
            let frame = random.below(FRAMES) as u32;
            match random.below(3) {
                0 => {
                    clock += 1;
                    latest[frame as usize] = clock;
                    naive.retain(|other| *other != frame);
                }
                1 if latest[frame as usize] > 0 => {
                    hated.add(frame, latest[frame as usize]);
                    naive.retain(|other| *other != frame);
                    naive.push(frame);
                }
                _ => {
                    hated.forget(frame);
                    latest[frame as usize] = 0;
                    naive.retain(|other| *other != frame);
                }
            }
            let mut found = Vec::new();
            let all = hated.visit(|frame| latest[frame as usize], &mut |frame| {
                found.push(frame);
                true
            });
            assert!(all && found.iter().eq(naive.iter().rev()), "{found:?} {naive:?}");
            assert!(found.iter().all(|frame| hated.includes(*frame, latest[*frame as usize])));
        }
    }
}
