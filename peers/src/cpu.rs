//! The CPU time of this process and of the engines that it started.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::time::Duration;

/// User and system time that all threads of this process (getrusage) and its children that live (proc(5), in ticks of
/// usually 10 ms) have used.
///
/// # Errors
/// What the system call answers.
pub fn cpu_time() -> Result<Duration, nix::Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let duration = |time: TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1_000);
    Ok(duration(usage.user_time()) + duration(usage.system_time()) + children())
}

fn children() -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let lists = threads.flatten().flat_map(|thread| fs::read_to_string(thread.path().join("children")));
    let children: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    children
        .iter()
        .filter_map(|child| ticks(&fs::read_to_string(format!("/proc/{child}/stat")).ok()?))
        .map(of_ticks)
        .sum()
}

/// User and system time in a line of /proc/PID/stat: the 14th and 15th field. The second one, the command in brackets, may
/// hold blanks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn of_ticks(ticks: u64) -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
    Duration::from_secs_f64(ticks as f64 / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_command_with_blanks() {
        assert_eq!(ticks("7 (a (b) c) S 1 7 7 0 -1 4194560 9 0 0 0 12 34 0 0 20 0 1"), Some(46));
        assert_eq!(ticks("7 (a) S 1"), None);
    }
}
