/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
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

/// Wall time in nanoseconds since an arbitrary moment of this machine.
#[inline]
pub fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

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
