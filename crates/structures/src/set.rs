//! Memory-resident sets: partitions whose records are all in memory, in segments that a checkpoint copies to a backup.
//!
//! As in System M (Garcia-Molina and Salem, 1988, sections 2.4 to 2.7): records stand in *segments* of one size, a share of
//! which inserts keep free so that records can grow; search structures are not logged but built anew while segments are
//! loaded; nothing is ever undone from a log, because the old state of whatever an unfinished transaction has changed is kept
//! as a *shadow* until it ends. System M puts the new version of a record beside the old one and frees that at commit. Here a
//! record is changed where it is and its old bytes are kept in private memory of the transaction: that touches less memory,
//! and keeps uncommitted bytes out of every backup, because an image of a segment is made with the shadows put back.
//!
//! Everything here is synchronous. Transactions are told apart by [`Owner`]; they lock what they read and change before they
//! come here, a record that an unfinished transaction has changed is left alone by all others.
//!
//! # Segments
//!
//! ```text
//!  0 checksum u32   CRC-32C of the bytes from 4 to the end        all words little-endian;
//!  4 magic u32      "SEG1"                                         valid in images only
//!  8 partition u16, zero u16
//! 12 number u32     the segment's position in its set
//! 16 used u32       where the items end, zero u32
//! 24 sequence u64   the set's highest sequence number at the time
//! 32 arrival u64    the number of the set's next arrival at the time
//! 40 zeros
//! 64 items, each a multiple of 8 bytes and at least 24
//! ```
//!
//! An item is a record or a hole:
//!
//! ```text
//!  0 size in units of 8 bytes (20 bits), key length (16), value length (23), flags (5):
//!    hole, deleted by an unfinished transaction, behind a hole, saved for a sweep (in memory only)
//!  8 record: sequence number u64      hole: next hole u32, hole before u32 (bytes from the front)
//! 16 record: key, value, slack        hole: anything; its size in bytes in the last 8
//! ```
//!
//! A record gets the next sequence number of its set whenever it is placed, by an insert or a move. Images of segments are made
//! at different moments, so a record that moved may be in two of them: the higher number is the later copy.
//!
//! # Redo
//!
//! Redo replays values: a whole value, or a range of its bytes. It is replayed from the beginning of the sweep that wrote the
//! images, transaction by transaction in the order of their commits. So a record may be found in a later state than the
//! replayed change expects; values are then wrong for a while, and right at the end: a change that gives the whole value makes
//! it right, and if there is none, the record had its place and length all the time, and each byte gets its last value.

mod actions;
mod arrivals;
mod by_segment;
mod capture;
mod changes;
mod ending;
mod free_lists;
mod images;
mod layout;
mod load;
mod memory;
mod parts;
mod redo;
mod replay;
mod schema;
mod secondary;
mod segment;
mod sharding;
mod stable;
mod unload;
mod vacate;
mod versions;
mod visit;

#[cfg(test)]
mod tests;

pub use actions::add_to;
pub use changes::ChangePosition;
pub use load::{Share, Verified, Verifier};
pub use replay::{DetachedSet, Malformed, ReplayItem, ReplayStop, SortedChanges};
pub use schema::{Field, FieldError, FieldType, FieldValue, NotUnique, RecordType, short_hex};
pub use secondary::{DroppedIndex, Secondary};
pub use sharding::{Located, Lookup, SHARES, Shard};
pub use vacate::Vacated;
pub use versions::{SetRecord, SetStates, SetVersion};
pub use visit::position as visit_position;

use crate::PrefetchDistance;
use crate::key_hash;
use crate::lock::Owner;
use actions::PartRedo;
use base::PartitionId;
use capture::ColourWatch;
use changes::Changes;
use driver::Frame;
use memory::Set;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use thiserror::Error;

/// Sizes of segments in bytes, powers of two.
pub const SEGMENT_SIZES: RangeInclusive<usize> = 16 << 10..=4 << 20;
/// The usual size of a segment in bytes.
pub const SEGMENT_SIZE: usize = 256 << 10;
/// The usual share of a segment that inserts keep free.
pub const RESERVE: f64 = 0.1;

/// The longest key of a record, in bytes.
pub const KEY_MAX: usize = layout::KEY_LENGTH_MAX;

/// How many bytes key and value of a record have together at most, in a set with segments of this size.
pub fn record_max(segment_size: usize) -> usize {
    segment_size.saturating_sub(layout::SEGMENT_HEADER_SIZE + layout::ITEM_HEADER_SIZE)
}

