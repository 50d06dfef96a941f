//! The CPU time of this process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::time::Duration;

/// User and system time that all threads of this process have used (getrusage).
///
/// # Errors
/// What the system call answers.
pub fn cpu_time() -> Result<Duration, nix::Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let duration = |time: TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1_000);
    Ok(duration(usage.user_time()) + duration(usage.system_time()))
}
