use super::model::{Flaw, Model};
use super::request::NONE;
use super::*;
use base::{Lsn, PageId, PartitionId, Random};

const S: Mode = Mode::Shared;
const U: Mode = Mode::Update;
const X: Mode = Mode::Exclusive;
const I: Mode = Mode::InsertIntention;

fn record(number: u64) -> Resource {
    Resource::record(PartitionId(1), number)
}

/// A table in which requests come with the owner's index as its age.
struct Bench {
    table: LockTable,
    woken: Vec<Owner>,
}

impl Bench {
    fn new(policy: VictimPolicy) -> Bench {
        Bench { table: LockTable::new(policy), woken: Vec::new() }
    }

    fn ask(&mut self, owner: u32, number: u64, mode: Mode) -> Outcome {
        let outcome = self.table.request(Owner(owner), record(number), mode, owner.into());
        self.table.check().expect("sound after a request");
        outcome
    }

    fn granted(&mut self, owner: u32, number: u64, mode: Mode) {
        assert_eq!(self.ask(owner, number, mode), Outcome::Granted, "{owner} {number} {mode:?}");
    }

    fn waits(&mut self, owner: u32, number: u64, mode: Mode) {
        assert_eq!(self.ask(owner, number, mode), Outcome::Waiting, "{owner} {number} {mode:?}");
    }

    fn ends(&mut self, owner: u32, woken: &[u32]) {
        self.table.release_all(Owner(owner), &mut self.woken);
        self.expect(woken);
    }

    fn expect(&mut self, woken: &[u32]) {
        self.table.check().expect("sound after a release");
        assert_eq!(self.woken.drain(..).map(|owner| owner.0).collect::<Vec<_>>(), woken);
    }
}

#[test]
fn readers_share_and_a_writer_waits_without_being_overtaken() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 7, S);
    bench.waits(2, 7, X);
    bench.waits(3, 7, S);
    bench.waits(4, 7, S);
    assert_eq!(bench.table.waiting(Owner(3)), Some(record(7)));
    bench.ends(0, &[]);
    bench.ends(1, &[2]);
    assert_eq!(bench.table.holds(Owner(2), record(7)), Some(X));
    bench.ends(2, &[3, 4]);
    assert_eq!(bench.table.waiting(Owner(3)), None);
    bench.ends(3, &[]);
    bench.ends(4, &[]);
    assert_eq!(bench.table.statistics(), LockStatistics { requests: 5, waits: 3, deadlocks: 0 });
    bench.table.restart_statistics();
    assert_eq!(bench.table.statistics(), LockStatistics::default());
}

#[test]
fn update_is_granted_beside_readers_and_admits_no_more() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 7, U);
    bench.waits(2, 7, S);
    bench.waits(1, 7, X);
    bench.ends(0, &[1]);
    bench.ends(1, &[2]);
}

#[test]
fn requests_are_reentrant_and_upgrades_go_first() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(0, 7, S);
    bench.granted(0, 7, U);
    bench.granted(0, 7, X);
    bench.granted(0, 7, I);
    assert_eq!((bench.table.holds(Owner(0), record(7)), bench.table.held(Owner(0))), (Some(X), 1));
    bench.ends(0, &[]);
    bench.granted(0, 7, S);
    bench.granted(1, 7, S);
    bench.waits(2, 7, X);
    bench.waits(0, 7, X);
    bench.ends(1, &[0]);
    bench.ends(0, &[2]);
}

#[test]
fn an_update_upgrade_overtakes_the_exclusive_upgrade_that_it_blocks_anyway() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 7, S);
    bench.waits(0, 7, X);
    bench.granted(1, 7, U);
    bench.ends(1, &[0]);
}