/// The source of the keys of a set's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// The caller; records are found through a hash index.
    Keyed,
    /// The set: a record's key is its number in the order of arrival, 8 bytes big-endian. Numbers are not used again.
    Arrival,
}

/// What a set is.
#[derive(Clone, Debug, PartialEq)]
pub struct SetSettings {
    /// The partition that the set is.
    pub partition: PartitionId,
    /// Bytes of a segment, a power of two within [`SEGMENT_SIZES`].
    pub segment_size: usize,
    /// The share of a segment that inserts keep free, 0 to 0.9.
    pub reserve: f64,
    /// The source of the keys.
    pub keys: Keys,
    /// Its ordered secondary indexes by number; nothing where one was dropped.
    pub secondaries: Vec<Option<Secondary>>,
}

/// Why a set did not do what it was asked. Nothing was changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is a record with this key.
    Duplicate,
    /// There is no record with this key.
    Missing,
    /// No segment has room: add one and call again.
    NoSegment,
    /// This segment is lent to a write: call again when it has come back.
    Lent(u32),
    /// The key, or key and value, are longer than any segment holds; or the part is not within the value.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes asked for.
        found: usize,
        /// Bytes at most.
        limit: usize,
    },
    /// This segment has another colour than those the transaction or action has touched: it must start again.
    MixedColours(u32),
}

/// What redo replays (Garcia-Molina and Salem, System M, 1988, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Logging {
    /// New values: it may be replayed over any committed images (VALUE).
    #[default]
    Values,
    /// Actions, where they are shorter: each must be replayed once, over a consistent backup that does not hold it (AOPER).
    Actions,
    /// The procedures that transactions ran as, to be run again in the order of their commits over a backup that holds whole
    /// transactions; actions where that would not do (TOPER).
    Procedures,
}

impl Logging {
    /// Every kind of log.
    pub const ALL: [Logging; 3] = [Logging::Values, Logging::Actions, Logging::Procedures];
}

/// How a sweep takes a consistent backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Only readers may touch both segments that the sweep has taken and others, within one of these units.
    BlackWhite(SweepUnit),
    /// A segment is copied before it is first changed: the backup is of the moment at which the sweep began.
    CopyOnUpdate,
    /// A record is copied before it is first changed: the backup is of the moment at which the sweep began.
    StableVersions,
}

/// What a black/white sweep sees wholly or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepUnit {
    /// One call.
    Action,
    /// A transaction.
    Transaction,
}

/// What is wrong with an image that was to be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SegmentDamage(pub String);

/// All sets of a database, and what unfinished transactions have changed in them.
///
/// ```
/// use base::PartitionId;
/// use driver::Frame;
/// use entresol_structures::lock::Owner;
/// use entresol_structures::set::{Keys, RESERVE, Refusal, SEGMENT_SIZE, SetSettings, Sets};
///
/// let (accounts, me) = (PartitionId(1), Owner(0));
/// let settings = |partition| SetSettings {
///     partition,
///     segment_size: SEGMENT_SIZE,
///     reserve: RESERVE,
///     keys: Keys::Keyed,
///     secondaries: Vec::new(),
/// };
/// let mut sets = Sets::new();
/// sets.attach(settings(accounts));
/// let (key, hash) = (b"Ada", Sets::hash(b"Ada"));
/// assert_eq!(sets.insert(me, accounts, key, hash, &[0; 8]), Err(Refusal::NoSegment));
/// sets.add_segment(accounts, Frame::allocate(1, SEGMENT_SIZE).remove(0));
/// sets.insert(me, accounts, key, hash, &[0; 8]).expect("there is room now");
/// let redo = sets.redo(me).to_vec();
/// sets.commit(me);
///
/// // A change that is not committed is in no image of the segment.
/// sets.modify(me, accounts, key, hash, |value| value.fill(9)).expect("it is there");
/// let mut image = Frame::allocate(1, SEGMENT_SIZE).remove(0);
/// sets.image(accounts, 0, &mut image);
///
/// let mut restarted = Sets::new();
/// restarted.attach(settings(accounts));
/// restarted.load(accounts, 0, 0, image).expect("a sound image");
/// restarted.finish_load();
/// let no_room = |_, _| unreachable!("there is room");
/// restarted.apply(&redo, |_| false, no_room).expect("sound redo, which may be older than the image");
/// assert_eq!(restarted.get(me, accounts, key, hash), Ok(Some(&[0; 8][..])));
/// ```
#[derive(Default)]
pub struct Sets {
    sets: Vec<Option<Box<Set>>>,
    owners: Vec<Changes>,
    /// A value while it is being changed.
    scratch: Vec<u8>,
    part_redo: PartRedo,
    /// The sweep in progress, if it is to be a consistent one.
    capture: Option<Capture>,
    /// What black/white transactions have touched.
    watch: ColourWatch,
    /// Frames for snapshots.
    spare: Vec<Frame>,
    snapshots_taken: u64,
    /// Segments and bytes that commits have saved since [`Sets::take_copied`].
    copied: (u64, u64),
}

