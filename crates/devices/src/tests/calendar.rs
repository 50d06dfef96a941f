use crate::Calendar;
use base::{Instant, Random};

#[test]
fn events_come_in_order_and_ties_in_order_of_scheduling() {
    for seed in 0..30 {
        let mut random = Random::stream(seed, "calendar");
        let mut calendar = Calendar::new();
        let mut naive: Vec<(u64, u32)> = Vec::new();
        for number in 0..2_000 {
            if naive.is_empty() || random.chance(0.55) {
                let at = random.below(50);
                calendar.schedule(Instant::from_ns(at), number);
                naive.push((at, number));
            } else {
                // Numbers grow with scheduling, so the least pair is the next event.
                let (place, next) = naive.iter().copied().enumerate().min_by_key(|(_, event)| *event).expect("some");
                naive.remove(place);
                assert_eq!(calendar.next(), Some(Instant::from_ns(next.0)));
                assert_eq!(calendar.take(), Some((Instant::from_ns(next.0), next.1)));
            }
            assert_eq!(calendar.len(), naive.len());
        }
    }
}

#[test]
fn what_never_comes_comes_last() {
    let mut calendar = Calendar::new();
    calendar.schedule(Instant::NEVER, 1);
    calendar.schedule(Instant::from_ns(5), 2);
    assert_eq!(calendar.take(), Some((Instant::from_ns(5), 2)));
    assert_eq!(calendar.take(), Some((Calendar::LAST, 1)));
    assert!(calendar.is_empty() && calendar.take().is_none());
}
