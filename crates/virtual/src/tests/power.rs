use super::{Bench, read, write};
use crate::{FaultPlan, Media, Options, PowerCut, Survival};
use base::Random;
use devices::Hardware;
use driver::{Access, FaultKind, Halt, Op, OpKind, Token};
use driver::{Completion, Driver};

fn tracked(seed: u64, power_cut_at: Option<u64>) -> Options {
    let faults = Some(FaultPlan { power_cut_at, ..FaultPlan::default() });
    Options { seed, faults, ..Options::default() }
}

fn contents(media: &Media, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    media.read("disk", "data", 0, &mut bytes).expect("the file exists");
    bytes
}

/// Parks until the machine stops.
fn run_down(bench: &mut Bench) -> (Halt, Vec<Completion>) {
    let mut done = Vec::new();
    loop {
        if let Err(halt) = bench.driver.park(None, &mut done) {
            return (halt, done);
        }
    }
}

#[test]
fn what_was_not_made_durable_is_kept_lost_or_torn() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let media = Media::new();
        let mut bench = Bench::new(Hardware::ideal(), tracked(seed, None), &media);
        let file = bench.open("disk", "data");
        bench.write(file, 0, 1, 16_384, true);
        bench.write(file, 0, 2, 8_192, false);
        bench.write(file, 8_192, 3, 4_096, false);
        assert_eq!(bench.read(file, 0, 8_192), Ok(vec![2; 8_192]), "reads see completed writes");
        let survival = media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut::default());
        (kept, lost, torn) = (kept + survival.kept, lost + survival.lost, torn + survival.torn);
        let bytes = contents(&media, 16_384);
        assert!(bytes[..8_192].chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512]));
        assert!(bytes[8_192..12_288] == [1; 4_096] || bytes[8_192..12_288] == [3; 4_096], "4 KiB are never torn");
        assert_eq!(bytes[12_288..], [1; 4_096], "durable");
        let mixed = bytes[..8_192].contains(&1) && bytes[..8_192].contains(&2);
        assert!(!mixed || survival.torn == 1);
        let again = media.power_cut(&mut Random::stream(seed, "again"), &PowerCut::default());
        assert_eq!((again, contents(&media, 16_384)), (Survival::default(), bytes), "what survived is durable");
    }
    assert!(kept > 40 && lost > 40 && torn > 15, "{kept} kept, {lost} lost, {torn} torn");
}

#[test]
fn a_killed_program_leaves_what_it_wrote_and_a_later_power_cut_may_take_it() {
    let lose = PowerCut { lost: 1.0, torn: 0.0 };
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(0, None), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 512, true);
    bench.submit(write(file, 0, 2, 512, false));
    bench.driver.cut_power_after(0);
    assert_eq!(run_down(&mut bench).0, Halt::PowerCut);
    media.process_end(&mut Random::stream(0, "end"));
    assert_eq!(contents(&media, 512), [2; 512]);
    media.power_cut(&mut Random::stream(0, "cut"), &lose);
    assert_eq!(contents(&media, 512), [1; 512]);
}

#[test]
fn a_file_that_a_killed_program_was_making_longer_can_be_removed() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(0, None), &media);
    let file = bench.open("disk", "data");
    bench.submit(write(file, 0, 2, 8_192, false));
    bench.driver.cut_power_after(0);
    assert_eq!(run_down(&mut bench).0, Halt::PowerCut);
    media.process_end(&mut Random::stream(0, "end"));
    assert_eq!(contents(&media, 8_192), [2; 8_192]);
    let mut bench = Bench::new(Hardware::ideal(), tracked(0, None), &media);
    let device = bench.driver.device("disk").expect("it is there");
    bench.submit(Op::Remove { device, name: "data".into() });
    let mut done = Vec::new();
    bench.driver.park(None, &mut done).expect("goes on");
    assert!(done[0].result.is_ok() && media.length("disk", "data").is_none());
}

