// What the examples in the documentation stand on, included by each.

pub use entresol_engine::{Error, Internals as _, PartitionSpec, Transaction};

/// Runs `work` with a new database on an ideal machine under the virtual clock.
pub fn with_database<T>(work: impl AsyncFnOnce(&entresol_engine::Database) -> entresol_engine::Result<T>) -> T {
    with_database_of(entresol_engine::Settings::default(), work)
}

/// The same, with these settings.
pub fn with_database_of<T>(
    settings: entresol_engine::Settings,
    work: impl AsyncFnOnce(&entresol_engine::Database) -> entresol_engine::Result<T>,
) -> T {
    use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = executor::Executor::new(Box::new(driver), executor::Order::FirstInFirstOut);
    let result = executor.run(async { work(&entresol_engine::Database::create(&executor, settings).await?).await });
    executor.stop();
    result.expect("the machine goes on").expect("the example works")
}
