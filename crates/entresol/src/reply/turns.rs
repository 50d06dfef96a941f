//! Threads that wait for answers take turns on the processors that the engine leaves to them.
//!
//! A thread that sleeps has to be woken, which takes longer than a transaction. While answers are given so often that one takes no longer
//! than it takes to go round all threads that wait, none needs to sleep: each lets the others run (`sched_yield`) and looks for its
//! answer when its turn comes again. That costs a fourth of a sleep, and the engine's thread nothing. After [`TURNS`] in vain it
//! sleeps, so a wait never costs much more than sleeping at once.
//!
//! The scheduler would spread them over all processors, and on the engine's they would wait for as long as it works: who finds itself there
//! leaves it.
//!
//! Who lets others run does so for other programs, too, and these keep the processor for milliseconds. If a turn has taken so long, all
//! threads sleep for a while as they would otherwise, and twice as long each time that it happens again.

use real_driver::{leave_processor, processor, wall_ns};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How often a thread lets others run before it sleeps.
const TURNS: u64 = 16;
/// About how long a turn takes.
const TURN_NS: u64 = 1_000;
/// A turn that took this long was another program's.
const LOST_NS: u64 = 1_000_000;
/// For how long a thread takes turns at most that has no answer, up to the end of the last of them.
pub(super) const TURNS_MAX: Duration = Duration::from_nanos(TURNS_MAX_NS);
const TURNS_MAX_NS: u64 = 1_000_000;
/// For how long threads take no turns after one was lost: at first, and at most.
const PAUSE_NS: u64 = 10_000_000;
const PAUSE_MAX_NS: u64 = 64 * PAUSE_NS;
/// A turn that is lost so soon after a pause is a reason for a longer one: where another program has work all the time, one is.
const TRIED_NS: u64 = 20_000_000;

/// Whether threads take turns, and where.
pub(super) struct Turns {
    /// The processor that the engine was on lately.
    engine: AtomicU32,
    /// Whether answers are given often enough.
    is_busy: AtomicBool,
    /// When the last pause ends, and how long it is.
    resumed_ns: AtomicU64,
    pause_ns: AtomicU64,
}

impl Turns {
    /// None are taken yet.
    pub fn new() -> Turns {
        let (engine, is_busy) = (AtomicU32::new(u32::MAX), AtomicBool::new(false));
        Turns { engine, is_busy, resumed_ns: AtomicU64::new(0), pause_ns: AtomicU64::new(0) }
    }

    /// The processor that the engine was on lately.
    pub fn engine(&self) -> u32 {
        self.engine.load(Ordering::Relaxed)
    }

    /// The engine is on this processor.
    pub fn note_engine(&self, processor: u32) {
        if self.engine() != processor {
            self.engine.store(processor, Ordering::Relaxed);
        }
    }

    /// Requests come as often as this, from threads that the system spreads over this many processors beside the engine's; zero if they are to
    /// take no turns.
    pub fn note_gap(&self, gap_ns: u64, processors: usize) {
        let is_busy = processors > 0 && gap_ns.saturating_mul(processors as u64) <= TURNS * TURN_NS;
        if self.is_busy() != is_busy {
            self.is_busy.store(is_busy, Ordering::Relaxed);
        }
    }

    /// Whether answers are given often enough for turns.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// Lets others run until the answer is there, or has been waited for long enough to sleep.
    pub fn take(&self, is_over: &AtomicBool) {
        if self.is_busy() {
            self.go_round(is_over, wall_ns(), || {
                std::thread::yield_now();
                wall_ns()
            });
        }
    }

    /// A turn tells when it has ended.
    fn go_round(&self, is_over: &AtomicBool, begun: u64, mut turn: impl FnMut() -> u64) {
        let mut now = begun;
        for _ in 0..TURNS {
            if is_over.load(Ordering::Acquire) || now < self.resumed_ns.load(Ordering::Relaxed) {
                return;
            }
            // Where others keep the processor for long, but not so long that it is for their sake.
            if now.saturating_sub(begun) >= TURNS_MAX_NS {
                return;
            }
            let engine = self.engine();
            if processor() == engine && !leave_processor(engine) {
                return;
            }
            let before = std::mem::replace(&mut now, turn());
            if now.saturating_sub(before) >= LOST_NS {
                return self.pause(now);
            }
        }
    }

    /// A turn was lost. The first to notice decides for how long there are none.
    fn pause(&self, now: u64) {
        let resumed = self.resumed_ns.load(Ordering::Relaxed);
        if now < resumed {
            return;
        }
        let is_soon = now - resumed < TRIED_NS;
        let pause = if is_soon { 2 * self.pause_ns.load(Ordering::Relaxed) } else { 0 }.clamp(PAUSE_NS, PAUSE_MAX_NS);
        let end = self.resumed_ns.compare_exchange(resumed, now + pause, Ordering::Relaxed, Ordering::Relaxed);
        if end.is_ok() {
            self.pause_ns.store(pause, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::time::SECOND_NS;

    #[test]
    fn threads_take_turns_where_an_answer_comes_before_they_would_sleep() {
        let turns = Turns::new();
        for (gap_ns, processors, is_busy) in
            [(4_000, 1, true), (16_000, 1, true), (17_000, 1, false), (4_000, 15, false), (4_000, 0, false)]
        {
            turns.note_gap(gap_ns, processors);
            assert_eq!(turns.is_busy(), is_busy, "{gap_ns} ns on {processors}");
        }
    }

    #[test]
    fn pauses_double_while_turns_are_lost_again_and_are_short_when_that_has_ended() {
        let turns = Turns::new();
        let lose = |now: u64| {
            turns.pause(now);
            turns.resumed_ns.load(Ordering::Relaxed) - now
        };
        let mut now = 5 * TRIED_NS;
        assert_eq!(lose(now), PAUSE_NS);
        // Others that have lost theirs at the same moment.
        turns.pause(now + 1);
        assert_eq!(turns.resumed_ns.load(Ordering::Relaxed), now + PAUSE_NS);
        for doubled in 1..10 {
            now = turns.resumed_ns.load(Ordering::Relaxed) + TRIED_NS / 2;
            assert_eq!(lose(now), PAUSE_MAX_NS.min(PAUSE_NS << doubled));
        }
        now = turns.resumed_ns.load(Ordering::Relaxed) + TRIED_NS;
        assert_eq!(lose(now), PAUSE_NS);
    }

    #[test]
    fn who_has_no_answer_gives_up_and_who_has_one_does_not_wait() {
        let (turns, is_over) = (Turns::new(), AtomicBool::new(false));
        turns.note_gap(1, 1);
        turns.take(&is_over);
        is_over.store(true, Ordering::Release);
        turns.take(&is_over);
    }

    #[test]
    fn turns_that_take_long_are_few() {
        let (turns, is_over) = (Turns::new(), AtomicBool::new(false));
        for (turn_ns, count) in [(1_000, TURNS), (300_000, 4), (LOST_NS - 1, 2), (LOST_NS, 1)] {
            let mut now = SECOND_NS;
            turns.go_round(&is_over, now, || {
                now += turn_ns;
                now
            });
            assert_eq!((now - SECOND_NS) / turn_ns, count, "turns of {turn_ns} ns");
        }
    }
}
