//! The engine as a process on the file system in user space: a dozen ends in each way to the kernel.

use filesystem::{Backend, Mounted, Options, Summary, Volume, run};

/// Some ends, and what went wrong, if anything did; nothing where this machine cannot.
fn torture(backend: Backend, honest: bool, seed: u64, cuts: u64) -> Option<Result<Summary, String>> {
    if !backend.is_available() {
        println!("skipped: this machine has no {}", backend.name());
        return None;
    }
    let make = move || if honest { Volume::new(seed) } else { Volume::new(seed).lying() };
    let mounted = Mounted::with(make, seed);
    let volume =
        mounted.inspect_err(|error| println!("skipped: no file system in user space can be mounted: {error}")).ok()?;
    let program = env!("CARGO_BIN_EXE_filesystem-torture").into();
    Some(run(&Options { program, backend, seed, cuts }, &volume, |_| ()).map_err(|failure| failure.to_string()))
}

fn a_dozen(backend: Backend, seed: u64) {
    if let Some(done) = torture(backend, true, seed, 12) {
        let summary = done.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{summary}");
        assert_eq!(summary.kills + summary.power_cuts, 12);
        assert!(summary.looks > 0 && summary.acknowledged > 100, "{summary}");
    }
}

#[test]
fn a_dozen_ends_lose_nothing_through_io_uring() {
    a_dozen(Backend::IoUring, 3);
}

#[test]
fn a_dozen_ends_lose_nothing_through_threads() {
    a_dozen(Backend::ThreadPool, 2);
}

/// A search that finds nothing on a device that loses what it called durable would find nothing anywhere.
#[test]
fn a_device_that_lies_is_found_out() {
    for seed in 1..6 {
        match torture(Backend::ThreadPool, false, seed, 12) {
            None => return,
            Some(Ok(_)) => {}
            Some(Err(failure)) => return println!("{failure}"),
        }
    }
    panic!("five dozen ends, and nothing is missed");
}
