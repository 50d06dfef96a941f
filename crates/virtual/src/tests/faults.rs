use super::{Bench, read, write};
use crate::{BitFlip, ErrorAt, FaultPlan, Media, Options, Slow};
use base::{Instant, Random};
use devices::Hardware;
use driver::{Driver, FaultKind, Op, OpKind};

fn planned(seed: u64, plan: FaultPlan) -> Options {
    Options { seed, faults: Some(plan), ..Options::default() }
}

fn error(kind: OpKind, device: Option<&str>, nth: u64) -> ErrorAt {
    ErrorAt { kind, device: device.map(str::to_owned), nth }
}

#[test]
fn the_chosen_operations_fail_and_name_their_file() {
    let errors = vec![
        error(OpKind::Read, None, 2),
        error(OpKind::Sync, Some("disk"), 1),
        error(OpKind::Write, Some("flash"), 1),
        error(OpKind::Write, Some("disk"), 3),
    ];
    let mut bench =
        Bench::new(Hardware::ideal(), planned(0, FaultPlan { errors, ..FaultPlan::default() }), &Media::new());
    let file = bench.open("disk", "data");
    let writes: Vec<_> = (0..4).map(|_| bench.write(file, 0, 1, 512, false).result.is_ok()).collect();
    assert_eq!(writes, [true, true, false, true]);
    let reads: Vec<_> = (0..3).map(|_| bench.read(file, 0, 512).is_ok()).collect();
    assert_eq!(reads, [true, false, true]);
    let fault = bench.run(Op::Sync { file }).result.expect_err("planned");
    assert_eq!(fault.kind, FaultKind::Device);
    assert!(fault.message.contains("'data'") && fault.message.contains("'disk'"), "{fault}");
    assert!(bench.run(Op::Sync { file }).result.is_ok());
    let injected = bench.driver.injected().errors.into_iter().collect::<Vec<_>>();
    assert_eq!(injected, [(OpKind::Read, 1), (OpKind::Write, 1), (OpKind::Sync, 1)]);
}

#[test]
fn an_operation_under_way_can_be_condemned() {
    let mut bench = Bench::new(Hardware::ideal(), planned(0, FaultPlan::default()), &Media::new());
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 512, true);
    let (spared, condemned) = (bench.submit(read(file, 0, 512)), bench.submit(read(file, 0, 512)));
    bench.driver.inject(condemned, crate::Injury::Fail);
    let mut done = Vec::new();
    while done.len() < 2 {
        bench.driver.park(None, &mut done).expect("operations are under way");
    }
    for completion in done {
        assert_eq!(completion.result.is_ok(), completion.token == spared);
    }
}

#[test]
fn a_late_operation_happens_after_later_ones_cancelled_or_not() {
    let mut bench = Bench::new(Hardware::ideal(), planned(0, FaultPlan::default()), &Media::new());
    let file = bench.open("disk", "data");
    let late = bench.submit(Op::Resize { file, length: 1_024, prewrite: true });
    bench.driver.delay(late, 1 << 30);
    bench.driver.cancel(late);
    let mut done = Vec::new();
    bench.submit(Op::Resize { file, length: 4_096, prewrite: true });
    bench.driver.park(None, &mut done).expect("two operations are under way");
    assert!(done.len() == 1 && done[0].token != late && bench.driver.now().ns() < 1 << 30);
    assert!(bench.read(file, 0, 4_096).is_ok());
    bench.driver.park(None, &mut done).expect("one operation is under way");
    assert!(done.len() == 2 && done[1].token == late && done[1].result.is_ok());
    assert!(bench.driver.now().ns() >= 1 << 30 && bench.read(file, 0, 4_096).is_err(), "it has cut the file");
}

#[test]
fn a_failed_write_lands_in_part_unless_it_is_atomic() {
    let (mut mixed, mut whole) = (0, 0);
    for seed in 0..40 {
        let errors = vec![error(OpKind::Write, None, 2), error(OpKind::Write, None, 3)];
        let plan = FaultPlan { errors, ..FaultPlan::default() };
        let mut bench = Bench::new(Hardware::ideal(), planned(seed, plan), &Media::new());
        let file = bench.open("disk", "data");
        bench.write(file, 0, 1, 16_384, true);
        assert!(bench.write(file, 0, 2, 8_192, true).result.is_err());
        assert!(bench.write(file, 8_192, 3, 4_096, false).result.is_err());
        let bytes = bench.read(file, 0, 16_384).expect("readable");
        mixed += usize::from(bytes[..8_192].contains(&1) && bytes[..8_192].contains(&2));
        whole += usize::from(bytes[8_192..12_288] == [3; 4_096]);
        assert!(bytes[8_192..12_288] == [3; 4_096] || bytes[8_192..12_288] == [1; 4_096]);
    }
    assert!(mixed > 30 && (8..32).contains(&whole), "{mixed} mixed, {whole} whole of 40");
}

