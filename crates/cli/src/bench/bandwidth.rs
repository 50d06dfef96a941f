//! How fast a device is from front to end, and the system gives memory: what the speed of recovery and of temporary space is
//! held against.

use crate::Failure;
use base::statistics::Histogram;
use base::units::format_size;
use driver::{Access, Fault, FileId, Frame, Op};
use executor::{Executor, Order, WaitQueue};
use real_driver::{Options, RealDriver, wall_ns};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Bytes of one transfer.
pub const UNIT: u64 = 1 << 20;
/// Transfers in flight.
const DEPTH: u64 = 4;
/// Bytes of memory that are asked for at once.
const REGION: usize = 4 << 20;
/// What has to be touched of memory.
const PAGE: usize = 4096;
/// The file that [`rates`] and [`durable_writes`] make and remove.
const PROBE: &str = "bandwidth.probe";

/// Bytes per second in sequence.
pub struct Rates {
    /// Written.
    pub write: f64,
    /// Read.
    pub read: f64,
}

/// Writes `length` bytes to a file of its own with large transfers, and reads them.
pub fn rates(executor: &Executor, device: &str, length: u64) -> Result<Rates, Failure> {
    let device = executor.device(device).ok_or_else(|| format!("there is no device '{device}'"))?;
    let length = length.next_multiple_of(UNIT);
    let timed = async |file, is_write| {
        let began = executor.now();
        transfer(executor, file, length, is_write).await?;
        Ok::<f64, Fault>(length as f64 * 1e9 / executor.now().since_ns(began).max(1) as f64)
    };
    Ok(executor
        .run(async {
            let (file, _) = executor.open(device, PROBE, true).await?;
            executor.perform(Op::Resize { file, length, prewrite: true }).await.result?;
            let write = timed(file, true).await?;
            let read = timed(file, false).await?;
            executor.perform(Op::Remove { device, name: PROBE.to_owned() }).await.result?;
            Ok::<Rates, Fault>(Rates { write, read })
        })
        .map_err(entresol::OpenError::from)??)
}

/// Durable writes that are to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableWrites {
    /// Bytes of each, a multiple of what the device can write.
    pub length: u32,
    /// How many are under way at once.
    pub depth: u32,
}

/// How fast a device makes writes durable.
pub struct DurableRate {
    /// Writes per second.
    pub writes_per_s: f64,
    /// From submission to completion.
    pub latency: Histogram,
}

/// Bytes of the file that durable writes go around, at most.
const DURABLE_FILE: u64 = 32 << 20;

/// Makes writes durable for so long, one place after the other in a file of its own that was written before.
pub fn durable_writes(
    executor: &Executor,
    device: &str,
    writes: DurableWrites,
    duration_ns: u64,
) -> Result<DurableRate, Failure> {
    let device = executor.device(device).ok_or_else(|| format!("there is no device '{device}'"))?;
    let length = u64::from(writes.length);
    let places = (DURABLE_FILE / length).max(u64::from(writes.depth));
    Ok(executor
        .run(async {
            let (file, _) = executor.open(device, PROBE, true).await?;
            executor.perform(Op::Resize { file, length: places * length, prewrite: true }).await.result?;
            let (next, latency) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Histogram::new())));
            let began = executor.now();
            let frames = executor.frames(writes.depth as usize, writes.length as usize)?;
            let writers: Vec<_> = frames
                .into_iter()
                .map(|mut buffer| {
                    let (next, latency, executor) = (Rc::clone(&next), Rc::clone(&latency), executor.clone());
                    executor.clone().spawn(async move {
                        while executor.now().since_ns(began) < duration_ns {
                            let offset = next.replace(next.get() + 1) % places * length;
                            let (length, access) = (writes.length, Access::Asynchronous);
                            let submitted = executor.now();
                            let op = Op::Write { file, offset, length, buffer, durable: true, access };
                            let completion = executor.perform(op).await;
                            completion.result?;
                            buffer = completion.buffer.expect("a write gives its buffer back");
                            latency.borrow_mut().record(executor.now().since_ns(submitted));
                        }
                        Ok::<(), Fault>(())
                    })
                })
                .collect();
            for writer in writers {
                writer.join().await?;
            }
            let elapsed_ns = executor.now().since_ns(began).max(1);
            executor.perform(Op::Remove { device, name: PROBE.to_owned() }).await.result?;
            let latency = latency.take();
            Ok::<_, Fault>(DurableRate { writes_per_s: latency.count() as f64 * 1e9 / elapsed_ns as f64, latency })
        })
        .map_err(entresol::OpenError::from)??)
}

