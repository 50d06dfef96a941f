//! What becomes of operations that have ended, and who is told of those that have failed.

use crate::Executor;
use crate::operations::Reaction;
use driver::{Completion, Fault, Token};
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is done with a fault.
type Tell = Box<dyn Fn(&Fault)>;

/// Who is told.
#[derive(Default)]
pub(super) struct Ear(OnceCell<Tell>);

impl Executor {
    /// Has `tell` told of every operation that fails, before its task learns of that: also of those that are expected to, such as the
    /// opening of a file that may be there. If it panics, that ends nothing.
    ///
    /// # Panics
    /// If another is told already.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Order};
    /// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    /// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    /// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let faults = Rc::new(Cell::new(0));
    /// let told = Rc::clone(&faults);
    /// executor.on_fault(move |_| told.set(told.get() + 1));
    /// let device = executor.device("disk").expect("the ideal machine has a disk");
    /// let opened = executor.run(async { executor.open(device, "nothing", false).await });
    /// assert!(opened.expect("the machine goes on").is_err());
    /// assert_eq!(faults.get(), 1);
    /// ```
    pub fn on_fault(&self, tell: impl Fn(&Fault) + 'static) {
        assert!(self.0.faults.0.set(Box::new(tell)).is_ok(), "one is told of faults");
    }

    #[cold]
    fn tell(&self, fault: &Fault) {
        if let Some(tell) = self.0.faults.0.get() {
            let _told = catch_unwind(AssertUnwindSafe(|| tell(fault)));
        }
    }

    /// Gives a completion to what waits for it.
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