impl Sets {
    /// No sets.
    pub fn new() -> Sets {
        Sets::default()
    }

    /// The hash of a key that calls of a set of the caller's keys want beside the key.
    #[inline]
    pub fn hash(key: &[u8]) -> u64 {
        key_hash(key)
    }

    /// Adds an empty set.
    ///
    /// # Panics
    /// If its settings are out of range or the partition is a set already.
    pub fn attach(&mut self, settings: SetSettings) {
        let number = usize::from(settings.partition.0);
        if self.sets.len() <= number {
            self.sets.resize_with(number + 1, || None);
        }
        assert!(self.sets[number].is_none(), "partition {number} is a set already");
        self.sets[number] = Some(Box::new(Set::new(settings)));
    }

    /// Takes a set out that no transaction has changed, with all its records.
    pub fn detach(&mut self, partition: PartitionId) {
        if let Some(set) = self.sets.get_mut(usize::from(partition.0)) {
            *set = None;
        }
    }

    #[inline]
    fn set(&self, partition: PartitionId) -> &Set {
        self.sets[usize::from(partition.0)].as_ref().expect("the partition is a set")
    }

    #[inline]
    fn set_mut(&mut self, partition: PartitionId) -> &mut Set {
        self.sets[usize::from(partition.0)].as_mut().expect("the partition is a set")
    }

    /// A set, the changes of an owner, and what else a change needs.
    #[inline]
    fn parts(&mut self, owner: Owner, partition: PartitionId) -> (&mut Set, &mut Changes, &mut Vec<u8>, &ColourWatch) {
        let number = owner.0 as usize;
        if self.owners.len() <= number {
            self.owners.resize_with(number + 1, Changes::default);
        }
        let set = self.sets[usize::from(partition.0)].as_mut().expect("the partition is a set");
        (set, &mut self.owners[number], &mut self.scratch, &self.watch)
    }

    /// The value of `key`. `hash` is [`Sets::hash`] of the key, which also names its lock; sets of
    /// arrivals ignore it.
    ///
    /// # Errors
    /// [`Refusal::Lent`], [`Refusal::MixedColours`].
    #[inline]
    pub fn get(&self, owner: Owner, partition: PartitionId, key: &[u8], hash: u64) -> Result<Option<&[u8]>, Refusal> {
        let set = self.set(partition);
        let Some(place) = set.find(key, hash)? else {
            self.watch.miss(owner);
            return Ok(None);
        };
        if self.watch.is_on {
            let (segment, _) = set.locate(place);
            let writes = !self.redo(owner).is_empty();
            self.watch.touch(owner, set.segments[segment].colour, segment, writes)?;
        }
        let (bytes, at) = set.at(place);
        Ok(Some(layout::value(bytes, at)))
    }

    /// Asks for the memory of a record, if the partition is a set.
    #[inline]
    pub fn prefetch(&self, partition: PartitionId, hash: u64, distance: PrefetchDistance) {
        if let Some(Some(set)) = self.sets.get(usize::from(partition.0)) {
            set.prefetch(hash, distance);
        }
    }