#[test]
fn policies_decide() {
    for (policy, byte) in [(PowerCut { lost: 1.0, torn: 0.0 }, 1), (PowerCut { lost: 0.0, torn: 0.0 }, 2)] {
        let media = Media::new();
        let mut bench = Bench::new(Hardware::ideal(), tracked(0, None), &media);
        let file = bench.open("disk", "data");
        bench.write(file, 0, 1, 8_192, true);
        bench.write(file, 0, 2, 8_192, false);
        bench.write(file, 8_192, 2, 8_192, false);
        media.power_cut(&mut Random::stream(0, "cut"), &policy);
        assert_eq!(contents(&media, 8_192), vec![byte; 8_192]);
        assert_eq!(
            media.length("disk", "data"),
            Some(if byte == 1 { 8_192 } else { 16_384 }),
            "growth goes with its bytes"
        );
    }
}

#[test]
fn a_sync_covers_writes_completed_before_its_submission() {
    let lose = PowerCut { lost: 1.0, torn: 0.0 };
    let media = Media::new();
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").sync = devices::Law::Fixed(1_000_000);
    let mut bench = Bench::new(hardware, tracked(0, None), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 4_096, false);
    let sync = bench.submit(Op::Sync { file });
    let late = bench.submit(write(file, 0, 2, 512, false));
    let mut done = Vec::new();
    while done.len() < 2 {
        bench.driver.park(None, &mut done).expect("both complete");
    }
    assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [late, sync]);
    media.power_cut(&mut Random::stream(0, "cut"), &lose);
    assert_eq!(contents(&media, 4_096), vec![1; 4_096], "the earlier write is durable, the later one is not");
}

#[test]
fn a_durable_write_covers_its_own_bytes_only_and_older_versions_never_return() {
    for seed in 0..30 {
        let media = Media::new();
        let mut bench = Bench::new(Hardware::ideal(), tracked(seed, None), &media);
        let file = bench.open("disk", "data");
        bench.write(file, 0, 1, 8_192, true);
        bench.write(file, 0, 2, 8_192, false);
        bench.write(file, 0, 3, 512, true);
        media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut { lost: 0.5, torn: 0.0 });
        let bytes = contents(&media, 8_192);
        assert_eq!(bytes[..512], [3; 512]);
        assert!(bytes[512..] == [1; 7_680] || bytes[512..] == [2; 7_680]);
    }
}

#[test]
fn the_power_goes_at_the_chosen_event_and_stays_away() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(0, Some(4)), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 512, true);
    bench.write(file, 0, 2, 512, true);
    bench.submit(write(file, 0, 3, 512, true));
    bench.submit(read(file, 0, 512));
    let (halt, done) = run_down(&mut bench);
    assert_eq!((halt, done.len(), bench.driver.events()), (Halt::PowerCut, 0, 3));
    bench.driver.submit(Token(99), read(file, 0, 512));
    assert_eq!(bench.driver.park(None, &mut Vec::new()), Err(Halt::PowerCut));
    let injected = bench.driver.injected();
    assert_eq!(injected.power_cuts, 1);
    assert_eq!(injected.interrupted.into_iter().collect::<Vec<_>>(), [(OpKind::Read, 1), (OpKind::Write, 1)]);
    let survival = media.power_cut(&mut Random::stream(0, "cut"), &PowerCut { lost: 0.0, torn: 0.0 });
    assert_eq!((survival.kept, contents(&media, 512)), (1, vec![3; 512]), "a write under way may survive");
}

#[test]
fn changes_of_names_and_lengths_under_way_happen_or_not() {
    let (mut created, mut removed, mut resized) = (0, 0, 0);
    for seed in 0..60 {
        let media = Media::new();
        let mut bench = Bench::new(Hardware::ideal(), tracked(seed, Some(4)), &media);
        let device = bench.driver.device("disk").expect("described");
        let data = bench.open("disk", "data");
        bench.open("disk", "doomed");
        bench.write(data, 0, 1, 1_024, true);
        bench.submit(Op::Open { device, name: "new".to_owned(), create: true });
        bench.submit(Op::Remove { device, name: "doomed".to_owned() });
        bench.submit(Op::Resize { file: data, length: 512, prewrite: true });
        assert_eq!(run_down(&mut bench).0, Halt::PowerCut);
        media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut::default());
        created += usize::from(media.names("disk").contains(&"new".to_owned()));
        removed += usize::from(!media.names("disk").contains(&"doomed".to_owned()));
        resized += usize::from(media.length("disk", "data") == Some(512));
        assert!(media.names("disk").contains(&"data".to_owned()), "created before");
    }
    for count in [created, removed, resized] {
        assert!((10..50).contains(&count), "{created} created, {removed} removed, {resized} resized of 60");
    }
}

