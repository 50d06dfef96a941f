//! Sweeps that take a consistent backup: black/white, copy on update, stable versions.
//!
//! A sweep begins with every segment *white*, takes one after another and makes it *black*. What it takes of a segment is
//! committed state always; the capture decides of which moment.
//!
//! * [`Capture::BlackWhite`] (Pu, 1986; System M, section 3.2): of the moment at which the segment is taken. A transaction
//!   (or an action, that is one call) that would touch both colours is refused and starts again; one that only reads may mix.
//! * [`Capture::CopyOnUpdate`] (DeWitt et al., 1984; System M, section 3.3): of the moment at which the sweep began. The first
//!   commit that changes a white segment saves an image of it before.
//! * [`Capture::StableVersions`] (CALC: Ren, Diamond, Abadi and Thomson, SIGMOD 2016): also of the moment at which the sweep
//!   began. The first change of a record of a white segment saves the record before: see [`super::stable`].
//!
//! System M saves a segment at the first change after it has quiesced all transactions. Here a commit does, because images
//! leave unfinished changes out anyway; so what is captured is transaction-consistent whenever the sweep begins.
//!
//! What a record says of a black/white sweep includes which sweep it was; what it says of one that did not end is
//! ignored. A procedure is logged as a call during such a sweep only if all that it touched had one colour. What has no
//! colour (a missing record, a savepoint that was returned to, what was read before the sweep) has its actions logged.
//! White transactions are in the backup, before all others; black ones find black segments as they were taken and as
//! other black ones have changed them since.

use super::by_segment;
use super::changes::Changes;
use super::memory::Set;
use super::segment::{BLACK, WHITE};
use super::stable::{self, Versions};
use super::{Capture, Refusal, Sets, SweepUnit};
use crate::lock::Owner;
use base::PartitionId;
use driver::Frame;
use std::cell::RefCell;

/// Any colour will do.
pub(super) const ANY: u8 = WHITE | BLACK;
/// Beside the colours that an owner has touched: it has also seen that a record was missing, which has no colour.
const MISSED: u8 = 0b1000_0000;
const _: () = assert!(ANY & MISSED == 0);

/// A white segment as it was when the sweep began.
pub(super) struct Preserved {
    /// Which copies of the backup had an older state than this.
    pub(super) dirty: u8,
    pub(super) state: PreservedState,
}

/// What is preserved of a segment.
pub(super) enum PreservedState {
    /// All of it.
    Image(Frame),
    /// The records that have been changed since.
    Records(Versions),
}

/// The colours that each owner has touched while black/white transactions are watched.
#[derive(Default)]
pub(super) struct ColourWatch {
    pub(super) is_on: bool,
    touched: RefCell<Vec<u8>>,
}

impl ColourWatch {
    /// Begins to watch; owners that have changed something have touched white segments.
    pub(super) fn begin(&mut self, owners: &[Changes]) {
        self.is_on = true;
        let colour = |changes: &Changes| if changes.shadows.is_empty() { 0 } else { WHITE };
        self.touched = RefCell::new(owners.iter().map(colour).collect());
    }

    /// Lets an owner touch a segment, unless it mixes colours and is not only reading.
    pub(super) fn touch(&self, owner: Owner, colour: u8, segment: usize, writes: bool) -> Result<(), Refusal> {
        if !self.is_on {
            return Ok(());
        }
        let mut touched = self.touched.borrow_mut();
        if touched.len() <= owner.0 as usize {
            touched.resize(owner.0 as usize + 1, 0);
        }
        let touched = &mut touched[owner.0 as usize];
        if (*touched | colour) & ANY == ANY && writes {
            return Err(Refusal::MixedColours(segment as u32));
        }
        *touched |= colour;
        Ok(())
    }

    /// The colours of segments that an owner may put a record into.
    pub(super) fn allowed(&self, owner: Owner) -> u8 {
        if !self.is_on {
            return ANY;
        }
        match self.colours(owner) & ANY {
            0 => ANY,
            ANY => 0,
            touched => touched,
        }
    }

    /// What an owner has touched.
    pub(super) fn colours(&self, owner: Owner) -> u8 {
        self.touched.borrow().get(owner.0 as usize).copied().unwrap_or(0)
    }

    /// Notes that an owner has seen that a record is missing.
    #[inline]
    pub(super) fn miss(&self, owner: Owner) {
        if self.is_on {
            self.touch(owner, MISSED, 0, false).expect("this mixes no colours");
        }
    }

