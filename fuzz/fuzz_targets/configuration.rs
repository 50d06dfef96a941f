//! A configuration of any bytes is read or refused with words for every finding.
#![no_main]

use entresol::configuration::Configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for hardware in [None, Some("rahm-1991")] {
        if let Err(error) = Configuration::from_bytes("fuzz.toml", bytes, hardware) {
            assert!(!error.to_string().is_empty());
        }
    }
});
