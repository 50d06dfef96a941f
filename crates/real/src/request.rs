//! What the kernel is told of a transfer: plain numbers, without an owner.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

/// Which system call a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    WriteDurable,
    Sync,
    Accept,
    Connect,
    Send,
    Receive,
}

impl Call {
    /// Whether it waits for another machine, however long that takes.
    pub(crate) fn is_network(self) -> bool {
        matches!(self, Call::Accept | Call::Connect | Call::Send | Call::Receive)
    }
}

/// One attempt to transfer (the rest of) an operation's bytes, or to reach another machine: then `address` points to its address. The flight table owns the buffer and the file until the
/// attempt has ended, which keeps `address` and `fd` good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The operation's place in the flight table.
    pub(crate) slot: u32,
    pub(crate) call: Call,
    pub(crate) fd: RawFd,
    /// The file's place in the ring's table of registered files.
    pub(crate) registered_file: Option<u32>,
    /// The place of the buffer's memory in the ring's table of registered buffers.
    pub(crate) registered_buffer: Option<u16>,
    pub(crate) address: *mut u8,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

// SAFETY: the address is only followed by the kernel call that serves the request, while the flight table keeps the frame
// and lets no other thread reach its bytes.
unsafe impl Send for Request {}

impl Request {
    /// Makes the system call on this thread. Returns the bytes transferred, or the negated error number, as the ring does.
    pub(crate) fn perform(&self) -> i32 {
        let offset = self.offset as libc::off_t;
        let length = self.length as usize;
        // SAFETY: `address` points to `length` bytes that belong to this request alone until it ends (see the type), and the
        // descriptor is open as long.
        let result = unsafe {
            match self.call {
                Call::Read => libc::pread(self.fd, self.address.cast(), length, offset),
                Call::Write => libc::pwrite(self.fd, self.address.cast(), length, offset),
                Call::WriteDurable => {
                    let vector = libc::iovec { iov_base: self.address.cast(), iov_len: length };
                    libc::pwritev2(self.fd, &vector, 1, offset, libc::RWF_DSYNC)
                }
                Call::Sync => libc::fdatasync(self.fd) as isize,
                Call::Accept => {
                    let (nothing, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
                    libc::accept4(self.fd, nothing, std::ptr::null_mut(), flags) as isize
                }
                Call::Connect => libc::connect(self.fd, self.address.cast(), self.length) as isize,
                Call::Send => libc::send(self.fd, self.address.cast(), length, libc::MSG_NOSIGNAL),
                Call::Receive => libc::recv(self.fd, self.address.cast(), length, 0),
            }
        };
        if result < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { result as i32 }
    }
}
