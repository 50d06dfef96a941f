//! Curves against exact stack distances.

use super::*;
use crate::trace::stack_distance::StackDistances;
use base::Random;
use proptest::prelude::*;

fn curve(pages: &[u64], pages_max: usize) -> MissRatioCurve {
    let mut shards = Shards::new(pages_max);
    pages.iter().for_each(|page| shards.reference(*page));
    shards.curve()
}

/// Pages with a skew: each of `pages` as likely as a power of its rank says, and some read in sequence.
fn skewed(seed: u64, (pages, references): (u64, usize), skew: f64) -> Vec<u64> {
    let mut random = Random::stream(seed, "pages");
    let mut scan = 0;
    let mut next = || {
        if random.chance(0.1) {
            scan = (scan + 1) % pages;
            return scan;
        }
        (random.unit().powf(skew) * pages as f64) as u64
    };
    (0..references).map(|_| next()).collect()
}

/// The mean difference between a curve and the exact one over sizes up to all pages.
fn mean_error(curve: &MissRatioCurve, exact: &StackDistances) -> f64 {
    let sizes: Vec<u64> = (1..=100).map(|part| exact.pages() * part / 100).collect();
    let error = |size: &u64| (curve.miss_ratio(*size) - (1.0 - exact.hit_ratio(*size as usize))).abs();
    sizes.iter().map(error).sum::<f64>() / sizes.len() as f64
}

proptest! {
    #[test]
    fn a_curve_of_all_pages_is_exact(pages in prop::collection::vec(0_u64..40, 0..400), more in 0_usize..100) {
        let exact = StackDistances::of(pages.iter().copied());
        let curve = curve(&pages, 40 + more);
        prop_assert_eq!(curve.rate(), 1.0);
        prop_assert_eq!((curve.references(), curve.pages()), (exact.references(), exact.pages()));
        for frames in 0..45 {
            let misses = exact.references() - exact.hits(frames as usize);
            let wanted = if pages.is_empty() { 0.0 } else { misses as f64 / pages.len() as f64 };
            prop_assert!((curve.miss_ratio(frames) - wanted).abs() < 1e-12, "{} frames", frames);
        }
    }

    #[test]
    fn a_curve_falls_from_all_to_what_no_buffer_spares(
        pages in prop::collection::vec(any::<u64>().prop_map(|page| page % 3_000), 1..2_000),
        pages_max in 1_usize..300,
    ) {
        let curve = curve(&pages, pages_max);
        prop_assert_eq!(curve.references(), pages.len() as u64);
        prop_assert_eq!(curve.miss_ratio(0), 1.0);
        let sizes: Vec<f64> = (1..4_000).step_by(37).map(|frames| curve.miss_ratio(frames)).collect();
        prop_assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1] - 1e-12), "{:?}", sizes);
        prop_assert!(sizes.iter().all(|ratio| (0.0..=1.0).contains(ratio)));
        for frames in [1, 10, 1_000] {
            prop_assert!(curve.repeated_miss_ratio(frames) <= curve.miss_ratio(frames) + 1e-12);
        }
    }
}

#[test]
fn sampled_curves_are_near_the_exact_one() {
    for (seed, skew) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
        let pages = skewed(seed, (50_000, 400_000), skew);
        let exact = StackDistances::of(pages.iter().copied());
        for (pages_max, error_max) in [(1_024, 0.04), (8_192, 0.02)] {
            let curve = curve(&pages, pages_max);
            assert!(curve.rate() < 0.9, "{} of {} pages", pages_max, exact.pages());
            let error = mean_error(&curve, &exact);
            assert!(error < error_max, "skew {skew}, {pages_max} pages: {error}");
            let counted = curve.pages() as f64 / exact.pages() as f64;
            assert!((counted - 1.0).abs() < 0.2, "{} pages for {}", curve.pages(), exact.pages());
        }
    }
}

#[test]
fn no_more_is_kept_than_asked_for() {
    let mut shards = Shards::new(64);
    for page in skewed(5, (10_000, 50_000), 2.0) {
        shards.reference(page);
        assert!(shards.latest.len() <= 64 && shards.by_hash.len() <= 64 && shards.times.len() <= 130);
    }
}

#[test]
fn a_curve_that_samples_wrongly_is_found_out() {
    // Which references are looked at must not depend on anything but the page: every tenth reference gives another curve.
    let pages = skewed(1, (50_000, 400_000), 2.0);
    let exact = StackDistances::of(pages.iter().copied());
    let tenth: Vec<u64> = pages.iter().copied().step_by(10).collect();
    assert!(mean_error(&curve(&tenth, 8_192), &exact) > 0.03);
}
