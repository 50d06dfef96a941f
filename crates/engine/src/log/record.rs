//! Log records: physiological redo (which page, which change), logical undo (which key, which old value).
//!
//! A record may edit several pages; it stands in the log whole or not at all, so a split needs no nested top action.
//! There is no begin record: a transaction begins with its first update. That of another node is one record ([`Body::Shipment`]): what it says
//! takes its updates back may fail on its own restructurings, so a restart must not have to.
//!
//! ```text
//!  0 length u32 (whole record)   4 kind u8   5 edits u8   6 zero u16   8 transaction u64
//! 16 body (by kind), then each edit: page u64, sequence after the edit u64, change
//! ```

use base::{Lsn, PageId, PartitionId, TransactionId};
use structures::page::change::{put_bytes, take_bytes, take_u8, take_u16, take_u32, take_u64};
use structures::page::{Change, Edit};
use structures::undo::decode_undo;

/// What a record is, apart from its edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A transaction's update, with the way back: an [`Undo`](structures::undo::Undo) in its stored form.
    Update(&'a [u8]),
    /// A change that is never undone: splits, merges, formatting.
    System,
    /// A step of a rollback: of the transaction's updates only the first `remaining` are still to be undone.
    Compensation {
        /// Updates left.
        remaining: u32,
    },
    /// The transaction is committed. `chains` are packed page ids (8 bytes each) of long values that it deleted: their
    /// pages are freed next. `changes` are all that it has changed in memory-resident sets. Another such record of it, without
    /// changes, has what is left of the chains by then.
    Commit {
        /// First pages of the chains.
        chains: &'a [u8],
        /// The redo of sets, as [`structures::set::Sets::redo`] gives it.
        changes: &'a [u8],
    },
    /// The same, for a transaction some of whose changes of sets are already in the backup of the black/white sweep in
    /// progress: they must not be replayed over it.
    SweptCommit {
        /// First pages of the chains.
        chains: &'a [u8],
        /// The redo of sets.
        changes: &'a [u8],
        /// Where the sweep began.
        sweep: Lsn,
        /// For each change, in order, one bit, in bytes from the lowest bit on: whether the backup has it. What follows the
        /// last bit that is set is left out.
        included: &'a [u8],
    },
    /// A committed transaction that is replayed by running its procedure again.
    Call {
        /// Where the black/white sweep began that goes on and has all its changes in its backup.
        sweep: Option<Lsn>,
        /// The procedure and its parameters, as a transaction stores its call.
        call: &'a [u8],
    },
    /// A page of chain number `chain` of the latest commit record was freed; the chain now begins at page `next`, 0 at its end.
    ChainStep {
        /// Which chain of the commit record.
        chain: u32,
        /// The page number that the chain goes on with.
        next: u32,
    },
    /// The rollback is complete.
    RolledBack,
    /// The commits and changes of partitions that follow come at this time by the calendar, or within a millisecond after it. Only a log
    /// that is archived, or whose moments can be read for a time, has this; only one that is archived has catalogs.
    Time {
        /// Nanoseconds since the beginning of 1970 UTC.
        unix_ns: u64,
        /// Where moments can be read for a time: who commits from here on has no record before this.
        oldest: Option<Lsn>,
    },
    /// The superblock file says this of partitions by now.
    Catalog {
        /// Whether it is all that it says; otherwise it is added to what it said before.
        is_whole: bool,
        /// What it says, as its journal stores it.
        changes: &'a [u8],
    },
    /// What records of memory-resident sets were before the transaction whose commit follows. Only a log whose moments can be read for a
    /// time has this, and what follows.
    SetsBefore {
        /// One [`Undo`](structures::undo::Undo) for each record, in their stored forms: a removal, or the whole value.
        undos: &'a [u8],
    },
    /// The long value that an update of the transaction whose commit follows has replaced: its pages are freed then.
    LongValue {
        /// The number of the update, as rollbacks count them.
        update: u32,
        /// The value.
        value: &'a [u8],
    },
    /// A bulk load of a partition ends here, or will have before any commit that comes after: what it has written is not in the log.
    Loaded {
        /// The partition.
        partition: PartitionId,
    },
    /// A bulk load of a partition has ended, or was cut off by the opening before this one. Only a log whose moments can be read for a time, or
    /// that is archived, has this.
    LoadEnded {
        /// The partition.
        partition: PartitionId,
    },
    /// A bulk load whose [`Body::Loaded`] ends at `loaded` came to nothing: the partition is as empty as it was before.
    LoadUndone {
        /// The partition.
        partition: PartitionId,
        /// The LSN of the record that has announced its end.
        loaded: Lsn,
    },
    /// A transaction of another node. Who reads the log reads the records in it ([`parts`]).
    Shipment {
        /// Its updates and restructurings, long values as they were before it, and its commit, one behind the other in stored form.
        records: &'a [u8],
    },
}

