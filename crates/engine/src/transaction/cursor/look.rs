//! Showing the records of a range where they are, without copying them.

use super::{Cursor, SHARE_GROWTH};
use crate::statistics::FoundIn;
use crate::transaction::Transaction;
use crate::{Need, Result};
use structures::lock::{Mode, Resource};
use structures::organization::b_tree::stored::{self, Stored};

/// What was shown of a share.
pub(in crate::transaction) enum Looked {
    /// All of it, and there may be more behind it.
    Share,
    /// As much as is wanted, or all there is.
    Enough,
    /// All before a record that [`Transaction::next`] has to read.
    Before,
}

impl Transaction {
    /// Shows the records of the next share until `look` returns false. A long value among them ends it.
    ///
    /// # Errors
    /// Those of [`Transaction::next`].
    pub(in crate::transaction) async fn look_at_share(
        &mut self,
        cursor: &mut Cursor,
        look: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Looked> {
        if cursor.read_view.is_some() || !cursor.ready.is_empty() || cursor.is_lost {
            return Ok(Looked::Before);
        }
        if !self.resume(cursor)? {
            return Ok(Looked::Enough);
        }
        let (engine, mut from) = (self.engine.clone(), FoundIn::default());
        loop {
            if cursor.from.is_none() {
                cursor.ended = true;
                return Ok(Looked::Enough);
            }
            if !cursor.locks {
                self.note_unlocked();
            }
            let is_within_leaf = cursor.is_within_leaf;
            let place = (is_within_leaf, self.refer_to_leaf(cursor).await?);
            let (of, step) = ((cursor.partition, &mut from), || self.look_at_leaf(cursor, look));
            let (step, missed) = engine.core.resolve_share(of, place, Result::is_ok, step).await?;
            match step {
                Ok(looked) => {
                    if !is_within_leaf && matches!(looked, Looked::Share) {
                        cursor.read_leaves_ahead(&engine.core.buffer, (place.1, missed));
                    }
                    return Ok(looked);
                }
                Err(resource) => self.lock(resource, Mode::Shared).await?,
            }
        }
    }

    fn look_at_leaf(
        &self,
        cursor: &mut Cursor,
        look: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Result<Looked, Resource>, Need> {
        let pool = self.engine.core.pages_to_search();
        let met = match self.meet_share(cursor, &pool, |_, _| {})? {
            Ok(met) => met,
            Err(resource) => return Ok(Err(resource)),
        };
        let (mut key, mut shown, mut bytes, mut looked) = (Vec::new(), 0, 0, Looked::Share);
        // Should `look` panic, the cursor goes on behind what it was shown.
        cursor.is_lost = true;
        for slot in met.slots() {
            let stored = met.record(slot, &mut key);
            if shown == 0 && !cursor.is_within_leaf {
                self.trace_key_access(cursor.partition, &key, false);
            }
            let Stored::Here(value) = stored::read(stored) else {
                looked = Looked::Before;
                break;
            };
            cursor.pass(&key);
            shown += 1;
            bytes += value.len();
            if !look(&key, value) {
                looked = Looked::Enough;
                break;
            }
        }
        cursor.is_lost = false;
        self.engine.core.buffer.charge_value(met.page, 0, bytes);
        cursor.share_max = cursor.share_max.saturating_mul(SHARE_GROWTH);
        if shown == met.count {
            cursor.from = met.from;
            cursor.is_within_leaf = met.is_within_leaf;
        } else {
            if shown > 0 {
                cursor.from = Some(cursor.behind.clone());
            }
            cursor.is_within_leaf = true;
        }
        Ok(Ok(looked))
    }
}
