use crate::descriptors;
use driver::{Fault, FaultKind};
use std::io;

/// The sort of failure that the system's error number means.
pub(crate) fn kind_of(errno: i32) -> FaultKind {
    match errno {
        libc::ENOENT | libc::ENOTDIR => FaultKind::NotFound,
        libc::EEXIST => FaultKind::Exists,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => FaultKind::NoSpace,
        libc::EACCES | libc::EPERM | libc::EROFS | libc::EISDIR => FaultKind::Denied,
        libc::EBUSY | libc::ETXTBSY => FaultKind::Busy,
        libc::ENOMEM => FaultKind::NoMemory,
        libc::EMFILE | libc::ENFILE => FaultKind::TooManyFiles,
        libc::ECANCELED => FaultKind::Cancelled,
        libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EAFNOSUPPORT => FaultKind::Unsupported,
        libc::ECONNREFUSED => FaultKind::Refused,
        libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE => FaultKind::Reset,
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => FaultKind::Unreachable,
        libc::EADDRINUSE => FaultKind::AddressInUse,
        libc::ETIMEDOUT => FaultKind::TimedOut,
        libc::ENOTCONN => FaultKind::Closed,
        _ => FaultKind::Device,
    }
}

/// The fault of an attempt that the system refused: `attempt` says what was tried and names the file.
pub(crate) fn fault_of(attempt: &str, error: &io::Error) -> Fault {
    let kind = error.raw_os_error().map_or(FaultKind::Device, kind_of);
    match error.raw_os_error().and_then(descriptors::advice) {
        Some(advice) => Fault::new(kind, format!("{attempt}: {error}; {advice}")),
        None => Fault::new(kind, format!("{attempt}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_become_kinds_and_words() {
        let fault = fault_of("writing page 7 of 'data/log.3'", &io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(fault.kind, FaultKind::NoSpace);
        assert!(fault.message.starts_with("writing page 7 of 'data/log.3': No space left"), "{fault}");
        assert_eq!(kind_of(libc::EROFS), FaultKind::Denied);
        assert_eq!(kind_of(libc::EIO), FaultKind::Device);
    }
}