    /// The same, and the refusal that says so.
    #[inline]
    pub(super) fn missing(&self, owner: Owner) -> Refusal {
        self.miss(owner);
        Refusal::Missing
    }

    /// Forgets what an owner has touched.
    pub(super) fn forget(&self, owner: Owner) {
        if self.is_on
            && let Some(touched) = self.touched.borrow_mut().get_mut(owner.0 as usize)
        {
            *touched = 0;
        }
    }
}

impl Set {
    /// Makes all segments white.
    pub(super) fn begin_capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
        for segment in &mut self.segments {
            (segment.colour, segment.saves) = (WHITE, capture == Capture::StableVersions);
        }
    }

    /// Makes all segments colourless and forgets what was preserved.
    pub(super) fn end_capture(&mut self) {
        self.capture = None;
        self.buried.clear();
        for number in 0..self.segments.len() {
            self.forget_versions(number);
            let segment = &mut self.segments[number];
            (segment.colour, segment.preserved) = (0, None);
        }
    }

    /// Whether calls are watched for mixing colours, as actions or as transactions.
    pub(super) fn is_black_white(&self) -> bool {
        matches!(self.capture, Some(Capture::BlackWhite(_)))
    }

    /// Lets an owner change a record, unless it mixes colours by that.
    #[inline]
    pub(super) fn watch_write(&self, watch: &ColourWatch, owner: Owner, place: u64) -> Result<(), Refusal> {
        if !watch.is_on {
            return Ok(());
        }
        let (segment, _) = self.locate(place);
        watch.touch(owner, self.segments[segment].colour, segment, true)
    }

    /// Lets an owner see that there is a record with this key already, unless it mixes colours by that.
    #[cold]
    pub(super) fn watch_duplicate(
        &self,
        watch: &ColourWatch,
        owner: Owner,
        key: &[u8],
        hash: u64,
        writes: bool,
    ) -> Result<(), Refusal> {
        let place = self.find(key, hash)?.expect("it was found just now");
        let (segment, _) = self.locate(place);
        watch.touch(owner, self.segments[segment].colour, segment, writes)
    }

    /// The colours of segments that a record with this key may be inserted into. A black/white backup that has the deletion
    /// of a record not, but the next one's insert, would make of both what never was: so it stays black.
    pub(super) fn colours_for(&self, hash: u64) -> u8 {
        if self.buried.contains(&hash) { BLACK } else { ANY }
    }

    /// The colours that a record may move to from this segment.
    pub(super) fn colours_near(&self, segment: usize) -> u8 {
        if self.is_black_white() { self.segments[segment].colour } else { ANY }
    }

    /// Whether a segment's image must be saved before a commit changes it.
    pub(super) fn is_wanted(&self, segment: usize) -> bool {
        let found = &self.segments[segment];
        found.colour == WHITE && self.capture == Some(Capture::CopyOnUpdate) && found.preserved.is_none()
    }
}

impl Sets {
    /// Begins a sweep that takes a consistent backup: every segment is white. Segments added from now on do not count:
    /// the backup is complete without them.
    ///
    /// # Panics
    /// If another sweep has not ended.
    pub fn begin_capture(&mut self, capture: Capture) {
        assert!(self.capture.is_none(), "one sweep at a time");
        self.capture = Some(capture);
        self.sets.iter_mut().flatten().for_each(|set| set.begin_capture(capture));
        match capture {
            Capture::BlackWhite(SweepUnit::Transaction) => self.watch.begin(&self.owners),
            Capture::StableVersions => stable::save_unfinished(&mut self.sets, &self.owners),
            Capture::BlackWhite(SweepUnit::Action) | Capture::CopyOnUpdate => {}
        }
    }

    /// How a transaction that ends now, during a black/white sweep, can be run again over the backup in the state that it has
    /// seen: `Some(true)` if the backup will have all that it has done, `Some(false)` if it will have nothing of it.
    ///
    /// A transaction that has touched white segments only is wholly in the backup, before all others. One that has touched
    /// black segments only finds them as they were taken and as later transactions have changed them, which touched black
    /// segments as well and are replayed before it. An absent record has no colour, so a transaction that has found a record
    /// absent cannot be replayed.
    pub fn is_replayable(&self, owner: Owner) -> Option<bool> {
        match self.watch.colours(owner) {
            WHITE => self.included(owner).all(|included| included).then_some(true),
            0 | BLACK => (!self.included(owner).any(|included| included)).then_some(false),
            _ => None,
        }
    }

