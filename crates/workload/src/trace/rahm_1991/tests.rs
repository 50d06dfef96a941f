use super::*;
use crate::trace::statistics::Statistics;
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::OnceLock;

pub(in crate::trace) fn trace() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| generate(1))
}

#[test]
fn the_published_properties_are_kept() {
    let trace = trace();
    let statistics = Statistics::of(trace);
    assert_eq!((statistics.references, statistics.writes, statistics.pages), (1_000_000, 16_000, 66_000));
    assert!(statistics.transactions > 17_500);
    assert_eq!((statistics.types.len(), statistics.partitions.len()), (12, 13));
    let updates = statistics.update_transactions as f64 / statistics.transactions as f64;
    assert!((updates - 0.2).abs() < 1e-3, "{updates}");
    assert!(statistics.largest > 11_000);
    let pages: u64 = trace.partitions().iter().map(|partition| partition.objects).sum();
    assert_eq!(pages * 4096, 4 << 30);
    // Stack distances are another way to the same hit ratios than the generator's quotas.
    let ratio = |frames| (1e4 * statistics.distances.hit_ratio(frames)).round() / 1e2;
    assert_eq!((ratio(2_000), ratio(4_000)), (83.8, 87.2));
    for kind in &statistics.types {
        let own = KINDS.iter().find(|known| known.name == kind.name).expect("a type of the table");
        let share: f64 = own.files.iter().map(|file| kind.row[*file]).sum();
        assert!(share > 0.7, "{}: {share}", kind.name);
    }
}

type Page = (u16, u64);

/// Pages in the order of their latest use. The queue may hold earlier uses, which mean nothing.
struct Lru {
    size: usize,
    clock: u64,
    latest: HashMap<Page, u64, FixedState>,
    queue: VecDeque<(u64, Page)>,
}

impl Lru {
    fn new(size: usize) -> Lru {
        Lru { size, clock: 0, latest: HashMap::with_hasher(FixedState::with_seed(1)), queue: VecDeque::new() }
    }

    /// Uses a page, which becomes the latest; returns whether it was there, and the page evicted for it.
    fn use_page(&mut self, page: Page) -> (bool, Option<Page>) {
        self.clock += 1;
        self.queue.push_back((self.clock, page));
        let hit = self.latest.insert(page, self.clock).is_some();
        let mut victim = None;
        while self.latest.len() > self.size {
            let (time, oldest) = self.queue.pop_front().expect("every page is in the queue");
            if self.latest.get(&oldest) == Some(&time) {
                self.latest.remove(&oldest);
                victim = Some(oldest);
            }
        }
        (hit, victim)
    }
}

/// Read hits of a volatile disk cache (read misses enter, writes refresh) below a main-memory buffer that writes its changed
/// victims back (Rahm 1991, section 3.3), as a share of all references.
fn volatile_cache_hits(trace: &Trace, buffer: usize, cache: usize) -> f64 {
    let (mut main, mut disk, mut hits) = (Lru::new(buffer), Lru::new(cache), 0);
    let mut dirty = BTreeSet::new();
    for reference in trace.references() {
        let page = (reference.partition, reference.object);
        let (hit, victim) = main.use_page(page);
        if let Some(victim) = victim
            && dirty.remove(&victim)
            && disk.latest.contains_key(&victim)
        {
            disk.use_page(victim);
        }
        if !hit {
            hits += u64::from(disk.use_page(page).0);
        }
        if reference.write {
            dirty.insert(page);
        }
    }
    hits as f64 / trace.references().len() as f64
}

#[test]
fn a_disk_cache_as_large_as_the_buffer_gives_what_was_published() {
    let points = |buffer, cache| 100.0 * volatile_cache_hits(trace(), buffer, cache);
    let (large, small) = (points(2_000, 2_000), points(1_000, 1_000));
    assert!((large - 0.7).abs() < 0.05 && (small - 0.6).abs() < 0.05, "{large} {small}");
}

#[test]
fn a_seed_gives_one_trace() {
    assert!(generate(1) == *trace());
    let sizes = |seed| plans(seed).iter().map(|plan| plan.size).collect::<Vec<_>>();
    assert_ne!(sizes(1), sizes(2));
}