/// The kind of a [`Body::Shipment`].
const SHIPMENT: u8 = 19;
/// Kinds of records that change no records of users, or say what other nodes have changed: the end of a rollback, the time, the catalog, what
/// was there before, the end of a load, a shipment.
const NOT_OWN: [u8; 8] = [6, 11, 12, 15, 16, 17, 18, SHIPMENT];

/// Whether the database has changed something by itself that this record, in stored form, says: not a transaction of another node.
pub(super) fn is_own_change(record: &[u8]) -> bool {
    !NOT_OWN.contains(&record[4])
}

/// The longest record in bytes: a restart, which reads several megabytes together, counts their bytes in 32 bits.
pub const SIZE_MAX: u64 = u32::MAX as u64 - (64 << 20);

/// Appends the stored form of a record. Each edit comes with its page's sequence number after the edit.
///
/// # Panics
/// If there are more than 255 edits or the record exceeds 4 GiB: no plan builds such.
pub fn encode<'a>(
    transaction: TransactionId,
    body: &Body<'_>,
    edits: impl IntoIterator<Item = (u64, &'a Edit<'a>)>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut fixed = [0; Record::FIXED_SIZE];
    fixed[8..].copy_from_slice(&transaction.0.to_le_bytes());
    out.extend_from_slice(&fixed);
    let kind = match body {
        Body::Update(undo) => {
            out.extend_from_slice(undo);
            1
        }
        Body::System => 2,
        Body::Compensation { remaining } => {
            out.extend_from_slice(&remaining.to_le_bytes());
            3
        }
        Body::Commit { chains, changes } => {
            put_bytes(out, chains);
            if changes.is_empty() {
                4
            } else {
                put_bytes(out, changes);
                7
            }
        }
        Body::SweptCommit { chains, changes, sweep, included } => {
            put_bytes(out, chains);
            put_bytes(out, changes);
            out.extend_from_slice(&sweep.0.to_le_bytes());
            put_bytes(out, included);
            8
        }
        Body::Call { sweep: None, call } => {
            put_bytes(out, call);
            9
        }
        Body::Call { sweep: Some(sweep), call } => {
            out.extend_from_slice(&sweep.0.to_le_bytes());
            put_bytes(out, call);
            10
        }
        Body::ChainStep { chain, next } => {
            out.extend_from_slice(&chain.to_le_bytes());
            out.extend_from_slice(&next.to_le_bytes());
            5
        }
        Body::RolledBack => 6,
        Body::Time { unix_ns, oldest } => {
            out.extend_from_slice(&unix_ns.to_le_bytes());
            oldest.iter().for_each(|oldest| out.extend_from_slice(&oldest.0.to_le_bytes()));
            if oldest.is_some() { 15 } else { 11 }
        }
        Body::Catalog { is_whole, changes } => {
            out.push(u8::from(*is_whole));
            put_bytes(out, changes);
            12
        }
        Body::SetsBefore { undos } => {
            put_bytes(out, undos);
            16
        }
        Body::LongValue { update, value } => {
            out.extend_from_slice(&update.to_le_bytes());
            put_bytes(out, value);
            17
        }
        Body::Loaded { partition } => {
            out.extend_from_slice(&partition.0.to_le_bytes());
            13
        }
        Body::LoadEnded { partition } => {
            out.extend_from_slice(&partition.0.to_le_bytes());
            18
        }
        Body::LoadUndone { partition, loaded } => {
            out.extend_from_slice(&partition.0.to_le_bytes());
            out.extend_from_slice(&loaded.0.to_le_bytes());
            14
        }
        Body::Shipment { records } => {
            out.extend_from_slice(records);
            SHIPMENT
        }
    };
    let mut count = 0_usize;
    for (sequence, edit) in edits {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&edit.page.packed().to_le_bytes());
        head[8..].copy_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&head);
        edit.change.encode(out);
        count += 1;
    }
    out[start + 5] = u8::try_from(count).expect("a record edits at most 255 pages");
    put_head(kind, &mut out[start..]);
}

