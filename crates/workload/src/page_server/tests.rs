use super::*;
use base::Random;

fn drawn(pattern: Pattern, write_probability: f64, client: u32) -> Vec<Vec<PageReference>> {
    let mut random = Random::stream(3, "references");
    (0..4_000).map(|_| references(pattern, write_probability, client, &mut random)).collect()
}

fn share(transactions: &[Vec<PageReference>], counts: impl Fn(&PageReference) -> bool) -> f64 {
    let all = transactions.iter().flatten();
    all.clone().filter(|reference| counts(reference)).count() as f64 / all.count() as f64
}

#[test]
fn transactions_reference_distinct_pages_as_table_3_says() {
    for client in [0, 7, CLIENTS_MAX - 1] {
        let transactions = drawn(Pattern::HotCold, 0.2, client);
        let lengths: Vec<usize> = transactions.iter().map(Vec::len).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&30)));
        assert!((lengths.iter().sum::<usize>() as f64 / 4_000.0 - 20.0).abs() < 0.3);
        for transaction in &transactions {
            let pages: std::collections::BTreeSet<u32> = transaction.iter().map(|reference| reference.page).collect();
            assert_eq!(pages.len(), transaction.len(), "each page once");
            assert!(pages.last() < Some(&DATABASE_PAGES));
        }
        let hot = share(&transactions, |reference| Pattern::HotCold.is_hot(client, reference.page));
        assert!((0.79..0.81).contains(&hot), "{hot}");
        let written = share(&transactions, |reference| reference.writes);
        assert!((0.19..0.21).contains(&written), "{written}");
    }
}

#[test]
fn uniform_references_have_no_region() {
    let transactions = drawn(Pattern::Uniform, 0.0, 0);
    let first = share(&transactions, |reference| reference.page < HOT_PAGES);
    assert!((0.035..0.045).contains(&first), "{first}");
    assert_eq!(share(&transactions, |reference| reference.writes), 0.0);
}

#[test]
fn every_algorithm_may_be_named() {
    let known: Vec<&str> = node::algorithm::ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
    assert_eq!(known, ALGORITHMS);
}
