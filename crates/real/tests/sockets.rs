//! The number of sockets is bounded, and what is over the bound is named.

use driver::{Completion, Driver, FaultKind, Op, Output, SocketId, Token};
use entresol_real::{Backend, Options, RealDriver};
use std::net::SocketAddr;

/// What may be open at once, listeners included.
const SOCKETS_MAX: usize = 1_024;

struct Bench {
    driver: RealDriver,
    next: u64,
}

impl Bench {
    fn submit(&mut self, op: Op) -> Token {
        self.next += 1;
        self.driver.submit(Token(self.next), op);
        Token(self.next)
    }

    fn end(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            self.driver.park(None, &mut done).expect("a real machine goes on");
        }
        assert_eq!(done.len(), count);
        done
    }

    fn run(&mut self, op: Op) -> Completion {
        self.submit(op);
        self.end(1).remove(0)
    }

    /// Both ends of a new connection.
    fn connect(&mut self, listener: SocketId, address: SocketAddr) -> Vec<SocketId> {
        self.submit(Op::Connect { address });
        self.submit(Op::Accept { listener });
        let ended = self.end(2).into_iter().map(|completion| match completion.result {
            Ok(Output::Connected { connection, .. }) => connection,
            other => panic!("{other:?}"),
        });
        ended.collect()
    }
}

fn fills_up(backend: Backend) {
    let driver = match RealDriver::open(Options { backend, ..Options::default() }) {
        Ok(driver) => driver,
        Err(fault) => return println!("skipped: {fault}"),
    };
    let mut bench = Bench { driver, next: 0 };
    let listen = bench.run(Op::Listen { address: "127.0.0.1:0".parse().expect("an address") });
    let Ok(Output::Listening { listener, address }) = listen.result else { panic!("{:?}", listen.result) };
    let mut open = Vec::new();
    while open.len() + 3 <= SOCKETS_MAX {
        open.extend(bench.connect(listener, address));
    }
    // One more fits, and not its other end.
    bench.submit(Op::Accept { listener });
    bench.submit(Op::Connect { address });
    let [first, second] = <[_; 2]>::try_from(bench.end(2)).expect("two");
    let kinds = [first, second].map(|completion| completion.result.err().map(|fault| fault.kind));
    assert!(kinds.contains(&None) && kinds.contains(&Some(FaultKind::TooManyFiles)), "{kinds:?}");
    let full = bench.run(Op::Connect { address }).result.expect_err("no more can be");
    assert_eq!(full.kind, FaultKind::TooManyFiles);
    assert!(full.message.contains("1024 sockets"), "{full}");
    for socket in open.drain(..4) {
        assert!(bench.run(Op::Close { socket }).result.is_ok());
    }
    bench.connect(listener, address);
}

#[test]
fn a_full_table_of_sockets_is_named_with_io_uring() {
    fills_up(Backend::IoUring);
}

#[test]
fn a_full_table_of_sockets_is_named_with_the_pool() {
    fills_up(Backend::ThreadPool);
}
