//! What a request through a handle takes: `cargo run --release -p entresol --example handle_cost [DIR]`.

#![allow(clippy::disallowed_methods, reason = "threads of a user's program are what is measured")]

use base::units::{format_duration_ns, grouped};
use entresol::configuration::Configuration;
use entresol::{DatabaseThread, Handle, Opening, PartitionId, PartitionSpec};
use real_driver::wall_ns;

const RECORDS: u32 = 1_000;
const REQUESTS: u32 = 100_000;

/// Reads records one after the other; the times of the fastest half and of 99 of 100, in nanoseconds.
fn read(handle: &Handle, notes: PartitionId, requests: u32) -> Result<(u64, u64), entresol::Error> {
    let mut times = Vec::with_capacity(requests as usize);
    for number in 0..requests {
        let began = wall_ns();
        handle.get(notes, &(number % RECORDS).to_be_bytes()).wait()?;
        times.push(wall_ns() - began);
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "handle-cost.data".to_owned());
    let configuration = Configuration::parse("[log]\nsize = \"64 MiB\"\n[buffer]\nsize = \"64 MiB\"")?;
    let thread = DatabaseThread::start(Opening::new(&directory, configuration))?;
    let handle = thread.handle();
    let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait()?;
    let writes: Vec<_> = (0..RECORDS).map(|number| handle.put(notes, &number.to_be_bytes(), &[7; 100])).collect();
    writes.into_iter().try_for_each(|write| write.wait())?;
    read(&handle, notes, REQUESTS / 10)?;
    for threads in [1, 2, 8, 64] {
        let began = wall_ns();
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                let handle = handle.clone();
                std::thread::spawn(move || read(&handle, notes, REQUESTS / threads))
            })
            .collect();
        let mut half = 0;
        let mut most = 0;
        for reader in readers {
            let (of_half, of_most) = reader.join().expect("it does not panic")?;
            (half, most) = (half.max(of_half), most.max(of_most));
        }
        let rate = f64::from(REQUESTS) * 1e9 / (wall_ns() - began) as f64;
        let [half, most] = [half, most].map(|ns| format_duration_ns(ns as f64));
        println!("{threads:>2} threads: {:>9} gets/s, median {half}, 99 % {most}", grouped(rate as u64));
    }
    thread.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}
