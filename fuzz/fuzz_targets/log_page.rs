//! A log page of any bytes, also with the checksum that belongs to them, is accepted within its bounds or refused.
#![no_main]

use engine::log::page::verify;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() < 128 {
        return;
    }
    let mut page = bytes.to_vec();
    let position = u64::from_le_bytes(page[8..16].try_into().expect("eight bytes"));
    let _ = verify(&page, position);
    page[4..8].copy_from_slice(&[0x45, 0x4c, 1, 0]);
    let length = page.len() as u32;
    page[28..32].copy_from_slice(&length.to_le_bytes());
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &page[4..]) as u32;
    page[..4].copy_from_slice(&sum.to_le_bytes());
    if let Ok(header) = verify(&page, position) {
        assert!(header.used <= page.len() && (header.first == 0 || header.first < header.used));
    }
});