#[test]
fn inserters_share_a_gap_but_not_with_its_readers() {
    let mut table = LockTable::new(VictimPolicy::Requester);
    let mut woken = Vec::new();
    let gap = Resource::ranges(PartitionId(1), 9);
    let end = Resource::end_gap(PartitionId(1));
    assert_eq!(table.request(Owner(0), gap, I, 0), Outcome::Granted);
    assert_eq!(table.request(Owner(1), gap, I, 1), Outcome::Granted);
    assert_eq!(table.try_request(Owner(2), gap, S), Attempt::Denied);
    assert_eq!(table.try_request(Owner(2), end, S), Attempt::Granted);
    assert_eq!(table.request(Owner(2), gap, S, 2), Outcome::Waiting);
    table.release(Owner(0), gap, &mut woken);
    assert!(woken.is_empty());
    table.release_all(Owner(1), &mut woken);
    assert_eq!(woken, [Owner(2)]);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn the_requester_is_the_victim_and_its_request_is_withdrawn() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, X);
    bench.granted(1, 8, X);
    bench.waits(1, 7, X);
    assert_eq!(bench.ask(0, 8, X), Outcome::Deadlock { victim: Owner(0) });
    assert_eq!(bench.table.waiting(Owner(0)), None);
    bench.ends(0, &[1]);
    assert_eq!(bench.table.statistics(), LockStatistics { requests: 4, waits: 1, deadlocks: 1 });
}

#[test]
fn two_upgrading_readers_deadlock() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 7, S);
    bench.waits(0, 7, X);
    assert_eq!(bench.ask(1, 7, X), Outcome::Deadlock { victim: Owner(1) });
    bench.ends(1, &[0]);
}

#[test]
fn an_earlier_waiter_is_waited_for() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 8, X);
    bench.waits(2, 7, X);
    bench.waits(1, 7, S);
    assert_eq!(bench.ask(0, 8, S), Outcome::Deadlock { victim: Owner(0) });
}

#[test]
fn the_youngest_is_the_victim() {
    let mut bench = Bench::new(VictimPolicy::Youngest);
    bench.granted(0, 7, X);
    bench.granted(1, 8, X);
    bench.granted(2, 9, X);
    bench.waits(1, 9, X);
    bench.waits(2, 7, X);
    assert_eq!(bench.ask(0, 8, X), Outcome::Deadlock { victim: Owner(2) });
    assert_eq!(bench.table.waiting(Owner(0)), Some(record(8)));
    // The victim still waits, but no other owner is sacrificed for its sake.
    bench.waits(3, 7, S);
    assert!(bench.table.cancel(Owner(2), &mut bench.woken));
    assert!(!bench.table.cancel(Owner(2), &mut bench.woken));
    bench.ends(2, &[1]);
    bench.ends(1, &[0]);
    bench.ends(0, &[3]);
    assert_eq!(bench.table.statistics(), LockStatistics { requests: 7, waits: 4, deadlocks: 1 });
}

#[test]
fn the_requester_gives_up_if_one_victim_is_not_enough() {
    let mut bench = Bench::new(VictimPolicy::Youngest);
    bench.granted(0, 7, X);
    bench.granted(1, 8, S);
    bench.granted(2, 8, S);
    bench.waits(1, 7, S);
    bench.waits(2, 7, S);
    assert_eq!(bench.ask(0, 8, X), Outcome::Deadlock { victim: Owner(0) });
    assert_eq!(bench.table.waiting(Owner(0)), None);
    bench.ends(0, &[1, 2]);
}

#[test]
fn a_cancelled_writer_lets_the_readers_behind_it_pass() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.waits(1, 7, X);
    bench.waits(2, 7, S);
    assert!(bench.table.cancel(Owner(1), &mut bench.woken));
    bench.expect(&[2]);
}

#[test]
fn what_was_written_is_stamped() {
    let mut table = LockTable::new(VictimPolicy::Requester);
    let mut woken = Vec::new();
    let (written, read) = (Resource::page(PageId::new(PartitionId(1), 1)), record(2));
    let gap = Resource::end_gap(PartitionId(3));
    for (resource, mode) in [(written, X), (read, S), (gap, I)] {
        assert_eq!(table.request(Owner(0), resource, mode, 0), Outcome::Granted);
    }
    table.release_all_stamped(Owner(0), Lsn(100), &mut woken);
    assert_eq!([written, read, gap].map(|r| table.dependency(r)), [Lsn(100), Lsn::ZERO, Lsn(100)]);
    assert_eq!(table.request(Owner(1), written, X, 1), Outcome::Granted);
    table.release_all_stamped(Owner(1), Lsn(90), &mut woken);
    assert_eq!(table.dependency(written), Lsn(100), "stamps never fall");
    assert_eq!(table.request(Owner(1), read, X, 1), Outcome::Granted);
    table.release_all(Owner(1), &mut woken);
    assert_eq!(table.dependency(read), Lsn::ZERO, "an abort leaves no stamp");
}

