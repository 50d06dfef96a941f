//! Where a file has room that nothing was written to.

use super::{Bench, write};
use crate::{Media, Options};
use devices::Hardware;
use driver::{Driver, FileId, Op};

const TEXT: &str = "[device.d]\ngrowth = \"1 GB/s\"\nsync = \"7 us\"\nmedium = { servers = 1, service = \"10 us\" }\n\
                    fresh = { servers = 1, service = { read = \"0 us\", write = \"90 us\" } }\n";

fn bench(text: &str) -> (Bench, FileId) {
    let hardware = Hardware::parse(text, "test").unwrap_or_else(|error| panic!("{error}"));
    let mut bench = Bench::new(hardware, Options::default(), &Media::new());
    let file = bench.open("d", "data");
    (bench, file)
}

/// How long an operation takes, in microseconds.
fn took_us(bench: &mut Bench, op: Op) -> u64 {
    let start = bench.driver.now();
    bench.run(op).result.expect("it succeeds");
    bench.driver.now().since_ns(start) / 1_000
}

#[test]
fn the_first_write_to_a_place_costs_more_than_those_over_it() {
    let (mut bench, file) = bench(TEXT);
    // A million bytes at a billion a second, and the sync.
    assert_eq!(took_us(&mut bench, Op::Resize { file, length: 1_024_000, prewrite: false }), 1_031);
    assert_eq!(took_us(&mut bench, write(file, 8_192, 1, 4_096, false)), 100);
    assert_eq!(took_us(&mut bench, write(file, 8_192, 2, 4_096, true)), 10, "over what was written");
    assert_eq!(took_us(&mut bench, write(file, 4_096, 3, 8_192, false)), 100, "half of it is new");
    assert_eq!(took_us(&mut bench, write(file, 4_096, 4, 8_192, false)), 10);
    assert_eq!(took_us(&mut bench, write(file, 1_024_000, 5, 4_096, false)), 100, "behind the end");
    // What was cut off and has come back is new; what is written in advance is not.
    assert_eq!(took_us(&mut bench, Op::Resize { file, length: 4_096, prewrite: false }), 7);
    assert_eq!(took_us(&mut bench, Op::Resize { file, length: 8_192, prewrite: true }), 11);
    assert_eq!(took_us(&mut bench, Op::Resize { file, length: 12_288, prewrite: false }), 11);
    assert_eq!(took_us(&mut bench, write(file, 4_096, 6, 4_096, false)), 10);
    assert_eq!(took_us(&mut bench, write(file, 8_192, 7, 4_096, false)), 100);
}

#[test]
fn a_description_without_them_behaves_as_it_did() {
    let plain = "[device.d]\nsync = \"7 us\"\nmedium = { servers = 1, service = \"10 us\" }\n";
    let (mut bench, file) = bench(plain);
    assert_eq!(took_us(&mut bench, Op::Resize { file, length: 1_024_000, prewrite: false }), 7);
    assert_eq!(took_us(&mut bench, write(file, 8_192, 1, 4_096, false)), 10);
    let events = bench.driver.events();
    took_us(&mut bench, Op::Resize { file, length: 2_048_000, prewrite: false });
    assert_eq!(bench.driver.events(), events + 1, "growth that takes no time is no event");
}
