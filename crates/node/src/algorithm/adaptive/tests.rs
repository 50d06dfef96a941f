use super::*;
use crate::algorithm::{Origin, named};
use base::{PageId, PartitionId, Random};
use std::collections::VecDeque;

fn page(number: u64) -> PageId {
    PageId::new(PartitionId(1), number as u32)
}

fn fixed() -> impl Iterator<Item = Box<dyn Placement>> {
    ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.name() != "adaptive")
        .map(|algorithm| algorithm.begin(Frames::lru(8)))
}

/// A memory as the paper has it: a list from the page that leaves first to the one that leaves last.
struct Naive {
    pages: VecDeque<(PageId, bool)>,
    capacity: usize,
    tally: Tally,
}

impl Naive {
    fn take_in(&mut self, page: PageId, becomes_dirty: bool) {
        let before = self.pages.iter().position(|(other, _)| *other == page);
        let was_dirty = before.and_then(|place| self.pages.remove(place)).is_some_and(|(_, is_dirty)| is_dirty);
        if self.pages.len() == self.capacity {
            let (_, is_dirty) = self.pages.pop_front().expect("it is full");
            self.tally.disk_writes += f64::from(is_dirty);
        }
        self.pages.push_back((page, was_dirty || becomes_dirty));
    }

    fn follow(&mut self, algorithm: &dyn Placement, noted: Noted<'_>) {
        let has = |page: PageId| self.pages.iter().any(|(other, _)| *other == page);
        match noted {
            Noted::Read(page, holders) => {
                self.tally.reads += 1.0;
                if !has(page) && algorithm.source(holders, 0) != Source::Disk {
                    self.tally.forwards += 1.0;
                    return;
                }
                self.tally.disk_reads += f64::from(!has(page));
                self.take_in(page, false);
                if algorithm.after_sending() == Recency::Hated {
                    let hated = self.pages.pop_back().expect("it is there");
                    self.pages.push_front(hated);
                }
            }
            Noted::LastCopy(page) => {
                let fate = algorithm.on_last_copy(has(page));
                self.tally.returns += f64::from(fate == Fate::Returned);
                if fate != Fate::Dropped && fate != Fate::PassedOn {
                    self.take_in(page, false);
                }
            }
            Noted::Changed(page) => self.take_in(page, true),
            Noted::Waited(..) => {}
        }
    }
}

#[test]
fn a_ghost_does_what_each_algorithm_says() {
    for seed in 0..40 {
        let mut random = Random::stream(seed, "ghost");
        let capacity = random.between(1, 12) as usize;
        for algorithm in fixed() {
            let mut ghost = Ghost::new(Frames::lru(capacity));
            let mut naive = Naive { pages: VecDeque::new(), capacity, tally: Tally::default() };
            for _ in 0..2_000 {
                let page = page(random.below(20));
                let holders = [ClientId(3)];
                let noted = match random.below(4) {
                    0 => Noted::LastCopy(page),
                    1 => Noted::Changed(page),
                    _ => Noted::Read(page, &holders[..random.below(2) as usize]),
                };
                ghost.follow(&*algorithm, noted);
                naive.follow(&*algorithm, noted);
                assert_eq!(ghost.tally(), &naive.tally, "seed {seed}, {noted:?}");
            }
        }
    }
}

#[test]
fn a_sample_of_a_large_memory_tells_what_the_whole_would() {
    // Without holders the others do the same.
    for algorithm in ["cbl", "fwd-h"].map(|name| named(name).expect("it is one of them").begin(Frames::lru(8))) {
        let missed = |frames: usize| {
            let mut random = Random::stream(3, "sample");
            let mut ghost = Ghost::new(Frames::lru(frames));
            let pages = 3 * frames as u64;
            for _ in 0..40 * pages {
                // Half of the references go to a tenth of the pages.
                let most = if random.chance(0.5) { pages / 10 } else { pages };
                ghost.follow(&*algorithm, Noted::Read(page(random.below(most)), &[]));
            }
            ghost.tally().disk_reads / ghost.tally().reads
        };
        let (whole, sampled) = (missed(200), missed(3_000));
        assert!((whole - sampled).abs() < 0.03, "{whole} {sampled}");
    }
}

