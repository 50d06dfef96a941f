// A machine that carries out one operation much later than those that were asked of it afterwards, as where a thread hangs in it, or
// fails at some of them.

use base::Instant;
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, FaultKind, FileId, Frame, Halt, Op, Output, Prices,
    StationReport, Token,
};
use executor::{Executor, Order};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{FaultPlan, Hardware, Injury, Media, Options, VirtualDriver};

/// Which operation is held back, and until when.
type Wanted = Option<(Box<dyn Fn(&Op) -> bool>, Instant)>;

/// Which operations fail, and how many nanoseconds later than they would otherwise.
type Refused = Option<(Box<dyn Fn(&Op) -> bool>, u64)>;

/// Has an operation held back, or all that runs.
#[derive(Clone, Default)]
pub struct Holder(Rc<RefCell<Wanted>>, Rc<Cell<u64>>, Rc<RefCell<Refused>>, Rc<Cell<bool>>, Rc<RefCell<Files>>);

/// The files that are open, by their names.
type Files = BTreeMap<String, FileId>;

impl Holder {
    /// The first operation from now on of which this is true happens at this moment.
    pub fn hold(&self, until: Instant, is_meant: impl Fn(&Op) -> bool + 'static) {
        self.0.replace(Some((Box::new(is_meant), until)));
    }

    /// From now on each operation fails of which this is true, on a machine of [`refusing`].
    pub fn refuse(&self, is_meant: impl Fn(&Op) -> bool + 'static) {
        self.refuse_after(0, is_meant);
    }

    /// The same, after this many nanoseconds.
    pub fn refuse_after(&self, ns: u64, is_meant: impl Fn(&Op) -> bool + 'static) {
        self.2.replace(Some((Box::new(is_meant), ns)));
    }

    /// From now on there is no more memory for frames, or there is again.
    pub fn starve(&self, is_starving: bool) {
        self.3.set(is_starving);
    }

    /// The process and its devices stand still, and their clock goes on, as where a laptop sleeps.
    pub fn pause(&self, ns: u64) {
        self.1.set(self.1.get() + ns);
    }

    /// The file that was opened last by this name.
    pub fn file(&self, name: &str) -> FileId {
        *self.4.borrow().get(name).expect("it is open")
    }

    /// Whether it was asked for.
    pub fn has_held(&self) -> bool {
        self.0.borrow().is_none()
    }
}

struct HoldingDriver {
    driver: VirtualDriver,
    wanted: Holder,
    opening: BTreeMap<Token, String>,
}

impl Driver for HoldingDriver {
    fn now(&self) -> Instant {
        self.driver.now().plus_ns(self.wanted.1.get())
    }

    fn submit(&mut self, token: Token, op: Op) {
        let meant = self.wanted.0.borrow_mut().take_if(|(is_meant, _)| is_meant(&op));
        let refused = self.wanted.2.borrow().as_ref().and_then(|(is_meant, ns)| is_meant(&op).then_some(*ns));
        if let Op::Open { name, .. } = &op {
            self.opening.insert(token, name.clone());
        }
        self.driver.submit(token, op);
        if let Some(ns) = refused {
            self.driver.inject(token, Injury::Fail);
            self.driver.delay(token, ns);
        }
        if let Some((_, until)) = meant {
            self.driver.delay(token, until.since_ns(self.now()));
        }
    }

    fn cancel(&mut self, token: Token) {
        self.driver.cancel(token);
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let paused_ns = self.wanted.1.get();
        self.driver.park(until.map(|until| Instant::from_ns(until.ns().saturating_sub(paused_ns))), done)?;
        for completion in done {
            if let (Some(name), Ok(Output::Opened { file, .. })) =
                (self.opening.remove(&completion.token), &completion.result)
            {
                self.wanted.4.borrow_mut().insert(name, *file);
            }
        }
        Ok(())
    }

    fn entropy(&mut self) -> u128 {
        self.driver.entropy()
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        if self.wanted.3.get() {
            return Err(Fault::new(FaultKind::NoMemory, "no memory (injected)"));
        }
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

/// Runs `work` on this machine, one of whose operations may be held back.
pub fn holding<T>(hardware: Hardware, media: &Media, work: impl AsyncFnOnce(&Executor, &Holder) -> T) -> T {
    holding_in(Order::FirstInFirstOut, hardware, media, work)
}

/// The same, some of whose operations may fail.
pub fn refusing<T>(hardware: Hardware, media: &Media, work: impl AsyncFnOnce(&Executor, &Holder) -> T) -> T {
    let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
    on(VirtualDriver::new(hardware, options, media.clone()), Order::FirstInFirstOut, work)
}

/// The same, whose tasks have their turns in this order.
pub fn holding_in<T>(
    order: Order,
    hardware: Hardware,
    media: &Media,
    work: impl AsyncFnOnce(&Executor, &Holder) -> T,
) -> T {
    on(VirtualDriver::new(hardware, Options::default(), media.clone()), order, work)
}

fn on<T>(driver: VirtualDriver, order: Order, work: impl AsyncFnOnce(&Executor, &Holder) -> T) -> T {
    let wanted = Holder::default();
    let driver = HoldingDriver { driver, wanted: wanted.clone(), opening: BTreeMap::new() };
    let executor = Executor::new(Box::new(driver), order);
    let done = executor.run(work(&executor, &wanted));
    executor.stop();
    done.expect("the machine goes on")
}
