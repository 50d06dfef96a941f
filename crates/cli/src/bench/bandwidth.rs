//! How fast a device reads a file from front to end: what the speed of recovery is held against.

use crate::Failure;
use base::units::format_size;
use driver::{Access, FileId, Op};
use executor::{Executor, Order, WaitQueue};
use real_driver::{Options, RealDriver, wall_ns};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Bytes of one read.
const READ: u64 = 1 << 20;
/// Reads in flight.
const DEPTH: u64 = 4;

/// Reads the first `length` bytes of the file `name` in `directory` with large reads past the page cache; the bytes per
/// second.
pub fn sequential_read(directory: &Path, name: &str, length: u64) -> Result<f64, Failure> {
    let length = length / READ * READ;
    if length == 0 {
        return Err(format!("{} of '{name}' is too little to measure a device with", format_size(length)).into());
    }
    let device = "disk".to_owned();
    let options = Options { devices: vec![(device.clone(), directory.to_owned())], ..Options::default() };
    let executor = Executor::new(Box::new(RealDriver::open(options)?), Order::FirstInFirstOut);
    let device = executor.device(&device).expect("the driver was given this device");
    let result = executor.run(async {
        let (file, _) = executor.open(device, name, false).await?;
        let began = wall_ns();
        read(&executor, file, length).await?;
        Ok::<f64, driver::Fault>(length as f64 * 1e9 / (wall_ns() - began).max(1) as f64)
    });
    executor.stop();
    match result {
        Ok(rate) => Ok(rate?),
        Err(_) => unreachable!("every read of a real driver ends"),
    }
}

async fn read(executor: &Executor, file: FileId, length: u64) -> Result<(), driver::Fault> {
    let next = Rc::new(Cell::new(0));
    let running = Rc::new(Cell::new(DEPTH));
    let (failure, ended) = (Rc::new(RefCell::new(None)), Rc::new(WaitQueue::new()));
    for mut buffer in executor.frames(DEPTH as usize, READ as usize)? {
        let (next, running, failure) = (Rc::clone(&next), Rc::clone(&running), Rc::clone(&failure));
        let (ended, executor) = (Rc::clone(&ended), executor.clone());
        executor.clone().spawn(async move {
            while next.get() < length && failure.borrow().is_none() {
                let offset = next.replace(next.get() + READ);
                let access = Access::Asynchronous;
                let read = Op::Read { file, offset, length: READ as u32, buffer, access };
                let completion = executor.perform(read).await;
                buffer = completion.buffer.expect("a read gives its buffer back");
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

#[cfg(test)]
mod tests {
    use super::*;

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
