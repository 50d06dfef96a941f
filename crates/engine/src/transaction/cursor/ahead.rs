//! Reading the leaves that a cursor comes to next.

use super::{Cursor, Direction, as_slice};
use crate::buffer::Buffer;
use std::rc::Rc;
use structures::organization::b_tree;

impl Cursor {
    /// It has read the first share of a leaf, which was its first one or not, and was missed or not: has those behind it read, if it is
    /// time.
    #[inline]
    pub(super) fn read_leaves_ahead(&mut self, buffer: &Rc<Buffer>, (is_first, missed): (bool, bool)) {
        let count = self.read_ahead.pass(buffer, (is_first, missed));
        if self.from.is_none() {
            self.read_ahead.end();
        } else if count > 0 {
            self.read_next_leaves(buffer, count);
        }
    }

    #[cold]
    fn read_next_leaves(&mut self, buffer: &Rc<Buffer>, count: usize) {
        let Some(from) = &self.from else { return };
        let (range, own) = ((as_slice(from), as_slice(&self.to)), usize::from(self.is_within_leaf));
        let pool = buffer.pool().borrow();
        let mut pages = match self.direction {
            Direction::Forward => b_tree::leaves_above(&*pool, self.partition, range, count + own),
            Direction::Backward => b_tree::leaves_below(&*pool, self.partition, range, count + own),
        };
        drop(pool);
        pages.drain(..own.min(pages.len()));
        self.read_ahead.read(buffer, pages);
    }
}
