//! Reading the leaves that a cursor comes to next.

use super::{Cursor, Direction, as_slice};
use crate::engine::Core;
use structures::organization::b_tree;

impl Core {
    /// A cursor has read the first share of a leaf, and whether that was its first leaf, and was missed: has those behind it read, if
    /// it is time.
    #[inline]
    pub(super) fn read_leaves_ahead(&self, cursor: &mut Cursor, (is_first, missed): (bool, bool)) {
        let count = cursor.read_ahead.pass((is_first, missed), self.buffer.ahead_max());
        if count > 0 && cursor.from.is_some() {
            self.read_next_leaves(cursor, count);
        }
    }

    #[cold]
    fn read_next_leaves(&self, cursor: &mut Cursor, count: usize) {
        let Some(from) = &cursor.from else { return };
        let (range, own) = ((as_slice(from), as_slice(&cursor.to)), usize::from(cursor.is_within_leaf));
        let pool = self.buffer.pool().borrow();
        let mut pages = match cursor.direction {
            Direction::Forward => b_tree::leaves_above(&*pool, cursor.partition, range, count + own),
            Direction::Backward => b_tree::leaves_below(&*pool, cursor.partition, range, count + own),
        };
        drop(pool);
        pages.drain(..own.min(pages.len()));
        let named = pages.len();
        cursor.read_ahead.note(named, self.buffer.read_all_ahead(pages));
    }
}
