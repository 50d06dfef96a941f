//! What takes a driver's place when its executor is stopped.

use base::{Clock, Instant};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, FaultKind, Frame, Halt, Op, Prices, StationReport,
    Token,
};
use std::sync::Arc;

/// A machine that has stopped: time stands still and every operation is refused.
pub(crate) struct Stopped {
    now: Instant,
    clock: Clock,
    prices: Option<Prices>,
    refused: Vec<Completion>,
}

impl Stopped {
    /// The end of this driver's time.
    pub fn after(driver: &dyn Driver) -> Stopped {
        Stopped { now: driver.now(), clock: driver.clock(), prices: driver.prices(), refused: Vec::new() }
    }
}

fn refusal() -> Fault {
    Fault::new(FaultKind::Cancelled, "the machine was stopped: open the database again")
}

impl Driver for Stopped {
    fn now(&self) -> Instant {
        self.now
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn submit(&mut self, token: Token, op: Op) {
        self.refused.push(Completion { token, result: Err(refusal()), buffer: op.into_buffer() });
    }

    fn cancel(&mut self, _: Token) {}

    fn park(&mut self, _: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.refused.is_empty() {
            return Err(Halt::Idle);
        }
        done.append(&mut self.refused);
        Ok(())
    }

    /// A machine that has stopped keeps no secrets.
    fn entropy(&mut self) -> u128 {
        0
    }

    fn frames(&mut self, _: usize, _: usize) -> Result<Vec<Frame>, Fault> {
        Err(refusal())
    }

    fn device(&self, _: &str) -> Option<DeviceId> {
        None
    }

    fn traits(&self, _: DeviceId) -> DeviceTraits {
        DeviceTraits { atomic_write: 1, untorn_on_request: 0, alignment: 4096, synchronous: false, durable: false }
    }

    fn prices(&self) -> Option<Prices> {
        self.prices
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        struct Silent;
        impl Doorbell for Silent {
            fn ring(&self) {}
        }
        Arc::new(Silent)
    }

    fn description(&self) -> String {
        "stopped".to_owned()
    }

    fn stations(&self) -> Vec<StationReport> {
        Vec::new()
    }

    fn restart_statistics(&mut self) {}
}
