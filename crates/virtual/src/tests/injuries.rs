use super::{Bench, read, write};
use crate::{FaultPlan, Injury, Media, Options, PowerCut};
use base::Random;
use devices::Hardware;
use driver::{Completion, Driver, Fault, FaultKind, FileId, Op, Output};

const LOSE: PowerCut = PowerCut { lost: 1.0, torn: 0.0 };

fn bench(seed: u64) -> (Media, Bench, FileId) {
    let media = Media::new();
    let options = Options { seed, faults: Some(FaultPlan::default()), ..Options::default() };
    let mut bench = Bench::new(Hardware::ideal(), options, &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 16_384, true);
    (media, bench, file)
}

impl Bench {
    /// Runs an operation that suffers this.
    fn inject(&mut self, op: Op, injury: Injury) -> Completion {
        let token = self.submit(op);
        self.driver.inject(token, injury);
        let mut done = Vec::new();
        while done.is_empty() {
            self.driver.park(None, &mut done).expect("the operation completes");
        }
        done.remove(0)
    }
}

fn kind(result: Result<Output, Fault>) -> Result<(), FaultKind> {
    result.map(|_| ()).map_err(|fault| fault.kind)
}

#[test]
fn a_failed_sync_may_forget_what_it_was_to_make_durable() {
    let (mut durable, mut gone, mut cached) = (0, 0, 0);
    for seed in 0..60 {
        let (media, mut bench, file) = bench(seed);
        bench.write(file, 0, 2, 512, false);
        let failed = bench.inject(Op::Sync { file }, Injury::Forget { cached: seed % 2 == 0 });
        assert_eq!(kind(failed.result), Err(FaultKind::Device));
        let seen = bench.read(file, 0, 512).expect("readable")[0];
        assert!(bench.run(Op::Sync { file }).result.is_ok(), "the next sync has nothing to do");
        assert_eq!(bench.read(file, 0, 512).expect("readable")[0], seen);
        media.power_cut(&mut Random::stream(seed, "cut"), &LOSE);
        let survived = bench.read(file, 0, 512).expect("readable")[0];
        match (seen, survived) {
            (2, 2) => durable += 1,
            (1, 1) => gone += 1,
            (2, 1) if seed % 2 == 0 => cached += 1,
            other => panic!("seen and survived: {other:?}"),
        }
    }
    assert!(durable > 10 && gone > 10 && cached > 5, "{durable} durable, {gone} gone, {cached} cached");
}

#[test]
fn a_sync_that_forgets_tears_no_write_that_is_never_torn() {
    let mut torn = 0;
    for seed in 0..40 {
        let (_, mut bench, file) = bench(seed);
        bench.write(file, 0, 2, 4_096, false);
        bench.write(file, 8_192, 2, 8_192, false);
        bench.inject(Op::Sync { file }, Injury::Forget { cached: false });
        let found = bench.read(file, 0, 16_384).expect("readable");
        assert!(found[..4_096] == [1; 4_096] || found[..4_096] == [2; 4_096]);
        torn += usize::from(found[8_192..].contains(&1) && found[8_192..].contains(&2));
    }
    assert!(torn > 20, "{torn} of 40 longer ones are torn");
}

#[test]
fn what_a_sync_forgot_is_durable_once_it_is_written_again() {
    for seed in 0..20 {
        let (media, mut bench, file) = bench(seed);
        bench.write(file, 0, 2, 512, false);
        bench.inject(Op::Sync { file }, Injury::Forget { cached: true });
        bench.write(file, 0, 3, 512, false);
        assert!(bench.run(Op::Sync { file }).result.is_ok());
        media.power_cut(&mut Random::stream(seed, "cut"), &LOSE);
        assert_eq!(bench.read(file, 0, 512), Ok(vec![3; 512]));
    }
}

#[test]
fn who_opens_a_file_sees_nothing_that_a_failed_sync_has_left_in_the_cache() {
    let mut dropped = 0;
    for seed in 0..60 {
        let (media, mut bench, file) = bench(seed);
        bench.write(file, 0, 2, 512, false);
        bench.inject(Op::Sync { file }, Injury::Forget { cached: true });
        bench.write(file, 512, 2, 512, false);
        let cached = bench.read(file, 0, 512).expect("readable")[0];
        let options = Options { seed, faults: Some(FaultPlan::default()), ..Options::default() };
        let mut next = Bench::new(Hardware::ideal(), options, &media);
        let file = next.open("disk", "data");
        let seen = next.read(file, 0, 512).expect("readable")[0];
        assert_eq!(next.read(file, 512, 512), Ok(vec![2; 512]), "the next sync writes this");
        dropped += u32::from(cached != seen);
        media.power_cut(&mut Random::stream(seed, "cut"), &LOSE);
        assert_eq!(next.read(file, 0, 512), Ok(vec![seen; 512]), "it is as the device has it");
    }
    assert!(dropped > 10, "{dropped} were only in the cache");
}

