//! Files by their names.

use super::Executor;
#[cfg(doc)]
use driver::Driver;
use driver::{DeviceId, Fault, FileId, Op, Output};

impl Executor {
    /// Opens a file, or creates it; says how long it is, in bytes.
    ///
    /// # Errors
    /// The driver's [`Fault`].
    pub async fn open(&self, device: DeviceId, name: &str, create: bool) -> Result<(FileId, u64), Fault> {
        match self.perform(Op::Open { device, name: name.to_owned(), create }).await.result? {
            Output::Opened { file, length } => {
                self.0.names.borrow_mut().set_file(file, device, name);
                Ok((file, length))
            }
            other => unreachable!("opening a file answers with the file, not {other:?}"),
        }
    }

    /// The names of a device's files.
    ///
    /// # Errors
    /// The driver's [`Fault`].
    pub async fn names(&self, device: DeviceId) -> Result<Vec<String>, Fault> {
        match self.perform(Op::List { device }).await.result? {
            Output::Names(names) => Ok(names),
            other => unreachable!("a listing answers with names, not {other:?}"),
        }
    }

    /// Lets a file go that was opened; see [`Driver::forget`].
    pub fn forget(&self, file: FileId) {
        self.0.driver.borrow_mut().forget(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;
    use real_driver::{Options, RealDriver};
    use std::pin::pin;
    use std::task::Poll;

    #[test]
    fn a_file_that_is_opened_for_a_task_that_is_gone_is_let_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let driver = RealDriver::open(Options::new("disk", directory.path())).expect("opens");
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let device = executor.device("disk").expect("there");
        let is_open = |name: &str| {
            let path = directory.path().join(name);
            let descriptors = std::fs::read_dir("/proc/self/fd").expect("the process has descriptors");
            descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).any(|found| found == path)
        };
        executor
            .run(async {
                let (kept, _) = executor.open(device, "kept", true).await.expect("opens");
                for name in ["kept", "other"] {
                    let mut opening = pin!(executor.open(device, name, true));
                    std::future::poll_fn(|context| {
                        assert!(opening.as_mut().poll(context).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    if name == "other" {
                        // It completes before it is given up.
                        executor.sleep_ns(200_000_000).await;
                    }
                }
                executor.sleep_ns(200_000_000).await;
                assert!(is_open("kept") && !is_open("other"));
                executor.forget(kept);
                executor.sleep_ns(200_000_000).await;
                assert!(!is_open("kept"), "its second opening was given up");
            })
            .expect("the machine goes on");
    }
}