/// Has a record say how long it is, and of which kind.
fn put_head(kind: u8, record: &mut [u8]) {
    let length = u32::try_from(record.len()).expect("a record is smaller than 4 GiB");
    record[..4].copy_from_slice(&length.to_le_bytes());
    record[4] = kind;
}

/// The stored form of a transaction of another node whose records, one behind the other, are these, and whose updates have replaced these
/// long values. Whose they are they do not know. `commit` are the records that end it, in stored form, if it has changed sets.
pub(crate) fn shipment(
    transaction: TransactionId,
    records: &[u8],
    former: &[(u32, Vec<u8>)],
    commit: Option<&[u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * Record::FIXED_SIZE + records.len() + 4);
    out.resize(Record::FIXED_SIZE, 0);
    out[8..].copy_from_slice(&transaction.0.to_le_bytes());
    for record in split(records) {
        let at = out.len();
        out.extend_from_slice(record);
        let is_undone = matches!(Record::decode_body(record), Some(Record { body: Body::Update(_), .. }));
        let owner = if is_undone { transaction } else { TransactionId::SYSTEM };
        out[at + 8..at + 16].copy_from_slice(&owner.0.to_le_bytes());
    }
    for (update, value) in former {
        encode(transaction, &Body::LongValue { update: *update, value }, [], &mut out);
    }
    match commit {
        Some(commit) => out.extend_from_slice(commit),
        None => encode(transaction, &Body::Commit { chains: &[], changes: &[] }, [], &mut out),
    }
    put_head(SHIPMENT, &mut out);
    out
}

/// The same records, one behind the other, in which each edit has the sequence number that `number` gives for its record, its page and the
/// one that it has.
pub fn renumbered(records: &[u8], mut number: impl FnMut(&Body<'_>, PageId, u64) -> u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.len());
    for bytes in split(records) {
        let Some(record) = Record::decode(bytes) else {
            out.extend_from_slice(bytes);
            continue;
        };
        let edits: Vec<(u64, Edit<'_>)> =
            record.edits().map(|(sequence, edit)| (number(&record.body, edit.page, sequence), edit)).collect();
        let edits = edits.iter().map(|(sequence, edit)| (*sequence, edit));
        encode(record.transaction, &record.body, edits, &mut out);
    }
    out
}

/// The records that stand in the log with the bytes of this one: those in a shipment, otherwise itself.
pub fn parts(record: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_shipment = record.get(4) == Some(&SHIPMENT);
    let (one, several) =
        if is_shipment { (None, &record[Record::FIXED_SIZE.min(record.len())..]) } else { (Some(record), &[][..]) };
    one.into_iter().chain(split(several))
}

/// Records that stand one behind the other; the last one may be none, and is all that is left.
pub fn split(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (record, rest) = records.split_at(length_at_front(records).unwrap_or(records.len()));
        records = rest;
        (!record.is_empty()).then_some(record)
    })
}

/// The length of the record at the front, if its bytes are there.
fn length_at_front(records: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
    (Record::FIXED_SIZE..=records.len()).contains(&length).then_some(length)
}

