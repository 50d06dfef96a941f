/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// How often the calling thread has slept: given its processor back of its own will.
#[allow(unsafe_code)]
pub(crate) fn thread_sleeps() -> u64 {
    // SAFETY: zeros are a valid value of this plain structure, which lives through the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let result = libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        assert_eq!(result, 0, "every Linux tells it of a thread");
        usage
    };
    usage.ru_nvcsw as u64
}

/// The processor that the calling thread runs on, by its number; it may be on another one by the next moment.
#[allow(unsafe_code)]
#[inline]
pub fn processor() -> u32 {
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: the call takes nothing, and reads what the system has told this thread.
    let number = unsafe { libc::sched_getcpu() };
    u32::try_from(number).unwrap_or(0)
}

/// A bit for each processor by its number, as the system has it (`cpu_set_t`).
type Processors = [u64; 16];

/// Has the calling thread go on on another processor than this one, if there is one that it may use; false if it stays. The scheduler may bring
/// it back at any time: where it may run is afterwards what it was before.
pub fn leave_processor(number: u32) -> bool {
    let Some(allowed) = affinity() else { return false };
    let mut others = allowed;
    let Some(word) = others.get_mut(number as usize / 64) else { return false };
    *word &= !(1 << (number % 64));
    if count(&others) == 0 || !set_affinity(&others) {
        return false;
    }
    // A thread that has asked for some processors gets none that its control group, or the machine, has more of later. One that may use all that
    // there are now has probably asked for none.
    let stays_free = set_affinity(&[u64::MAX; 16]) && affinity() == Some(allowed);
    if !stays_free {
        set_affinity(&allowed);
    }
    true
}

/// How many processors the calling thread may run on; `None` if that is not told.
pub fn allowed_processors() -> Option<usize> {
    affinity().map(|allowed| count(&allowed))
}

fn count(processors: &Processors) -> usize {
    processors.iter().map(|word| word.count_ones() as usize).sum()
}

/// Where the calling thread may run.
#[allow(unsafe_code)]
fn affinity() -> Option<Processors> {
    if cfg!(miri) {
        return None;
    }
    let mut allowed = Processors::default();
    // SAFETY: the set lives through the call and has the size that is stated.
    let told = unsafe { libc::sched_getaffinity(0, size_of::<Processors>(), (&raw mut allowed).cast()) };
    (told == 0).then_some(allowed)
}

/// Says where the calling thread may run; false if that is refused.
#[allow(unsafe_code)]
fn set_affinity(processors: &Processors) -> bool {
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, size_of::<Processors>(), (&raw const *processors).cast()) == 0 }
}

#[allow(unsafe_code)]
#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer and lives through the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "every Linux has these clocks");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time by the calendar, in nanoseconds since the beginning of 1970 UTC.
pub(crate) fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Wall time in nanoseconds since an arbitrary moment of this machine. It goes on while the machine sleeps: what has a lease from
/// another machine must find it over when it wakes.
#[inline]
pub fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Random bits of the operating system's, which are asked for many at a time: a call costs more than the bits. None are given twice.
#[derive(Default)]
pub(crate) struct Entropy {
    drawn: Vec<u128>,
}

/// How many numbers are drawn by one call, which gives so few bytes whole.
const DRAWN: usize = 16;

impl Entropy {
    /// 128 of them.
    pub(crate) fn take(&mut self) -> u128 {
        if self.drawn.is_empty() {
            self.drawn.extend(draw());
        }
        self.drawn.pop().expect("some were drawn")
    }
}

