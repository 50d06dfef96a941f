//! Where two values differ.

/// The smallest range outside which both, equally long, are the same; `None` if they are. Compares words, because nearly all
/// of a record usually is the same.
#[inline]
pub fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let differing = |a: &[u8; 8], b: &[u8; 8]| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    if let (Some(a), Some(b)) = (old.as_array(), new.as_array()) {
        let bits = differing(a, b);
        return (bits != 0).then(|| (bits.trailing_zeros() as usize / 8, 8 - bits.leading_zeros() as usize / 8));
    }
    let new = &new[..old.len()];
    let ((a, a_rest), (b, b_rest)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    let from = match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(word) => {
            let bits = differing(&a[word], &b[word]);
            let (from, behind) = (8 * word + bits.trailing_zeros() as usize / 8, 8 * (word + 1));
            // Usually one word differs, and a comparison of all behind it is quick.
            if old[behind..] == new[behind..] {
                return Some((from, behind - bits.leading_zeros() as usize / 8));
            }
            from
        }
        None => 8 * a.len() + a_rest.iter().zip(b_rest).position(|(a, b)| a != b)?,
    };
    let ((a_rest, a), (b_rest, b)) = (old.as_rchunks::<8>(), new.as_rchunks::<8>());
    let to = match a.iter().zip(b).rposition(|(a, b)| a != b) {
        Some(word) => a_rest.len() + 8 * (word + 1) - differing(&a[word], &b[word]).leading_zeros() as usize / 8,
        None => 1 + a_rest.iter().zip(b_rest).rposition(|(a, b)| a != b).expect("they differ in front of the words"),
    };
    Some((from, to))
}

#[cfg(test)]
mod tests {
    use super::difference;
    use base::Random;

    #[test]
    fn the_difference_agrees_with_a_naive_search() {
        let mut random = Random::stream(5, "difference");
        for _ in 0..20_000 {
            let length = random.below(40) as usize;
            let old: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
            let mut new = old.clone();
            for _ in 0..random.below(3).min(length as u64) {
                new[random.below(length as u64) as usize] = random.below(3) as u8 * 120;
            }
            let differs = |at: &usize| old[*at] != new[*at];
            let naive = (0..length).find(differs).zip((0..length).rfind(differs)).map(|(from, last)| (from, last + 1));
            assert_eq!(difference(&old, &new), naive, "{old:?} {new:?}");
        }
    }
}
