//! Redo of sets: enough to repeat a change on any committed image.
//!
//! ```text
//! head u8: kind in 3 bits (1 insert, 2 replace, 3 patch, 4 delete), above them the set's partition, or 31: it follows
//! [partition varint]   key length varint, key
//! insert, replace: value length varint, value     patch: offset varint, length varint, bytes
//! ```
//!
//! Varints are little-endian groups of seven bits (LEB128).

use base::PartitionId;

const FOLLOWS: u8 = 31;

/// One change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redo<'a> {
    Insert { partition: PartitionId, key: &'a [u8], value: &'a [u8] },
    Replace { partition: PartitionId, key: &'a [u8], value: &'a [u8] },
    Patch { partition: PartitionId, key: &'a [u8], offset: usize, bytes: &'a [u8] },
    Delete { partition: PartitionId, key: &'a [u8] },
}

impl<'a> Redo<'a> {
    /// Appends the stored form.
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Redo::Insert { partition, key, value } => {
                head(1, partition, key, out);
                put_bytes(value, out);
            }
            Redo::Replace { partition, key, value } => {
                head(2, partition, key, out);
                put_bytes(value, out);
            }
            Redo::Patch { partition, key, offset, bytes } => {
                head(3, partition, key, out);
                if offset < 0x80 && bytes.len() < 0x80 {
                    out.extend_from_slice(&[offset as u8, bytes.len() as u8]);
                    out.extend_from_slice(bytes);
                } else {
                    put_varint(offset as u64, out);
                    put_bytes(bytes, out);
                }
            }
            Redo::Delete { partition, key } => head(4, partition, key, out),
        }
    }

    /// The set.
    pub(super) fn partition(&self) -> PartitionId {
        match *self {
            Redo::Insert { partition, .. }
            | Redo::Replace { partition, .. }
            | Redo::Patch { partition, .. }
            | Redo::Delete { partition, .. } => partition,
        }
    }

    /// Reads one change from the front of `input` and moves `input` behind it; `None` if it is none.
    pub(super) fn decode(input: &mut &'a [u8]) -> Option<Redo<'a>> {
        let (first, rest) = input.split_first()?;
        *input = rest;
        let partition = match first >> 3 {
            FOLLOWS => take_varint(input)?.try_into().ok()?,
            number => u16::from(number),
        };
        let partition = PartitionId(partition);
        let key = take_bytes(input)?;
        match first & 7 {
            1 => Some(Redo::Insert { partition, key, value: take_bytes(input)? }),
            2 => Some(Redo::Replace { partition, key, value: take_bytes(input)? }),
            3 => {
                let offset = take_varint(input)?.try_into().ok()?;
                Some(Redo::Patch { partition, key, offset, bytes: take_bytes(input)? })
            }
            4 => Some(Redo::Delete { partition, key }),
            _ => None,
        }
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
        put_varint(u64::from(partition.0), out);
    }
    put_bytes(key, out);
}

#[inline]
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[inline]
fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_varint(input)?.try_into().ok()?;
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
        ) {
            let partition = PartitionId(number * 655);
            let changes = [
                Redo::Insert { partition, key: &key, value: &value },
                Redo::Replace { partition, key: &key, value: &value },
                Redo::Patch { partition, key: &key, offset, bytes: &value },
                Redo::Delete { partition, key: &key },
            ];
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
