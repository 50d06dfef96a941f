//! The checksum of whatever the engine writes: CRC-32C (Castagnoli, Bräuer and Herrmann, IEEE Transactions on Communications,
//! 1993), which processors compute.

/// The checksum of these bytes. Not to be inlined: a caller that is not optimized would compile it anew for itself.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The checksum of a block that begins with it: of everything behind its four bytes.
#[inline]
pub fn block_checksum(block: &[u8]) -> u32 {
    checksum(&block[4..])
}

/// The checksum that such a block begins with.
#[inline]
pub fn stored_checksum(block: &[u8]) -> u32 {
    u32::from_le_bytes(block[..4].try_into().expect("four bytes"))
}