#[allow(unsafe_code)]
fn draw() -> [u128; DRAWN] {
    let mut bits = [0_u128; DRAWN];
    let length = size_of_val(&bits);
    // SAFETY: `bits` has the length that is stated and lives through the call, and is made of any bytes.
    let drawn = unsafe { libc::getrandom(bits.as_mut_ptr().cast(), length, 0) };
    assert_eq!(drawn, length as isize, "Linux gives 256 bytes whole");
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The time since this machine was started, asleep or awake, as the kernel's own file says it, in hundredths of a second.
    #[allow(clippy::disallowed_methods, reason = "the file is what the clock is compared with")]
    fn up_hundredths() -> u64 {
        let text = std::fs::read_to_string("/proc/uptime").expect("every Linux has it");
        let (seconds, hundredths) = text.split_once(' ').expect("two numbers").0.split_once('.').expect("a fraction");
        seconds.parse::<u64>().expect("seconds") * 100 + hundredths.parse::<u64>().expect("hundredths")
    }

    const INSIDE: &str = "ENTRESOL_SLEPT_FOR_A_DAY";

    /// In a time namespace in which the machine seems to have slept for a day, where this may make one.
    #[test]
    fn the_clock_counts_the_time_in_which_the_machine_sleeps() {
        let before = up_hundredths();
        let now = wall_ns() / 10_000_000;
        assert!((before..=up_hundredths() + 1).contains(&now), "{now} is not {before}");
        if std::env::var_os(INSIDE).is_some() {
            assert!(before >= 24 * 3600 * 100, "it has slept for a day");
            return;
        }
        let this = std::env::current_exe().expect("this test's own program");
        let name = "usage::tests::the_clock_counts_the_time_in_which_the_machine_sleeps";
        let asleep = || {
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", "86400", "--fork"]);
            command
        };
        if !asleep().arg("true").status().is_ok_and(|status| status.success()) {
            return eprintln!("skipped in part: 'unshare --time' is not permitted here");
        }
        let run = asleep().arg(this).args(["--exact", name]).env(INSIDE, "yes").output().expect("it was there");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    }

    #[test]
    fn no_two_draws_are_alike_and_each_bit_is_drawn() {
        let mut entropy = Entropy::default();
        let draws: std::collections::BTreeSet<u128> = (0..64).map(|_| entropy.take()).collect();
        assert_eq!(draws.len(), 64);
        // Sixty-four coins all of one side: once in 2^57 runs.
        let (all, none) = draws.iter().fold((u128::MAX, 0), |(all, none), draw| (all & draw, none | draw));
        assert_eq!((all, none), (0, u128::MAX));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no such call")]
    fn a_thread_that_waits_has_slept() {
        let before = thread_sleeps();
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        assert!(receiver.recv_timeout(std::time::Duration::from_millis(1)).is_err());
        assert!(thread_sleeps() > before);
    }

    /// The processors that this thread may use.
    fn allowed() -> Vec<usize> {
        let set = affinity().expect("every Linux tells it");
        (0..64 * set.len()).filter(|number| set[number / 64] & 1 << (number % 64) != 0).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "no such call")]
    fn a_thread_leaves_a_processor_if_it_may_use_another_one() {
        let before = allowed();
        // The scheduler may have brought it back before it looks.
        let leaves = || {
            let here = processor();
            leave_processor(here) && processor() != here
        };
        assert!(before.len() == 1 || (0..1_000).any(|_| leaves()));
        assert_eq!(allowed(), before, "it may run where it might before");
        assert!(!leave_processor(u32::MAX));
        let mut one = Processors::default();
        one[before[0] / 64] = 1 << (before[0] % 64);
        assert!(set_affinity(&one));
        assert!(!leave_processor(processor()));
        assert_eq!(allowed(), [before[0]]);
    }

    /// In a control group that gets more processors, where this may make one.
    #[test]
    #[cfg_attr(miri, ignore = "no such call")]
    #[allow(clippy::disallowed_methods, reason = "control groups are made by files")]
    fn a_thread_that_has_left_a_processor_may_use_those_that_are_added() {
        let before = allowed();
        let above = std::path::Path::new("/sys/fs/cgroup/cpuset");
        let group = above.join(format!("entresol-{}", std::process::id()));
        let tell = |file: &str, text: &str| std::fs::write(group.join(file), text);
        let [first, .., last] = before[..] else { return eprintln!("skipped: there is one processor only") };
        let enter = || {
            std::fs::create_dir(&group)?;
            tell("cpuset.mems", &std::fs::read_to_string(above.join("cpuset.mems"))?)?;
            tell("cpuset.cpus", &first.to_string())?;
            // Zero is the thread that writes.
            tell("tasks", "0")
        };
        let is_inside = enter().is_ok();
        let mut after = Vec::new();
        if is_inside {
            assert_eq!(allowed(), [first]);
            assert!(leave_processor(last as u32));
            tell("cpuset.cpus", &format!("{first},{last}")).expect("it was permitted before");
            after = allowed();
            std::fs::write(above.join("tasks"), "0").expect("it came from there");
        }
        let _ = std::fs::remove_dir(&group);
        if !is_inside {
            return eprintln!("skipped: no control group of processors may be made here");
        }
        assert_eq!(after, [first, last]);
    }

    #[test]
    fn clocks_go_forward_and_a_thread_uses_no_more_than_its_process() {
        let (wall, thread) = (wall_ns(), thread_cpu_ns());
        let mut sum = 0_u64;
        while thread_cpu_ns() == thread {
            sum = sum.wrapping_mul(31).wrapping_add(wall_ns());
        }
        assert!(wall_ns() > wall, "{sum}");
        assert!(process_cpu_ns() >= thread_cpu_ns() - thread);
    }
}
