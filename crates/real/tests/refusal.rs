//! Where io_uring is forbidden, as in many containers, the thread pool takes over and says why.
#![allow(unsafe_code)]

use driver::{Driver, Op, Output, Token};
use entresol_real::{Backend, Options, RealDriver};

/// Forbids `io_uring_setup` to the calling thread, as a container's seccomp profile does.
fn forbid_io_uring() {
    let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let if_setup = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 };
    let refuse = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0000 | libc::EPERM as u32 };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    let mut filter = [load_number, if_setup, refuse, allow];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter outlive the calls, which only restrict this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

#[test]
fn the_pool_takes_over_and_says_why() {
    forbid_io_uring();
    let directory = std::env::temp_dir().join(format!("entresol-refusal-{}", std::process::id()));
    let fault = RealDriver::open(Options { backend: Backend::IoUring, ..Options::new("disk", &directory) })
        .err()
        .expect("io_uring is forbidden");
    assert!(fault.message.contains("io_uring"), "{fault}");
    let mut driver = RealDriver::open(Options::new("disk", &directory)).expect("the pool needs no permission");
    assert!(!driver.uses_io_uring());
    assert!(driver.description().contains("io_uring is refused: Operation not permitted"), "{}", driver.description());
    let device = driver.device("disk").expect("opened with it");
    driver.submit(Token(1), Op::Open { device, name: "file".to_owned(), create: true });
    let mut done = Vec::new();
    driver.park(None, &mut done).expect("something is in flight");
    assert!(matches!(done[0].result, Ok(Output::Opened { length: 0, .. })), "{:?}", done[0].result);
    drop(driver);
    std::fs::remove_dir_all(directory).expect("it is ours");
}
