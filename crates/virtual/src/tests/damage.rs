use super::{Bench, read};
use crate::{FaultPlan, Media, Options, PowerCut};
use base::Random;
use devices::Hardware;
use driver::{Driver, FaultKind, Op};

const LOSE: PowerCut = PowerCut { lost: 1.0, torn: 0.0 };

fn tracked() -> Options {
    Options { faults: Some(FaultPlan::default()), ..Options::default() }
}

/// A file of 16 KiB of ones of which the second page is unreadable.
fn damaged() -> (Media, Bench, driver::FileId) {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 16_384, true);
    media.make_unreadable("disk", "data", 4_096, 4_096).expect("the file is that long");
    (media, bench, file)
}

#[test]
fn an_unreadable_sector_fails_every_read_that_touches_it_until_it_is_written_whole() {
    let (media, mut bench, file) = damaged();
    assert_eq!(bench.read(file, 0, 4_096), Ok(vec![1; 4_096]));
    assert_eq!(bench.read(file, 0, 8_192), Err(FaultKind::Device));
    assert_eq!(bench.read(file, 4_096, 4_096), Err(FaultKind::Device), "also the second time");
    assert_eq!(bench.read(file, 8_192, 4_096), Ok(vec![1; 4_096]));
    let fault = bench.run(read(file, 4_096, 512)).result.expect_err("unreadable");
    assert!(fault.message.contains("byte 4096 of file 'data' on device 'disk'"), "{fault}");
    assert_eq!(media.read("disk", "data", 4_096, &mut [0]).map_err(|fault| fault.kind), Err(FaultKind::Device));
    bench.write(file, 4_096, 2, 2_048, true);
    assert_eq!(bench.read(file, 4_096, 2_048), Ok(vec![2; 2_048]));
    assert_eq!(bench.read(file, 4_096, 4_096), Err(FaultKind::Device), "its other sectors were not written");
    bench.write(file, 4_096, 3, 4_096, true);
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![3; 4_096]));
}

#[test]
fn a_power_cut_that_undoes_the_write_makes_the_sector_unreadable_again() {
    let (media, mut bench, file) = damaged();
    media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
    assert_eq!(bench.read(file, 4_096, 4_096), Err(FaultKind::Device), "a power cut mends nothing");
    bench.write(file, 4_096, 2, 4_096, false);
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![2; 4_096]));
    media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
    assert_eq!(bench.read(file, 4_096, 4_096), Err(FaultKind::Device));
    bench.write(file, 4_096, 2, 4_096, false);
    assert!(bench.run(Op::Sync { file }).result.is_ok());
    media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![2; 4_096]));
    // Damage after a write also affects the bytes that a cut leaves.
    bench.write(file, 4_096, 3, 4_096, false);
    media.make_unreadable("disk", "data", 4_096, 4_096).expect("the file is that long");
    media.power_cut(&mut Random::stream(0, "cut"), &PowerCut { lost: 0.0, torn: 0.0 });
    assert_eq!(bench.read(file, 4_096, 4_096), Err(FaultKind::Device));
}

#[test]
fn a_file_that_is_cut_short_loses_its_unreadable_sectors() {
    let (_, mut bench, file) = damaged();
    for length in [4_096, 16_384] {
        assert!(bench.run(Op::Resize { file, length, prewrite: false }).result.is_ok());
    }
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![0; 4_096]));
}

#[test]
fn only_what_is_there_can_be_damaged() {
    let (media, ..) = damaged();
    let kind = |file, offset, length| media.make_unreadable("disk", file, offset, length).map_err(|fault| fault.kind);
    assert_eq!(kind("other", 0, 1), Err(FaultKind::NotFound));
    assert_eq!(kind("data", 16_384, 1), Err(FaultKind::EndOfFile));
    assert_eq!(kind("data", u64::MAX, 2), Err(FaultKind::EndOfFile));
    assert_eq!(kind("data", 16_383, 1), Ok(()));
}

#[test]
fn a_hole_is_blank_and_stays_so() {
    let (media, mut bench, file) = damaged();
    bench.write(file, 8_192, 2, 1_024, false);
    media.punch("disk", "data", 8_192, 512).expect("the file is that long");
    let holed = [vec![0; 512], vec![2; 512]].concat();
    assert_eq!(bench.read(file, 8_192, 1_024), Ok(holed));
    media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
    assert_eq!(bench.read(file, 8_192, 512), Ok(vec![0; 512]));
    media.punch("disk", "data", 4_096, 4_096).expect("the file is that long");
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![0; 4_096]), "it can be read again");
    let beyond = media.punch("disk", "data", 16_384, 1).map_err(|fault| fault.kind);
    assert_eq!(beyond, Err(FaultKind::EndOfFile));
}

/// What is known of the only damage of the file: whether it was read, and whether it is still there.
fn met_and_present(media: &Media) -> (bool, bool) {
    let damages = media.damages("disk", "data");
    assert_eq!(damages.len(), 1, "{damages:?}");
    (damages[0].is_met, damages[0].is_present)
}

/// A file of 16 KiB of ones, all durable.
fn sound() -> (Media, Bench, driver::FileId) {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), tracked(), &media);
    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 16_384, true);
    (media, bench, file)
}

