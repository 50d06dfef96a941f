//! Disk caches under power cuts: they only change when a write completes.

use super::{Bench, write};
use crate::{FaultPlan, Media, Options, PowerCut};
use base::Random;
use devices::{Cache, CacheKind, CacheSize, Hardware};
use driver::{CachedFile, Driver, Halt};

const LOSE: PowerCut = PowerCut { lost: 1.0, torn: 0.0 };

/// A disk of 15 ms behind a controller of 1.4 ms with a cache of this kind.
fn hardware(kind: Option<CacheKind>) -> Hardware {
    let mut hardware = Hardware::named("rahm-1991").expect("embedded");
    hardware.device_mut("disk").cache = kind.map(|kind| Cache::new(kind, CacheSize::Pages(4)));
    hardware
}

fn tracked() -> Options {
    Options { seed: 5, faults: Some(FaultPlan::default()), ..Options::default() }
}

fn first_byte(media: &Media) -> u8 {
    let mut bytes = [0];
    media.read("disk", "data", 0, &mut bytes).expect("the file exists");
    bytes[0]
}

#[test]
fn what_stands_in_a_non_volatile_cache_survives() {
    for kind in [CacheKind::NonVolatile, CacheKind::WriteBuffer] {
        for durable in [true, false] {
            let media = Media::new();
            let mut bench = Bench::new(hardware(Some(kind)), tracked(), &media);
            let file = bench.open("disk", "data");
            let began = bench.driver.now();
            bench.write(file, 0, 7, 4_096, durable);
            assert_eq!(bench.driver.now().since_ns(began), 1_400_000, "the disk is still to be written");
            bench.driver.cut_power_after(0);
            assert_eq!(
                bench.driver.park(Some(bench.driver.now().plus_ns(1 << 40)), &mut Vec::new()),
                Err(Halt::PowerCut)
            );
            media.power_cut(&mut Random::stream(1, "cut"), &LOSE);
            assert_eq!(first_byte(&media), 7, "{kind:?}");
            // The machine starts again with an empty cache on the same contents.
            let mut bench = Bench::new(hardware(Some(kind)), tracked(), &media);
            let file = bench.open("disk", "data");
            assert_eq!(bench.read(file, 0, 4_096), Ok(vec![7; 4_096]));
        }
    }
}

#[test]
fn a_volatile_cache_answers_for_nothing() {
    for kind in [None, Some(CacheKind::Volatile)] {
        let media = Media::new();
        let mut bench = Bench::new(hardware(kind), tracked(), &media);
        let file = bench.open("disk", "data");
        bench.write(file, 0, 1, 4_096, true);
        bench.read(file, 0, 4_096).expect("written");
        let (mut done, soon) = (Vec::new(), bench.driver.now().plus_ns(1_500_000));
        bench.submit(write(file, 0, 2, 4_096, true));
        bench.driver.park(Some(soon), &mut done).expect("time passes");
        assert!(done.is_empty(), "a write waits for the disk");
        bench.driver.cut_power_after(0);
        assert_eq!(bench.driver.park(None, &mut done), Err(Halt::PowerCut));
        media.power_cut(&mut Random::stream(1, "cut"), &LOSE);
        assert_eq!(first_byte(&media), 1, "{kind:?}");
    }
}

#[test]
fn caches_and_events_are_reported_by_file_and_sort() {
    let media = Media::new();
    let mut bench = Bench::new(hardware(Some(CacheKind::NonVolatile)), Options::default(), &media);
    let (one, two) = (bench.open("disk", "one"), bench.open("disk", "two"));
    bench.driver.restart_statistics();
    bench.write(one, 0, 1, 4_096, true);
    bench.write(two, 0, 1, 8_192, true);
    bench.read(two, 4_096, 4_096).expect("written");
    let caches = bench.driver.caches();
    assert_eq!((caches.len(), caches[0].device.as_str(), caches[0].kind.as_str()), (1, "disk", "non-volatile"));
    let file = |name: &str, reads, writes| CachedFile {
        name: name.to_owned(),
        reads,
        read_hits: reads,
        writes,
        write_hits: 0,
        absorbed: writes,
    };
    assert_eq!(caches[0].files, [file("one", 0, 1), file("two", 1, 1)]);
    let events = Driver::events(&bench.driver);
    let count = |name: &str| events.iter().find(|event| event.name == name).map_or(0, |event| event.count);
    assert_eq!((count("disk.controller"), count("disk.transmission"), count("cpu")), (3, 3, 0), "{events:?}");
    bench.driver.restart_statistics();
    assert!(bench.driver.caches()[0].files.is_empty() && Driver::events(&bench.driver).is_empty());
}