    /// Notes that an owner sees that records are missing: those that a range has not.
    pub fn note_missing(&self, owner: Owner) {
        self.watch.miss(owner);
    }

    /// Whether the sweep in progress has still to take a segment.
    pub fn is_white(&self, partition: PartitionId, segment: u32) -> bool {
        self.set(partition).segments[segment as usize].colour == WHITE
    }

    /// Whether the sweep may take a segment now: not while it is lent, nor, if the sweep is a black/white one, while an
    /// unfinished transaction has changed it. Others can be taken meanwhile.
    pub fn may_take(&self, partition: PartitionId, segment: u32) -> bool {
        let set = self.set(partition);
        let found = &set.segments[segment as usize];
        !found.is_lent() && (found.uncommitted == 0 || !set.is_black_white())
    }

    /// Notes that the sweep has taken a segment; to be called in the same step as [`Sets::image`], [`Sets::take_snapshot`] or
    /// [`Sets::lend`], after them.
    pub fn mark_taken(&mut self, partition: PartitionId, segment: u32) {
        let set = self.set_mut(partition);
        set.forget_versions(segment as usize);
        let found = &mut set.segments[segment as usize];
        found.colour = BLACK;
        if let Some(preserved) = found.preserved.take()
            && let PreservedState::Image(frame) = preserved.state
        {
            self.spare.push(frame);
        }
    }

    /// Hands out the image of a white segment that was saved when it was first changed, if it was; to be given back by
    /// [`Sets::reuse`]. Call [`Sets::mark_taken`] in the same step.
    pub fn take_snapshot(&mut self, partition: PartitionId, segment: u32) -> Option<Frame> {
        let found = &mut self.set_mut(partition).segments[segment as usize];
        let saved = found.preserved.take_if(|preserved| matches!(preserved.state, PreservedState::Image(_)))?;
        match saved.state {
            PreservedState::Image(frame) => Some(frame),
            PreservedState::Records(_) => None,
        }
    }

    /// Takes a frame for the next snapshot.
    pub fn reuse(&mut self, frame: Frame) {
        self.spare.push(frame);
    }

    /// How many segments have been copied for sweeps because they were changed, since the beginning.
    pub fn snapshots_taken(&self) -> u64 {
        self.snapshots_taken
    }

    /// Whether no unfinished transaction has changed anything.
    pub fn is_unchanging(&self) -> bool {
        self.owners.iter().all(|changes| changes.shadows.is_empty())
    }

    /// Whether a sweep is in progress that takes a consistent backup.
    #[inline]
    pub fn is_capturing(&self) -> bool {
        self.capture.is_some()
    }

    /// What commits have saved for sweeps since this was last asked: segments, and KiB of segments and records.
    pub fn take_copied(&mut self) -> (u64, u64) {
        let kib = self.copied.1 >> 10;
        self.copied.1 &= 1023;
        (std::mem::take(&mut self.copied.0), kib)
    }

    /// Ends the sweep, whether or not it has taken every segment.
    pub fn end_capture(&mut self) {
        self.capture = None;
        self.watch = ColourWatch::default();
        self.sets.iter_mut().flatten().for_each(|set| set.end_capture());
    }

    /// Saves what the sweep in progress wants of the segments that a commit is going to change.
    #[cold]
    pub(super) fn preserve(&mut self, owner: Owner) {
        let Some(changes) = self.owners.get_mut(owner.0 as usize) else { return };
        match self.capture {
            Some(Capture::StableVersions) => self.copied.1 += std::mem::take(&mut changes.kept_bytes),
            Some(Capture::CopyOnUpdate) => {
                for (number, segment) in by_segment::wanted(&self.sets, &changes.shadows) {
                    self.save_image(usize::from(number), segment);
                }
            }
            Some(Capture::BlackWhite(_)) | None => {}
        }
    }

    fn save_image(&mut self, number: usize, segment: usize) {
        let set = self.sets[number].as_ref().expect("it had been changed");
        let (partition, size, dirty) = (set.partition, set.segment_size, set.segments[segment].dirty);
        let spare = self.spare(size);
        let mut frame = spare.unwrap_or_else(|| Frame::allocate(1, size).pop().expect("one frame"));
        self.image(partition, segment as u32, &mut frame);
        self.snapshots_taken += 1;
        self.copied = (self.copied.0 + 1, self.copied.1 + size as u64);
        let preserved = Preserved { dirty, state: PreservedState::Image(frame) };
        self.set_mut(partition).segments[segment].preserved = Some(Box::new(preserved));
    }
}