#[test]
fn damage_is_met_by_reads_of_its_sectors_while_it_is_there() {
    let (media, mut bench, file) = sound();
    media.flip_bit("disk", "data", 5_000, 3).expect("the file is that long");
    assert_eq!(met_and_present(&media), (false, true));
    bench.read(file, 0, 4_096).expect("readable");
    media.read("disk", "data", 4_096, &mut [0; 4_096]).expect("readable");
    assert_eq!(met_and_present(&media), (false, true), "neither other sectors nor a look at the media count");
    bench.write(file, 4_096, 2, 4_096, false);
    bench.read(file, 4_096, 4_096).expect("readable");
    assert_eq!(met_and_present(&media), (false, true), "a cut may take that back");
    media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
    assert_eq!(met_and_present(&media), (false, true), "it has");
    bench.read(file, 4_096, 4_096).expect("readable");
    assert_eq!(met_and_present(&media), (true, true));
    media.repair();
    assert_eq!(bench.read(file, 0, 16_384), Ok(vec![1; 16_384]));
    assert_eq!(met_and_present(&media), (true, false));
}

#[test]
fn damage_ends_where_it_is_overwritten_for_good_and_with_its_file() {
    let (media, mut bench, file) = sound();
    media.flip_bit("disk", "data", 5_000, 3).expect("the file is that long");
    bench.write(file, 4_096, 2, 4_096, false);
    assert!(bench.run(Op::Sync { file }).result.is_ok());
    assert_eq!(met_and_present(&media), (false, false));
    bench.read(file, 4_096, 4_096).expect("readable");
    media.flip_bit("disk", "data", 9_000, 3).expect("the file is that long");
    bench.read(file, 0, 16_384).expect("readable");
    let damages = media.damages("disk", "data");
    assert_eq!([damages[0].is_met, damages[1].is_met], [false, true], "the first was no more");
    media.remove("disk", "data");
    let number = damages[1].number;
    let left = media.damage(number).expect("it is known");
    assert!(left.is_met && left.is_removed && !left.is_present && media.damage(number + 1).is_none());
}

#[test]
fn a_lost_write_is_damage_once_it_should_be_durable() {
    for (durable, synced) in [(false, false), (false, true), (true, false)] {
        let (media, mut bench, file) = sound();
        let token = bench.submit(super::write(file, 4_096, 2, 4_096, durable));
        bench.driver.inject(token, crate::Injury::Lose);
        bench.driver.park(None, &mut Vec::new()).expect("the write completes");
        assert_eq!(met_and_present(&media), (false, true));
        if synced {
            assert!(bench.run(Op::Sync { file }).result.is_ok());
        }
        media.power_cut(&mut Random::stream(0, "cut"), &LOSE);
        assert_eq!(met_and_present(&media), (false, durable || synced), "a cut takes what was not durable anyway");
        media.repair();
        let expected = if durable || synced { 2 } else { 1 };
        assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![expected; 4_096]));
        assert_eq!(bench.read(file, 8_192, 8_192), Ok(vec![1; 8_192]));
    }
}

#[test]
fn a_misdirected_write_damages_two_places_and_a_repair_mends_both() {
    let (media, mut bench, file) = sound();
    let token = bench.submit(super::write(file, 4_096, 2, 4_096, false));
    bench.driver.inject(token, crate::Injury::Misdirect);
    bench.driver.park(None, &mut Vec::new()).expect("the write completes");
    let damages = media.damages("disk", "data");
    assert_eq!((damages.len(), damages[0].places.len()), (1, 2), "{damages:?}");
    let astray = damages[0].places.iter().find(|place| place.start != 4_096).expect("it went elsewhere").clone();
    assert_eq!(bench.read(file, astray.start, 4_096), Ok(vec![2; 4_096]));
    assert_eq!(met_and_present(&media), (true, true));
    media.repair();
    assert_eq!(bench.read(file, astray.start, 4_096), Ok(vec![1; 4_096]));
    assert_eq!(bench.read(file, 4_096, 4_096), Ok(vec![2; 4_096]));
}

#[test]
fn unreadable_and_blank_sectors_are_repaired_with_what_they_held() {
    let (media, mut bench, file) = damaged();
    bench.write(file, 8_192, 3, 512, false);
    media.punch("disk", "data", 8_192, 4_096).expect("the file is that long");
    assert_eq!(bench.read(file, 8_192, 4_096), Ok(vec![0; 4_096]));
    let damages = media.damages("disk", "data");
    assert_eq!(
        damages.iter().map(|damage| (damage.is_met, damage.is_present)).collect::<Vec<_>>(),
        [(false, true), (true, true)]
    );
    media.repair();
    assert_eq!(bench.read(file, 0, 8_192), Ok(vec![1; 8_192]));
    assert_eq!(bench.read(file, 8_192, 512), Ok(vec![3; 512]));
    assert_eq!(bench.read(file, 8_704, 512), Ok(vec![1; 512]));
}

#[test]
fn a_read_to_come_that_would_be_stale_is_damage_until_it_is_made() {
    let (media, mut bench, file) = sound();
    let mut stale = || {
        let token = bench.submit(super::write(file, 4_096, 2, 4_096, true));
        bench.driver.inject(token, crate::Injury::Stale);
        bench.driver.park(None, &mut Vec::new()).expect("the write completes");
    };
    stale();
    assert_eq!(met_and_present(&media), (false, true));
    media.repair();
    assert_eq!(met_and_present(&media), (false, false));
    stale();
    bench.read(file, 4_096, 512).expect("readable");
    let read = &media.damages("disk", "data")[1];
    assert!(read.is_met && !read.is_present);
}
