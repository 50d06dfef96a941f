//! How many files this process may have open.
#![allow(unsafe_code)]

use driver::{Fault, FaultKind};
use std::io;
use std::path::Path;

/// How many files this process may have open now, and how many at most.
fn limits() -> io::Result<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the limits and takes no other memory.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limits)
}

/// Raises the limit as far as the process may. Where that is refused the old one stays, and is said when it is reached.
pub(crate) fn raise_limit() {
    let Ok(limits) = limits() else { return };
    if limits.rlim_cur < limits.rlim_max {
        let raised = libc::rlimit { rlim_cur: limits.rlim_max, ..limits };
        // SAFETY: the call reads the limits and takes no other memory.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) };
    }
}

/// What to do about a limit on open files that was reached; `None` for other errors.
pub(crate) fn advice(errno: i32) -> Option<String> {
    match errno {
        libc::EMFILE => {
            let number = limits().map_or_else(|_| "some".to_owned(), |limits| limits.rlim_cur.to_string());
            Some(format!(
                "this process may have {number} files open (RLIMIT_NOFILE); raise the hard limit ('ulimit -n', or LimitNOFILE= \
                 of its service), or have fewer partitions: a set takes two files, any other partition one"
            ))
        }
        libc::ENFILE => {
            Some("this machine has as many files open as it may (/proc/sys/fs/file-max); raise that limit".to_owned())
        }
        _ => None,
    }
}

/// The fault of an opening for which the driver's table of files has no place.
pub(crate) fn table_is_full(path: &Path) -> Fault {
    let message =
        format!("opening '{}': 65,536 files are open, and no more can be; have fewer partitions", path.display());
    Fault::new(FaultKind::TooManyFiles, message)
}
