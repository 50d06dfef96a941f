use crate::Executor;
use driver::{Fault, Op};
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
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        let run = Box::new(move || {
            let value = run();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        self.perform(Op::Compute { run, instructions }).await.result?;
        let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(value.expect("a computation that has ended has delivered its result"))
    }
}