#[test]
fn a_planned_bit_flips_once_and_media_can_decay() {
    let flips = vec![BitFlip { device: None, nth_write: 2 }];
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), planned(1, FaultPlan { flips, ..FaultPlan::default() }), &media);
    let file = bench.open("disk", "data");
    for page in 0..3 {
        bench.write(file, page * 4_096, 0, 4_096, false);
    }
    let flipped = |bytes: Vec<u8>| bytes.iter().map(|b| b.count_ones()).sum::<u32>();
    let counts: Vec<_> = (0..3).map(|page| flipped(bench.read(file, page * 4_096, 4_096).expect("readable"))).collect();
    assert_eq!((counts, bench.driver.injected().flips), (vec![0, 1, 0], 1));

    media.flip_bit("disk", "data", 4, 3).expect("inside the file");
    assert_eq!(bench.read(file, 0, 512).expect("readable")[..6], [0, 0, 0, 0, 8, 0]);
    media.power_cut(&mut Random::stream(0, "cut"), &crate::PowerCut { lost: 1.0, torn: 0.0 });
    assert_eq!(media.length("disk", "data"), Some(0), "nothing was synced");
    assert_eq!(media.flip_bit("disk", "data", 0, 0).expect_err("beyond the end").kind, FaultKind::EndOfFile);
    assert_eq!(media.flip_bit("disk", "other", 0, 0).expect_err("no file").kind, FaultKind::NotFound);
}

#[test]
fn slow_devices_are_slow_for_a_while_and_hung_operations_can_be_cancelled() {
    let hung = (Instant::from_ns(1_000_000), Instant::from_ns(2_000_000));
    let slow = vec![
        Slow { device: "disk".to_owned(), from: Instant::START, until: hung.0, factor: 10.0 },
        Slow { device: "disk".to_owned(), from: hung.0, until: hung.1, factor: Slow::HUNG },
    ];
    let mut bench =
        Bench::new(Hardware::ideal(), planned(0, FaultPlan { slow, ..FaultPlan::default() }), &Media::new());
    let file = bench.open("disk", "data");
    let before = bench.driver.now();
    bench.write(file, 0, 1, 512, true);
    assert_eq!(
        bench.driver.now().since_ns(before),
        200_000,
        "ten times 10 us for the write and as much for its durability"
    );

    let mut done = Vec::new();
    bench.driver.park(Some(hung.0), &mut done).expect("time passes");
    let (stuck, other) = (bench.submit(write(file, 0, 2, 512, true)), bench.submit(read(file, 0, 512)));
    bench.driver.park(Some(hung.1), &mut done).expect("time passes");
    assert!(done.is_empty() && bench.driver.now() == hung.1, "the device does not answer");
    bench.driver.cancel(stuck);
    bench.driver.cancel(other);
    while done.len() < 2 {
        bench.driver.park(None, &mut done).expect("cancelled operations complete");
    }
    for completion in &done {
        assert_eq!(completion.result.as_ref().expect_err("cancelled").kind, FaultKind::Cancelled);
        assert!(completion.buffer.is_some(), "the buffer comes back");
    }
    let byte = bench.read(file, 0, 512).expect("the device answers again")[0];
    assert!(byte == 1 || byte == 2, "a cancelled write landed or not");
    assert_eq!(bench.driver.injected().slowed[&OpKind::Write], 2);
    assert_eq!(bench.driver.park(None, &mut done), Err(driver::Halt::Idle), "nothing is under way");
}

#[test]
fn a_hung_device_does_not_answer_whatever_the_jitter() {
    let from = Instant::from_ns(1_000_000);
    for seed in 0..40 {
        let slow = Slow { device: "disk".to_owned(), from, until: Instant::NEVER, factor: Slow::HUNG };
        let options = planned(seed, FaultPlan { slow: vec![slow], ..FaultPlan::default() });
        let mut bench = Bench::new(Hardware::ideal(), Options { jitter: true, ..options }, &Media::new());
        let file = bench.open("disk", "data");
        let mut done = Vec::new();
        bench.driver.park(Some(from), &mut done).expect("time passes");
        bench.submit(write(file, 0, 2, 512, true));
        bench.driver.park(Some(from.plus_ns(3_600_000_000_000)), &mut done).expect("time passes");
        assert!(done.is_empty(), "seed {seed}: it answers");
    }
}
