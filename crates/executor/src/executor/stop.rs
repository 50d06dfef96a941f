use super::Executor;
use crate::stopped::Stopped;
use driver::Halt;
use std::cell::Cell;

/// That tasks run, until it is dropped.
pub(super) struct Running<'a>(&'a Cell<bool>);

impl Running<'_> {
    pub fn begin(is_running: &Cell<bool>) -> Result<Running<'_>, Halt> {
        if is_running.replace(true) { Err(Halt::Nested) } else { Ok(Running(is_running)) }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Executor {
    /// Drops every task, timer and handler, and then the driver, which waits for the operations under way. Nothing runs after
    /// this call, even if clones of this executor remain. Tasks spawned from now on are dropped, operations are refused.
    pub fn stop(&self) {
        if self.0.stopped.replace(true) {
            return;
        }
        let tasks = self.0.tasks.borrow_mut().drain();
        drop(tasks);
        let states = self.0.operations.borrow_mut().drain();
        drop(states);
        self.0.timers.borrow_mut().clear();
        self.0.ready.borrow_mut().clear();
        self.0.groups.borrow_mut().clear();
        let stopped = Stopped::after(&**self.0.driver.borrow());
        let driver = self.0.driver.replace(Box::new(stopped));
        drop(driver);
    }
}