#[test]
fn volatile_devices_forget_everything() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("nvem").volatile = true;
    let media = Media::new();
    let mut bench = Bench::new(hardware, tracked(0, None), &media);
    let nvem = bench.driver.device("nvem").expect("described");
    assert!(!bench.driver.traits(nvem).durable && bench.driver.traits(nvem).synchronous);
    let (fast, slow) = (bench.open("nvem", "cache"), bench.open("disk", "data"));
    bench.write(fast, 0, 1, 512, true);
    bench.write(slow, 0, 1, 512, true);
    media.power_cut(&mut Random::stream(0, "cut"), &PowerCut::default());
    assert_eq!((media.length("nvem", "cache"), media.length("disk", "data")), (None, Some(512)));
    let fault = media.read("nvem", "cache", 0, &mut [0]).expect_err("gone");
    assert_eq!(fault.kind, FaultKind::NotFound);
}

/// Random work of one client, cut off anywhere: every sector holds its last durable bytes or a later write's.
#[test]
fn every_sector_holds_something_that_was_written_there_since_it_was_last_durable() {
    const SECTORS: usize = 64;
    for seed in 0..150 {
        let mut random = Random::stream(seed, "work");
        let media = Media::new();
        let mut bench = Bench::new(Hardware::ideal(), tracked(seed, Some(random.between(3, 60))), &media);
        let file = bench.open("disk", "data");
        assert!(bench.run(Op::Resize { file, length: SECTORS as u64 * 512, prewrite: true }).result.is_ok());
        let mut possible = vec![vec![0u8]; SECTORS];
        let mut byte = 0;
        let mut done = Vec::new();
        loop {
            let from = random.below(SECTORS as u64) as usize;
            let count = random.between(1, (SECTORS - from).min(20) as u64) as usize;
            let (sync, durable) = (random.chance(0.1), random.chance(0.2));
            byte += 1;
            let op = if sync {
                Op::Sync { file }
            } else {
                write(file, from as u64 * 512, byte, count as u32 * 512, durable)
            };
            bench.submit(op);
            let halted = bench.driver.park(None, &mut done).is_err();
            if sync && !halted {
                possible.iter_mut().for_each(|bytes| drop(bytes.drain(..bytes.len() - 1)));
            }
            for bytes in possible[from..from + count].iter_mut().filter(|_| !sync) {
                if durable && !halted {
                    bytes.clear();
                }
                bytes.push(byte);
            }
            if halted {
                break;
            }
        }
        media.power_cut(&mut random, &PowerCut::default());
        for (sector, bytes) in contents(&media, SECTORS * 512).chunks(512).enumerate() {
            assert!(bytes.iter().all(|b| *b == bytes[0]), "a sector is never torn");
            assert!(possible[sector].contains(&bytes[0]), "seed {seed}, sector {sector}: {} of {possible:?}", bytes[0]);
        }
    }
}

#[test]
fn copies_of_media_are_independent() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 512, true);
    let copy = media.copy();
    let op = Op::Write {
        file,
        offset: 0,
        length: 512,
        buffer: super::frame(512),
        durable: true,
        access: Access::Asynchronous,
    };
    assert!(bench.run(op).result.is_ok());
    assert_eq!((contents(&media, 512), contents(&copy, 512)), (vec![0; 512], vec![1; 512]));
}

#[test]
fn what_a_shrunk_file_lost_never_returns() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(0, None), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 8_192, false);
    assert!(bench.run(Op::Resize { file, length: 700, prewrite: true }).result.is_ok());
    assert!(bench.run(Op::Resize { file, length: 8_192, prewrite: true }).result.is_ok());
    media.power_cut(&mut Random::stream(0, "cut"), &PowerCut { lost: 0.0, torn: 0.0 });
    let bytes = contents(&media, 8_192);
    assert!(bytes[..700] == [1; 700] && bytes[700..].iter().all(|b| *b == 0), "the kept write was cut at 700 bytes");
}
