use super::*;
use devices::{Hardware, Servers};

fn quick() -> MeasureOptions {
    MeasureOptions {
        file_bytes: 8 << 20,
        seconds: 0.4,
        sizes: vec![4096, 65_536],
        depths: vec![1, 8],
        ..MeasureOptions::default()
    }
}

fn scratch(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("entresol-real-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for this test");
    directory
}

#[test]
fn every_point_is_measured_and_the_directory_left_empty() {
    let directory = scratch("measure");
    let mut seen = Vec::new();
    let measured = measure(&directory, &quick(), |progress| {
        seen.push(progress.done);
        assert_eq!(progress.total, 18);
        assert!(progress.point.operations > 0);
    });
    let measured = measured.expect("the directory can be written");
    assert!(seen.into_iter().eq(1..=18));
    assert_eq!(std::fs::read_dir(&directory).expect("it exists").count(), 0);
    let lone = measured.point(Probe::Read, 4096, 1).expect("measured");
    assert!(lone.p50_ns > 0 && lone.p50_ns <= lone.p99_ns && lone.mean_ns > 0.0, "{lone:?}");
    let rate = lone.bytes_per_second / lone.operations_per_second;
    assert!((rate - 4096.0).abs() < 1.0, "{lone:?}");
    // One at a time: the operations' times fill the time of measuring.
    assert!(lone.operations_per_second * lone.mean_ns < 1.05e9, "{lone:?}");
    assert!(measured.point(Probe::Read, 512, 1).is_none());
    std::fs::remove_dir_all(directory).expect("it is ours");
}

#[test]
fn the_description_is_hardware_with_the_measured_speed() {
    let point = |probe, depth, mean_ns, rate: f64| Point {
        probe,
        size: 4096,
        depth,
        operations: 1000,
        mean_ns,
        p50_ns: mean_ns as u64,
        p99_ns: mean_ns as u64,
        operations_per_second: rate,
        bytes_per_second: rate * 4096.0,
        cpu_ns_mean: 4_000.0,
    };
    let sequential = |probe, bytes_per_second| Point { bytes_per_second, ..point(probe, 8, 1e6, 1000.0) };
    let measurement = Measurement {
        driver: "io_uring".to_owned(),
        traits: DeviceTraits { atomic_write: 512, alignment: 4096, synchronous: false, durable: true },
        file_bytes: 1 << 30,
        points: vec![
            point(Probe::Read, 1, 58_000.0, 16_000.0),
            point(Probe::Read, 128, 1.7e6, 80_000.0),
            point(Probe::Write, 1, 53_000.0, 18_000.0),
            point(Probe::DurableWrite, 1, 99_000.0, 10_000.0),
            point(Probe::Sync, 1, 73_000.0, 8_000.0),
        ],
        sequential_read: sequential(Probe::SequentialRead, 1.3e9),
        sequential_write: sequential(Probe::SequentialWrite, 2.2e9),
    };
    let text = measurement.description("flash");
    let hardware = Hardware::parse(&text, "measured").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let flash = &hardware.devices["flash"];
    let medium = flash.medium.as_ref().expect("a medium");
    assert_eq!(medium.servers, Servers::count(5));
    assert!((medium.service.read.mean_ns() - 54_800.0).abs() < 200.0, "{text}");
    assert_eq!(flash.durable_write_law().mean_ns(), 46_000.0);
    assert_eq!(flash.sync.mean_ns(), 73_000.0);
    assert_eq!((flash.alignment, flash.atomic_write, flash.volatile), (4096, 512, false));
    assert_eq!(hardware.cpu.expect("a CPU").instructions.input_output, 12_000);
}