    /// Inserts a record into a set whose records have keys of the caller's.
    ///
    /// # Errors
    /// All but [`Refusal::Missing`].
    ///
    /// # Panics
    /// If the set gives the keys.
    pub fn insert(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        value: &[u8],
    ) -> Result<(), Refusal> {
        let (set, changes, _, watch) = self.parts(owner, partition);
        assert!(matches!(set.finder, memory::Finder::Keyed(_)), "the set numbers its records itself");
        match set.insert(changes, (key, hash), value, watch.allowed(owner)) {
            Ok(place) => set.watch_write(watch, owner, place),
            Err(Refusal::Duplicate) => {
                let writes = !changes.redo.is_empty();
                set.watch_duplicate(watch, owner, key, hash, writes)?;
                Err(Refusal::Duplicate)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Adds a record to a set of arrivals and returns its number.
    ///
    /// # Errors
    /// All but [`Refusal::Missing`] and [`Refusal::Duplicate`].
    ///
    /// # Panics
    /// If the set's records have keys of the caller's.
    pub fn append(&mut self, owner: Owner, partition: PartitionId, value: &[u8]) -> Result<u64, Refusal> {
        let (set, changes, _, watch) = self.parts(owner, partition);
        assert!(matches!(set.finder, memory::Finder::Arrival(_)), "the set does not number its records");
        let number = set.arrival;
        let place = set.insert(changes, (&number.to_be_bytes(), 0), value, watch.allowed(owner))?;
        set.watch_write(watch, owner, place)?;
        Ok(number)
    }

    /// Adds a record to a set of arrivals under a number that was given out before.
    ///
    /// # Errors
    /// All but [`Refusal::Missing`].
    ///
    /// # Panics
    /// If the set's records have keys of the caller's.
    pub fn append_numbered(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        number: u64,
        value: &[u8],
    ) -> Result<(), Refusal> {
        let (set, changes, _, watch) = self.parts(owner, partition);
        assert!(matches!(set.finder, memory::Finder::Arrival(_)), "the set does not number its records");
        let place = set.insert(changes, (&number.to_be_bytes(), 0), value, watch.allowed(owner))?;
        set.watch_write(watch, owner, place)
    }

    /// Changes a value where it is: `change` sees its bytes and may alter them, not their number. Only the range that
    /// differs is logged, whatever [`Sets::set_logging`] says.
    ///
    /// # Errors
    /// [`Refusal::Missing`], [`Refusal::Lent`], [`Refusal::MixedColours`]; `change` was not called then.
    #[inline]
    pub fn modify<R>(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Refusal> {
        let (set, changes, scratch, watch) = self.parts(owner, partition);
        let place = set.find(key, hash)?.ok_or_else(|| watch.missing(owner))?;
        set.watch_write(watch, owner, place)?;
        set.modify(changes, scratch, (place, hash), None, change)
    }

    /// Gives a record another value, of whatever length.
    ///
    /// # Errors
    /// All but [`Refusal::Duplicate`].
    pub fn replace(
        &mut self,
        owner: Owner,
        partition: PartitionId,
        key: &[u8],
        hash: u64,
        value: &[u8],
    ) -> Result<(), Refusal> {
        let (set, changes, scratch, watch) = self.parts(owner, partition);
        let place = set.find(key, hash)?.ok_or_else(|| watch.missing(owner))?;
        set.watch_write(watch, owner, place)?;
        set.put(changes, scratch, place, key, hash, value)
    }

    /// Deletes a record; false if there is none with this key.
    ///
    /// # Errors
    /// [`Refusal::Lent`], [`Refusal::MixedColours`].
    pub fn delete(&mut self, owner: Owner, partition: PartitionId, key: &[u8], hash: u64) -> Result<bool, Refusal> {
        let (set, changes, _, watch) = self.parts(owner, partition);
        let Some(place) = set.find(key, hash)? else {
            watch.miss(owner);
            return Ok(false);
        };
        set.watch_write(watch, owner, place)?;
        set.delete(changes, place, key, hash);
        Ok(true)
    }

    /// Adds an empty segment to a set.
    ///
    /// # Panics
    /// If the frame has another size.
    pub fn add_segment(&mut self, partition: PartitionId, frame: Frame) {
        self.set_mut(partition).add_segment(frame);
    }

    /// Bytes of a set's segments.
    pub fn segment_size(&self, partition: PartitionId) -> usize {
        self.set(partition).segment_size
    }

    /// How many segments a set has.
    pub fn segments(&self, partition: PartitionId) -> u32 {
        self.set(partition).segments.len() as u32
    }

    /// How many records a set has, those of unfinished transactions included.
    pub fn records(&self, partition: PartitionId) -> u64 {
        self.set(partition).finder.count() as u64
    }

    /// Bytes that a set's records take in its segments, all told.
    pub fn bytes(&self, partition: PartitionId) -> u64 {
        let set = self.set(partition);
        let taken = |free: usize| (set.segment_size - layout::SEGMENT_HEADER_SIZE - free) as u64;
        set.segments.iter().map(|segment| taken(segment.free())).sum()
    }

    /// What a transaction has to log at its commit; empty if it has changed nothing.
    pub fn redo(&self, owner: Owner) -> &[u8] {
        self.owners.get(owner.0 as usize).map_or(&[], |changes| &changes.redo)
    }

    /// How many changes a transaction has made.
    #[inline]
    pub fn changes(&self, owner: Owner) -> usize {
        self.owners.get(owner.0 as usize).map_or(0, |changes| changes.shadows.len())
    }

    /// The present moment in a transaction.
    pub fn position(&self, owner: Owner) -> ChangePosition {
        self.owners.get(owner.0 as usize).map_or(ChangePosition::default(), Changes::position)
    }

    /// Ends a transaction: what it has changed is committed from now on. Its redo is forgotten.
    pub fn commit(&mut self, owner: Owner) {
        if self.capture.is_some() {
            self.preserve(owner);
            self.watch.forget(owner);
        }
        let Some(changes) = self.owners.get_mut(owner.0 as usize) else { return };
        commit(&mut self.sets, changes);
    }

    /// Undoes what a transaction has changed since `position`.
    ///
    /// # Panics
    /// If it has been rolled back to before `position` since.
    pub fn roll_back_to(&mut self, owner: Owner, position: ChangePosition) {
        let Some(changes) = self.owners.get_mut(owner.0 as usize) else { return };
        assert!(position <= changes.position(), "a savepoint lies in the past");
        // The transaction has seen that a record which it inserted, and whose insertion is undone, was missing.
        self.watch.miss(owner);
        roll_back(&mut self.sets, changes, position);
    }

    /// Ends a transaction and undoes all that it has changed.
    pub fn roll_back(&mut self, owner: Owner) {
        self.roll_back_to(owner, ChangePosition::default());
        self.watch.forget(owner);
        if let Some(changes) = self.owners.get_mut(owner.0 as usize) {
            changes.clear();
        }
    }

    /// Whether any segment is lent.
    pub fn is_any_lent(&self) -> bool {
        self.sets.iter().flatten().any(|set| set.segments.iter().any(segment::Segment::is_lent))
    }

    /// Whether any segment of this set is lent.
    pub fn is_any_lent_of(&self, partition: PartitionId) -> bool {
        self.set(partition).segments.iter().any(segment::Segment::is_lent)
    }

    /// Every record of a set, in no particular order; those in lent segments are left out.
    pub fn iterate(&self, partition: PartitionId) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.set(partition).records().map(|(_, key, value)| (key, value))
    }

    /// Checks every invariant: records and index one to one, free bytes and holes, rooms, secondary indexes, shadows.
    ///
    /// # Errors
    /// Words that say what is wrong.
    pub fn check(&self) -> Result<(), String> {
        for set in self.sets.iter().flatten() {
            let name = |what: String| format!("set {}: {what}", set.partition.0);
            set.check().map_err(name)?;
            let mut shadows = vec![0; set.segments.len()];
            let of_set = |shadow: &&changes::Shadow| shadow.set == set.partition.0;
            for shadow in self.owners.iter().flat_map(|changes| &changes.shadows).filter(of_set) {
                shadows[set.locate(shadow.place).0] += 1;
                if let changes::Before::MovedTo(to) = shadow.before {
                    shadows[set.locate(to).0] += 1;
                }
            }
            let counted = set.segments.iter().map(|segment| segment.uncommitted);
            if !counted.eq(shadows.iter().copied()) {
                return Err(name(format!("unfinished transactions have shadows {shadows:?} in its segments")));
            }
        }
        Ok(())
    }
}

/// Commits changes and forgets them.
fn commit(sets: &mut [Option<Box<Set>>], changes: &mut Changes) {
    for shadow in &changes.shadows {
        sets[usize::from(shadow.set)].as_mut().expect("it had been changed").commit(shadow);
    }
    changes.clear();
}

/// Undoes what was changed since `position`.
fn roll_back(sets: &mut [Option<Box<Set>>], changes: &mut Changes, position: ChangePosition) {
    while changes.shadows.len() > position.shadows {
        let shadow = changes.shadows.pop().expect("there are more");
        changes.by_segment.get_mut().take_back(sets, &shadow, changes.shadows.len());
        let set = sets[usize::from(shadow.set)].as_mut().expect("it had been changed");
        set.roll_back(&shadow, shadow.bytes(&changes.saved));
        changes.saved.truncate(shadow.saved);
    }
    changes.redo.truncate(position.redo);
}
