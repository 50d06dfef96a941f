//! Numbers in as few bytes as they need: seven bits a byte, the lowest first; a byte with the top bit set is not the last
//! (LEB128, as in DWARF).

/// Appends a number.
///
/// ```
/// use entresol_base::varint;
///
/// let mut bytes = Vec::new();
/// varint::put(300, &mut bytes);
/// let mut rest = &bytes[..];
/// assert_eq!((bytes.len(), varint::take(&mut rest), rest.len()), (2, Some(300), 0));
/// ```
#[inline]
pub fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a number to the front of `bytes`; how many it takes.
///
/// # Panics
/// If they are too few: 10 are enough.
#[inline]
pub fn write(mut number: u64, bytes: &mut [u8]) -> usize {
    let mut length = 0;
    while number >= 0x80 {
        bytes[length] = number as u8 | 0x80;
        length += 1;
        number >>= 7;
    }
    bytes[length] = number as u8;
    length + 1
}

/// Takes a number from the front; `None` if the bytes end within it or it is longer than 64 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_others_are_refused() {
        for number in (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            let mut written = [0; 10];
            let length = write(number, &mut written);
            assert_eq!(written[..length], bytes);
            let mut rest = &bytes[..];
            assert_eq!((take(&mut rest), rest.len()), (Some(number), 0));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None, "it is cut off");
        }
        assert_eq!(take(&mut &[0x80; 11][..]), None);
        assert_eq!(take(&mut &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2][..]), None, "65 bits");
    }
}
