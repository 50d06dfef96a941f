//! The event heap. It lives beside the queueing models, so that these are tested without a driver.

use base::Instant;

const PAYLOAD_BITS: u32 = 28;
const SEQUENCE_BITS: u32 = 44;
const TIME_BITS: u32 = 128 - PAYLOAD_BITS - SEQUENCE_BITS;
/// Children per node. Four halve the depth of a binary heap, and four keys fill one cache line.
const ARITY: usize = 4;

/// The future events of a simulation, earliest first; events of one instant come in the order of their scheduling.
///
/// A heap of packed words: time, then a sequence number, then the payload.
///
/// ```
/// use base::Instant;
/// use entresol_devices::Calendar;
///
/// let mut calendar = Calendar::new();
/// for (payload, at) in [(1, 20), (2, 10), (3, 10)] {
///     calendar.schedule(Instant::from_ns(at), payload);
/// }
/// let order: Vec<u32> = std::iter::from_fn(|| calendar.take()).map(|(_, payload)| payload).collect();
/// assert_eq!(order, [2, 3, 1]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    heap: Vec<u128>,
    sequence: u64,
}

impl Calendar {
    /// Payloads are smaller than this.
    pub const PAYLOAD_LIMIT: u32 = 1 << PAYLOAD_BITS;
    /// The last moment that can be scheduled: 834 days. Later events are scheduled then.
    pub const LAST: Instant = Instant::from_ns((1 << TIME_BITS) - 1);

    /// No events.
    pub fn new() -> Calendar {
        Calendar::default()
    }

    /// How many events are scheduled.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event is scheduled.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Schedules `payload` at `at`.
    ///
    /// # Panics
    /// If the payload is not below [`Calendar::PAYLOAD_LIMIT`].
    #[inline]
    pub fn schedule(&mut self, at: Instant, payload: u32) {
        assert!(payload < Self::PAYLOAD_LIMIT, "a payload fits its bits");
        let time = u128::from(at.min(Self::LAST).ns()) << (SEQUENCE_BITS + PAYLOAD_BITS);
        let key = time | u128::from(self.sequence) << PAYLOAD_BITS | u128::from(payload);
        self.sequence = (self.sequence + 1) & ((1 << SEQUENCE_BITS) - 1);
        let mut hole = self.heap.len();
        self.heap.push(key);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.heap[parent] < key {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = key;
    }

    /// When the next event comes.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|key| Self::time(*key))
    }

    /// Takes the next event: its time and payload.
    #[inline]
    pub fn take(&mut self) -> Option<(Instant, u32)> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first().copied() else { return Some(Self::unpack(last)) };
        self.sink(last);
        Some(Self::unpack(first))
    }

    /// Puts `key` into the root's place and restores the order.
    #[inline]
    fn sink(&mut self, key: u128) {
        let heap = self.heap.as_mut_slice();
        let mut hole = 0;
        loop {
            let child = hole * ARITY + 1;
            let found = match heap.get(child..child + ARITY) {
                Some(four) => Some(least_of_four(four.try_into().expect("that many"))),
                None => heap.get(child..).and_then(|few| few.iter().copied().enumerate().min_by_key(|(_, key)| *key)),
            };
            let Some((index, least)) = found else { break };
            if key < least {
                break;
            }
            heap[hole] = least;
            hole = child + index;
        }
        heap[hole] = key;
    }

    fn time(key: u128) -> Instant {
        Instant::from_ns((key >> (SEQUENCE_BITS + PAYLOAD_BITS)) as u64)
    }

    fn unpack(key: u128) -> (Instant, u32) {
        (Self::time(key), key as u32 & (Self::PAYLOAD_LIMIT - 1))
    }
}

/// The least of four keys and its index, by two comparisons at once and a third: half the time of one after the other.
#[inline]
fn least_of_four(keys: &[u128; ARITY]) -> (usize, u128) {
    let [a, b, c, d] = *keys;
    let front = if b < a { (1, b) } else { (0, a) };
    let back = if d < c { (3, d) } else { (2, c) };
    if back.1 < front.1 { back } else { front }
}
