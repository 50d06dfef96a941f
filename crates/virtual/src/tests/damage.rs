use super::{Bench, read};
use crate::{FaultPlan, Media, Options, PowerCut};
use base::Random;
use devices::Hardware;
use driver::{FaultKind, Op};

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
