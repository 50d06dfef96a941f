//! Redo of sets: enough to replay a change on any committed image.
//!
//! ```text
//! head u8: kind in 3 bits (1 insert, 2 replace, 3 patch, 4 delete, 5 add), above them the set's partition, or 31: it follows
//! [partition varint]   key length varint, key
//! insert, replace: value length varint, value     patch: offset varint, length varint, bytes
//! add: offset and, in the lowest 2 bits, the logarithm of the width, varint; amount varint, its sign in the lowest bit
//! ```
//!
//! Varints are little-endian groups of seven bits (LEB128).

use base::{PartitionId, varint};

const FOLLOWS: u8 = 31;

/// One change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Redo<'a> {
    pub(super) partition: PartitionId,
    pub(super) key: &'a [u8],
    pub(super) action: Action<'a>,
}

/// What is done to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action<'a> {
    Insert { value: &'a [u8] },
    Replace { value: &'a [u8] },
    Patch { offset: usize, bytes: &'a [u8] },
    Delete,
    Add { offset: usize, width: usize, amount: i64 },
}

impl<'a> Redo<'a> {
    /// Appends the stored form.
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let put_head = |kind, out: &mut Vec<u8>| head(kind, self.partition, self.key, out);
        match self.action {
            Action::Insert { value } => {
                put_head(1, out);
                put_bytes(value, out);
            }
            Action::Replace { value } => {
                put_head(2, out);
                put_bytes(value, out);
            }
            Action::Patch { offset, bytes } => {
                put_head(3, out);
                if offset < 0x80 && bytes.len() < 0x80 {
                    out.extend_from_slice(&[offset as u8, bytes.len() as u8]);
                    out.extend_from_slice(bytes);
                } else {
                    varint::put(offset as u64, out);
                    put_bytes(bytes, out);
                }
            }
            Action::Delete => put_head(4, out),
            Action::Add { offset, width, amount } => {
                put_head(5, out);
                varint::put((offset as u64) << 2 | u64::from(width.ilog2()), out);
                varint::put((amount << 1 ^ amount >> 63) as u64, out);
            }
        }
    }

    /// Reads one change from the front of `input` and moves `input` behind it; `None` if it is none.
    pub(super) fn decode(input: &mut &'a [u8]) -> Option<Redo<'a>> {
        let (first, rest) = input.split_first()?;
        *input = rest;
        let partition = match first >> 3 {
            FOLLOWS => varint::take(input)?.try_into().ok()?,
            number => u16::from(number),
        };
        let key = take_bytes(input)?;
        let action = match first & 7 {
            1 => Action::Insert { value: take_bytes(input)? },
            2 => Action::Replace { value: take_bytes(input)? },
            3 => Action::Patch { offset: varint::take(input)?.try_into().ok()?, bytes: take_bytes(input)? },
            4 => Action::Delete,
            5 => {
                let place = varint::take(input)?;
                let amount = varint::take(input)?;
                let amount = (amount >> 1) as i64 ^ -((amount & 1) as i64);
                Action::Add { offset: (place >> 2).try_into().ok()?, width: 1 << (place & 3), amount }
            }
            _ => return None,
        };
        Some(Redo { partition: PartitionId(partition), key, action })
    }
}

#[inline]
fn head(kind: u8, partition: PartitionId, key: &[u8], out: &mut Vec<u8>) {
    if partition.0 < u16::from(FOLLOWS) && key.len() < 0x80 {
        out.extend_from_slice(&[kind | (partition.0 as u8) << 3, key.len() as u8]);
        out.extend_from_slice(key);
        return;
    }
    if partition.0 < u16::from(FOLLOWS) {
        out.push(kind | (partition.0 as u8) << 3);
    } else {
        out.push(kind | FOLLOWS << 3);
        varint::put(u64::from(partition.0), out);
    }
    put_bytes(key, out);
}

#[inline]
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = varint::take(input)?.try_into().ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changes_survive_their_stored_form(
            number in 0..100_u16, key in prop::collection::vec(any::<u8>(), 0..300),
            value in prop::collection::vec(any::<u8>(), 0..300), offset in 0..1_000_000_usize,
            amount in any::<i64>(),
        ) {
            let partition = PartitionId(number * 655);
            let actions = [
                Action::Insert { value: &value },
                Action::Replace { value: &value },
                Action::Patch { offset, bytes: &value },
                Action::Delete,
                Action::Add { offset, width: 1 << (number % 4), amount },
            ];
            let changes = actions.map(|action| Redo { partition, key: &key, action });
            let mut stored = Vec::new();
            for change in &changes {
                change.encode(&mut stored);
            }
            let mut input = &stored[..];
            for change in &changes {
                prop_assert_eq!(Redo::decode(&mut input), Some(*change));
            }
            prop_assert!(input.is_empty());
            for end in 0..stored.len() {
                let mut input = &stored[..end];
                while Redo::decode(&mut input).is_some() {}
            }
        }
    }
}
