/// One wait is for the ends of this share of what is in flight, for a number of them at most.
const SHARE: usize = 8;
const ENDS_MAX: usize = 16;

/// For how long a thread waits for several ends at most; then for one, in nanoseconds.
pub const GATHERING_NS: u64 = 100_000;

/// How many ends a wait is for at first, where this number of operations is in flight on devices. Their ends follow closely on each other, and
/// a system call and a turn of the executor for each would cost more than waiting for several of them.
#[inline]
pub fn ends_gathered(in_flight: usize) -> usize {
    (in_flight / SHARE).clamp(1, ENDS_MAX)
}
