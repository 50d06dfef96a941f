//! How long threads of this process run before others that are ready.
//!
//! The scheduler runs next whose share is to be had first, so a thread that has begun a time slice is not interrupted by one that wakes up with
//! as long a slice, until a tick of the clock, of some milliseconds. That is long for who has to run for some microseconds only so that
//! many others can go on: the system's thread that ends a write, or the one that has the log. A thread that asks for a longer slice is
//! interrupted by those at once. It gets no less of the processor for that.

use crate::usage::thread_sleeps;

/// The longest slice that Linux gives, in nanoseconds.
const LONGEST_NS: u64 = 100_000_000;

/// What the scheduler knows of a thread (`struct sched_attr`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice in nanoseconds, of threads of the usual policy.
    runtime: u64,
    deadline: u64,
    period: u64,
    utilization_min: u32,
    utilization_max: u32,
}

/// From now on the calling thread gives way to whatever wakes up with a slice of the usual length. False if the system has no such slices (Linux
/// before 6.12), or the thread runs by another policy than the usual one: then all is as before. Threads that it begins later do the same.
pub fn give_way_to_woken() -> bool {
    let Some(known) = scheduling() else { return false };
    let is_usual = known.policy == libc::SCHED_OTHER as u32;
    is_usual
        && set_scheduling(Scheduling { runtime: LONGEST_NS, ..known })
        && scheduling().is_some_and(|now| now.runtime == LONGEST_NS)
}

/// How often a driver is parked between two looks at how its thread runs.
const PARKS: u32 = 8;

/// The slices of a driver's thread: long ones while it has so much to run that it does not sleep, and its usual ones else, by which it runs as
/// soon as possible when it wakes up.
pub(crate) struct Slices {
    usual: Option<Scheduling>,
    is_long: bool,
    parks: u32,
    sleeps: u64,
}

impl Slices {
    /// Those of the calling thread.
    pub(crate) fn new() -> Slices {
        // Without slices there are none to be long, and a thread that has long ones keeps them.
        let usual = scheduling().filter(|known| (1..LONGEST_NS).contains(&known.runtime));
        Slices { usual, is_long: false, parks: 0, sleeps: 0 }
    }

    /// The thread has run what it had to, and hands its operations over.
    #[inline]
    pub(crate) fn note_park(&mut self) {
        self.parks += 1;
        if self.parks == PARKS {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        self.parks = 0;
        let Some(usual) = self.usual else { return };
        let sleeps = thread_sleeps();
        let is_busy = std::mem::replace(&mut self.sleeps, sleeps) == sleeps;
        if is_busy != self.is_long {
            let asked = if is_busy { give_way_to_woken() } else { set_scheduling(usual) };
            self.is_long = is_busy && asked;
        }
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        if self.is_long
            && let Some(usual) = self.usual
        {
            set_scheduling(usual);
        }
    }
}

/// What is known of the calling thread.
#[allow(unsafe_code)]
fn scheduling() -> Option<Scheduling> {
    if cfg!(miri) {
        return None;
    }
    let mut found = Scheduling::default();
    let size = size_of::<Scheduling>() as u32;
    // SAFETY: `found` lives through the call, has the size that is stated, and is made of any bytes.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, size, 0) };
    (told == 0).then_some(found)
}

/// Says it anew; false if that is refused.
#[allow(unsafe_code)]
fn set_scheduling(asked: Scheduling) -> bool {
    let asked = Scheduling { size: size_of::<Scheduling>() as u32, ..asked };
    // SAFETY: `asked` lives through the call and says its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const asked, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "what it asks for is its own thread's, for good")]
    fn a_thread_that_gives_way_keeps_its_policy_and_others_their_slices() {
        let own = scheduling().expect("every Linux of these years tells it");
        let asked = std::thread::spawn(|| (give_way_to_woken(), scheduling().expect("as before")));
        let (gives_way, found) = asked.join().expect("it has not panicked");
        assert_eq!((found.policy, found.nice, found.priority), (own.policy, own.nice, own.priority));
        // Before 6.12 no slice is told.
        assert_eq!(gives_way, own.runtime > 0, "a system that tells slices gives them");
        assert_eq!(found.runtime, if gives_way { LONGEST_NS } else { own.runtime });
        assert_eq!(scheduling().map(|now| now.runtime), Some(own.runtime));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "its own thread, which is to sleep")]
    fn a_thread_has_long_slices_while_it_does_not_sleep() {
        let of_thread = std::thread::spawn(|| {
            let mut slices = Slices::new();
            let runtime = || scheduling().expect("every Linux of these years tells it").runtime;
            let usual = runtime();
            let mut seen = Vec::new();
            for sleeps in [true, false, true, false] {
                // Others may make it wait for its processor, but do not have it sleep.
                for _ in 0..PARKS {
                    slices.note_park();
                }
                if sleeps {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                seen.push(runtime());
            }
            drop(slices);
            (usual, seen, runtime())
        });
        let (usual, seen, last) = of_thread.join().expect("it has not panicked");
        let long = if usual > 0 { LONGEST_NS } else { 0 };
        // The first look cannot know, the second one finds a sleep, the third one none.
        assert_eq!(seen[1..], [usual, long, usual], "{seen:?}");
        assert_eq!(last, usual, "it is as it was before");
    }
}
