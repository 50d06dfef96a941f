//! Vectors that are used again and again: what a large use takes is given back.

/// At most how much memory a vector keeps for its next use, in bytes.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Empties a vector. Its memory stays for its next use, unless it is much.
#[inline]
pub fn empty_for_reuse<T>(vector: &mut Vec<T>) {
    vector.clear();
    if vector.capacity() > const { KEPT_BYTES_MAX / size_of::<T>() } {
        give_back(vector);
    }
}

#[cold]
fn give_back<T>(vector: &mut Vec<T>) {
    *vector = Vec::new();
}

/// The memory of a vector, used or not, in bytes.
pub fn capacity_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_kept_and_much_is_given_back() {
        let mut vector = vec![7_u64; 1_000];
        empty_for_reuse(&mut vector);
        assert!(vector.is_empty() && vector.capacity() >= 1_000);
        vector.resize(KEPT_BYTES_MAX / 8 + 1, 7);
        empty_for_reuse(&mut vector);
        assert_eq!((vector.len(), capacity_bytes(&vector)), (0, 0));
    }
}