/// Reads the first `length` bytes of the file `name` in `directory` with large reads past the page cache; the bytes per
/// second.
pub fn sequential_read(directory: &Path, name: &str, length: u64) -> Result<f64, Failure> {
    let length = length / UNIT * UNIT;
    if length == 0 {
        return Err(format!("{} of '{name}' is too little to measure a device with", format_size(length)).into());
    }
    let device = "disk".to_owned();
    let options = Options { devices: vec![(device.clone(), directory.to_owned())], ..Options::default() };
    let executor = Executor::new(Box::new(RealDriver::open(options)?), Order::FirstInFirstOut);
    let device = executor.device(&device).expect("the driver was given this device");
    let result = executor.run(async {
        let (file, _) = executor.open(device, name, false).await?;
        let began = executor.now();
        transfer(&executor, file, length, false).await?;
        Ok::<f64, Fault>(length as f64 * 1e9 / executor.now().since_ns(began).max(1) as f64)
    });
    executor.stop();
    match result {
        Ok(rate) => Ok(rate?),
        Err(_) => unreachable!("every read of a real driver ends"),
    }
}

/// Allocates `bytes` bytes of new memory, touches them on every core and frees them; returns the seconds until the memory was
/// there.
pub fn populate(bytes: u64) -> Result<f64, Failure> {
    let executor = Executor::new(Box::new(RealDriver::open(Options::default())?), Order::FirstInFirstOut);
    let began = wall_ns();
    let populated = executor.run(async {
        let mut regions = Vec::new();
        for _ in 0..bytes / REGION as u64 {
            let mut frames = executor.untouched_frames(1, REGION)?;
            let touching = executor.clone();
            regions.push(executor.spawn(async move {
                let touched = move || {
                    frames[0].iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
                    frames
                };
                touching.compute(0, touched).await
            }));
        }
        let mut there = Vec::new();
        for region in regions {
            there.push(region.join().await?);
        }
        Ok::<f64, Fault>((wall_ns() - began) as f64 / 1e9)
    });
    executor.stop();
    match populated {
        Ok(seconds) => Ok(seconds?),
        Err(_) => unreachable!("every computation of a real driver ends"),
    }
}

/// Transfers a file's first bytes, several pieces at once.
async fn transfer(executor: &Executor, file: FileId, length: u64, is_write: bool) -> Result<(), Fault> {
    let next = Rc::new(Cell::new(0));
    let running = Rc::new(Cell::new(DEPTH));
    let (failure, ended) = (Rc::new(RefCell::new(None)), Rc::new(WaitQueue::new()));
    for mut buffer in executor.frames(DEPTH as usize, UNIT as usize)? {
        let (next, running, failure) = (Rc::clone(&next), Rc::clone(&running), Rc::clone(&failure));
        let (ended, executor) = (Rc::clone(&ended), executor.clone());
        executor.clone().spawn(async move {
            while next.get() < length && failure.borrow().is_none() {
                let offset = next.replace(next.get() + UNIT);
                let completion = executor.perform(piece(file, offset, buffer, is_write)).await;
                buffer = completion.buffer.expect("a transfer gives its buffer back");
                if let Err(fault) = completion.result {
                    failure.replace(Some(fault));
                }
            }
            running.set(running.get() - 1);
            ended.wake_all(&executor);
        });
    }
    while running.get() > 0 {
        ended.wait(executor).await;
    }
    failure.take().map_or(Ok(()), Err)
}

fn piece(file: FileId, offset: u64, buffer: Frame, is_write: bool) -> Op {
    let (length, access) = (UNIT as u32, Access::Asynchronous);
    if is_write {
        Op::Write { file, offset, length, buffer, durable: false, access }
    } else {
        Op::Read { file, offset, length, buffer, access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given() {
        assert!(populate(9 << 20).unwrap() > 0.0);
    }

    #[test]
    fn a_file_is_read_to_its_end_and_not_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("log");
        #[expect(clippy::disallowed_methods, reason = "a test makes the file that it reads")]
        std::fs::write(&file, vec![7_u8; 3 << 20]).unwrap();
        assert!(sequential_read(directory.path(), "log", 3 << 20).unwrap() > 0.0);
        let error = sequential_read(directory.path(), "log", 9 << 20).unwrap_err().to_string();
        assert!(error.contains("log"), "{error}");
        assert!(sequential_read(directory.path(), "log", 1000).is_err());
    }
}
