//! Files that become longer for tasks that do not wait for it any more.

use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, Frame, Halt, Op, Prices, StationReport, Token,
};
use entresol_engine::{Database, PartitionSpec, Settings, log};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// A driver whose first change of a file's length, once this is armed, happens only much later, as where a thread hangs in it.
struct LateResize {
    driver: VirtualDriver,
    is_armed: Rc<Cell<bool>>,
    held: Option<(Token, Op)>,
    until: Instant,
}

impl Driver for LateResize {
    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn submit(&mut self, token: Token, op: Op) {
        if matches!(op, Op::Resize { .. }) && self.is_armed.take() {
            self.held = Some((token, op));
        } else {
            self.driver.submit(token, op);
        }
    }

    // What is on its way in a thread cannot be taken back.
    fn cancel(&mut self, token: Token) {
        if self.held.as_ref().is_none_or(|(held, _)| *held != token) {
            self.driver.cancel(token);
        }
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> std::result::Result<(), Halt> {
        if self.now() >= self.until
            && let Some((token, op)) = self.held.take()
        {
            self.driver.submit(token, op);
        }
        let release = self.held.as_ref().map(|_| self.until);
        self.driver.park(until.into_iter().chain(release).min(), done)
    }

    fn entropy(&mut self) -> u128 {
        self.driver.entropy()
    }

    fn frames(&mut self, count: usize, size: usize) -> std::result::Result<Vec<Frame>, Fault> {
        self.driver.frames(count, size)
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.driver.device(name)
    }

    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.driver.traits(device)
    }

    fn prices(&self) -> Option<Prices> {
        self.driver.prices()
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.driver.doorbell()
    }

    fn description(&self) -> String {
        self.driver.description()
    }

    fn stations(&self) -> Vec<StationReport> {
        self.driver.stations()
    }

    fn restart_statistics(&mut self) {
        self.driver.restart_statistics();
    }
}

/// Runs `work` on a machine on which the first change of a file's length, once this is armed, happens after five seconds.
fn late<T>(media: &Media, work: impl AsyncFnOnce(&Executor, &Cell<bool>) -> T) -> T {
    let is_armed = Rc::new(Cell::new(false));
    let driver = LateResize {
        driver: VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone()),
        is_armed: Rc::clone(&is_armed),
        held: None,
        until: Instant::from_ns(5 * SECOND_NS),
    };
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(work(&executor, &is_armed));
    executor.stop();
    done.expect("the machine goes on")
}

/// All of the log's file is there from the beginning.
fn settings() -> Settings {
    let log = log::Settings { capacity: 8 << 20, first_extent: 8 << 20, ..log::Settings::default() };
    Settings { log, ..Settings::default() }
}

const ROWS: u32 = 3_000;

/// What comes late cuts the file, or writes zeros over what has been written since, if others go on meanwhile.
#[test]
fn growth_that_a_transaction_does_not_wait_for_is_waited_for_by_others() {
    let media = Media::new();
    late(&media, async |executor, is_armed| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
        is_armed.set(true);
        let put = async |number: u32| {
            database.transaction(async |tx| tx.put(rows, &number.to_be_bytes(), &[7; 1_000]).await).await
        };
        let given_up = executor.within(100 * MILLISECOND_NS, async {
            for number in 0..ROWS {
                put(number).await?;
            }
            Ok::<_, entresol_engine::Error>(())
        });
        assert!(given_up.await.is_none() && !is_armed.get(), "the file does not become longer");
        for number in 0..ROWS {
            put(number).await.expect("commits");
        }
        database.checkpoint().await.expect("writes all back");
        executor.sleep_ns(6 * SECOND_NS).await;
        database.close().await.expect("closes");
        let database = Database::open(executor, settings(), "rows").await.expect("opens");
        let mut tx = database.begin().await.expect("begins");
        for number in 0..ROWS {
            let found = tx.get(rows, &number.to_be_bytes()).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(found, Some(vec![7; 1_000]), "{number}");
        }
        tx.rollback().await.expect("ends");
        assert!(database.check(|_| {}).await.expect("reads").is_clean());
        database.close().await.expect("closes");
    });
}