/// One client's references in a ring that neither its own memory nor the server's holds, but both together do: as a page is asked for,
/// the one leaves that was asked for eight pages before.
fn rotate(adaptive: &mut Adaptive, steps: u64, waits: [(Origin, u64); 3]) {
    for step in 8..steps {
        adaptive.note(Noted::Read(page(step % 14), &[]));
        adaptive.note(Noted::LastCopy(page((step - 8) % 14)));
        waits.iter().for_each(|(origin, wait)| adaptive.note(Noted::Waited(*origin, *wait)));
    }
}

/// The share of those that have dropped pages come to the server.
fn sending_share(adaptive: &Adaptive) -> f64 {
    let sending = adaptive.candidates.iter().filter(|candidate| candidate.placement.may_return());
    sending.map(|candidate| candidate.share).sum()
}

#[test]
fn it_sends_dropped_pages_where_the_disk_is_dear_and_not_where_messages_are() {
    let (all, disk) = ([(Origin::Memory, 5), (Origin::Client, 6)], |wait| (Origin::Disk, wait));
    let mut adaptive = Adaptive::new(Frames::lru(8));
    rotate(&mut adaptive, 2_000, [all[0], all[1], disk(500)]);
    assert!(sending_share(&adaptive) > 0.9);
    // A queue at the network makes all that goes through it dear, and there is none at the disk.
    rotate(&mut adaptive, 4_000, [(Origin::Memory, 50_000), (Origin::Client, 60_000), disk(50_020)]);
    assert!(sending_share(&adaptive) < 0.1);
}

#[test]
fn nothing_changes_before_anything_was_measured() {
    let mut adaptive = Adaptive::new(Frames::lru(8));
    rotate(&mut adaptive, 2_000, [(Origin::Memory, 5); 3]);
    assert_eq!(adaptive.candidates[FIRST].share, 1.0);
}

#[test]
fn shares_are_those_of_decisions_and_make_one_whole() {
    let mut random = Random::stream(9, "shares");
    let mut adaptive = Adaptive::new(Frames::lru(8));
    for _ in 0..200 {
        adaptive.move_to(random.below(5) as usize);
        let total: f64 = adaptive.candidates.iter().map(|candidate| candidate.share).sum();
        assert!((total - 1.0).abs() < 1e-9, "{total}");
        assert!(
            adaptive.candidates.iter().all(|candidate| candidate.share == 0.0 || candidate.share >= SHARE_MIN - 1e-9)
        );
    }
    let mut drawn = [0.0; 5];
    for _ in 0..1_000 {
        adaptive.draw();
        drawn[adaptive.drawn] += 1.0;
    }
    for (times, candidate) in drawn.iter().zip(&adaptive.candidates) {
        assert!((times - 1_000.0 * candidate.share).abs() < 5.0, "{times} of {}", candidate.share);
    }
}

#[test]
fn whatever_clients_say_of_their_waits_the_shares_make_one_whole() {
    const SAID_NS: [u64; 5] = [0, 1, 1_000_000, 1 << 50, u64::MAX];
    for seed in 0..20 {
        let mut random = Random::stream(seed, "absurd waits");
        let mut adaptive = Adaptive::new(Frames::lru(8));
        let most = 1 + random.below(SAID_NS.len() as u64);
        for step in 0..4_000 {
            let holders = [ClientId(3)];
            adaptive.note(Noted::Read(page(random.below(20)), &holders[..random.below(2) as usize]));
            adaptive.note(Noted::LastCopy(page(random.below(20))));
            let origin = [Origin::Memory, Origin::Client, Origin::Disk][random.below(3) as usize];
            adaptive.note(Noted::Waited(origin, SAID_NS[random.below(most) as usize]));
            let shares: Vec<f64> = adaptive.candidates.iter().map(|candidate| candidate.share).collect();
            let is_share = |share: &f64| (0.0..=1.0 + 1e-9).contains(share);
            assert!(shares.iter().all(is_share), "seed {seed}, step {step}: {shares:?}");
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "seed {seed}, step {step}: {shares:?}");
        }
    }
}

#[test]
fn no_client_makes_a_page_dearer_than_a_limit() {
    let mut prices = Prices::default();
    (0..1_000).for_each(|_| prices.note(Origin::Memory, u64::MAX));
    prices.note(Origin::Disk, 0);
    let rates = prices.rates(&Tally::default()).expect("both were measured");
    assert!(rates.all <= 1e10 && rates.disk == 0.0 && rates.forward.is_finite(), "{rates:?}");
}
