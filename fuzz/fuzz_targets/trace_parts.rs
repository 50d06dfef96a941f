//! A binary trace with right checksums, whatever its parts hold, is refused or survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::trace::{Trace, binary};

fuzz_target!(|parts: Vec<(u8, Vec<u8>)>| {
    let mut file = binary::MAGIC.to_vec();
    file.extend(binary::VERSION.to_le_bytes());
    for (kind, bytes) in parts {
        let mut part = vec![kind % 4];
        part.extend((bytes.len() as u32).to_le_bytes());
        part.extend(bytes);
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &part) as u32;
        file.extend(part);
        file.extend(checksum.to_le_bytes());
    }
    if let Ok(trace) = Trace::read("fuzz", &file) {
        assert_eq!(Trace::read("again", &trace.to_binary()).expect("what was written can be read"), trace);
    }
});