#[test]
fn acknowledged_writes_vanish_or_land_elsewhere_in_their_file() {
    let (_, mut bench, file) = bench(0);
    assert!(bench.inject(write(file, 0, 2, 512, true), Injury::Lose).result.is_ok());
    assert_eq!(bench.read(file, 0, 16_384), Ok(vec![1; 16_384]));
    assert!(bench.inject(write(file, 4_096, 2, 4_096, true), Injury::Misdirect).result.is_ok());
    let found = bench.read(file, 0, 16_384).expect("readable");
    assert_eq!(found[4_096..8_192], [1; 4_096]);
    assert_eq!(found.iter().filter(|byte| **byte == 2).count(), 4_096);
    let silent = bench.driver.injected().silent.into_iter().collect::<Vec<_>>();
    assert_eq!(silent, [(Injury::Lose, 1), (Injury::Misdirect, 1)]);
}

#[test]
fn a_stale_read_gives_what_was_there_before_and_the_next_one_does_not() {
    let (_, mut bench, file) = bench(0);
    assert!(bench.inject(write(file, 4_096, 2, 4_096, true), Injury::Stale).result.is_ok());
    assert_eq!(bench.read(file, 8_192, 4_096), Ok(vec![1; 4_096]));
    assert_eq!(bench.driver.injected().stale_reads, 0);
    assert_eq!(bench.read(file, 4_096, 8_192), Ok(vec![1; 8_192]));
    assert_eq!(bench.driver.injected().stale_reads, 1);
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![2; 4_096]));
}

#[test]
fn names_and_lengths_stay_as_they_were_if_their_change_fails() {
    let (media, mut bench, file) = bench(0);
    let device = bench.driver.device("disk").expect("there is a disk");
    let create = || Op::Open { device, name: "new".into(), create: true };
    for (injury, expected) in [(Injury::Fail, FaultKind::Device), (Injury::NoSpace, FaultKind::NoSpace)] {
        assert_eq!(kind(bench.inject(create(), injury).result), Err(expected));
        let resize = Op::Resize { file, length: 65_536, prewrite: true };
        assert_eq!(kind(bench.inject(resize, injury).result), Err(expected));
        assert_eq!((media.names("disk"), media.length("disk", "data")), (vec!["data".to_owned()], Some(16_384)));
    }
    let remove = || Op::Remove { device, name: "data".into() };
    assert_eq!(kind(bench.inject(remove(), Injury::Fail).result), Err(FaultKind::Device));
    assert_eq!(kind(bench.inject(Op::List { device }, Injury::Fail).result), Err(FaultKind::Device));
    assert_eq!(kind(bench.inject(write(file, 0, 2, 512, true), Injury::NoSpace).result), Err(FaultKind::NoSpace));
    assert_eq!(bench.read(file, 0, 512), Ok(vec![1; 512]));
    assert_eq!(kind(bench.inject(remove(), Injury::Lose).result), Ok(()), "only writes are lost");
    assert_eq!(kind(bench.run(read(file, 0, 512)).result), Err(FaultKind::NotFound));
}

#[test]
fn a_creation_or_a_removal_under_way_at_a_cut_happens_or_not() {
    let (mut created, mut removed) = (0, 0);
    for seed in 0..40 {
        let (media, mut bench, _) = bench(seed);
        let device = bench.driver.device("disk").expect("there is a disk");
        bench.submit(Op::Open { device, name: "new".into(), create: true });
        bench.submit(Op::Remove { device, name: "data".into() });
        bench.driver.cut_power_after(0);
        assert!(bench.driver.park(None, &mut Vec::new()).is_err());
        media.power_cut(&mut Random::stream(seed, "cut"), &LOSE);
        created += usize::from(media.names("disk").contains(&"new".to_owned()));
        removed += usize::from(!media.names("disk").contains(&"data".to_owned()));
    }
    assert!((5..35).contains(&created) && (5..35).contains(&removed), "{created} created, {removed} removed");
}