#[test]
fn ends_of_owners_that_hold_nothing_are_nothing() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.ends(5, &[]);
    bench.table.release(Owner(5), record(1), &mut bench.woken);
    assert!(!bench.table.cancel(Owner(5), &mut bench.woken));
    assert_eq!(bench.table.holds(Owner(5), record(1)), None);
    assert_eq!(bench.table.waiting(Owner(5)), None);
    bench.granted(0, 1, X);
    assert_eq!(bench.table.holds(Owner(5), record(1)), None);
}

#[test]
#[should_panic(expected = "an owner that waits requests nothing else")]
fn who_waits_must_not_ask() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, X);
    bench.waits(1, 7, X);
    let _ = bench.ask(1, 8, X);
}

#[test]
fn one_owner_holds_more_than_the_table_has_buckets() {
    let mut table = LockTable::new(VictimPolicy::Requester);
    let mut woken = Vec::new();
    let buckets = table.buckets.len() as u64;
    for round in 0..3 {
        for number in 0..buckets * 5 {
            assert_eq!(table.request(Owner(round), record(number), X, 0), Outcome::Granted);
        }
        assert_eq!(table.request(Owner(7), record(3), X, 0), Outcome::Waiting);
        assert_eq!(table.check(), Ok(()));
        table.release_all(Owner(round), &mut woken);
        table.release_all(Owner(7), &mut woken);
        assert_eq!(table.requests.count(), 0);
    }
    assert_eq!(table.check(), Ok(()));
}

/// Drives a table and a model through the same random history. Returns the step at which they part, if they do.
fn part(seed: u64, policy: VictimPolicy, flaw: Flaw, steps: usize) -> Option<usize> {
    let mut random = Random::stream(seed, "locks");
    // Few buckets make long chains.
    let mut table = LockTable::with_buckets(policy, 1);
    let mut model = Model::new(policy, flaw);
    let owners = random.between(2, 12);
    let resources = random.between(1, 10);
    let modes: &[Mode] = random.choose(&[&Mode::ALL[..], &[S, X], &[S, U, X], &[S, I], &[X]]).expect("not empty");
    let mut began = vec![0; owners as usize];
    for step in 0..steps {
        let owner = Owner(random.below(owners) as u32);
        let resource = record(random.below(resources));
        let mode = *random.choose(modes).expect("not empty");
        let mut woken = [Vec::new(), Vec::new()];
        let idle = model.waiting(owner).is_none();
        let alike = match random.below(20) {
            0..14 if idle => {
                let age = &mut began[owner.0 as usize];
                if model.held(owner) == 0 {
                    *age = random.below(5);
                }
                let outcome = table.request(owner, resource, mode, *age);
                let alike = outcome == model.request(owner, resource, mode, *age);
                if let Outcome::Deadlock { victim } = outcome
                    && alike
                {
                    // The victim ends at once, or undoes its changes first, or is slow: others go on meanwhile.
                    match random.below(3) {
                        0 => {
                            table.release_all(victim, &mut woken[0]);
                            model.release_all(victim, &mut woken[1]);
                        }
                        1 => {
                            table.cancel(victim, &mut woken[0]);
                            model.cancel(victim, &mut woken[1]);
                        }
                        _ => {}
                    }
                }
                alike
            }
            14 if idle => {
                let would_grant = table.would_grant(owner, resource, mode);
                let attempt = table.try_request(owner, resource, mode);
                would_grant == (attempt == Attempt::Granted) && attempt == model.try_request(owner, resource, mode)
            }
            15 if table.waiting(owner) != Some(resource) => {
                table.release(owner, resource, &mut woken[0]);
                model.release(owner, resource, &mut woken[1]);
                true
            }
            16 => {
                table.cancel(owner, &mut woken[0]);
                model.cancel(owner, &mut woken[1]);
                true
            }
            17.. => {
                table.release_all(owner, &mut woken[0]);
                model.release_all(owner, &mut woken[1]);
                true
            }
            _ => true,
        };
        if flaw == Flaw::None {
            table.check().unwrap_or_else(|violation| panic!("seed {seed} step {step}: {violation}"));
        }
        let same_state = (0..owners as u32).map(Owner).all(|owner| {
            table.waiting(owner) == model.waiting(owner)
                && table.held(owner) == model.held(owner)
                && (0..resources).all(|r| table.holds(owner, record(r)) == model.holds(owner, record(r)))
        });
        let same_holders = (0..resources).all(|r| {
            let mut holders: Vec<Owner> = table.holders(record(r)).collect();
            holders.sort();
            let holds = |owner: &Owner| model.holds(*owner, record(r)).is_some();
            (0..owners as u32).map(Owner).filter(holds).eq(holders)
        });
        if !alike || woken[0] != woken[1] || !same_state || !same_holders {
            return Some(step);
        }
    }
    None
}

