//! A trace in either format and a block trace are refused, or survive being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::trace::{Trace, msr};

fn survives(trace: &Trace) {
    for bytes in [trace.to_text().into_bytes(), trace.to_binary()] {
        assert_eq!(&Trace::read("again", &bytes).expect("what was written can be read"), trace);
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = Trace::read("fuzz", bytes) {
        survives(&trace);
    }
    // Large requests make large traces of few bytes: pages are as large as can be.
    if let Ok(trace) = msr::import("fuzz", bytes, 1 << 20) {
        survives(&trace);
    }
});
