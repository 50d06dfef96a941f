//! Keys: "user" and the FNV hash of the record's number in decimal, as the original makes them for insertions in hashed order.

/// A record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; 23],
    length: u8,
}

impl Key {
    /// The key of the record with this number.
    pub fn of(number: u64) -> Key {
        Key::of_hash(hash(number))
    }

    pub fn of_hash(hash: u64) -> Key {
        let mut bytes = [0; 23];
        bytes[..4].copy_from_slice(b"user");
        let digits = digits(hash);
        let mut left = hash;
        for at in (4..4 + digits).rev() {
            bytes[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Key { bytes, length: 4 + digits as u8 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The original's `Utils.hash`: FNV-1 with its operations swapped (FNV-1a) over the eight octets, lowest first, and the absolute
/// value of the result as a signed number.
pub fn hash(number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in number.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    }
    hash.cast_signed().unsigned_abs()
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Orders hashes as the keys made of them are ordered: as decimal texts.
pub fn rank(hash: u64) -> (u64, usize) {
    let digits = digits(hash);
    // An absolute value of 64 signed bits has 19 digits at most, and as many nines fit into 64 bits.
    (hash * 10_u64.pow(19 - digits as u32), digits)
}
