//! What was handed over for writing, in log order, until it is durable without a gap before it.

use super::Circle;
use super::buffer::ClosedPages;
use base::Instant;
use driver::Frame;
use std::collections::VecDeque;

enum WriteState {
    /// To be submitted by the writer.
    Ready(Frame),
    /// To be submitted by the committing task that cut it.
    Own(Frame),
    /// The write has been submitted.
    InFlight,
    /// The write is complete; a sync has yet to be submitted.
    Written,
    /// A sync that covers it has been submitted.
    Syncing,
    /// Durable (or, without durability, written).
    Done,
}

struct WriteBatch {
    position: u64,
    length: usize,
    commits: u32,
    submitted: Instant,
    state: WriteState,
}

/// The number of the first batch: the first page of the opening.
pub(super) const FIRST: u64 = 0;

/// A batch taken for submission.
pub(super) struct Taken {
    /// Names the batch.
    pub number: u64,
    /// The pages.
    pub piece: ClosedPages,
    /// How many commits asked for them.
    pub commits: u32,
}

/// The batches in log order. Batches have consecutive numbers. The first of all is the first page of the opening: while it is
/// not done, no other is submitted.
#[derive(Default)]
pub(super) struct Batches {
    queue: VecDeque<WriteBatch>,
    /// The number of the first in the queue; greater than [`FIRST`] once that is done.
    first: u64,
    ready: usize,
    own: usize,
    in_flight: usize,
    commits: u32,
}

impl Batches {
    /// Adds a piece behind all others. With `own`, its committer submits it; otherwise the writer does. Returns its number.
    pub fn push(&mut self, piece: ClosedPages, commits: u32, own: bool) -> u64 {
        *(if own { &mut self.own } else { &mut self.ready }) += 1;
        self.commits += commits;
        let state = if own { WriteState::Own(piece.frame) } else { WriteState::Ready(piece.frame) };
        let (position, length) = (piece.position, piece.length);
        self.queue.push_back(WriteBatch { position, length, commits, submitted: Instant::START, state });
        self.first + self.queue.len() as u64 - 1
    }

    /// Adds pages to the last batch if they follow it and it has neither been submitted nor filled its frame. A write never
    /// crosses the end of the file.
    pub fn extend_last(&mut self, position: u64, pages: &[u8], circle: Circle) -> bool {
        let Some(batch) = self.queue.back_mut() else { return false };
        let (WriteState::Ready(frame), end) = (&mut batch.state, batch.position + batch.length as u64) else {
            return false;
        };
        let length = batch.length + pages.len();
        if end != position || circle.offset(end) == 0 || length > frame.len() {
            return false;
        }
        frame[batch.length..length].copy_from_slice(pages);
        batch.length = length;
        true
    }

    /// The number and length of the first batch in flight, if it ends at `end` or before.
    pub fn in_flight_up_to(&self, end: u64) -> Option<(u64, usize)> {
        let index = self.queue.iter().position(|batch| matches!(batch.state, WriteState::InFlight))?;
        let batch = &self.queue[index];
        (batch.position + batch.length as u64 <= end).then_some((self.first + index as u64, batch.length))
    }

    fn batch(&mut self, number: u64) -> &mut WriteBatch {
        &mut self.queue[(number - self.first) as usize]
    }

    /// Whether there is a batch that the writer may submit.
    pub fn has_ready(&self) -> bool {
        self.ready > 0 && self.first_ready().is_some()
    }

    fn first_ready(&self) -> Option<usize> {
        let index = self.queue.iter().position(|batch| matches!(batch.state, WriteState::Ready(_)))?;
        self.may_submit(index).then_some(index)
    }

    /// Whether the next batch that is added could be submitted at once.
    pub fn may_submit_next(&self) -> bool {
        self.may_submit(self.queue.len())
    }

    /// Whether the batch at this place may be submitted as far as the opening's first one is concerned.
    fn may_submit(&self, index: usize) -> bool {
        index == 0 || self.first > FIRST
    }

    /// When the oldest of the writes in flight was submitted.
    pub fn oldest_in_flight(&self) -> Option<Instant> {
        let in_flight = self.queue.iter().filter(|batch| matches!(batch.state, WriteState::InFlight));
        in_flight.map(|batch| batch.submitted).min()
    }

    /// How many writes are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many writes are in flight, or will be as soon as their committers have paid for them.
    pub fn under_way(&self) -> usize {
        self.in_flight + self.own
    }

    /// How many commits wait for batches that are not done.
    pub fn commits(&self) -> u32 {
        self.commits
    }

    /// The position behind the first batch that the writer has to submit and may.
    pub fn first_ready_end(&self) -> Option<u64> {
        let batch = &self.queue[self.first_ready()?];
        Some(batch.position + batch.length as u64)
    }

    /// Takes the first batch that the writer has to submit and may.
    pub fn take_ready(&mut self, now: Instant) -> Option<Taken> {
        let index = self.first_ready()?;
        self.ready -= 1;
        Some(self.take(index, now))
    }

    /// Takes a batch that its committer submits.
    pub fn take_own(&mut self, number: u64, now: Instant) -> Taken {
        self.own -= 1;
        self.take((number - self.first) as usize, now)
    }