/// A decoded record; its edits are decoded one after another.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Whose record it is; the system's for system changes.
    pub transaction: TransactionId,
    /// What it is.
    pub body: Body<'a>,
    edits: u8,
    rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// The bytes before the body.
    pub const FIXED_SIZE: usize = 16;

    /// Decodes a record from exactly its bytes; `None` if they are not one.
    pub fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let record = Record::decode_body(bytes)?;
        let mut check = record.edits();
        let sound = check.by_ref().count() == usize::from(record.edits) && check.rest.is_empty();
        let is_whole = |part: &[u8]| part.get(4) != Some(&SHIPMENT) && Record::decode(part).is_some();
        let has_whole = !matches!(record.body, Body::Shipment { .. }) || parts(bytes).all(is_whole);
        (sound && has_whole).then_some(record)
    }

    /// The same without a look at its edits, for who needs none of them.
    pub(crate) fn decode_body(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut input = bytes;
        if take_u32(&mut input)? as usize != bytes.len() {
            return None;
        }
        let kind = take_u8(&mut input)?;
        let edits = take_u8(&mut input)?;
        take_u16(&mut input)?;
        let transaction = TransactionId(take_u64(&mut input)?);
        let body = match kind {
            1 => {
                let undo = input;
                decode_undo(&mut input)?;
                Body::Update(&undo[..undo.len() - input.len()])
            }
            2 => Body::System,
            3 => Body::Compensation { remaining: take_u32(&mut input)? },
            4 => Body::Commit { chains: take_bytes(&mut input)?, changes: &[] },
            5 => Body::ChainStep { chain: take_u32(&mut input)?, next: take_u32(&mut input)? },
            6 => Body::RolledBack,
            7 => Body::Commit { chains: take_bytes(&mut input)?, changes: take_bytes(&mut input)? },
            8 => Body::SweptCommit {
                chains: take_bytes(&mut input)?,
                changes: take_bytes(&mut input)?,
                sweep: Lsn(take_u64(&mut input)?),
                included: take_bytes(&mut input)?,
            },
            9 => Body::Call { sweep: None, call: take_bytes(&mut input)? },
            10 => Body::Call { sweep: Some(Lsn(take_u64(&mut input)?)), call: take_bytes(&mut input)? },
            11 => Body::Time { unix_ns: take_u64(&mut input)?, oldest: None },
            12 => {
                let is_whole = take_u8(&mut input).filter(|word| *word < 2)? == 1;
                Body::Catalog { is_whole, changes: take_bytes(&mut input)? }
            }
            13 => Body::Loaded { partition: PartitionId(take_u16(&mut input)?) },
            14 => {
                Body::LoadUndone { partition: PartitionId(take_u16(&mut input)?), loaded: Lsn(take_u64(&mut input)?) }
            }
            15 => Body::Time { unix_ns: take_u64(&mut input)?, oldest: Some(Lsn(take_u64(&mut input)?)) },
            16 => Body::SetsBefore { undos: take_bytes(&mut input)? },
            18 => Body::LoadEnded { partition: PartitionId(take_u16(&mut input)?) },
            17 => Body::LongValue { update: take_u32(&mut input)?, value: take_bytes(&mut input)? },
            SHIPMENT => Body::Shipment { records: std::mem::take(&mut input) },
            _ => return None,
        };
        Some(Record { transaction, body, edits, rest: input })
    }

    /// The edits with their pages' sequence numbers after them, in order.
    pub fn edits(&self) -> Edits<'a> {
        Edits { left: self.edits, rest: self.rest }
    }
}

/// Decodes a record's edits one by one.
pub struct Edits<'a> {
    left: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Edits<'a> {
    type Item = (u64, Edit<'a>);

    fn next(&mut self) -> Option<(u64, Edit<'a>)> {
        self.left = self.left.checked_sub(1)?;
        decode_edit(&mut self.rest)
    }
}

impl<'a> Edits<'a> {
    /// The next one, and its bytes, which [`decode_edit`] decodes.
    pub fn next_encoded(&mut self) -> Option<(u64, Edit<'a>, &'a [u8])> {
        let before = self.rest;
        let (sequence, edit) = self.next()?;
        Some((sequence, edit, &before[..before.len() - self.rest.len()]))
    }
}

