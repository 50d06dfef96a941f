use crate::join::Outcome;
use crate::{Executor, JoinHandle};
use driver::{Fault, Op};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

impl Executor {
    /// Runs a long pure computation beside the engine's thread, on every core that is free, and waits for its result. On
    /// described hardware it costs `instructions`.
    ///
    /// # Errors
    /// The driver's [`Fault`] if it was given up.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Order};
    /// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    /// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    /// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// let words = vec![3, 1, 2];
    /// let sorted = executor.run(executor.compute(1_000, move || {
    ///     let mut words = words;
    ///     words.sort();
    ///     words
    /// }));
    /// assert_eq!(sorted, Ok(Ok(vec![1, 2, 3])));
    /// ```
    pub async fn compute<T: Send + 'static>(
        &self,
        instructions: u64,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.begin_compute(instructions, run).join().await
    }

    /// As [`Executor::compute`], but begun at once, while the caller goes on. A panic of `run` is that of a task
    /// ([`Executor::contain_panics`]).
    pub fn begin_compute<T: Send + 'static>(
        &self,
        instructions: u64,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<Result<T, Fault>> {
        let outcome = Outcome::new();
        let (there, executor) = (Rc::clone(&outcome), self.clone());
        let is_contained = self.containment().is_some();
        let run = move || if is_contained { catch_unwind(AssertUnwindSafe(run)) } else { Ok(run()) };
        self.compute_then(instructions, run, move |ended| {
            let end = ended.map_or_else(|fault| Ok(Err(fault)), |value| value.map(Ok));
            there.give(end.map_err(|panic| executor.contained(panic)), &executor);
        });
        JoinHandle { executor: self.clone(), outcome }
    }

    /// As [`Executor::begin_compute`], for callers that need more than the end of the computation: `ended` gets the result.
    pub fn compute_then<T: Send + 'static>(
        &self,
        instructions: u64,
        run: impl FnOnce() -> T + Send + 'static,
        ended: impl FnOnce(Result<T, Fault>) + 'static,
    ) {
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        let run = Box::new(move || {
            let value = run();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        self.submit(Op::Compute { run, instructions }, move |completion| {
            let take = || result.lock().unwrap_or_else(PoisonError::into_inner).take();
            ended(completion.result.map(|_| take().expect("a computation that has ended has delivered its result")));
        });
    }
}