    fn take(&mut self, index: usize, now: Instant) -> Taken {
        debug_assert!(self.may_submit(index), "the opening's first page is written before all others");
        let batch = &mut self.queue[index];
        let (WriteState::Ready(frame) | WriteState::Own(frame)) =
            std::mem::replace(&mut batch.state, WriteState::InFlight)
        else {
            unreachable!("a batch is submitted once")
        };
        batch.submitted = now;
        self.in_flight += 1;
        let piece = ClosedPages { position: batch.position, length: batch.length, frame };
        Taken { number: self.first + index as u64, piece, commits: batch.commits }
    }

    /// Leaves a batch to the writer: its committer has gone.
    pub fn release(&mut self, number: u64) {
        let batch = self.batch(number);
        batch.state = match std::mem::replace(&mut batch.state, WriteState::InFlight) {
            WriteState::Own(frame) => WriteState::Ready(frame),
            _ => unreachable!("only its committer releases a batch, before submission"),
        };
        self.own -= 1;
        self.ready += 1;
    }

    /// Notes that a write has ended. Returns when it had been submitted.
    pub fn written(&mut self, number: u64, needs_sync: bool) -> Instant {
        self.in_flight -= 1;
        let batch = self.batch(number);
        debug_assert!(matches!(batch.state, WriteState::InFlight), "a write ends once");
        batch.state = if needs_sync { WriteState::Written } else { WriteState::Done };
        batch.submitted
    }

    /// Notes that a sync is about to be submitted: it covers what is written. False if there is nothing to cover.
    pub fn begin_sync(&mut self) -> bool {
        let mut any = false;
        for batch in self.queue.iter_mut().filter(|batch| matches!(batch.state, WriteState::Written)) {
            batch.state = WriteState::Syncing;
            any = true;
        }
        any
    }

    /// Notes that the sync has ended.
    pub fn end_sync(&mut self) {
        for batch in self.queue.iter_mut().filter(|batch| matches!(batch.state, WriteState::Syncing)) {
            batch.state = WriteState::Done;
        }
    }

    /// Drops the batches at the front that are done. Returns the position up to which everything is done, if it moved.
    pub fn advance(&mut self) -> Option<u64> {
        let mut end = None;
        while self.queue.front().is_some_and(|batch| matches!(batch.state, WriteState::Done)) {
            let batch = self.queue.pop_front().expect("checked above");
            self.first += 1;
            self.commits -= batch.commits;
            end = Some(batch.position + batch.length as u64);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(position: u64) -> ClosedPages {
        ClosedPages { position, length: 512, frame: Frame::allocate(1, 512).pop().expect("one frame") }
    }

    #[test]
    fn nothing_is_submitted_before_the_first_is_done() {
        let mut batches = Batches::default();
        assert!(batches.may_submit_next());
        let numbers: Vec<u64> = (0..3).map(|n| batches.push(piece(n * 512), 1, false)).collect();
        assert_eq!(numbers, [FIRST, 1, 2]);
        assert_eq!(batches.take_ready(Instant::START).expect("the first").number, 0);
        let refused = |batches: &mut Batches| {
            let has_any = batches.may_submit_next() || batches.has_ready();
            assert!(!has_any && batches.take_ready(Instant::START).is_none());
        };
        refused(&mut batches);
        batches.written(0, true);
        refused(&mut batches);
        batches.begin_sync();
        batches.end_sync();
        assert_eq!(batches.advance(), Some(512));
        assert!(batches.may_submit_next() && batches.has_ready());
        assert_eq!(batches.take_ready(Instant::START).expect("the second").number, 1);
    }

    /// Batches of which the opening's first one is done.
    fn begun() -> Batches {
        let mut batches = Batches::default();
        batches.push(piece(0), 1, false);
        batches.take_ready(Instant::START);
        batches.written(0, false);
        assert_eq!(batches.advance(), Some(512));
        batches
    }

    #[test]
    fn only_a_prefix_without_gaps_is_done() {
        let mut batches = begun();
        let numbers: Vec<u64> = (1..5).map(|n| batches.push(piece(n * 512), 1, n == 2)).collect();
        assert_eq!((batches.has_ready(), batches.in_flight(), batches.under_way()), (true, 0, 1));
        batches.take_own(numbers[1], Instant::START);
        let order: Vec<u64> =
            std::iter::from_fn(|| batches.take_ready(Instant::START)).map(|taken| taken.number).collect();
        assert_eq!(order, [1, 3, 4]);
        assert_eq!(batches.in_flight(), 4);
        batches.written(3, false);
        batches.written(2, false);
        assert_eq!(batches.advance(), None);
        batches.written(1, false);
        assert_eq!(batches.advance(), Some(2048));
        batches.written(4, true);
        assert_eq!(batches.advance(), None);
        assert!(batches.begin_sync() && !batches.begin_sync());
        batches.end_sync();
        assert_eq!(batches.advance(), Some(2560));
        assert_eq!((batches.has_ready(), batches.in_flight()), (false, 0));
    }

    #[test]
    fn a_released_batch_goes_to_the_writer() {
        let mut batches = begun();
        let number = batches.push(piece(512), 1, true);
        assert!(batches.take_ready(Instant::START).is_none());
        batches.release(number);
        assert_eq!(batches.take_ready(Instant::START).expect("ready").number, number);
    }
}