/// Decodes an edit with its page's sequence number after it, and takes its bytes from the input.
pub fn decode_edit<'a>(input: &mut &'a [u8]) -> Option<(u64, Edit<'a>)> {
    let page = PageId::unpacked(take_u64(input)?);
    let sequence = take_u64(input)?;
    let change = Change::decode(input)?;
    Some((sequence, Edit { page, change }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use structures::page::PageKind;
    use structures::undo::Undo;

    #[test]
    fn records_survive_encoding_and_refuse_truncation() {
        let partition = PartitionId(4);
        let page = PageId::new(partition, 9);
        let undos = [
            Undo::Remove { partition, key: b"k" },
            Undo::Insert { partition, key: b"k", value: b"v" },
            Undo::Replace { partition, key: b"", value: b"vv" },
            Undo::PatchValue { partition, key: b"k", offset: 3, bytes: b"old" },
            Undo::PatchPage { page, offset: 40, bytes: b"x" },
            Undo::EraseAppended { page, slot: 2 },
            Undo::FreePage { page },
        ];
        let stored = undos.map(|undo| {
            let stored = undo.stored();
            assert_eq!(decode_undo(&mut &stored[..]), Some(undo));
            stored
        });
        let mut bodies: Vec<Body<'_>> = stored.iter().map(|undo| Body::Update(undo)).collect();
        bodies.extend([
            Body::System,
            Body::Compensation { remaining: 7 },
            Body::Commit { chains: &[1; 16], changes: &[] },
            Body::Commit { chains: &[], changes: b"redo" },
            Body::SweptCommit { chains: &[2; 8], changes: b"redo", sweep: Lsn(77), included: &[5] },
            Body::Call { sweep: None, call: b"call" },
            Body::Call { sweep: Some(Lsn(1 << 40)), call: b"" },
            Body::ChainStep { chain: 1, next: 5 },
            Body::RolledBack,
            Body::Time { unix_ns: 1 << 60, oldest: None },
            Body::Time { unix_ns: 1 << 60, oldest: Some(Lsn(77)) },
            Body::Catalog { is_whole: true, changes: b"changes" },
            Body::Catalog { is_whole: false, changes: b"" },
            Body::Loaded { partition },
            Body::LoadUndone { partition, loaded: Lsn(77) },
            Body::SetsBefore { undos: b"undos" },
            Body::LongValue { update: 3, value: b"long" },
            Body::LoadEnded { partition },
        ]);
        let changes = [
            Change::Format { kind: PageKind::Node, level: 2, count: 3, image: b"image" },
            Change::FormatEnds { kind: PageKind::Node, level: 0, count: 3, front: b"slots", back: b"heap" },
            Change::Patch { offset: 32, bytes: b"p" },
            Change::InsertSlot { slot: 1, key: b"key", value: b"value" },
            Change::RemoveSlot { slot: 8 },
            Change::ReplaceValue { slot: 2, value: b"new" },
            Change::PatchValue { slot: 2, offset: 1, bytes: b"n" },
        ];
        for body in bodies {
            let edits: Vec<_> = changes.iter().map(|change| (5, Edit { page, change: *change })).collect();
            let mut bytes = Vec::new();
            encode(TransactionId(77), &body, edits.iter().map(|(sequence, edit)| (*sequence, edit)), &mut bytes);
            let record = Record::decode(&bytes).expect("sound");
            assert_eq!((record.transaction, record.body), (TransactionId(77), body));
            assert_eq!(record.edits().collect::<Vec<_>>(), edits);
            for end in 0..bytes.len() {
                assert!(Record::decode(&bytes[..end]).is_none());
            }
        }
    }

    #[test]
    fn a_shipment_is_its_records_and_a_commit_or_is_refused() {
        let id = TransactionId(77);
        let edit = Edit { page: PageId::new(PartitionId(4), 9), change: Change::RemoveSlot { slot: 8 } };
        let undo = Undo::Remove { partition: PartitionId(4), key: b"k" }.stored();
        let mut records = Vec::new();
        for body in [Body::Update(&undo), Body::System] {
            encode(TransactionId(5), &body, [(3, &edit)], &mut records);
        }
        let stored = shipment(id, &records, &[], None);
        assert!(
            matches!(Record::decode(&stored), Some(Record { transaction, body: Body::Shipment { .. }, .. }) if transaction == id)
        );
        let found: Vec<Record<'_>> = parts(&stored).map(|part| Record::decode(part).expect("sound")).collect();
        let whose: Vec<_> = found.iter().map(|record| (record.transaction, record.body)).collect();
        let system = (TransactionId::SYSTEM, Body::System);
        assert_eq!(whose, [(id, Body::Update(&undo)), system, (id, Body::Commit { chains: &[], changes: &[] })]);
        assert_eq!(found[1].edits().collect::<Vec<_>>(), [(3, edit)]);
        assert_eq!(parts(&records[..]).collect::<Vec<_>>(), [&records[..]], "what is none is one record");
        // Cut off, and one in the other.
        let mut cut = stored[..stored.len() - 1].to_vec();
        put_head(SHIPMENT, &mut cut);
        assert!(Record::decode(&cut).is_none() && Record::decode(&shipment(id, &stored, &[], None)).is_none());
        assert_eq!(
            parts(&cut).map(<[u8]>::len).sum::<usize>(),
            cut.len() - Record::FIXED_SIZE,
            "nothing is passed over"
        );
    }
}
