//! What becomes of operations that have ended, and who is told of those that have failed.

use crate::Executor;
use crate::operations::Reaction;
use driver::{Completion, Fault, Token};
use std::cell::OnceCell;

/// Who is told.
#[derive(Default)]
pub(super) struct Ear(OnceCell<Box<dyn Fn(&Fault)>>);

impl Executor {
    /// Has `tell` told of every operation that fails, before who waits for it: also of those that are expected to, such as the
    /// opening of a file that may be there.
    ///
    /// # Panics
    /// If another is told already.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Order};
    /// # use real_driver::RealDriver;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let devices = vec![real_driver::Device::new("disk", directory.path())];
    /// # let driver = RealDriver::new(real_driver::Settings { devices, ..real_driver::Settings::default() }).unwrap();
    /// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// use driver::Op;
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let faults = Rc::new(Cell::new(0));
    /// let told = Rc::clone(&faults);
    /// executor.on_fault(move |_| told.set(told.get() + 1));
    /// executor.run(async {
    ///     let device = executor.device("disk")?;
    ///     executor.open(device, "nothing", false).await.map(drop)
    /// }).expect("the machine goes on").expect_err("there is no such file");
    /// assert_eq!(faults.get(), 1);
    /// ```
    pub fn on_fault(&self, tell: impl Fn(&Fault) + 'static) {
        assert!(self.0.faults.0.set(Box::new(tell)).is_ok(), "one is told of faults");
    }

    #[cold]
    fn tell(&self, fault: &Fault) {
        if let Some(tell) = self.0.faults.0.get() {
            tell(fault);
        }
    }

    /// Gives a completion to who waits for it.
    pub(super) fn react(&self, completion: Completion) {
        if completion.token == Token::DOORBELL {
            self.0.bell.wake_all(self);
            return self.wake_called();
        }
        if let Err(fault) = &completion.result {
            self.tell(fault);
        }
        let reaction = self.0.operations.borrow_mut().complete(completion);
        match reaction {
            Reaction::Discard(completion) => self.close_unwanted(completion),
            Reaction::Wake(task) => self.wake(task),
            Reaction::Run(handler, completion) => handler(completion),
        }
    }
}