#[test]
fn random_histories_agree_with_the_model() {
    for seed in 0..120 {
        for policy in [VictimPolicy::Requester, VictimPolicy::Youngest] {
            assert_eq!(part(seed, policy, Flaw::None, 300), None, "seed {seed}, {policy:?}");
        }
    }
}

#[test]
fn a_flawed_model_is_found_out() {
    for flaw in [Flaw::Overtakes, Flaw::SymmetricUpdate, Flaw::HolderEdgesOnly, Flaw::UpgradesLast] {
        let parted = (0..100).any(|seed| part(seed, VictimPolicy::Requester, flaw, 200).is_some());
        assert!(parted, "{flaw:?}");
    }
}

/// The first holder of a record.
fn head(table: &LockTable, number: u64) -> u32 {
    let head = table.head(record(number), record(number).hash_bits());
    assert_ne!(head, NONE);
    head
}

/// One reader and one writer that waits.
fn contended() -> Bench {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.waits(1, 7, X);
    bench
}

#[test]
fn check_finds_who_overtook() {
    let Bench { mut table, .. } = contended();
    let head = head(&table, 7);
    table.arrivals += 1;
    let intruder = table.store_request(Owner(2), record(7), S);
    table.owners.push(table.owners[0]);
    table.owners[2].first = NONE;
    table.owners[2].held = 0;
    table.append_holder(head, intruder);
    table.hold(intruder, Owner(2));
    assert_eq!(table.check(), Err(Violation::Overtaken(record(7), Owner(2), Owner(1))));
}

#[test]
fn check_finds_lost_wake_ups() {
    let Bench { mut table, .. } = contended();
    let waiting = table.owners[1].waiting;
    table.requests[waiting].mode = S;
    assert_eq!(table.check(), Err(Violation::NotBlocked(record(7), Owner(1))));
}

#[test]
fn check_finds_incompatible_holders() {
    let mut bench = Bench::new(VictimPolicy::Requester);
    bench.granted(0, 7, S);
    bench.granted(1, 7, S);
    let last = bench.table.owners[1].first;
    bench.table.requests[last].mode = X;
    assert_eq!(bench.table.check(), Err(Violation::Incompatible(record(7), Owner(0), Owner(1))));
}

#[test]
fn check_finds_cycles() {
    let mut bench = Bench::new(VictimPolicy::Youngest);
    bench.granted(0, 7, X);
    bench.granted(1, 8, X);
    bench.waits(1, 7, X);
    assert_eq!(bench.ask(0, 8, X), Outcome::Deadlock { victim: Owner(1) });
    bench.table.owners[1].is_victim = false;
    assert_eq!(bench.table.check(), Err(Violation::Cycle(Owner(0))));
}

#[test]
fn check_finds_broken_lists() {
    type Corruption = fn(&mut LockTable);
    let corruptions: [(Corruption, Violation); 5] = [
        (|table| table.owners[0].held += 1, Violation::Owner(Owner(0))),
        (|table| table.owners[1].waiting = NONE, Violation::Resource(record(7))),
        (|table| table.owners[0].first = NONE, Violation::Owner(Owner(0))),
        (|table| table.resources += 1, Violation::Count),
        (|table| table.buckets.fill(NONE), Violation::Owner(Owner(0))),
    ];
    for (corrupt, violation) in corruptions {
        let Bench { mut table, .. } = contended();
        corrupt(&mut table);
        assert_eq!(table.check(), Err(violation));
        assert!(!violation.to_string().is_empty());
    }
}
